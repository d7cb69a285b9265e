"""One node that anyone may have written, by accident or on purpose, stops neither detection, requests nor steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kafka_steward.execution.failure_detector import FailureDetector
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.publishing import publish_plan
from kafka_steward.execution.runner import PlanRunner
from kafka_steward.execution.throttles import list_leased_rates
from kafka_steward.execution.undo_verification import verify_undone
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action
from kafka_steward.journal.tree import Node
from kafka_steward.settings import Settings
from tests.cancelling import CancelRunner
from tests.protocol.simulated_watch import WATCH, Yard, document
from tests.simulated_plan import WHO, journal_of, move, plan_of

BOUNCE_FOR_EVER = '{"timestamp": 1, "expiry": 1' + "0" * 400 + "}"
NO_TOPIC = '{"partitions": [{"topic": "my topic", "partition": 0, "replicas": [2, 3]}]}'
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
    "a failure of 5000 digits": ("/steward/failures/" + "9" * 5000, "{}"),
    "a failed disk of a long name": ("/steward/failed_log_dirs/" + "x" * 1100, "{}"),
    "a failed disk with a line end": ("/steward/failed_log_dirs/3\n", "{}"),
    "a failed disk of nonsense": ("/steward/failed_log_dirs/4", "[]"),
    "a throttle of no broker": ("/steward/throttle_leases/broker/my broker/rate", "{}"),
    "a throttle of a broker beyond 32 bits": ("/steward/throttle_leases/broker/99999999999/x", "{}"),
    "a throttle of a broker of 300 digits": ("/steward/throttle_leases/broker/" + "9" * 300, "{}"),
    "a throttle of nonsense": ("/steward/throttle_leases/topic/t/x", '{"version": 1, "entries": {"a b": ["x"]}}'),
    "owed to no topic": ("/steward/pending_replicas/my topic/0", '{"version": 1, "replicas": [1, -1]}'),
    "owed to a partition of no digits": ("/steward/pending_replicas/t/²", '{"version": 1, "replicas": [1, -1]}'),
    "a plan of no name": ("/steward/plans/no digest", "{}"),
    "a request for no topic": ("/admin/reassignment_requests/request_0000000000", NO_TOPIC),
    "a request for a partition beyond all": (
        "/admin/reassignment_requests/request_0000000000",
        json.dumps({"partitions": [{"topic": "t", "partition": 10**20, "replicas": [2, 3]}]}),
    ),
    "a request for half a character": (
        "/admin/reassignment_requests/request_0000000000",
        json.dumps({"partitions": [{"topic": "\ud800", "partition": 0, "replicas": [2, 3]}]}),
    ),
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
    tree: Any = yard.journal.tree
    tree._nodes[path] = Node(path, data, 0, 700, 700, yard.simulator.now_ms, yard.simulator.now_ms)


def detector(yard: Yard) -> FailureDetector:
    return FailureDetector(yard.simulator, yard.journal, yard.settings, WATCH)


@STRANGE
def test_a_dead_broker_is_noticed_and_nothing_is_written_at_each_look(path: str, data: str) -> None:
    yard = yard_with(path, data)
    yard.simulator.kill(2)
    looking = detector(yard)
    assert looking.poll().down == (2,)
    assert yard.journal.tree.get("/admin/failed_brokers/2") is not None
    rows = len(yard.journal.audit.rows())
    for _ in range(4):
        yard.simulator.tick(31)
        assert detector(yard).poll().down == (2,)
    assert len(yard.journal.audit.rows()) == rows


@STRANGE
def test_a_request_behind_it_is_carried_out(path: str, data: str) -> None:
    yard = yard_with(path, data)
    put(yard, f"{paths.REASSIGNMENT_REQUESTS}/request_0000000001", document(["t-0 23"]))
    yard.run()
    assert yard.replicas("t-0") == (2, 3)
    assert yard.requests() == []


@STRANGE
def test_a_plan_goes_on_beside_it(path: str, data: str) -> None:
    yard = yard_with(path, data)
    plan = plan_of(yard.simulator, [move("t-0", "12", "15")], operation="apply")
    publish_plan(ClusterContext(yard.simulator, yard.journal, yard.settings, WHO), plan)
    runner = PlanRunner(ClusterContext(yard.simulator, yard.journal, yard.settings, WHO), plan.digest)
    for _ in range(20):
        if runner.step().ended:
            break
        yard.simulator.tick()
    assert yard.replicas("t-0") == (1, 5)


@STRANGE
def test_a_plan_is_cancelled_and_verified_beside_it(path: str, data: str) -> None:
    yard = yard_with(path, data)
    yard.settings = Settings.of({"throttle": 1_000})
    plan = plan_of(yard.simulator, [move("t-0", "12", "15")], operation="apply")
    publish_plan(ClusterContext(yard.simulator, yard.journal, yard.settings, WHO), plan)
    PlanRunner(ClusterContext(yard.simulator, yard.journal, yard.settings, WHO), plan.digest).step()
    assert list_leased_rates(yard.journal, [plan.digest])
    undo = CancelRunner(
        yard.simulator, yard.journal, plan.digest, yard.settings, WHO, scope="plan", reason="wrong plan"
    )
    for _ in range(20):
        if undo.step().ended:
            break
        yard.simulator.tick()
    assert (yard.replicas("t-0"), undo.leased_brokers) == ((1, 2), [])
    assert verify_undone(yard.simulator, yard.journal, plan.digest).ok


def test_a_switch_with_a_reason_of_a_megabyte_and_of_half_a_character_holds_moves_with_a_short_one(
    tmp_path: Path,
) -> None:
    yard = Yard()
    yard.journal = journal_of(yard.simulator, tmp_path)  # tables in memory would take half a character
    plan = plan_of(yard.simulator, [move("t-0", "12", "15")], operation="apply")
    publish_plan(ClusterContext(yard.simulator, yard.journal, yard.settings, WHO), plan)
    put(yard, paths.REASSIGN_CANCEL, json.dumps({"person": "\ud800", "reason": "\x1b[2J\udc00" + "r" * 900_000}))
    runner = PlanRunner(ClusterContext(yard.simulator, yard.journal, yard.settings, WHO), plan.digest)
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


def test_the_documents_are_swept_by_the_first_look_and_then_twice_a_minute() -> None:
    yard = Yard()
    for path, seconds in (("/admin/failed_brokers/foo", 0), ("/admin/failed_brokers/bar", 30)):
        yard.journal.tree.create(path, "{}")
        if seconds:
            yard.simulator.tick(seconds - 1)
            yard.look()
            assert yard.journal.tree.get(path) is not None
            yard.simulator.tick(1)
        yard.look()
        assert yard.journal.tree.get(path) is None
        assert (path, "{}") in yard.quarantined()
