"""A Spark standalone cluster whose Python has none of our code makes the same plan, given the archive."""

import json
import os
import re
import socket
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyspark
import pytest

from kafka_steward.planning.files.formats import read_plan
from kafka_steward.planning.spark import job
from kafka_steward.planning.spark.archive import archive_conf
from kafka_steward.planning.spark.session import QUICK_JAVA
from tests.builders import cluster, planned, written
from tests.eventually import eventually
from tests.planning.test_job import TOPICS

SPARK = Path(pyspark.__file__).parent
SNAPSHOT = cluster("1a 2b 3c 4a! 5b 6c", *TOPICS)
#: What Spark's own Arrow functions need; nothing of ours, and no solver.
BARE = ("numpy", "numpy.libs", "pandas", "pandas.libs", "py4j", "pyarrow", "pyspark", "dateutil", "six.py", "pytz")


@pytest.fixture(scope="module")
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


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A master and two workers of one core each; the address of the master."""
    folder = tmp_path_factory.mktemp("standalone")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    local = ["--host", "127.0.0.1", "--webui-port", "0"]
    commands = [[f"{deploy}.master.Master", *local, "--port", str(port)]]
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


def submitted(
    master: str, python: Path, snapshot: str, out: Path, conf: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    everything = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.executor.memory": "512m",
        "spark.task.maxFailures": "1",
        "spark.sql.codegen.wholeStage": "false",
        "spark.pyspark.python": str(python),
        "spark.pyspark.driver.python": sys.executable,
        **conf,
    }
    command = [str(SPARK / "bin" / "spark-submit"), "--master", master]
    for name, value in everything.items():
        command += ["--conf", f"{name}={value}"]
    command += [job.__file__, "--snapshot", snapshot, "--out", str(out), "--operation", "heal"]
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYSPARK_")}
    env |= {"SPARK_LOCAL_IP": "127.0.0.1", "JAVA_TOOL_OPTIONS": QUICK_JAVA}
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=400, check=False)


@pytest.mark.spark
@pytest.mark.slow
def test_executors_without_our_code_need_the_archive_and_then_make_the_same_plan(
    tmp_path: Path, bare_python: Path, standalone: str
) -> None:
    snapshot = written(SNAPSHOT, tmp_path / "snapshot")
    without = submitted(standalone, bare_python, snapshot, tmp_path / "without", {})
    assert without.returncode == 1
    # spark-submit prints what its Python says, on either stream, to its own standard output.
    assert without.stdout.splitlines()[-1] == (
        "Spark's executors have no kafka_steward; make an archive with --make-archive and pass it to them."
    )
    archive = tmp_path / "archive.tar.gz"
    assert job.main(["--make-archive", str(archive)]) == 0
    done = submitted(standalone, bare_python, snapshot, tmp_path / "plan", archive_conf(archive.as_uri()))
    assert done.returncode == 0, done.stderr[-3000:]
    plan = read_plan(str(tmp_path / "plan"))
    assert plan == planned(SNAPSHOT)
    assert json.loads(done.stdout.splitlines()[-1]) == plan.proof


def test_the_archive_holds_what_planning_imports_and_no_airflow(tmp_path: Path) -> None:
    assert job.main(["--make-archive", str(tmp_path / "a.tar.gz")]) == 0
    with tarfile.open(tmp_path / "a.tar.gz") as archive:
        names = archive.getnames()
    ours = {name for name in names if name.startswith("kafka_steward/")}
    assert {"kafka_steward/__init__.py", "kafka_steward/planning/solver/sharded/plan.py"} <= ours
    assert {name.split("/")[1] for name in ours} == {
        "__init__.py",
        "assignment.py",
        "errors.py",
        "escaping.py",
        "planning",
    }
