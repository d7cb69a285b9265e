"""What documents asked for is heard of once, whichever process carried it out."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_steward.execution.publishing import publish_plan
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action, Audit, AuditRow, Entry
from kafka_steward.protocol.heard import Ears
from kafka_steward.protocol.queueing import queue_add, queue_remove
from tests.protocol.yard import Yard, document
from tests.worlds import WHO, move, plan_of

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
    ears = Ears(yard.journal)
    assert not ears.heard(kind)
    ask(yard, kind)
    yard.journal.audit.note(Entry(Action.HOLD, "something else"))
    assert [ears.heard(kind), ears.heard(kind)] == [True, False]
    yard.run()
    yard.simulator.tick(61)
    assert not ears.heard(kind)
    ask(yard, kind, "t-1 234")
    assert [ears.heard(kind), ears.heard(kind)] == [True, False]


def test_of_two_in_the_same_millisecond_each_is_heard_of() -> None:
    yard = Yard()
    ears = Ears(yard.journal)
    ask(yard, "request")
    assert ears.heard("request")
    ask(yard, "request", "t-1 234")
    assert [ears.heard("request"), ears.heard("request")] == [True, False]


def test_what_was_heard_of_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    yard = Yard()
    began_ms = yard.simulator.now_ms
    ears = Ears(yard.journal)
    read_since: list[int | None] = []
    real = Audit.rows

    def rows(audit: Audit, *, since_ms: int | None, **more: Any) -> list[AuditRow]:
        read_since.append(since_ms)
        return real(audit, since_ms=since_ms, **more)

    monkeypatch.setattr(Audit, "rows", rows)
    yard.simulator.tick(5)
    ask(yard, "request")
    for _ in range(3):
        yard.simulator.tick(100)
        ears.heard("request")
    assert read_since == [began_ms - 60_000, began_ms + 5_000, began_ms + 5_000]


@pytest.mark.parametrize(("ago_s", "heard"), [(59, True), (60, True), (61, False)])
@pytest.mark.parametrize("kind", KINDS)
def test_who_begins_to_listen_hears_of_the_last_minute(kind: str, ago_s: int, heard: bool) -> None:
    yard = Yard()
    ask(yard, kind)
    yard.simulator.tick(ago_s)
    assert Ears(yard.journal).heard(kind) == heard


@pytest.mark.parametrize("kind", KINDS)
def test_what_else_is_published_and_asked_for_is_not_meant(kind: str) -> None:
    yard = Yard()
    ears = Ears(yard.journal)
    plan = plan_of(yard.simulator, [move("t-1", "231", "234")], operation="rebalance")
    publish_plan(yard.simulator, yard.journal, plan, settings=yard.settings, who=WHO)
    yard.journal.audit.note(Entry(Action.PUBLISH, "no plan of a document", after=["sources"]))
    queue_add(yard.journal, document(["t-0 23"]), who=WHO)
    queue_remove(yard.journal, who=WHO)
    assert not ears.heard(kind)
    ask(yard, "cancel" if kind == "request" else "request")
    assert not ears.heard(kind)
