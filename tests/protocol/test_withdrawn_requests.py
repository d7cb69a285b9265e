"""A request is either withdrawn, and then never executed, or accepted, and then whoever removes it is told so."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from kafka_steward.document_api.controller import DocumentController
from kafka_steward.document_api.request_documents import mark_accepted, read_requests, request_add, request_remove
from kafka_steward.errors import JournalError, RequestError
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Actor
from kafka_steward.journal.kip_documents import Request
from kafka_steward.journal.tree import MAX_BYTES, remove
from tests.crash import Died, Faults
from tests.protocol.simulated_watch import WATCH, Yard, document
from tests.protocol.test_failover import wrapped
from tests.rings import one_in
from tests.simulated_plan import journal_over

ADA = Actor(person="ada")


class Interrupted:
    """A seam before whose call number `at` something happens."""

    def __init__(self, target: Any, at: int, act: Callable[[], None]) -> None:
        self.target, self.at, self.act, self.calls = target, at, act, 0

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.target, name)
        if not callable(attribute):
            return attribute

        def call(*args: Any, **more: Any) -> Any:
            self.calls += 1
            if self.calls == self.at:
                self.act()
            return attribute(*args, **more)

        return call


def interrupted(yard: Yard, at: int, act: Callable[[], None]) -> tuple[DocumentController, Interrupted]:
    """A watch that is interrupted before one of its calls to the tree."""
    tree = Interrupted(yard.journal.tree, at, act)
    plans, audit = yard.journal.plans, yard.journal.audit
    journal = journal_over(yard.simulator.cluster_id, tree, plans._table, audit._table, plans._ended)
    return DocumentController(yard.simulator, journal, yard.settings, WATCH), tree


def with_two_requests(*, superseding: bool) -> tuple[Yard, str]:
    """A yard, and the name of the second of two requests, which supersedes what is in flight or moves another."""
    yard = Yard()
    if superseding:
        request_add(yard.journal, document(["t-0 24"]), who=ADA)
        yard.look()
    request_add(yard.journal, document(["t-1 234"]), who=ADA)
    name, _ = request_add(yard.journal, document(["t-0 23"]), who=ADA)
    return yard, name


@pytest.mark.parametrize("superseding", [False, True], ids=["first", "superseding"])
def test_a_request_that_is_removed_at_any_call_of_a_poll_is_withdrawn_or_accepted(superseding: bool) -> None:
    quiet, _ = with_two_requests(superseding=superseding)
    watch, counted = interrupted(quiet, 0, lambda: None)
    watch.poll()
    outcomes = set()
    for at in range(1, counted.calls + 1):
        yard, name = with_two_requests(superseding=superseding)
        refused: list[str] = []
        watch, _ = interrupted(yard, at, partial(attempt, yard, name, refused))
        watch.poll()
        yard.run()
        withdrawn = (2, 4) if superseding else (1, 2)
        assert yard.replicas("t-0") == ((2, 3) if refused else withdrawn), (at, refused)
        assert yard.replicas("t-1") == (2, 3, 4)
        assert yard.requests() == []
        outcomes.add(refused[0].partition(name)[2].split(",")[0][:20] if refused else "withdrawn")
    assert len(outcomes) == 4, outcomes
    assert "withdrawn" in outcomes


def attempt(yard: Yard, name: str, refused: list[str]) -> None:
    try:
        request_remove(yard.journal, name, who=ADA)
    except RequestError as error:
        refused.append(str(error))


@pytest.mark.parametrize("kind", ["dies before", "dies after"])
def test_after_a_watch_died_at_any_call_a_request_is_withdrawn_or_carried_out_once(kind: str) -> None:
    quiet, first = Faults(), Yard()
    first.ask("t-0 23")
    wrapped(first, quiet).poll()
    for at in range(0, len(quiet.calls), one_in(5)):
        yard = Yard()
        name = yard.ask("t-0 23").path.rpartition("/")[2]
        with pytest.raises(Died):
            wrapped(yard, Faults(at, kind)).poll()
        refused: list[str] = []
        attempt(yard, name, refused)
        yard.simulator.tick(61)  # the step lock runs out
        yard.protocol = yard.new_watch()
        yard.run()
        assert yard.replicas("t-0") == ((2, 3) if refused else (1, 2)), (at, quiet.calls[at], refused)
        assert len(yard.journal.plans.latest(5)) == bool(refused), (at, quiet.calls[at])
        assert yard.requests() == []


def test_one_that_is_accepted_says_so_before_its_plan_is_there() -> None:
    yard = Yard()
    node = yard.ask("t-0 23", padding=" ö")
    (asked,), _ = read_requests(yard.journal.tree)
    accepted = mark_accepted(yard.journal.tree, asked)
    assert accepted is not None
    assert Request.from_node(accepted).accepted
    assert '"padding":" ö"' in accepted.data
    assert accepted.created_id == node.created_id
    with pytest.raises(RequestError, match="has been accepted, and its plan is about to be published; to stop it"):
        request_remove(yard.journal, node.path.rpartition("/")[2], who=ADA)
    assert yard.journal.tree.get(node.path) == accepted
    yard.run()
    assert (yard.replicas("t-0"), yard.requests()) == ((2, 3), [])


def test_one_that_is_refused_or_needs_nothing_is_not_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    yard = Yard()
    yard.ask("t-0 29")
    yard.ask("t-0 12")
    change = yard.journal.tree.set
    changed: list[str] = []

    def noted(path: str, data: str, *, version: int) -> Any:
        changed.append(path)
        return change(path, data, version=version)

    monkeypatch.setattr(yard.journal.tree, "set", noted)
    yard.look()
    assert yard.requests() == []
    assert [path for path in changed if path.startswith(paths.REASSIGNMENT_REQUESTS)] == []


@pytest.mark.parametrize("kept", ["too long", "not ours"])
def test_one_that_cannot_hold_the_mark_is_executed_all_the_same(kept: str, monkeypatch: pytest.MonkeyPatch) -> None:
    yard = Yard()
    text = document(["t-0 23"]).replace(" ", "")
    fill = MAX_BYTES - len(text) - len(',"x":""') if kept == "too long" else 0
    node = yard.journal.tree.create(f"{paths.REASSIGNMENT_REQUESTS}/by-hand", f'{text[:-1]},"x":"{"x" * fill}"}}')
    change = yard.journal.tree.set

    def refuse(path: str, data: str, *, version: int) -> Any:
        if path == node.path and kept == "not ours":
            raise JournalError("ZooKeeper does not let us change it.")
        return change(path, data, version=version)

    monkeypatch.setattr(yard.journal.tree, "set", refuse)
    yard.run()
    assert (yard.replicas("t-0"), yard.requests()) == ((2, 3), [])


def test_one_that_changes_while_it_is_removed_is_removed_as_it_is_then(monkeypatch: pytest.MonkeyPatch) -> None:
    yard = Yard()
    name = yard.ask("t-0 23").path.rpartition("/")[2]
    path = f"{paths.REASSIGNMENT_REQUESTS}/{name}"
    delete = yard.journal.tree.delete

    def changed_before(path: str, *, version: int) -> None:
        monkeypatch.setattr(yard.journal.tree, "delete", delete)
        yard.journal.tree.set(path, document(["t-0 24"]), version=version)
        delete(path, version=version)

    monkeypatch.setattr(yard.journal.tree, "delete", changed_before)
    request_remove(yard.journal, name, who=ADA)
    assert yard.journal.tree.get(path) is None


def test_a_mark_is_not_set_on_what_was_removed() -> None:
    yard = Yard()
    node = yard.ask("t-0 23")
    (asked,), _ = read_requests(yard.journal.tree)
    assert remove(yard.journal.tree, node)
    assert mark_accepted(yard.journal.tree, asked) is None
    assert yard.requests() == []
