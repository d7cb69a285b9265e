"""The checker catches plans that were made invalid, or worse, and counts leaders and pairs next in line by itself."""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from kafka_steward.assignment import Move
from kafka_steward.planning.checker.check import Findings, check, check_topics
from kafka_steward.planning.checker.leaders import LeftExchanges
from kafka_steward.planning.files.formats import PlanFolder, SnapshotFolder
from tests.builders import cluster, plan_with, planned
from tests.planning.integer_solver import random_plan
from tests.rings import one_in, tried

SNAPSHOTS = [
    cluster("1a 2b 3c 4a! 5b 6c", "t: 124 421 345 512 463 641/1 456", "u: 45 24 123"),
    cluster("1 2! 3 4- 5+ 6", "t: 12 23 241 526/5", "u: 2", "v: 612 321 412"),
    cluster("1a! 2a 3b 4 5b", "t: 124 231 15 513 12 1234"),
]


def moved(plan: PlanFolder, index: int, **changes: Any) -> PlanFolder:
    moves = list(plan.moves)
    moves[index] = replace(moves[index], **changes)
    return rehashed(plan, moves)


def rehashed(plan: PlanFolder, moves: list[Move], **proof: object) -> PlanFolder:
    """With sums that fit the rows, so that only the change itself can give it away."""
    counted = {
        "replicas_moved": sum(len(move.adding) for move in moves),
        "bytes_moved": sum(len(move.adding) * (move.size_bytes or 0) for move in moves),
        "leader_changes": sum(move.before[0] != move.after[0] for move in moves if move.after),
        "lower_bound": sum(len(move.adding) for move in moves),
    }
    return plan_with(plan.digest, {**plan.proof, **counted, **proof}, moves)


def mutants(snapshot: SnapshotFolder, plan: PlanFolder, dice: random.Random) -> Iterator[tuple[str, PlanFolder]]:
    """Every way that one row can be wrong, many times over."""
    brokers = snapshot.brokers["broker"].to_pylist()
    for index, move in enumerate(plan.moves):
        new = next(iter(move.adding))
        at = move.after.index(new)
        kept = [broker for broker in move.after if broker != new]
        spare = [broker for broker in brokers if broker not in move.after and broker not in move.before]
        yield "dropped", rehashed(plan, plan.moves[:index] + plan.moves[index + 1 :])
        yield "twice", rehashed(plan, [*plan.moves, move])
        yield "duplicate", moved(plan, index, after=(*move.after[:at], move.after[at - 1], *move.after[at + 1 :]))
        yield "unknown broker", moved(plan, index, after=(*move.after[:at], 99, *move.after[at + 1 :]))
        yield "dead kept", moved(plan, index, after=(*move.after[:at], *move.removing, *move.after[at + 1 :]))
        yield "out_of_sync", moved(plan, index, after=move.after[:-1])
        if move.before[0] == move.after[0]:
            yield "reversed kept", moved(plan, index, after=move.after[::-1])
        yield "other before", moved(plan, index, before=move.before[::-1])
        yield "other topic", moved(plan, index, topic="nowhere")
        yield "other partition", moved(plan, index, partition=move.partition + 100)
        yield "recreated", moved(plan, index, topic_id="other")
        yield "size", moved(plan, index, size_bytes=(move.size_bytes or 0) + 1)
        yield "reason", moved(plan, index, purpose="because")
        yield "chunk", moved(plan, index, chunk=move.chunk + 1)
        yield "position", moved(plan, index, position=move.position + 1)
        yield "new leader without data", moved(plan, index, after=(new, *kept))
        for broker in spare:
            victim = dice.choice(kept)
            worse = tuple(broker if one == victim else one for one in move.after)
            yield "in place moved", moved(plan, index, after=worse)
            yield "one more", moved(plan, index, after=(*move.after, broker))


def misstated(plan: PlanFolder) -> Iterator[tuple[str, PlanFolder]]:
    yield "understated", rehashed(plan, plan.moves, replicas_moved=0)
    yield "bound too high", rehashed(plan, plan.moves, lower_bound=len(plan.moves) + 1)
    yield "other cluster", rehashed(plan, plan.moves, cluster_id="d")
    yield "other snapshot", rehashed(plan, plan.moves, snapshot_digest="d")
    yield "unplaced hidden", rehashed(plan, plan.moves[:-1], unplaced=[])


def test_hundreds_of_plans_with_one_thing_wrong_are_all_caught() -> None:
    caught, let_through = Counter[str](), []
    for snapshot in SNAPSHOTS:
        plan = planned(snapshot)
        assert check(snapshot, plan).ok
        for kind, mutant in [*mutants(snapshot, plan, random.Random(1)), *misstated(plan)]:
            if mutant.moves == plan.moves and mutant.proof == plan.proof:
                continue
            caught[kind] += 1
            if check(snapshot, mutant).ok:
                let_through.append((kind, mutant.moves))
    assert let_through == []
    assert sum(caught.values()) > 300
    assert len(caught) == 23


@pytest.mark.parametrize("rows", [1, 3])
def test_topics_that_are_checked_in_parts_have_the_problems_of_all_together(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    different = []
    for snapshot, operation in zip((*SNAPSHOTS, *SNAPSHOTS), ["heal"] * 3 + ["rebalance"] * 3, strict=True):
        plan = planned(snapshot, operation)
        every = one_in(21 if rows == 1 else 93)
        wrong = list(mutants(snapshot, plan, random.Random(1)))[::every] if operation == "heal" else ()
        for kind, each in [("right", plan), *wrong, *misstated(plan)]:
            monkeypatch.setattr("kafka_steward.planning.checker.check.PART_ROWS", 1000)
            whole = check(snapshot, each)
            monkeypatch.setattr("kafka_steward.planning.checker.check.PART_ROWS", rows)
            parts = check(snapshot, each)
            if (parts.ok, Counter(parts.problems), parts.unproven) != (
                whole.ok,
                Counter(whole.problems),
                whole.unproven,
            ):
                different.append((kind, parts.problems, whole.problems))
    assert different == []


def test_at_most_some_topics_are_checked_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def spy(brokers: pa.Table, partitions: pa.Table, *rest: Any, **more: Any) -> Findings:
        seen.append(len(partitions))
        return check_topics(brokers, partitions, *rest, **more)

    monkeypatch.setattr("kafka_steward.planning.checker.check.check_topics", spy)
    monkeypatch.setattr("kafka_steward.planning.checker.check.PART_ROWS", 2)
    snapshot = cluster("1 2 3 4!", "a: 12 23", "b: 34 14", "c: 13", "d: 12 23 24 31", "e: 12")
    assert check(snapshot, planned(snapshot)).ok
    assert sum(seen) == 10
    assert seen == [2, 2, 1, 5], "whole topics, as many as begin within two rows"


def test_a_replica_on_a_rack_that_is_held_already_is_caught() -> None:
    snapshot = cluster("1a 2b! 3b 4a", "t: 12")
    plan = planned(snapshot)
    assert plan.moves[0].after == (1, 3)
    assert check(snapshot, moved(plan, 0, after=(1, 4))).problems == [
        "t-0: rack a holds 2 of its replicas while broker 3 on rack b is free."
    ]


def test_what_is_listed_without_need_is_caught() -> None:
    snapshot = cluster("1! 2 3", "t: 12")
    plan = planned(snapshot)
    for reason in ("all_replicas_lost", "too_few_brokers", "in_flight"):
        listed = [{"topic": "t", "partition": 0, "reason": reason}]
        assert not check(snapshot, rehashed(plan, [], unplaced=listed)).ok


RING = cluster("1 2 3 4", "t: " + " ".join(["12 23 34 41"] * 3), "u: 12 23 34 41")


def with_order(plan: PlanFolder, after: Mapping[tuple[str, int], tuple[int, ...]]) -> PlanFolder:
    """The plan with other orders of some partitions' replicas, and the number of leader changes to match."""
    moves: list[Move] = [
        replace(move, after=after.get((move.topic, move.partition), move.after)) for move in plan.moves
    ]
    changes = sum(move.before[0] != move.after[0] for move in moves)
    return plan_with(plan.digest, {**plan.proof, "leader_changes": changes}, moves)


def stated(plan: PlanFolder, *path: str, value: Any) -> PlanFolder:
    """The plan with another value at a path of its proof's `spread`."""
    proof = copy.deepcopy(dict(plan.proof))
    found = proof["spread"]
    for name in path[:-1]:
        found = found[name]
    found[path[-1]] = value
    return plan_with(plan.digest, proof, plan.moves)


def expanded() -> tuple[SnapshotFolder, PlanFolder]:
    snapshot = cluster("1 2 3 4+", "t: 12 23 31 12 23 31 12 23")
    return snapshot, planned(snapshot, "expand")


def test_a_plan_with_other_leaders_than_it_says_is_refused() -> None:
    snapshot, plan = expanded()
    assert check(snapshot, plan).ok
    moves = {(move.topic, move.partition): (*move.after[1:], move.after[0]) for move in plan.moves}
    problems = check(snapshot, with_order(plan, moves)).problems
    uneven = [one for one in problems if one.startswith("The proof says that leaders are even;")]
    assert uneven[0].endswith("partitions of t, which is not between 2 and 2.")
    assert any("partitions after the plan; the rows say" in one for one in problems)


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (
            ("next_in_line", "after", "squares"),
            1,
            "The proof says that the squares of the pairs next in line add up to 1; the rows say {squares}.",
        ),
        (
            ("leaders", "after", "by_broker"),
            {"1": 2, "2": 2, "3": 2, "4": 1},
            "The proof says that broker 4 leads 1 partitions after the plan; the rows say 2.",
        ),
    ],
)
def test_figures_that_are_not_those_of_the_rows_are_refused(path: tuple[str, ...], value: Any, problem: str) -> None:
    snapshot, plan = expanded()
    squares = plan.proof["spread"]["next_in_line"]["after"]["squares"]
    assert check(snapshot, stated(plan, *path, value=value)).problems == [problem.format(squares=squares)]


def test_a_topic_may_be_even_and_the_cluster_not() -> None:
    # Each topic is led by one broker each; broker 1 leads all of them.
    snapshot = cluster("1 2", "t: 12", "u: 12", "v: 21", "w: 21")
    plan = planned(snapshot, "rebalance")
    assert plan.moves == []
    uneven = cluster("1 2", "t: 12", "u: 12", "v: 12", "w: 21")
    proof = {**plan.proof, "snapshot_digest": uneven.digest, "spread": {}}
    for word, problems in (("even", 2), ("global-even", 2), ("topic-even", 0), ("proportional", 0)):
        found = check(uneven, plan_with(plan.digest, {**proof, "leader_evenness": word}, [])).problems
        assert len(found) == problems, word
        assert all(one.startswith(f"The proof says that leaders are {word}; broker") for one in found)
    wrong = check(uneven, plan_with(plan.digest, {**proof, "leader_evenness": "nearly"}, [])).problems
    assert wrong == [
        "The proof's leader_evenness 'nearly' is unknown; there are even, topic-even, global-even, proportional."
    ]


def test_leaders_in_proportion_to_replicas_are_those_of_each_brokers_share() -> None:
    rows = {"t": [(1, 2)] * 4}
    snapshot = cluster("1 2 3", "t: " + " ".join(f"{one}{other}" for one, other in rows["t"]))
    plan = planned(snapshot, "rebalance", {"exclude_brokers": [3]})
    assert plan.proof["leader_evenness"] == "even"
    # Broker 3 holds nothing, and leads nothing.
    assert check(snapshot, plan).problems == []
    lopsided = {("t", at): (1, 2) for at in range(4)}
    moves = with_order(plan, lopsided)
    kept = [move for move in moves.moves if move.after != move.before]
    bare = {**moves.proof, "leader_evenness": "proportional", "spread": {}, "leader_changes": 0}
    problems = check(snapshot, plan_with(plan.digest, bare, kept)).problems
    assert problems == [
        "The proof says that leaders are proportional; broker 1 leads 4 partitions of t, which is not between 2 and 2."
    ]


def test_an_even_plan_that_does_not_say_how_even_its_leaders_are_is_refused() -> None:
    snapshot, plan = expanded()
    silent = plan_with(plan.digest, {**plan.proof, "leader_evenness": None}, plan.moves)
    assert check(snapshot, silent).problems == [
        "The proof does not say how even leaders are, and its plan is to even them out."
    ]
    # Within a budget, and of other operations, leaders are what they are.
    within = planned(snapshot, "expand", {"max_moves": 1})
    assert (within.proof["leader_evenness"], check(snapshot, within).problems) == (None, [])
    assert planned(snapshot, "expand", {"max_moves": 99}).proof["leader_evenness"] == "even"
    healed = planned(RING, "heal")
    assert (healed.proof["leader_evenness"], check(RING, healed).problems) == (None, [])


def test_a_plan_of_one_shard_leaves_no_exchange_within_a_partition_to_improve_its_order_or_leaders() -> None:
    for seed in range(tried(45)):
        snapshot, plan = random_plan(seed)
        left = check(snapshot, plan).left
        assert left is not None
        assert (seed, left.order) == (seed, 0)
        assert plan.proof["leader_evenness"] != "even" or left.leaders == 0


def test_an_order_that_an_exchange_of_two_followers_would_improve_is_counted_with_what_it_would_gain() -> None:
    snapshot = cluster("1 2 3 4 5 6+", "t: " + " ".join(["123", "231", "312", "451", "514", "145"] * 4))
    plan = planned(snapshot, "expand")
    assert check(snapshot, plan).left == LeftExchanges(leaders=0, order=0)
    # The same leaders and replicas; the lowest broker of the others is next in line.
    rows = {(row["topic"], row["partition"]): row["replicas"] for row in snapshot.partitions.to_pylist()}
    after = {(move.topic, move.partition): (move.after[0], *sorted(move.after[1:])) for move in plan.moves}
    moved = [move for move in plan.moves if after[move.topic, move.partition] != move.before]
    moved = [replace(move, chunk=0, position=at) for at, move in enumerate(moved)]
    worse = with_order(plan_with(plan.digest, plan.proof, moved), after)
    pairs = Counter(after.get(name, tuple(replicas))[:2] for name, replicas in rows.items())
    stated_truly = stated(worse, "next_in_line", "after", "squares", value=sum(count**2 for count in pairs.values()))
    verdict = check(snapshot, stated_truly)
    assert verdict.problems == []
    assert verdict.left is not None
    assert verdict.left.order >= 2


def test_leaders_that_another_replica_could_lead_more_evenly_are_counted() -> None:
    # Broker 1 leads all: three of the four would rather be led by others, if any word but "even" were believed.
    snapshot = cluster("1 2 3 4", "t: 12 13 14 12")
    proof = {**planned(snapshot, "rebalance").proof, "leader_evenness": "proportional", "spread": {}}
    verdict = check(snapshot, plan_with("", {**proof, "leader_changes": 0, "replicas_moved": 0, "bytes_moved": 0}, []))
    assert verdict.left is not None
    assert verdict.left.leaders == 4
