"""One look of the watch at everything: in its order, beside topics that an ACL hides, and beside strange nodes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.document_api.controller import DocumentController, track_legacy_reassignments
from kafka_steward.document_api.request_documents import queue_add
from kafka_steward.execution.cluster_queries import HIDDEN
from kafka_steward.execution.moves.external import ExternalCancelState
from kafka_steward.execution.plans.cancel import consume_cancel_signal
from kafka_steward.execution.plans.drive import DrivePolicy, run_to_end
from kafka_steward.execution.plans.undo_verification import verify_undone
from kafka_steward.execution.throttles.leases import list_leased_rates
from kafka_steward.execution.watch.failure_detector import FailureDetector
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action
from kafka_steward.journal.kip_documents import InFlight
from kafka_steward.journal.listing import SWEEP_MS
from kafka_steward.journal.mailbox import Node, read_one
from kafka_steward.journal.records import MoveState
from kafka_steward.settings import Settings
from tests.cancelling import CancelRunner
from tests.documents import create_document, delete_document
from tests.present import present
from tests.protocol.simulated_watch import WATCH, Yard, document, partition
from tests.simulated_plan import WHO, journal_of, move
from tests.simulator import Simulator


def test_each_part_of_a_poll_is_reported() -> None:
    yard = Yard(zookeeper=True, mode="zookeeper")
    mailbox = yard.journal.mailbox
    create_document(mailbox, paths.CANCEL_IN_PROGRESS, "")
    request = yard.ask("t-0 19")
    create_document(mailbox, paths.REASSIGN_QUEUE, document(["t-1 239"]))
    create_document(mailbox, paths.REASSIGN_PARTITIONS, "[]")
    looked = yard.look()
    assert looked.sentences == [
        "/admin/cancel_reassignment_in_progress was created, and there was nothing to cancel.",
        f"{request.path} asks to move t-0 to [1, 9]: refused, the cluster has no broker 9.",
        "/admin/reassign_partitions_queue asks to move t-1 to [2, 3, 9]: refused, the cluster has no broker 9.",
        "Left to Kafka: /admin/reassign_partitions holds a list where an object is expected; correct or delete it.",
    ]
    assert looked.events == {"cancel", "request"}
    assert looked.pause_s is None


def test_while_disabled_what_waits_and_what_others_do_is_reported() -> None:
    yard = Yard(zookeeper=True, mode="zookeeper")
    mailbox = yard.journal.mailbox
    off = create_document(mailbox, paths.REASSIGN_CANCEL, "")
    yard.look()
    request = yard.ask("t-0 23")
    create_document(mailbox, paths.REASSIGN_PARTITIONS, "[]")
    yard.simulator.alter({TopicPartition("t", 1): (2, 3, 4)})
    since = "reassignments are disabled by an unnamed user since 1970-01-01 00:16:40 UTC"
    assert yard.look().sentences == [
        f"{request.path} waits: {since}.",
        "Left to Kafka: /admin/reassign_partitions holds a list where an object is expected; correct or delete it.",
        f"Someone reassigns t-1 though {since}; it is left alone.",
    ]
    assert read_one(mailbox, off.path) == off


def test_only_where_the_tree_is_the_brokers_own_is_kafkas_node_looked_at(yard: Yard) -> None:
    create_document(yard.journal.mailbox, paths.REASSIGN_PARTITIONS, "[]")
    watch = DocumentController(yard.simulator, yard.journal, yard.settings, WATCH)
    assert watch.poll().sentences == []


@pytest.mark.parametrize(("passed_ms", "swept"), [(0, False), (SWEEP_MS - 1, False), (SWEEP_MS, True), (-1, True)])
def test_documents_are_swept_once_per_interval_and_at_once_after_the_clock_was_set_back(
    yard: Yard, passed_ms: int, swept: bool
) -> None:
    yard.look()
    create_document(yard.journal.mailbox, "/admin/failed_brokers/foo", "{}")
    yard.simulator.now_ms += passed_ms
    yard.look()
    assert yard.quarantined() == ([("/admin/failed_brokers/foo", "{}")] if swept else [])


# Documents that name a topic which an ACL hides: they concern that topic, and hold up nothing else

T0 = TopicPartition("t", 0)
THEIRS = InFlight((1, 2), (2, 3), legacy=True)


def yard_with_secret(**more: Any) -> Yard:
    yard = Yard("t: 12 231 312", "secret: 12", **more)
    yard.simulator.hidden.add("secret")
    return yard


def theirs(yard: Yard) -> None:
    """Their reassignment is recorded as in flight: by someone, or by us before the ACL was taken away."""
    create_document(yard.journal.mailbox, paths.reassignment(partition("secret-0")), THEIRS.to_json())


def test_a_signal_cancels_everything_else_and_goes_and_requests_behind_it_are_carried_out() -> None:
    yard = yard_with_secret()
    theirs(yard)
    yard.simulator.alter({T0: (2, 3)})
    create_document(yard.journal.mailbox, paths.CANCEL_IN_PROGRESS, "")
    yard.ask("t-1 234")
    said = yard.run()
    assert (yard.replicas("t-0"), yard.replicas("t-1")) == ((2, 1), (2, 3, 4))
    assert read_one(yard.journal.mailbox, paths.CANCEL_IN_PROGRESS) is None
    assert yard.record("secret-0") == THEIRS
    assert f"The external reassignment of secret-0 to [2, 3] was not cancelled: {HIDDEN}." in said
    (row,) = yard.journal.audit.rows(action=Action.SKIP)
    assert (row.entry.topic, row.entry.reason, row.entry.code) == ("secret", HIDDEN, None)


def test_it_counts_as_what_stays_and_a_later_signal_deletes_the_record() -> None:
    yard = yard_with_secret()
    theirs(yard)
    create_document(yard.journal.mailbox, paths.CANCEL_IN_PROGRESS, "")
    outcome = present(consume_cancel_signal(yard.simulator, yard.journal, WATCH))
    assert [(each.state, each.state.may_be_in_flight) for each in outcome.external] == [
        (ExternalCancelState.HIDDEN, True)
    ]
    yard.simulator.hidden.clear()
    create_document(yard.journal.mailbox, paths.CANCEL_IN_PROGRESS, "")
    yard.run()
    assert yard.record("secret-0") is None


def test_a_request_for_it_is_refused_by_the_name_of_the_acl_and_the_rest_of_it_is_carried_out() -> None:
    yard = yard_with_secret()
    yard.ask("secret-0 23", "t-0 23")
    yard.ask("missing-0 23")
    said = yard.run()
    source = f"{paths.REASSIGNMENT_REQUESTS}/request_0000000000"
    assert f"{source} asks to move secret-0 to [2, 3]: refused, {HIDDEN}." in said
    assert any("missing-0 to [2, 3]: refused, there is no such partition." in each for each in said)
    assert yard.replicas("t-0") == (2, 3)
    assert yard.requests() == []
    assert HIDDEN in [row.detail for row in yard.journal.audit.rows(action=Action.REQUEST)]


class HidesAt:
    """A cluster whose ACL for `t` is taken away at a call."""

    def __init__(self, simulator: Simulator, call: str, times: int = 1) -> None:
        self._simulator, self._call, self._left = simulator, call, times

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._simulator, name)
        if name != self._call:
            return real

        def called(*args: Any, **more: Any) -> Any:
            answer = real(*args, **more)
            self._left -= 1
            if not self._left:
                self._simulator.hidden.add("t")
            return answer

        return called


def test_a_request_whose_topic_is_hidden_after_it_was_judged_is_judged_again(yard: Yard) -> None:
    yard.ask("t-0 23")
    yard.protocol = yard.new_watch(HidesAt(yard.simulator, "topic_configs"))
    assert yard.look().pause_s is not None
    assert len(yard.requests()) == 1
    (said,) = yard.run()
    assert said.endswith(f"refused, {HIDDEN}.")
    assert yard.requests() == []


def test_a_queue_is_taken_away_although_one_of_its_topics_is_hidden() -> None:
    yard = Yard("t: 12 231", "secret: 12", max_in_flight=1)
    queue_add(yard.journal, document(["t-1 234", "secret-0 23", "t-0 23"]), who=WATCH)
    yard.look()
    yard.simulator.hidden.add("secret")
    node = present(read_one(yard.journal.mailbox, paths.REASSIGN_QUEUE))
    delete_document(yard.journal.mailbox, node.path)
    yard.look()
    (plan,) = yard.journal.plans.unfinished()
    states = {str(row.topic_partition): row.state for row in yard.journal.plans.rows(plan.digest)}
    assert states == {"t-1": MoveState.SUBMITTED, "secret-0": MoveState.DROPPED, "t-0": MoveState.DROPPED}
    yard.run()
    assert yard.replicas("t-1") == (2, 3, 4)


def test_by_the_old_route_the_others_are_recorded_and_what_is_recorded_of_it_stays() -> None:
    yard = yard_with_secret(zookeeper=True)
    theirs(yard)
    create_document(yard.journal.mailbox, paths.REASSIGN_PARTITIONS, document(["secret-1 23", "t-0 23"]))
    yard.simulator.alter({T0: (2, 3)})
    (said,) = track_legacy_reassignments(yard.simulator, yard.journal, {})
    assert said == f"/admin/reassign_partitions is left to Kafka with secret-1, unrecorded: {HIDDEN}."
    assert (yard.record("t-0"), yard.record("secret-0")) == (InFlight(None, (2, 3), legacy=True, top=2), THEIRS)


@pytest.mark.parametrize("mode", ["kraft", "zookeeper"])
def test_the_order_of_what_was_cancelled_while_off_is_restored_when_it_can_be_seen_again(mode: str) -> None:
    yard = Yard(mode=mode, foreign_while_disabled="cancel")
    yard.protocol = yard.new_watch(HidesAt(yard.simulator, "cancel"))
    create_document(yard.journal.mailbox, paths.REASSIGN_CANCEL, "")
    yard.look()
    before = yard.replicas("t-0")
    yard.simulator.alter({T0: (3, 2)})
    assert yard.look().pause_s is not None
    assert yard.replicas("t-0") == tuple(reversed(before))
    yard.simulator.hidden.clear()
    yard.look()
    assert yard.replicas("t-0") == before


# One node that anyone may have written, by accident or on purpose, stops neither detection, requests nor steps

BOUNCE_FOR_EVER = '{"timestamp": 1, "expiry": 1' + "0" * 400 + "}"
NO_TOPIC = '{"partitions": [{"topic": "my topic", "partition": 0, "replicas": [2, 3]}]}'
NO_PARTITION = json.dumps({"partitions": [{"topic": "t", "partition": 10**20, "replicas": [2, 3]}]})
HALF_A_CHARACTER = json.dumps({"partitions": [{"topic": "\ud800", "partition": 0, "replicas": [2, 3]}]})
NODES = {
    "a broker beyond 32 bits": ("/admin/failed_brokers/99999999999", '{"failure_timestamp": 1}'),
    "a broker with a line end": ("/admin/failed_brokers/3\n", '{"failure_timestamp": 1}'),
    "a broker with leading zeros": ("/admin/failed_brokers/0003", '{"failure_timestamp": 1}'),
    "a broker that is none": ("/admin/failed_brokers/foo", "{}"),
    "a bounce with a line end": ("/admin/rolling_bounce/3\n", '{"timestamp": 1}'),
    "a bounce of 400 digits": ("/admin/rolling_bounce/4", BOUNCE_FOR_EVER),
    "a plan that is none": ("/admin/reassignments/t/2", '{"replicas": [1, 2], "plan": "not a digest!"}'),
    "a plan that is the root": ("/admin/reassignments/t/2", '{"replicas": [1, 2], "plan": "/"}'),
    "in flight of no topic": ("/admin/reassignments/my topic/0", '{"replicas": [1, 2], "plan": "abc"}'),
    "in flight of no partition": ("/admin/reassignments/t/99999999999", '{"replicas": [1, 2], "plan": "abc"}'),
    "in flight of 5000 digits": ("/admin/reassignments/t/" + "9" * 5000, '{"replicas": [1, 2], "plan": "abc"}'),
    "a request for no topic": ("/admin/reassignment_requests/request_0000000000", NO_TOPIC),
    "a request for a partition beyond all": ("/admin/reassignment_requests/request_0000000000", NO_PARTITION),
    "a request for half a character": ("/admin/reassignment_requests/request_0000000000", HALF_A_CHARACTER),
    "a request with a line end": ("/admin/reassignment_requests/by\nhand", "{}"),
    "a request of a long name": ("/admin/reassignment_requests/" + "x" * 1100, "{}"),
    "a request of 5000 digits": ("/admin/reassignment_requests/request_" + "7" * 5000, "{}"),
    "a signal for no digest": ("/admin/cancel_reassignment_in_progress", '{"plan": "bad digest!"}'),
    "a signal of half a character": (
        "/admin/cancel_reassignment_in_progress",
        '{"plan": "abc", "person": "\\ud800", "reason": "\\ud800"}',
    ),
}
STRANGE = pytest.mark.parametrize(("path", "data"), NODES.values(), ids=NODES.keys())


def yard_with(path: str, data: str) -> Yard:
    yard = Yard()
    put(yard, path, data)
    return yard


def put(yard: Yard, path: str, data: str) -> None:
    """As one SQL insert may."""
    mailbox: Any = yard.journal.mailbox
    mailbox._nodes[path] = Node(path, data, 0, 700, 700, yard.simulator.now_ms, yard.simulator.now_ms)


def detector(yard: Yard) -> FailureDetector:
    return FailureDetector(yard.simulator, yard.journal, yard.settings, WATCH)


@STRANGE
def test_a_dead_broker_is_noticed_and_nothing_is_written_at_each_look(path: str, data: str) -> None:
    yard = yard_with(path, data)
    yard.simulator.kill(2)
    looking = detector(yard)
    assert looking.poll().down == (2,)
    assert read_one(yard.journal.mailbox, "/admin/failed_brokers/2") is not None
    rows = len(yard.journal.audit.rows())
    for _ in range(4):
        yard.simulator.tick(31)
        assert detector(yard).poll().down == (2,)
    assert len(yard.journal.audit.rows()) == rows


@STRANGE
def test_a_plan_goes_on_beside_it_and_a_request_behind_it_is_carried_out(path: str, data: str) -> None:
    yard = yard_with(path, data)
    put(yard, f"{paths.REASSIGNMENT_REQUESTS}/request_0000000001", document(["t-0 23"]))
    plan = yard.publish([move("t-1", "231", "235")], operation="apply")
    run_to_end(yard.runner(plan.digest).step, lambda _: yard.simulator.tick(), DrivePolicy(interval_s=lambda: 1))
    yard.run()
    assert (yard.replicas("t-0"), yard.replicas("t-1"), yard.requests()) == ((2, 3), (2, 3, 5), [])


@STRANGE
def test_a_plan_is_cancelled_and_verified_beside_it(path: str, data: str) -> None:
    yard = yard_with(path, data)
    yard.settings = Settings.of({"throttle": 1_000})
    plan = yard.publish([move("t-0", "12", "15")], operation="apply")
    yard.runner(plan.digest).step()
    assert list_leased_rates(yard.journal, [plan.digest])
    undo = CancelRunner(
        yard.simulator, yard.journal, plan.digest, yard.settings, WHO, scope="plan", reason="wrong plan"
    )
    while not undo.step().ended:
        yard.simulator.tick()
    assert (yard.replicas("t-0"), undo.leased_brokers) == ((1, 2), [])
    assert verify_undone(yard.simulator, yard.journal, plan.digest).ok


def test_a_switch_with_a_reason_of_a_megabyte_and_of_half_a_character_holds_moves_with_a_short_one(
    yard: Yard,
    tmp_path: Path,
) -> None:
    yard.journal = journal_of(yard.simulator, tmp_path)  # tables in memory would take half a character
    plan = yard.publish([move("t-0", "12", "15")], operation="apply")
    put(yard, paths.REASSIGN_CANCEL, json.dumps({"person": "\ud800", "reason": "\x1b[2J\udc00" + "r" * 900_000}))
    runner = yard.runner(plan.digest)
    sentence = runner.step().sentence
    (row,) = yard.journal.plans.rows(plan.digest)
    assert "\x1b" not in row.detail
    assert 900 < len(row.detail) < 1500
    assert len(sentence) < 3000
    row.detail.encode()


def test_what_is_moved_aside_is_recorded_as_the_work_of_the_watch() -> None:
    yard = yard_with("/admin/failed_brokers/foo", "{}")
    (sentence,) = yard.look().sentences
    (row,) = yard.journal.audit.rows()
    assert (row.entry.action, row.entry.reason, row.entry.who) == (Action.REPAIR, sentence, WATCH)
