"""Who has failed is the cluster's word, never ours alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.health import failed_brokers, witnesses
from kafka_steward.cluster.state import Broker, Partition, Snapshot

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
