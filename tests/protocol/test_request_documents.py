"""Reading what documents ask for: in the order in which they were made, and with what is wrong with them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.document_api import request_documents
from kafka_steward.document_api.manual_chunks import ManualChunks
from kafka_steward.document_api.request_documents import (
    named_directories,
    parse_reassignment_text,
    read_queue,
    read_requests,
)
from kafka_steward.document_api.request_rules import RequestedAssignment
from kafka_steward.errors import RequestError
from kafka_steward.journal import paths
from kafka_steward.journal.tree import MAX_BYTES, Node
from tests.memory_tree import MemoryTree
from tests.protocol.simulated_watch import document

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ONE = document(["t-0 23"])


def with_log_dirs(*names: str) -> str:
    entry = {"topic": "t", "partition": 0, "replicas": [2, 3], "log_dirs": names}
    return json.dumps({"version": 1, "partitions": [entry]})


@pytest.fixture
def tree() -> MemoryTree:
    return MemoryTree(lambda: 5)


def put(tree: MemoryTree, *names: str) -> None:
    for name in names:
        tree.create(f"{paths.REASSIGNMENT_REQUESTS}/{name}", ONE)


def names(tree: MemoryTree) -> list[str]:
    return [paper.node.path.rpartition("/")[2] for paper in read_requests(tree)[0]]


def test_numbers_tell_the_order_and_what_has_none_comes_after_them_as_it_was_made(tree: MemoryTree) -> None:
    put(tree, "zebra", "request_10", "request_x", "request_9", "0", "request_0000000011", "request_2")
    assert names(tree) == ["request_2", "request_9", "request_10", "request_0000000011", "zebra", "request_x", "0"]


def test_of_those_that_one_statement_made_the_path_tells_the_order(tree: MemoryTree) -> None:
    for name in ("b", "a", "c"):
        path = f"{paths.REASSIGNMENT_REQUESTS}/{name}"
        tree._nodes[path] = Node(path, ONE, 0, 7, 7, 7, 7)
    assert names(tree) == ["a", "b", "c"]


def test_of_many_the_oldest_are_read_and_what_has_no_number_waits(
    tree: MemoryTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_documents, "BATCH", 3)
    put(tree, "by-hand", *(f"request_{number}" for number in (12, 3, 7, 30)))
    assert names(tree) == ["request_3", "request_7", "request_12"]
    for number in (3, 7, 12):
        tree.delete(f"{paths.REASSIGNMENT_REQUESTS}/request_{number}", version=0)
    assert names(tree) == ["request_30", "by-hand"]


def test_beside_one_that_someone_deletes_meanwhile_the_numbered_are_read_and_the_others_wait(
    tree: MemoryTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tree, "request_1", "by-hand")
    monkeypatch.setattr(tree, "children", lambda _: ["by-hand", "gone", "request_1", "request_2"])
    assert names(tree) == ["request_1"]
    assert read_requests(tree)[1]


def test_of_those_without_a_number_the_oldest_are_read_whatever_their_names(
    tree: MemoryTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_documents, "BATCH", 3)
    put(tree, "zebra", "yak", "request_7", "ant", "bee")
    assert names(tree) == ["request_7", "zebra", "yak"]
    assert read_requests(tree)[1]


def test_of_those_without_a_number_no_more_than_a_megabyte_is_read_at_once(tree: MemoryTree) -> None:
    for name in ("request_1", "zebra", "ant", "bee"):
        tree.create(f"{paths.REASSIGNMENT_REQUESTS}/{name}", document(["t-0 23"], padding="x" * 400_000))
    assert names(tree) == ["request_1", "zebra", "ant"]
    assert read_requests(tree)[1]


@pytest.mark.parametrize("legacy", [False, True])
def test_a_document_says_what_it_asks_for_by_which_route_and_where_it_is(tree: MemoryTree, legacy: bool) -> None:
    node = tree.create_sequential(paths.REQUEST_PREFIX, document(["t-1 345", "t-0 23"], legacy=legacy))
    (paper,), _ = read_requests(tree)
    assert (paper.node, paper.parse_error) == (node, "")
    assert paper.document_id == f"{node.path}@{node.created_id}"
    assert paper.requested == [
        RequestedAssignment(T1, (3, 4, 5), node.path, legacy),
        RequestedAssignment(T0, (2, 3), node.path, legacy),
    ]


def test_the_queue_is_one_document(tree: MemoryTree) -> None:
    assert read_queue(tree) is None
    node = tree.create(paths.REASSIGN_QUEUE, ONE)
    paper = read_queue(tree)
    assert paper is not None
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
def test_what_cannot_be_done_is_told(tree: MemoryTree, text: str, fault: str) -> None:
    node = Node(paths.REASSIGN_QUEUE, text, 0, 7, 7, 7, 7)
    tree._nodes[node.path] = node  # as one SQL insert may
    paper = read_queue(tree)
    assert paper is not None
    assert (paper.node, paper.requested, paper.parse_error) == (node, (), fault.format(path=node.path))


def test_one_that_is_as_long_as_a_document_may_be_is_read(tree: MemoryTree) -> None:
    text = document(["t-0 23"], padding="")
    tree.create(paths.REASSIGN_QUEUE, text.replace('""', f'"{"x" * (MAX_BYTES - len(text))}"'))
    paper = read_queue(tree)
    assert paper is not None
    assert (len(paper.node.data), paper.parse_error) == (MAX_BYTES, "")


@pytest.mark.parametrize(
    ("log_dirs", "accepted"),
    [(("any", "any"), True), (("/d1", "any"), True), (("any",), False), (("/d1", 2), False), ("any", False)],
)
def test_log_directories_of_every_document_are_one_for_each_replica(
    tree: MemoryTree, log_dirs: Any, accepted: bool
) -> None:
    text = json.dumps({"partitions": [{"topic": "t", "partition": 0, "replicas": [2, 3], "log_dirs": log_dirs}]})
    tree.create(paths.REASSIGN_QUEUE, text)
    tree.create_sequential(paths.REQUEST_PREFIX, text)
    tree.create_sequential(paths.CHUNK_PREFIX, text)
    read = (read_queue(tree), read_requests(tree)[0][0], ManualChunks(tree).read_next(()))
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
