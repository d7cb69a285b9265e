"""What producers bring into partitions is in the snapshot, in its digest, and in the proof of a plan."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import pyarrow as pa
import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.execution.plans.progress_rows import proof_summary
from kafka_steward.execution.plans.summary import plan_tables
from kafka_steward.planning.checker.check import check
from kafka_steward.planning.files.formats import SnapshotFolder, snapshot_digest
from kafka_steward.planning.files.reassignment import snapshot_tables
from kafka_steward.planning.shards import PlanningJob
from kafka_steward.planning.solver import balance
from kafka_steward.planning.solver.proof import LEADER_EVENNESS
from tests.builders import EVEN, cluster, plan_with, planned, snapshot_of
from tests.rings import tried


def with_rates(snapshot: SnapshotFolder, *rates: float | None) -> SnapshotFolder:
    """The snapshot with the bytes per second of its partitions, in their order; of those beyond, none is known."""
    rows = snapshot.partitions.to_pylist()
    given = [*rates, *[None] * (len(rows) - len(rates))]
    return snapshot_of(
        snapshot.brokers.to_pylist(), [row | {"bytes_per_s": rate} for row, rate in zip(rows, given, strict=True)]
    )


def by_broker(snapshot: SnapshotFolder, what: str = "replicas", when: str = "before") -> dict[str, int]:
    return dict(planned(snapshot, "heal").proof["load"][what][when]["by_broker"])


def test_the_digest_of_a_snapshot_covers_the_rates() -> None:
    quiet, busy = (with_rates(cluster("1 2", "t: 12 21"), rate, 7.0) for rate in (None, 8.0))
    assert quiet.digest != busy.digest
    parts = busy.partitions.to_pylist()
    assert busy.digest == snapshot_digest("c", 1, busy.brokers, pa.Table.from_pylist(parts, busy.partitions.schema))


def test_each_replica_takes_what_producers_bring_in_and_the_first_one_leads() -> None:
    snapshot = with_rates(cluster("1 2 3", "t: 12 23", "u: 31"), 100.0, 20.0, 3.0)
    assert by_broker(snapshot) == {"1": 103, "2": 120, "3": 23}
    assert by_broker(snapshot, "leaders") == {"1": 100, "2": 20, "3": 3}
    load = planned(snapshot, "heal").proof["load"]
    assert (load["assumed"], load["replicas"]["before"]["highest_over_mean"]) == (0, round(120 / 82, 3))


def test_a_partition_without_a_rate_counts_as_its_topics_mean_or_as_the_clusters() -> None:
    snapshot = with_rates(cluster("1 2 3", "t: 1 1 2", "u: 3", "v: 3"), 100.0, 20.0, None, None, 300.0)
    assert by_broker(snapshot) == {"1": 120, "2": 60, "3": 140 + 300}
    assert planned(snapshot, "heal").proof["load"]["assumed"] == 2


def test_no_rate_is_known() -> None:
    assert planned(cluster("1 2", "t: 12 21"), "rebalance").proof["load"] is None


def test_nothing_comes_in() -> None:
    load = planned(with_rates(cluster("1 2", "t: 12"), 0.0), "heal").proof["load"]
    assert load["replicas"]["after"] == {"by_broker": {"1": 0, "2": 0}, "highest_over_mean": None}


@pytest.mark.parametrize("rate", [-1.0, float("nan"), float("inf"), 1e300])
def test_a_rate_that_cannot_be_counts_as_unknown(rate: float) -> None:
    assert by_broker(with_rates(cluster("1 2", "t: 1 2"), rate, 8.0)) == {"1": 8, "2": 8}
    assert planned(with_rates(cluster("1 2", "t: 1 2"), rate), "heal").proof["load"] is None


def test_a_broker_of_twice_the_capacity_may_take_twice_as_much() -> None:
    snapshot = with_rates(cluster("1 2", "t: 1 2"), 50.0, 100.0)
    brokers = [row | {"capacity": float(row["broker"])} for row in snapshot.brokers.to_pylist()]
    load = planned(snapshot_of(brokers, snapshot.partitions.to_pylist()), "heal").proof["load"]
    assert load["replicas"]["after"]["highest_over_mean"] == 1.0


def test_shards_count_as_one_does() -> None:
    dice = random.Random(5)
    topics = [f"t{number}: " + " ".join("".join(dice.sample("12345", 2)) for _ in range(9)) for number in range(6)]
    rates = [dice.choice([None, None, dice.uniform(0, 1e6)]) for _ in range(54)]
    snapshot = with_rates(cluster("1 2 3 4! 5", *topics), *rates)
    one, several = (planned(snapshot, "heal", shard_rows=rows).proof["load"] for rows in (100, 10))
    for name in ("replicas", "leaders"):
        assert one[name]["before"] == several[name]["before"]
    assert one["assumed"] == several["assumed"] == rates.count(None)
    assert PlanningJob.of(snapshot, "heal", {}).mean_rate is not None


def test_a_written_assignment_may_say_rates() -> None:
    entry: dict[str, Any] = {"topic": "t", "partition": 0, "replicas": [1], "bytes_per_s": 8}
    current = json.loads(json.dumps({"version": 1, "partitions": [entry]}))
    assert snapshot_tables(current, [{"id": 1}])[1]["bytes_per_s"].to_pylist() == [8.0]


@pytest.mark.parametrize("operation", ["rebalance", "heal"])
def test_a_false_statement_about_bytes_in_is_a_problem(operation: str) -> None:
    snapshot = with_rates(cluster("1 2 3", "t: 12 12 12", "u: 13"), 100.0, 20.0, None)
    plan = planned(snapshot, operation)
    assert check(snapshot, plan).problems == []
    for change in (
        {"assumed": 0},
        {"replicas": plan.proof["load"]["leaders"]},
        {"leaders": {**plan.proof["load"]["leaders"], "after": {"by_broker": {"1": 1}, "highest_over_mean": 1.0}}},
    ):
        false = plan_with(plan.digest, {**plan.proof, "load": {**plan.proof["load"], **change}}, plan.moves)
        assert len(check(snapshot, false).problems) >= 1
    assert check(snapshot, plan_with(plan.digest, {**plan.proof, "load": None}, plan.moves)).problems == [
        "The proof says load = None; the snapshot has rates of 2 partitions."
    ]


def loaded_case(seed: int) -> SnapshotFolder:
    """A random cluster whose partitions are alike but for their rates: many plans move as little."""
    dice = random.Random(seed)
    brokers = [
        {"broker": number, "rack": "abc"[number % dice.choice([1, 3])], "state": "live"} for number in range(1, 8)
    ]
    brokers[6]["state"] = dice.choice(["live", "draining", "new"])
    rows = [
        {
            "topic": topic,
            "partition": number,
            "replicas": dice.sample(range(1, 7), 2),
            "bytes": dice.choice([0, 1 << 20]),
            "bytes_per_s": dice.choice([None, 0.0, 1.0, 5.0, 80.0]),
        }
        for topic in "tuv"
        for number in range(dice.randint(3, 12))
    ]
    return snapshot_of(brokers, rows)


@pytest.mark.parametrize("operation", ["rebalance", "expand", "drain"])
@pytest.mark.parametrize("shard_rows", [30_000, 1], ids=["one shard", "several"])
def test_never_one_replica_or_byte_more_moves_and_the_proof_stands(
    operation: str, shard_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    better = 0
    for seed in range(4000, 4000 + tried(80, least=20)):
        snapshot = loaded_case(seed)
        plan = planned(snapshot, operation, EVEN, shard_rows)
        verdict = check(snapshot, plan)
        assert (seed, verdict.problems, verdict.unproven) == (seed, [], ())
        with monkeypatch.context() as patched:
            patched.setattr(balance, "MAX_PAIRS", -1)
            blind = planned(snapshot, operation, EVEN, shard_rows)
        for name in ("replicas_moved", "bytes_moved", "lower_bound", "gap", "unplaced"):
            assert plan.proof[name] == blind.proof[name], (seed, name)
        # An exchange may put replicas where leaders can be more even.
        evenness = [LEADER_EVENNESS.index(each.proof["leader_evenness"] or "even") for each in (plan, blind)]
        assert evenness[0] <= evenness[1], seed
        if plan.proof["load"] is not None:
            after = [each.proof["load"]["replicas"]["after"]["highest_over_mean"] or 0 for each in (plan, blind)]
            assert shard_rows == 1 or after[0] <= after[1] + 0.001, seed
            better += after[0] < after[1]
    assert better > (3 if shard_rows > 1 else 0)


def test_of_few_partitions_nearly_the_least_load_is_found() -> None:
    """Each of two brokers gives half of what it holds to one of two new ones: all ways, by brute force."""
    dice, exact, cases = random.Random(11), 0, tried(60, least=20)
    for _ in range(cases):
        rates = [float(dice.choice([0, 1, 3, 10, 40])) for _ in range(8)]
        snapshot = with_rates(cluster("1 2 3+ 4+", "t: 1 1 1 1 2 2 2 2"), *rates)
        found = max(planned(snapshot, "expand").proof["load"]["replicas"]["after"]["by_broker"].values())
        best = sum(rates)
        for some in itertools.product(itertools.combinations(range(4), 2), itertools.combinations(range(4, 8), 2)):
            gone = [*some[0], *some[1]]
            stays = [[at for at in half if at not in gone] for half in (range(4), range(4, 8))]
            for new in itertools.combinations(gone, 2):
                parts = [*stays, new, [at for at in gone if at not in new]]
                best = min(best, max(sum(rates[at] for at in part) for part in parts))
        assert found <= 1.35 * best
        exact += found == best
    assert exact > 0.6 * cases


def test_what_is_even_stays_whatever_comes_in() -> None:
    for seed in range(5000, 5000 + tried(40, least=12)):
        snapshot = loaded_case(seed)
        plan = planned(snapshot, "rebalance")
        after = {move.topic_partition: list(move.after) for move in plan.moves}
        rows = [
            row | {"replicas": now, "isr": now, "leader": now[0]}
            for row in snapshot.partitions.to_pylist()
            for now in [after.get(TopicPartition(row["topic"], row["partition"]), row["replicas"])]
        ]
        again = planned(snapshot_of(snapshot.brokers.to_pylist(), rows), "rebalance")
        assert (seed, [move for move in again.moves if move.adding]) == (seed, [])


def test_the_review_and_the_plan_say_how_much_comes_into_the_fullest_broker() -> None:
    snapshot = with_rates(cluster("1 2 3+", "t: 1 1 2 2 2 2"), 100.0, 20.0, 3.0, 3.0, 3.0)
    plan = planned(snapshot, "expand")
    rows = dict(plan_tables(plan, snapshot).costs)
    assert rows["bytes in, fullest broker"].startswith("2.32 times the mean before, ")
    assert rows["bytes in, fullest leader"].endswith(" after; 1 rate is assumed")
    summary = proof_summary(plan)
    assert (summary.bytes_in_before, summary.bytes_in_after) == tuple(
        plan.proof["load"]["replicas"][when]["highest_over_mean"] for when in ("before", "after")
    )
