"""Who has failed is the cluster's word, never ours alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.health import Health, copies_of, failed_brokers, health_of, witnesses
from kafka_steward.cluster.state import Broker, LogDir, Partition, Snapshot

BROKERS = range(1, 6)


def snapshot(live: set[int], replicas: tuple[int, ...], fenced: set[int] = frozenset()) -> Snapshot:  # type: ignore[assignment]  # empty
    brokers = {id_: Broker(id_, "host", 9092, fenced=id_ in fenced) for id_ in live | fenced}
    partition = Partition("t", 0, replicas, frozenset(replicas) & live, leader=None)
    return Snapshot("id", 0, brokers, {TopicPartition("t", 0): partition})


def test_a_dead_broker_with_replicas_has_failed_when_two_others_say_so() -> None:
    views = {1: frozenset({1, 2, 3}), 2: frozenset({1, 2, 3}), 3: frozenset({1, 2, 3, 4})}
    assert failed_brokers(snapshot({1, 2, 3}, (4, 1, 2)), views) == {4}
    assert witnesses(snapshot({1, 2, 3}, (4, 1, 2)), views) == {4: {1, 2}}


def test_one_word_is_not_enough_while_there_are_two_who_could_speak() -> None:
    assert failed_brokers(snapshot({1, 2, 3}, (4, 1, 2)), {1: frozenset({1, 2, 3})}) == frozenset()


def test_one_word_is_enough_when_there_is_only_one_left() -> None:
    assert failed_brokers(snapshot({1}, (4, 1)), {1: frozenset({1})}) == {4}


def test_a_fenced_broker_counts_as_dead() -> None:
    views = dict.fromkeys({1, 2, 3}, frozenset({1, 2, 3}))
    assert failed_brokers(snapshot({1, 2, 3}, (4, 1), fenced={4}), views) == {4}


def test_a_dead_broker_without_replicas_has_not_failed() -> None:
    views = dict.fromkeys({1, 2, 3}, frozenset({1, 2, 3}))
    assert failed_brokers(snapshot({1, 2, 3}, (1, 2), fenced={4}), views) == frozenset()


def test_a_placeholder_is_not_a_broker() -> None:
    views = dict.fromkeys({1, 2, 3}, frozenset({1, 2, 3}))
    assert failed_brokers(snapshot({1, 2, 3}, (1, -1)), views) == frozenset()


def test_a_cluster_that_does_not_answer_has_no_failed_brokers() -> None:
    assert failed_brokers(snapshot(set(), (1, 2, 3)), {}) == frozenset()


ids = st.frozensets(st.sampled_from(BROKERS))


@given(live=ids, replicas=ids, views=st.dictionaries(st.sampled_from(BROKERS), ids))
def test_who_has_failed_has_replicas_and_is_not_live_and_was_denied_by_live_brokers(
    live: frozenset[int], replicas: frozenset[int], views: dict[int, frozenset[int]]
) -> None:
    look = snapshot(set(live), tuple(sorted(replicas)))
    for broker in failed_brokers(look, views):
        assert broker in replicas - live
        assert sum(broker not in views[other] for other in live & set(views)) >= min(2, len(live)) > 0


@given(live=ids, replicas=ids, views=st.dictionaries(st.sampled_from(BROKERS), ids), silent=st.sampled_from(BROKERS))
def test_losing_a_word_never_makes_a_broker_failed(
    live: frozenset[int], replicas: frozenset[int], views: dict[int, frozenset[int]], silent: int
) -> None:
    look = snapshot(set(live), tuple(sorted(replicas)))
    fewer = {broker: view for broker, view in views.items() if broker != silent}
    assert failed_brokers(look, fewer) <= failed_brokers(look, views)


def moving(isr: set[int], *, leader: int | None = 1) -> Snapshot:
    """A reassignment of [1, 2, 3] to [1, 2, 4], and a partition at rest."""
    brokers = {id_: Broker(id_, "host", 9092) for id_ in (1, 2, 3, 4)}
    flying = Partition("t", 0, (1, 2, 4, 3), frozenset(isr), leader, adding=(4,), removing=(3,))
    rest = Partition("t", 1, (2, 3), frozenset({2, 3}), 2)
    return Snapshot("id", 0, brokers, {each.topic_partition: each for each in (flying, rest)})


def looked(snapshot: Snapshot, sizes: dict[int, int] | None = None, **more: object) -> Health:
    dirs = {broker: LogDir({TopicPartition("t", 0): size}) for broker, size in (sizes or {}).items()}
    facts = {"min_isr": {"t": 2}, "ends": {}, "copies": copies_of(snapshot, dirs, 2_000)}
    return health_of(snapshot, **{**facts, **more})  # type: ignore[arg-type]  # what is not given is the usual


def test_a_reassignment_by_itself_makes_no_partition_under_replicated() -> None:
    health = looked(moving({1, 2, 3}))
    assert (health.under_replicated, health.reassigning) == ((), (TopicPartition("t", 0),))


def test_kip_352s_formula_counts_the_isr_against_the_replicas_without_those_being_added() -> None:
    assert looked(moving({1, 2})).under_replicated == (TopicPartition("t", 0),)
    assert looked(moving({1, 2, 4})).under_replicated == ()
    assert looked(moving({1})).under_min_isr == (TopicPartition("t", 0),)
    assert looked(moving(set(), leader=None)).offline == (TopicPartition("t", 0),)


def test_the_max_lag_is_that_of_replicas_being_added() -> None:
    name = TopicPartition("t", 0)
    ends = {(name, 1): 500, (name, 2): 400, (name, 3): 0, (name, 4): 120}
    assert looked(moving({1, 2, 3}), ends=ends).max_lag == 380
    assert looked(moving({1, 2, 3})).max_lag is None
    assert "reassignment_max_lag" not in looked(moving({1, 2, 3})).measures


def test_bytes_per_second_go_into_the_new_broker_and_out_of_the_leader() -> None:
    snapshot = moving({1, 2, 3})
    before = copies_of(snapshot, {4: LogDir({TopicPartition("t", 0): 1_000})}, 1_000)
    health = looked(snapshot, {4: 3_500}, before=before)
    assert health.bytes_in == {1: 0, 2: 0, 3: 0, 4: 2_500}
    assert health.bytes_out == {1: 2_500, 2: 0, 3: 0, 4: 0}
    assert health.measures["reassignment_bytes_in_per_sec.4"] == 2_500
    assert looked(snapshot, {4: 3_500}).bytes_in == {}


def test_imbalance_is_how_far_the_fullest_broker_is_above_the_mean() -> None:
    health = looked(moving({1, 2, 3}))
    assert health.replica_imbalance == pytest.approx(2 / 1.5 - 1)
    assert health.leader_imbalance == pytest.approx(1 / 0.5 - 1)
