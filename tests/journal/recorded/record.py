"""Leaves a journal behind as this release writes it: `python -m tests.journal.recorded.record`.

Run once per release; the file is never changed afterwards, and `test_schema.py` reads all of them.
"""

from __future__ import annotations

import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import kafka_steward
from kafka_steward.assignment import Move, TopicPartition
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action, Actor, AuditRecord, Outcome
from kafka_steward.journal.kip_documents import AnnouncedRestartDocument, CancelRequest, FailedBroker, InFlight, Request
from kafka_steward.journal.records import THROTTLE_LEASES, LeaseKey, MoveState, PlanRecord, PlanStatus, ThrottleLease
from kafka_steward.journal.store import Journal, open_journal
from tests.documents import create_document

FOLDER = Path(__file__).parent
CLUSTER = "recorded-cluster"
HOST = "recorded-host"
WHO = Actor("heal", "manual__2026-01-01", "submit", 1, "ann")


def main(folder: Path = FOLDER) -> Path:
    """Write `<version>/journal.sql` into `folder`, where it must not exist, and return its path."""
    target = folder / kafka_steward.__version__ / "journal.sql"
    target.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "journal.db"
        with open_journal(f"sqlite:///{path}", CLUSTER, host=HOST) as journal:
            leave_behind(journal)
        with closing(sqlite3.connect(path)) as database, target.open("x") as file:
            # The journal's rows name the file's folder, which is another one with each run.
            file.writelines(f"{statement}\n".replace(place, "/var/lib/recorded") for statement in database.iterdump())
    return target


def leave_behind(journal: Journal) -> None:
    """A heal that paused a rebalance and died in the middle of a step, with one document of each kind."""
    rebalance = _plan(journal, "aaaa", "rebalance", "events", 4)
    journal.slot.acquire("aaaa")
    journal.plans.update(rebalance, status=PlanStatus.PREEMPTED, reason="Made way for the heal of broker 1.")
    heal = _plan(journal, "bbbb", "heal", "orders", 5)
    journal.slot.preempt_with("bbbb")
    fence = journal.step_lock("worker-1:4711", ttl_ms=1).acquire()
    heal = journal.plans.update(heal, fence=fence, status=PlanStatus.RUNNING, attempts=1)
    journal.plans.set_move_states("bbbb", _names(0, 1), MoveState.COMPLETED, fence=fence, isr_seen=True)
    journal.plans.set_move_states("bbbb", _names(2), MoveState.HELD, "Broker 4 announced a restart.", fence=fence)
    submit = _submit(journal)
    journal.plans.set_move_states("bbbb", _names(3), MoveState.SUBMITTED, fence=fence, attempt=1)
    journal.audit.record_outcome([submit], Outcome.DONE)
    _documents(journal)


def _plan(journal: Journal, digest: str, operation: str, topic: str, count: int) -> PlanRecord:
    moves = [
        Move(topic, n, (1, 2, 3), (4, 2, 3), n // 2, n % 2, "broker_failed", f"{topic}-id", 100) for n in range(count)
    ]
    record = PlanRecord(
        digest, journal.cluster_id, operation, failed_brokers=(1,), auto_generated=operation == "heal", who=WHO
    )
    return journal.plans.publish(record, moves)


def _names(*numbers: int) -> list[TopicPartition]:
    return [TopicPartition("orders", number) for number in numbers]


def _submit(journal: Journal) -> AuditRecord:
    journal.audit.record(AuditRecord(Action.DETECT, "Broker 1 is gone.", broker=1))
    submit = AuditRecord(
        Action.SUBMIT,
        "Broker 1 failed.",
        plan="bbbb",
        chunk=1,
        topic="orders",
        partition=3,
        attempt=1,
        before=[1, 2, 3],
        after=[4, 2, 3],
        who=WHO,
    )
    journal.audit.record_intent([submit])
    return submit


def _documents(journal: Journal) -> None:
    mailbox = journal.mailbox
    create_document(mailbox, paths.failed_broker(1), FailedBroker(1_767_225_600_000).to_json())
    create_document(
        mailbox, paths.rolling_bounce(4), AnnouncedRestartDocument(1_767_225_600_000, 1_767_229_200_000).to_json()
    )
    create_document(
        mailbox, paths.reassignment(_names(3)[0]), InFlight((1, 2, 3), (4, 2, 3), top=3, plan="bbbb").to_json()
    )
    journal.rows(THROTTLE_LEASES).put(LeaseKey("4", "follower.rate"), ThrottleLease(None, "50", {"bbbb": ()}), None)
    create_document(mailbox, paths.CANCEL_IN_PROGRESS, CancelRequest("bbbb", "plan", "ann", "Enough.").to_json())
    mailbox.append(paths.REQUEST_PREFIX, Request(()).to_json())


if __name__ == "__main__":
    main()
