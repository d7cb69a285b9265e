"""A real browser for tests of pages: the machine's Chromium, or one that npm brings into the cache.

npm's package holds Chromium's headless shell and the libraries that a bare machine lacks, compressed; nothing of it is
installed anywhere, and no Node is run.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
import tarfile
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from kafka_steward.cache import locked_cache

__all__ = ["Chromium", "chromium"]

PACKAGE = "@sparticuz/chromium"
VERSION = "153.0.0"
#: The package's own names the folders of another machine.
FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>{folder}/fonts</dir><cachedir>{folder}/fonts-cache</cachedir></fontconfig>
"""
#: SHA-512 of the package, as npm writes it.
INTEGRITY = "jiGWqSvPMdu4+P9TilYqAR7yEGPEHINx+lCvE/NqNO/EHYzF/x1hUiI5T6ioVIt7dEy7n88byyT0vk+dnsgQwA=="
NAMES = ("chromium", "chromium-browser", "google-chrome")


@dataclass(frozen=True)
class Chromium:
    """An executable, what it needs in its environment, and its language; None for that of the environment."""

    executable: str
    environment: dict[str, str] = field(default_factory=dict)
    language: str | None = "en-US"

    def command(self, profile: Path) -> list[str]:
        """Start it without a window, with its remote control on a free port of 127.0.0.1."""
        # By default not that of the environment: tests read dates and numbers.
        language = [f"--lang={self.language}", f"--accept-lang={self.language}"] if self.language else []
        return [
            self.executable,
            "--headless",
            "--no-sandbox",  # it shows pages of this machine only, and Chromium's sandbox refuses root
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            *language,
            "--remote-debugging-port=0",
            f"--user-data-dir={profile}",
            "about:blank",
        ]


def chromium() -> Chromium:
    """A browser that runs here. Fails with one sentence where there is none."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    return Chromium(found) if found else brought()


def brought() -> Chromium:
    """The one in the cache, brought there by npm at the first call."""
    with locked_cache("chromium") as cache:
        folder = cache / f"chromium-{VERSION}"
        if not folder.exists():
            _bring(folder)
    return Chromium(
        str(folder / "chromium"),
        {"LD_LIBRARY_PATH": str(folder / "lib"), "FONTCONFIG_PATH": str(folder)},
    )


def _bring(folder: Path) -> None:
    npm = shutil.which("npm")
    assert npm, "No browser: install Chromium (Debian's package chromium), or npm, which brings one into the cache."
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    command = [npm, "pack", "--silent", f"{PACKAGE}@{VERSION}"]
    subprocess.run(command, cwd=partial, check=True, timeout=600, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    (package,) = partial.glob("*.tgz")
    digest = base64.b64encode(hashlib.sha512(package.read_bytes()).digest()).decode()
    assert digest == INTEGRITY, f"{package.name} is not the file that was expected: its SHA-512 is {digest}."
    with tarfile.open(package) as archive:
        archive.extractall(partial, filter="data")
    _unpack(partial / "package" / "bin", partial)
    package.unlink()
    shutil.rmtree(partial / "package")
    (partial / "fonts.conf").write_text(FONTS.format(folder=folder))
    partial.rename(folder)


def _unpack(packed: Path, folder: Path) -> None:
    program = folder / "chromium"
    with pa.input_stream(str(packed / "chromium.br"), compression="brotli") as stream, program.open("wb") as output:
        shutil.copyfileobj(stream, output)
    program.chmod(0o755)
    for name in ("al2023", "fonts"):
        packed_files = pa.input_stream(str(packed / f"{name}.tar.br"), compression="brotli")
        with packed_files as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
            archive.extractall(folder, filter="data")
