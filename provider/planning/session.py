"""The Spark session of the command line: the one that spark-submit describes, or all cores of this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from kafka_steward.errors import PlanningFailed

__all__ = ["local_session"]

#: On one machine nothing need be reachable from outside.
_LOOPBACK = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
}


@contextmanager
def local_session() -> Iterator[SparkSession]:
    """A session that ends with the block. Raises PlanningFailed when Spark cannot start."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    try:
        spark = SparkSession.builder.config(conf=_conf()).getOrCreate()
    except (PySparkRuntimeError, OSError) as error:
        words = str(error).strip().split("\n")[0].rstrip(".")
        raise PlanningFailed(
            f"Spark could not start ({words}); install Java 17 or newer, and set JAVA_HOME."
        ) from error
    try:
        yield spark
    finally:
        spark.stop()


def _conf() -> SparkConf:
    # Starts the JVM if spark-submit has not, so that the configuration that it was given is seen.
    SparkContext._ensure_initialized()  # noqa: SLF001 - PySpark has no public way to read it before a session exists
    conf = SparkConf()
    conf.setIfMissing("spark.master", "local[*]")
    conf.setIfMissing("spark.app.name", "kafka-steward-planning")
    conf.setIfMissing("spark.sql.execution.arrow.maxRecordsPerBatch", "200000")
    if conf.get("spark.master", "").startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        for name, value in _LOOPBACK.items():
            conf.setIfMissing(name, value)
    return conf
