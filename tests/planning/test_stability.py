"""A plan depends on the cluster alone: not on the order of the rows, and once it is carried out, nothing is left."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from kafka_steward.assignment import Operation
from kafka_steward.planning.files.formats import SnapshotFolder
from tests.builders import planned
from tests.planning.integer_solver import carried_out, random_case
from tests.rings import tried

OPERATIONS = [operation.value for operation in Operation if operation is not Operation.ROLLBACK]


def asked(operation: str, snapshot: SnapshotFolder) -> dict[str, Any]:
    """Options that the operation needs, for some of the snapshot's topics."""
    rows = snapshot.partitions.to_pylist()
    if operation == "set-replication-factor":
        return {"replication_factor": 2, "topics": ["t0"]}
    if operation == "apply":
        alive = [row["broker"] for row in snapshot.brokers.to_pylist() if row["state"] != "failed"]
        given = [{"topic": row["topic"], "partition": row["partition"], "replicas": alive[:2]} for row in rows[::2]]
        return {"reassignment": {"version": 1, "partitions": given}}
    return {}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(("shard_rows", "cases"), [(30_000, 20), (4, 8)], ids=["one shard", "some shards"])
def test_once_a_plan_is_carried_out_the_next_one_is_empty(operation: str, shard_rows: int, cases: int) -> None:
    moved = 0
    # The most for the operation that decides everything anew.
    for seed in range(tried(3 * cases if operation == "rebalance" else cases)):
        snapshot = random_case(seed)
        options = asked(operation, snapshot)
        plan = planned(snapshot, operation, options, shard_rows)
        again = planned(carried_out(snapshot, plan), operation, options, shard_rows)
        assert (seed, again.moves) == (seed, [])
        assert again.proof["partitions_moved"] == again.proof["replicas_moved"] == 0
        moved += len(plan.moves)
    assert moved


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("shard_rows", [30_000, 4], ids=["one shard", "some shards"])
def test_the_order_of_rows_and_brokers_changes_no_plan(operation: str, shard_rows: int) -> None:
    for seed in range(tried(6)):
        snapshot = random_case(seed)
        options = asked(operation, snapshot)
        order = list(range(len(snapshot.partitions)))
        random.Random(seed).shuffle(order)
        other = replace(
            snapshot,
            brokers=snapshot.brokers.take(pa.array(range(len(snapshot.brokers))[::-1])),
            partitions=snapshot.partitions.take(pa.array(order)),
        )
        assert planned(other, operation, options, shard_rows) == planned(snapshot, operation, options, shard_rows), seed


@pytest.mark.parametrize("seed", [98, 138, 502, 602, 643, 648])
def test_leaders_that_shards_left_uneven_are_chosen_in_one_piece_and_stay(seed: int) -> None:
    snapshot = random_case(seed)
    plan = planned(snapshot, "rebalance", {}, 4)
    assert plan.proof["leader_evenness"] == "even"
    assert planned(carried_out(snapshot, plan), "rebalance", {}, 4).moves == []


def test_shards_change_hardly_more_leaders_than_one_plan() -> None:
    changes = {
        rows: sum(planned(random_case(seed), "rebalance", {}, rows).proof["leader_changes"] for seed in range(30))
        for rows in (4, 30_000)
    }
    assert changes[4] <= changes[30_000] * 1.04
