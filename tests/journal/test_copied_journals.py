"""A journal that was copied is not used any more, until someone goes back to it; and it is copied page by page."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafka_steward.errors import JournalUnreachable, WrongJournal
from kafka_steward.journal import audit, paths
from kafka_steward.journal.audit import Action, AuditRecord, StoredAuditRecord
from kafka_steward.journal.copy import copy_journal
from kafka_steward.journal.identity import bind_rows_to_tree, ensure_identity, mark_copied
from kafka_steward.journal.sql.audit import AuditTable
from kafka_steward.journal.sql.database import open_database
from kafka_steward.journal.store import Journal, open_journal
from tests.memory_tree import MemoryTree

Opener = Callable[..., Journal]


@pytest.fixture
def opener(tmp_path: Path) -> Opener:
    """Opens the journal in the file of a name, on the host db-7."""
    return lambda name, **how: open_journal(f"sqlite:///{tmp_path}/{name}.db", "c1", host="db-7", **how)


def copy(opener: Opener, source: str, target: str) -> None:
    with opener(source) as old, opener(target, compare=False) as new:
        copy_journal(old, new)


def test_the_original_is_refused_and_says_where_the_copy_is(opener: Opener, tmp_path: Path) -> None:
    copy(opener, "old", "new")
    for _ in range(2):
        with pytest.raises(WrongJournal) as refused:
            opener("old")
        assert str(refused.value).startswith(
            f"The journal with its documents in sqlite:///{tmp_path}/old.db on the host db-7 was copied to "
            f"sqlite:///{tmp_path}/new.db on the host db-7, and only the copy is used from then on: "
        )
    opener("new").close()


def test_paired_it_is_used_again(opener: Opener) -> None:
    copy(opener, "old", "new")
    with opener("old", compare=False) as old:
        old.bind_rows_to_tree()
    opener("old").close()
    opener("new").close()


def test_copied_back_the_original_is_used_again_and_the_copy_is_not(opener: Opener) -> None:
    copy(opener, "old", "new")
    copy(opener, "new", "old")
    opener("old").close()
    with pytest.raises(WrongJournal, match=r"old\.db on the host db-7, and only the copy"):
        opener("new")


def test_a_copy_that_was_interrupted_leaves_the_original_in_use_and_can_be_repeated(
    opener: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opener("old") as old, opener("new", compare=False) as new, monkeypatch.context() as patched:

        def die() -> None:
            raise JournalUnreachable("The process died.")

        patched.setattr(new, "bind_rows_to_tree", die)
        with pytest.raises(JournalUnreachable):
            copy_journal(old, new)
    opener("old").close()
    copy(opener, "old", "new")
    opener("new").close()


def test_documents_that_the_copy_shares_with_the_original_are_not_marked(tmp_path: Path) -> None:
    tree = MemoryTree(lambda: 1)
    old, new = (open_database(f"sqlite:///{tmp_path}/{name}.db", "c1", "db-7") for name in ("old", "new"))
    ensure_identity(old, tree, "ZooKeeper")
    copied = bind_rows_to_tree(new, tree, "ZooKeeper")
    mark_copied(tree, copied)
    assert ensure_identity(new, tree, "ZooKeeper") == copied
    with pytest.raises(WrongJournal, match="belong to a journal whose rows are at "):
        ensure_identity(old, tree, "ZooKeeper")


def test_documents_that_stay_behind_are_marked_when_the_rows_are_shared(tmp_path: Path) -> None:
    rows = open_database(f"sqlite:///{tmp_path}/rows.db", "c1", "db-7")
    before, after = MemoryTree(lambda: 1), MemoryTree(lambda: 1)
    ensure_identity(rows, before, "ZooKeeper")
    mark_copied(before, bind_rows_to_tree(rows, after, "the database"))
    with pytest.raises(
        WrongJournal, match=r"documents in ZooKeeper was copied to .* with its documents in the database"
    ):
        ensure_identity(rows, before, "ZooKeeper")


def test_a_journal_that_names_none_is_not_marked(tmp_path: Path) -> None:
    tree, rows = MemoryTree(lambda: 1), open_database(f"sqlite:///{tmp_path}/rows.db", "c1", "db-7")
    tree.create(paths.JOURNAL, "{")
    mark_copied(tree, ensure_identity(rows, MemoryTree(lambda: 1)))
    node = tree.get(paths.JOURNAL)
    assert node is not None
    assert node.data == "{"


def test_at_most_two_pages_of_the_audit_trail_are_in_memory_at_once(
    opener: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages, page = 12, 50
    monkeypatch.setattr(audit, "_PAGE", page)
    read, held = AuditTable.rows_before, []

    def older(table: AuditTable, *given: Any) -> list[StoredAuditRecord]:
        rows = read(table, *given)
        held.append(sum(isinstance(each, StoredAuditRecord) for each in gc.get_objects()))
        return rows

    monkeypatch.setattr(AuditTable, "rows_before", older)
    with opener("old") as old, opener("new", compare=False) as new:
        old.audit.record_intent([AuditRecord(Action.DETECT, "gone", broker=at) for at in range(pages * page)])
        already = sum(isinstance(each, StoredAuditRecord) for each in gc.get_objects())
        assert copy_journal(old, new).audit_rows == pages * page
        assert len(new.audit.rows(limit=None)) == pages * page
    assert len(held) >= pages
    assert max(held) <= already + 2 * page
