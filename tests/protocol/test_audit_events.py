"""What documents asked for is heard of once, whichever process carried it out."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_steward.document_api.request_documents import queue_add, queue_remove
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.publishing import publish_plan
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action, Audit, AuditRecord, StoredAuditRecord
from kafka_steward.triggers.documents import AuditEventReader
from tests.protocol.simulated_watch import Yard, document
from tests.simulated_plan import WHO, move, plan_of

KINDS = ("cancel", "request")


def ask(yard: Yard, kind: str, wanted: str = "t-0 23") -> None:
    """One document, which a look takes up."""
    if kind == "request":
        yard.ask(wanted)
    else:
        yard.journal.tree.create(paths.CANCEL_IN_PROGRESS, "")
    yard.look()


@pytest.mark.parametrize("kind", KINDS)
def test_each_is_heard_of_once(kind: str) -> None:
    yard = Yard()
    ears = AuditEventReader(yard.journal)
    assert not ears.has_new_event(kind)
    ask(yard, kind)
    yard.journal.audit.record(AuditRecord(Action.HOLD, "something else"))
    assert [ears.has_new_event(kind), ears.has_new_event(kind)] == [True, False]
    yard.run()
    yard.simulator.tick(61)
    assert not ears.has_new_event(kind)
    ask(yard, kind, "t-1 234")
    assert [ears.has_new_event(kind), ears.has_new_event(kind)] == [True, False]


def test_of_two_in_the_same_millisecond_each_is_heard_of() -> None:
    yard = Yard()
    ears = AuditEventReader(yard.journal)
    ask(yard, "request")
    assert ears.has_new_event("request")
    ask(yard, "request", "t-1 234")
    assert [ears.has_new_event("request"), ears.has_new_event("request")] == [True, False]


def test_what_was_heard_of_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    yard = Yard()
    began_ms = yard.simulator.now_ms
    ears = AuditEventReader(yard.journal)
    read_since: list[int | None] = []
    real = Audit.rows

    def rows(audit: Audit, *, since_ms: int | None, **more: Any) -> list[StoredAuditRecord]:
        read_since.append(since_ms)
        return real(audit, since_ms=since_ms, **more)

    monkeypatch.setattr(Audit, "rows", rows)
    yard.simulator.tick(5)
    ask(yard, "request")
    for _ in range(3):
        yard.simulator.tick(100)
        ears.has_new_event("request")
    assert read_since == [began_ms - 60_000, began_ms + 5_000, began_ms + 5_000]


@pytest.mark.parametrize(("ago_s", "heard"), [(59, True), (60, True), (61, False)])
@pytest.mark.parametrize("kind", KINDS)
def test_who_begins_to_listen_hears_of_the_last_minute(kind: str, ago_s: int, heard: bool) -> None:
    yard = Yard()
    ask(yard, kind)
    yard.simulator.tick(ago_s)
    assert AuditEventReader(yard.journal).has_new_event(kind) == heard


@pytest.mark.parametrize("kind", KINDS)
def test_what_else_is_published_and_asked_for_is_not_meant(kind: str) -> None:
    yard = Yard()
    ears = AuditEventReader(yard.journal)
    plan = plan_of(yard.simulator, [move("t-1", "231", "234")], operation="rebalance")
    publish_plan(ClusterContext(yard.simulator, yard.journal, yard.settings, WHO), plan)
    yard.journal.audit.record(AuditRecord(Action.PUBLISH, "no plan of a document", after=["sources"]))
    queue_add(yard.journal, document(["t-0 23"]), who=WHO)
    queue_remove(yard.journal, who=WHO)
    assert not ears.has_new_event(kind)
    ask(yard, "cancel" if kind == "request" else "request")
    assert not ears.has_new_event(kind)
