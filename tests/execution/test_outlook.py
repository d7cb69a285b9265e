"""What preflight is told: who needs nothing any more, how much room there is, and whether the cluster is strained."""

from __future__ import annotations

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.state import LogDir
from kafka_steward.execution.decisions.outlook import room_bytes, satisfied, strained
from tests.execution.looks import brokers, look, part
from tests.worlds import move


@pytest.mark.parametrize(
    ("replicas", "live", "enough"),
    [("123", "123", True), ("1234", "12345", True), ("12", "1234", False), ("123", "234", False)],
    ids=["all back", "more than before", "fewer than before", "one is dead"],
)
def test_a_move_is_satisfied_when_all_replicas_live_and_none_is_missing(replicas: str, live: str, enough: bool) -> None:
    found = satisfied(move("t-0", "123", "423"), part("t-0", replicas), frozenset(brokers(live)))
    assert found is enough


def test_room_is_what_is_left_above_the_share_that_must_stay_free() -> None:
    told = {
        1: LogDir({}, 1000, 400),
        2: LogDir({}, None, None),
        3: LogDir({}, 1000, 400),
        4: LogDir({}, 1000, None),
        5: LogDir({}, None, 400),
    }
    assert room_bytes(told, min_free=0.15, incoming={3: 100}) == {1: 250, 3: 150}


def test_strained_are_those_outside_the_plan_whose_brokers_all_live() -> None:
    partitions = [part("u-0", "12", isr="2"), part("t-0", "123", isr="2"), part("v-0", "23", isr="2")]
    t, u, v = (TopicPartition(name, 0) for name in "tuv")
    snapshot = look("123", *partitions)
    assert strained(snapshot, [], {"t": 2, "u": 2, "v": 1}) == [t, u]
    assert strained(snapshot, [t], {"t": 2}) == []
    assert strained(look("23", *partitions), [], {"t": 2, "u": 2, "v": 2}) == [v]
    assert strained(snapshot, [], {"u": 9}) == [u]
    assert strained(look("12", part("u-0", "12")), [], {"u": 9}) == [], "never more than there are replicas"
    assert strained(look("12", part("u-0", "12", isr="")), [], {}) == [], "no min ISR is known"
