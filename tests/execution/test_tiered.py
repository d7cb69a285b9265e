"""Topics with remote storage: what a new replica copies, and who is not made leader (KIP-405, KIP-1023)."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.state import LogStart
from kafka_steward.execution.effects import elect_preferred_leaders
from kafka_steward.execution.plans.snapshot import take_snapshot
from kafka_steward.execution.tiered import BEGINS_LATE, REMOTE_STORAGE, read_copied_shares
from kafka_steward.planning.files.formats import read_snapshot
from tests.simulated_plan import WHO, memory_journal
from tests.simulator import Simulator

NAME = TopicPartition("t", 0)


@pytest.fixture
def simulator() -> Simulator:
    """Topic `t` has remote storage, with 900 of its 1000 offsets there, and 500 on the disks; `u` has none."""
    made = Simulator.of("1a 2b 3c 4a", "t: 123", "u: 123", size=500)
    made.topic_settings["t"][REMOTE_STORAGE] = "true"
    for broker in (1, 2, 3):
        made.log_starts_of[NAME, broker] = LogStart(local=500, tiered=899, end=1000)
        made.log_starts_of[TopicPartition("u", 0), broker] = LogStart(local=0, tiered=-1, end=1000)
    return made


def set_on(simulator: Simulator, *brokers: int) -> None:
    for broker in brokers:
        simulator.broker_settings[broker][BEGINS_LATE] = "true"


def planned(simulator: Simulator, folder: Path) -> dict[str, int]:
    take_snapshot(simulator, str(folder / "snapshot"), failed=(), now_ms=1)
    return {row["topic"]: row["bytes"] for row in read_snapshot(str(folder / "snapshot")).partitions.to_pylist()}


def test_the_local_bytes_are_copied_unless_every_broker_begins_after_what_is_tiered(
    simulator: Simulator, tmp_path: Path
) -> None:
    set_on(simulator, 1, 2, 3)
    assert planned(simulator, tmp_path / "some") == {"t": 500, "u": 500}
    set_on(simulator, 4)
    assert planned(simulator, tmp_path / "all") == {"t": 100, "u": 500}


@pytest.mark.parametrize(
    ("start", "share"),
    [
        (LogStart(0, -1, 1000), 1.0),
        (LogStart(500, 899, 1000), 0.2),
        (LogStart(500, 999, 1000), 0.0),
        (LogStart(500, 100, 1000), 1.0),
        (LogStart(0, -1, 0), 1.0),
    ],
    ids=["nothing tiered", "most", "all", "less than is deleted here", "empty"],
)
def test_the_share_is_what_is_local_and_not_tiered(start: LogStart, share: float) -> None:
    assert start.share_after_tiered == pytest.approx(share)


def test_without_the_right_to_read_settings_all_is_planned_for(simulator: Simulator) -> None:
    set_on(simulator, 1, 2, 3, 4)
    assert read_copied_shares(simulator, simulator.snapshot()) == {NAME: 0.2}
    simulator.reachable = False
    snapshot = Simulator.of("1a 2b 3c 4a", "t: 123").snapshot()
    assert read_copied_shares(simulator, snapshot) == {}


def test_a_replica_with_a_shorter_local_log_than_the_leaders_is_not_made_leader(simulator: Simulator) -> None:
    set_on(simulator, 1, 2, 3, 4)
    simulator.topics[NAME].replicas = (3, 1, 2)
    assert simulator.topics[NAME].leader == 1
    simulator.log_starts_of[NAME, 3] = LogStart(local=900, tiered=899, end=1000)
    found = elect_preferred_leaders(simulator, memory_journal(simulator), who=WHO)
    assert found.elected == ()
    assert found.refused[NAME] == (
        "broker 3 has its log from offset 900 on, and the leader from 500 on: it would read the rest from remote "
        "storage (KIP-1023)"
    )
    simulator.log_starts_of[NAME, 3] = LogStart(local=500, tiered=899, end=1000)
    assert elect_preferred_leaders(simulator, memory_journal(simulator), who=WHO).elected == (NAME,)


def test_partitions_that_are_to_change_leaders_between_each_other_are_each_looked_at() -> None:
    simulator = Simulator.of("0a 1b 2c", "t: 01 12 20", size=500)
    simulator.topic_settings["t"][REMOTE_STORAGE] = "true"
    set_on(simulator, 0, 1, 2)
    for name, partition in simulator.topics.items():
        partition.replicas = tuple(reversed(partition.replicas))
        for broker in partition.replicas:
            begins = 900 if broker == partition.replicas[0] else 500
            simulator.log_starts_of[name, broker] = LogStart(local=begins, tiered=899, end=1000)
    found = elect_preferred_leaders(simulator, memory_journal(simulator), who=WHO)
    assert (found.elected, set(found.refused)) == ((), set(simulator.topics))
