"""What people read of a plan: the page before its approval, its outcome, and what is out of sync."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_steward.assignment import Move, MoveReason, TopicPartition
from kafka_steward.execution.plans.report import (
    OutOfSyncPartition,
    PlanOutcome,
    find_out_of_sync,
    format_bytes,
    format_duration,
    summarize_outcome,
)
from kafka_steward.execution.plans.summary import not_moved_lines, plan_summary
from kafka_steward.execution.throttles.rates import ineffective_message
from kafka_steward.journal.records import MoveRow, MoveState
from kafka_steward.planning.solver.problem import Disposition
from tests.builders import cluster, plan_with, snapshot_of
from tests.execution.looks import look, part
from tests.simulated_plan import move

DIGEST = "3f2a91c0" * 8
SNAPSHOT = cluster("1a 2b 3b 4", "a_b: 123 123", "c|d: 412 41")
MOVES = [
    Move("a_b", 0, (1, 2, 3), (1, 2, 4), 0, 0, MoveReason.BALANCE, size_bytes=1_500),
    Move("a_b", 1, (1, 2, 3), (3, 4, 1), 0, 1, MoveReason.BALANCE, size_bytes=500),
    Move("c|d", 0, (4, 1, 2), (2, 3), 0, 2, "some_reason"),
    Move("c|d", 1, (4, 1), (1, 4), 0, 3, MoveReason.REORDER, size_bytes=7),
]
SPREAD = {
    "replicas": {"before": {"by_broker": {"1": 4, "2": 3, "9": 1}}, "after": {"by_broker": {"1": 3, "2": 2, "9": 0}}},
    "leaders": {"before": {"by_broker": {"1": 2}}, "after": {"by_broker": {"1": 1, "2": 1}}},
    "bytes": {"before": {"by_broker": {"1": 4_000, "2": 0}}, "after": {"by_broker": {"1": 3_000, "2": 999}}},
}
PROOF: dict[str, Any] = {
    "cluster_id": "c-1", "operation": "rebalance", "replicas_moved": 3, "lower_bound": 2, "bytes_moved": 2_000,
    "partitions": 4, "leader_changes": 2, "rack_violations": {"before": 1, "after": 2}, "predicted_seconds": 720,
    "options": {"throttle": 50_000_000}, "spread": SPREAD, "notes": ["One part_ition has no known size."],
    "unplaced": [{"topic": "e", "partition": 3, "reason": "too_few_brokers"}],
    "pinned": [{"topic": "f_g", "partition": 0, "reason": "is_moving"}],
}  # fmt: skip
PAGE = f"""\
Plan **3f2a91c03f2a** for cluster `c-1`: **rebalance**. The approval applies to exactly \
this plan, `{DIGEST}`; a new plan needs a new approval.

|  |  |
| --- | --- |
| replicas moved | 3 (no plan can move fewer than 2) |
| bytes copied | 2.0 kB |
| partitions touched | 4 of 4 |
| preferred leaders that change | 2 |
| predicted duration | at least 12 min at 50.0 MB/s into each broker (without the rates that others have set) |
| partitions not spread over the racks | 1 before, 2 after |

### What it breaks

- c\\|d-0 will be on 1 rack instead of 3.
- c\\|d-0 will have 2 replicas instead of 3.

### Brokers

| broker | replicas | leaders | bytes | replicas in | replicas out | bytes in |
| --- | --- | --- | --- | --- | --- | --- |
| 1 | 4 → 3 | 2 → 1 | 4.0 kB → 3.0 kB | 0 | 1 | 0 B |
| 2 | 3 → 2 | ? → 1 | 0 B → 999 B | 0 | 1 | 0 B |
| 3 | ? → ? | ? → ? | ? → ? | 1 | 1 | 0 B |
| 4 | ? → ? | ? → ? | ? → ? | 2 | 1 | 2.0 kB |
| 9 | 1 → 0 | ? → ? | ? → ? | 0 | 0 | 0 B |

### Left as they are

- e-3: too few brokers may hold its replicas; start or add brokers, or lower its replication factor
- f\\_g-0: is moving

### Notes

- One part\\_ition has no known size.

### Moves

| partition | from | to | size | why |
| --- | --- | --- | --- | --- |
| a\\_b-0 | 1, 2, 3 | 1, 2, 4 | 1.5 kB | another broker held less than its share |
| a\\_b-1 | 1, 2, 3 | 3, 4, 1 | 500 B | another broker held less than its share |
| c\\|d-0 | 4, 1, 2 | 2, 3 | ? | some\\_reason |
| c\\|d-1 | 4, 1 | 1, 4 | 7 B | the same replicas in another order, to balance leaders and their successors |"""


def test_the_page_shows_the_proof_what_breaks_each_broker_what_is_left_and_each_move() -> None:
    assert plan_summary(plan_with(DIGEST, PROOF, MOVES), SNAPSHOT) == PAGE


LOST = "no replica of it is live, and moving it would lose its data; {}, or delete the topic"
LOST += ", if that is not under way already"
AWAY = "bring back one of its brokers 2 and 8 with its data"
AWAY_OR_BROKEN = "bring back its broker 8 with its data, or restore the failed log directory of its broker 3"
LEADERLESS = (
    "it has no leader, and so nothing to copy from; restore the failed log directory of its broker 3, let a replica "
    "lead that is out of sync, which loses data (kafka-leader-election.sh --election-type unclean), or delete the topic"
    ", if that is not under way already"
)


@pytest.mark.parametrize(
    ("reason", "row", "clause"),
    [
        ("all_replicas_lost", {"replicas": [2, 8], "isr": []}, LOST.format(AWAY)),
        ("all_replicas_lost", {"replicas": [2, 8], "isr": [8]}, LOST.format("bring back its broker 8 with its data")),
        ("all_replicas_lost", {"replicas": [3, 8], "isr": [], "all_offline": True}, LOST.format(AWAY_OR_BROKEN)),
        ("no_leader", {"replicas": [1, 3], "isr": []}, LEADERLESS),
        (
            "in_flight",
            {},
            (
                "a reassignment of it is in flight; make another plan when that has ended, or cancel one "
                "that does not end (kafka-reassign-partitions.sh --cancel)"
            ),
        ),
        ("pinned", {}, "the option pin keeps it as it is"),
        ("excluded", {}, "the plan leaves out its topic, by include, exclude, internal_topics or service_topics"),
    ],
)
def test_what_is_left_says_why_and_what_a_person_can_do(reason: str, row: dict[str, Any], clause: str) -> None:
    rows = [{**one, **(row if one["partition"] == 1 else {})} for one in SNAPSHOT.partitions.to_pylist()]
    proof = {"unplaced": [{"topic": "a_b", "partition": 1, "reason": reason}]}
    changed: dict[int, dict[str, Any]] = {2: {"state": "down"}, 3: {"disk_failed": True}}
    brokers = [{**one, **changed.get(one["broker"], {})} for one in SNAPSHOT.brokers.to_pylist()]
    assert not_moved_lines(proof, snapshot_of(brokers, rows)) == [f"a_b-1: {clause}"]


def test_the_page_says_first_that_a_drained_broker_will_not_be_empty() -> None:
    rows = [{**one, "replicas": [4, 1, 2]} for one in SNAPSHOT.partitions.to_pylist()]
    for draining, begin in (([4], "Broker 4 will not be empty: "), ([2, 4], "Brokers 2 and 4 will not be empty: ")):
        proof = {**PROOF, "operation": "drain", "brokers_draining": draining}
        page = plan_summary(plan_with(DIGEST, proof, MOVES[2:3]), snapshot_of(SNAPSHOT.brokers.to_pylist(), rows))
        assert begin in page.split("\n\n")[1]


def test_each_reason_of_a_proof_has_words() -> None:
    reasons = [one.reason_word for one in Disposition if one > Disposition.PLANNED]
    for reason in reasons:
        (line,) = not_moved_lines({"pinned": [{"topic": "gone", "partition": 0, "reason": reason}]}, SNAPSHOT)
        assert line.count(" ") > 4
        assert "{" not in line


def head(proof: dict[str, Any]) -> tuple[str, list[str]]:
    """The page's first sentence, and its costs, of a plan without moves: it has no other sections with content."""
    first, costs, *others = plan_summary(plan_with(DIGEST, proof, []), SNAPSHOT).split("\n\n")
    assert others == ["### Brokers", BROKERS]
    return first.split(".")[0], [line.split(" | ")[1].removesuffix(" |") for line in costs.splitlines()[2:]]


BROKERS = """\
| broker | replicas | leaders | bytes | replicas in | replicas out | bytes in |
| --- | --- | --- | --- | --- | --- | --- |"""


@pytest.mark.parametrize(
    "empty",
    [
        {},
        {
            "rack_violations": None, "options": None, "spread": None, "notes": None, "unplaced": None, "pinned": None,
            "bytes_moved": None, "predicted_seconds": None,
        },
        {"rack_violations": {}, "options": {}, "spread": {"replicas": None}, "notes": []},
        {"spread": {"replicas": {"before": None}}},
    ],
)  # fmt: skip
def test_a_proof_that_lacks_parts_makes_a_page_all_the_same(empty: dict[str, Any]) -> None:
    assert head({"cluster_id": "c", "operation": "apply", **empty}) == (
        "Plan **3f2a91c03f2a** for cluster `c`: **apply**",
        [
            "None (no plan can move fewer than None)", "0 B", "0 of None", "None",
            "unthrottled: as fast as disks and network allow", "0 before, 0 after",
        ],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("throttle", "seconds", "told"),
    [
        (90_000, 0, "less than a second at 90.0 kB/s into each broker (without the rates that others have set)"),
        (1_000, 0, f"not predicted: {ineffective_message(1_000)}"),
        (1_000, None, "unthrottled: as fast as disks and network allow"),
        (0, 5, "unthrottled: as fast as disks and network allow"),
    ],
)
def test_a_duration_is_predicted_only_for_a_throttle(throttle: int, seconds: float | None, told: str) -> None:
    _, costs = head({"options": {"throttle": throttle}, "predicted_seconds": seconds})
    assert costs[4] == told


@pytest.mark.parametrize(
    ("brokers", "cells"), [({"replicas": {"after": {"by_broker": {"1": 3}}}}, "? → 3"), ({}, "? → ?")]
)
def test_a_broker_of_which_less_is_known_is_shown_with_question_marks(brokers: dict[str, Any], cells: str) -> None:
    leaders = [Move("a_b", 0, (1, 2), (2,), 0, 0, MoveReason.GIVEN)]
    page = plan_summary(
        plan_with(DIGEST, {"spread": {**brokers, "leaders": None, "bytes": {"before": None}}}, leaders), SNAPSHOT
    )
    assert [line for line in page.splitlines() if line.startswith("| 1 |")] == [
        f"| 1 | {cells} | ? → ? | ? → ? | 0 | 1 | 0 B |"
    ]


@pytest.mark.parametrize(("count", "more"), [(20, 0), (21, 1), (45, 25)])
def test_a_page_shows_twenty_of_each_and_counts_the_rest(count: int, more: int) -> None:
    shrinking = [Move("t", number, (1, 4), (1,), 0, number, MoveReason.GIVEN, size_bytes=1) for number in range(count)]
    page = plan_summary(
        plan_with(DIGEST, {"notes": [f"note {number}" for number in range(count)]}, shrinking), SNAPSHOT
    )
    sections = {part.split("\n")[0]: part.split("\n")[2:] for part in page.split("\n\n### ")}
    rest = [f"- … and {more} more"] if more else []
    assert sections["What it breaks"] == [
        *(f"- t-{number} will have 1 replica instead of 2." for number in range(20)), *rest,
    ]  # fmt: skip
    assert sections["Notes"] == [*(f"- note {number}" for number in range(20)), *rest]
    assert page.split("\n\n### Moves\n\n")[1].splitlines() == [
        "| partition | from | to | size | why |",
        "| --- | --- | --- | --- | --- |",
        *(f"| t-{number} | 1, 4 | 1 | 1 B | the reassignment was requested explicitly |" for number in range(20)),
        *(["", f"… and {more} more."] if more else []),
    ]


@pytest.mark.parametrize(
    ("count", "told"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1_000, "1.0 kB"),
        (999_900, "999.9 kB"),
        (1_000_000, "1.0 MB"),
        (50_250_000, "50.2 MB"),
        (10**9, "1.0 GB"),
        (999_900_000_000, "999.9 GB"),
        (10**12, "1.0 TB"),
        (5 * 10**15, "5000.0 TB"),
    ],
)
def test_a_size_is_formatted_in_the_unit_that_fits(count: int, told: str) -> None:
    assert format_bytes(count) == told


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0, "0 s"),
        (89.4, "89 s"),
        (90, "2 min"),
        (150.5, "3 min"),
        (3_569, "59 min"),
        (3_571, "1 h 0 min"),
        (11_100, "3 h 5 min"),
        (172_800, "48 h 0 min"),
    ],
)
def test_a_duration_is_formatted_in_seconds_minutes_or_hours(seconds: float, told: str) -> None:
    assert format_duration(seconds) == told


def test_brokers_that_are_cordoned_are_named() -> None:
    rows = [row | {"cordoned": row["broker"] in (2, 4) or None} for row in SNAPSHOT.brokers.to_pylist()]
    page = plan_summary(plan_with(DIGEST, PROOF, MOVES), snapshot_of(rows, SNAPSHOT.partitions.to_pylist()))
    assert (
        "### Cordoned\n\n- Broker 2 is cordoned (cordoned.log.dirs): it keeps its replicas and receives none.\n"
        "- Broker 4 is cordoned (cordoned.log.dirs)"
    ) in page
    assert "Cordoned" not in plan_summary(plan_with(DIGEST, PROOF, MOVES), SNAPSHOT)


#: What the row of a move in each state says.
DETAILS = {
    MoveState.COMPLETED: "complete",
    MoveState.SATISFIED: "satisfied",
    MoveState.DROPPED: "t-2 was not moved: its topic was deleted.",
    MoveState.FAILED: "",
    MoveState.HELD: "",
}


def test_a_plan_without_moves_has_no_counts_that_are_all_0() -> None:
    page = plan_summary(plan_with(DIGEST, {**PROOF, "replicas_moved": 0}, []), SNAPSHOT)
    assert ("| replicas moved | none: there is nothing to move |" in page, "partitions touched" in page) == (
        True,
        False,
    )
    outcome = summarize_outcome([])
    assert (outcome.sentence, outcome.account("repaired")) == (("there was nothing to move."),) * 2


def test_what_was_planned_and_not_moved_is_listed_with_its_reason() -> None:
    states = [*DETAILS, MoveState.COMPLETED, MoveState.SATISFIED, MoveState.COMPLETED]
    rows = [MoveRow(move(f"t-{n}", "123", "453"), state, DETAILS[state]) for n, state in enumerate(states)]
    left = [("t-2", "its topic was deleted."), ("t-3", "failed"), ("t-4", "held")]
    assert summarize_outcome(rows) == PlanOutcome(3, 2, left, replicas_placed=6)
    assert summarize_outcome([]) == PlanOutcome(0, 0, [])


NONE = "0 partitions were moved, 1 no longer needed to move."
KEPT = "not moved as approved, and no other moves were made"


@pytest.mark.parametrize(
    ("outcome", "sentence"),
    [
        (PlanOutcome(3, 0, []), "3 partitions were moved."),
        (PlanOutcome(3, 2, []), "3 partitions were moved, 2 no longer needed to move."),
        (
            PlanOutcome(3, 0, [("t-0", "its topic was deleted...")]),
            f"3 partitions were moved. 1 partition was {KEPT}: t-0, its topic was deleted.",
        ),
        (
            PlanOutcome(0, 1, [("t-0", "why"), ("t-1", "other")]),
            f"{NONE} 2 partitions were {KEPT}: t-0, why. 1 more move is held.",
        ),
    ],
)
def test_the_sentence_names_the_first_and_counts_the_others(outcome: PlanOutcome, sentence: str) -> None:
    assert outcome.sentence == sentence


@pytest.mark.parametrize(
    ("outcome", "left", "sentence"),
    [
        (PlanOutcome(3, 2, []), 0, "of 5 partitions due, 3 were repaired and 2 no longer needed to move."),
        (PlanOutcome(0, 1, []), 0, "of 1 partition due, 1 no longer needed to move."),
        (PlanOutcome(0, 0, []), 0, "there was nothing to move."),
        (PlanOutcome(0, 0, []), 2, "of 2 partitions due, 0 were repaired and 2 were left by the plan."),
        (PlanOutcome(0, 0, [("t-0", "why.")]), 0, "of 1 partition due, 0 were repaired and 1 was not moved: t-0, why."),
        (
            PlanOutcome(1, 1, [("t-0", "why"), ("t-1", ""), ("t-2", "")]),
            4,
            (
                "of 9 partitions due, 1 was repaired, 1 no longer needed to move, 4 were left by the plan and 3 were "
                "not moved: t-0, why; and 2 more."
            ),
        ),
    ],
)
def test_what_was_due_is_counted_once_by_what_became_of_it(outcome: PlanOutcome, left: int, sentence: str) -> None:
    assert outcome.account("repaired", left=left) == sentence


OUT_OF_SYNC = look(
    "1234",
    part("u-0", "321", isr="2"),
    part("t-10", "1234", adding="4"),
    part("t-2", "1234", isr="123", adding="4"),
    part("t-1", "123"),
)
TEN, TWO, U = (
    OutOfSyncPartition("t", 10, (), True),
    OutOfSyncPartition("t", 2, (4,), True),
    OutOfSyncPartition("u", 0, (3, 1), False),
)


def test_partitions_that_miss_a_replica_or_move_are_named_in_order_all_or_those_that_are_asked_for() -> None:
    assert find_out_of_sync(OUT_OF_SYNC) == (TWO, TEN, U)
    asked = [TopicPartition("u", 0), TopicPartition("gone", 0), TopicPartition("t", 1)]
    assert find_out_of_sync(OUT_OF_SYNC, asked) == (U,)
    assert find_out_of_sync(OUT_OF_SYNC, []) == ()


def test_each_says_what_it_waits_for() -> None:
    assert [each.sentence for each in (TWO, TEN, U)] == [
        "t-2 waits for broker 4 to be in sync and is being moved.",
        "t-10 is being moved.",
        "u-0 waits for brokers 3 and 1 to be in sync.",
    ]
