"""A look at a cluster's health, on the simulator."""

from __future__ import annotations

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.errors import RequestError
from kafka_steward.execution.health import (
    DEFAULT_LIMITS,
    check_health,
    health_message,
    partition_lines,
    partition_names,
    validate_limits,
    violated_limits,
)
from kafka_steward.execution.topics import TopicSpec, create_topic
from tests.simulated_plan import WHO, memory_journal, simulated
from tests.simulator import Simulator


def test_a_whole_cluster_is_healthy() -> None:
    simulator = Simulator.of("1a 2b 3c", "t: 123 231")
    health, _ = check_health(simulator, memory_journal(simulator))
    assert violated_limits(health, DEFAULT_LIMITS) == []
    assert health_message(health) == (
        "Of 2 partitions 0 are under-replicated, 0 are under min ISR, 0 are offline. None is being reassigned."
    )


def test_a_killed_broker_is_seen_and_a_reassignment_is_not_held_for_one() -> None:
    simulator, journal = simulated("1a 2b 3c 4a", "t: 123 231", bandwidth=10)
    simulator.alter({TopicPartition("t", 0): (1, 2, 4)})
    _, copies = check_health(simulator, journal)
    simulator.tick()
    health, _ = check_health(simulator, journal, copies)
    assert violated_limits(health, DEFAULT_LIMITS) == []
    assert (health.measures["reassigning_partitions"], health.max_lag) == (1, 90)
    assert health_message(health).endswith(" 1 is being reassigned, at most 90 messages behind, 0.0 MB/s.")
    simulator.kill(2)
    simulator.topic_settings["t"]["min.insync.replicas"] = "3"
    health, _ = check_health(simulator, journal)
    assert violated_limits(health, DEFAULT_LIMITS) == ["under_replicated_partitions", "under_min_isr_partitions"]
    assert "2 are under-replicated (t-0, t-1)" in health_message(health)
    assert health_message(health).endswith("Broker 2 is down.")


def test_a_replication_factor_that_grows_is_under_min_isr_until_enough_new_replicas_are_in_sync() -> None:
    simulator = Simulator.of("1a 2b 3c", "t: 1", bandwidth=100)
    journal, name = memory_journal(simulator), TopicPartition("t", 0)
    simulator.topic_settings["t"] |= {"min.insync.replicas": "2", "follower.replication.throttled.replicas": "0:3"}
    simulator.broker_settings[3]["follower.replication.throttled.rate"] = "10"
    assert violated_limits(check_health(simulator, journal)[0], DEFAULT_LIMITS) == [], "one replica is all that it has"
    simulator.alter({name: (1, 2, 3)})
    health, _ = check_health(simulator, journal)
    assert (health.under_min_isr, health.under_replicated) == ((name,), ())
    assert "1 is under min ISR (t-0)" in health_message(health)
    simulator.tick()
    health, _ = check_health(simulator, journal)
    assert (health.reassigning, violated_limits(health, DEFAULT_LIMITS)) == ((name,), []), (
        "broker 2 is in sync, broker 3 is not yet"
    )
    simulator.run()
    simulator.kill(3)
    assert check_health(simulator, journal)[0].under_replicated == (name,), "it has three replicas now"


def test_a_partition_with_all_its_replicas_in_sync_is_never_under_min_isr() -> None:
    simulator = Simulator.of("1a 2b 3c 4a", "t: 12 34")
    simulator.topic_settings["t"]["min.insync.replicas"] = "3"
    simulator.kill(2)
    health, _ = check_health(simulator, memory_journal(simulator))
    assert health.under_min_isr == (TopicPartition("t", 0),)


def test_pending_replicas_are_measured_stated_in_the_sentence_and_held_to_a_limit() -> None:
    simulator, journal = simulated("1a 2b 3c", mode="zookeeper", lost=(3,))
    create_topic(simulator, journal, TopicSpec("t", 2, 3), allowed=True, who=WHO)
    health, _ = check_health(simulator, journal)
    assert health.measures["pending_replicas"] == 2
    assert health_message(health).endswith("None is being reassigned. 2 replicas are pending.")
    assert violated_limits(health, {"pending_replicas": 1}) == ["pending_replicas"]
    assert violated_limits(health, {"pending_replicas": 2}) == []


def test_a_pending_replica_is_unhealthy_by_default_until_it_is_no_longer_pending() -> None:
    simulator, journal = simulated("1a 2b 3c", mode="zookeeper", lost=(3,))
    create_topic(simulator, journal, TopicSpec("t", 2, 3), allowed=True, who=WHO)
    assert violated_limits(check_health(simulator, journal)[0], DEFAULT_LIMITS) == ["pending_replicas"]
    assert DEFAULT_LIMITS["pending_replicas"] == 0
    simulator.restart(3)
    simulator.alter({TopicPartition("t", 0): (1, 2, 3)})
    assert check_health(simulator, journal)[0].pending == 2, "one is on its way, and not there"
    simulator.run()
    assert check_health(simulator, journal)[0].pending == 1, "the record is obsolete, though no fill has removed it"
    simulator.alter({TopicPartition("t", 1): (2, 1, 3)})
    simulator.run()
    assert violated_limits(check_health(simulator, journal)[0], DEFAULT_LIMITS) == []


def test_to_its_users_a_topic_with_pending_replicas_is_whole() -> None:
    simulator, journal = simulated("1a 2b 3c", mode="zookeeper", lost=(3,))
    wanted = TopicSpec("t", 2, 3, {"min.insync.replicas": "2"})
    create_topic(simulator, journal, wanted, allowed=True, who=WHO)
    simulator.tick(60)
    health, _ = check_health(simulator, journal)
    assert (health.under_replicated, health.under_min_isr, health.offline) == ((), (), ())
    assert [set(each.isr) for each in simulator.topics.values()] == [{1, 2}, {1, 2}]


def test_pending_replicas_of_a_topic_that_was_deleted_are_not_pending_though_no_fill_has_removed_their_record() -> None:
    simulator, journal = simulated("1a 2b 3c", mode="zookeeper", lost=(3,))
    create_topic(simulator, journal, TopicSpec("t", 2, 3), allowed=True, who=WHO)
    simulator.delete("t")
    simulator.tick(120)
    assert check_health(simulator, journal)[0].pending == 0


def test_pending_replicas_of_a_topic_that_is_hidden_from_us_stay_pending() -> None:
    simulator, journal = simulated("1a 2b 3c", mode="zookeeper", lost=(3,))
    create_topic(simulator, journal, TopicSpec("t", 2, 3), allowed=True, who=WHO)
    simulator.hidden.add("t")
    simulator.tick(120)
    assert check_health(simulator, journal)[0].pending == 2


def test_a_move_that_begins_and_ends_between_two_checks_is_counted_once() -> None:
    simulator, journal = simulated("1a 2b 3c 4a", "t: 123 231", bandwidth=100)
    _, copies = check_health(simulator, journal)
    simulator.alter({TopicPartition("t", 0): (1, 2, 4)})
    simulator.tick(2)
    health, copies = check_health(simulator, journal, copies)
    assert (health.reassigning, health.bytes_in) == ((), {1: 0, 2: 0, 3: 0, 4: 50})
    assert health.bytes_out == {1: 50, 2: 0, 3: 0, 4: 0}
    simulator.tick()
    health, _ = check_health(simulator, journal, copies)
    assert set(health.bytes_in.values()) == {0}


def test_every_partition_is_named_by_its_condition_in_the_log_and_the_first_hundred_in_the_result() -> None:
    simulator, journal = simulated("1a 2b 3c 4a", "t: " + " ".join(["123"] * 130))
    simulator.alter({TopicPartition("t", 7): (1, 2, 4)})
    simulator.kill(3)
    health, _ = check_health(simulator, journal)
    names = partition_names(health)
    assert {condition: len(named) for condition, named in names.items()} == {
        "under_replicated": 100,
        "under_min_isr": 0,
        "offline": 0,
        "reassigning": 1,
    }
    assert (names["under_replicated"][99], names["reassigning"]) == ("t-99", ["t-7"])
    lines = list(partition_lines(health))
    assert [line.partition(":")[0] for line in lines] == [
        "under replicated, 1 to 50 of 130",
        "under replicated, 51 to 100 of 130",
        "under replicated, 101 to 130 of 130",
        "reassigning, 1 to 1 of 1",
    ]
    assert lines[2].endswith("t-128, t-129")


def test_limits_are_held_to_known_measures() -> None:
    assert validate_limits(None) == DEFAULT_LIMITS
    assert validate_limits({"reassignment_max_lag": 1000}) == {"reassignment_max_lag": 1000}
    with pytest.raises(RequestError, match="There is no measure 'lag'"):
        validate_limits({"lag": 1})
