"""What cannot be read is kept whole, with where it was and why, and makes room for what can be read."""

from __future__ import annotations

import logging

import pytest

from kafka_steward.errors import DocumentError
from kafka_steward.journal import listing
from kafka_steward.journal.document import NewerDocument, read_fields
from kafka_steward.journal.kip_documents import CancelRequest
from kafka_steward.journal.listing import (
    QUARANTINE,
    QuarantinedDocument,
    delete_or_quarantine,
    quarantine_document,
)
from kafka_steward.journal.tree import Node, remove
from tests.memory_tree import MemoryTree

PATH = "/steward/slot"
WHY = "/steward/slot does not contain JSON; correct or delete it."


@pytest.fixture
def tree() -> MemoryTree:
    return MemoryTree(lambda: 5)


def texts(tree: MemoryTree, kept: str) -> dict[str, str]:
    return {node.path.removeprefix(f"{kept}/"): node.data for node in tree.below(kept)}


def is_newer(text: str) -> bool:
    try:
        read_fields(PATH, text)
    except DocumentError as error:
        return isinstance(error, NewerDocument)
    return False


@pytest.mark.parametrize(
    ("text", "newer"),
    [
        ('{"version": 2}', True),
        ('{"version": 1}', False),
        ('{"version": "2"}', False),
        ("{}", False),
        ("[2]", False),
        ("2", False),
        ("", False),
        ("{", False),
        ("[" * 100_000, False),
    ],
    ids=range(9),
)
def test_only_what_says_so_is_of_a_later_release(text: str, newer: bool) -> None:
    assert is_newer(text) == newer


@pytest.mark.parametrize("replacement", [None, '{"version":1,"preempted":[]}'])
def test_it_is_kept_with_where_it_was_and_why_and_something_else_takes_its_place(
    tree: MemoryTree, replacement: str | None
) -> None:
    kept = quarantine_document(tree, tree.create(PATH, "garbled"), WHY, replacement)
    assert kept == f"{QUARANTINE}/doc_0000000000"
    node, instead = tree.get(kept), tree.get(PATH)
    assert node is not None
    assert QuarantinedDocument.from_node(node) == QuarantinedDocument(PATH, WHY, at_ms=5)
    assert texts(tree, kept) == {"text": "garbled"}
    assert (instead and instead.data) == replacement


@pytest.mark.parametrize("replacement", [None, "{}"])
@pytest.mark.parametrize("meanwhile", ["changed", "deleted"])
def test_what_someone_changed_meanwhile_is_theirs(tree: MemoryTree, replacement: str | None, meanwhile: str) -> None:
    read = tree.create(PATH, "garbled")
    changed = tree.set(PATH, "mended", version=0)
    if meanwhile == "deleted":
        tree.delete(PATH, version=1)
    assert quarantine_document(tree, read, WHY, replacement) is None
    assert tree.get(PATH) == (changed if meanwhile == "changed" else None)


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("", {"text": ""}),
        ("abcd", {"text": "abcd"}),
        ("abcdefgh", {"text": "abcd", "text_2": "efgh"}),
        ("abcdefghi", {"text": "abcd", "text_2": "efgh", "text_3": "i"}),
    ],
)
def test_what_is_larger_than_a_document_is_cut(
    tree: MemoryTree, monkeypatch: pytest.MonkeyPatch, text: str, pieces: dict[str, str]
) -> None:
    monkeypatch.setattr(listing, "_PIECE", 4)
    kept = quarantine_document(tree, tree.create(PATH, text), WHY, None)
    assert kept is not None
    assert texts(tree, kept) == pieces


def test_a_piece_fits_whatever_it_holds(tree: MemoryTree) -> None:
    text = "\U0001f600" * 250_001
    tree._nodes[PATH] = read = Node(PATH, text, 0, 7, 7, 7, 7)  # as one SQL insert may
    kept = quarantine_document(tree, read, WHY, None)
    assert kept is not None
    assert texts(tree, kept) == {"text": text[:250_000], "text_2": text[250_000:]}


def test_a_character_that_no_document_may_hold_is_kept_as_a_replacement_character(tree: MemoryTree) -> None:
    tree._nodes[PATH] = read = Node(PATH, "a\x00b\x00", 0, 7, 7, 7, 7)  # as SQLite stores it
    kept = quarantine_document(tree, read, WHY, None)
    assert kept is not None
    assert texts(tree, kept) == {"text": "a\ufffdb\ufffd"}


@pytest.mark.parametrize(("text", "kept"), [("", []), ("{}", []), ("{", ["doc_0000000000"])])
def test_a_signal_goes_when_it_was_heard_and_is_kept_only_where_it_is_garbled(
    tree: MemoryTree, text: str, kept: list[str]
) -> None:
    delete_or_quarantine(tree, tree.create(PATH, text), CancelRequest.from_node)
    assert tree.get(PATH) is None
    assert tree.children(QUARANTINE) == kept
    for name in kept:
        node = tree.get(f"{QUARANTINE}/{name}")
        assert node is not None
        assert QuarantinedDocument.from_node(node).reason.startswith("/steward/slot does not contain JSON")
        assert texts(tree, node.path) == {"text": text}


@pytest.mark.parametrize("meanwhile", ["changed", "deleted"])
def test_what_someone_changed_or_deleted_meanwhile_is_left_and_told(
    tree: MemoryTree, meanwhile: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    read = tree.create(PATH, "{}")
    changed = tree.set(PATH, '{"plan":"d1"}', version=0)
    if meanwhile == "deleted":
        tree.delete(PATH, version=1)
    remove(tree, read)
    assert tree.get(PATH) == (changed if meanwhile == "changed" else None)
    assert caplog.messages == ["/steward/slot was changed or deleted concurrently; it is left unchanged."]
