"""The Spark master of a job: this machine with the PySpark of this Python, or the one of an Airflow connection."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException

from kafka_steward.errors import PlanningFailed, SettingError

__all__ = [
    "LOCAL_CONN_ID",
    "LOCAL_CONF",
    "QUIET_CONF",
    "Master",
    "local_environment",
    "master_of",
    "offer_local_connection",
]

#: The connection that represents this machine. SparkSubmitHook would use YARN for a missing connection.
LOCAL_CONN_ID = "kafka_steward_local_spark"
#: At Spark's default level its own messages would hide those of the job.
QUIET_CONF: Mapping[str, str] = {"spark.log.level": "WARN"}
#: A local job listens on the loopback interface only, and has no web UI. Its JVM lives for seconds, so the C2
#: compiler and a parallel garbage collector would not pay off.
LOCAL_CONF: Mapping[str, str] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@dataclass(frozen=True)
class Master:
    """A Spark master URL."""

    url: str

    @property
    def is_local(self) -> bool:
        """Return whether the whole job runs in one process of this machine."""
        return self.url.startswith("local")


def master_of(spark_conn_id: str | None) -> Master:
    """Return the master that the connection names; this machine without a connection. Raises SettingError."""
    if spark_conn_id is None:
        return Master("local[*]")
    try:
        connection = BaseHook.get_connection(spark_conn_id)
    except AirflowNotFoundException as error:
        raise SettingError(
            f"There is no Airflow connection {spark_conn_id}; create it (type spark), or leave out spark_conn_id to "
            "plan on the worker itself."
        ) from error
    return Master(connection.host or "yarn")


def offer_local_connection() -> None:
    """Define LOCAL_CONN_ID for this process, through the environment variable that Airflow reads connections from."""
    os.environ[f"AIRFLOW_CONN_{LOCAL_CONN_ID.upper()}"] = json.dumps({"conn_type": "spark", "host": "local[*]"})


def local_environment() -> dict[str, str]:
    """Return the environment variables that spark-submit needs to run here, with this Python and its PySpark.

    Raises PlanningFailed, with the command that repairs it, when PySpark is missing or is the client without jars.
    """
    home = os.environ.get("SPARK_HOME") or _pyspark_home()
    if not (Path(home) / "jars").is_dir():
        raise PlanningFailed(
            f"Spark is missing: {home} has no jars, because the package pyspark-client was installed over pyspark. Run "
            f"`{sys.executable} -m pip install --force-reinstall --no-deps pyspark=={_version()}` on the worker."
        )
    binaries = os.pathsep.join((f"{home}/bin", str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    return {
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PATH": binaries,
    }


def _pyspark_home() -> str:
    found = util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise PlanningFailed(
            "Spark is missing: the package pyspark is not installed on the worker. Run "
            f"`{sys.executable} -m pip install 'apache-airflow-providers-apache-spark[pyspark]'`."
        )
    return str(Path(found.origin).parent)


def _version() -> str:
    installed = {one.name: one.version for one in metadata.distributions() if one.name.startswith("pyspark")}
    return installed.get("pyspark") or installed.get("pyspark-client") or "4.*"
