"""An even plan put together from shards: as few moves and mebibytes as the plan of all partitions as one."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
import pytest

from kafka_steward.planning.checker.check import check
from kafka_steward.planning.files.formats import PlanFolder
from kafka_steward.planning.shards import shard_boundaries
from kafka_steward.planning.solver.sharded.plan import Movement, ShardedQuotas
from kafka_steward.planning.solver.sharded.quotas import QuotaProblem, Quotas, quotas_by_flow, quotas_by_pricing
from tests.builders import cluster, planned
from tests.planning.integer_solver import MIB, random_case
from tests.rings import tried

TOPICS = [f"{name}: " + " ".join(["124", "341", "213", "432"] * 5) for name in "tuvw"]
SNAPSHOT = cluster("1a 2b 3c 4a- 5b 6c+ 7a", *TOPICS)


def cost(plan: PlanFolder) -> tuple[int, int, int, dict[str, int]]:
    weight = sum(len(move.adding) * -(-(move.size_bytes or 0) // MIB) for move in plan.moves)
    return plan.proof["replicas_moved"], weight, plan.proof["lower_bound"], plan.proof["rack_violations"]


@dataclass(frozen=True)
class Cut:
    """Random cases, each planned in one piece and cut into its topics; and how many were put together from shards."""

    pairs: dict[int, tuple[PlanFolder, PlanFolder]]
    put_together: int


@pytest.fixture(scope="module")
def cut() -> Cut:
    closed, pairs = [], {}
    needs_one_flow = ShardedQuotas.needs_one_flow

    def spy(parts: ShardedQuotas, movement: Movement) -> bool:
        closed.append(parts.meets_bound(movement))
        return needs_one_flow(parts, movement)

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(ShardedQuotas, "needs_one_flow", spy)
        for seed in range(1000, 1000 + tried(75, least=25)):
            options = {"rackless": ["free", "own-rack"][seed % 2], "rack_aware": seed % 7 != 0}
            snapshot = random_case(seed)
            problem, pieces = (planned(snapshot, "rebalance", options, shard_rows=rows) for rows in (30_000, 1))
            pairs[seed] = (problem, pieces)
    return Cut(pairs, sum(closed))


def test_random_cases_in_shards_of_one_topic_move_as_little_as_in_one_shard(cut: Cut) -> None:
    different = [seed for seed, (problem, pieces) in cut.pairs.items() if cost(problem) != cost(pieces)]
    assert different == []
    # Else nothing was put together at all.
    assert cut.put_together >= tried(75, least=25) / 3


def test_random_cases_in_shards_of_one_topic_change_hardly_more_leaders_than_in_one_shard(cut: Cut) -> None:
    changes = [[plan.proof["leader_changes"] for plan in pair] for pair in cut.pairs.values()]
    problem, pieces = (sum(counts) for counts in zip(*changes, strict=True))
    assert pieces <= 1.06 * problem, (problem, pieces)


@pytest.mark.parametrize("operation", ["rebalance", "expand", "drain"])
def test_several_shards_are_even_and_proven_together(operation: str) -> None:
    plan = planned(SNAPSHOT, operation, shard_rows=20)
    verdict = check(SNAPSHOT, plan)
    assert (verdict.problems, verdict.unproven) == ([], ())
    leaders = plan.proof["spread"]["leaders"]["after"]
    assert leaders["most"] - leaders["least"] <= 1


def test_leaders_that_are_even_over_all_shards_are_unchanged() -> None:
    # In each shard by itself half of the brokers lead nothing.
    plan = planned(cluster("1 2 3 4 5 6", "t: 14 25 36", "u: 41 52 63"), "rebalance", shard_rows=3)
    assert plan.moves == []


def test_leaders_that_are_even_stay_where_each_shard_is_led_by_one_broker() -> None:
    # Broker 1 leads every topic of the first shard, and broker 2 every topic of the second.
    snapshot = cluster("1 2", *(f"t{at:02d}: {'12' if at < 20 else '21'}" for at in range(40)))
    assert planned(snapshot, "rebalance", shard_rows=20).moves == []


def test_a_gap_is_noted_if_all_shards_are_not_planned_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka_steward.planning.solver.sharded.plan.MAX_UNSHARDED_PARTITIONS", 0)
    gaps = [planned(random_case(seed), "rebalance", shard_rows=1).proof for seed in range(1000, 1000 + tried(60))]
    said = [proof for proof in gaps if any("Slices were planned apart" in note for note in proof["notes"])]
    assert said
    assert all(proof["lower_bound"] <= proof["replicas_moved"] for proof in gaps)


def test_quotas_by_pricing_cost_as_little_as_those_of_one_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    quotas = []

    def both(problem: QuotaProblem) -> Quotas:
        sifted, flow = quotas_by_pricing(problem), quotas_by_flow(problem)
        quotas.append([(one.moves, one.weight) for one in (sifted, flow)])
        return sifted

    monkeypatch.setattr("kafka_steward.planning.solver.sharded.quotas._SAMPLE", 0.3)
    monkeypatch.setattr("kafka_steward.planning.solver.sharded.quotas._PER_BROKER", 0)
    monkeypatch.setattr("kafka_steward.planning.solver.sharded.plan.quotas_by_pricing", both)
    clusters = ("1a 2b 3c 4a 5b 6c", "1a 2b 3c 4a 5b 6c 7a+ 8b+ 9c+", "1 2 3 4 5 6 7+", "1a 2b 3c 4a 5b 6c-")
    for seed, brokers in enumerate(clusters * tried(6)):
        snapshot = cluster(brokers, *_topics(random.Random(seed)))
        plan = planned(snapshot, "rebalance", shard_rows=50)
        verdict = check(snapshot, plan)
        assert (verdict.problems, verdict.unproven) == ([], ())
    assert len(quotas) == 4 * tried(6)
    assert all(sifted == flow for sifted, flow in quotas)


def _topics(dice: random.Random) -> list[str]:
    """Forty topics on six brokers, some of whose partitions have two or three replicas in one rack."""
    return [f"t{at:02d}: " + " ".join("".join(dice.sample("123456", 3)) for _ in range(7)) for at in range(40)]


def sizes(counts: dict[str, int], rows: int) -> list[int]:
    topics = [topic for topic, count in counts.items() for _ in range(count)]
    random.Random(0).shuffle(topics)
    firsts = ["", *shard_boundaries(pa.chunked_array([topics], pa.string()), rows), "~"]
    assert firsts == sorted(set(firsts))
    ends = pairwise(firsts)
    return [sum(count for topic, count in counts.items() if first <= topic < after) for first, after in ends]


@pytest.mark.parametrize(("topics", "shards"), [(0, 1), (1, 1), (40, 2), (41, 3), (100, 5), (101, 6)])
def test_there_are_as_many_shards_as_needed_and_they_are_equal(topics: int, shards: int) -> None:
    found = sizes({f"t{number:03d}": 5 for number in range(topics)}, 100)
    assert len(found) == shards
    assert sum(found) == 5 * topics
    assert max(found) - min(found) <= 5


def test_a_topic_is_never_cut() -> None:
    assert sizes({"a": 10, "b": 500, "c": 10, "d": 10}, 100) == [10, 500, 20]
