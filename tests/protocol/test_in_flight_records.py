"""KIP-236: the in-flight records correspond precisely to what is being reassigned, whoever began it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_steward.assignment import TopicPartition
from kafka_steward.document_api.in_flight_tracking import sweep_external_records
from kafka_steward.execution.in_flight_records import list_in_flight
from kafka_steward.journal import paths
from kafka_steward.journal.kip_documents import InFlight
from tests.protocol.simulated_watch import Yard, partition

T0 = partition("t-0")
#: Where each step may send a partition.
TARGETS = ["12", "23", "34", "215", "451", "3"]
STEPS = st.one_of(
    st.tuples(st.just("others"), st.integers(0, 2), st.sampled_from(TARGETS)),
    st.tuples(st.just("others cancel"), st.integers(0, 2)),
    st.tuples(st.just("request"), st.integers(0, 2), st.sampled_from(TARGETS)),
    st.tuples(st.just("stale"), st.integers(0, 2), st.sampled_from(TARGETS)),
    st.tuples(st.just("lost"), st.integers(0, 2)),
    st.tuples(st.just("tick"), st.integers(1, 6)),
    st.tuples(st.just("new watch")),
)


def take(yard: Yard, step: tuple[object, ...]) -> None:
    kind, *words = step
    name = TopicPartition("t", words[0]) if words and kind != "tick" else T0  # type: ignore[arg-type]
    replicas = tuple(map(int, words[1])) if len(words) == 2 else ()  # type: ignore[call-overload]
    if kind == "others":
        yard.simulator.alter({name: replicas})
    elif kind == "others cancel":
        yard.simulator.cancel([name])
    elif kind == "request":
        yard.ask(f"{name} {words[1]}")
    elif kind == "stale" and yard.journal.tree.get(paths.reassignment(name)) is None:
        yard.journal.tree.create(paths.reassignment(name), InFlight((1, 2), replicas).to_json())
    elif kind == "lost":
        discard(yard, name)
    elif kind == "tick":
        yard.simulator.tick(words[0])  # type: ignore[arg-type]
    elif kind == "new watch":
        yard.protocol = yard.new_watch()


def discard(yard: Yard, name: TopicPartition) -> None:
    node = yard.journal.tree.get(paths.reassignment(name))
    if node is not None:
        yard.journal.tree.discard(node)


@given(steps=st.lists(STEPS, max_size=12), zookeeper=st.booleans())
@settings(max_examples=150)
def test_after_any_poll_the_records_are_those_of_what_kafka_lists(
    steps: list[tuple[object, ...]], *, zookeeper: bool
) -> None:
    yard = Yard(zookeeper=zookeeper)
    for step in steps:
        take(yard, step)
        yard.look()
        noted, listed = list_in_flight(yard.journal.tree), set(yard.simulator.reassignments())
        assert listed <= set(noted), step
        # A move that copies nothing is complete as soon as it is submitted: the next step of its plan sees that.
        assert all(noted[name].plan for name in noted.keys() - listed), step
        yard.look()
        assert set(list_in_flight(yard.journal.tree)) == set(yard.simulator.reassignments()), step


@pytest.mark.parametrize("zookeeper", [True, False])
@pytest.mark.parametrize("legacy", [True, False])
def test_a_request_for_the_target_of_a_stale_record_is_carried_out(*, zookeeper: bool, legacy: bool) -> None:
    yard = Yard(zookeeper=zookeeper)
    yard.journal.tree.create(paths.reassignment(T0), InFlight((1, 2), (2, 3), legacy=legacy).to_json())
    yard.ask("t-0 23")
    said = yard.run()
    assert not any("already being reassigned" in sentence for sentence in said)
    assert yard.replicas("t-0") == (2, 3)


def test_what_others_begin_through_the_admin_api_is_recorded_with_its_originals_and_goes_with_its_end() -> None:
    yard = Yard()
    yard.simulator.alter({T0: (3, 4)})
    yard.look()
    assert yard.record("t-0") == InFlight((1, 2), (3, 4), top=2)
    node = yard.journal.tree.get(paths.reassignment(T0))
    yard.simulator.alter({T0: (4, 5)})
    yard.look()
    changed = yard.journal.tree.get(paths.reassignment(T0))
    assert yard.record("t-0") == InFlight((1, 2), (4, 5), top=2)
    assert node is not None
    assert changed is not None
    assert (changed.created_id, changed.modified_id > node.modified_id) == (node.created_id, True)
    yard.simulator.run()
    yard.look()
    assert yard.record("t-0") is None


def test_a_record_of_a_plan_that_was_deleted_externally_is_written_again_as_the_plans() -> None:
    yard = Yard()
    yard.ask("t-0 23")
    yard.look()
    noted = yard.record("t-0")
    assert noted is not None
    assert noted.plan is not None
    discard(yard, T0)
    yard.look()
    assert yard.record("t-0") == noted


def test_while_a_cancel_is_being_executed_the_originals_that_it_restores_are_kept() -> None:
    """It may have been killed between the cancel, after which nothing is in flight, and the order of the replicas."""
    yard = Yard()
    yard.journal.tree.create(paths.reassignment(T0), InFlight((2, 1), (2, 3)).to_json())
    signal = yard.journal.tree.create(paths.CANCEL_IN_PROGRESS, "")
    sweep_external_records(yard.simulator, yard.journal)
    assert yard.record("t-0") is not None
    yard.journal.tree.discard(signal)
    sweep_external_records(yard.simulator, yard.journal)
    assert yard.record("t-0") is None
