"""A plan depends on the cluster alone: not on the order of the rows, and once it is carried out, nothing is left."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from kafka_steward.assignment import Operation
from kafka_steward.errors import PlanError
from kafka_steward.planning.files.formats import SnapshotFolder
from tests.builders import planned
from tests.planning.integer_solver import carried_out, random_case
from tests.rings import tried
from tests.strategies import OPTIONS, clusters

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


@settings(deadline=None, max_examples=tried(150), suppress_health_check=list(HealthCheck))
@given(
    clusters(states=("live", "live", "new", "draining")),
    OPTIONS,
    st.fixed_dictionaries(
        {"exclude_brokers": st.lists(st.integers(10, 12), max_size=2, unique=True)},
        optional={"max_moves": st.just(1000), "max_bytes": st.just(1 << 40)},
    ),
    st.sampled_from(["rebalance", "expand", "drain"]),
    st.sampled_from([1, 4, 30_000]),
)
def test_whatever_brokers_are_excluded_and_racks_are_mixed_the_next_plan_is_empty(
    snapshot: SnapshotFolder, options: dict[str, Any], others: dict[str, Any], operation: str, shard_rows: int
) -> None:
    asked = {**options, **others}
    try:
        plan = planned(snapshot, operation, asked, shard_rows)
    except PlanError:
        # Too few brokers are left for a partition, or there is no such broker to exclude.
        assume(False)
        raise
    again = planned(carried_out(snapshot, plan), operation, asked, shard_rows)
    assert again.moves == []


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
