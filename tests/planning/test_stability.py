"""A plan depends on the cluster alone, once it is carried out nothing is left, and the order of its moves is good."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from kafka_steward.assignment import Operation
from kafka_steward.errors import PlanError
from kafka_steward.planning.files.formats import SnapshotFolder
from kafka_steward.planning.options import Options
from kafka_steward.planning.solver.plan_rows import MoveQueue, start_order
from tests.builders import EVEN, planned
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
    if operation == "drain":
        return EVEN
    if operation in ("demote", "promote"):
        return {operation: [snapshot.brokers["broker"][0].as_py()]}
    return {}


@pytest.mark.parametrize("operation", [each for each in OPERATIONS if each not in ("relieve", "promote")])
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
    clusters(states=("live", "live", "new", "draining", "down")),
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


LIMITS = Options()


def queue_of(seed: int, moves: int = 600, brokers: int = 12, skew: float = 1.5) -> MoveQueue:
    dice = random.Random(seed)
    pairs = [dice.sample(range(brokers), 2) for _ in range(moves)]
    size = np.array([int(dice.lognormvariate(15, skew)) for _ in range(moves)])
    same = np.zeros(moves, np.int64)
    source, into = (np.array([pair[end] for pair in pairs]) for end in (0, 1))
    return MoveQueue(same, same, size, source, np.arange(moves), into)


def makespan(queue: MoveQueue, numbers: Iterable[int], limits: Options) -> float:
    """The time until all moves are done when each starts as soon as its brokers have a slot, in the given order."""
    into, out_of, now = Counter[int](), Counter[int](), 0.0
    running: list[tuple[float, int]] = []
    waiting = list(numbers)
    while waiting or running:
        blocked = []
        for move in waiting:
            source, target = queue.source[move], queue.into[move]
            if out_of[source] < limits.max_out_per_broker and into[target] < limits.max_in_per_broker:
                out_of[source] += 1
                into[target] += 1
                heapq.heappush(running, (now + float(queue.size[move]) * limits.max_in_per_broker, move))
            else:
                blocked.append(move)
        waiting = blocked
        now, move = heapq.heappop(running)
        out_of[queue.source[move]] -= 1
        into[queue.into[move]] -= 1
    return now


def least(queue: MoveQueue, limits: Options) -> float:
    """No order is faster than the busiest broker, or the largest move in its one slot."""
    busiest = max(float(np.bincount(ends, weights=queue.size).max()) for ends in (queue.source, queue.into))
    return max(busiest, float(queue.size.max()) * limits.max_in_per_broker)


@pytest.mark.parametrize("skew", [0.5, 1.0, 1.5])
@pytest.mark.parametrize("seed", range(3))
def test_the_order_takes_at_most_six_percent_longer_than_any_must(seed: int, skew: float) -> None:
    queue = queue_of(seed, skew=skew)
    assert makespan(queue, start_order(queue, LIMITS), LIMITS) <= 1.06 * least(queue, LIMITS)


def test_neighbours_in_the_plan_use_different_brokers() -> None:
    # Ten moves into each of six brokers, equal in everything: any six in a row should go to six brokers.
    into = np.repeat(np.arange(6), 10)
    same = np.zeros(60, np.int64)
    queue = MoveQueue(same, same, same, same + 6, np.arange(60), into)
    numbers = start_order(queue, Options(max_in_per_broker=1, max_out_per_broker=60))
    assert all(len({into[move] for move in numbers[at : at + 6]}) == 6 for at in range(0, 60, 6))


def test_the_fewest_in_sync_come_first_whatever_their_size() -> None:
    queue = queue_of(3, moves=40)
    in_sync = np.array([2, 1] * 20)
    numbers = start_order(
        MoveQueue(in_sync, queue.out_of_sync, queue.size, queue.source, queue.owner, queue.into), LIMITS
    )
    assert in_sync[numbers].tolist() == [1] * 20 + [2] * 20
