"""Runner of Kafka's main classes: long-lived nodes, and command-line tools."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kafka_steward.errors import SandboxFailed
from kafka_steward.sandbox.process import Process, start_tethered

__all__ = ["Jvm"]

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
        command = start_tethered([str(self.executable), "-Xmx256m", *self._options(), main_class, *arguments])
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
