"""What Kafka Steward does with a journal, once through, on a simulated cluster: for tests of what that needs."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kafka_steward.assignment import TopicPartition
from kafka_steward.document_api.controller import DocumentController
from kafka_steward.document_api.external_guard import DISABLE_OBSERVED
from kafka_steward.document_api.request_documents import queue_add
from kafka_steward.execution.announcements import announce_restart, disable_reassignment, enable_reassignment
from kafka_steward.execution.plans.approval import approve_plan
from kafka_steward.execution.plans.cancel import cancel_everything
from kafka_steward.execution.plans.lifecycle import change_plan_throttle, request_cancel
from kafka_steward.execution.watch.failure_detector import FailureDetector
from kafka_steward.journal import paths
from kafka_steward.journal.kip_documents import CancelRequest
from kafka_steward.journal.listing import quarantine_document
from kafka_steward.journal.mailbox import read_one
from kafka_steward.journal.records import Approval, PlanStatus
from kafka_steward.journal.retention import archive_audit, delete_old_rows
from kafka_steward.journal.state import ONLY
from kafka_steward.journal.store import Journal
from kafka_steward.settings import Settings
from tests.cancelling import CancelRunner
from tests.documents import create_document
from tests.present import present
from tests.simulated_plan import WHO, World, move
from tests.simulator import Simulator

__all__ = ["everything"]

SETTINGS = Settings(throttle=50, step_interval=0.1, heal_failure_interval=1, min_free=0.0)
#: Later than anything that the journal holds.
_LATER_MS = 10_000


def everything(
    open_it: Callable[[str], AbstractContextManager[Journal]], folder: Path, *, cluster_id: str, zookeeper: bool = False
) -> None:
    """Carry out, throttle, cancel, roll back and heal; have documents carried out; tidy up, archive, and pair."""
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123 123 123", mode="zookeeper" if zookeeper else "kraft")
    simulator.cluster_id = cluster_id
    with open_it(cluster_id) as journal:
        _plans(simulator, journal)
        _documents(simulator, journal, zookeeper=zookeeper)
        _heal(simulator, journal)
        _tidy(journal, folder)
    with open_it(cluster_id) as journal:
        assert journal.plans.latest(9) == []


def _plans(simulator: Simulator, journal: Journal) -> None:
    done = _world(simulator, journal, ["t-0 123 124", "t-1 123 124"])
    approve_plan(journal, Approval(done.digest, "ada"), WHO)
    done.step()
    change_plan_throttle(journal, done.digest, 40, WHO, "a test")
    assert done.run().status is PlanStatus.COMPLETED
    back = CancelRunner(simulator, journal, done.digest, SETTINGS, WHO, scope="plan", reason="a test")
    for _ in range(40):
        if back.step().ended:
            break
        simulator.tick()
    assert _status(journal, done.digest) is PlanStatus.ROLLED_BACK

    cancelled = _world(simulator, journal, ["t-0 123 423", "t-2 123 423"])
    cancelled.step()
    request_cancel(journal, cancelled.digest, who=WHO, reason="a test")
    assert cancelled.run().status is PlanStatus.CANCELLED
    assert {each.replicas for each in simulator.topics.values()} == {(1, 2, 3)}


def _world(simulator: Simulator, journal: Journal, moves: list[str], **more: Any) -> World:
    parsed = [move(*each.split()) for each in moves]
    digest = secrets.token_hex(32)
    return World(simulator, journal, parsed, settings=SETTINGS, digest=digest, auto_generated="failed" in more, **more)


def _status(journal: Journal, digest: str) -> PlanStatus:
    return present(journal.plans.get(digest)).status


def _documents(simulator: Simulator, journal: Journal, *, zookeeper: bool) -> None:
    """The KIPs' documents: the switch, a request, a queue, the cancel signal, and one that is garbage."""
    protocol = DocumentController(simulator, journal, SETTINGS, WHO, zookeeper=zookeeper)
    disable_reassignment(journal, who=WHO, reason="a test")
    protocol.poll()
    assert journal.rows(DISABLE_OBSERVED).get(ONLY) is not None
    enable_reassignment(journal, who=WHO)
    protocol.poll()
    assert journal.rows(DISABLE_OBSERVED).get(ONLY) is None
    journal.mailbox.append(paths.REQUEST_PREFIX, _asked("t", 0, [4, 2, 3]))
    garbage = journal.mailbox.append(paths.REQUEST_PREFIX, "garbage")
    _look_until(protocol, simulator, lambda: _at(simulator, 0) == (4, 2, 3))
    queue_add(journal, _asked("t", 1, [4, 2, 3]), who=WHO)
    _look_until(protocol, simulator, lambda: _at(simulator, 1) == (4, 2, 3))
    assert read_one(journal.mailbox, garbage.path) is None
    journal.mailbox.append(paths.REQUEST_PREFIX, _asked("t", 2, [4, 2, 3]))
    _look_until(protocol, simulator, lambda: simulator.topics[TopicPartition("t", 2)].reassigning)
    create_document(journal.mailbox, paths.CANCEL_IN_PROGRESS, "")
    _look_until(protocol, simulator, lambda: read_one(journal.mailbox, paths.CANCEL_IN_PROGRESS) is None)
    _look_until(protocol, simulator, lambda: _at(simulator, 2) == (1, 2, 3) and not journal.plans.unfinished())
    cancel_everything(simulator, journal, CancelRequest(person="ada", scope="pending", reason="a test"), WHO)


def _look_until(protocol: DocumentController, simulator: Simulator, done: Callable[[], bool]) -> None:
    for _ in range(60):
        looked = protocol.poll()
        if done():
            return
        simulator.tick()
        time.sleep(looked.pause_s or 0.05)  # the journal's clock is a server's, or this machine's
    raise AssertionError(protocol.poll().sentences)


def _asked(topic: str, number: int, replicas: list[int]) -> str:
    return f'{{"version": 1, "partitions": [{{"topic": "{topic}", "partition": {number}, "replicas": {replicas}}}]}}'


def _at(simulator: Simulator, number: int) -> tuple[int, ...]:
    found = simulator.topics[TopicPartition("t", number)]
    return () if found.reassigning else found.replicas


def _heal(simulator: Simulator, journal: Journal) -> None:
    announce_restart(journal, 3, who=WHO)
    simulator.kill(3)
    detector = FailureDetector(simulator, journal, SETTINGS, WHO)
    assert detector.poll().down == (3,)
    hurt = {name.partition: each.replicas for name, each in simulator.topics.items()}
    (other,) = {1, 2, 4} - set(hurt[2])
    healed = _world(simulator, journal, [f"t-2 {_digits(hurt[2])} {other}{_digits(hurt[2][:2])}"], failed=(3,))
    assert healed.run().status is PlanStatus.COMPLETED
    simulator.restart(3)
    assert detector.poll().down == ()
    assert journal.mailbox.children(paths.ROLLING_BOUNCE) == []


def _digits(brokers: tuple[int, ...]) -> str:
    return "".join(map(str, brokers))


def _tidy(journal: Journal, folder: Path) -> None:
    """What a watch notes and forgets, and what an administrator does."""
    journal.record_poll("failures")
    journal.record_poll("failures")
    assert journal.health is not None
    for _ in range(2):
        journal.health.add_measures({"offline_partitions": 1}, every_ms=0, retention_ms=0)
    moved = create_document(journal.mailbox, "/admin/failed_brokers/garbage", "x")
    assert quarantine_document(journal.mailbox, journal.state, moved, "It is garbage.", None)
    later = journal.now_ms() + _LATER_MS
    journal.plans.purge(later)
    delete_old_rows(journal, later)
    assert archive_audit(journal, later, folder / f"{journal.cluster_id}.jsonl", as_values=_values, who=WHO)
    journal.bind_rows_to_mailbox()


def _values(row: Any) -> dict[str, Any]:
    return {"id": row.id, "entry": str(asdict(row.entry))}
