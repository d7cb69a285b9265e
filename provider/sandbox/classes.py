"""An archive of Kafka's classes, loaded and verified once per Java and Kafka version, which every sandbox JVM maps.

A broker spends a third of its start on loading classes (3.1 s of processor time without the archive, 2.0 s with it; a
tool 0.9 s and 0.5 s). The archive is Java's own (JEP 350), and is stored in the cache. It is optional.
"""

from __future__ import annotations

import hashlib
import socket
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from kafka_steward.errors import SandboxFailed
from kafka_steward.sandbox.cache import exclusive
from kafka_steward.sandbox.java import Jvm
from kafka_steward.sandbox.layout import HOST, pick_ports, properties

_NODE = "AAAAAAAAAAAAAAAAAAAAAQ"
_READY_S = 120.0


def class_archive(executable: Path, jars: Sequence[Path]) -> Path | None:
    """Return the archive for this Java and these jars; None if Java cannot make one.

    The first call records it, in about 8 s.
    """
    name = f"classes-{_key(executable, jars)}.jsa"
    with exclusive("classes") as cache:
        archive = cache / name
        if not archive.exists():
            _record(executable, jars, archive)
        # An empty file marks that this Java cannot create an archive.
        return archive if archive.stat().st_size else None


def _key(executable: Path, jars: Sequence[Path]) -> str:
    # Java rejects an archive from another build, or one whose jars have changed.
    build = executable.resolve()
    known = [str(build), str(build.stat().st_mtime_ns), *(f"{jar}:{jar.stat().st_mtime_ns}" for jar in jars)]
    return hashlib.sha256("\n".join(known).encode()).hexdigest()[:16]


def _record(executable: Path, jars: Sequence[Path], archive: Path) -> None:
    partial = archive.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="kafka-steward-classes-") as name:
        try:
            _run_a_node(Jvm(executable, jars, Path(name)), partial)
        except SandboxFailed:
            partial.unlink(missing_ok=True)
    if not partial.exists():
        partial.touch()
    partial.rename(archive)


def _run_a_node(jvm: Jvm, archive: Path) -> None:
    """Start a broker that is its own controller, and stop it gracefully: Java writes the archive at its exit."""
    broker, controller = pick_ports(2)
    config = jvm.folder / "node.properties"
    config.write_text(properties(_node(broker, controller, jvm.folder / "data")))
    jvm.run("kafka.tools.StorageTool", "format", "-t", _NODE, "-c", str(config))
    node = jvm.start("node", "kafka.Kafka", str(config), options=[f"-XX:ArchiveClassesAtExit={archive}"])
    deadline = time.monotonic() + _READY_S
    while not _listens(broker) and node.alive and time.monotonic() < deadline:
        time.sleep(0.1)
    node.terminate(within_s=_READY_S)


def _node(broker: int, controller: int, data: Path) -> dict[str, object]:
    return {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@{HOST}:{controller}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listeners": f"PLAINTEXT://{HOST}:{broker},CONTROLLER://{HOST}:{controller}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": data,
    }


def _listens(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True
