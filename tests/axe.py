"""axe-core, the scanner for accessibility, which npm brings into the cache for tests."""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
import tarfile
from typing import Any

from kafka_steward.cache import locked_cache
from tests.page import Page

__all__ = ["serious_findings"]

VERSION = "4.14.1"
#: SHA-512 of the package, as npm writes it.
INTEGRITY = "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="
RUN = (
    "axe.run(document).then(found => found.violations.map(v => [v.impact, v.id, v.nodes.map(n => n.html).slice(0, 3)]))"
)


def serious_findings(page: Page) -> list[Any]:
    """What hinders people on the page that is shown: its serious and critical findings."""
    page.evaluate(_script())
    return [each for each in page.evaluate(RUN) if each[0] in ("serious", "critical")]


def _script() -> str:
    with locked_cache("axe-core") as cache:
        folder = cache / f"axe-core-{VERSION}"
        if not folder.exists():
            npm = shutil.which("npm")
            assert npm, "npm brings axe-core into the cache; install it."
            partial = folder.with_name(f"{folder.name}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            command = [npm, "pack", "--silent", f"axe-core@{VERSION}"]
            subprocess.run(
                command, cwd=partial, check=True, timeout=600, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
            )
            (package,) = partial.glob("*.tgz")
            digest = base64.b64encode(hashlib.sha512(package.read_bytes()).digest()).decode()
            assert digest == INTEGRITY, f"{package.name} is not the file that was expected: its SHA-512 is {digest}."
            with tarfile.open(package) as archive:
                archive.extractall(partial, filter="data")
            partial.rename(folder)
        return (folder / "package" / "axe.min.js").read_text()
