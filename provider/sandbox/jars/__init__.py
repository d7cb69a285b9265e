"""Kafka's jars: fetched once through Spark's own Maven resolver, each compared with its SHA-256 in a lock file.

A lock file, `kafka-<version>.lock` in this folder, has one line `sha256  file name` per jar. The jars are stored in the
cache, so that a second run downloads nothing. Spark's resolver never returns scala-library, so PySpark's own is used,
and locked too.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable, Mapping
from importlib import resources
from importlib.util import find_spec
from pathlib import Path

from kafka_steward.errors import SandboxFailed
from kafka_steward.sandbox.cache import exclusive
from kafka_steward.sandbox.java import Java
from kafka_steward.sandbox.maven import resolve

__all__ = ["KAFKA_KRAFT", "KAFKA_ZOOKEEPER", "kafka_jars", "lock_of", "verify"]

#: The version that runs in KRaft mode.
KAFKA_KRAFT = "4.3.1"
#: The last release line that runs with ZooKeeper; its jars include ZooKeeper 3.8.4.
KAFKA_ZOOKEEPER = "3.9.2"

#: The logging binding that Kafka's own dependencies lack, by Kafka version.
_LOGGING = {
    KAFKA_ZOOKEEPER: ("ch.qos.reload4j:reload4j:1.2.25", "org.slf4j:slf4j-reload4j:1.7.36"),
    KAFKA_KRAFT: ("org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",),
}
#: Dependencies of the command-line tools for Connect, which no sandbox runs.
_EXCLUDED = (
    "org.apache.kafka:connect-api",
    "org.apache.kafka:connect-json",
    "org.apache.kafka:connect-runtime",
    "org.apache.kafka:kafka-log4j-appender",
    "com.fasterxml.jackson.jakarta.rs:jackson-jakarta-rs-json-provider",
    "com.fasterxml.jackson.jaxrs:jackson-jaxrs-json-provider",
)


def kafka_jars(version: str, java: Java) -> list[Path]:
    """Return the verified jars of a Kafka version; fetch them if the cache lacks one. Raises SandboxFailed."""
    lock = lock_of(version)
    with exclusive(f"kafka-{version}") as cache:
        folder = cache / f"kafka-{version}"
        if any(not (folder / name).exists() for name in lock):
            _fetch(version, java, folder, lock)
        verify(folder, lock)
    return [folder / name for name in sorted(lock)]


def lock_of(version: str) -> dict[str, str]:
    """Return SHA-256 by file name, as committed. Raises SandboxFailed for a version that is not pinned."""
    lock = resources.files(__name__).joinpath(f"kafka-{version}.lock")
    if not lock.is_file():
        raise SandboxFailed(f"Kafka {version} is not pinned here; there are {KAFKA_ZOOKEEPER} and {KAFKA_KRAFT}.")
    return {name: digest for digest, name in (line.split() for line in lock.read_text().splitlines())}


def verify(folder: Path, lock: Mapping[str, str]) -> None:
    """Compare each jar with the lock. Raises SandboxFailed for the first that is missing, or differs and is deleted."""
    for name, expected in lock.items():
        jar = folder / name
        if not jar.exists():
            raise SandboxFailed(f"{name} is missing in {folder}: {_like(name, folder)}")
        found = hashlib.sha256(jar.read_bytes()).hexdigest()
        if found != expected:
            jar.unlink()
            raise SandboxFailed(
                f"{name} in {folder} has the SHA-256 {found}, not {expected} as pinned: it was removed; run again to "
                "fetch it anew, and if it differs again, find out who changed it."
            )


def _fetch(version: str, java: Java, folder: Path, lock: Mapping[str, str]) -> None:
    ivy = folder.with_name(f"{folder.name}.ivy")
    partial = folder.with_name(f"{folder.name}.partial")
    for leftover in (ivy, partial):
        shutil.rmtree(leftover, ignore_errors=True)
    coordinates = [f"org.apache.kafka:kafka_2.13:{version}", f"org.apache.kafka:kafka-tools:{version}"]
    fetched = resolve([*coordinates, *_LOGGING[version]], _EXCLUDED, ivy=ivy, java=java)
    _copy((*fetched, *_scala_library()), partial)
    verify(partial, lock)
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
    shutil.rmtree(ivy)


def _copy(jars: Iterable[Path], folder: Path) -> None:
    folder.mkdir()
    for jar in jars:
        shutil.copyfile(jar, folder / jar.name)


def _scala_library() -> list[Path]:
    spec = find_spec("pyspark")
    roots = spec.submodule_search_locations if spec and spec.submodule_search_locations else []
    return [jar for root in roots for jar in (Path(root) / "jars").glob("scala-library-*.jar")]


def _like(name: str, folder: Path) -> str:
    stem = name.rstrip("0123456789.jar").rstrip("-.")
    others = sorted(jar.name for jar in folder.glob(f"{stem}*.jar"))
    if name.startswith("scala-library") and others:
        return f"PySpark brought {others[0]}; install the PySpark version that requirements.txt pins."
    return "run again to fetch it."
