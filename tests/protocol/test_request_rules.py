"""What documents that ask for reassignments mean: laws that hold for any cluster and any documents, and the cases."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.state import Snapshot
from kafka_steward.document_api.request_rules import (
    ActiveReassignment,
    ClusterView,
    RequestDecision,
    RequestedAssignment,
    RequestOutcome,
    decide_requests,
)
from tests.simulator import Simulator

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def snapshot(*dead: int, foreign: tuple[int, ...] = ()) -> Snapshot:
    simulator = Simulator.of("1a 2b 3c 4a 5b", "t: 123 231")
    for broker in dead:
        simulator.kill(broker)
    if foreign:
        simulator.alter({T0: foreign})
    return simulator.snapshot()


def asked(
    replicas: str, partition: TopicPartition = T0, *, source: str = "/r/1", legacy: bool = False
) -> RequestedAssignment:
    return RequestedAssignment(partition, tuple(map(int, replicas)), source, legacy)


def fate(one: RequestedAssignment, sight: ClusterView) -> tuple[str, str]:
    (decision,) = decide_requests([one], sight)
    return decision.outcome.value, decision.why


FLIES = ActiveReassignment((2, 3, 4), (1, 2, 3), plan="p")
GROWS = ActiveReassignment((1, 2, 3, 4), (1, 2, 3), plan="p")
TOO_FEW = (
    "its 3 original replicas are fewer than min.insync.replicas, 4; ask for more replicas than it has, or lower "
    "min.insync.replicas of its topic"
)
CASES = [
    (asked("145"), ClusterView(snapshot()), ("move", "")),
    (asked("321"), ClusterView(snapshot()), ("move", "")),
    (asked("123"), ClusterView(snapshot()), ("done", "it already has the replicas [1, 2, 3]")),
    (asked("12", TopicPartition("t", 7)), ClusterView(snapshot()), ("refuse", "there is no such partition")),
    (asked("12", TopicPartition("x", 0)), ClusterView(snapshot()), ("refuse", "there is no such partition")),
    (asked(""), ClusterView(snapshot()), ("refuse", "it names no broker")),
    (asked("129"), ClusterView(snapshot()), ("refuse", "the cluster has no broker 9")),
    (asked("124"), ClusterView(snapshot(4)), ("refuse", "broker 4 is not live; submit it again when it is")),
    (asked("145"), ClusterView(snapshot(foreign=(5, 2, 3))), ("refuse", "an external reassignment is moving it")),
    (asked("145"), ClusterView(snapshot(foreign=(2, 3, 4)), {T0: FLIES}), ("supersede", "")),
    (asked("123"), ClusterView(snapshot(foreign=(2, 3, 4)), {T0: FLIES}), ("supersede", "")),
    (
        asked("234"),
        ClusterView(snapshot(foreign=(2, 3, 4)), {T0: FLIES}),
        ("done", "it is already being reassigned to [2, 3, 4]"),
    ),
    (
        asked("145", legacy=True),
        ClusterView(snapshot(), {T0: FLIES}),
        ("refuse", "it is already being reassigned by another API, a request"),
    ),
    (
        asked("145"),
        ClusterView(snapshot(), {T0: ActiveReassignment((2, 3, 4), None, legacy=True)}),
        ("refuse", "it is already being reassigned by another API, /admin/reassign_partitions"),
    ),
    (asked("145"), ClusterView(snapshot(), min_isr={"t": 4}), ("refuse", TOO_FEW)),
    (asked("145"), ClusterView(snapshot(), min_isr={"t": 3}), ("move", "")),
    (
        asked("145"),
        ClusterView(snapshot(foreign=(2, 3, 4)), {T0: FLIES}, min_isr={"t": 4}),  # four replicas while it flies
        ("refuse", TOO_FEW),
    ),
    (
        asked("145"),
        ClusterView(snapshot(foreign=(2, 3, 4)), {T0: ActiveReassignment((2, 3, 4), None, plan="p")}, min_isr={"t": 4}),
        ("supersede", ""),
    ),
    (asked("1234"), ClusterView(snapshot(), min_isr={"t": 5}), ("move", "")),  # it grows
    (asked("312"), ClusterView(snapshot(), min_isr={"t": 4}), ("refuse", TOO_FEW)),
    # The way back from a reassignment that added replicas.
    (asked("123"), ClusterView(snapshot(foreign=(1, 2, 3, 4)), {T0: GROWS}, min_isr={"t": 4}), ("supersede", "")),
    (asked("145"), ClusterView(snapshot(), min_isr={"u": 4}), ("move", "")),
    (asked("145"), ClusterView(snapshot(), {T0: ActiveReassignment((2, 3, 4), (), plan="p")}), ("supersede", "")),
]


@pytest.mark.parametrize(("one", "sight", "expected"), CASES)
def test_what_becomes_of_one(one: RequestedAssignment, sight: ClusterView, expected: tuple[str, str]) -> None:
    assert fate(one, sight) == expected


def test_a_replica_may_stay_on_a_broker_that_is_gone_altogether() -> None:
    seen = snapshot(3)
    seen = replace(seen, brokers={broker: each for broker, each in seen.brokers.items() if broker != 3})
    assert fate(asked("312"), ClusterView(seen)) == ("move", "")
    assert fate(asked("312", T1), ClusterView(seen)) == ("move", "")


def test_of_two_that_ask_at_once_the_later_counts() -> None:
    both = [asked("145", source="/r/1"), asked("245", source="/r/2"), asked("145", T1, source="/r/2")]
    told = decide_requests(both, ClusterView(snapshot()))
    assert [each.outcome for each in told] == [RequestOutcome.OVERTAKEN, RequestOutcome.MOVE, RequestOutcome.MOVE]
    assert told[0].why == "/r/2 has since requested [2, 4, 5]"


def test_of_two_that_ask_at_once_by_two_routes_the_earlier_counts() -> None:
    told = decide_requests([asked("145"), asked("245", legacy=True)], ClusterView(snapshot()))
    assert [each.outcome for each in told] == [RequestOutcome.MOVE, RequestOutcome.REFUSE]


BROKERS = st.lists(st.sampled_from([1, 2, 3, 4, 5, 9]), max_size=4, unique=True).map(tuple)
NAMES = st.sampled_from([T0, T1, TopicPartition("t", 2)])
ASKED = st.builds(RequestedAssignment, NAMES, BROKERS, st.sampled_from(["/r/1", "/r/2"]), st.booleans())
FLIGHT = st.builds(ActiveReassignment, BROKERS, st.none() | BROKERS, st.booleans(), st.sampled_from(["p", "q", None]))
SIGHTS = st.builds(
    ClusterView,
    st.sampled_from([snapshot(), snapshot(4), snapshot(1, 5), snapshot(foreign=(5, 2, 3))]),
    st.dictionaries(NAMES, FLIGHT, max_size=3),
    st.dictionaries(st.just("t"), st.integers(1, 4), max_size=1),
)


def begins(decision: RequestDecision) -> bool:
    return decision.outcome in {RequestOutcome.MOVE, RequestOutcome.SUPERSEDE}


@given(st.lists(ASKED, max_size=8), SIGHTS)
def test_laws(documents: list[RequestedAssignment], sight: ClusterView) -> None:
    told = decide_requests(documents, sight)
    assert [each.asked for each in told] == documents
    beginning = [each for each in told if begins(each)]
    assert len({each.asked.partition for each in beginning}) == len(beginning)
    for each in beginning:
        asked_for, flight = each.asked, sight.active.get(each.asked.partition)
        assert asked_for.replicas
        assert frozenset(asked_for.replicas) <= frozenset(range(1, 6))
        assert flight is None or flight.legacy == asked_for.legacy
        assert (each.outcome is RequestOutcome.SUPERSEDE) == (flight is not None) == (each.active is not None)
        # Nobody who asked later, by the same route and for something that can be, was passed over.
        after = told[told.index(each) + 1 :]
        assert not [one for one in after if one.asked.partition == asked_for.partition and begins(one)]
    for each in told:
        said = {RequestOutcome.REFUSE, RequestOutcome.DONE, RequestOutcome.OVERTAKEN}
        assert bool(each.why) == (each.outcome in said)


@given(st.lists(ASKED, max_size=6), SIGHTS)
def test_what_is_refused_changes_nothing_for_the_others(
    documents: list[RequestedAssignment], sight: ClusterView
) -> None:
    told = decide_requests(documents, sight)
    kept = [each for each in told if each.outcome is not RequestOutcome.REFUSE]
    assert [(each.asked, each.outcome) for each in decide_requests([each.asked for each in kept], sight)] == [
        (each.asked, each.outcome) for each in kept
    ]
