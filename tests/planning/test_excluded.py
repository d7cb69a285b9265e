"""Excluded brokers receive nothing, and the others come as near to their fair shares as can be: proven so."""

import random
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kafka_steward.planning.checker.certificate import find_prices
from kafka_steward.planning.checker.check import check
from kafka_steward.planning.checker.constraints import PlacementOutcome
from kafka_steward.planning.files.formats import PlanFolder, SnapshotFolder
from kafka_steward.planning.solver.sharded import nearest
from kafka_steward.planning.solver.sharded.plan import Movement, ShardedQuotas
from kafka_steward.planning.solver.sharded.quotas import QuotaProblem, Quotas
from tests.builders import cluster, planned
from tests.planning.integer_solver import MIB, carried_out, random_case
from tests.planning.outcomes import price_objections, replicas_moved
from tests.planning.test_prices import outcome_after
from tests.rings import tried


@cache
def excluding(seed: int) -> tuple[SnapshotFolder, int, PlanFolder] | None:
    """A random snapshot, one usable broker of it to exclude, and the plan; None where it cannot be."""
    snapshot = random_case(seed)
    usable = [row["broker"] for row in snapshot.brokers.to_pylist() if row["state"] in ("live", "new")]
    receive_excluded = random.Random(seed).choice(usable)
    rows = snapshot.partitions.to_pylist()
    if any(
        row["target_rf"] > len(set(usable) - {receive_excluded} | set(usable) & set(row["replicas"])) for row in rows
    ):
        return None
    return snapshot, receive_excluded, planned(snapshot, "rebalance", {"exclude_brokers": [receive_excluded]})


def test_plans_with_excluded_brokers_are_valid_and_proven_nearest() -> None:
    judged = 0
    for seed in range(tried(150)):
        found = excluding(seed)
        if found is None:
            continue
        snapshot, receive_excluded, plan = found
        assert not any(receive_excluded in move.adding for move in plan.moves), seed
        verdict = check(snapshot, plan)
        assert (verdict.problems, verdict.unproven) == ([], ()), seed
        judged += 1
    assert judged > tried(150) / 2


def test_with_excluded_brokers_one_move_more_is_not_proven() -> None:
    judged = 0
    for seed in range(tried(60, least=20)):
        found = excluding(seed)
        if found is None:
            continue
        outcome = outcome_after(found[0], found[2])
        good = find_prices(outcome)
        assert good is not None
        for worse in one_move_worse(outcome, random.Random(seed)):
            judged += 1
            assert find_prices(worse) is None
            assert price_objections(worse, good)
    assert judged >= tried(60, least=20)


def one_move_worse(outcome: PlacementOutcome, dice: random.Random) -> list[PlacementOutcome]:
    """Positions in which two partitions have swapped brokers of one rack, at the price of moves: no count changes."""
    found = []
    pairs = [(row, other) for row in range(len(outcome.topic)) for other in range(row)]
    dice.shuffle(pairs)
    for row, other in pairs[:60]:
        if outcome.topic[row] != outcome.topic[other]:
            continue
        for one, two in np.argwhere(
            (outcome.placed[row] & ~outcome.placed[other])[:, None] & (outcome.placed[other] & ~outcome.placed[row])
        ):
            changed = outcome.placed.copy()
            changed[[row, other], [one, two]] = False
            changed[[row, other], [two, one]] = True
            worse = replace(outcome, placed=changed)
            receive_excluded = worse.placed & ~worse.held & outcome.constraints.receive_excluded
            if (
                replicas_moved(worse) > replicas_moved(outcome)
                and not receive_excluded.any()
                and outcome.rack[one] == outcome.rack[two]
            ):
                found.append(worse)
    return found[:3]


@pytest.fixture
def put_together(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether the shards' moves were taken, each time that shards were planned."""
    found: list[bool] = []
    needs_one_flow = ShardedQuotas.needs_one_flow

    def spy(parts: ShardedQuotas, movement: Movement) -> bool:
        found.append(not needs_one_flow(parts, movement))
        return not found[-1]

    monkeypatch.setattr(ShardedQuotas, "needs_one_flow", spy)
    return found


def cases(count: int) -> Iterator[tuple[int, SnapshotFolder, dict[str, Any], PlanFolder]]:
    """Random snapshots, options that exclude a broker, and the plan of all partitions as one."""
    for seed in range(count):
        if found := excluding(seed):
            yield seed, found[0], {"exclude_brokers": [found[1]]}, found[2]


def cost(plan: PlanFolder) -> tuple[int, int]:
    return plan.proof["replicas_moved"], sum(
        len(move.adding) * -(-(move.size_bytes or 0) // MIB) for move in plan.moves
    )


def test_shards_of_one_topic_move_as_little_as_one_plan_and_are_proven_nearest(put_together: list[bool]) -> None:
    for seed, snapshot, options, whole in cases(tried(150)):
        plan = planned(snapshot, "rebalance", options, shard_rows=1)
        assert (seed, cost(plan), plan.proof["lower_bound"]) == (seed, cost(whole), whole.proof["lower_bound"])
        verdict = check(snapshot, plan)
        assert (seed, verdict.problems, verdict.unproven) == (seed, [], ())
        again = planned(carried_out(snapshot, plan), "rebalance", options, shard_rows=1)
        assert (seed, again.moves) == (seed, [])
    # Else nothing was put together at all.
    assert sum(put_together) > len(put_together) / 2


@pytest.mark.parametrize("shard_rows", [1, 30_000], ids=["some shards", "one shard"])
def test_a_plan_with_every_broker_excluded_moves_nothing(shard_rows: int) -> None:
    snapshot = cluster("1a 2a", "t: 12", "u: 1")
    assert planned(snapshot, "rebalance", {"exclude_brokers": [1, 2]}, shard_rows).moves == []


def test_the_order_of_rows_changes_no_plan_in_shards() -> None:
    for seed, snapshot, options, _ in cases(tried(20)):
        order = list(range(len(snapshot.partitions)))
        random.Random(seed).shuffle(order)
        other = replace(snapshot, partitions=snapshot.partitions.take(pa.array(order)))
        plans = [planned(one, "rebalance", options, shard_rows=1) for one in (snapshot, other)]
        assert plans[0] == plans[1], seed


def test_without_one_plan_to_fall_back_on_shards_are_valid_and_state_how_far_from_the_bound_they_may_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kafka_steward.planning.solver.sharded.plan.MAX_UNSHARDED_PARTITIONS", 0)
    more = 0
    for seed, snapshot, options, whole in cases(tried(90)):
        plan = planned(snapshot, "rebalance", options, shard_rows=1)
        assert check(snapshot, plan, proven=False).problems == [], seed
        bound = plan.proof["lower_bound"]
        assert bound <= whole.proof["replicas_moved"] <= plan.proof["replicas_moved"], seed
        if cost(plan) != cost(whole):
            assert any("Slices were planned apart" in note for note in plan.proof["notes"]), seed
            more += plan.proof["replicas_moved"] - whole.proof["replicas_moved"]
    assert more <= tried(90) / 10


#: Three racks of even shares. Broker 9 receives nothing of what it lacks, so that the others of its rack get more.
LACKING = cluster("1a 2b 3c 4a 5b 6c 7a 8b 9c", *(f"{name}: " + "123 423 783 126 153 783 " * 3 for name in "tuvw"))


def test_shards_give_what_an_excluded_broker_lacks_to_its_rack(put_together: list[bool]) -> None:
    plan = planned(LACKING, "rebalance", {"exclude_brokers": [9]}, shard_rows=18)
    assert put_together == [True]
    held = plan.proof["spread"]["replicas"]["after"]["by_broker"]
    assert {broker: held[broker] for broker in "1245789"} == {**dict.fromkeys("124578", 24), "9": 0}
    # Each is above its share of 24, by 24 in sum.
    assert held["3"] + held["6"] == 72
    assert min(held["3"], held["6"]) >= 24
    verdict = check(LACKING, plan)
    assert (verdict.problems, verdict.unproven) == ([], ())
    nearest_plan = "Not every floor and ceiling can be met at once with these brokers; the plan comes nearest."
    assert plan.proof["notes"].count(nearest_plan) == 1


def test_a_cordoned_broker_is_planned_in_shards_like_an_excluded_one(put_together: list[bool]) -> None:
    brokers = [row | {"cordoned": row["broker"] == 9 or None} for row in LACKING.brokers.to_pylist()]
    cordoned = replace(LACKING, brokers=pa.Table.from_pylist(brokers, LACKING.brokers.schema))
    plan = planned(cordoned, "rebalance", {}, shard_rows=18)
    assert plan.moves == planned(LACKING, "rebalance", {"exclude_brokers": [9]}, shard_rows=18).moves
    assert put_together == [True, True]


def test_a_budget_leaves_to_later_plans_what_the_plan_without_it_moves(put_together: list[bool]) -> None:
    options = {"exclude_brokers": [9]}
    needed, snapshot = planned(LACKING, "rebalance", options, shard_rows=18).proof["replicas_moved"], LACKING
    moved: list[int] = []
    while sum(moved) < needed:
        plan = planned(snapshot, "rebalance", {**options, "max_moves": 7}, shard_rows=18)
        assert (check(snapshot, plan).problems, plan.proof["gap"]) == ([], 0)
        moved.append(plan.proof["replicas_moved"])
        snapshot = carried_out(snapshot, plan)
    assert max(moved) <= 7 < needed == sum(moved)
    assert planned(snapshot, "rebalance", options, shard_rows=18).proof["replicas_moved"] == 0
    assert all(put_together)


def test_a_broker_that_holds_none_of_a_topic_is_not_said_to_lead_its_share(put_together: list[bool]) -> None:
    for seed in (321, 582, 600):
        snapshot = random_case(seed)
        usable = [row["broker"] for row in snapshot.brokers.to_pylist() if row["state"] in ("live", "new")]
        excluded = random.Random(seed).sample(usable, 1 + seed % 2 if len(usable) > 2 else 1)
        plan = planned(snapshot, "rebalance", {"exclude_brokers": excluded, "rackless": "own-rack"}, shard_rows=1)
        assert (seed, check(snapshot, plan).problems) == (seed, [])
    assert len(put_together) == 3


@pytest.fixture
def few_and_all(monkeypatch: pytest.MonkeyPatch) -> list[list[tuple[int, int, int]]]:
    """The steps, moves and mebibytes of quotas: of few options and steps, and of one flow with all of them."""
    found: list[list[tuple[int, int, int]]] = []

    def both(problem: QuotaProblem) -> Quotas:
        few = nearest.nearest_quotas(problem)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(nearest._Steps, "open_at_first", lambda steps, *_of: steps)
            every = nearest._all_racks(problem)
        found.append([(quotas.steps, quotas.moves, quotas.weight) for quotas in (few, every)])
        return few

    # Else a sample would be all topics, and no option would be left out.
    monkeypatch.setattr("kafka_steward.planning.solver.sharded.quotas._SAMPLE", 0.3)
    monkeypatch.setattr("kafka_steward.planning.solver.sharded.quotas._PER_BROKER", 0)
    monkeypatch.setattr("kafka_steward.planning.solver.sharded.plan.nearest_quotas", both)
    return found


EXCLUDING_CLUSTERS = (
    "1a 2b 3c 4a 5b 6c",
    "1a 2b 3c 4a 5b 6c 7a+ 8b 9c",
    "1 2 3 4 5 6-",
    "1 2 3 4 5 6 7+ 8+",
    "1a 2a 3b 4b 5c 6c 7a 8a 9a+",
)


@pytest.mark.parametrize("topics", [9, 40])
def test_quotas_of_few_options_and_steps_are_those_of_all(
    topics: int, few_and_all: list[list[tuple[int, int, int]]]
) -> None:
    for seed, brokers in enumerate(EXCLUDING_CLUSTERS * tried(6)):
        dice = random.Random(seed)
        lines = [
            f"t{at:02d}: " + " ".join("".join(dice.sample("123456", 3)) for _ in range(dice.choice([1, 2, 7, 12])))
            for at in range(topics)
        ]
        snapshot = cluster(brokers, *lines)
        options = {"exclude_brokers": dice.sample([1, 2, 3, 4], dice.choice([1, 2]))}
        plan = planned(snapshot, "rebalance", options, shard_rows=14)
        assert check(snapshot, plan, proven=False).problems == []
    assert [few for few, _ in few_and_all] == [every for _, every in few_and_all]
    assert len(few_and_all) == len(EXCLUDING_CLUSTERS) * tried(6)
    assert sum(few[0] > 0 for few, _ in few_and_all) > len(few_and_all) / 4
