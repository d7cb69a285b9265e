"""Catch-up, rescue, throttles needed, wholeness, election, endings, and snapshots: the small pure functions."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.state import BrokerLogDirs
from kafka_steward.execution.effects import elect_preferred_leaders, find_not_led_by_preferred
from kafka_steward.execution.move_recovery import dead_target_brokers, find_unfinishable_moves
from kafka_steward.execution.moves import bytes_to_copy
from kafka_steward.execution.plan_report import find_out_of_sync
from kafka_steward.execution.progress import (
    TransferRate,
    arrived_bytes,
    count_progress_bytes,
    eta_s,
    find_stalled,
)
from kafka_steward.execution.snapshot import take_snapshot
from kafka_steward.execution.throttle_rates import NO_DEMAND, ThrottleSide, throttle_demand
from kafka_steward.journal.audit import Outcome
from kafka_steward.journal.records import MoveRow, MoveState, Phase
from kafka_steward.planning.files.formats import read_snapshot
from tests.simulated_plan import WHO, memory_journal, move
from tests.simulator import Simulator

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_bytes_count_once_for_each_copy_and_never_more_than_the_move() -> None:
    wide = move("t-0", "123", "453", size=100)
    assert bytes_to_copy(wide) == 200
    assert arrived_bytes([wide], {4: BrokerLogDirs({T0: 30}), 5: BrokerLogDirs({T0: 20})}) == {T0: 50}
    assert arrived_bytes([wide], {4: BrokerLogDirs({T0: 500})}) == {T0: 500}
    assert count_progress_bytes([wide], {T0: 500}) == 200
    assert arrived_bytes([wide], {}) == {T0: 0}


def test_the_rate_is_smoothed_and_the_eta_follows() -> None:
    track = TransferRate(0, 0).update(1000, 100, {T0: 100})
    assert track.bytes_per_s == 100
    assert track.update(2000, 300, {T0: 300}).bytes_per_s == pytest.approx(0.3 * 200 + 0.7 * 100)
    assert track.update(1000, 900, {T0: 900}).bytes_per_s == 100, "no time has passed"
    assert (eta_s(500, 100.0), eta_s(0, None), eta_s(500, None), eta_s(500, 0.0)) == (5.0, 0.0, None, None)


def test_after_half_a_minute_without_a_byte_no_time_left_is_stated() -> None:
    track = TransferRate(0, 0).update(1000, 100, {T0: 100})
    for second in range(2, 31):
        track = track.update(second * 1000, 100, {T0: 100})
        assert track.steady_bytes_per_s is not None
    assert track.update(31_000, 100, {T0: 100}).steady_bytes_per_s is None
    again = track.update(31_000, 100, {T0: 100}).update(32_000, 200, {T0: 200})
    assert again.steady_bytes_per_s == again.bytes_per_s != 0


def test_a_rate_fades_to_zero_and_a_time_left_of_more_than_a_year_is_none() -> None:
    track = TransferRate(0, 0).update(1000, 10**9, {T0: 10**9})
    for second in range(2, 2002):
        track = track.update(second * 1000, 10**9, {T0: 10**9})
    assert track.bytes_per_s == 0
    assert (eta_s(10**12, 1.0), eta_s(31_536_000, 1.0)) == (None, 31_536_000.0)


def test_a_stall_is_no_growth_for_so_long() -> None:
    track = (
        TransferRate(0, 0)
        .update(0, 0, {T0: 0, T1: 0})
        .update(5000, 10, {T0: 10, T1: 0})
        .update(12000, 10, {T0: 10, T1: 0})
    )
    assert find_stalled(track, [T0, T1], after_s=10) == (T1,)
    assert find_stalled(track, [T0, T1], after_s=7) == (T0, T1)
    assert find_stalled(track, [T0], after_s=8) == ()


def test_only_what_can_no_longer_end_is_rescued() -> None:
    simulator = Simulator.of("1a 2b 3c 4a 5b", "t: 123 231", size=1000)
    rows = [
        MoveRow(move("t-0", "123", "423"), MoveState.SUBMITTED, phase=Phase.ACCEPTED),
        MoveRow(move("t-1", "231", "251"), MoveState.SUBMITTED, phase=Phase.ACCEPTED),
    ]
    simulator.alter({row.topic_partition: row.move.after for row in rows})
    simulator.kill(4)
    snapshot = simulator.snapshot()
    assert find_unfinishable_moves(rows, snapshot, frozenset()) == rows[:1]
    assert dead_target_brokers(rows[0], snapshot) == {4}
    assert find_unfinishable_moves(rows, snapshot, frozenset({4})) == []
    simulator.kill(1)
    assert find_unfinishable_moves(rows, simulator.snapshot(), frozenset()) == rows, "a kept one, and not a removed one"


def test_throttles_are_needed_by_what_copies_and_rates_by_what_will() -> None:
    need = throttle_demand([move("t-0", "123", "423")], [move("t-1", "231", "531"), move("t-2", "312", "123")])
    assert need.entries == {("t", ThrottleSide.FOLLOWER): {"0:4"}}
    assert need.brokers == {(4, ThrottleSide.FOLLOWER), (5, ThrottleSide.FOLLOWER)}
    assert throttle_demand([move("t-0", "123", "231")]) == NO_DEMAND
    both = throttle_demand([move("t-0", "123", "423")], leaders=True)
    assert both.entries["t", ThrottleSide.LEADER] == {"0:1", "0:2", "0:3"}


def test_whole_is_every_replica_in_sync_and_nothing_moving() -> None:
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123 231", size=1000)
    assert find_out_of_sync(simulator.snapshot()) == ()
    simulator.kill(1)
    simulator.alter({T1: (2, 3, 4)})
    told = find_out_of_sync(simulator.snapshot())
    assert [each.sentence for each in told] == [
        "t-0 waits for broker 1 to be in sync.",
        "t-1 waits for brokers 4 and 1 to be in sync and is being moved.",
    ]
    assert find_out_of_sync(simulator.snapshot(), [T0, TopicPartition("gone", 0)]) == told[:1]


def test_leaders_are_elected_where_the_preferred_one_can_lead() -> None:
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123 231 312")
    journal = memory_journal(simulator)
    simulator.kill(1)
    assert find_not_led_by_preferred(simulator.snapshot()) == []
    simulator.restart(1)
    simulator.tick()
    assert find_not_led_by_preferred(simulator.snapshot()) == [T0]
    elected = elect_preferred_leaders(simulator, journal, who=WHO)
    assert (elected.elected, elected.sentence) == ((T0,), "1 preferred leaders elected.")
    assert simulator.topics[T0].leader == 1
    row = journal.audit.rows()[0]
    assert (row.entry.action.value, row.entry.before, row.entry.after, row.outcome) == ("elect", 2, 1, Outcome.DONE)
    assert elect_preferred_leaders(simulator, journal, who=WHO).elected == ()


def test_a_refused_election_is_told_in_kafkas_words(monkeypatch: pytest.MonkeyPatch) -> None:
    simulator = Simulator.of("1a 2b 3c", "t: 123")
    simulator.topics[T0].leader = 2
    seen = simulator.snapshot()
    simulator.kill(1)
    monkeypatch.setattr(simulator, "snapshot", lambda *_: seen)
    elected = elect_preferred_leaders(simulator, memory_journal(simulator), who=WHO, partitions=[T0])
    assert elected.elected == ()
    assert "The preferred leader was not available." in elected.sentence


def test_a_snapshot_tells_states_sizes_and_what_moves(tmp_path: Path) -> None:
    simulator = Simulator.of("1a 2b 3c 4a 5b 6c", "t: 123 234", "u: 35", size=70)
    simulator.topic_settings["t"]["min.insync.replicas"] = "2"
    for broker in (1, 5):
        simulator.kill(broker)
    simulator.alter({T1: (2, 3, 6)})
    digest = take_snapshot(simulator, str(tmp_path / "s"), failed=[1, 4], now_ms=7)
    snapshot = read_snapshot(str(tmp_path / "s"))
    assert (snapshot.digest, snapshot.cluster_id, snapshot.taken_ms) == (digest, "simulated", 7)
    states = {row["broker"]: (row["rack"], row["state"]) for row in snapshot.brokers.to_pylist()}
    assert states == {
        1: ("a", "failed"),
        2: ("b", "live"),
        3: ("c", "live"),
        4: ("a", "live"),  # said to have failed, and back again
        5: ("b", "draining"),  # gone, and not failed yet
        6: ("c", "live"),
    }
    rows = {(row["topic"], row["partition"]): row for row in snapshot.partitions.to_pylist()}
    assert (rows["t", 0]["bytes"], rows["t", 0]["min_isr"], rows["t", 0]["target_rf"]) == (70, 2, 3)
    moving = rows["t", 1]
    assert (moving["adding"], moving["removing"], moving["target_rf"]) == ([6], [4], 3)
    assert (rows["u", 0]["replicas"], rows["u", 0]["isr"], rows["u", 0]["leader"]) == ([3, 5], [3], 3)


def test_a_partition_whose_brokers_are_all_gone_has_no_leader_and_no_size(tmp_path: Path) -> None:
    simulator = Simulator.of("1a 2b 3c", "t: 12")
    simulator.kill(1)
    simulator.kill(2)
    take_snapshot(simulator, str(tmp_path / "s"), failed=[1, 2], now_ms=7)
    row = read_snapshot(str(tmp_path / "s")).partitions.to_pylist()[0]
    assert (row["leader"], row["bytes"], row["all_offline"]) == (-1, None, True)


@pytest.mark.parametrize("failed", [[], [2]])
def test_a_partition_has_no_live_replica_if_all_are_on_dead_brokers_or_failed_disks_whatever_is_to_be_healed(
    tmp_path: Path, failed: list[int]
) -> None:
    simulator = Simulator.of("1a 2b 3c", "t: 12 2 3 23 13", "u: 3")
    simulator.fail_disk(3, TopicPartition("t", 2), TopicPartition("t", 3))
    simulator.kill(2)
    take_snapshot(simulator, str(tmp_path / "s"), failed=failed, now_ms=7)
    rows = read_snapshot(str(tmp_path / "s")).partitions.to_pylist()
    found = {f"{row['topic']}-{row['partition']}" for row in rows if row["all_offline"]}
    assert found == {"t-1", "t-2", "t-3"}
    assert {row["all_offline"] for row in rows} == {None, True}
