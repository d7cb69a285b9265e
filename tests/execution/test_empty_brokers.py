"""Brokers that join empty: who is rung for, when, and who takes them up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.errors import VersionConflict
from kafka_steward.execution.broker_joins import claim_empty_brokers, poll_empty_brokers, update_empty_brokers
from kafka_steward.execution.topics import TopicSpec, create_topic
from kafka_steward.journal import paths
from kafka_steward.journal.records import EmptyBrokersDocument, PlanRecord
from kafka_steward.journal.store import Journal
from kafka_steward.settings import Settings
from tests.simulated_plan import WHO, lose, memory_journal, move
from tests.simulator import Simulator

EVERY = Settings(heal_retry_interval=60)


def three_and_one() -> tuple[Simulator, Journal]:
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123 231")
    return simulator, memory_journal(simulator)


def due(simulator: Simulator, journal: Journal) -> tuple[int, ...]:
    return poll_empty_brokers(simulator, journal, EVERY).due


def test_a_broker_that_holds_nothing_is_rung_for_again_and_again_until_a_run_takes_it_up() -> None:
    simulator, journal = three_and_one()
    assert due(simulator, journal) == (4,)
    assert due(simulator, journal) == ()
    simulator.tick(60)
    assert due(simulator, journal) == (4,)
    found = claim_empty_brokers(simulator, journal, "expand/1")
    assert (found.brokers, found.empty, found.sentence) == ((4,), (4,), "Broker 4 has joined.")
    simulator.tick(600)
    assert due(simulator, journal) == (), "whatever came of that run, nobody is asked twice"
    assert claim_empty_brokers(simulator, journal, "expand/2").brokers == ()


def test_a_later_try_of_the_same_run_gets_the_same_brokers() -> None:
    simulator, journal = three_and_one()
    due(simulator, journal)
    assert [claim_empty_brokers(simulator, journal, "expand/1").brokers for _ in range(2)] == [(4,), (4,)]


def test_a_broker_that_goes_and_comes_back_empty_has_joined_anew() -> None:
    simulator, journal = three_and_one()
    due(simulator, journal)
    claim_empty_brokers(simulator, journal, "expand/1")
    simulator.kill(4)
    assert due(simulator, journal) == ()
    simulator.restart(4)
    assert due(simulator, journal) == (4,)


def test_a_broker_that_was_drained_is_not_new() -> None:
    simulator = Simulator.of("1a 2b 3c 4a", "t: 124")
    journal = memory_journal(simulator)
    assert due(simulator, journal) == (3,)
    simulator.alter({TopicPartition("t", 0): (1, 2, 3)})
    simulator.run()
    simulator.tick(60)
    assert due(simulator, journal) == (3,), "no run has taken it up"
    simulator.kill(4)
    due(simulator, journal)
    simulator.restart(4)
    assert due(simulator, journal) == (3, 4), "it has come back, and holds nothing"


def test_another_broker_is_rung_for_at_once() -> None:
    simulator = Simulator.of("1a 2b 3c 4a 5b", "t: 123")
    journal = memory_journal(simulator)
    simulator.kill(5)
    assert due(simulator, journal) == (4,)
    simulator.restart(5)
    assert due(simulator, journal) == (4, 5)


def test_the_fill_goes_first_and_who_got_something_by_it_waits_all_the_same() -> None:
    simulator = Simulator.of("1a 2b 3c", "u: 12", mode="zookeeper")
    journal = memory_journal(simulator)
    lose(simulator, journal, 3)
    create_topic(simulator, journal, TopicSpec("t", 1, 3, {}), allowed=True, who=WHO)
    simulator.restart(3)
    looked = poll_empty_brokers(simulator, journal, EVERY)
    assert (looked.brokers, looked.due) == ((3,), ())
    assert looked.sentence.endswith("The expand waits: a live broker can host pending replicas.")
    assert claim_empty_brokers(simulator, journal, "expand/1").brokers == ()
    simulator.alter({next(name for name in simulator.topics if name.topic == "t"): (1, 2, 3)})
    simulator.run()
    assert due(simulator, journal) == (3,)
    found = claim_empty_brokers(simulator, journal, "expand/1")
    assert (found.brokers, found.empty) == ((3,), ())


def test_a_fill_under_way_is_waited_for() -> None:
    simulator, journal = three_and_one()
    record = PlanRecord("f" * 64, simulator.cluster_id, "fill")
    journal.plans.publish(record, [move("t-0", "123", "1234")])
    looked = poll_empty_brokers(simulator, journal, EVERY)
    assert (looked.due, looked.sentence) == ((), "Broker 4 has joined. The expand waits: a fill is in progress.")


def test_on_a_cluster_without_topics_nobody_has_joined() -> None:
    simulator = Simulator.of("1a 2b 3c")
    assert update_empty_brokers(EmptyBrokersDocument(), simulator.snapshot()).unclaimed == ()


def test_a_run_that_takes_up_while_the_watch_writes_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    simulator, journal = three_and_one()
    due(simulator, journal)
    node = journal.tree.get(paths.EMPTY_BROKERS)
    assert node is not None
    known = EmptyBrokersDocument.from_node(node)
    get = journal.tree.get

    def stale(path: str) -> Any:
        found = get(path)
        if path == paths.EMPTY_BROKERS and found is not None and found.version == node.version:
            journal.tree.set(path, replace(known, announced_ms=1).to_json(), version=found.version)
        return found

    monkeypatch.setattr(journal.tree, "get", stale)
    with pytest.raises(VersionConflict, match="it is retried"):
        claim_empty_brokers(simulator, journal, "expand/1")
    assert claim_empty_brokers(simulator, journal, "expand/1").brokers == (4,)


def test_the_document_prints_as_it_was_read() -> None:
    text = '{"version":1,"unclaimed":[4],"known":[1,2],"announced_ms":7,"run":"","claimed":[]}'
    assert EmptyBrokersDocument.from_json(text).to_json() == text
    assert EmptyBrokersDocument((4,), (1, 2), announced_ms=7).to_json() == text
