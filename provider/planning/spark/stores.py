"""Probe a workspace in a store or in HDFS, as Spark opens it by Hadoop, and explain its errors in one sentence.

The worker opens the same address by fsspec, with other code, jars and credentials. Therefore files that the worker
wrote may be out of Spark's reach.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException

from kafka_steward.errors import PlanningFailed
from kafka_steward.planning.files.storage import Folder, is_local_uri, spark_uri
from kafka_steward.planning.spark.installed import hadoop_version

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Fewer attempts for the probe, because Hadoop retries an endpoint where nothing listens for minutes. They do not apply
#: to the job, which opens file systems of its own.
_FEW_ATTEMPTS: Mapping[str, str] = {
    "fs.s3a.attempts.maximum": "2",
    "fs.s3a.retry.limit": "1",
    "fs.s3a.connection.establish.timeout": "10s",
    "fs.s3a.impl.disable.cache": "true",
}
#: The Hadoop module whose jar opens a scheme; its version is Hadoop's.
_MODULES: Mapping[str, str] = {"s3a": "hadoop-aws", "abfs": "hadoop-azure", "abfss": "hadoop-azure"}
_NO_JAR = re.compile(r"ClassNotFoundException: Class [\w.]+FileSystem not found|\bUnsupportedFileSystemException\b")
#: Faults in words, with the Java exceptions that show them in a line that names the address.
_FAULTS: Mapping[str, re.Pattern[str]] = {
    "finds no bucket at": re.compile(r"UnknownStoreException\b.*s3a://"),
    "is not allowed to use": re.compile(r"AccessDeniedException\b.*s3a://"),
    "does not reach the store of": re.compile(
        r"(ConnectException|UnknownHostException|ConnectTimeoutException|SocketTimeoutException)\b.*s3a://"
    ),
}
_REMEDIES: Mapping[str, str] = {
    "finds no bucket at": "check spark.hadoop.fs.s3a.endpoint, or AWS_ENDPOINT_URL,",
    "is not allowed to use": (
        "check spark.hadoop.fs.s3a.access.key and spark.hadoop.fs.s3a.secret.key, or AWS_ACCESS_KEY_ID and "
        "AWS_SECRET_ACCESS_KEY, and what they may list, read, write and delete,"
    ),
    "does not reach the store of": "check spark.hadoop.fs.s3a.endpoint, or AWS_ENDPOINT_URL,",
}


def probe_store(spark: SparkSession, snapshot_uri: str) -> None:
    """Let Spark read the head of the snapshot, unless that is a path. Raises PlanningFailed if it reads another one.

    Spark's own errors are left to `translate_worker_errors`.
    """
    if is_local_uri(snapshot_uri):
        return
    head = f"{snapshot_uri.rstrip('/')}/snapshot.json"
    try:
        rows = spark.read.options(**_FEW_ATTEMPTS).text(spark_uri(head), wholetext=True).collect()
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        rows = []
    if [row[0] for row in rows] != [Folder(snapshot_uri, "snapshot").read_text("snapshot.json")]:
        raise PlanningFailed(
            f"Spark does not read what this worker wrote to {head}; let both use one store: compare "
            "spark.hadoop.fs.s3a.endpoint with the worker's AWS_ENDPOINT_URL."
        )


def find_store_fault(text: str, uri: str, *, connect: bool) -> str | None:
    """Return what is wrong with a workspace as one sentence, if `text` is Spark's exception about that; else None.

    `connect` says whether a Spark Connect server raised it, which is configured where it is started.
    """
    if is_local_uri(uri):
        return None
    where = "where the Spark Connect server is started" if connect else "in the extra of the Spark connection"
    if _NO_JAR.search(text):
        return _missing_jar(uri, where, connect=connect)
    for fault, pattern in _FAULTS.items():
        if pattern.search(text):
            return f"Spark {fault} {uri}; {_REMEDIES[fault]} {where}."
    return None


def _missing_jar(uri: str, where: str, *, connect: bool) -> str:
    module = _MODULES.get(spark_uri(uri).partition(":")[0])
    version = None if connect else hadoop_version()
    jar = f"org.apache.hadoop:{module}" if module else "the jar of Hadoop's connector"
    named = f"{jar}:{version}" if module and version else f"{jar}, in the version of Spark's Hadoop,"
    worker = "" if connect else "; for plans on the worker itself, that is one of type spark with the host local[*]"
    return f"Spark has no jar that opens {uri}; name {named} as packages {where}{worker}."
