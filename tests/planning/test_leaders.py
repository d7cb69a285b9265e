"""The operation `leaders`: which replica leads becomes even by the fewest changes, and no replica moves."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import ceil, floor

import pytest

from kafka_steward.assignment import Move
from kafka_steward.planning.checker.check import check
from kafka_steward.planning.files.formats import PlanFolder, SnapshotFolder, plan_table
from tests.builders import cluster, plan_with, planned, snapshot_of


def leaders_after(snapshot: SnapshotFolder, plan: PlanFolder) -> dict[tuple[str, int], int]:
    """The preferred leader of each partition once the plan is carried out."""
    after = {(move.topic, move.partition): move.after[0] for move in plan.moves}
    rows = snapshot.partitions.select(["topic", "partition", "replicas"]).to_pylist()
    return {(row["topic"], row["partition"]): row["replicas"][0] for row in rows} | after


def test_leaders_become_even_by_the_fewest_changes_and_nothing_is_copied() -> None:
    snapshot = cluster("1a 2b 3c", "t: 123 123 123 132 213 213")
    plan = planned(snapshot, "leaders")
    assert Counter(leaders_after(snapshot, plan).values()) == {1: 2, 2: 2, 3: 2}
    assert plan.proof["leader_changes"] == plan.proof["leader_changes_bound"] == len(plan.moves) == 2
    assert plan.proof["replicas_moved"] == plan.proof["bytes_moved"] == 0
    assert plan.proof["leader_evenness"] == "even"
    for move in plan.moves:
        rest = [broker for broker in move.before if broker != move.after[0]]
        assert list(move.after) == [move.after[0], *rest]
    assert check(snapshot, plan).ok
    assert check(snapshot, plan).unproven == ()


def test_the_next_plan_is_empty() -> None:
    snapshot = cluster("1 2 3", "t: 12 12 12 13 23")
    plan = planned(snapshot, "leaders")
    after = {(move.topic, move.partition): list(move.after) for move in plan.moves}
    rows = snapshot.partitions.to_pylist()
    moved = [row | {"replicas": after.get((row["topic"], row["partition"]), row["replicas"])} for row in rows]
    assert plan.moves
    assert not planned(snapshot_of(snapshot.brokers.to_pylist(), moved), "leaders").moves


def test_only_usable_brokers_that_are_in_sync_come_to_lead() -> None:
    snapshot = cluster("1 2 3? 4-", "t: 12/1 13 14 12 12", "u: 34")
    plan = planned(snapshot, "leaders")
    led = leaders_after(snapshot, plan)
    assert [led["t", number] for number in range(3)] == [1, 1, 1]
    assert led["t", 3] == led["t", 4] == 2
    assert [(row["topic"], row["reason"]) for row in plan.proof["unplaced"]] == [("u", "no_candidate")]
    assert check(snapshot, plan).ok


def test_a_cordoned_broker_may_lead_what_it_holds() -> None:
    rows = [{"broker": 1, "state": "live"}, {"broker": 2, "state": "live", "cordoned": True}]
    parts = [{"topic": "t", "partition": number, "replicas": [1, 2]} for number in range(4)]
    snapshot = snapshot_of(rows, parts)
    plan = planned(snapshot, "leaders")
    assert Counter(leaders_after(snapshot, plan).values()) == {1: 2, 2: 2}
    assert check(snapshot, plan).ok


def test_a_broker_of_twice_the_capacity_leads_as_its_replicas_do() -> None:
    rows = [{"broker": broker, "state": "live", "capacity": 1.0 + (broker == 3)} for broker in (1, 2, 3)]
    replicas = [[1, 3], [1, 3], [2, 3], [2, 3], [1, 3], [2, 3]]
    snapshot = snapshot_of(
        rows, [{"topic": "t", "partition": number, "replicas": of} for number, of in enumerate(replicas)]
    )
    plan = planned(snapshot, "leaders")
    assert Counter(leaders_after(snapshot, plan).values())[3] == 3
    assert plan.proof["leader_evenness"] == "proportional"
    assert check(snapshot, plan).unproven == ()


def test_topics_that_are_not_asked_for_stay() -> None:
    snapshot = cluster("1 2", "t: 12 12", "u: 12 12", "__consumer_offsets: 12 12")
    plan = planned(snapshot, "leaders", {"exclude": ["u"]})
    assert {move.topic for move in plan.moves} == {"t"}
    assert check(snapshot, plan).ok


def small_cluster(dice: random.Random) -> SnapshotFolder:
    """A cluster of two to four brokers with two topics of up to four partitions; some replicas are out of sync."""
    brokers = list(range(1, dice.randint(2, 4) + 1))
    states = {broker: dice.choice(["live"] * 6 + ["down", "draining"]) for broker in brokers}
    states[1] = "live"
    parts = []
    for topic in "tu":
        for number in range(dice.randint(1, 4)):
            replicas = dice.sample(brokers, dice.randint(1, min(3, len(brokers))))
            isr = [broker for broker in replicas if states[broker] != "down" and dice.random() < 0.85]
            parts.append(
                {
                    "topic": topic,
                    "partition": number,
                    "replicas": replicas,
                    "isr": isr or replicas[:1],
                    "leader": (isr or replicas)[0],
                }
            )
    return snapshot_of([{"broker": broker, "state": state} for broker, state in states.items()], parts)


def choices(snapshot: SnapshotFolder) -> Iterator[tuple[str, int, Sequence[int]]]:
    """The topic, the preferred leader now and the brokers that may lead, of each partition that has any."""
    state = {row["broker"]: row["state"] for row in snapshot.brokers.to_pylist()}
    for row in snapshot.partitions.to_pylist():
        first, *_ = row["replicas"]
        able = [b for b in row["replicas"] if state[b] == "live" and (b in row["isr"] or b == first)]
        if able:
            yield (row["topic"], first, able)


Rows = list[tuple[str, int, Sequence[int]]]
Bounds = dict[int, tuple[int, int]]


def equal(rows: Rows, live: list[int]) -> Bounds:
    """The same share of the leaders for each live broker."""
    return {broker: (len(rows) // len(live), -(-len(rows) // len(live))) for broker in live}


def proportional(rows: Rows, live: list[int]) -> Bounds:
    """The share of each live broker, if those that may lead a partition share it."""
    share = {broker: sum(1 / len(able) for _, _, able in rows if broker in able) for broker in live}
    return {broker: (floor(part + 1e-9), ceil(part - 1e-9)) for broker, part in share.items()}


def either(rows: Rows, live: list[int]) -> Bounds:
    """What is within one of the two, or between them."""
    pairs = [(broker, equal(rows, live)[broker], proportional(rows, live)[broker]) for broker in live]
    return {broker: (min(one[0], two[0]), max(one[1], two[1])) for broker, one, two in pairs}


#: The words for how even leaders are, with the bounds of a topic and of all topics.
WORDS = {"even": (equal, equal), "global-even": (either, equal), "proportional": (proportional, proportional)}


def within(led: Sequence[int], bounds: Bounds) -> bool:
    """Whether each broker leads as many as it may."""
    count = Counter(led)
    return all(low <= count[broker] <= high for broker, (low, high) in bounds.items())


def fewest_changes(snapshot: SnapshotFolder) -> tuple[str | None, int]:
    """The fewest changes within the most even bounds that can be met, by trying everything."""
    rows = list(choices(snapshot))
    live = [row["broker"] for row in snapshot.brokers.to_pylist() if row["state"] == "live"]
    topics = {topic: [at for at, row in enumerate(rows) if row[0] == topic] for topic, _, _ in rows}
    for word, (of_topic, of_all) in WORDS.items():
        total = of_all(rows, live)
        parts = [(mine, of_topic([rows[at] for at in mine], live)) for mine in topics.values()]
        found = [
            sum(row[1] != leader for row, leader in zip(rows, led, strict=True))
            for led in itertools.product(*(able for _, _, able in rows))
            if within(led, total) and all(within([led[at] for at in mine], bounds) for mine, bounds in parts)
        ]
        if rows and found:
            return word, min(found)
    return None, 0


@pytest.mark.parametrize("seed", range(150))
def test_no_choice_of_leaders_that_is_as_even_changes_fewer(seed: int) -> None:
    snapshot = small_cluster(random.Random(seed))
    plan = planned(snapshot, "leaders")
    assert fewest_changes(snapshot) == (plan.proof["leader_evenness"], plan.proof["leader_changes"])
    verdict = check(snapshot, plan)
    assert (verdict.problems, verdict.unproven) == ([], ())


def changed(plan: PlanFolder, moves: Sequence[Move], **proof: object) -> PlanFolder:
    """The plan with other moves, and a proof whose sums are theirs."""
    sums = {"leader_changes": sum(move.before[0] != move.after[0] for move in moves), "spread": {}}
    return plan_with(plan.digest, {**plan.proof, **sums, **proof}, moves)


SNAPSHOT = cluster("1a 2b 3c", "t: 123 123 123 132/13 213 213")


@pytest.mark.parametrize(
    ("after", "words"),
    [
        ((2, 1, 3), "leads 3 partitions"),
        ((3, 2, 1), "more than let another"),
        ((3, 1), "more than let another"),
        ((4, 1, 2), "more than let another"),
    ],
)
def test_the_checker_refuses_a_move_that_is_not_the_operations(after: tuple[int, ...], words: str) -> None:
    plan = planned(SNAPSHOT, "leaders")
    move, *others = plan.moves
    wrong = changed(plan, [replace(move, after=after), *others])
    assert any(words in problem for problem in check(SNAPSHOT, wrong).problems)


def test_the_checker_refuses_a_leader_that_is_out_of_sync() -> None:
    plan = planned(SNAPSHOT, "leaders")
    late = Move("t", 3, (1, 3, 2), (2, 1, 3), 0, 2, "reorder", None, 1000)
    problems = check(SNAPSHOT, changed(plan, [*plan.moves, late])).problems
    assert any("broker 2 may not lead it" in problem for problem in problems)


def test_the_checker_notices_a_change_too_many() -> None:
    snapshot = cluster("1 2", "t: 12 12 21 21")
    plan = planned(snapshot, "leaders")
    swap = [
        Move("t", number, before, before[::-1], 0, at, "reorder", None, 1000)
        for at, (number, before) in enumerate([(0, (1, 2)), (2, (2, 1))])
    ]
    verdict = check(snapshot, changed(plan, swap))
    assert not plan.moves
    assert verdict.unproven == ("The topic t may do with fewer changes of leaders.",)


@pytest.mark.parametrize("prices", [{}, {"1": 0, "2": 0, "3": 5}, {"1": 9, "2": -9, "3": 0}])
def test_wrong_prices_prove_nothing(prices: dict[str, int]) -> None:
    snapshot = cluster("1 2 3", "t: 12 13 12 23 31")
    plan = planned(snapshot, "leaders")
    assert check(snapshot, plan).unproven == ()
    assert check(snapshot, changed(plan, plan.moves, prices=prices)).unproven


def test_a_plan_of_no_evenness_is_refused() -> None:
    plan = planned(SNAPSHOT, "leaders")
    assert not check(SNAPSHOT, changed(plan, [], leader_evenness=None)).ok
    assert not check(SNAPSHOT, changed(plan, [])).ok
    assert len(plan_table(plan.moves)) == 2
