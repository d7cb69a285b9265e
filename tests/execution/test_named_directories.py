"""Log directories that a reassignment names (KIP-113): what the broker chooses, and what is refused."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.state import BrokerLogDirs
from kafka_steward.errors import PlanError
from kafka_steward.execution.named_directories import check_directories, held_directories
from tests.simulator import Simulator

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Asked(Simulator):
    """A cluster that counts the questions for log directories; every replica is in /disk-1."""

    asked: tuple[tuple[int, ...], ...] = ()

    def log_dirs(self, brokers: Collection[int]) -> dict[int, BrokerLogDirs]:
        self.asked += (tuple(brokers),)
        return super().log_dirs(brokers)


@pytest.fixture
def simulator() -> Asked:
    return Asked(dict(zip((1, 2, 3, 4), "abca", strict=True)), {"t": [(1, 2, 3), (2, 3, 1)]})


def check(simulator: Simulator, named: dict[tuple[TopicPartition, int], str]) -> str:
    return check_directories(simulator, simulator.snapshot(), named)


def test_the_directory_in_which_a_broker_holds_the_replica_asks_for_nothing(simulator: Asked) -> None:
    assert check(simulator, {(T0, 1): "/disk-1", (T1, 3): "/disk-1"}) == ""
    assert simulator.asked == ((1, 3),)


def test_the_directory_of_an_added_replica_is_the_brokers_choice(simulator: Asked) -> None:
    assert check(simulator, {(T0, 4): "/disk-2", (T0, 1): "/disk-1"}) == (
        'The reassignment names a log directory (KIP-113) for t-0 on broker 4; it is taken as "any": the broker '
        "chooses the directory of a replica that it does not hold."
    )
    many = {(TopicPartition("t", number), 4): "/disk-1" for number in range(5)}
    assert "for t-0 on broker 4, t-1 on broker 4, t-2 on broker 4 and 2 more; it is" in check(simulator, many)


def test_brokers_are_asked_only_for_replicas_that_they_hold(simulator: Asked) -> None:
    assert held_directories(simulator, simulator.snapshot(), ()) == {}
    assert held_directories(simulator, simulator.snapshot(), [(T0, 4), (TopicPartition("u", 0), 1)]) == {}
    assert simulator.asked == ()


def test_a_move_between_the_directories_of_a_broker_is_refused(simulator: Asked) -> None:
    with pytest.raises(PlanError) as refused:
        check(simulator, {(T0, 4): "/disk-2", (T0, 1): "/disk-1", (T1, 2): "/disk-2"})
    assert str(refused.value) == (
        'The reassignment is refused: it names the log directory "/disk-2" (KIP-113) for t-1 on broker 2, which has it '
        'in "/disk-1", and Kafka Steward moves nothing between the directories of one broker; write "any", or use '
        "kafka-reassign-partitions."
    )


def test_a_replica_that_is_being_added_or_that_nobody_reports_has_no_other_directory(simulator: Asked) -> None:
    simulator.alter({T0: (1, 2, 4)})
    simulator.mute.add(2)
    simulator.kill(3)
    assert held_directories(simulator, simulator.snapshot(), [(T0, 4), (T1, 2), (T1, 3), (T1, 1)]) == {
        (T1, 1): "/disk-1"
    }
