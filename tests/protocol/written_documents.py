"""One document of each kind in a journal, as people and programs write them."""

from __future__ import annotations

from kafka_steward.assignment import Move, TopicPartition
from kafka_steward.document_api.request_documents import queue_add, request_add
from kafka_steward.execution.announcements import announce_restart, disable_reassignment
from kafka_steward.execution.plans.cancel import send_cancel_signal
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Actor
from kafka_steward.journal.kip_documents import CancelRequest
from kafka_steward.journal.records import (
    DEFERRED_PARTITIONS,
    PENDING_REPLICAS,
    DeferredPartitions,
    PendingReplicas,
    PlanRecord,
    PlanStatus,
)
from kafka_steward.journal.store import Journal
from tests.present import present
from tests.protocol.simulated_watch import document

__all__ = ["ADA", "CANCELLED", "WAITING", "write_documents"]

ADA = Actor(person="ada")
#: The digests of a plan that waits, and of one whose cancel has not ended.
WAITING, CANCELLED = "a" * 64, "c" * 64


def write_documents(journal: Journal) -> str:
    """Write a document of each kind; return the name of the request."""
    for digest, topic in ((WAITING, "t"), (CANCELLED, "u")):
        record = PlanRecord(digest, journal.cluster_id, "drain")
        journal.plans.publish(record, [Move(topic, 0, (1, 2), (2, 3), 0, 0, "broker_draining", None, 100)])
    found = present(journal.plans.get(CANCELLED))
    asked = CancelRequest(scope="plan", person="ada", reason="wrong racks")
    journal.plans.update(found, status=PlanStatus.RUNNING, cancel=asked)
    disable_reassignment(journal, who=ADA, reason="the racks are being rewired")
    send_cancel_signal(journal, CancelRequest(plan=CANCELLED, person="ada", reason="at once"), ADA)
    queue_add(journal, document([f"q-{number} 23" for number in range(4)]), who=ADA)
    name, _ = request_add(journal, document(["r-7 31"]), who=ADA)
    journal.mailbox.append(paths.CHUNK_PREFIX, document(["c-1 12"]))
    announce_restart(journal, 5, who=ADA, lasts_ms=60_000)
    pending = PendingReplicas.from_brokers((1, 2), 3)
    journal.rows(PENDING_REPLICAS).put(TopicPartition("p", 3), pending, None)
    journal.rows(DEFERRED_PARTITIONS).put("d", DeferredPartitions(12, asked_by="ada"), None)
    return name
