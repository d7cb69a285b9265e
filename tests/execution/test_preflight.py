"""Every reason why a move does not begin: when, in which words, and by which inputs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kafka_steward.assignment import Move, TopicPartition
from kafka_steward.cluster.state import BrokerLogDirs, Directory
from kafka_steward.errors import KafkaRefused
from kafka_steward.execution.moves import memory
from kafka_steward.execution.moves.memory import KnownVerdicts, Verdicts
from kafka_steward.execution.moves.preflight import (
    CHECKS,
    IncomingReplica,
    LogDirRoom,
    Placement,
    PreflightInputs,
    compute_rooms,
    find_objection,
    find_out_of_sync_elsewhere,
    find_under_min_isr_elsewhere,
    is_satisfied,
    place_replica,
    preflight,
)
from kafka_steward.execution.moves.states import Held
from kafka_steward.execution.moves.states import HoldReason as Reason
from kafka_steward.journal.audit import Action, Outcome
from kafka_steward.journal.records import MoveRow, MoveState
from kafka_steward.settings import Settings
from tests.execution.looks import brokers, look, part
from tests.execution.runs import apply, simulator
from tests.simulated_plan import World, move
from tests.simulator import DISK, Simulator

MOVE = move("t-0", "123", "423", size=100, topic_id="id1")
#: A partition outside the plan that shares broker 4 with MOVE.
NEAR = {TopicPartition("u", 3): frozenset({4})}


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


CASES: dict[Reason, tuple[Move, PreflightInputs]] = {
    Reason.PARTITION_GONE: (move("t-7", "123", "423"), outlook()),
    Reason.TOPIC_HIDDEN: (move("u-0", "123", "423"), outlook(hidden="u")),
    Reason.RECREATED: (replace(MOVE, topic_id="id0"), outlook()),
    Reason.EXTERNAL_REASSIGNMENT: (MOVE, outlook(foreign="523")),
    Reason.ALREADY_THERE: (move("t-0", "321", "123"), outlook()),
    Reason.SATISFIED: (MOVE, outlook(auto_generated=True)),
    Reason.CHANGED_ELSEWHERE: (move("t-0", "132", "432"), outlook()),
    Reason.DUPLICATE_REPLICA: (move("t-0", "123", "422"), outlook()),
    Reason.CLUSTER_DISABLED: (MOVE, outlook(disabled="by ada since noon")),
    Reason.NOT_APPROVED: (move("t-0", "123", "423"), outlook(unapproved="3f")),
    Reason.TARGET_RESTARTING: (MOVE, outlook(3, bouncing={3: 60_000})),
    Reason.TARGET_DEAD: (MOVE, outlook(4)),
    Reason.KEPT_REPLICA_DEAD: (MOVE, outlook(3)),
    Reason.ORIGINAL_CORDONED: (MOVE, outlook(cordoned=frozenset({4}), rolls_back=True)),
    Reason.TARGET_CORDONED: (MOVE, outlook(cordoned=frozenset({4}))),
    Reason.KEPT_REPLICA_OFFLINE: (MOVE, outlook(lost=2)),
    Reason.NO_LEADER: (move("t-0", "123", "45"), outlook(1, 2, 3)),
    Reason.OUT_OF_SYNC: (move("t-0", "123", "132"), outlook(3, unclean=frozenset("t"))),
    Reason.BELOW_MIN_ISR: (move("t-0", "123", "12"), outlook(min_isr={"t": 3})),
    Reason.DISK_UNKNOWN: (MOVE, outlook(silent=frozenset({4}))),
    Reason.SIZE_UNKNOWN: (MOVE, outlook(rooms={4: free((0, 1_000_000))}, sizes={})),
    Reason.DISK_FULL: (MOVE, outlook(rooms={4: free((0, 99))})),
    Reason.UNDER_MIN_ISR_ELSEWHERE: (MOVE, outlook(under_min_isr_elsewhere=NEAR)),
}
#: All but the two that need nothing begin with `t-0 was not moved:`.
SENTENCES = {
    Reason.PARTITION_GONE: "its topic was deleted.",
    Reason.TOPIC_HIDDEN: (
        "Kafka does not let us describe its topic, so that it may or may not exist; grant our principal DESCRIBE on "
        "it, as docs/permissions.md says."
    ),
    Reason.RECREATED: "its topic was deleted and re-created since the plan was made; make a new plan.",
    Reason.EXTERNAL_REASSIGNMENT: (
        "an external reassignment is moving it to [5, 2, 3]; it is retried when that has ended."
    ),
    Reason.ALREADY_THERE: "t-0 already has the replicas [1, 2, 3].",
    Reason.SATISFIED: "t-0 no longer needs to move: all its brokers, 1, 2, 3, are live again.",
    Reason.CHANGED_ELSEWHERE: "someone changed its replicas to [1, 2, 3] since it was planned; make a new plan.",
    Reason.DUPLICATE_REPLICA: "its target [4, 2, 2] is empty or names a broker twice; correct the plan.",
    Reason.CLUSTER_DISABLED: ("reassignments are disabled for this cluster by ada since noon."),
    Reason.NOT_APPROVED: "plan 3f is not approved, or its approval was deleted; approve it in its run, or cancel it.",
    Reason.TARGET_RESTARTING: (
        "broker 3 announced a restart until 1970-01-01 00:01:00 UTC and has not returned; it is retried; to end the "
        "announcement, delete the broker's entry in /admin/rolling_bounce."
    ),
    Reason.TARGET_DEAD: "target broker 4 is not live; it is retried.",
    Reason.KEPT_REPLICA_DEAD: (
        "broker 3, whose replica the move keeps, is not live, so the move would never complete; it is retried."
    ),
    Reason.ORIGINAL_CORDONED: (
        "its original broker 4 is cordoned, so it keeps the replicas that it has; remove the directories of the broker "
        "from cordoned.log.dirs, and run the same command again."
    ),
    Reason.TARGET_CORDONED: (
        "target broker 4 is cordoned; remove its directories from cordoned.log.dirs, or cancel and make a new plan."
    ),
    Reason.KEPT_REPLICA_OFFLINE: (
        "its replica on broker 2, which the move keeps, is in a failed log directory, so the move would never "
        "complete; restore the disk, or let a heal move the replica (heal_failed_disks)."
    ),
    Reason.NO_LEADER: "it has no leader to copy from; bring back its broker 3 with its data.",
    Reason.OUT_OF_SYNC: (
        "its replica on broker 3, which is not live, is out of sync, and would lead before one that has more if "
        "the replicas in sync were lost (unclean.leader.election.enable); it starts once that replica is in sync."
    ),
    Reason.BELOW_MIN_ISR: (
        "its target has fewer replicas than min.insync.replicas, 3; lower that setting or plan more replicas."
    ),
    Reason.DISK_UNKNOWN: (
        "the free space of its target is unknown, since broker 4 did not answer DescribeLogDirs; it is retried."
    ),
    Reason.SIZE_UNKNOWN: (
        "its size is unknown, since broker 1, its leader, answers DescribeLogDirs without it; it is retried."
    ),
    Reason.DISK_FULL: (
        "it would leave broker 4 less free disk space than min_free requires; free some, or lower min_free."
    ),
    Reason.UNDER_MIN_ISR_ELSEWHERE: (
        "u-3, outside this plan, has fewer replicas in sync than min.insync.replicas, on a broker that the move would "
        "load; it starts once u-3 is in sync, or has been out of sync for stuck_after: look for a throttle that "
        "somebody left or restart the broker that lags, or set a shorter stuck_after to overrule this."
    ),
}


@pytest.mark.parametrize("reason", CASES, ids=lambda reason: reason.value)
def test_each_reason_and_its_sentence(reason: Reason) -> None:
    (asked, seen), sentence = CASES[reason], SENTENCES[reason]
    if reason not in (Reason.SATISFIED, Reason.ALREADY_THERE):
        sentence = f"{asked.topic_partition} was not moved: {sentence}"
    assert preflight(asked, seen) == Held(asked.topic, asked.partition, reason, sentence)


NO_PARTITION = {Reason.PARTITION_GONE, Reason.TOPIC_HIDDEN}


def test_every_reason_has_a_case_a_sentence_and_a_check() -> None:
    not_by_looking = {Reason.KAFKA_REFUSED, Reason.BROKER_UNREGISTERED}
    assert set(CASES) | not_by_looking == set(Reason)
    assert all(reason.message for reason in Reason)
    assert [reason for reason, _ in CHECKS] == [reason for reason in CASES if reason not in NO_PARTITION]


WIDE = move("t-0", "123", "451")


@pytest.mark.parametrize(
    ("asked", "seen", "reason", "found"),
    [
        (move("t-0", "123", ""), outlook(), Reason.DUPLICATE_REPLICA, []),
        (WIDE, outlook(bouncing=dict.fromkeys((5, 4))), Reason.TARGET_RESTARTING, "4 announced a restart"),
        (
            MOVE,
            outlook(bouncing={4: None}, unclean=frozenset("t")),
            Reason.TARGET_RESTARTING,
            "4 announced a restart",
        ),
        (
            move("t-0", "124", "524"),
            outlook(auto_generated=True),
            Reason.SATISFIED,
            "its replicas were changed elsewhere to [1, 2, 3], whose brokers are all live",
        ),
        (WIDE, outlook(5, 4), Reason.TARGET_DEAD, 4),
        (move("t-0", "123", "124"), outlook(2, 1), Reason.KEPT_REPLICA_DEAD, 1),
        (move("t-0", "123", "12"), outlook(2), Reason.KEPT_REPLICA_DEAD, 2),
        (move("t-0", "123", "12"), outlook(min_isr={"t": 4}), Reason.BELOW_MIN_ISR, 4),
        (WIDE, outlook(rooms={5: free((0, 99)), 4: free((0, 0))}), Reason.DISK_FULL, 4),
        (WIDE, outlook(rooms={5: free((0, 99)), 4: free((0, 100))}), Reason.DISK_FULL, 5),
        (
            MOVE,
            outlook(under_min_isr_elsewhere={TopicPartition("v", n): frozenset({n, 9}) for n in (3, 1)}),
            Reason.UNDER_MIN_ISR_ELSEWHERE,
            "v-1",
        ),
        (MOVE, outlook(rooms={4: free((3, 98), (2, 99))}), Reason.DISK_FULL, "4, in whichever of its log directories,"),
        (replace(MOVE, size_bytes=1), outlook(rooms={4: free((0, 99))}), Reason.DISK_FULL, 4),
        (WIDE, outlook(cordoned=frozenset({5, 1})), Reason.TARGET_CORDONED, 5),
    ],
)
def test_the_first_obstacle_is_named(asked: Move, seen: PreflightInputs, reason: Reason, found: object) -> None:
    assert preflight(asked, seen) == Held.of(TopicPartition("t", 0), reason, found)


STARTING = {
    "plain": (MOVE, outlook()),
    "its broker failed": (MOVE, outlook(1, auto_generated=True)),
    "leaves a bouncer": (MOVE, outlook(1, bouncing={1: None})),
    "keeps live bouncers": (MOVE, outlook(bouncing={2: None, 3: None})),
    "just fits": (MOVE, outlook(rooms={4: free((0, 100))})),
    "fits where Kafka puts it": (MOVE, outlook(rooms={4: free((3, 0), (2, 100))})),
    "reorder": (
        move("t-0", "123", "231"),
        outlook(3, under_min_isr_elsewhere=NEAR),
    ),
    "strain at others": (MOVE, outlook(under_min_isr_elsewhere={TopicPartition("u", 0): frozenset({2, 3})})),
    "drops a dead one": (move("t-0", "123", "12"), outlook(3, min_isr={"t": 2})),
    "grows": (move("t-0", "123", "1234"), outlook(min_isr={"t": 5})),
    "min ISR unknown": (move("t-0", "123", "12"), outlook(min_isr={"u": 3})),
    "reorder without anyone": (move("t-0", "123", "231"), outlook(1, 2, 3, bouncing={2: None})),
    "size unknown when it was planned": (replace(MOVE, size_bytes=None), outlook(rooms={4: free((0, 100))})),
    "neither size nor room known": (MOVE, outlook(sizes={})),
    "reorder on brokers that get nothing": (
        move("t-0", "123", "132"),
        outlook(silent=frozenset({1}), cordoned=frozenset({1}), lost=2),
    ),
    "room unknown": (MOVE, outlook(rooms={5: free((0, 0))}, sizes={})),
    "topic id unknown": (replace(MOVE, topic_id=None), outlook()),
}


@pytest.mark.parametrize(("asked", "seen"), STARTING.values(), ids=STARTING)
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
    assert (found is not None and found.code is Reason.BELOW_MIN_ISR) is held


@pytest.mark.parametrize(
    ("replicas", "live", "enough"),
    [("123", "123", True), ("1234", "12345", True), ("12", "1234", False), ("123", "234", False)],
    ids=["all back", "more than before", "fewer than before", "one is dead"],
)
def test_a_move_is_satisfied_when_all_replicas_live_and_none_is_missing(replicas: str, live: str, enough: bool) -> None:
    found = is_satisfied(move("t-0", "123", "423"), part("t-0", replicas), frozenset(brokers(live)))
    assert found is enough


def disk(path: str, total: int | None, usable: int | None, **more: Any) -> Directory:
    return Directory(path, total_bytes=total, usable_bytes=usable, **more)


def test_room_is_what_each_directory_has_above_the_share_that_must_stay_free() -> None:
    told = {
        1: BrokerLogDirs({}, directories=(disk("/a", 1000, 400, logs=3),)),
        2: BrokerLogDirs({}, directories=(disk("/a", None, None),)),
        3: BrokerLogDirs({}, directories=(disk("/a", 1000, 150),)),  # all of which must stay free
        4: BrokerLogDirs({}, directories=(disk("/a", 1000, 400), disk("/b", 1000, None))),
        5: BrokerLogDirs({}, directories=(disk("/a", None, 400),)),
        6: BrokerLogDirs(
            {}, directories=(disk("/a", 1000, 400, cordoned=True), disk("/b", 100, 90), disk("/c", 0, 0, error=56))
        ),
        7: BrokerLogDirs({}, directories=(disk("/a", 1000, 400, cordoned=True),)),
    }
    assert compute_rooms(told, min_free=0.15, arriving={}) == {
        1: (LogDirRoom("", 3, 250),),
        3: (LogDirRoom("", 0, 0),),
        6: (LogDirRoom("/b", 0, 75),),
    }


def test_what_is_on_its_way_takes_room_where_it_is_or_where_kafka_will_put_it() -> None:
    here, there = TopicPartition("t", 0), TopicPartition("t", 1)
    first, second = disk("/a", 1000, 900, logs=1, replica_bytes={here: 5}), disk("/b", 1000, 800, logs=0)
    arriving = {3: [IncomingReplica(here, 40), IncomingReplica(there, 70)]}
    rooms = compute_rooms({3: BrokerLogDirs({}, directories=(first, second))}, min_free=0.1, arriving=arriving)
    assert rooms == {3: (LogDirRoom("/a", 1, 760), LogDirRoom("/b", 1, 630))}
    assert place_replica(rooms[3], 630) == Placement((LogDirRoom("/a", 1, 760), LogDirRoom("/b", 2, 0)))
    assert place_replica(rooms[3], 631) == Placement((LogDirRoom("/a", 2, 129), LogDirRoom("/b", 1, 630)), "/a")
    assert place_replica(rooms[3], 761) is None


def test_strained_are_those_outside_the_plan_whose_brokers_all_live() -> None:
    partitions = [part("u-0", "12", isr="2"), part("t-0", "123", isr="2"), part("v-0", "23", isr="2")]
    t, u, v = (TopicPartition(name, 0) for name in "tuv")
    snapshot = look("123", *partitions)
    found = find_under_min_isr_elsewhere(snapshot, [], {"t": 2, "u": 2, "v": 1})
    assert [*found.items()] == [(t, frozenset({1, 2, 3})), (u, frozenset({1, 2}))]
    assert [*find_out_of_sync_elsewhere(snapshot, [])] == [t, u, v]
    assert find_under_min_isr_elsewhere(snapshot, [t], {"t": 2}) == {}
    assert [*find_under_min_isr_elsewhere(look("23", *partitions), [], {"t": 2, "u": 2, "v": 2})] == [v]
    assert [*find_under_min_isr_elsewhere(snapshot, [], {"u": 9})] == [u]
    failed_disk = look("123", replace(partitions[0], offline=frozenset({1})), partitions[1])
    assert [*find_under_min_isr_elsewhere(failed_disk, [], {"t": 2, "u": 2})] == [t]
    led_by_none = look("123", replace(partitions[0], leader=None), partitions[1])
    assert [*find_under_min_isr_elsewhere(led_by_none, [], {"t": 2, "u": 2})] == [t]
    assert find_under_min_isr_elsewhere(look("12", part("u-0", "12")), [], {"u": 9}) == {}, (
        "never more than there are replicas"
    )
    assert find_under_min_isr_elsewhere(look("12", part("u-0", "12", isr="")), [], {}) == {}, "no min ISR is known"


ALL: dict[str, tuple[Move, PreflightInputs]] = {
    "submitted": (MOVE, outlook()),
    **{reason.value: case for reason, case in CASES.items()},
}


@pytest.fixture
def asked_of_preflight(monkeypatch: pytest.MonkeyPatch) -> list[Move]:
    """The moves of which preflight is asked."""
    asked: list[Move] = []

    def counted(given: Move, inputs: PreflightInputs, *, between_stages: bool) -> object:
        asked.append(given)
        return find_objection(given, inputs, between_stages=between_stages)

    monkeypatch.setattr(memory, "find_objection", counted)
    return asked


def shown(given: Move) -> Move:
    """What the checks are shown of a move."""
    return replace(given, partition=0, chunk=0, position=0, purpose="", size_bytes=None)


@pytest.mark.parametrize("before", ALL)
def test_whatever_changes_the_verdict_is_that_of_preflight(before: str) -> None:
    for after, second in ALL.items():
        known = KnownVerdicts()
        for given, inputs in (ALL[before], second):
            row, held = MoveRow(given), preflight(given, inputs)
            expected = Verdicts([], [row], [given]) if held is None else Verdicts([(row, held)], [], [])
            assert known.judge([row], inputs) == expected, after


@pytest.mark.parametrize(
    "case", [case for case in ALL if case not in {Reason.PARTITION_GONE.value, Reason.TOPIC_HIDDEN.value}]
)
def test_nothing_is_checked_again_where_nothing_has_changed(case: str, asked_of_preflight: list[Move]) -> None:
    known, (given, inputs) = KnownVerdicts(), ALL[case]
    first = known.judge([MoveRow(given)], inputs)
    # A later poll: equal objects, less room, and bytes that have arrived.
    room = {broker: free((0, 5_000)) for broker in inputs.rooms}
    if case != Reason.DISK_FULL.value:
        inputs = replace(inputs, rooms=room)
    later = replace(inputs, snapshot=replace(inputs.snapshot, taken_ms=9), left_bytes={given.topic_partition: 3})
    assert known.judge([MoveRow(replace(given))], later) == first
    assert asked_of_preflight == [shown(given)]


def test_a_disk_that_fills_up_and_is_emptied_is_noticed() -> None:
    known, found = KnownVerdicts(), []
    for free_bytes in (100, 99, 100):
        inputs = outlook(rooms={4: free((0, free_bytes))})
        found.append([why.code for _, why in known.judge([MoveRow(MOVE)], inputs).held])
    assert found == [[], [Reason.DISK_FULL], []]


def test_only_the_moves_whose_partition_has_changed_are_checked_again(asked_of_preflight: list[Move]) -> None:
    moves = [MOVE, replace(MOVE, partition=1, before=(2, 3, 1), after=(4, 3, 1))]
    known, rows = KnownVerdicts(), [MoveRow(each) for each in moves]
    known.judge(rows, outlook())
    asked_of_preflight.clear()
    known.judge(rows, outlook(foreign="523"))
    assert asked_of_preflight == [shown(MOVE)]
    asked_of_preflight.clear()
    known.judge(rows, outlook(5, foreign="523"))
    assert asked_of_preflight == [shown(each) for each in moves]


def test_moves_that_are_alike_are_checked_once_and_each_is_named(asked_of_preflight: list[Move]) -> None:
    snapshot = Simulator.of("1a 2b 3c", "t: 123 123").snapshot()
    rows = [MoveRow(replace(MOVE, partition=number)) for number in (0, 1)]
    held = KnownVerdicts().judge(rows, PreflightInputs(snapshot, sizes=dict.fromkeys(snapshot.partitions, 1))).held
    assert asked_of_preflight == [shown(MOVE)]
    assert [(row, why.topic_partition.partition) for row, why in held] == [(rows[0], 0), (rows[1], 1)]
    assert [why.sentence.partition(" ")[0] for _, why in held] == ["t-0", "t-1"]


__all__ = ["simulator"]

T0 = TopicPartition("t", 0)
GROWN = move("t-0", "123", "423", size=100)


def first_step(simulator: Simulator, *moves: Move) -> tuple[World, str]:
    """The sentence of the first move after one step."""
    world = apply(simulator, *moves)
    world.new_runner().step()
    return world, world.rows()[0].detail


@pytest.mark.parametrize("planned", [100, None], ids=["smaller when planned", "size unknown when planned"])
def test_a_partition_that_has_outgrown_the_disk_is_held_until_there_is_room(
    simulator: Simulator, planned: int | None
) -> None:
    simulator.topics[T0].size = simulator.topics[T0].held[1] = DISK
    world, detail = first_step(simulator, replace(GROWN, size_bytes=planned))
    assert detail == Held.of(T0, Reason.DISK_FULL, 4).sentence
    assert simulator.topics[T0].replicas == (1, 2, 3)
    simulator.topics[T0].size = simulator.topics[T0].held[1] = 100
    assert world.run().completed == 1


def test_a_partition_that_has_shrunk_begins(simulator: Simulator) -> None:
    world, _ = first_step(simulator, replace(GROWN, size_bytes=2 * DISK))
    assert world.rows()[0].state is MoveState.SUBMITTED


@pytest.mark.parametrize(
    ("mute", "cordoned", "reason", "broker"),
    [
        ({1}, set(), Reason.SIZE_UNKNOWN, 1),
        ({4}, set(), Reason.DISK_UNKNOWN, 4),
        (set(), {4}, Reason.TARGET_CORDONED, 4),
    ],
    ids=["its leader does not answer", "the receiver does not answer", "the receiver is cordoned"],
)
def test_a_broker_that_does_not_answer_or_is_cordoned_holds_the_move(
    simulator: Simulator, mute: set[int], cordoned: set[int], reason: Reason, broker: int
) -> None:
    """KIP-1066: a cordon is somebody's choice, so it is waited for without a failed attempt."""
    simulator.mute |= mute
    simulator.cordoned |= cordoned
    world, detail = first_step(simulator, GROWN)
    late = f"broker {broker} did not answer DescribeLogDirs within 45 s (log_dirs_timeout_ms)"
    assert detail == Held.of(T0, reason, broker if cordoned else late).sentence
    assert reason.is_operator_choice is bool(cordoned)
    simulator.mute.clear()
    simulator.cordoned.clear()
    assert world.run().completed == 1


def test_a_move_in_flight_takes_room_by_the_size_on_its_leader(simulator: Simulator) -> None:
    """Planned with 100 bytes, the first has by now nearly all that the disk may take; the second has to wait for it."""
    large = int(DISK * 0.8)
    simulator.topics[T0].size = simulator.topics[T0].held[1] = large
    second = move("t-1", "231", "234", size=100, position=1)
    simulator.topics[TopicPartition("t", 1)].size = simulator.topics[TopicPartition("t", 1)].held[2] = int(DISK * 0.1)
    world, _ = first_step(simulator, GROWN, second)
    assert [row.state for row in world.rows()] == [MoveState.SUBMITTED, MoveState.WAITING]
    world.new_runner().step()
    assert world.rows()[1].detail == Held.of(TopicPartition("t", 1), Reason.DISK_FULL, 4).sentence


def test_what_somebody_else_moves_takes_room_too(simulator: Simulator) -> None:
    large = simulator.topics[TopicPartition("t", 1)]
    large.size = large.held[2] = int(DISK * 0.8)
    simulator.topics[T0].size = simulator.topics[T0].held[1] = int(DISK * 0.1)
    simulator.alter({TopicPartition("t", 1): (2, 3, 4)})
    _, detail = first_step(simulator, GROWN)
    assert detail == Held.of(T0, Reason.DISK_FULL, 4).sentence


def test_a_receiver_that_does_not_answer_is_judged_by_its_last_answer_less_what_has_arrived_since() -> None:
    size = 2 * DISK // 5
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123 123 123")
    last = simulator.topics[TopicPartition("t", 2)]
    last.size = last.held[1] = size
    moves = [move(f"t-{number}", "123", "423", position=number, size=size) for number in range(3)]
    world = apply(simulator, *moves, settings=Settings(throttle=0, min_free=0, max_in_per_broker=1, stall_after=9999))
    world.step()
    simulator.mute.add(4)
    for _ in range(9):
        simulator.tick()
        world.step()
    states = world.states()
    assert [states[f"t-{number}"] for number in range(2)] == ["completed"] * 2
    assert world.row("t-2").detail == Held.of(TopicPartition("t", 2), Reason.DISK_FULL, 4).sentence
    simulator.now_ms += 300_000
    world.step()
    assert "since broker 4 did not answer DescribeLogDirs within 45 s" in world.row("t-2").detail


def test_where_kafkas_own_choice_has_no_room_another_log_directory_is_asked_for_before_the_submission(
    simulator: Simulator,
) -> None:
    """KIP-113. A broker that does not take it is not given the replica: it would land where it has no room."""
    simulator.disks[4] = {"/small": 50, "/large": 100_000}
    ask = simulator.name_directories
    refusal = KafkaRefused(57, "no such log directory", "Kafka refused it.")
    simulator.name_directories = lambda wanted: dict.fromkeys(wanted, refusal)  # type: ignore[method-assign]
    world, detail = first_step(simulator, GROWN)
    assert (detail, world.states()) == (Held.of(T0, Reason.KAFKA_REFUSED, refusal.message).sentence, {"t-0": "held"})
    assert not simulator.reassignments()
    simulator.name_directories = ask  # type: ignore[method-assign]
    world.step()
    assert "accepted: into the log directory /large of broker 4 (KIP-113)" in world.row("t-0").detail
    assert world.run().completed == 1
    rows = world.journal.audit.rows(plan=world.digest, action=Action.PLACE)
    assert [(row.entry.broker, row.entry.after, row.outcome) for row in rows] == [
        (4, "/large", Outcome.REFUSED),
        (4, "/large", Outcome.DONE),
    ]
    assert {path for (_, broker), path in simulator.located.items() if broker == 4} == {"/large"}
