"""Which throttles the moves of a plan need: entries for what copies, rates also for what is to come."""

from __future__ import annotations

from kafka_steward.execution.throttle_rates import NO_DEMAND, ThrottleDemand, ThrottleSide, throttle_demand
from tests.simulated_plan import move

COPYING = [move("t-0", "123", "453"), move("t-1", "123", "623"), move("u-0", "23", "123"), move("v-0", "123", "231")]
AHEAD = [move("t-2", "231", "731"), move("w-0", "12", "21")]
INTO = {(broker, ThrottleSide.FOLLOWER) for broker in (1, 4, 5, 6, 7)}
ENTRIES = {
    ("t", ThrottleSide.FOLLOWER): frozenset({"0:4", "0:5", "1:6"}),
    ("u", ThrottleSide.FOLLOWER): frozenset({"0:1"}),
}


def test_receivers_are_listed_while_they_copy_and_need_a_rate_before() -> None:
    assert throttle_demand(COPYING, AHEAD) == ThrottleDemand(ENTRIES, frozenset(INTO))


def test_with_leaders_all_that_may_send_are_throttled_too() -> None:
    sending = {
        ("t", ThrottleSide.LEADER): frozenset({"0:1", "0:2", "0:3", "1:1", "1:2", "1:3"}),
        ("u", ThrottleSide.LEADER): frozenset({"0:2", "0:3"}),
    }
    out_of = {(broker, ThrottleSide.LEADER) for broker in (1, 2, 3)}
    assert throttle_demand(COPYING, AHEAD, leaders=True) == ThrottleDemand(ENTRIES | sending, frozenset(INTO | out_of))


def test_a_partition_that_had_no_replicas_has_nobody_who_sends() -> None:
    need = throttle_demand([move("t-0", "", "4")], leaders=True)
    assert need == ThrottleDemand(
        {("t", ThrottleSide.FOLLOWER): frozenset({"0:4"})}, frozenset({(4, ThrottleSide.FOLLOWER)})
    )


def test_moves_are_read_once_and_reorders_need_nothing() -> None:
    assert throttle_demand(iter(COPYING), iter(AHEAD)) == throttle_demand(COPYING, AHEAD)
    assert throttle_demand([move("t-0", "123", "231")], leaders=True) == throttle_demand([]) == NO_DEMAND
