"""Kafka's main classes in JVMs: nodes that run until they are stopped, and command-line tools.

Every JVM maps an archive of Kafka's classes, loaded and verified once per Java and Kafka version. A broker spends a
third of its start on loading classes (3.1 s of processor time without the archive, 2.0 s with it; a tool 0.9 s and
0.5 s). The archive is Java's own class-data sharing (JEP 350), and is stored in the cache. It is optional.
"""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kafka_steward.cache import locked_cache
from kafka_steward.errors import SandboxFailed
from kafka_steward.sandbox.cluster_layout import HOST, pick_ports, properties_text
from kafka_steward.sandbox.processes import Process, run_to_end

# Many small brokers on one machine: a serial collector, only the C1 compiler, a small heap.
_OPTIONS = ("-Xms64m", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true")

#: The time limit of a tool, in seconds.
TOOL_S = 120.0

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

    `class_archive` is an archive of their classes.
    """

    executable: Path
    jars: Sequence[Path]
    folder: Path
    class_archive: Path | None = None
    heap_mb: int = 256

    def start(
        self, name: str, main_class: str, *arguments: str, options: Sequence[str] = (), prefix: Sequence[str] = ()
    ) -> Process:
        """Start a node that runs until it is stopped; its output goes to `<name>.log`.

        `prefix` is a command that runs the command which follows it, in its own process.
        """
        # Kafka 3 logs through log4j 1, Kafka 4 through log4j 2; each ignores the other's option.
        first, second = self.folder / "log4j.properties", self.folder / "log4j2.properties"
        first.write_text(_LOG4J_1)
        second.write_text(_LOG4J_2)
        logs = (f"-Dlog4j.configuration=file:{first}", f"-Dlog4j2.configurationFile={second}")
        given = [f"-Xmx{self.heap_mb}m", *self._java_options(), *logs, *options]
        command = [*prefix, str(self.executable), *given, main_class, *arguments]
        return Process(name, command, log=self.folder / f"{name}.log", environment=self._environment())

    def run(self, main_class: str, *arguments: str, within_s: float = TOOL_S) -> str:
        """Run a tool to its end; return its output. Raises SandboxFailed with the output when it fails.

        Also raised, from TimeoutExpired, when it was ended after `within_s` seconds.
        """
        command = [str(self.executable), "-Xmx256m", *self._java_options(), main_class, *arguments]
        try:
            done = run_to_end(command, environment=self._environment(), within_s=within_s)
        except subprocess.TimeoutExpired as late:
            raise SandboxFailed(f"{main_class} did not end within {late.timeout:.0f} s.") from late
        if done.returncode:
            raise SandboxFailed(f"{main_class} ended with code {done.returncode}: {done.stderr or done.stdout}")
        return done.stdout

    def _java_options(self) -> tuple[str, ...]:
        # A Java that cannot use the archive continues without it, but would log that into the output of a tool.
        shared = (f"-XX:SharedArchiveFile={self.class_archive}", "-Xlog:disable") if self.class_archive else ()
        return (*_OPTIONS, *shared)

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "CLASSPATH": os.pathsep.join(map(str, self.jars))}


_CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
_READY_S = 120.0


def class_archive(executable: Path, jars: Sequence[Path]) -> Path | None:
    """Return the class archive for this Java and these jars; None if Java cannot make one.

    The first call records it, in about 8 s.
    """
    # Java rejects an archive from another build, or one whose jars have changed.
    build = executable.resolve()
    known = [str(build), str(build.stat().st_mtime_ns), *(f"{jar}:{jar.stat().st_mtime_ns}" for jar in jars)]
    key = hashlib.sha256("\n".join(known).encode()).hexdigest()[:16]
    with locked_cache("classes") as cache:
        archive = cache / f"classes-{key}.jsa"
        if not archive.exists():
            _record_class_archive(executable, jars, archive)
        # An empty file marks that this Java cannot create an archive.
        return archive if archive.stat().st_size else None


def _record_class_archive(executable: Path, jars: Sequence[Path], archive: Path) -> None:
    partial = archive.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="kafka-steward-classes-") as name:
        try:
            _run_single_node(Jvm(executable, jars, Path(name)), partial)
        except SandboxFailed:
            partial.unlink(missing_ok=True)
    if not partial.exists():
        partial.touch()
    partial.rename(archive)


def _run_single_node(jvm: Jvm, archive: Path) -> None:
    """Start a broker that is its own controller, and stop it gracefully: Java writes the archive at its exit."""
    broker, controller = pick_ports(2)
    config = jvm.folder / "node.properties"
    settings: dict[str, object] = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@{HOST}:{controller}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listeners": f"PLAINTEXT://{HOST}:{broker},CONTROLLER://{HOST}:{controller}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": jvm.folder / "data",
    }
    config.write_text(properties_text(settings))
    jvm.run("kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(config))
    node = jvm.start("node", "kafka.Kafka", str(config), options=[f"-XX:ArchiveClassesAtExit={archive}"])
    deadline = time.monotonic() + _READY_S
    while not _is_listening(broker) and node.alive and time.monotonic() < deadline:
        time.sleep(0.1)
    node.terminate(within_s=_READY_S)


def _is_listening(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True
