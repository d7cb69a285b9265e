"""The Spark session of the command line: the one that spark-submit configures, or all cores of this machine."""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError, PythonException
from pyspark.sql import SparkSession

from kafka_steward.errors import PlanningFailed

#: On a single machine nothing has to be reachable from outside.
_LOOPBACK = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
#: A JVM that lives for seconds gains nothing from its second compiler or from parallel garbage collection.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@contextmanager
def local_session() -> Iterator[SparkSession]:
    """Provide a session that ends with the block. Raises PlanningFailed when Spark cannot start."""
    # The planner does not use pandas, whatever its version.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        if "SPARK_CONF_DIR" not in os.environ:
            # A user with a Spark configuration of their own has JVM options of their own too.
            os.environ.setdefault("PYSPARK_SUBMIT_ARGS", f"--driver-java-options '{QUICK_JAVA}' pyspark-shell")
    try:
        spark = SparkSession.builder.config(conf=_spark_conf()).getOrCreate()
    except (PySparkRuntimeError, OSError) as error:
        words = str(error).strip().split("\n")[0].rstrip(".")
        raise PlanningFailed(
            f"Spark could not start ({words}); install Java 17 or newer, and set JAVA_HOME."
        ) from error
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def translate_worker_errors() -> Iterator[None]:
    """Turn a failure on an executor into PlanningFailed with one message."""
    try:
        yield
    except (PythonException, Py4JJavaError) as error:
        text = str(error)
        lacking = re.search(r"No module named '(kafka_steward|pylmcf|fsspec)[.\w]*'", text)
        if lacking:
            raise PlanningFailed(
                f"Spark's executors have no {lacking[1]}; make an archive with --make-archive and pass it to them."
            ) from error
        lines = [line.strip() for line in text.splitlines() if re.match(r"\s*[\w.]*(Error|Exception)\b", line)]
        words = (lines or text.splitlines() or ["no reason given"])[-1].rstrip(".")
        raise PlanningFailed(f"Spark failed: {words}.") from error


def _spark_conf() -> SparkConf:
    # Start the JVM if spark-submit has not, so that the configuration passed to spark-submit is visible.
    SparkContext._ensure_initialized()  # noqa: SLF001 - PySpark has no public way to read it before a session exists
    conf = SparkConf()
    conf.setIfMissing("spark.master", "local[*]")
    conf.setIfMissing("spark.app.name", "kafka-steward-planning")
    conf.setIfMissing("spark.sql.execution.arrow.maxRecordsPerBatch", "200000")
    # Let all cores read even a file of a few megabytes.
    conf.setIfMissing("spark.sql.files.openCostInBytes", "65536")
    # Every stage is given its number of partitions: adaptive execution has nothing to adapt, and each of its steps
    # starts a job.
    conf.setIfMissing("spark.sql.adaptive.enabled", "false")
    # No limit: to enforce one, Spark sums up the whole batch again after every row.
    conf.setIfMissing("spark.sql.execution.arrow.maxBytesPerBatch", str(2**31 - 1))
    if conf.get("spark.master", "").startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        for name, value in _LOOPBACK.items():
            conf.setIfMissing(name, value)
    return conf
