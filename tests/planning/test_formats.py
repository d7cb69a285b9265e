"""What is written is read back the same and has a digest; what was edited, lost or bent is refused with a sentence."""

import hashlib
import json
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFile
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_steward.assignment import Move
from kafka_steward.errors import PlanError
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
def snapshot(tmp_path: Path) -> Path:
    write_snapshot(str(tmp_path / "snap"), cluster_id="c", taken_ms=5, brokers=BROKERS, partitions=PARTITIONS)
    return tmp_path / "snap"


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    write_plan(f"file://{tmp_path}/plan", plan_table([MOVE]), HEAD)
    return tmp_path / "plan"


def test_a_snapshot_is_read_as_it_was_written(snapshot: Path) -> None:
    found = read_snapshot(snapshot.as_uri())
    assert (found.cluster_id, found.taken_ms) == ("c", 5)
    assert found.brokers["rack"].to_pylist() == ["a", None, "b"]
    assert found.partitions["replicas"].to_pylist() == [[1, 2], [2, 1]]
    assert found.partitions["bytes"].to_pylist() == [None, None]


def test_a_plan_is_read_as_it_was_written(plan: Path) -> None:
    found = read_plan(str(plan))
    assert found.moves == [MOVE]
    assert found.digest == found.proof["digest"]


def test_a_plan_without_moves_is_a_plan(tmp_path: Path) -> None:
    write_plan(str(tmp_path), PLAN.empty_table(), HEAD)
    assert read_plan(str(tmp_path)).moves == []


def test_a_plan_written_by_spark_is_a_folder_of_parts(plan: Path) -> None:
    table = pq.read_table(plan / "plan.parquet")
    (plan / "plan.parquet").unlink()
    (plan / "plan.parquet").mkdir()
    pq.write_table(table, plan / "plan.parquet" / "part-00000.parquet")
    assert read_plan(str(plan)).moves == [MOVE]


def refused(read: Callable[[str], object], path: Path, words: str) -> None:
    with pytest.raises(PlanError, match=re.escape(words)) as caught:
        read(str(path))
    sentence = str(caught.value)
    assert sentence.endswith(".")
    assert "\n" not in sentence
    assert str(path) in sentence


@pytest.mark.parametrize("name", ["snapshot.json", "brokers.parquet", "partitions.parquet"])
def test_a_lost_file_is_named(snapshot: Path, name: str) -> None:
    (snapshot / name).unlink()
    refused(read_snapshot, snapshot, f"{name}: no such file")


@pytest.mark.parametrize("name", ["snapshot.json", "brokers.parquet", "partitions.parquet"])
def test_a_garbled_file_is_named(snapshot: Path, name: str) -> None:
    (snapshot / name).write_bytes(b"PAR1 not this\xff")
    refused(read_snapshot, snapshot, f"corrupt: {name}")


def test_an_edited_snapshot_is_refused(snapshot: Path) -> None:
    pq.write_table(PARTITIONS.slice(1), snapshot / "partitions.parquet")
    refused(read_snapshot, snapshot, "was edited after it was taken")


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (PARTITIONS.drop_columns("target_rf"), "the column target_rf is missing"),
        (PARTITIONS.set_column(2, "replicas", pa.array(["1,2", "2,1"])), "the column replicas holds string"),
        (PARTITIONS.set_column(0, "topic", pa.array(["t", None])), "the column topic has empty values"),
        (PARTITIONS.set_column(2, "replicas", pa.array([[1, None], [2]])), "the column replicas has empty values"),
    ],
)
def test_a_column_of_another_shape_is_named(snapshot: Path, table: pa.Table, words: str) -> None:
    pq.write_table(table, snapshot / "partitions.parquet")
    refused(read_snapshot, snapshot, words)


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


def test_a_table_takes_the_place_of_a_folder_that_an_attempt_left() -> None:
    folder = Folder("memory://steward/run/plan", "plan")
    folder.write_text("plan.parquet/part-00009-old.snappy.parquet", "half a file")
    folder.write_table("plan.parquet", pa.table({"partition": [1, 2]}))
    assert folder.read_table("plan.parquet").to_pydict() == {"partition": [1, 2]}
    folder.write_table("plan.parquet", pa.table({"partition": [3]}))
    assert folder.read_table("plan.parquet").to_pydict() == {"partition": [3]}


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
    return [
        {
            "topic": "t",
            "topic_id": None,
            "partition": number,
            "before": [1],
            "after": [2],
            "adding": [2],
            "removing": [1],
            "bytes": 5,
            "reason": "given",
            "chunk": 0,
            "position": 1 - number,
        }
        for number in (0, 1)
    ]


def test_the_digest_of_a_plan_with_a_proof_can_be_reproduced_with_the_standard_library() -> None:
    rows = rows_of_a_plan()
    proof = {"options": {"b": [2], "a": 1}, "notes": ["é"], "predicted_seconds": 0.1, "by_broker": {10: 1, 9: 2}}
    read = {**proof, "by_broker": {"10": 1, "9": 2}}
    lines = [json.dumps(read, sort_keys=True), *(json.dumps(row, sort_keys=True) for row in reversed(rows))]
    expected = hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()
    table = pa.Table.from_pylist(rows, PLAN)
    assert digest_with_proof({**proof, "digest": "of before"}, table) == digest_with_proof(read, table) == expected


def test_the_plan_digest_can_be_reproduced_with_the_standard_library() -> None:
    rows = rows_of_a_plan()
    lines = ["cluster", "snapshot", "heal", json.dumps({"a": 1, "b": [2]}, sort_keys=True)]
    lines += [json.dumps(row, sort_keys=True) for row in reversed(rows)]
    expected = hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()
    table = pa.Table.from_pylist(rows, PLAN)
    assert plan_digest("cluster", "snapshot", "heal", {"b": [2], "a": 1}, table) == expected


def test_the_snapshot_digest_ignores_the_order_of_rows_and_nothing_else() -> None:
    brokers = pa.Table.from_pylist([{"broker": 1, "state": "live"}, {"broker": 2, "state": "live"}], SNAPSHOT_BROKERS)
    rows = [
        {
            "topic": "t",
            "partition": number,
            "replicas": [1, 2],
            "isr": [1, 2],
            "leader": 1,
            "target_rf": 2,
            "bytes": number,
        }
        for number in range(5)
    ]
    digest = snapshot_digest("c", 1, brokers, pa.Table.from_pylist(rows, SNAPSHOT_PARTITIONS))
    shuffled = pa.Table.from_pylist(rows[::-1], SNAPSHOT_PARTITIONS)
    assert snapshot_digest("c", 1, brokers.take([1, 0]), shuffled) == digest
    changed = pa.Table.from_pylist([*rows[:-1], {**rows[-1], "bytes": 9}], SNAPSHOT_PARTITIONS)
    assert snapshot_digest("c", 1, brokers, changed) != digest
    assert snapshot_digest("c", 2, brokers, shuffled) != digest
