"""A broker that has not heard the controller's news does not make a move of ours look like somebody else's."""

from __future__ import annotations

import pytest

from kafka_steward.assignment import Assignment, TopicPartition
from kafka_steward.cluster.recent import PATIENCE_S, Recent
from kafka_steward.cluster.state import Partition, Reassignment

NAME = TopicPartition("t", 0)
OLD, MERGED, DONE = (1, 2, 3), (4, 2, 3, 1), (4, 2, 3)
FLYING = {NAME: Reassignment(MERGED, adding=(4,), removing=(1,))}


def shown(recent: Recent, replicas: Assignment, listed: dict[TopicPartition, Reassignment] | None = None) -> Partition:
    """The partition as it comes out when a broker shows `replicas`."""
    partition = Partition("t", 0, replicas, frozenset({2, 3}), leader=2)
    return recent.reconcile({NAME: partition}, listed or {})[NAME]


@pytest.mark.parametrize("replicas", [OLD, MERGED, DONE])
def test_what_the_controller_lists_is_in_flight_whatever_the_broker_shows(replicas: Assignment) -> None:
    partition = shown(Recent(), replicas, FLYING)
    assert (partition.replicas, partition.adding, partition.removing) == (MERGED, (4,), (1,))
    assert (partition.isr, partition.leader) == (frozenset({2, 3}), 2)


def test_without_news_the_broker_is_believed() -> None:
    for replicas in (OLD, MERGED, DONE):
        partition = shown(Recent(), replicas)
        assert (partition.replicas, partition.reassigning) == (replicas, False)


def test_a_move_that_left_the_list_flies_until_the_broker_knows() -> None:
    recent = Recent()
    recent.hear(FLYING, 0)
    recent.hear({}, 1)
    assert shown(recent, MERGED).adding == (4,)
    finished = shown(recent, DONE)
    assert (finished.replicas, finished.reassigning) == (DONE, False)


def test_a_cancelled_move_flies_until_the_broker_knows() -> None:
    recent = Recent()
    recent.hear(FLYING, 0)
    recent.ask({NAME: None}, 0)
    recent.hear({}, 0)
    assert shown(recent, MERGED).reassigning
    assert shown(recent, (2, 3, 1)).replicas == (2, 3, 1)


def test_a_target_that_was_accepted_and_reached_at_once_flies_until_the_broker_knows() -> None:
    recent = Recent()
    recent.ask({NAME: DONE}, 0)
    recent.hear({}, 0)
    early = shown(recent, OLD)
    assert (early.replicas, early.adding, early.removing) == (MERGED, (4,), (1,))
    assert not shown(recent, DONE).reassigning
    # The next look may be at a broker that knows less than the one before.
    assert shown(recent, OLD).reassigning


def test_an_accepted_order_is_so_although_the_broker_shows_the_old_one() -> None:
    recent = Recent()
    recent.ask({NAME: (3, 2, 1)}, 0)
    partition = shown(recent, OLD)
    assert (partition.replicas, partition.reassigning) == ((3, 2, 1), False)


def test_a_new_target_replaces_an_earlier_one_and_a_cancellation_ends_it() -> None:
    recent = Recent()
    recent.ask({NAME: DONE}, 0)
    recent.ask({NAME: None}, 0)
    assert shown(recent, OLD).replicas == OLD


def test_patience_ends_and_then_the_broker_is_believed() -> None:
    recent = Recent()
    recent.hear(FLYING, 0)
    recent.ask({TopicPartition("u", 0): DONE}, 0)
    recent.hear({}, PATIENCE_S + 1)
    assert not shown(recent, MERGED).reassigning
    assert recent._asked == {}


def test_what_was_asked_is_expected_for_as_long_as_it_is_listed_and_a_while_after() -> None:
    recent = Recent()
    recent.ask({NAME: DONE}, 0)
    recent.hear(FLYING, PATIENCE_S - 1)
    recent.hear({}, 2 * PATIENCE_S - 2)
    assert shown(recent, OLD).reassigning
    recent.hear({}, 2 * PATIENCE_S)
    assert not shown(recent, OLD).reassigning


def test_somebody_elses_target_ends_what_was_asked() -> None:
    recent = Recent()
    recent.ask({NAME: (3, 1, 2)}, 0)
    recent.hear(FLYING, 0)
    recent.hear({}, 0)
    assert not shown(recent, DONE).reassigning
