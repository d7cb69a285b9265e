"""Who has failed is the cluster's word, never ours alone; and the lag and the missing bytes of replicas."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.health import (
    CopiedBytes,
    Health,
    PartitionCondition,
    copied_bytes,
    down_votes,
    failed_brokers,
    measure_health,
    partition_conditions,
    receiving_brokers,
)
from kafka_steward.cluster.state import (
    Broker,
    BrokerLogDirs,
    Partition,
    Snapshot,
    bytes_missing,
    lag,
    partitions_by_broker,
    without_stray_replicas,
)

BROKERS = range(1, 6)


def snapshot(live: set[int], replicas: tuple[int, ...], fenced: set[int] = frozenset()) -> Snapshot:  # type: ignore[assignment]  # empty
    brokers = {id_: Broker(id_, "host", 9092, fenced=id_ in fenced) for id_ in live | fenced}
    partition = Partition("t", 0, replicas, frozenset(replicas) & live, leader=None)
    return Snapshot("id", 0, brokers, {TopicPartition("t", 0): partition})


def test_a_dead_broker_with_replicas_has_failed_when_two_others_say_so() -> None:
    views = {1: frozenset({1, 2, 3}), 2: frozenset({1, 2, 3}), 3: frozenset({1, 2, 3, 4})}
    assert failed_brokers(snapshot({1, 2, 3}, (4, 1, 2)), views) == {4}
    assert down_votes(snapshot({1, 2, 3}, (4, 1, 2)), views) == {4: {1, 2}}


def test_one_word_is_not_enough_while_there_are_two_who_could_speak() -> None:
    assert failed_brokers(snapshot({1, 2, 3}, (4, 1, 2)), {1: frozenset({1, 2, 3})}) == frozenset()


ALL_OF_THREE = dict.fromkeys({1, 2, 3}, frozenset({1, 2, 3}))


@pytest.mark.parametrize(
    ("seen", "views", "failed"),
    [
        (snapshot({1}, (4, 1)), {1: frozenset({1})}, {4}),
        (snapshot({1, 2, 3}, (4, 1), fenced={4}), ALL_OF_THREE, {4}),
        (snapshot({1, 2, 3}, (1, 2), fenced={4}), ALL_OF_THREE, set()),
        (snapshot({1, 2, 3}, (1, -1)), ALL_OF_THREE, set()),
        (snapshot(set(), (1, 2, 3)), {}, set()),
    ],
    ids=["the word of the only one left", "fenced", "without replicas", "a placeholder", "a silent cluster"],
)
def test_who_has_failed(seen: Snapshot, views: dict[int, frozenset[int]], failed: set[int]) -> None:
    assert failed_brokers(seen, views) == failed


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
    in_flight = Partition("t", 0, (1, 2, 4, 3), frozenset(isr), leader, adding=(4,), removing=(3,))
    rest = Partition("t", 1, (2, 3), frozenset({2, 3}), 2)
    return Snapshot("id", 0, brokers, {each.topic_partition: each for each in (in_flight, rest)})


def looked(snapshot: Snapshot, sizes: dict[int, int] | None = None, **more: object) -> Health:
    dirs = {broker: BrokerLogDirs({TopicPartition("t", 0): size}) for broker, size in (sizes or {}).items()}
    facts = {"min_isr": {"t": 2}, "ends": {}, "copies": copied_bytes(snapshot, dirs, 2_000)}
    return measure_health(snapshot, **{**facts, **more})  # type: ignore[arg-type]  # what is not given is the usual


def test_a_reassignment_by_itself_makes_no_partition_under_replicated() -> None:
    health = looked(moving({1, 2, 3}))
    assert (health.under_replicated, health.reassigning) == ((), (TopicPartition("t", 0),))


def test_kip_352s_formula_counts_the_isr_against_the_replicas_without_those_being_added() -> None:
    assert looked(moving({1, 2})).under_replicated == (TopicPartition("t", 0),)
    assert looked(moving({1, 2, 4})).under_replicated == ()
    assert looked(moving({1})).under_min_isr == (TopicPartition("t", 0),)
    assert looked(moving(set(), leader=None)).offline == (TopicPartition("t", 0),)


def one(replicas: str, isr: str, *, adding: str = "", removing: str = "", topic_id: str = "id1") -> Snapshot:
    """A cluster of one partition; single-digit brokers."""
    assigned, in_sync, added, removed = (tuple(map(int, digits)) for digits in (replicas, isr, adding, removing))
    brokers = {id_: Broker(id_, "host", 9092) for id_ in (1, 2, 3, 4)}
    leader = in_sync[0] if in_sync else None
    partition = Partition("t", 0, assigned, frozenset(in_sync), leader, topic_id, adding=added, removing=removed)
    return Snapshot("id", 0, brokers, {partition.topic_partition: partition})


@pytest.mark.parametrize(
    ("snapshot", "min_isr", "conditions"),
    [
        (one("123", "123"), 2, ""),
        (one("123", "12"), 2, "under_replicated at_min_isr"),
        (one("123", "1"), 2, "under_replicated under_min_isr"),
        (one("123", "1"), None, "under_replicated"),
        (one("1", "1"), 2, "at_min_isr"),
        (one("123", "1", adding="23"), 2, "under_min_isr reassigning"),
        (one("123", "12", adding="23"), 2, "at_min_isr reassigning"),
        (one("123", "123", removing="3"), 2, "reassigning"),
        (one("12", ""), 1, "under_replicated under_min_isr offline"),
    ],
)
def test_a_partition_meets_the_conditions_by_which_kafkas_tool_selects_and_brokers_accept_acks_all(
    snapshot: Snapshot, min_isr: int | None, conditions: str
) -> None:
    (partition,) = snapshot.partitions.values()
    assert partition_conditions(partition, min_isr) == tuple(map(PartitionCondition, conditions.split()))


def test_a_partition_without_a_leader_accepts_nothing_and_so_is_not_at_min_isr() -> None:
    (partition,) = one("1", "1").partitions.values()
    assert partition_conditions(replace(partition, leader=None), 1) == (PartitionCondition.OFFLINE,)


@pytest.mark.parametrize(
    ("replicas", "adding", "removing", "isr", "under_replicated"),
    [
        ("123", "23", "", "1", False),
        ("123", "23", "", "12", False),
        ("1234", "34", "", "12", False),
        ("1234", "34", "", "1", True),
        ("123", "", "23", "123", False),
        ("123", "", "23", "12", True),
        ("123", "", "23", "1", True),
        ("123", "", "", "1", True),
        ("1", "", "", "1", False),
    ],
)
def test_a_replication_factor_that_changes_counts_when_the_reassignment_is_complete(
    replicas: str, adding: str, removing: str, isr: str, *, under_replicated: bool
) -> None:
    health = looked(one(replicas, isr, adding=adding, removing=removing))
    assert bool(health.under_replicated) is under_replicated
    assert bool(health.reassigning) is bool(adding or removing)


def test_a_partition_with_fewer_replicas_than_min_isr_needs_no_more_than_it_has() -> None:
    assert looked(one("1", "1"), min_isr={"t": 2}).under_min_isr == ()
    assert looked(one("12", "12"), min_isr={"t": 3}).under_min_isr == ()
    assert looked(one("12", "1"), min_isr={"t": 3}).under_min_isr == (TopicPartition("t", 0),)


def test_replicas_being_added_count_for_min_isr_as_in_kafka_which_refuses_acks_all_meanwhile() -> None:
    assert looked(one("123", "1", adding="23"), min_isr={"t": 2}).under_min_isr == (TopicPartition("t", 0),)
    assert looked(one("123", "12", adding="23"), min_isr={"t": 2}).under_min_isr == ()
    assert looked(one("123", "12", adding="3"), min_isr={"t": 3}).under_min_isr == (TopicPartition("t", 0),)
    assert looked(one("123", "1", adding="23"), min_isr={}).under_min_isr == ()


def test_the_max_lag_is_zero_while_nothing_is_reassigned() -> None:
    health = looked(one("123", "12"))
    assert (health.max_lag, health.measures["reassignment_max_lag"]) == (0, 0)


def test_pending_replicas_are_a_measure() -> None:
    assert looked(one("12", "12"), pending=3).measures["pending_replicas"] == 3


def test_only_what_replicas_being_added_hold_counts_as_copied() -> None:
    """Broker 4 receives a replica of t-0, and has one of t-1, to which producers write, and which moves to broker 3."""
    brokers = {id_: Broker(id_, "host", 9092) for id_ in (1, 2, 3, 4)}
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    receiving = Partition("t", 0, (1, 4), frozenset({1}), 1, adding=(4,))
    written = Partition("t", 1, (4, 3), frozenset({4}), 4, adding=(3,))
    snapshot = Snapshot("id", 0, brokers, {first: receiving, second: written})
    before = copied_bytes(
        snapshot, {3: BrokerLogDirs({second: 10}), 4: BrokerLogDirs({first: 10, second: 1_000})}, 1_000
    )
    after = copied_bytes(
        snapshot, {3: BrokerLogDirs({second: 30}), 4: BrokerLogDirs({first: 40, second: 9_000})}, 2_000
    )
    assert after.bytes_ == {(first, 4): 40, (second, 3): 30}
    health = measure_health(snapshot, min_isr={}, ends={}, copies=after, before=before)
    assert health.bytes_in == {1: 0, 2: 0, 3: 20, 4: 30}
    assert health.bytes_out == {1: 30, 2: 0, 3: 0, 4: 20}


def test_the_max_lag_is_that_of_replicas_being_added() -> None:
    name = TopicPartition("t", 0)
    ends = {(name, 1): 500, (name, 2): 400, (name, 3): 0, (name, 4): 120}
    assert looked(moving({1, 2, 3}), ends=ends).max_lag == 380
    assert looked(moving({1, 2, 3})).max_lag is None
    assert "reassignment_max_lag" not in looked(moving({1, 2, 3})).measures


def test_bytes_per_second_go_into_the_new_broker_and_out_of_the_leader() -> None:
    snapshot = moving({1, 2, 3})
    before = copied_bytes(snapshot, {4: BrokerLogDirs({TopicPartition("t", 0): 1_000})}, 1_000)
    health = looked(snapshot, {4: 3_500}, before=before)
    assert health.bytes_in == {1: 0, 2: 0, 3: 0, 4: 2_500}
    assert health.bytes_out == {1: 2_500, 2: 0, 3: 0, 4: 0}
    assert health.measures["reassignment_bytes_in_per_sec.4"] == 2_500
    assert looked(snapshot, {4: 3_500}).bytes_in == {}


def test_the_partitions_that_a_broker_leads_are_counted_for_it_and_a_dead_broker_leads_none() -> None:
    names = [TopicPartition("t", number) for number in range(4)]
    partitions = (
        Partition("t", 0, (1, 2, 4, 3), frozenset({1, 2}), 1, adding=(4,), removing=(3,)),
        Partition("t", 1, (1, 5), frozenset({1}), 1),
        Partition("t", 2, (2, 3), frozenset({2, 3}), 2, removing=(3,)),
        Partition("t", 3, (5,), frozenset(), None),
    )
    brokers = {id_: Broker(id_, "host", 9092) for id_ in (1, 2, 3, 4)}
    health = looked(Snapshot("id", 0, brokers, dict(zip(names, partitions, strict=True))))
    assert health.under_replicated == (names[0], names[1], names[3])
    assert health.under_replicated_by_leader == {1: 2, 2: 0, 3: 0, 4: 0, 5: 0}
    assert health.reassigning_by_leader == {1: 1, 2: 1, 3: 0, 4: 0, 5: 0}
    assert health.measures["under_replicated_partitions.1"] == 2
    assert health.measures["reassigning_partitions.2"] == 1
    assert health.measures["under_replicated_partitions.5"] == 0


def sized(snapshot: Snapshot, at_ms: int, before: CopiedBytes | None = None, **sizes: int) -> CopiedBytes:
    """The copied bytes at a check: the sizes of t-0 by broker, `b4=100`; the other brokers do not respond."""
    dirs = {int(name[1:]): BrokerLogDirs({TopicPartition("t", 0): size}) for name, size in sizes.items()}
    return copied_bytes(snapshot, dirs, at_ms, before)


def rates(snapshot: Snapshot, copies: CopiedBytes, before: CopiedBytes) -> dict[int, float]:
    """The bytes per second that are copied in, of the brokers that copy."""
    into = measure_health(snapshot, min_isr={}, ends={}, copies=copies, before=before).bytes_in
    return {broker: rate for broker, rate in into.items() if rate}


def test_a_move_that_began_and_ended_between_two_checks_counts_with_the_size_of_its_new_replica() -> None:
    before = sized(one("123", "123"), 1_000)
    moved = one("124", "124")
    assert receiving_brokers(moved, before) == {4}
    copies = sized(moved, 3_000, before, b1=600, b4=600)
    health = measure_health(moved, min_isr={}, ends={}, copies=copies, before=before)
    assert health.bytes_in == {1: 0, 2: 0, 3: 0, 4: 300}
    assert health.bytes_out == {1: 300, 2: 0, 3: 0, 4: 0}
    assert receiving_brokers(moved, copies) == frozenset()
    assert rates(moved, sized(moved, 5_000, copies, b1=900, b4=900), copies) == {}, "what is written later is no copy"


def test_the_rest_of_a_move_that_ended_between_two_checks_counts() -> None:
    before = sized(one("1243", "123", adding="4", removing="3"), 1_000, b4=200)
    moved = one("124", "124")
    assert receiving_brokers(moved, before) == {4}
    assert rates(moved, sized(moved, 3_000, before, b4=600), before) == {4: 200}


def test_a_move_that_began_between_two_checks_counts_from_its_first_byte() -> None:
    before = sized(one("123", "123"), 1_000)
    moving = one("1243", "123", adding="4", removing="3")
    assert rates(moving, sized(moving, 2_000, before, b4=200), before) == {4: 200}


@pytest.mark.parametrize("later", [one("123", "123"), one("123", "123", topic_id="id2")])
def test_a_move_that_was_cancelled_between_two_checks_is_not_seen(later: Snapshot) -> None:
    before = sized(one("1243", "123", adding="4", removing="3"), 1_000, b4=200)
    assert receiving_brokers(later, before) == frozenset()
    assert rates(later, sized(later, 2_000, before, b3=600, b4=600), before) == {}


def test_replicas_of_a_recreated_topic_were_not_copied() -> None:
    before = sized(one("123", "123"), 1_000)
    anew = one("124", "124", topic_id="id2")
    assert receiving_brokers(anew, before) == frozenset()
    moving = one("124", "12", adding="4", topic_id="id2")
    assert rates(moving, sized(moving, 2_000, before, b4=600), before) == {}
    new = Snapshot("id", 0, anew.brokers, {})
    assert receiving_brokers(anew, sized(new, 1_000)) == frozenset(), "nor those of a new topic"
    without_ids = {name: replace(each, topic_id=None) for name, each in anew.partitions.items()}
    old_kafka = replace(anew, partitions=without_ids)
    assert receiving_brokers(old_kafka, sized(new, 1_000)) == frozenset(), "nor where Kafka has no topic ids"


def test_what_a_broker_copies_while_it_reports_no_sizes_counts_when_it_reports_them_again() -> None:
    moving, moved = one("1243", "123", adding="4", removing="3"), one("124", "124")
    first = sized(moving, 1_000, b4=200)
    second = sized(moving, 2_000, first)
    assert rates(moving, second, first) == {}
    third = sized(moved, 3_000, second)
    assert rates(moved, third, second) == {}
    assert receiving_brokers(moved, third) == {4}
    assert rates(moved, sized(moved, 4_000, third, b4=600), third) == {4: 400}


def test_a_broker_that_reported_no_sizes_at_the_first_check_has_copied_unknown_bytes_since() -> None:
    moving = one("1243", "123", adding="4", removing="3")
    first = sized(moving, 1_000)
    second = sized(moving, 2_000, first, b4=600)
    assert rates(moving, second, first) == {}
    assert rates(moving, sized(moving, 3_000, second, b4=700), second) == {4: 100}


def test_a_placeholder_and_a_dead_broker_copy_nothing() -> None:
    before = sized(one("1", "1"), 1_000)
    name = TopicPartition("t", 0)
    partition = Partition("t", 0, (1, -1, 5), frozenset({1}), 1, "id1", adding=(-1,))
    later = Snapshot("id", 0, {1: Broker(1, "host", 9092)}, {name: partition})
    assert receiving_brokers(later, before) == frozenset()
    assert measure_health(later, min_isr={}, ends={}, copies=sized(later, 2_000, before), before=before).bytes_in == {
        1: 0,
        5: 0,
    }


def test_imbalance_is_how_far_the_fullest_broker_is_above_the_mean() -> None:
    health = looked(moving({1, 2, 3}))
    assert health.replica_imbalance == pytest.approx(2 / 1.5 - 1)
    assert health.leader_imbalance == pytest.approx(1 / 0.5 - 1)


NAME = TopicPartition("t", 0)
PARTITION = Partition("t", 0, replicas=(1, 2, 3), isr=frozenset({1, 2}), leader=1)
sizes = st.none() | st.integers(0, 2**63 - 1)


def dirs(leader: int | None, follower: int | None) -> dict[int, BrokerLogDirs]:
    found = {1: leader, 3: follower}
    return {broker: BrokerLogDirs({} if size is None else {NAME: size}) for broker, size in found.items()}


def test_lag_is_unknown_while_either_end_or_the_leader_is() -> None:
    offline = Partition("t", 0, (1, 2, 3), frozenset(), leader=None)
    assert lag({(NAME, 1): 4000}, PARTITION, 3) is None
    assert lag({(NAME, 3): 129}, PARTITION, 3) is None
    assert lag({(NAME, 1): 4000, (NAME, 3): 129}, offline, 3) is None


@given(leader=st.integers(0), follower=st.integers(0))
def test_lag_is_never_negative(leader: int, follower: int) -> None:
    assert lag({(NAME, 1): leader, (NAME, 3): follower}, PARTITION, 3) == max(0, leader - follower)


@given(leader=sizes, follower=sizes)
def test_missing_bytes_are_unknown_or_between_nothing_and_all(leader: int | None, follower: int | None) -> None:
    missing = bytes_missing(dirs(leader, follower), PARTITION, 3)
    assert missing is None if leader is None else missing is not None and 0 <= missing <= leader


def test_a_broker_that_holds_nothing_yet_lacks_everything_and_one_that_is_not_reached_is_unknown() -> None:
    assert bytes_missing(dirs(32_000, None), PARTITION, 3) == 32_000
    assert bytes_missing({1: BrokerLogDirs({NAME: 32_000})}, PARTITION, 3) is None


def test_all_replicas_are_asked_at_the_brokers_that_hold_them() -> None:
    other = Partition("u", 7, (3,), frozenset({3}), leader=3)
    assert partitions_by_broker([PARTITION, other]) == {1: [NAME], 2: [NAME], 3: [NAME, TopicPartition("u", 7)]}


def test_strays_of_a_returned_broker_do_not_belong_to_it() -> None:
    moved, gone = TopicPartition("moved", 0), TopicPartition("gone", 0)
    snapshot = Snapshot("id", 0, {}, {NAME: PARTITION, moved: Partition("moved", 0, (1,), frozenset({1}), leader=1)})
    directory = BrokerLogDirs({NAME: 5, moved: 6, gone: 7}, total_bytes=100, usable_bytes=80)
    assert without_stray_replicas(directory, snapshot, 3) == BrokerLogDirs({NAME: 5}, total_bytes=100, usable_bytes=80)
