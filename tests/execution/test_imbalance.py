"""Brokers that stand out are announced: hot ones after three looks, full volumes at once, both again after a day."""

from __future__ import annotations

import pytest

from kafka_steward.cluster.state import BrokerLogDirs, Directory
from kafka_steward.execution.watch.imbalance import (
    AGAIN_MS,
    DEMOTED,
    FULL,
    IMBALANCED,
    ImbalanceReport,
    ImbalanceWatch,
    find_full_brokers,
    find_imbalanced_brokers,
)
from kafka_steward.journal.records import STANDING_OUT
from kafka_steward.journal.store import Journal
from kafka_steward.settings import Settings
from tests.simulated_plan import simulated
from tests.simulator import Simulator

MB = 1_000_000
HOT = {1: 9.0 * MB, 2: 2.0 * MB, 3: 2.0 * MB}
EVEN = dict.fromkeys(HOT, 4.0 * MB)


def disk(*used: int, total: int | None = 100, error: int = 0) -> BrokerLogDirs:
    several = [Directory(f"/{at}", {}, 0, total, total and total - each, error) for at, each in enumerate(used)]
    return BrokerLogDirs({}, None, None, tuple(several))


@pytest.mark.parametrize(
    ("bytes_in", "above", "found"),
    [
        (HOT, 1.5, (1,)),
        (HOT, 3.0, ()),
        (HOT, 0.0, ()),
        (EVEN, 1.0, ()),
        ({1: 900_000.0, 2: 1.0}, 1.5, ()),
        ({1: 5.0 * MB}, 1.5, ()),
        ({}, 1.5, ()),
    ],
    ids=["hot", "not so hot", "off", "even", "idle", "alone", "unknown"],
)
def test_a_broker_stands_out_that_leads_far_more_than_the_mean(
    bytes_in: dict[int, float], above: float, found: tuple[int, ...]
) -> None:
    assert find_imbalanced_brokers(bytes_in, above) == found


def test_a_broker_is_full_by_any_volume_that_takes_replicas() -> None:
    disks = {1: disk(10, 86), 2: disk(85), 3: disk(99, error=56), 4: disk(99, total=None), 5: disk(0, total=0)}
    assert find_full_brokers(disks, 0.85) == (1,)
    assert find_full_brokers(disks, 0.1) == (1, 2)
    assert find_full_brokers(disks, 0.0) == ()


class Looking:
    """A watch that looks at a simulated cluster, for those who listen to both events."""

    def __init__(self) -> None:
        self.simulator: Simulator
        self.journal: Journal
        self.simulator, self.journal = simulated("1a 2b 3c", "t: 123")
        self.watch, self.listened = ImbalanceWatch(), frozenset({DEMOTED, IMBALANCED, FULL})
        self.demoted: dict[int, int] = {}

    def look(self, bytes_in: dict[int, float], *used: int) -> ImbalanceReport:
        disks = {broker: disk(each) for broker, each in enumerate(used, 1)}
        return self.watch.look(self.journal, bytes_in, disks, Settings(), demoted=self.demoted, listened=self.listened)


def test_a_hot_broker_is_announced_at_the_third_look_and_again_after_a_day() -> None:
    looking = Looking()
    assert [looking.look(HOT).due for _ in range(4)] == [{}, {}, {IMBALANCED: (1,)}, {}]
    sentence = "Broker 1 leads more than 1.5 times the mean of the bytes that producers bring."
    assert looking.look(HOT).sentence == sentence
    looking.simulator.now_ms += AGAIN_MS
    assert looking.look(HOT).due == {IMBALANCED: (1,)}
    assert looking.look(EVEN).sentence == "No broker stands out."
    assert looking.journal.rows(STANDING_OUT).all() == []
    assert [looking.look(HOT).due for _ in range(3)] == [{}, {}, {IMBALANCED: (1,)}]


def test_a_demoted_broker_that_is_to_lead_is_announced_at_once_and_after_a_day() -> None:
    looking = Looking()
    looking.demoted = {1: 0, 2: 3}
    found = looking.look(EVEN)
    assert found.due == {DEMOTED: (2,)}
    assert found.sentence == (
        "Broker 2 is demoted and is the preferred leader of partitions that another broker could lead; demote again."
    )
    assert looking.look(EVEN).due == {}
    looking.simulator.now_ms += AGAIN_MS
    assert looking.look(EVEN).due == {DEMOTED: (2,)}
    looking.demoted = {2: 0}
    assert looking.look(EVEN).sentence == "No broker stands out."


def test_a_full_volume_is_announced_at_once_and_another_one_too() -> None:
    looking = Looking()
    assert looking.look(EVEN, 90, 20, 20).due == {FULL: (1,)}
    found = looking.look(EVEN, 90, 91, 20)
    assert (found.due, found.sentence) == ({FULL: (1, 2)}, "Brokers 1 and 2 have a volume that is used above 85%.")
    assert looking.look(EVEN, 20, 91, 20).due == {}


def test_another_watch_goes_on_and_what_nobody_listens_to_is_kept_for_later() -> None:
    looking = Looking()
    assert looking.look(EVEN, 90).due == {FULL: (1,)}
    looking.watch = ImbalanceWatch()
    assert looking.look(EVEN, 90).due == {}
    alone = Looking()
    alone.listened = frozenset()
    assert alone.look(EVEN, 90).due == {}
    alone.listened = frozenset({FULL})
    assert alone.look(EVEN, 90).due == {FULL: (1,)}
