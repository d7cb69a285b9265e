"""A broker that has not heard the controller's news does not make a move of ours look like somebody else's."""

from __future__ import annotations

import pytest

from kafka_steward.assignment import Assignment, TopicPartition
from kafka_steward.cluster.metadata_freshness import GRACE_S, STALE_LIMIT_S, MetadataReconciler
from kafka_steward.cluster.state import Partition, Reassignment

NAME = TopicPartition("t", 0)
OLD, MERGED, DONE = (1, 2, 3), (4, 2, 3, 1), (4, 2, 3)
IN_FLIGHT = {NAME: Reassignment(MERGED, adding=(4,), removing=(1,))}


def shown(
    recent: MetadataReconciler,
    replicas: Assignment,
    listed: dict[TopicPartition, Reassignment] | None = None,
    *,
    epoch: int = -1,
) -> Partition:
    """The partition as it comes out when a broker shows `replicas`, and a leader epoch if it tells one."""
    partition = Partition("t", 0, replicas, frozenset({2, 3}), leader=2, leader_epoch=epoch)
    return recent.reconcile({NAME: partition}, listed or {})[NAME]


@pytest.fixture
def recent() -> MetadataReconciler:
    return MetadataReconciler()


@pytest.mark.parametrize("replicas", [OLD, MERGED, DONE])
def test_what_the_controller_lists_is_in_flight_whatever_the_broker_shows(replicas: Assignment) -> None:
    partition = shown(MetadataReconciler(), replicas, IN_FLIGHT)
    assert (partition.replicas, partition.adding, partition.removing) == (MERGED, (4,), (1,))
    assert (partition.isr, partition.leader) == (frozenset({2, 3}), 2)


def test_without_news_the_broker_is_believed() -> None:
    for replicas in (OLD, MERGED, DONE):
        partition = shown(MetadataReconciler(), replicas)
        assert (partition.replicas, partition.reassigning) == (replicas, False)


def test_a_move_that_left_the_list_is_in_flight_until_the_broker_knows(recent: MetadataReconciler) -> None:
    recent.on_listed(IN_FLIGHT, 0)
    recent.on_listed({}, 1)
    assert shown(recent, MERGED).adding == (4,)
    finished = shown(recent, DONE)
    assert (finished.replicas, finished.reassigning) == (DONE, False)


def test_what_a_move_of_ours_adds_is_as_it_was_listed_until_the_broker_knows(recent: MetadataReconciler) -> None:
    recent.on_accepted({NAME: DONE}, 0)
    recent.on_listed(IN_FLIGHT, 1)
    recent.on_listed({}, 2)
    late = shown(recent, MERGED)
    assert (late.replicas, late.adding, late.removing) == (MERGED, (4,), (1,))


def test_a_cancelled_move_is_in_flight_until_the_broker_knows(recent: MetadataReconciler) -> None:
    recent.on_listed(IN_FLIGHT, 0)
    recent.on_accepted({NAME: None}, 0)
    recent.on_listed({}, 0)
    assert shown(recent, MERGED).reassigning
    assert shown(recent, (2, 3, 1)).replicas == (2, 3, 1)


def test_a_target_that_was_accepted_and_reached_at_once_is_in_flight_until_the_broker_knows(
    recent: MetadataReconciler,
) -> None:
    recent.on_accepted({NAME: DONE}, 0)
    recent.on_listed({}, 0)
    early = shown(recent, OLD)
    assert (early.replicas, early.adding, early.removing) == (MERGED, (4,), (1,))
    assert not shown(recent, DONE).reassigning
    # The next look may be at a broker that knows less than the one before.
    assert shown(recent, OLD).reassigning


def test_an_accepted_order_is_so_although_the_broker_shows_the_old_one(recent: MetadataReconciler) -> None:
    recent.on_accepted({NAME: (3, 2, 1)}, 0)
    partition = shown(recent, OLD)
    assert (partition.replicas, partition.reassigning) == ((3, 2, 1), False)


def test_a_new_target_replaces_an_earlier_one_and_a_cancellation_ends_it(recent: MetadataReconciler) -> None:
    recent.on_accepted({NAME: DONE}, 0)
    recent.on_accepted({NAME: None}, 0)
    assert shown(recent, OLD).replicas == OLD


def test_what_was_listed_is_old_news_for_a_long_time_and_not_for_ever(recent: MetadataReconciler) -> None:
    recent.on_listed(IN_FLIGHT, 0)
    recent.on_listed({}, STALE_LIMIT_S - 1)
    assert shown(recent, MERGED).reassigning
    recent.on_listed({}, STALE_LIMIT_S)
    assert not shown(recent, MERGED).reassigning


def test_what_may_be_news_is_believed_after_a_while() -> None:
    growing = Reassignment(MERGED, adding=(4,), removing=())  # in the end it looks as it does on its way
    recent = MetadataReconciler()
    recent.on_listed({NAME: growing}, 0)
    recent.on_listed({}, GRACE_S - 1)
    assert shown(recent, MERGED).reassigning
    recent.on_listed({}, GRACE_S)
    assert not shown(recent, MERGED).reassigning


def test_a_cancelled_move_that_a_broker_shows_as_never_begun_is_still_in_flight(recent: MetadataReconciler) -> None:
    recent.on_listed(IN_FLIGHT, 0)
    shown(recent, OLD, IN_FLIGHT, epoch=7)
    recent.on_accepted({NAME: None}, 0)
    recent.on_listed({}, GRACE_S + 1)
    assert shown(recent, OLD, epoch=7).reassigning  # or its order would never be restored
    cancelled = shown(recent, (2, 3, 1), epoch=9)
    assert (cancelled.replicas, cancelled.reassigning) == ((2, 3, 1), False)
    recent.on_listed({}, STALE_LIMIT_S)
    assert not shown(recent, OLD, epoch=7).reassigning


def test_a_requested_move_is_in_flight_until_the_broker_shows_it_or_something_newer(recent: MetadataReconciler) -> None:
    shown(recent, OLD, epoch=7)
    recent.on_accepted({NAME: DONE}, 0)
    recent.on_listed({}, GRACE_S + 1)
    assert shown(recent, OLD, epoch=7).reassigning
    assert not shown(recent, OLD, epoch=8).reassigning  # someone else took it back
    recent.on_listed({}, STALE_LIMIT_S)
    assert not shown(recent, OLD, epoch=7).reassigning
    assert recent._accepted == {}


def test_a_recreated_topic_is_not_stale_metadata(recent: MetadataReconciler) -> None:
    recent.reconcile({NAME: Partition("t", 0, OLD, frozenset(), 2, "id1", leader_epoch=7)}, {})
    recent.on_accepted({NAME: DONE}, 0)
    recent.on_listed(IN_FLIGHT, 0)
    for now_s in (1, GRACE_S + 1):
        recent.on_listed({}, now_s)
        for topic_id, in_flight in (("id1", True), ("id2", False)):
            seen = Partition("t", 0, OLD, frozenset(), 2, topic_id, leader_epoch=0)
            assert recent.reconcile({NAME: seen}, {})[NAME].reassigning is in_flight


def test_what_came_after_the_target_was_reached_is_no_stale_metadata(recent: MetadataReconciler) -> None:
    shown(recent, OLD, epoch=7)
    recent.on_accepted({NAME: DONE}, 0)
    recent.on_listed(IN_FLIGHT, 0)
    recent.on_listed({}, 1)
    assert not shown(recent, DONE, epoch=8).reassigning
    assert shown(recent, OLD, epoch=7).reassigning, "another broker has not heard of it yet"
    assert not shown(recent, OLD, epoch=9).reassigning, "another process moved it back"


@pytest.mark.parametrize("zookeeper", [False, True])
def test_an_order_that_a_broker_still_lacks_is_old_news_only_where_orders_raise_epochs(zookeeper: bool) -> None:
    recent = MetadataReconciler(orders_raise_epochs=zookeeper)
    shown(recent, OLD, epoch=7)
    recent.on_accepted({NAME: (3, 2, 1)}, 0)
    recent.on_listed({}, GRACE_S + 1)
    assert shown(recent, OLD, epoch=7).replicas == ((3, 2, 1) if zookeeper else OLD)


def test_what_was_asked_is_expected_for_as_long_as_it_is_listed_and_a_while_after(recent: MetadataReconciler) -> None:
    recent.on_accepted({NAME: DONE}, 0)
    recent.on_listed(IN_FLIGHT, GRACE_S - 1)
    recent.on_listed({}, 2 * GRACE_S - 2)
    assert shown(recent, OLD).reassigning
    recent.on_listed({}, 2 * GRACE_S)
    assert not shown(recent, OLD).reassigning


def test_somebody_elses_target_ends_what_was_asked(recent: MetadataReconciler) -> None:
    recent.on_accepted({NAME: (3, 1, 2)}, 0)
    recent.on_listed(IN_FLIGHT, 0)
    recent.on_listed({}, 0)
    assert not shown(recent, DONE).reassigning


REMOVING = {NAME: Reassignment(OLD, adding=(), removing=(3,))}


def test_a_removal_that_we_cancelled_is_over_at_once(recent: MetadataReconciler) -> None:
    recent.on_accepted({NAME: (1, 2)}, 0)
    recent.on_listed(REMOVING, 1)
    assert shown(recent, OLD, REMOVING, epoch=7).removing == (3,)
    recent.on_accepted({NAME: None}, 2)
    recent.on_listed({}, 2)
    back = shown(recent, OLD, epoch=7)
    assert (back.replicas, back.reassigning) == (OLD, False)


def test_a_removal_that_another_client_cancelled_is_over_after_a_while(recent: MetadataReconciler) -> None:
    assert not shown(recent, OLD, epoch=7).reassigning
    recent.on_accepted({NAME: (1, 2)}, 0)
    recent.on_listed(REMOVING, 1)
    recent.on_listed({}, 2)
    assert shown(recent, OLD, epoch=7).removing == (3,), "it may have completed, and the broker lacks the news"
    recent.on_listed({}, 2 + GRACE_S)
    assert not shown(recent, OLD, epoch=7).reassigning
