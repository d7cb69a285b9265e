"""Requests are read in the order in which they were made, with their faults; and withdrawn, or accepted."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.document_api import request_documents
from kafka_steward.document_api.controller import DocumentController
from kafka_steward.document_api.manual_chunks import ManualChunks
from kafka_steward.document_api.partition_rules import RequestedAssignment
from kafka_steward.document_api.request_documents import (
    mark_accepted,
    named_directories,
    parse_reassignment_text,
    read_queue,
    read_requests,
    request_add,
    request_remove,
)
from kafka_steward.errors import JournalError, RequestError
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Actor
from kafka_steward.journal.kip_documents import Request
from kafka_steward.journal.mailbox import MAX_BYTES, Node, delete_one, read_one
from tests.crash import Died, Faults
from tests.documents import change_document, create_document, delete_document
from tests.memory_mailbox import MemoryMailbox
from tests.present import present
from tests.protocol.simulated_watch import WATCH, Yard, document
from tests.protocol.test_failover import wrapped
from tests.rings import one_in
from tests.simulated_plan import journal_over

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ONE = document(["t-0 23"])


def with_log_dirs(*names: str) -> str:
    entry = {"topic": "t", "partition": 0, "replicas": [2, 3], "log_dirs": names}
    return json.dumps({"version": 1, "partitions": [entry]})


@pytest.fixture
def mailbox() -> MemoryMailbox:
    return MemoryMailbox(lambda: 5)


def put(mailbox: MemoryMailbox, *names: str) -> None:
    for name in names:
        create_document(mailbox, f"{paths.REASSIGNMENT_REQUESTS}/{name}", ONE)


def names(mailbox: MemoryMailbox) -> list[str]:
    return [paper.node.path.rpartition("/")[2] for paper in read_requests(mailbox)[0]]


def test_requests_are_read_by_number_and_those_without_one_after_them_by_creation(mailbox: MemoryMailbox) -> None:
    put(mailbox, "zebra", "request_10", "request_x", "request_9", "0", "request_0000000011", "request_2")
    assert names(mailbox) == ["request_2", "request_9", "request_10", "request_0000000011", "zebra", "request_x", "0"]


def test_requests_that_one_statement_made_are_read_by_path(mailbox: MemoryMailbox) -> None:
    for name in ("b", "a", "c"):
        path = f"{paths.REASSIGNMENT_REQUESTS}/{name}"
        mailbox._nodes[path] = Node(path, ONE, 0, 7, 7, 7, 7)
    assert names(mailbox) == ["a", "b", "c"]


def test_of_more_than_a_thousand_requests_a_thousand_are_read_at_once(mailbox: MemoryMailbox) -> None:
    put(mailbox, *(f"request_{number}" for number in range(1_001)))
    assert names(mailbox) == [f"request_{number}" for number in range(1_000)]


def test_of_many_the_oldest_are_read_and_others_wait(mailbox: MemoryMailbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_documents, "BATCH", 3)
    put(mailbox, "by-hand", *(f"request_{number}" for number in (12, 3, 7, 30)))
    assert names(mailbox) == ["request_3", "request_7", "request_12"]
    for number in (3, 7, 12):
        delete_document(mailbox, f"{paths.REASSIGNMENT_REQUESTS}/request_{number}")
    assert names(mailbox) == ["request_30", "by-hand"]


def test_one_that_someone_deletes_meanwhile_holds_up_no_other(
    mailbox: MemoryMailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(mailbox, "request_1", "by-hand")
    monkeypatch.setattr(mailbox, "children", lambda _: ["by-hand", "gone", "request_1", "request_2"])
    assert names(mailbox) == ["request_1", "by-hand"]
    assert read_requests(mailbox)[1]


def test_of_those_without_a_number_the_oldest_are_read_whatever_their_names(
    mailbox: MemoryMailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_documents, "BATCH", 3)
    put(mailbox, "zebra", "yak", "request_7", "ant", "bee")
    assert names(mailbox) == ["request_7", "zebra", "yak"]
    assert read_requests(mailbox)[1]


def test_of_those_without_a_number_no_more_than_a_megabyte_is_read_at_once(mailbox: MemoryMailbox) -> None:
    for name in ("request_1", "zebra", "ant", "bee"):
        create_document(mailbox, f"{paths.REASSIGNMENT_REQUESTS}/{name}", document(["t-0 23"], padding="x" * 400_000))
    assert names(mailbox) == ["request_1", "zebra", "ant"]
    assert read_requests(mailbox)[1]


@pytest.mark.parametrize("legacy", [False, True])
def test_a_document_says_what_it_asks_for_by_which_route_and_where_it_is(mailbox: MemoryMailbox, legacy: bool) -> None:
    node = mailbox.append(paths.REQUEST_PREFIX, document(["t-1 345", "t-0 23"], legacy=legacy))
    (paper,), _ = read_requests(mailbox)
    assert (paper.node, paper.parse_error) == (node, "")
    assert paper.document_id == f"{node.path}@{node.created_id}"
    assert paper.requested == [
        RequestedAssignment(T1, (3, 4, 5), node.path, legacy),
        RequestedAssignment(T0, (2, 3), node.path, legacy),
    ]


def test_the_queue_is_one_document(mailbox: MemoryMailbox) -> None:
    assert read_queue(mailbox) is None
    node = create_document(mailbox, paths.REASSIGN_QUEUE, ONE)
    paper = present(read_queue(mailbox))
    assert (paper.node, paper.requested) == (node, [RequestedAssignment(T0, (2, 3), node.path)])


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (document(["t-0 23", "t-1 23", "t-0 23"]), "{path} names t-0 twice; correct it."),
        (
            with_log_dirs("/d2"),
            '{path} has log_dirs ["/d2"] for t-0, which are not one for each of its 2 replicas; correct it.',
        ),
        ("[]", "{path} holds a list where an object is expected; correct or delete it."),
        ("ö" * (MAX_BYTES // 2 + 1), "{path} has more than the 1000000 bytes of a document; split it into several."),
    ],
    ids=["twice", "log directories", "no object", "too long"],
)
def test_what_cannot_be_done_is_a_fault(mailbox: MemoryMailbox, text: str, fault: str) -> None:
    node = Node(paths.REASSIGN_QUEUE, text, 0, 7, 7, 7, 7)
    mailbox._nodes[node.path] = node  # as one SQL insert may
    paper = present(read_queue(mailbox))
    assert (paper.node, paper.requested, paper.parse_error) == (node, (), fault.format(path=node.path))


def test_one_that_is_as_long_as_a_document_may_be_is_read(mailbox: MemoryMailbox) -> None:
    text = document(["t-0 23"], padding="")
    create_document(mailbox, paths.REASSIGN_QUEUE, text.replace('""', f'"{"x" * (MAX_BYTES - len(text))}"'))
    paper = present(read_queue(mailbox))
    assert (len(paper.node.data), paper.parse_error) == (MAX_BYTES, "")


@pytest.mark.parametrize(
    ("log_dirs", "accepted"),
    [(("any", "any"), True), (("/d1", "any"), True), (("any",), False), (("/d1", 2), False), ("any", False)],
)
def test_log_directories_are_one_for_each_replica(mailbox: MemoryMailbox, log_dirs: Any, accepted: bool) -> None:
    text = json.dumps({"partitions": [{"topic": "t", "partition": 0, "replicas": [2, 3], "log_dirs": log_dirs}]})
    create_document(mailbox, paths.REASSIGN_QUEUE, text)
    mailbox.append(paths.REQUEST_PREFIX, text)
    mailbox.append(paths.CHUNK_PREFIX, text)
    read = (read_queue(mailbox), read_requests(mailbox)[0][0], ManualChunks(mailbox).read_next(()))
    named = {(T0, 2): "/d1"} if accepted and log_dirs[0] == "/d1" else {}
    for paper in read:
        assert paper is not None
        assert [asked.directories for asked in paper.requested] == ([named] if accepted else [])
        assert (not paper.parse_error) is accepted
    if accepted:
        assert named_directories(parse_reassignment_text(text)) == named
    else:
        with pytest.raises(RequestError, match=r"^The reassignment.* has .?log_dirs"):
            parse_reassignment_text(text)


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
    mailbox = Interrupted(yard.journal.mailbox, at, act)
    plans, audit = yard.journal.plans, yard.journal.audit
    journal = journal_over(
        yard.simulator.cluster_id, mailbox, yard.journal.state, plans._table, audit._table, plans._plans
    )
    return DocumentController(yard.simulator, journal, yard.settings, WATCH), mailbox


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
    # All four outcomes show by every third call.
    for at in range(1, counted.calls + 1, one_in(3)):
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
    for at in range(0, len(quiet.calls), one_in(15)):
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


def test_one_that_is_accepted_says_so_before_its_plan_is_there(yard: Yard) -> None:
    node = yard.ask("t-0 23", padding=" ö")
    (asked,), _ = read_requests(yard.journal.mailbox)
    accepted = present(mark_accepted(yard.journal.mailbox, asked))
    assert Request.from_node(accepted).accepted
    assert '"padding":" ö"' in accepted.data
    assert accepted.created_id == node.created_id
    with pytest.raises(RequestError, match="has been accepted, and its plan is about to be published; to stop it"):
        request_remove(yard.journal, node.path.rpartition("/")[2], who=ADA)
    assert read_one(yard.journal.mailbox, node.path) == accepted
    yard.run()
    assert (yard.replicas("t-0"), yard.requests()) == ((2, 3), [])


def test_one_that_is_refused_or_needs_nothing_is_not_marked(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    yard.ask("t-0 29")
    yard.ask("t-0 12")
    put = yard.journal.mailbox.put
    changed: list[str] = []

    def noted(texts: Mapping[str, str], seen: Collection[Node] = ()) -> Any:
        changed.extend(node.path for node in seen)
        return put(texts, seen)

    monkeypatch.setattr(yard.journal.mailbox, "put", noted)
    yard.look()
    assert yard.requests() == []
    assert [path for path in changed if path.startswith(paths.REASSIGNMENT_REQUESTS)] == []


@pytest.mark.parametrize("kept", ["too long", "not ours"])
def test_one_that_cannot_hold_the_mark_is_executed(yard: Yard, kept: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = document(["t-0 23"]).replace(" ", "")
    fill = MAX_BYTES - len(text) - len(',"x":""') if kept == "too long" else 0
    node = create_document(
        yard.journal.mailbox, f"{paths.REASSIGNMENT_REQUESTS}/by-hand", f'{text[:-1]},"x":"{"x" * fill}"}}'
    )
    put = yard.journal.mailbox.put

    def refuse(texts: Mapping[str, str], seen: Collection[Node] = ()) -> Any:
        if node in seen and kept == "not ours":
            raise JournalError("ZooKeeper does not let us change it.")
        return put(texts, seen)

    monkeypatch.setattr(yard.journal.mailbox, "put", refuse)
    yard.run()
    assert (yard.replicas("t-0"), yard.requests()) == ((2, 3), [])


def test_one_that_changes_while_it_is_removed_is_removed(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    name = yard.ask("t-0 23").path.rpartition("/")[2]
    path = f"{paths.REASSIGNMENT_REQUESTS}/{name}"
    delete = yard.journal.mailbox.delete

    def changed_before(nodes: Sequence[Node]) -> list[Node]:
        monkeypatch.setattr(yard.journal.mailbox, "delete", delete)
        change_document(yard.journal.mailbox, path, document(["t-0 24"]))
        return delete(nodes)

    monkeypatch.setattr(yard.journal.mailbox, "delete", changed_before)
    request_remove(yard.journal, name, who=ADA)
    assert read_one(yard.journal.mailbox, path) is None


def test_a_mark_is_not_set_on_what_was_removed(yard: Yard) -> None:
    node = yard.ask("t-0 23")
    (asked,), _ = read_requests(yard.journal.mailbox)
    assert delete_one(yard.journal.mailbox, node)
    assert mark_accepted(yard.journal.mailbox, asked) is None
    assert yard.requests() == []
