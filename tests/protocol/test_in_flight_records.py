"""KIP-236: in-flight records are of what is reassigned, whoever began it, also by `/admin/reassign_partitions`."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.state import Snapshot
from kafka_steward.document_api.controller import track_legacy_reassignments
from kafka_steward.document_api.in_flight_tracking import record_unrecorded, sweep_external_records
from kafka_steward.document_api.partition_rules import ActiveReassignment
from kafka_steward.errors import SettingError
from kafka_steward.execution.moves.in_flight import list_in_flight, retarget_in_flight
from kafka_steward.execution.plans.znode_submission import MAX_ZNODE_BYTES, ZnodeReassignmentClient
from kafka_steward.hooks.steward import StewardHook
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action
from kafka_steward.journal.kip_documents import InFlight
from kafka_steward.journal.mailbox import read_one
from tests.airflow_home import Connect
from tests.documents import change_document, create_document, delete_document
from tests.present import present
from tests.protocol.simulated_watch import Yard, document, partition
from tests.rings import tried
from tests.simulated_plan import WHO

T0, T1 = partition("t-0"), partition("t-1")
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
    elif kind == "stale" and read_one(yard.journal.mailbox, paths.reassignment(name)) is None:
        create_document(yard.journal.mailbox, paths.reassignment(name), InFlight((1, 2), replicas).to_json())
    elif kind == "lost":
        discard(yard, name)
    elif kind == "tick":
        yard.simulator.tick(words[0])  # type: ignore[arg-type]
    elif kind == "new watch":
        yard.protocol = yard.new_watch()


def discard(yard: Yard, name: TopicPartition) -> None:
    node = read_one(yard.journal.mailbox, paths.reassignment(name))
    if node is not None:
        yard.journal.mailbox.delete([node])


@given(steps=st.lists(STEPS, max_size=12), zookeeper=st.booleans())
@settings(max_examples=tried(150), deadline=None)
def test_after_any_poll_the_records_are_those_of_what_kafka_lists(
    steps: list[tuple[object, ...]], *, zookeeper: bool
) -> None:
    yard = Yard(zookeeper=zookeeper)
    for step in steps:
        take(yard, step)
        yard.look()
        noted, listed = list_in_flight(yard.journal.mailbox), set(yard.simulator.reassignments())
        assert listed <= set(noted), step
        # A move that copies nothing is complete as soon as it is submitted: the next step of its plan sees that.
        assert all(noted[name].plan for name in noted.keys() - listed), step
        yard.look()
        assert set(list_in_flight(yard.journal.mailbox)) == set(yard.simulator.reassignments()), step


@pytest.mark.parametrize("zookeeper", [True, False])
@pytest.mark.parametrize("legacy", [True, False])
def test_a_request_for_the_target_of_a_stale_record_is_carried_out(*, zookeeper: bool, legacy: bool) -> None:
    yard = Yard(zookeeper=zookeeper)
    create_document(yard.journal.mailbox, paths.reassignment(T0), InFlight((1, 2), (2, 3), legacy=legacy).to_json())
    yard.ask("t-0 23")
    said = yard.run()
    assert not any("already being reassigned" in sentence for sentence in said)
    assert yard.replicas("t-0") == (2, 3)


def test_what_others_begin_through_the_admin_api_is_recorded_with_its_originals_and_goes_with_its_end(
    yard: Yard,
) -> None:
    yard.simulator.alter({T0: (3, 4)})
    yard.look()
    assert yard.record("t-0") == InFlight((1, 2), (3, 4), top=2)
    node = read_one(yard.journal.mailbox, paths.reassignment(T0))
    yard.simulator.alter({T0: (4, 5)})
    yard.look()
    changed = read_one(yard.journal.mailbox, paths.reassignment(T0))
    assert yard.record("t-0") == InFlight((1, 2), (4, 5), top=2)
    assert node is not None
    assert changed is not None
    assert (changed.created_id, changed.modified_id > node.modified_id) == (node.created_id, True)
    yard.simulator.run()
    yard.look()
    assert yard.record("t-0") is None


def test_a_record_of_a_plan_that_was_deleted_externally_is_written_again_as_the_plans(yard: Yard) -> None:
    yard.ask("t-0 23")
    yard.look()
    noted = present(yard.record("t-0"))
    assert noted.plan is not None
    discard(yard, T0)
    yard.look()
    assert yard.record("t-0") == noted


CHANGED = {
    "another target": {"replicas": (5, 1)},
    "other originals": {"original_replicas": (4, 5)},
    "originals in another order": {"original_replicas": (2, 1)},
    "no plan": {"plan": None},
    "a plan that nobody knows": {"plan": "f" * 64},
    "a mark": {"legacy": True},
}


@pytest.mark.parametrize("changes", CHANGED.values(), ids=CHANGED)
def test_a_record_of_a_plan_that_somebody_changed_says_again_what_the_plan_does(
    yard: Yard, changes: dict[str, Any]
) -> None:
    yard.simulator.bandwidth = 0
    yard.ask("t-0 23")
    yard.look()
    noted = present(yard.record("t-0"))
    text = replace(noted, **changes).to_json()
    change_document(yard.journal.mailbox, paths.reassignment(T0), text)
    sentence = f"{paths.reassignment(T0)} was changed by somebody else, and says again what its plan does."
    assert sentence in yard.look().sentences
    assert yard.record("t-0") == noted
    assert sentence not in yard.look().sentences
    (repair,) = (row.entry for row in yard.journal.audit.rows(action=Action.REPAIR))
    assert (repair.reason, repair.before, repair.after) == (sentence, text, [paths.reassignment(T0)])
    yard.simulator.bandwidth = 1000
    yard.run()
    assert (yard.record("t-0"), yard.replicas("t-0")) == (None, (2, 3))


def test_a_record_that_a_request_has_taken_over_stays_the_requests(yard: Yard) -> None:
    yard.simulator.bandwidth = 0
    yard.ask("t-0 23")
    yard.look()
    request = yard.ask("t-0 45").path
    retarget_in_flight(yard.journal.mailbox, request, {T0: (4, 5)})
    assert record_unrecorded(yard.simulator, yard.journal, yard.journal.plans.unfinished(), WHO) == []
    assert present(yard.record("t-0")).plan == request


def test_while_a_cancel_is_being_executed_the_originals_that_it_restores_are_kept(yard: Yard) -> None:
    """It may have been killed between the cancel, after which nothing is in flight, and the order of the replicas."""
    create_document(yard.journal.mailbox, paths.reassignment(T0), InFlight((2, 1), (2, 3)).to_json())
    signal = create_document(yard.journal.mailbox, paths.CANCEL_IN_PROGRESS, "")
    sweep_external_records(yard.simulator, yard.journal)
    assert yard.record("t-0") is not None
    yard.journal.mailbox.delete([signal])
    sweep_external_records(yard.simulator, yard.journal)
    assert yard.record("t-0") is None


# What others ask of Kafka by `/admin/reassign_partitions`: written down as in flight for as long as it is


def asked_of_kafka(yard: Yard, *wanted: str) -> None:
    create_document(yard.journal.mailbox, paths.REASSIGN_PARTITIONS, document(wanted))


def follow(yard: Yard, under_way: dict[TopicPartition, ActiveReassignment] | None = None) -> list[str]:
    return track_legacy_reassignments(yard.simulator, yard.journal, under_way or {})


def test_it_is_written_down_until_it_has_ended(yard: Yard) -> None:
    asked_of_kafka(yard, "t-0 23")
    yard.simulator.alter({T0: (2, 3)})
    assert follow(yard) == []
    assert yard.record("t-0") == InFlight(None, (2, 3), legacy=True, top=2)
    delete_document(yard.journal.mailbox, paths.REASSIGN_PARTITIONS)
    follow(yard)
    assert yard.record("t-0") is not None  # Kafka has read the node, and carries it out
    yard.simulator.run()
    follow(yard)
    assert yard.record("t-0") is None


def test_what_kafka_has_not_begun_is_written_down_and_what_does_not_exist_is_not(yard: Yard) -> None:
    asked_of_kafka(yard, "t-0 23", "t-9 23", "x-0 23")
    follow(yard)
    assert yard.record("t-0") == InFlight(None, (2, 3), legacy=True, top=2)
    assert (yard.record("t-9"), yard.record("x-0")) == (None, None)
    delete_document(yard.journal.mailbox, paths.REASSIGN_PARTITIONS)
    yard.simulator.delete("t")
    follow(yard)
    assert yard.record("t-0") is None


def test_what_cannot_be_read_is_left_to_kafka(yard: Yard) -> None:
    asked_of_kafka(yard, "t-0 23")
    follow(yard)
    change_document(yard.journal.mailbox, paths.REASSIGN_PARTITIONS, "{")
    (said,) = follow(yard)
    assert said.startswith("Left to Kafka: /admin/reassign_partitions does not contain JSON (")
    assert yard.record("t-0") is not None


UNDER_WAY = {
    "another target": (ActiveReassignment((2, 4), (1, 2), plan="p"), True),
    "the same target": (ActiveReassignment((2, 3), (1, 2), plan="p"), False),
    "by the same route": (ActiveReassignment((2, 4), (1, 2), legacy=True, plan="p"), False),
}


@pytest.mark.parametrize("case", UNDER_WAY)
def test_what_came_by_the_other_route_is_not_recorded_again_and_reported(case: str) -> None:
    flight, told = UNDER_WAY[case]
    yard = Yard()
    asked_of_kafka(yard, "t-1 234", "t-0 23")
    said = "t-0 is also requested by /admin/reassign_partitions, and a request is already reassigning it."
    assert follow(yard, {T0: flight}) == ([said] if told else [])
    assert yard.record("t-0") is None
    assert yard.record("t-1") == InFlight(None, (2, 3, 4), legacy=True, top=3)


def test_where_nothing_came_by_the_old_route_the_cluster_is_not_asked(yard: Yard) -> None:
    cluster: Any = None
    assert track_legacy_reassignments(cluster, yard.journal, {}) == []


def test_only_the_topics_that_matter_are_asked_for() -> None:
    yard = Yard("t: 12", "u: 12", "v: 12")
    seen: list[list[str]] = []
    real = yard.simulator.snapshot

    def snapshot(topics: Collection[str] | None = None) -> Snapshot:
        seen.append(list(topics or ()))
        return real(topics)

    yard.simulator.snapshot = snapshot  # type: ignore[method-assign]  # notes what is asked for
    asked_of_kafka(yard, "u-0 23")
    follow(yard)
    delete_document(yard.journal.mailbox, paths.REASSIGN_PARTITIONS)
    asked_of_kafka(yard, "t-0 23")
    follow(yard)
    assert seen == [["u"], ["t", "u"]]


# Submitting by `/admin/reassign_partitions`: one batch at a time, to live brokers, under the limit


def test_a_batch_is_one_node_and_the_next_waits_until_it_is_gone() -> None:
    yard = Yard(mode="zookeeper")
    port = ZnodeReassignmentClient(yard.simulator, yard.journal.mailbox)
    assert port.alter({T0: (2, 3)}) == {T0: None}
    node = present(read_one(yard.journal.mailbox, paths.REASSIGN_PARTITIONS))
    assert json.loads(node.data)["partitions"] == [{"topic": "t", "partition": 0, "replicas": [2, 3]}]
    assert "takes one batch at a time, and another is under way" in present(port.alter({T1: (2, 3, 4)})[T1]).message
    delete_document(yard.journal.mailbox, node.path)
    assert port.alter({T1: (2, 3, 4)}) == {T1: None}


def test_during_a_migration_to_kraft_nothing_is_submitted_by_a_node_that_nobody_would_read() -> None:
    yard = Yard(mode="zookeeper")
    yard.simulator.broker_settings[2]["zookeeper.metadata.migration.enable"] = "true"
    answers = ZnodeReassignmentClient(yard.simulator, yard.journal.mailbox).alter({T0: (2, 3)})
    assert "in migration to KRaft (zookeeper.metadata.migration.enable), whose" in present(answers[T0]).message
    assert read_one(yard.journal.mailbox, paths.REASSIGN_PARTITIONS) is None


def test_while_anything_is_in_flight_nothing_is_created() -> None:
    yard = Yard(mode="zookeeper")
    yard.simulator.alter({T0: (2, 3)})
    assert ZnodeReassignmentClient(yard.simulator, yard.journal.mailbox).alter({T1: (2, 3, 4)})[T1] is not None
    assert read_one(yard.journal.mailbox, paths.REASSIGN_PARTITIONS) is None


def test_a_dead_target_is_refused_and_the_rest_is_submitted() -> None:
    yard = Yard(mode="zookeeper")
    yard.simulator.kill(5)
    answers = ZnodeReassignmentClient(yard.simulator, yard.journal.mailbox).alter({T0: (2, 5), T1: (2, 3, 4)})
    assert answers[T1] is None
    assert present(answers[T0]).message == "broker 5 is not live"


def test_a_node_stays_below_zookeepers_limit() -> None:
    yard = Yard(mode="zookeeper")
    many = {TopicPartition("topic-" + "x" * 200, number): (1, 2, 3) for number in range(5_000)}
    answers = ZnodeReassignmentClient(yard.simulator, yard.journal.mailbox).alter(many)
    node = present(read_one(yard.journal.mailbox, paths.REASSIGN_PARTITIONS))
    taken = [name for name, refusal in answers.items() if refusal is None]
    assert len(node.data) <= MAX_ZNODE_BYTES
    assert 3_000 < len(taken) < 5_000
    assert len(json.loads(node.data)["partitions"]) == len(taken)


def test_moves_are_submitted_through_the_admin_api_unless_the_connection_says_otherwise(connect: Connect) -> None:
    from kafka_steward.hooks.steward import _select_submission

    cluster: Any = object()
    journal: Any = None
    assert _select_submission(StewardHook(connect()).access, cluster, journal) is cluster


def test_without_a_zookeeper_it_cannot_be_chosen(connect: Connect) -> None:
    from kafka_steward.hooks.steward import _select_submission

    access = StewardHook(connect(extra={"submission": "legacy"})).access
    with pytest.raises(SettingError, match="submits through ZooKeeper, and has no setting zookeeper"):
        _select_submission(access, None, None)  # type: ignore[arg-type]  # neither is looked at
