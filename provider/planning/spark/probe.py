"""Ask Spark, by small jobs before planning, for its executors' Python and code, and for the workspace.

The function that executors run travels whole, because they may have none of our code. Therefore it uses only what every
executor has: Python's own modules and pyarrow. Its reports are judged on the driver.

The worker opens a workspace in a store or in HDFS by fsspec, Spark by Hadoop, with other code, jars and credentials.
Therefore files that the worker wrote may be out of Spark's reach, which `probe_store` finds out.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException

from kafka_steward.errors import PlanError, PlanningFailed, SettingError
from kafka_steward.planning.files.storage import Folder, is_local_uri, spark_uri
from kafka_steward.planning.spark.archive import MAKE_ARCHIVE, ArchiveFacts
from kafka_steward.planning.spark.installed import hadoop_version
from kafka_steward.planning.spark.shipping import ship_whole

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Tasks of the probe where the number of cores is not known.
_TASKS = 64
_MODULES = ("kafka_steward", "pylmcf", "fsspec")


@dataclass(frozen=True)
class Report:
    """The report of one task: its host, Python and platform, the modules that it lacks, and errors with files."""

    host: str
    python: str
    platform: str
    lacking: Sequence[str] = ()
    version: str | None = None
    unread: str | None = None


def probe_executors(spark: SparkSession, snapshot_uri: str, out_uri: str, archive: ArchiveFacts | None) -> int:
    """Ask all executors, and return the number of their hosts. Raises PlanningFailed or SettingError with one message.

    Whether they read the snapshot is asked only where it has an address of a local file system. Executors that join
    later are not asked.
    """
    head = None
    if is_local_uri(snapshot_uri):
        source = Path("/" + spark_uri(snapshot_uri).removeprefix("file:").lstrip("/")) / "snapshot.json"
        try:
            head = (str(source), sha256(source.read_bytes()).hexdigest())
        except OSError as error:
            raise PlanError(f"The workspace at {out_uri} cannot be used: {error.strerror}.") from error
    # Twice as many tasks as cores, so that each executor gets some.
    context = getattr(spark, "_sc", None)
    tasks = _TASKS if context is None else max(16, 2 * int(context.defaultParallelism))
    asked = spark.range(0, tasks, 1, tasks).mapInArrow(ship_whole(_report_of_task, (head, _MODULES)), "report string")
    reports = [Report(**json.loads(row["report"])) for row in asked.collect()]
    judge_reports(reports, archive, out_uri)
    return len({report.host for report in reports})


def judge_reports(reports: Sequence[Report], archive: ArchiveFacts | None, uri: str) -> None:
    """Raise one message for the first report that rules out planning there: SettingError for what a setting repairs."""
    for report in sorted(reports, key=lambda report: report.host):
        _judge_python(report, archive)
        _judge_modules(report)
        if report.unread:
            raise SettingError(
                f"Spark's executor on {report.host} does not share {uri} with this machine ({report.unread}); mount "
                "the workspace at the same path on all machines, or set it to an object store, such as "
                "s3://bucket/folder."
            )


def _judge_python(report: Report, archive: ArchiveFacts | None) -> None:
    if archive is None:
        return
    wanted = {"Python": (archive.python, report.python), "platform": (archive.platform, report.platform)}
    wrong = [f"{name} {made}, not {there}" for name, (made, there) in wanted.items() if made != there]
    if wrong:
        raise SettingError(
            f"The archive does not fit Spark's executor on {report.host}: it is made for {' and '.join(wrong)}; make "
            f"it with `{MAKE_ARCHIVE}` on a machine like the executors'."
        )


def _judge_modules(report: Report) -> None:
    if report.lacking:
        raise PlanningFailed(
            f"Spark's executor on {report.host} has no {report.lacking[0]}; make an archive with `{MAKE_ARCHIVE}`, and "
            "name it as archive in the extra of the Spark connection."
        )
    here = ArchiveFacts.of_this_machine().version
    if report.version != here:
        raise PlanningFailed(
            f"Spark's executor on {report.host} has version {report.version} of kafka_steward, and the driver version "
            f"{here}; install the same version, or use an archive made with `{MAKE_ARCHIVE}`."
        )


def _report_of_task(given: Any, batches: Iterable[Any]) -> Iterator[Any]:
    # It runs on an executor that may have none of our modules: all that it uses is imported here.
    import hashlib  # noqa: PLC0415
    import importlib.util  # noqa: PLC0415
    import json as writer  # noqa: PLC0415
    import platform  # noqa: PLC0415
    import socket  # noqa: PLC0415

    import pyarrow as arrow  # noqa: PLC0415

    head, modules = given
    # A task that leaves its rows unread ends its Python process.
    list(batches)
    # An executor keeps its Python for further jobs.
    importlib.invalidate_caches()
    report: dict[str, Any] = {
        "host": socket.gethostname(),
        "python": f"{sys.version_info[0]}.{sys.version_info[1]}",
        "platform": "-".join(part for part in (sys.platform, platform.machine(), platform.libc_ver()[0]) if part),
        "lacking": [name for name in modules if importlib.util.find_spec(name) is None],
    }
    if "kafka_steward" not in report["lacking"]:
        report["version"] = getattr(importlib.import_module("kafka_steward"), "__version__", None)
    if head is not None:
        source, digest = head
        try:
            with open(source, "rb") as file:  # noqa: PTH123
                same = hashlib.sha256(file.read()).hexdigest() == digest
            report["unread"] = None if same else f"{source} has another content there"
        except OSError as error:
            report["unread"] = f"reading {source}: {error.strerror}"
    yield arrow.RecordBatch.from_pydict({"report": [writer.dumps(report)]})


#: Fewer attempts for the probe, because Hadoop retries an endpoint where nothing listens for minutes. They do not apply
#: to the job, which opens file systems of its own.
_FEW_ATTEMPTS: Mapping[str, str] = {
    "fs.s3a.attempts.maximum": "2",
    "fs.s3a.retry.limit": "1",
    "fs.s3a.connection.establish.timeout": "10s",
    "fs.s3a.impl.disable.cache": "true",
}
#: The Hadoop module whose jar opens a scheme; its version is Hadoop's.
_JARS: Mapping[str, str] = {"s3a": "hadoop-aws", "abfs": "hadoop-azure", "abfss": "hadoop-azure"}
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
    module = _JARS.get(spark_uri(uri).partition(":")[0])
    version = None if connect else hadoop_version()
    jar = f"org.apache.hadoop:{module}" if module else "the jar of Hadoop's connector"
    named = f"{jar}:{version}" if module and version else f"{jar}, in the version of Spark's Hadoop,"
    worker = "" if connect else "; for plans on the worker itself, that is one of type spark with the host local[*]"
    return f"Spark has no jar that opens {uri}; name {named} as packages {where}{worker}."
