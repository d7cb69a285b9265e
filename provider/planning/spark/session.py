"""Open the Spark session of a job: as spark-submit configures it, at a Spark Connect server, or on this machine."""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pyspark
from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.sql import SparkSession

from kafka_steward.errors import PlanningFailed, SettingError
from kafka_steward.planning.spark.archive import FOLDER, MAKE_ARCHIVE, copy_archive, python_version
from kafka_steward.planning.spark.installed import find_spark, local_java_options
from kafka_steward.planning.spark.probe import find_store_fault
from kafka_steward.planning.spark.shipping import use_archive_of_session

#: Settings of a session on a single machine, where nothing has to be reachable from outside.
_LOOPBACK = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_SQL_CONF = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "200000",
    # Let all cores read even a file of a few megabytes.
    "spark.sql.files.openCostInBytes": "65536",
    # Every stage is given its number of partitions. Adaptive execution has nothing to adapt, and each of its steps
    # starts a job.
    "spark.sql.adaptive.enabled": "false",
    # No limit: to enforce one, Spark sums up the whole batch again after every row.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
}
#: The address of a Spark Connect server, sc://host:port, in the environment: PySpark's own variable.
REMOTE = "SPARK_REMOTE"


@contextmanager
def planning_session(archive: str | None = None) -> Iterator[SparkSession]:
    """Provide a session that ends with the block: of the Spark Connect server in SPARK_REMOTE, else of spark-submit.

    Without either it is a session on this machine. To a Spark Connect server `archive` is uploaded, for its executors.
    Raises PlanningFailed when Spark cannot start, or does not answer.
    """
    # The planner does not use pandas, whatever its version.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    with _connect_session(archive) if os.environ.get(REMOTE) else _classic_session() as spark:
        yield spark


def is_remote_session(spark: SparkSession) -> bool:
    """Return whether executors are on other machines, or may be."""
    return bool(os.environ.get(REMOTE)) or not str(spark.conf.get("spark.master", "local")).startswith("local")


@contextmanager
def _connect_session(archive: str | None) -> Iterator[SparkSession]:
    try:
        spark = SparkSession.builder.getOrCreate()
        server = spark.version
        for name, value in _SQL_CONF.items():
            spark.conf.set(name, value)
    except PySparkException as error:
        raise PlanningFailed(f"The Spark Connect server does not open a session: {_first_words(error)}.") from error
    try:
        refuse_other_version(server, pyspark.__version__)
        if archive is not None:
            with TemporaryDirectory(prefix="kafka-steward-") as folder:
                spark.addArtifact(f"{copy_archive(archive, Path(folder))}#{FOLDER}", archive=True)
        use_archive_of_session(None if archive is None else FOLDER)
        yield spark
    finally:
        use_archive_of_session(None)
        spark.stop()


def refuse_other_version(server: str, here: str) -> None:
    """Raise SettingError if a Spark Connect server is of another minor version than the worker's pyspark."""
    wanted, installed = (".".join(version.split(".")[:2]) for version in (server, here))
    if wanted != installed:
        raise SettingError(
            f"The Spark Connect server runs Spark {server}, and the worker's pyspark is of version {here}; install "
            f"pyspark {wanted} on the worker, or start a server of Spark {installed}."
        )


@contextmanager
def _classic_session() -> Iterator[SparkSession]:
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        if "SPARK_CONF_DIR" not in os.environ:
            # A user with a Spark configuration of their own has JVM options of their own too.
            java = local_java_options(find_spark())
            os.environ.setdefault("PYSPARK_SUBMIT_ARGS", f"--driver-java-options '{java}' pyspark-shell")
    try:
        conf = _spark_conf()
    except (PySparkRuntimeError, OSError) as error:
        raise PlanningFailed(
            f"Spark could not start ({_first_words(error)}); install Java 17 or newer, and set JAVA_HOME."
        ) from error
    try:
        spark = SparkSession.builder.config(conf=conf).getOrCreate()
    except Py4JJavaError as error:
        raise PlanningFailed(
            f"Spark could not start on {conf.get('spark.master')} ({root_cause(str(error))}); correct what that names, "
            "or what Spark's errors name in the task's log."
        ) from error
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def translate_worker_errors(workspace: str) -> Iterator[None]:
    """Turn a failure of Spark, on an executor or with the folder `workspace`, into PlanningFailed with one message."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        text = str(error)
        if "PYTHON_VERSION_MISMATCH" in text:
            raise PlanningFailed(_versions_differ(text)) from error
        lacking = re.search(r"No module named '(kafka_steward|pylmcf|fsspec)[.\w]*'", text)
        if lacking:
            raise PlanningFailed(
                f"Spark's executors have no {lacking[1]}; make an archive with `{MAKE_ARCHIVE}`, and "
                "name it as archive in the extra of the Spark connection."
            ) from error
        fault = find_store_fault(text, workspace, connect=bool(os.environ.get(REMOTE)))
        raise PlanningFailed(fault or f"Spark failed: {_last_error(text)}.") from error


def _last_error(text: str) -> str:
    """Return the last line that begins with an exception of Python, else with one of Java or its cause."""
    for beginning in ("", r"(: |Caused by: )"):
        lines = [line for line in text.splitlines() if re.match(rf"\s*{beginning}[\w.]*(Error|Exception)\b", line)]
        if lines:
            return lines[-1].strip().removeprefix(": ").removeprefix("Caused by: ").rstrip(".")
    return (text.splitlines() or ["no reason given"])[0].rstrip(".")


def _versions_differ(text: str) -> str:
    worker, driver = (re.search(rf"{side}[^0-9]*(\d+\.\d+)", text) for side in ("worker", "driver"))
    there = f"Python {worker[1]}" if worker else "another Python"
    return (
        f"Spark's executors run {there}, and the driver Python {driver[1] if driver else python_version()}; let "
        "spark.pyspark.python name a Python of the driver's minor version on the executors."
    )


def _first_words(error: Exception) -> str:
    return str(error).strip().split("\n")[0].rstrip(".")


def root_cause(trace: str) -> str:
    """Return the line of the last cause in a trace of Java, without what Kubernetes' client adds to its message."""
    causes = re.findall(r"^(?:: |Caused by: )(\S+(?:Error|Exception)\b.*)$", trace, re.MULTILINE)
    cause = causes[-1] if causes else trace.strip().split("\n")[0]
    return cause.partition(" Received status:")[0].rstrip(".")


def _spark_conf() -> SparkConf:
    # Start the JVM if spark-submit has not, so that the configuration passed to spark-submit is visible.
    SparkContext._ensure_initialized()  # noqa: SLF001 - PySpark has no public way to read it before a session exists
    conf = SparkConf()
    conf.setIfMissing("spark.master", "local[*]")
    conf.setIfMissing("spark.app.name", "kafka-steward-planning")
    for name, value in _SQL_CONF.items():
        conf.setIfMissing(name, value)
    if conf.get("spark.master", "").startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        for name, value in _LOOPBACK.items():
            conf.setIfMissing(name, value)
    return conf
