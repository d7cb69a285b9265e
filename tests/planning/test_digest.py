"""The canonical lines are `json.dumps` of each row, whatever Arrow's chunks look like."""

import hashlib
import json
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_steward.planning.files.formats import (
    PLAN,
    SNAPSHOT_BROKERS,
    SNAPSHOT_PARTITIONS,
    digest_with_proof,
    json_lines,
    plan_digest,
    snapshot_digest,
)

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


def test_a_plan_without_rows_has_a_digest() -> None:
    assert plan_digest("c", "s", "heal", {}, PLAN.empty_table()) != plan_digest(
        "c", "s", "fill", {}, PLAN.empty_table()
    )


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
