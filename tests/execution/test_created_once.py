"""Creations whose answer is lost: Kafka is asked once, and what is there is compared with what was asked (KIP-409)."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.errors import KafkaRefused, KafkaTimeout
from kafka_steward.execution.topics import CreateTopicResult, TopicSpec, add_partitions, create_topic
from kafka_steward.journal.records import PENDING_REPLICAS
from kafka_steward.journal.store import Journal
from tests.simulated_plan import WHO, memory_journal, simulated
from tests.simulator import Simulator

RETENTION = {"retention.ms": "1000"}


class Unsteady:
    """A cluster that breaks the connection after it did what it was asked, or repeats it on the way to its controller.

    With `instead`, something else is there by then.
    """

    def __init__(self, simulator: Simulator, how: str, instead: Any = None) -> None:
        self._simulator, self._how, self._instead = simulator, how, instead
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._simulator, name)

    def create_topic(self, topic: str, *args: Any, **more: Any) -> Any:
        return self._lost(lambda: self._simulator.create_topic(topic, *args, **more), 36)

    def create_partitions(self, topic: str, count: int, assignments: Any = None) -> Any:
        return self._lost(lambda: self._simulator.create_partitions(topic, count, assignments), 37)

    def _lost(self, act: Any, code: int) -> Any:
        self.asked += 1
        if self._instead is None:
            refused = act()
            if refused is not None:
                return refused  # it arrives: only what was done is in doubt
        else:
            self._instead(self._simulator)
        if self._how == "no answer":
            raise KafkaTimeout("Kafka did not confirm a change in time; it may have been applied nevertheless.")
        return KafkaRefused(code, "It already exists.", "Kafka refused: It already exists.")


@pytest.fixture(params=["no answer", "repeated"])
def how(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def two_brokers(mode: str = "zookeeper") -> tuple[Simulator, Journal]:
    simulator, journal = simulated("1a 2b 3c", mode=mode, lost=(3,))
    simulator.unregister(3)
    return simulator, journal


def created(cluster: Any, journal: Journal, **settings: str) -> CreateTopicResult:
    return create_topic(cluster, journal, TopicSpec("t", 2, 3, settings), allowed=True, who=WHO)


def owed(journal: Journal) -> list[str]:
    return [f"{topic}-{n}" for topic in journal.tree.children(PENDING_REPLICAS.parent) for n in _below(journal, topic)]


def _below(journal: Journal, topic: str) -> list[str]:
    return sorted(journal.tree.children(f"{PENDING_REPLICAS.parent}/{topic}"))


@pytest.mark.parametrize("settings", [{}, RETENTION])
@pytest.mark.parametrize(("mode", "asked"), [("zookeeper", 1), ("kraft", 2)])
def test_a_topic_whose_creation_was_not_answered_is_owed_what_it_lacks(
    how: str, settings: dict[str, str], mode: str, asked: int
) -> None:
    simulator, journal = two_brokers(mode)
    cluster = Unsteady(simulator, how)
    told = created(cluster, journal, **settings)
    assert (told.existed, told.pending, cluster.asked) == (False, 2, asked), "KRaft is first left to place them all"
    assert owed(journal) == ["t-0", "t-1"]
    again = create_topic(simulator, journal, TopicSpec("t", 2, 3, settings), allowed=True, who=WHO)
    assert (again.existed, again.pending) == (True, 2)


def test_a_topic_that_kafka_places_itself_is_compared_too(how: str) -> None:
    simulator, journal = simulated("1a 2b 3c")
    assert created(Unsteady(simulator, how), journal).pending == 0


@pytest.mark.parametrize("instead", [None, lambda _: None], ids=["created", "not created"])
def test_on_kraft_no_topic_with_fewer_replicas_follows_a_request_that_may_have_been_executed(
    how: str, instead: Any
) -> None:
    simulator = Simulator.of("1a 2b 3c", mode="kraft")
    simulator.kill(3)
    journal, cluster = memory_journal(simulator), Unsteady(simulator, how, instead)
    if instead is None:
        assert created(cluster, journal).pending == 0
    else:
        with pytest.raises((KafkaTimeout, KafkaRefused)):
            created(cluster, journal)
    assert (cluster.asked, owed(journal)) == (1, [])
    assert {len(each.replicas) for each in simulator.topics.values()} <= {3}


@pytest.mark.parametrize(
    "instead",
    [
        lambda simulator: simulator.create("t", [(1, 2)]),
        lambda simulator: simulator.create("t", [(1, 2), (1, 2)]),
        lambda simulator: simulator.create("t", [(1, 2), (2, 1), (1, 2)]),
        lambda simulator: (simulator.create("t", [(1, 2), (2, 1)]), simulator.topic_settings["t"].update(a="b")),
    ],
    ids=["fewer partitions", "other replicas", "more partitions", "other settings"],
)
def test_a_topic_of_someone_else_is_not_taken_for_it(how: str, instead: Any) -> None:
    simulator, journal = two_brokers()
    with pytest.raises((KafkaTimeout, KafkaRefused)):
        created(Unsteady(simulator, how, instead), journal, **RETENTION)
    # Without an answer it may still be made: what is owed stays written down until a look finds another topic.
    assert owed(journal) == (["t-0", "t-1"] if how == "no answer" else [])


def test_new_partitions_of_an_owed_topic_are_owed_too(how: str) -> None:
    simulator, journal = two_brokers()
    created(simulator, journal)
    cluster = Unsteady(simulator, how)
    added = add_partitions(cluster, journal, "t", 4, later=False, who=WHO)
    assert (added.done, cluster.asked) == (True, 1)
    assert owed(journal) == ["t-0", "t-1", "t-2", "t-3"]


def test_partitions_that_were_not_added_are_not_owed_once_kafka_has_refused() -> None:
    simulator, journal = two_brokers()
    created(simulator, journal)
    with pytest.raises(KafkaRefused):
        add_partitions(Unsteady(simulator, "repeated", lambda _: None), journal, "t", 4, later=False, who=WHO)
    assert owed(journal) == ["t-0", "t-1"]
    with pytest.raises(KafkaTimeout):
        add_partitions(Unsteady(simulator, "no answer", lambda _: None), journal, "t", 4, later=False, who=WHO)
    assert TopicPartition("t", 3) not in simulator.topics
