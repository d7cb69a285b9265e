"""The checker catches plans that were made invalid, or worse, by one change."""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from kafka_steward.assignment import Move
from kafka_steward.planning.checker.check import Findings, check, check_topics
from kafka_steward.planning.files.formats import PlanFolder, SnapshotFolder
from tests.builders import cluster, plan_with, planned

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


@pytest.mark.parametrize("snapshot", SNAPSHOTS)
def test_a_plan_of_the_planner_is_valid(snapshot: SnapshotFolder) -> None:
    assert check(snapshot, planned(snapshot)).ok


def test_hundreds_of_plans_with_one_thing_wrong_are_all_caught() -> None:
    caught, let_through = Counter[str](), []
    for snapshot in SNAPSHOTS:
        plan = planned(snapshot)
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
        wrong = (
            list(mutants(snapshot, plan, random.Random(1)))[:: 7 if rows == 1 else 31] if operation == "heal" else ()
        )
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

    def spy(brokers: pa.Table, partitions: pa.Table, *rest: Any) -> Findings:
        seen.append(len(partitions))
        return check_topics(brokers, partitions, *rest)

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
