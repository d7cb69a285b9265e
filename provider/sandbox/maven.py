"""Spark's own Maven resolver, used as a download tool: PySpark is a dependency anyway, mvn is not."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from kafka_steward.errors import SandboxFailed
from kafka_steward.sandbox.java import Java
from kafka_steward.sandbox.process import die_with_parent_command

_TIMEOUT_S = 900
# The Java from PyPI trusts its own list of certificates; the system's list may also include a company's.
_TRUST_STORES = (Path("/etc/ssl/certs/java/cacerts"), Path("/etc/pki/java/cacerts"))


def resolve(coordinates: Iterable[str], excluded: Iterable[str], *, ivy: Path, java: Java) -> list[Path]:
    """Fetch `group:artifact:version` coordinates with their dependencies into `ivy`; return the jars.

    `excluded` are `group:artifact` pairs to leave out. Spark itself always leaves out scala-library. Raises
    SandboxFailed.
    """
    wanted = list(coordinates)
    with tempfile.TemporaryDirectory() as folder:
        # spark-submit resolves before it runs the program, so an empty program is sufficient.
        program = Path(folder) / "empty.py"
        program.touch()
        command = [
            str(spark_home() / "bin" / "spark-submit"),
            *("--master", "local[1]", "--conf", f"spark.jars.ivy={ivy}"),
            *("--packages", ",".join(wanted), "--exclude-packages", ",".join(excluded)),
            *_trust(java),
            str(program),
        ]
        done = _run(command, java)
    jars = sorted((ivy / "jars").glob("*.jar"))
    if done.returncode or not jars:
        raise SandboxFailed(_why(wanted[0], done.stdout + done.stderr, ivy))
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


def _run(command: list[str], java: Java) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "JAVA_HOME": str(java.home),
        "SPARK_HOME": str(spark_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    return subprocess.run(
        die_with_parent_command(command),
        env=environment,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )


def _trust(java: Java) -> list[str]:
    store = next((path for path in _TRUST_STORES if path.exists()), None) if java.private else None
    return ["--driver-java-options", f"-Djavax.net.ssl.trustStore={store}"] if store else []


def _why(wanted: str, output: str, ivy: Path) -> str:
    ivy.mkdir(parents=True, exist_ok=True)
    log = ivy / "resolver.log"
    log.write_text(output)
    return (
        f"Spark's resolver could not fetch {wanted} and what it needs (its output is in {log}): check the network, "
        "or name a Maven mirror in the environment variable DEFAULT_ARTIFACT_REPOSITORY."
    )
