"""A Spark of one's own on this machine: a standalone master with two workers, a Spark Connect server, a bare Python.

Their Python has Spark and Arrow, and neither our code nor a solver. Servers listen on 127.0.0.1.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from kafka_steward.planning.spark.installed import QUICK_JAVA
from tests.eventually import eventually

SPARK = Path(pyspark.__file__).parent
#: What Spark's own Arrow functions need; nothing of ours, and no solver.
BARE = (
    "numpy",
    "numpy.libs",
    "pandas",
    "pandas.libs",
    "py4j",
    "pyarrow",
    "pyspark",
    "dateutil",
    "six.py",
    "pytz",
    "google",
    "grpc",
    "grpc_status",
)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that knows Spark and Arrow, and none of our code."""
    home = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True, timeout=300)
    (packages,) = home.glob("lib/python*/site-packages")
    for name in BARE:
        source = SPARK.parent / name
        if source.exists():
            (packages / name).symlink_to(source)
    probe = "import importlib.util as u; print([n for n in ('kafka_steward', 'pylmcf', 'pyarrow') if u.find_spec(n)])"
    found = subprocess.run([home / "bin/python", "-c", probe], capture_output=True, text=True, check=True, timeout=300)
    assert found.stdout.strip() == "['pyarrow']"
    return home / "bin" / "python"


@pytest.fixture(scope="session")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A master and two workers of one core each; the address of the master."""
    folder = tmp_path_factory.mktemp("standalone")
    address = f"spark://127.0.0.1:{free_port()}"
    deploy = "org.apache.spark.deploy"
    local = ["--host", "127.0.0.1", "--webui-port", "0"]
    commands = [[f"{deploy}.master.Master", *local, "--port", address.rpartition(":")[2]]]
    commands += [[f"{deploy}.worker.Worker", *local, "-c", "1", "-m", "700m", address]] * 2
    env = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_WORKER_DIR": str(folder), "SPARK_DAEMON_MEMORY": "256m"}
    env["JAVA_TOOL_OPTIONS"] = QUICK_JAVA
    log = folder / "log"
    with log.open("wb") as out:
        running = [
            subprocess.Popen([SPARK / "bin" / "spark-class", *command], stdout=out, stderr=out, env=env)
            for command in commands
        ]
        try:
            # A slow machine's worker asks more than once.
            workers = re.compile(r"Registering worker (\S+)")
            eventually(lambda: _assert(len(set(workers.findall(log.read_text()))) == 2, log), within=240)
            yield address
        finally:
            for process in running:
                process.terminate()
            for process in running:
                process.wait(30)


def _assert(fact: object, log: Path) -> None:
    assert fact, log.read_text()[-2000:]


@pytest.fixture(scope="session")
def connect_server(tmp_path_factory: pytest.TempPathFactory, bare_python: Path) -> Iterator[int]:
    """A Spark Connect server with two cores; its port."""
    with running_connect_server(tmp_path_factory.mktemp("connect"), bare_python) as port:
        yield port


@contextmanager
def running_connect_server(
    folder: Path, python: Path, more: Mapping[str, str] | None = None, packages: str | None = None
) -> Iterator[int]:
    """Run a Spark Connect server with two cores, with `more` configuration and jars; yield its port."""
    port = free_port()
    conf = {
        **(more or {}),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.sql.artifact.isolation.enabled": "true",
    }
    command = [str(SPARK / "bin" / "spark-submit"), "--master", "local[2]", "--driver-memory", "512m"]
    command += [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
    command += ["--packages", packages] if packages else []
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYSPARK_")}
    env |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": str(python), "JAVA_TOOL_OPTIONS": QUICK_JAVA}
    log = folder / "log"
    with log.open("wb") as out:
        server = subprocess.Popen(command, stdout=out, stderr=out, env=env, cwd=folder)
        try:
            eventually(lambda: _assert("Spark Connect server started" in log.read_text(), log), within=240)
            yield port
        finally:
            server.terminate()
            server.wait(60)
