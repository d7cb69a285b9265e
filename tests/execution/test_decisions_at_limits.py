"""Decisions at the limits of their conditions: no time, no bytes, equal rates, one live broker, hidden topics."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.state import BrokerLogDirs, Directory
from kafka_steward.execution.concurrency import ConcurrencyLimits, admit_moves
from kafka_steward.execution.failures import FailureDecision, LivenessView, decide_log_dir_failures, log_dir_message
from kafka_steward.execution.move_recovery import dead_target_reason, find_changing_plan
from kafka_steward.execution.observe import ObservedState, observe_moves
from kafka_steward.execution.pending_state import PendingReplica, evaluate_pending
from kafka_steward.execution.pending_state import PendingState as Owed
from kafka_steward.execution.preflight import LogDirRoom, compute_rooms
from kafka_steward.execution.throttle_rates import decide_rate, lease_late_rate
from kafka_steward.journal.records import MoveRow, MoveState, PendingReplicas, Phase, ThrottleLease
from kafka_steward.settings import Settings
from tests.execution.looks import brokers, look, part
from tests.simulated_plan import move

T0 = TopicPartition("t", 0)


# failed log directories


def sight(**lost: int) -> LivenessView:
    """`sight(b2=3)`: broker 2 has lost three replicas with its directory `/disk-2`."""
    found = {int(name[1:]): count for name, count in lost.items()}
    live = frozenset({1, 2, 3})
    return LivenessView(frozenset(), live, live, disks={each: (f"/disk-{each}",) for each in found}, lost=found)


def judged(settings: Settings, *, first_seen_ms: int, now_ms: int, outage: bool = False) -> FailureDecision:
    return decide_log_dir_failures(
        sight(b2=3),
        first_seen_ms={2: first_seen_ms},
        announced_ms={},
        handled=frozenset(),
        outage=outage,
        now_ms=now_ms,
        settings=settings,
    )


def test_without_a_grace_period_replicas_are_healed_at_once() -> None:
    settings = Settings(heal_failed_disks=True, heal_failure_interval=0)
    judgement = judged(settings, first_seen_ms=5_000, now_ms=5_000)
    assert (judgement.due, judgement.announce, judgement.waiting) == ((2,), (2,), {})
    assert log_dir_message(sight(b2=3), judgement, settings, 5_000).endswith("3 replicas, which will be healed.")


def test_a_failure_that_was_never_announced_is_announced_whatever_the_clock_says() -> None:
    settings = Settings(heal_failed_disks=True, heal_failure_interval=0, heal_retry_interval=600)
    assert judged(settings, first_seen_ms=0, now_ms=0).announce == (2,)


def test_in_an_outage_the_end_of_the_grace_period_is_told_only_until_it_is_reached() -> None:
    settings = Settings(heal_failed_disks=True, heal_failure_interval=10)
    told = {}
    for now_ms in (9_000, 10_000):
        judgement = judged(settings, first_seen_ms=0, now_ms=now_ms, outage=True)
        assert judgement.due == ()
        told[now_ms] = log_dir_message(sight(b2=3), judgement, settings, now_ms).partition("3 replicas; ")[2]
    assert told == {
        9_000: "the grace period ends in 1 s.",
        10_000: "this counts as an outage, and nothing is healed until some brokers return.",
    }


def test_each_broker_with_a_failed_directory_has_a_sentence_of_its_own() -> None:
    settings = Settings(heal_failed_disks=False)
    assert log_dir_message(sight(b3=1, b2=3), FailureDecision(), settings, 0) == (
        "Broker 2 is live, but its log directory /disk-2 has failed, with 3 replicas; they are not healed "
        "(heal_failed_disks). "
        "Broker 3 is live, but its log directory /disk-3 has failed, with 1 replicas; they are not healed "
        "(heal_failed_disks)."
    )


# room


def test_a_directory_whose_free_space_must_all_stay_free_has_no_room() -> None:
    full = BrokerLogDirs({}, directories=(Directory("/a", total_bytes=1000, usable_bytes=250),))
    assert compute_rooms({1: full}, min_free=0.25, arriving={}) == {1: (LogDirRoom("", 0, 0),)}


def test_room_that_one_broker_gave_away_changes_none_of_the_others() -> None:
    into = [move("t-0", "123", "423"), move("t-1", "231", "531", position=1), move("t-2", "312", "412", position=2)]
    leaders = {each.topic_partition: each.before[0] for each in into}
    for left, numbers in ((100, [0, 1]), (99, [0])):
        rooms = {4: (LogDirRoom("", 0, 150),), 5: (LogDirRoom("", 0, left),)}
        chosen = admit_moves(into, [], ConcurrencyLimits(9, 9, 9), leaders=leaders, rooms=rooms)
        assert [each.partition for each in chosen] == numbers


# hidden topics


def test_what_is_owed_to_a_topic_that_we_may_not_describe_stays_owed_with_the_remedy() -> None:
    owed = PendingReplicas((1, 2, -1), "id1")
    sentence = "t-0: Kafka does not let us describe its topic; grant our principal DESCRIBE on it."
    assert evaluate_pending(T0, owed, None, age_ms=10**9, hidden=True) == PendingReplica(
        T0, owed, Owed.HIDDEN, sentence
    )


def test_a_submitted_move_of_a_topic_that_we_may_not_describe_is_hidden_and_not_gone() -> None:
    row = MoveRow(move("t-0", "123", "423"), MoveState.SUBMITTED, attempt=1, phase=Phase.ACCEPTED)
    waiting = MoveRow(move("t-1", "123", "423"))
    (finding,) = observe_moves([row, waiting], replace(look("1234"), hidden=frozenset({"t"})))
    assert (finding.row, finding.state, finding.found) == (row, ObservedState.HIDDEN, None)


# rates


def test_a_rate_that_someone_set_and_that_a_plan_then_requests_stays_theirs() -> None:
    known = ThrottleLease(None, "50", {"p": ("50",)})
    assert decide_rate(known, "p", "20", "20") == (ThrottleLease(None, "50", {"p": ("20",)}), "20")


def test_a_rate_that_was_set_late_replaces_none_that_the_plan_requested_since() -> None:
    known = ThrottleLease(None, "20", {"p": ("20",)})
    assert lease_late_rate(known, "p", "50", None) == ThrottleLease(None, "20", {"p": ("20",)}, ("50",))


# dead targets


def test_a_failed_log_directory_is_named_also_when_no_other_broker_is_live() -> None:
    row = MoveRow(move("t-0", "123", "423"), MoveState.SUBMITTED, attempt=1, phase=Phase.ACCEPTED)
    partition = replace(part("t-0", "4231", isr="23", adding="4", removing="1"), offline=frozenset({4}))
    assert dead_target_reason(row, look("4", partition)) == "a log directory of target broker 4 failed"


# other plans


@pytest.mark.parametrize(
    ("state", "attempt", "found", "by_plan"),
    [
        (MoveState.COMPLETED, 1, "456", True),
        (MoveState.SUBMITTED, 1, "456123", True),
        (MoveState.SUBMITTED, 1, "123", False),
        (MoveState.WAITING, 0, "456", False),
        (MoveState.DROPPED, 1, "1234", True),
        (MoveState.DROPPED, 1, "12345", True),
        (MoveState.DROPPED, 1, "1237", False),
        (MoveState.WAITING, 0, "1234", False),
    ],
    ids=[
        "completed",
        "in flight",
        "submitted, and not begun",
        "never submitted",
        "after its first stage",
        "after its second stage",
        "at none of its stages",
        "as after a stage, and never submitted",
    ],
)
def test_a_plan_changed_a_partition_if_it_submitted_a_move_to_where_it_is(
    state: MoveState, attempt: int, found: str, by_plan: bool
) -> None:
    others = [("d1", MoveRow(move("t-0", "123", "456"), state, attempt=attempt, stage=attempt))]
    assert find_changing_plan(brokers(found), others) == ("d1" if by_plan else None)
