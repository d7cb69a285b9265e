"""What is leased is released, and what others wrote stays: whatever they do in between."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafka_steward.cluster.configs import ConfigChange, ConfigOp, parse_list
from kafka_steward.execution.effects import AuditedCalls
from kafka_steward.execution.throttle_rates import (
    NO_DEMAND,
    ThrottleDemand,
    ThrottleSide,
    missing_entries,
    rate_restoring_change,
)
from kafka_steward.execution.throttles import ThrottleLeases
from kafka_steward.journal import paths
from kafka_steward.journal.records import ThrottleLease
from kafka_steward.journal.store import Journal
from tests.simulated_plan import WHO, memory_journal
from tests.simulator import Simulator

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
    assert journal.tree.children(paths.leases_of("topic")) == []
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


def test_a_rate_that_was_not_there_is_deleted_not_set_to_some_default() -> None:
    assert rate_restoring_change("5", ThrottleLease(None, "5"), "k") == ConfigChange("k", ConfigOp.DELETE)
    assert rate_restoring_change("5", ThrottleLease("7", "5"), "k") == ConfigChange("k", ConfigOp.SET, "7")
    assert rate_restoring_change(None, ThrottleLease(None, "5"), "k") == ConfigChange("k", ConfigOp.DELETE), (
        "ours may be on its way"
    )
    assert rate_restoring_change("6", ThrottleLease(None, "5"), "k") is None


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
