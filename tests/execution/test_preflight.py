"""Every reason why a move does not begin: when it is given, in which words, and what becomes of the move."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kafka_steward.assignment import Move, TopicPartition
from kafka_steward.execution.moves import Event, Held, HoldReason
from kafka_steward.execution.preflight import CHECKS, LogDirRoom, PreflightInputs, preflight
from tests.simulated_plan import move
from tests.simulator import Simulator

MOVE = move("t-0", "123", "423", size=100, topic_id="id1")


def outlook(*dead: int, foreign: str = "", lost: int = 0, hidden: str = "", **more: Any) -> PreflightInputs:
    """What preflight sees of a cluster in which `lost` names a broker whose disk with t-0 has failed."""
    simulator = Simulator.of("1a 2b 3c 4a 5b", "t: 123 231")
    if lost:
        simulator.fail_disk(lost, TopicPartition("t", 0))
    for broker in dead:
        simulator.kill(broker)
    if foreign:
        simulator.alter({TopicPartition("t", 0): tuple(map(int, foreign))})
    snapshot = replace(simulator.snapshot(), hidden=frozenset(hidden))
    return PreflightInputs(snapshot, **{"sizes": {TopicPartition("t", 0): 100}, **more})


def free(*logs_and_bytes: tuple[int, int]) -> tuple[LogDirRoom, ...]:
    """Return a broker's log directories, /1 and so on, with their logs and the bytes that they may take."""
    several = len(logs_and_bytes) > 1
    return tuple(LogDirRoom(f"/{n}" if several else "", *each) for n, each in enumerate(logs_and_bytes, 1))


CASES: dict[HoldReason, tuple[Move, PreflightInputs, str]] = {
    HoldReason.PARTITION_GONE: (move("t-7", "123", "423"), outlook(), "t-7 was not moved: it no longer exists."),
    HoldReason.TOPIC_HIDDEN: (
        move("u-0", "123", "423"),
        outlook(hidden="u"),
        (
            "u-0 was not moved: Kafka does not let us describe its topic, so that it may or may not exist; grant our "
            "principal DESCRIBE on it, as docs/permissions.md says."
        ),
    ),
    HoldReason.RECREATED: (
        replace(MOVE, topic_id="id0"),
        outlook(),
        "t-0 was not moved: its topic was deleted and re-created since the plan was made; make a new plan.",
    ),
    HoldReason.EXTERNAL_REASSIGNMENT: (
        MOVE,
        outlook(foreign="523"),
        "t-0 was not moved: an external reassignment is moving it to [5, 2, 3]; it is retried when that has ended.",
    ),
    HoldReason.ALREADY_THERE: (move("t-0", "321", "123"), outlook(), "t-0 already has the replicas [1, 2, 3]."),
    HoldReason.SATISFIED: (
        MOVE,
        outlook(auto_generated=True),
        "t-0 no longer needs to move: all its brokers, 1, 2, 3, are live again.",
    ),
    HoldReason.CHANGED_ELSEWHERE: (
        move("t-0", "132", "432"),
        outlook(),
        "t-0 was not moved: someone changed its replicas to [1, 2, 3] since it was planned; make a new plan.",
    ),
    HoldReason.DUPLICATE_REPLICA: (
        move("t-0", "123", "422"),
        outlook(),
        "t-0 was not moved: its target [4, 2, 2] is empty or names a broker twice; correct the plan.",
    ),
    HoldReason.CLUSTER_DISABLED: (
        MOVE,
        outlook(disabled="by ada since noon"),
        (
            "t-0 was not moved: reassignments are disabled for this cluster by ada since noon; to enable them, "
            "delete /admin/reassign_cancel."
        ),
    ),
    HoldReason.NOT_APPROVED: (
        move("t-0", "123", "423"),
        outlook(unapproved="3f"),
        "t-0 was not moved: plan 3f is not approved, or its approval was deleted; approve it in its run, or cancel it.",
    ),
    HoldReason.TARGET_RESTARTING: (
        MOVE,
        outlook(3, bouncing=frozenset({3})),
        (
            "t-0 was not moved: broker 3 announced a restart and has not returned; it is retried; to end the "
            "announcement, delete /admin/rolling_bounce/3."
        ),
    ),
    HoldReason.TARGET_DEAD: (
        MOVE,
        outlook(4),
        "t-0 was not moved: target broker 4 is not live; it is retried.",
    ),
    HoldReason.KEPT_REPLICA_DEAD: (
        MOVE,
        outlook(3),
        (
            "t-0 was not moved: broker 3, whose replica the move keeps, is not live, so the move would never "
            "complete; it is retried."
        ),
    ),
    HoldReason.TARGET_CORDONED: (
        MOVE,
        outlook(cordoned=frozenset({4})),
        (
            "t-0 was not moved: target broker 4 is cordoned; remove its directories from cordoned.log.dirs, or "
            "cancel and make a new plan."
        ),
    ),
    HoldReason.KEPT_REPLICA_OFFLINE: (
        MOVE,
        outlook(lost=2),
        (
            "t-0 was not moved: its replica on broker 2, which the move keeps, is in a failed log directory, so the "
            "move would never complete; restore the disk, or let a heal move the replica (heal_failed_disks)."
        ),
    ),
    HoldReason.NO_LEADER: (
        move("t-0", "123", "45"),
        outlook(1, 2, 3),
        "t-0 was not moved: it has no leader to copy from; bring back one of the brokers 1, 2, 3.",
    ),
    HoldReason.OUT_OF_SYNC: (
        move("t-0", "123", "132"),
        outlook(3, unclean=frozenset("t")),
        (
            "t-0 was not moved: its replica on broker 3 is out of sync, and would lead before one that has more if the "
            "replicas in sync were lost (unclean.leader.election.enable); it is retried, and starts once that replica "
            "is in sync."
        ),
    ),
    HoldReason.BELOW_MIN_ISR: (
        move("t-0", "123", "12"),
        outlook(min_isr={"t": 3}),
        (
            "t-0 was not moved: its target has fewer replicas than min.insync.replicas, 3; lower that setting or plan "
            "more replicas."
        ),
    ),
    HoldReason.DISK_UNKNOWN: (
        MOVE,
        outlook(silent=frozenset({4})),
        ("t-0 was not moved: target broker 4 does not report the free space of its log directories; it is retried."),
    ),
    HoldReason.SIZE_UNKNOWN: (
        MOVE,
        outlook(rooms={4: free((0, 1_000_000))}, sizes={}),
        "t-0 was not moved: broker 1, its leader, does not report its size; it is retried.",
    ),
    HoldReason.DISK_FULL: (
        MOVE,
        outlook(rooms={4: free((0, 99))}),
        (
            "t-0 was not moved: it would leave broker 4 less free disk space than min_free requires; free some, or "
            "lower min_free."
        ),
    ),
    HoldReason.UNDER_MIN_ISR_ELSEWHERE: (
        MOVE,
        outlook(under_min_isr_elsewhere=[TopicPartition("u", 3)]),
        (
            "t-0 was not moved: u-3, outside this plan, has fewer replicas in sync than min.insync.replicas; it is "
            "retried."
        ),
    ),
}


@pytest.mark.parametrize("reason", CASES, ids=lambda reason: reason.value)
def test_each_reason_and_its_sentence(reason: HoldReason) -> None:
    asked, seen, sentence = CASES[reason]
    held = preflight(asked, seen)
    assert held == Held(asked.topic, asked.partition, reason, sentence)


NO_PARTITION = {HoldReason.PARTITION_GONE, HoldReason.TOPIC_HIDDEN}


def test_every_reason_has_a_case_a_sentence_and_a_check() -> None:
    not_by_looking = {HoldReason.KAFKA_REFUSED, HoldReason.BROKER_UNREGISTERED}
    assert set(CASES) | not_by_looking == set(HoldReason)
    assert all(reason.message for reason in HoldReason)
    assert [reason for reason, _ in CHECKS] == [reason for reason in CASES if reason not in NO_PARTITION]


def test_what_becomes_of_the_move() -> None:
    by_event = {event: [reason for reason in HoldReason if reason.event is event] for event in Event}
    assert by_event[Event.SATISFY] == [HoldReason.SATISFIED, HoldReason.ALREADY_THERE]
    assert by_event[Event.DROP] == [
        HoldReason.PARTITION_GONE,
        HoldReason.RECREATED,
        HoldReason.CHANGED_ELSEWHERE,
        HoldReason.DUPLICATE_REPLICA,
        HoldReason.BROKER_UNREGISTERED,
    ]


WIDE = move("t-0", "123", "451")


@pytest.mark.parametrize(
    ("asked", "seen", "reason", "found"),
    [
        (move("t-0", "123", ""), outlook(), HoldReason.DUPLICATE_REPLICA, []),
        (MOVE, outlook(bouncing=frozenset({3, 2, 5})), HoldReason.TARGET_RESTARTING, 2),
        (WIDE, outlook(5, 4), HoldReason.TARGET_DEAD, 4),
        (move("t-0", "123", "124"), outlook(2, 1), HoldReason.KEPT_REPLICA_DEAD, 1),
        (move("t-0", "123", "12"), outlook(2), HoldReason.KEPT_REPLICA_DEAD, 2),
        (move("t-0", "123", "12"), outlook(min_isr={"t": 4}), HoldReason.BELOW_MIN_ISR, 4),
        (WIDE, outlook(rooms={5: free((0, 99)), 4: free((0, 0))}), HoldReason.DISK_FULL, 4),
        (WIDE, outlook(rooms={5: free((0, 99)), 4: free((0, 100))}), HoldReason.DISK_FULL, 5),
        (
            MOVE,
            outlook(under_min_isr_elsewhere=[TopicPartition("v", 1), TopicPartition("u", 3)]),
            HoldReason.UNDER_MIN_ISR_ELSEWHERE,
            "v-1",
        ),
        (
            MOVE,
            outlook(rooms={4: free((3, 10_000), (2, 99))}),
            HoldReason.DISK_FULL,
            "4, in the log directory /2 where Kafka would put it,",
        ),
        (
            MOVE,
            outlook(rooms={4: free((2, 10_000), (2, 99))}),
            HoldReason.DISK_FULL,
            "4, in the log directory /2 where Kafka would put it,",
        ),
        (replace(MOVE, size_bytes=1), outlook(rooms={4: free((0, 99))}), HoldReason.DISK_FULL, 4),
        (WIDE, outlook(cordoned=frozenset({5, 1})), HoldReason.TARGET_CORDONED, 5),
    ],
)
def test_the_first_that_stands_in_the_way_is_named(
    asked: Move, seen: PreflightInputs, reason: HoldReason, found: object
) -> None:
    assert preflight(asked, seen) == Held.of(TopicPartition("t", 0), reason, found)


@pytest.mark.parametrize(
    ("asked", "seen"),
    [
        (MOVE, outlook()),
        (MOVE, outlook(1, auto_generated=True)),
        (MOVE, outlook(1, bouncing=frozenset({1}))),
        (MOVE, outlook(rooms={4: free((0, 100))})),
        (MOVE, outlook(rooms={4: free((3, 0), (2, 100))})),
        (move("t-0", "123", "231"), outlook(3, under_min_isr_elsewhere=[TopicPartition("u", 0)])),
        (move("t-0", "123", "12"), outlook(3, min_isr={"t": 2})),
        (move("t-0", "123", "1234"), outlook(min_isr={"t": 5})),
        (move("t-0", "123", "12"), outlook(min_isr={"u": 3})),
        (move("t-0", "123", "231"), outlook(1, 2, 3, bouncing=frozenset({2}))),
        (replace(MOVE, size_bytes=None), outlook(rooms={4: free((0, 100))})),
        (MOVE, outlook(sizes={})),
        (move("t-0", "123", "132"), outlook(silent=frozenset({1}), cordoned=frozenset({1}), lost=2)),
        (MOVE, outlook(rooms={5: free((0, 0))}, sizes={})),
        (replace(MOVE, topic_id=None), outlook()),
    ],
    ids=[
        "plain",
        "its broker failed",
        "leaves a bouncer",
        "just fits",
        "fits where Kafka puts it",
        "reorder",
        "drops a dead one",
        "grows",
        "min ISR unknown",
        "reorder without anyone",
        "size unknown when it was planned",
        "neither size nor room known",
        "reorder on brokers that get nothing",
        "room unknown",
        "topic id unknown",
    ],
)
def test_what_may_begin(asked: Move, seen: PreflightInputs) -> None:
    assert preflight(asked, seen) is None


@pytest.mark.parametrize(
    ("before", "after", "min_isr", "held"),
    [
        ("1", "2", 2, False),
        ("12", "34", 3, False),
        ("12", "21", 3, False),
        ("1", "12", 3, False),
        ("123", "12", 2, False),
        ("123", "1", 2, True),
        ("123", "12", 4, True),
    ],
)
def test_a_partition_may_move_that_becomes_no_worse(before: str, after: str, min_isr: int, *, held: bool) -> None:
    simulator = Simulator.of("1a 2b 3c 4a", f"t: {before}")
    inputs = PreflightInputs(simulator.snapshot(), min_isr={"t": min_isr})
    found = preflight(move("t-0", before, after), inputs)
    assert (found is not None and found.code is HoldReason.BELOW_MIN_ISR) is held
