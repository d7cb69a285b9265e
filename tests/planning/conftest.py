"""One Spark for all tests of the planner."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from kafka_steward.planning.spark.installed import QUICK_JAVA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("tests")
    for name, value in {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        # As on the command line.
        "spark.sql.adaptive.enabled": "false",
        # Not what the job wants: it must not depend on it.
        "spark.sql.shuffle.partitions": "3",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "7",
    }.items():
        builder = builder.config(name, value)
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--driver-java-options '{QUICK_JAVA}' pyspark-shell"
    session = builder.getOrCreate()
    del os.environ["PYSPARK_SUBMIT_ARGS"]
    yield session
    session.stop()
