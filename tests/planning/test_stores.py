"""The session of a job, and what is said of a workspace that Spark cannot use, from the exceptions that it raises."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest
from pyspark.errors import AnalysisException, PySparkException

from kafka_steward.errors import PlanningFailed, SettingError
from kafka_steward.planning.spark import session, stores
from kafka_steward.planning.spark.session import translate_worker_errors
from kafka_steward.planning.spark.stores import find_store_fault, probe_store
from tests.builders import cluster, written

URI = "s3://bucket/plan"
AT = "s3a://bucket/w/snapshot.json"
GET = f"getFileStatus on {AT}: software.amazon.awssdk"
NO_JAR = ": java.lang.RuntimeException: java.lang.ClassNotFoundException: Class {} not found\n\tat java.base"
REFUSED = f": java.nio.file.AccessDeniedException: {AT}: {GET}.services.s3.model.S3Exception: FORBIDDEN"


@pytest.fixture(autouse=True)
def hadoop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "hadoop_version", lambda: "3.5.0")


@pytest.mark.parametrize(
    ("uri", "text", "sentence"),
    [
        (
            URI,
            NO_JAR.format("org.apache.hadoop.fs.s3a.S3AFileSystem"),
            "Spark has no jar that opens s3://bucket/plan; name org.apache.hadoop:hadoop-aws:3.5.0 as packages in the",
        ),
        (
            "abfss://c@a/plan",
            NO_JAR.format("org.apache.hadoop.fs.azurebfs.SecureAzureBlobFileSystem"),
            "name org.apache.hadoop:hadoop-azure:3.5.0 as packages in",
        ),
        (
            "other://c/plan",
            'org.apache.hadoop.fs.UnsupportedFileSystemException: No FileSystem for scheme "other"',
            "name the jar of Hadoop's connector, in the version of Spark's Hadoop, as packages in",
        ),
        (
            URI,
            f": org.apache.hadoop.fs.s3a.UnknownStoreException: `{AT}': {GET}.services.s3.model.NoSuchBucketException",
            "Spark finds no bucket at s3://bucket/plan; check spark.hadoop.fs.s3a.endpoint, or AWS_ENDPOINT_URL, in",
        ),
        (URI, REFUSED, "Spark is not allowed to use s3://bucket/plan; check spark.hadoop.fs.s3a.access.key and"),
        (
            URI,
            f": java.net.ConnectException: {GET}.core.exception.SdkClientException: Connection refused",
            "Spark does not reach the store of s3://bucket/plan; check spark.hadoop.fs.s3a.endpoint, or AWS_ENDPOINT",
        ),
        (
            URI,
            f": java.net.UnknownHostException: {GET}.core.exception.SdkClientException: s3.example",
            "Spark does not reach the store of s3://bucket/plan",
        ),
    ],
)
def test_an_exception_about_the_store_is_one_sentence_with_what_to_do(uri: str, text: str, sentence: str) -> None:
    assert sentence in str(find_store_fault(text, uri, connect=False))


def test_a_spark_connect_server_is_configured_where_it_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_store_fault(NO_JAR.format("org.apache.hadoop.fs.s3a.S3AFileSystem"), URI, connect=True) == (
        "Spark has no jar that opens s3://bucket/plan; name org.apache.hadoop:hadoop-aws, in the version of Spark's "
        "Hadoop, as packages where the Spark Connect server is started."
    )
    monkeypatch.setenv("SPARK_REMOTE", "sc://server")
    with pytest.raises(PlanningFailed, match=r"^Spark is not allowed .* where the Spark Connect server is started\.$"):
        raise_in_job(REFUSED)


def raise_in_job(text: str, uri: str = URI) -> None:
    with translate_worker_errors(uri):
        raise PySparkException(text)


def test_the_same_exception_with_a_workspace_that_is_a_path_is_about_something_else() -> None:
    with pytest.raises(PlanningFailed, match=r"^Spark failed: java.nio.file.AccessDeniedException: s3a://bucket"):
        raise_in_job(REFUSED, "/workspace/plan")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "An error occurred while calling o1.text.\n: java.io.IOException: full\n\tat x\n\t... 24 more",
            "java.io.IOEx",
        ),
        (": java.io.IOException: a\n\tat x\nCaused by: java.lang.Error: b.\n\t... 2 more", r"java.lang.Error: b\.$"),
        ("(x) Traceback:\nValueError: c\n\tat x\nCaused by: org.PythonException: Traceback", r"ValueError: c\.$"),
        ("nothing else.", r"nothing else\.$"),
    ],
)
def test_another_failure_says_its_exception(text: str, words: str) -> None:
    with pytest.raises(PlanningFailed, match=f"^Spark failed: {words}"):
        raise_in_job(text)


class Reader:
    """As much of a Spark session as the probe asks for: it reads `rows`, or raises."""

    def __init__(self, rows: Any) -> None:
        self.rows, self.opened, self.read = rows, "", self

    def options(self, **_: str) -> Reader:
        return self

    def text(self, uri: str, *, wholetext: bool) -> Reader:
        assert wholetext
        self.opened = uri
        return self

    def collect(self) -> Any:
        if isinstance(self.rows, Exception):
            raise self.rows
        return self.rows


def failure(condition: str, monkeypatch: pytest.MonkeyPatch) -> AnalysisException:
    """An exception of Spark's, whose conditions only a JVM or a server knows."""
    error = AnalysisException(condition)
    monkeypatch.setattr(error, "getCondition", lambda: condition)
    return error


@pytest.fixture
def snapshot() -> Iterator[str]:
    import fsspec

    yield written(cluster("1 2 3!", "t: 12 13"), "memory://probe/snapshot")
    fsspec.filesystem("memory").rm("/probe", recursive=True)


def test_spark_has_to_read_what_the_worker_wrote(snapshot: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import fsspec

    head = fsspec.filesystem("memory").cat_file("/probe/snapshot/snapshot.json").decode()
    reader: Any = Reader([(head,)])
    probe_store(reader, snapshot)
    assert reader.opened == "memory://probe/snapshot/snapshot.json"
    for rows in ([("another snapshot",)], [], failure("PATH_NOT_FOUND", monkeypatch)):
        other: Any = Reader(rows)
        with pytest.raises(
            PlanningFailed, match=r"Spark does not read what this worker wrote to memory://.*; let both"
        ):
            probe_store(other, snapshot)
    broken: Any = Reader(failure("UNSUPPORTED_FEATURE", monkeypatch))
    with pytest.raises(AnalysisException):
        probe_store(broken, snapshot)


def test_a_workspace_that_is_a_path_is_not_read_by_the_probe(tmp_path: Any) -> None:
    unread: Any = None
    probe_store(unread, str(tmp_path))


@pytest.mark.parametrize("server", ["4.3.0", "4.3.1", "4.3.0-SNAPSHOT", "4.3.2.vendor1"])
def test_a_server_of_the_same_minor_version_is_taken(server: str) -> None:
    session.refuse_other_version(server, "4.3.0")


@pytest.mark.parametrize("server", ["4.2.0", "4.30.0", "3.3.0", "5.3"])
def test_a_server_of_another_minor_version_is_one_sentence(server: str) -> None:
    sentence = (
        f"The Spark Connect server runs Spark {server}, and the worker's pyspark is of version 4.3.0; install pyspark "
        f"{server[:-2] if server.count('.') == 2 else server} on the worker, or start a server of Spark 4.3."
    )
    with pytest.raises(SettingError) as caught:
        session.refuse_other_version(server, "4.3.0")
    assert str(caught.value) == sentence


STOPPED = """An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.
: java.lang.IllegalStateException: Spark context stopped while waiting for backend
\tat org.apache.spark.SparkContext.<init>(SparkContext.scala:1)
"""
FORBIDDEN = """An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.
: org.apache.spark.SparkException: External scheduler cannot be instantiated
\tat org.apache.spark.SparkContext.<init>(SparkContext.scala:1)
Caused by: a.KubernetesClientException: Message: pods is forbidden. Received status: Status(code=403).
\t... 1 more
"""


@pytest.mark.parametrize(
    ("trace", "cause"),
    [
        (STOPPED, "java.lang.IllegalStateException: Spark context stopped while waiting for backend"),
        (FORBIDDEN, "a.KubernetesClientException: Message: pods is forbidden"),
        ("A sentence.\nAnother.", "A sentence"),
    ],
)
def test_the_last_cause_of_a_trace_is_the_reason(trace: str, cause: str) -> None:
    assert session.root_cause(trace) == cause


class FakeSession:
    """A session of a Spark Connect server of a given version: nothing can be had but its end."""

    def __init__(self, version: str) -> None:
        self.version, self.ended = version, False
        self.conf = SimpleNamespace(set=lambda *_: None)

    def stop(self) -> None:
        self.ended = True


@pytest.mark.parametrize("server", ["4.0.1", pyspark.__version__])
def test_the_version_of_the_server_is_compared_before_anything_is_uploaded(
    monkeypatch: pytest.MonkeyPatch, server: str
) -> None:
    found = FakeSession(server)
    builder: Any = SimpleNamespace(getOrCreate=lambda: found)
    monkeypatch.setattr(session, "SparkSession", SimpleNamespace(builder=builder))
    monkeypatch.setenv(session.REMOTE, "sc://server")
    monkeypatch.setattr(pyspark, "__version__", "4.3.0" if server == "4.0.1" else server)
    if server == "4.0.1":
        with pytest.raises(SettingError, match=r"runs Spark 4\.0\.1, and the worker's pyspark is of version 4\.3\.0"):
            _enter("/an/archive")
    else:
        _enter(None)
    assert found.ended


def _enter(archive: str | None) -> None:
    with session.planning_session(archive):
        pass
