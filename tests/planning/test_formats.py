"""What is written is read back the same; what was edited, lost or bent is refused with a sentence."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kafka_steward.assignment import Move
from kafka_steward.errors import PlanError
from kafka_steward.planning.files.formats import (
    PLAN,
    plan_table,
    read_plan,
    read_snapshot,
    write_plan,
    write_snapshot,
)

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


@pytest.mark.parametrize("name", ["operation", "options", "cluster_id"])
def test_an_edited_header_is_refused(plan: Path, name: str) -> None:
    proof = json.loads((plan / "proof.json").read_text())
    changed = {"a": 1} if name == "options" else "other"
    (plan / "proof.json").write_text(json.dumps({**proof, name: changed}))
    refused(read_plan, plan, "was edited after it was made")


@pytest.mark.parametrize("changes", [{"bytes_moved": 0}, {"brokers_failed": [2]}, {"notes": []}, {"unknown": 1}])
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
