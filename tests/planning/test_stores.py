"""The session of a job, and what is said of a workspace that Spark cannot use, from the exceptions that it raises."""

from __future__ import annotations

import hashlib
import json
import re
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
from fsspec.implementations.memory import MemoryFile
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.errors import AnalysisException, PySparkException

from kafka_steward.assignment import Move
from kafka_steward.errors import PlanError, PlanningFailed, SettingError
from kafka_steward.planning.files.formats import (
    PLAN,
    SNAPSHOT_BROKERS,
    SNAPSHOT_PARTITIONS,
    digest_with_proof,
    json_lines,
    plan_digest,
    plan_table,
    read_plan,
    read_snapshot,
    snapshot_digest,
    write_plan,
    write_snapshot,
)
from kafka_steward.planning.files.storage import Folder, fsspec_uri, is_local_uri, spark_uri
from kafka_steward.planning.spark import probe, session
from kafka_steward.planning.spark.probe import find_store_fault, probe_store
from kafka_steward.planning.spark.session import translate_worker_errors
from tests.builders import cluster, written

URI = "s3://bucket/plan"
AT = "s3a://bucket/w/snapshot.json"
GET = f"getFileStatus on {AT}: software.amazon.awssdk"
NO_JAR = ": java.lang.RuntimeException: java.lang.ClassNotFoundException: Class {} not found\n\tat java.base"
REFUSED = f": java.nio.file.AccessDeniedException: {AT}: {GET}.services.s3.model.S3Exception: FORBIDDEN"


@pytest.fixture(autouse=True)
def hadoop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "hadoop_version", lambda: "3.5.0")


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


BROKERS = pa.table({"broker": [1, 2, 3], "state": ["live", "failed", "new"], "rack": ["a", None, "b"]})
PARTITIONS = pa.table(
    {
        "topic": ["t", "t"],
        "partition": [1, 0],
        "replicas": [[1, 2], [2, 1]],
        "isr": [[1], [1]],
        "leader": [1, 1],
        "target_rf": [2, 2],
    }
)
MOVE = Move("t", 1, (1, 2), (1, 3), chunk=0, position=0, purpose="broker_failed", topic_id="id", size_bytes=7)
HEAD = {"cluster_id": "c", "snapshot_digest": "s", "operation": "heal", "options": {"chunk_size": 50}}


@pytest.fixture
def taken(tmp_path: Path) -> Path:
    write_snapshot(str(tmp_path / "snap"), cluster_id="c", taken_ms=5, brokers=BROKERS, partitions=PARTITIONS)
    return tmp_path / "snap"


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    write_plan(f"file://{tmp_path}/plan", plan_table([MOVE]), HEAD)
    return tmp_path / "plan"


def test_a_snapshot_is_read_as_it_was_written(taken: Path) -> None:
    found = read_snapshot(taken.as_uri())
    assert (found.cluster_id, found.taken_ms) == ("c", 5)
    assert found.brokers["rack"].to_pylist() == ["a", None, "b"]
    assert found.partitions["replicas"].to_pylist() == [[1, 2], [2, 1]]
    assert found.partitions["bytes"].to_pylist() == [None, None]


def test_a_plan_is_read_as_it_was_written(plan: Path, tmp_path: Path) -> None:
    found = read_plan(str(plan))
    assert found.moves == [MOVE]
    assert found.digest == found.proof["digest"]
    write_plan(str(tmp_path / "empty"), PLAN.empty_table(), HEAD)
    assert read_plan(str(tmp_path / "empty")).moves == []


def refused(read: Callable[[str], object], path: Path, words: str) -> None:
    with pytest.raises(PlanError, match=re.escape(words)) as caught:
        read(str(path))
    sentence = str(caught.value)
    assert sentence.endswith(".")
    assert "\n" not in sentence
    assert str(path) in sentence


@pytest.mark.parametrize("name", ["snapshot.json", "brokers.parquet", "partitions.parquet"])
def test_a_file_that_is_invalid_or_lost_is_named(taken: Path, name: str) -> None:
    (taken / name).write_bytes(b"PAR1 not this\xff")
    refused(read_snapshot, taken, f"corrupt: {name}")
    (taken / name).unlink()
    refused(read_snapshot, taken, f"{name}: no such file")


def test_an_edited_snapshot_is_refused(taken: Path) -> None:
    pq.write_table(PARTITIONS.slice(1), taken / "partitions.parquet")
    refused(read_snapshot, taken, "was edited after it was taken")


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (PARTITIONS.drop_columns("target_rf"), "the column target_rf is missing"),
        (PARTITIONS.set_column(2, "replicas", pa.array(["1,2", "2,1"])), "the column replicas holds string"),
        (PARTITIONS.set_column(0, "topic", pa.array(["t", None])), "the column topic has empty values"),
        (PARTITIONS.set_column(2, "replicas", pa.array([[1, None], [2]])), "the column replicas has empty values"),
    ],
)
def test_a_column_of_another_shape_is_named(taken: Path, table: pa.Table, words: str) -> None:
    pq.write_table(table, taken / "partitions.parquet")
    refused(read_snapshot, taken, words)


def test_an_edited_plan_is_refused(plan: Path) -> None:
    rows = pq.read_table(plan / "plan.parquet")
    edited = rows.set_column(rows.column_names.index("after"), "after", pa.array([[1, 1]], pa.list_(pa.int32())))
    pq.write_table(edited, plan / "plan.parquet")
    refused(read_plan, plan, "was edited after it was made")


@pytest.mark.parametrize(
    "changes",
    [
        *({"operation": "other"}, {"options": {"a": 1}}, {"cluster_id": "other"}),
        *({"bytes_moved": 0}, {"brokers_failed": [2]}, {"notes": []}, {"unknown": 1}),
    ],
)
def test_an_edited_proof_is_refused(tmp_path: Path, changes: dict[str, object]) -> None:
    write_plan(str(tmp_path), plan_table([MOVE]), {**HEAD, "bytes_moved": 7, "brokers_failed": [], "notes": ["a"]})
    proof = json.loads((tmp_path / "proof.json").read_text())
    (tmp_path / "proof.json").write_text(json.dumps({**proof, **changes}))
    refused(read_plan, tmp_path, "was edited after it was made")


def test_a_proof_is_the_same_whatever_its_keys_were_before_it_was_written(tmp_path: Path) -> None:
    digest = write_plan(str(tmp_path), plan_table([MOVE]), {"spread": {10: 1.5, 9: 0.1}, "é": (1, None), **HEAD})
    assert read_plan(str(tmp_path)).digest == digest


def test_a_proof_without_a_digest_is_refused(plan: Path) -> None:
    (plan / "proof.json").write_text(json.dumps(HEAD))
    refused(read_plan, plan, "its field digest is missing")


def test_a_workspace_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    target = tmp_path / "file" / "snap"
    with pytest.raises(PlanError, match="The workspace cannot be written") as caught:
        write_snapshot(str(target), cluster_id="c", taken_ms=5, brokers=BROKERS, partitions=PARTITIONS)
    assert str(target) in str(caught.value)


@pytest.mark.parametrize(
    ("uri", "extra"), [("s3://b/s", "s3"), ("s3a://b/s", "s3"), ("gs://b/s", "gcs"), ("abfss://c@a/s", "azure")]
)
def test_a_store_whose_package_is_missing_names_the_extra(
    uri: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # s3fs is installed for the tests; fsspec remembers what it has imported.
    monkeypatch.setitem(sys.modules, "s3fs", None)
    for scheme in ("s3", "s3a"):
        monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, scheme, raising=False)
    with pytest.raises(PlanError, match=rf"cannot be opened: .* Install airflow-provider-kafka-steward\[{extra}\]\.$"):
        read_snapshot(uri)


def test_an_address_that_nothing_opens_is_named() -> None:
    with pytest.raises(PlanError, match="gopher://x cannot be opened"):
        read_snapshot("gopher://x")


@pytest.mark.parametrize(
    ("given", "spark", "fsspec"),
    [
        ("s3://bucket/run", "s3a://bucket/run", "s3://bucket/run"),
        ("s3a://bucket/run", "s3a://bucket/run", "s3://bucket/run"),
        ("file:///w/run", "file:///w/run", "file:///w/run"),
        ("file:/w/run", "file:/w/run", "file:///w/run"),
        ("/w/my run", "file:///w/my run", "/w/my run"),
        ("hdfs://name/run", "hdfs://name/run", "hdfs://name/run"),
        ("gs://bucket/run", "gs://bucket/run", "gs://bucket/run"),
    ],
)
def test_an_address_in_both_spellings(given: str, spark: str, fsspec: str) -> None:
    assert spark_uri(given) == spark
    assert fsspec_uri(given) == fsspec
    assert is_local_uri(given) == spark.startswith("file:")


def test_no_thread_of_arrow_reads_from_an_object_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    # Such a thread may still hold the object when the process exits, which then aborts.
    readers: set[threading.Thread] = set()
    read = MemoryFile.read

    def recorded(self: MemoryFile, size: int = -1) -> bytes:
        readers.add(threading.current_thread())
        return bytes(read(self, size))

    monkeypatch.setattr(MemoryFile, "read", recorded)
    folder = Folder("memory://steward/threads/plan", "plan")
    folder.write_table("plan.parquet", pa.table({"partition": range(50_000)}))
    assert folder.read_table("plan.parquet").num_rows == 50_000
    assert readers <= {threading.current_thread()}


INTS = st.integers(-(2**31), 2**31 - 1)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "name": st.none() | st.text(st.characters(max_codepoint=0x2FF), max_size=8),
            "size": st.none() | st.integers(-(2**63), 2**63 - 1),
            "share": st.none() | st.floats(allow_nan=False, allow_infinity=False),
            "replicas": st.none() | st.lists(INTS, max_size=3),
        }
    ),
    max_size=6,
)
SCHEMA = pa.schema({"name": pa.string(), "size": pa.int64(), "share": pa.float64(), "replicas": pa.list_(pa.int32())})


def lines_of(table: pa.Table) -> list[str]:
    return [line for lines in json_lines(table) for line in lines.to_pylist()]


@settings(deadline=None)
@given(ROWS, ROWS)
def test_a_line_is_what_json_dumps_writes(first: list[dict[str, Any]], second: list[dict[str, Any]]) -> None:
    chunked = pa.concat_tables([pa.Table.from_pylist(rows, SCHEMA) for rows in (first, second)])
    expected = [json.dumps(row, sort_keys=True, ensure_ascii=False) for row in first + second]
    assert lines_of(chunked) == expected
    assert lines_of(chunked.slice(1)) == expected[1:]


def rows_of_a_plan() -> list[dict[str, Any]]:
    moved = {"before": [1], "after": [2], "adding": [2], "removing": [1], "bytes": 5, "reason": "given", "chunk": 0}
    return [{"topic": "t", "topic_id": None, "partition": at, **moved, "position": 1 - at} for at in (0, 1)]


def test_the_digests_of_a_plan_can_be_reproduced_with_the_standard_library() -> None:
    def digest_of(*lines: str) -> str:
        rows = [json.dumps(row, sort_keys=True) for row in reversed(rows_of_a_plan())]
        return hashlib.sha256("".join(f"{line}\n" for line in [*lines, *rows]).encode()).hexdigest()

    table = pa.Table.from_pylist(rows_of_a_plan(), PLAN)
    proof = {"options": {"b": [2], "a": 1}, "notes": ["é"], "predicted_seconds": 0.1, "by_broker": {10: 1, 9: 2}}
    read = {**proof, "by_broker": {"10": 1, "9": 2}}
    expected = digest_of(json.dumps(read, sort_keys=True))
    assert digest_with_proof({**proof, "digest": "of before"}, table) == digest_with_proof(read, table) == expected
    expected = digest_of("cluster", "snapshot", "heal", json.dumps({"a": 1, "b": [2]}, sort_keys=True))
    assert plan_digest("cluster", "snapshot", "heal", {"b": [2], "a": 1}, table) == expected


def test_the_snapshot_digest_ignores_the_order_of_rows_and_nothing_else() -> None:
    brokers = pa.Table.from_pylist([{"broker": 1, "state": "live"}, {"broker": 2, "state": "live"}], SNAPSHOT_BROKERS)
    rows = [
        {"topic": "t", "partition": at, "replicas": [1, 2], "isr": [1, 2], "leader": 1, "target_rf": 2, "bytes": at}
        for at in range(5)
    ]
    digest = snapshot_digest("c", 1, brokers, pa.Table.from_pylist(rows, SNAPSHOT_PARTITIONS))
    shuffled = pa.Table.from_pylist(rows[::-1], SNAPSHOT_PARTITIONS)
    assert snapshot_digest("c", 1, brokers.take([1, 0]), shuffled) == digest
    changed = pa.Table.from_pylist([*rows[:-1], {**rows[-1], "bytes": 9}], SNAPSHOT_PARTITIONS)
    assert snapshot_digest("c", 1, brokers, changed) != digest
    assert snapshot_digest("c", 2, brokers, shuffled) != digest
