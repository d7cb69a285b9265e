"""Which rate a broker gets, what a plan needs throttled, and how what was leased is released. Bytes per second."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_steward.cluster.configs import ConfigChange, ConfigOp, parse_list
from kafka_steward.execution.effects import AuditedCalls
from kafka_steward.execution.throttles.leases import ThrottleLeases
from kafka_steward.execution.throttles.rates import (
    NO_DEMAND,
    ThrottleDemand,
    ThrottleSide,
    decide_rate,
    lease_late_rate,
    missing_entries,
    rate_restoring_change,
    throttle_demand,
)
from kafka_steward.journal.records import THROTTLE_LEASES, ThrottleLease
from kafka_steward.journal.store import Journal
from tests.simulated_plan import WHO, memory_journal, move
from tests.simulator import Simulator


def noted(before: str | None, ours: str | None, rate: str = "50", *earlier: str, **others: str) -> ThrottleLease:
    return ThrottleLease(before, ours, {"p": (rate,), **{plan: (each,) for plan, each in others.items()}}, earlier)


OURS, TAKEN_BACK = noted(None, "50"), noted(None, None, "50", "50")
BESIDE_80, BESIDE_20 = noted(None, "50", "50", q="80"), noted(None, "20", "50", q="20")
OF_NO_RATE = ThrottleLease(None, "50", {"p": ()})
SET_LATE = noted("7", None, "50", "50")
RATES = {
    "none was there": (None, "50", None, OURS, "50"),
    "a looser one was there": (None, "50", "70", noted("70", "50"), "50"),
    "a stricter one was there": (None, "50", "7", noted("7", None), "7"),
    "the same was there": (None, "50", "50", noted("50", None), "50"),
    "this plan asks for none": (None, None, "70", None, "70"),
    "the stricter one stays": (noted("7", None), "50", "7", noted("7", None), "7"),
    "the stricter one was cleared": (noted("7", None), "50", None, OURS, "50"),
    "the stricter one was loosened": (noted("7", None), "50", "70", noted("70", "50"), "50"),
    "ours is made stricter than theirs": (noted("7", None), "5", "7", noted("7", "5", "5"), "5"),
    "it is set": (OURS, "50", "50", OURS, "50"),
    "it was cleared, or does not show yet": (OURS, "50", None, OURS, "50"),
    "all was cleared: what was there before is withdrawn": (noted("70", "50"), "50", None, OURS, "50"),
    "what was there before shows still": (noted("70", "50"), "50", "70", noted("70", "50"), "50"),
    "raised, but not above what was there": (noted("70", "50"), "500", "50", noted("70", None, "500", "50"), "70"),
    "raised": (OURS, "500", "50", noted(None, "500", "500", "50"), "500"),
    "lowered": (OURS, "20", "50", noted(None, "20", "20", "50"), "20"),
    "someone set a stricter one since": (OURS, "50", "7", OURS, "7"),
    "someone set a looser one since": (OURS, "50", "99", OURS, "99"),
    "lowered below what someone set since": (OURS, "20", "99", noted("99", "20", "20", "50"), "20"),
    "lowered, and someone has a stricter one": (OURS, "20", "7", noted(None, "50", "20"), "7"),
    "lowered to what someone had set before": (OURS, "20", "20", noted(None, "50", "20"), "20"),
    "an earlier one of ours shows": (noted(None, "20", "20", "50"), "20", "50", noted(None, "20", "20", "50"), "20"),
    "back to an earlier one of ours": (noted(None, "20", "20", "50"), "50", "20", noted(None, "50", "50", "20"), "50"),
    "another plan asks for a stricter one": (BESIDE_80, "90", "50", noted(None, "80", "90", "50", q="80"), "80"),
    "as before, which was cleared": (OURS, None, None, OURS, "50"),
    "somebody took its rate out of the lease": (OF_NO_RATE, None, None, OF_NO_RATE, None),
}


@pytest.mark.parametrize(("known", "rate", "now", "then", "wanted"), RATES.values(), ids=RATES)
def test_the_rate_of_a_broker(
    known: ThrottleLease | None, rate: str | None, now: str | None, then: ThrottleLease | None, wanted: str | None
) -> None:
    assert decide_rate(known, "p", rate, now) == (then, wanted)


RATES_BESIDE_ONE_FOR_ALL = {
    "a stricter one is there for all": (None, "50", (None, "7"), noted(None, None), None),
    "the same is there for all": (None, "50", (None, "50"), noted(None, None), None),
    "the strictest is there for all": (None, "50", (None, "0"), noted(None, None), None),
    "a looser one is there for all": (None, "50", (None, "70"), OURS, "50"),
    "the broker's own one hides the stricter one for all": (None, "50", ("70", "7"), noted("70", "50"), "50"),
    "the broker's own stricter one hides the one for all": (None, "50", ("7", "9"), noted("7", None), "7"),
    "the stricter one for all stays": (noted(None, None), "50", (None, "7"), noted(None, None), None),
    "the one for all was loosened": (noted(None, None), "50", (None, "70"), OURS, "50"),
    "the one for all was deleted": (noted(None, None), "50", (None, None), OURS, "50"),
    "someone set a looser one on the broker": (noted(None, None), "50", ("99", "7"), noted("99", "50"), "50"),
    "ours is made stricter than the one for all": (noted(None, None), "5", (None, "7"), noted(None, "5", "5"), "5"),
    "a stricter one for all appeared": (OURS, "50", ("50", "7"), TAKEN_BACK, None),
    "a looser one for all appeared": (OURS, "50", ("50", "70"), OURS, "50"),
    "a stricter one for all appeared, and ours was cleared": (OURS, "50", (None, "7"), TAKEN_BACK, None),
    "someone set one on the broker, and then one for all": (OURS, "50", ("99", "7"), OURS, "99"),
    "all was cleared on the broker, and one for all appeared": (noted("70", "50"), "50", (None, "7"), TAKEN_BACK, None),
    "what was there before hides the one for all": (noted("70", "50"), "50", ("50", "7"), noted("70", "50"), "50"),
    "ours, which was taken back, shows still": (TAKEN_BACK, "50", ("50", "7"), TAKEN_BACK, None),
    "ours, which was taken back, shows, and the one for all was loosened": (TAKEN_BACK, "50", ("50", "70"), OURS, "50"),
    "as before, and the one for all was deleted": (TAKEN_BACK, None, (None, None), OURS, "50"),
    "ours was set too late over a stricter one": (SET_LATE, "50", ("50", None), SET_LATE, "7"),
    "another plan asks for a stricter one than there is for all": (BESIDE_20, "50", ("20", "30"), BESIDE_20, "20"),
    "the plan that asked for a stricter one has ended": (
        noted(None, "20", "50"),
        "50",
        ("20", "30"),
        noted(None, None, "50", "20"),
        None,
    ),
}


@pytest.mark.parametrize(
    ("known", "rate", "shown", "then", "wanted"), RATES_BESIDE_ONE_FOR_ALL.values(), ids=RATES_BESIDE_ONE_FOR_ALL
)
def test_the_rate_of_a_broker_with_one_for_all_brokers(
    known: ThrottleLease | None,
    rate: str | None,
    shown: tuple[str | None, str | None],
    then: ThrottleLease,
    wanted: str | None,
) -> None:
    assert decide_rate(known, "p", rate, *shown) == (then, wanted)


some_rate = st.none() | st.integers(0, 9).map(str)


@given(st.lists(st.tuples(some_rate, st.integers(1, 9).map(str)), min_size=1))
def test_a_rate_is_never_looser_than_the_plans_or_that_for_all_brokers(
    steps: list[tuple[str | None, str]],
) -> None:
    """And what is left of it in the end is what was there before: nothing."""
    known: ThrottleLease | None = None
    own: str | None = None
    for inherited, rate in steps:
        known, own = decide_rate(known, "p", rate, own, inherited)
        applies = own or inherited
        assert applies is not None
        assert int(applies) == min(int(each) for each in (inherited, rate) if each is not None)
        assert own is None or inherited is None or int(own) < int(inherited)
    assert known is not None
    assert own is None or rate_restoring_change(own, known, "k") == ConfigChange("k", ConfigOp.DELETE)


SET_70, DELETED = ConfigChange("k", ConfigOp.SET, "70"), ConfigChange("k", ConfigOp.DELETE)
#: What is written down, and what each rate that shows becomes.
RESTORED = {
    "ours, or an earlier one of ours": (noted("70", "20", "20", "50"), dict.fromkeys(("20", "50", "70"), SET_70)),
    "neither shows": (noted("70", "20", "20", "50"), {"9": None, None: None}),
    "ours, where none was, which may be on its way": (OURS, {"50": DELETED, None: DELETED, "6": None}),
    "ours, where one was": (ThrottleLease("70", "5"), {"5": SET_70}),
    "taken back": (TAKEN_BACK, {"50": DELETED, None: None, "9": None}),
    "never set": (noted("7", None), {"7": None, "50": None, None: None}),
    "taken back, and the one before was cleared": (noted("7", None, "50", "50"), {None: None}),
}


@pytest.mark.parametrize(("lease", "restored"), RESTORED.values(), ids=RESTORED)
def test_a_rate_of_ours_is_deleted_or_what_was_there_is_set_again(
    lease: ThrottleLease, restored: dict[str | None, ConfigChange | None]
) -> None:
    assert {now: rate_restoring_change(now, lease, "k") for now in restored} == restored


def test_what_was_set_too_late_is_leased_again() -> None:
    assert lease_late_rate(None, "p", "50", "70") == noted("70", "50")
    others = ThrottleLease(None, "80", {"q": ("80",)})
    assert lease_late_rate(others, "p", "50", "80") == ThrottleLease(None, "80", {"q": ("80",), "p": ("50",)}, ("50",))
    assert lease_late_rate(noted(None, "50", "50", "20"), "p", "50", None) == noted(None, "50", "50", "20")
    assert lease_late_rate(noted(None, "20", "20"), "p", "50", None) == noted(None, "20", "20", "50")


def test_no_more_than_twenty_rates_are_remembered() -> None:
    known: ThrottleLease | None = None
    for rate in range(100, 200):
        known, _ = decide_rate(known, "p", str(rate), None if known is None else known.ours)
    assert known is not None
    assert known.earlier == tuple(str(rate) for rate in range(179, 199))


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


FOLLOWER = ThrottleSide.FOLLOWER
LIST, RATE = FOLLOWER.replicas_key, FOLLOWER.rate_key

entry = st.builds("{}:{}".format, st.integers(0, 3), st.integers(1, 3))
some_entries = st.lists(entry, max_size=5, unique=True)


def cluster_of(entries: str = "") -> Simulator:
    simulator = Simulator.of("1a 2b 3c", "t: 123 123 123 123")
    if entries:
        simulator.topic_settings["t"][LIST] = entries
    return simulator


def leases_on(simulator: Simulator, journal: Journal | None = None) -> ThrottleLeases:
    journal = journal or memory_journal(simulator)
    return ThrottleLeases(
        simulator, journal, AuditedCalls(journal.audit, None), "f" * 64, attempts=lambda _: {}, who=WHO
    )


def demand(*entries: str, topic: str = "t", brokers: tuple[int, ...] = ()) -> ThrottleDemand:
    return ThrottleDemand({(topic, FOLLOWER): frozenset(entries)}, frozenset((broker, FOLLOWER) for broker in brokers))


def in_list(simulator: Simulator) -> set[str]:
    return set(parse_list(simulator.topic_settings["t"].get(LIST)))


def change(simulator: Simulator, op: ConfigOp, entries: list[str]) -> None:
    if entries:
        assert simulator.change_topic_configs({"t": [ConfigChange(LIST, op, ",".join(entries))]}) == {"t": None}


@given(others=some_entries, wanted=some_entries, later=some_entries, withdrawn=some_entries)
def test_after_the_release_the_list_is_what_others_made_of_it(
    others: list[str], wanted: list[str], later: list[str], withdrawn: list[str]
) -> None:
    simulator = cluster_of(",".join(others))
    leases = leases_on(simulator)
    leases.acquire(demand(*wanted), 5)
    assert set(wanted) <= in_list(simulator)
    ours = set(wanted) - set(others)

    # Somebody else adds and withdraws entries of their own, meanwhile.
    theirs = [each for each in later if each not in ours]
    change(simulator, ConfigOp.APPEND, theirs)
    gone = [each for each in withdrawn if each not in ours]
    change(simulator, ConfigOp.SUBTRACT, gone)

    for _ in range(2):
        leases.release(NO_DEMAND, frozenset(simulator.alive))
        assert in_list(simulator) == {*others, *theirs} - set(gone)


def test_a_list_that_was_left_empty_is_deleted_unless_it_was_there_before_us() -> None:
    """A process that saw an entry too many subtracted the last one, and died before it recorded that."""
    for before in (None, ""):
        simulator = cluster_of()
        if before is not None:
            simulator.topic_settings["t"][LIST] = before
        leases = leases_on(simulator)
        leases.acquire(demand("0:1"), 5)
        change(simulator, ConfigOp.SUBTRACT, ["0:1"])
        assert simulator.topic_settings["t"][LIST] == ""
        leases.release(NO_DEMAND, frozenset(simulator.alive))
        assert simulator.topic_settings["t"].get(LIST) == before


@given(wanted=some_entries)
def test_a_star_is_left_alone_and_needs_no_entries(wanted: list[str]) -> None:
    simulator = cluster_of("*")
    leases = leases_on(simulator)
    leases.acquire(demand(*wanted), 5)
    assert missing_entries("*", wanted) == ()
    leases.release(NO_DEMAND, frozenset(simulator.alive))
    assert simulator.topic_settings["t"][LIST] == "*"


@given(before=some_entries, wanted=some_entries)
def test_what_was_listed_before_us_is_never_ours(before: list[str], wanted: list[str]) -> None:
    assert set(missing_entries(",".join(before), wanted)) == set(wanted) - set(before)


def test_nothing_is_leased_of_a_topic_that_is_gone() -> None:
    simulator = cluster_of()
    journal = memory_journal(simulator)
    leases = leases_on(simulator, journal)
    leases.acquire(demand("0:1", topic="gone"), 5)
    assert not any("replicas" in row.key.setting for row in journal.rows(THROTTLE_LEASES).all())
    assert leases.release(NO_DEMAND, frozenset(simulator.alive)) == []


def rate_of(simulator: Simulator, broker: int) -> int | None:
    value = simulator.broker_settings[broker].get(RATE)
    return None if value is None else int(value)


def set_rate(simulator: Simulator, broker: int, rate: int | None) -> None:
    if rate is None:
        simulator.broker_settings[broker].pop(RATE, None)
    else:
        simulator.broker_settings[broker][RATE] = str(rate)


@given(before=st.none() | st.integers(1, 4), ours=st.integers(1, 3), meanwhile=st.integers(1, 5))
def test_a_rate_is_put_back_only_while_it_is_ours(before: int | None, ours: int, meanwhile: int) -> None:
    simulator = cluster_of()
    set_rate(simulator, 1, before)
    leases = leases_on(simulator)
    leases.acquire(demand("0:1", brokers=(1,)), ours)
    stricter = before is not None and before <= ours
    assert rate_of(simulator, 1) == (before if stricter else ours)
    set_rate(simulator, 1, meanwhile)
    assert leases.release(NO_DEMAND, frozenset(simulator.alive)) == []
    assert rate_of(simulator, 1) == (before if meanwhile == ours and not stricter else meanwhile)


def test_a_dead_brokers_rate_stays_leased() -> None:
    simulator = cluster_of()
    leases = leases_on(simulator)
    leases.acquire(demand("0:1", "0:2", brokers=(1, 2)), 5)
    simulator.kill(2)
    assert leases.release(NO_DEMAND, frozenset(simulator.alive)) == [2]
    assert (rate_of(simulator, 1), rate_of(simulator, 2)) == (None, 5)
    simulator.restart(2)
    assert leases.release(NO_DEMAND, frozenset(simulator.alive)) == []
    assert rate_of(simulator, 2) is None


def test_the_keys_are_kafkas_and_each_side_has_its_own() -> None:
    assert LIST == "follower.replication.throttled.replicas"
    assert ThrottleSide.LEADER.rate_key == "leader.replication.throttled.rate"
