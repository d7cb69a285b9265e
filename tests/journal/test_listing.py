"""Documents are listed one by one: what cannot be read is told apart, and kept whole where it is moved to."""

from __future__ import annotations

import itertools
import logging
from pathlib import Path
from typing import Any

import pytest
from kazoo.security import make_digest_acl

from kafka_steward.journal import listing, paths
from kafka_steward.journal.audit import Action, Actor
from kafka_steward.journal.copy import copy_journal
from kafka_steward.journal.kip_documents import CancelRequest, FailedBroker, InFlight
from kafka_steward.journal.listing import (
    QUARANTINE,
    QuarantinedDocument,
    delete_or_quarantine,
    list_unreadable,
    quarantine_document,
    quarantine_unreadable,
    read_pending_deletions,
)
from kafka_steward.journal.mailbox import MAX_BYTES, Mailbox, Node, delete_one, read_one
from kafka_steward.journal.records import FAILED_BROKERS, IN_FLIGHT, RESTARTS, WRITTEN
from kafka_steward.journal.state import Rows
from kafka_steward.journal.store import Journal, open_journal
from kafka_steward.journal.zookeeper.options import ZooKeeperOptions
from tests.documents import change_document, create_document, delete_document
from tests.journal.conftest import PATIENT_S
from tests.journal.zookeeper import ClockedZkMailbox, ZooKeeperServer
from tests.memory_mailbox import MemoryMailbox
from tests.memory_state import MemoryState
from tests.simulated_plan import memory_journal
from tests.simulator import Simulator

WATCH = Actor(task_id="watch")
GOOD = FailedBroker(5).to_json()


def kept(journal: Journal) -> dict[str, str]:
    """What is in quarantine: text by path."""
    return {row.value.path: row.value.text for row in journal.rows(QUARANTINE).all()}


def test_what_can_be_read_is_found_beside_what_cannot(mailbox: Mailbox) -> None:
    for name, data in {"3": GOOD, "0003": GOOD, "foo": "{}", "99999999999": GOOD, "7": "gone fishing"}.items():
        create_document(mailbox, f"/admin/failed_brokers/{name}", data)
    found = FAILED_BROKERS.list_with_unreadable(mailbox)
    assert [(each.key, each.document.failure_timestamp_ms == 5) for each in found.readable] == [
        ((3,), True),
        ((7,), False),
    ]
    assert [each.path.rpartition("/")[2] for each in found.unreadable] == ["0003", "99999999999", "foo", "7"]


def test_two_levels_are_listed_by_topic_and_partition(mailbox: Mailbox) -> None:
    text = InFlight((1, 2), (2, 3)).to_json()
    for path in ("t/0", "t/10", "t/2", "t/x", "my topic/0", "u/0/deeper"):
        create_document(mailbox, f"/admin/reassignments/{path}", text)
    found = IN_FLIGHT.list_with_unreadable(mailbox)
    assert [each.key for each in found.readable] == [("t", 0), ("t", 2), ("t", 10)]
    told = {each.path.removeprefix("/admin/reassignments/"): each.reason for each in found.unreadable}
    assert told.keys() == {"my topic", "t/x", "u/0"}
    assert "does not name a topic" in told["my topic"]
    assert "does not name a partition" in told["t/x"]
    assert "child nodes" in told["u/0"]


def test_no_more_documents_and_bytes_are_read_at_once_than_the_limits_say(
    mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    for broker in (1, 2, 3, 10, 20):
        create_document(mailbox, f"/admin/failed_brokers/{broker}", GOOD)
    monkeypatch.setattr(listing, "MAX_DOCUMENTS", 4)
    assert [each.key[0] for each in FAILED_BROKERS.list_valid(mailbox)] == [1, 2, 3, 10]
    monkeypatch.setattr(listing, "_BATCH", 1)
    monkeypatch.setattr(listing, "MAX_BYTES_AT_ONCE", len(GOOD))
    assert [each.key[0] for each in FAILED_BROKERS.list_valid(mailbox)] == [1, 2]


@pytest.mark.parametrize(
    "path",
    [
        "/admin/failed_brokers/foo",
        "/admin/rolling_bounce/" + "9" * 900,
        "/admin/reassignments/my topic/0",
        "/admin/reassignments/t/99999999999",
        "/admin/failed_brokers/3/deeper/still",
        "/admin/reassign_cancel/below",
    ],
)
def test_a_node_that_nothing_can_read_is_moved_aside_with_a_row_and_then_nothing_more_is_written(
    journal: Journal, path: str
) -> None:
    create_document(journal.mailbox, path, "what is this?")
    (sentence,) = quarantine_unreadable(journal, WRITTEN, WATCH)
    assert "Its content was copied to row " in sentence
    assert kept(journal) == {path: "what is this?"}
    assert path.split("/")[3] not in journal.mailbox.children("/".join(path.split("/")[:3]))
    assert quarantine_unreadable(journal, WRITTEN, WATCH) == []
    (row,) = journal.audit.rows()
    assert (row.entry.action, row.entry.reason) == (Action.REPAIR, sentence)
    assert path.startswith(row.entry.before)
    assert row.entry.who == WATCH
    assert sentence.endswith(f" Its content was copied to {row.entry.after}.")
    assert list_unreadable(journal.mailbox, WRITTEN) == []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (f"{paths.REASSIGNMENT_REQUESTS}/{'x' * 1100}", "{}"),
        ("/admin/failed_brokers/large", "x" * (MAX_BYTES - 1)),
    ],
    ids=["a name longer than any path", "a million characters"],
)
def test_the_largest_of_what_is_invalid_is_moved_aside(journal: Journal, path: str, text: str) -> None:
    put(journal.mailbox, path, text)
    (sentence,) = quarantine_unreadable(journal, WRITTEN, WATCH)
    assert len(sentence) < 600
    assert kept(journal) == {path: text}
    assert journal.mailbox.children(path.rpartition("/")[0]) == []


def test_a_value_that_counts_as_something_is_replaced_and_kept(journal: Journal) -> None:
    written = create_document(journal.mailbox, "/admin/failed_brokers/3", "gone fishing")
    create_document(journal.mailbox, "/admin/rolling_bounce/4", '{"timestamp": true}')
    assert len(quarantine_unreadable(journal, WRITTEN, WATCH)) == 2
    assert kept(journal) == {
        "/admin/failed_brokers/3": "gone fishing",
        "/admin/rolling_bounce/4": '{"timestamp": true}',
    }
    (failed,) = FAILED_BROKERS.list_valid(journal.mailbox)
    assert failed.document.failure_timestamp_ms == written.created_ms
    assert [each.key for each in RESTARTS.list_valid(journal.mailbox)] == [(4,)]
    assert list_unreadable(journal.mailbox, WRITTEN) == []


def test_the_version_of_each_kind_of_document_says_what_is_of_a_later_release(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(InFlight, "VERSION", 2)
    later, corrupt = '{"version": 3, "replicas": [1]}', '{"version": 2, "replicas": "1"}'
    create_document(journal.mailbox, "/admin/reassignments/t/0", later)
    create_document(journal.mailbox, "/admin/reassignments/t/1", corrupt)
    (sentence,) = quarantine_unreadable(journal, WRITTEN, WATCH)
    assert "t/1 has 'replicas' = \"1\" where a list is expected" in sentence
    assert kept(journal) == {"/admin/reassignments/t/1": corrupt}
    assert journal.mailbox.children("/admin/reassignments/t") == ["0"]


def test_some_are_moved_aside_at_once_and_the_rest_later(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "_SWEPT", 3)
    for number in range(5):
        create_document(journal.mailbox, f"/admin/failed_brokers/x{number}", "")
    assert [len(quarantine_unreadable(journal, [FAILED_BROKERS], WATCH)) for _ in range(3)] == [3, 2, 0]


def test_no_more_nodes_below_an_invalid_name_are_moved_aside_at_once_than_the_limit_says(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each part of a large subtree that is moved has a row, and nothing says that it cannot be."""
    monkeypatch.setattr(listing, "_SWEPT_BELOW", 3)
    for path in ("0", "1", "1/2", "1/2/3", "1/2/3/4", "1/2/3/4/5", "6"):
        create_document(journal.mailbox, f"/admin/failed_brokers/foo/{path}", "of someone")
    counts, told = [0], list[str]()
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            told += quarantine_unreadable(journal, [FAILED_BROKERS], WATCH)
            counts.append(len(kept(journal)))
    assert all(0 <= after - before <= 3 for before, after in itertools.pairwise(counts))
    assert journal.mailbox.children("/admin/failed_brokers") == []
    assert counts[1] == 3
    assert [row.entry.reason for row in journal.audit.rows(action=Action.REPAIR)] == told
    assert len(told) == sum(after > before for before, after in itertools.pairwise(counts)) >= 3
    assert not any("cannot be quarantined" in each for each in caplog.messages)


def test_what_the_backend_does_not_delete_is_logged_once_and_kept_nowhere(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    create_document(journal.mailbox, "/admin/failed_brokers/mine", "{}")
    monkeypatch.setattr(type(journal.mailbox), "delete", refusing(type(journal.mailbox).delete))
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert quarantine_unreadable(journal, WRITTEN, WATCH) == []
    assert sum("cannot be quarantined" in each for each in caplog.messages) == 1
    assert journal.audit.rows() == []
    assert kept(journal) == {}


def test_what_was_moved_of_a_subtree_has_a_row_even_if_the_rest_cannot_be_moved(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("a", "mine"):
        create_document(journal.mailbox, f"/admin/failed_brokers/foo/{name}", "of someone")
    delete = type(journal.mailbox).delete
    monkeypatch.setattr(
        type(journal.mailbox),
        "delete",
        lambda mailbox, nodes: [] if nodes[0].path.endswith("mine") else delete(mailbox, nodes),
    )
    with caplog.at_level(logging.WARNING):
        (told,) = quarantine_unreadable(journal, [FAILED_BROKERS], WATCH)
    assert [row.entry.reason for row in journal.audit.rows(action=Action.REPAIR)] == [told]
    assert sum("cannot be quarantined" in each for each in caplog.messages) == 1
    assert journal.mailbox.children("/admin/failed_brokers/foo") == ["mine"]


def refusing(delete: Any) -> Any:
    return lambda mailbox, nodes: [] if "failed_brokers" in nodes[0].path else delete(mailbox, nodes)


def put(mailbox: Any, path: str, data: str) -> None:
    """Write a node that our own code would not."""
    if hasattr(mailbox, "database"):
        from tests.hostile import HostileNode, sql_writer

        node = HostileNode(path, data, (0, 1, 1, 1, 1))
        assert sql_writer(mailbox.database.engine, mailbox.database.cluster_id)([node]) == 1
    else:
        mailbox = getattr(mailbox, "_mailbox", mailbox)
        mailbox._session.call(lambda client: client.create_async(path, data.encode(), makepath=True))


def test_a_node_that_we_may_not_read_hides_no_other(zookeeper: ZooKeeperServer, cluster_id: str) -> None:
    mailbox = ClockedZkMailbox(ZooKeeperOptions(zookeeper.at(cluster_id), timeout_s=PATIENT_S))
    create_document(mailbox, "/admin/failed_brokers/3", GOOD)
    theirs = [make_digest_acl("somebody", "else", all=True)]
    mailbox._session.call(lambda client: client.create_async("/admin/failed_brokers/5", b"{}", acl=theirs))
    assert [each.key for each in FAILED_BROKERS.list_valid(mailbox)] == [(3,)]
    mailbox.close()


def test_a_copy_leaves_behind_what_has_a_name_that_no_document_can_have(sqlite_url: str, tmp_path: Path) -> None:
    with open_journal(sqlite_url, "copied") as source, open_journal(f"sqlite:///{tmp_path}/new.db", "copied") as target:
        create_document(source.mailbox, "/admin/failed_brokers/3", GOOD)
        put(source.mailbox, "/admin/failed_brokers/3\n", GOOD)
        copy_journal(source, target)
        assert target.mailbox.children("/admin/failed_brokers") == ["3"]


PATH = "/admin/reassign_partitions_queue"
WHY = f"{PATH} does not contain JSON; correct or delete it."


@pytest.fixture
def memory() -> MemoryMailbox:
    return MemoryMailbox(lambda: 5)


@pytest.fixture
def state() -> MemoryState:
    return MemoryState(lambda: 5)


def quarantined(state: MemoryState) -> list[QuarantinedDocument]:
    return [row.value for row in Rows(state, QUARANTINE).all()]


@pytest.mark.parametrize("replacement", [None, '{"version":1,"partitions":[]}'])
def test_it_is_kept_with_where_it_was_and_why_and_something_else_takes_its_place(
    memory: MemoryMailbox, state: MemoryState, replacement: str | None
) -> None:
    place = quarantine_document(memory, state, create_document(memory, PATH, "no JSON"), WHY, replacement)
    (row,) = Rows(state, QUARANTINE).all()
    assert place == f"row {row.key} of quarantine in the journal's table steward_state"
    assert (row.value, row.at_ms) == (QuarantinedDocument(PATH, WHY, "no JSON"), 5)
    instead = read_one(memory, PATH)
    assert (instead and instead.data) == replacement


@pytest.mark.parametrize("replacement", [None, "{}"])
@pytest.mark.parametrize("meanwhile", ["changed", "deleted"])
def test_what_someone_changed_meanwhile_is_theirs(
    memory: MemoryMailbox, state: MemoryState, replacement: str | None, meanwhile: str
) -> None:
    read = create_document(memory, PATH, "no JSON")
    changed = change_document(memory, PATH, "recovered")
    if meanwhile == "deleted":
        delete_document(memory, PATH)
    assert quarantine_document(memory, state, read, WHY, replacement) is None
    assert (read_one(memory, PATH), quarantined(state)) == (changed if meanwhile == "changed" else None, [])


@pytest.mark.parametrize("text", ["", "a\x00b\x00", "\U0001f600" * 250_001, "\ud800"])
def test_any_text_is_kept(memory: MemoryMailbox, state: MemoryState, text: str) -> None:
    memory._nodes[PATH] = read = Node(PATH, text, 0, 7, 7, 7, 7)  # as one SQL insert may
    assert quarantine_document(memory, state, read, WHY, None)
    assert [each.text for each in quarantined(state)] == [text]


@pytest.mark.parametrize(("text", "kept"), [("", []), ("{}", []), ("{", ["{"])])
def test_a_signal_is_deleted_when_it_was_read_and_kept_only_where_it_is_invalid(text: str, kept: list[str]) -> None:
    journal = memory_journal(Simulator.of("1a"))
    delete_or_quarantine(journal, create_document(journal.mailbox, PATH, text), CancelRequest.from_node)
    assert read_one(journal.mailbox, PATH) is None
    found = [row.value for row in journal.rows(QUARANTINE).all()]
    assert [each.text for each in found] == kept
    assert all(each.reason.startswith(f"{PATH} does not contain JSON") for each in found)


@pytest.mark.parametrize("meanwhile", ["changed", "deleted"])
def test_what_someone_changed_or_deleted_meanwhile_is_left_and_logged(
    memory: MemoryMailbox, meanwhile: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    read = create_document(memory, PATH, "{}")
    changed = change_document(memory, PATH, '{"plan":"d1"}')
    if meanwhile == "deleted":
        delete_document(memory, PATH)
    delete_one(memory, read)
    assert read_one(memory, PATH) == (changed if meanwhile == "changed" else None)
    assert caplog.messages == [f"{PATH} was changed or deleted concurrently; it is left unchanged."]


def test_topics_whose_deletion_is_pending_are_read_with_the_brokers_of_their_replicas() -> None:
    journal = memory_journal(Simulator.of("1a 2b", "t: 12"))
    assert read_pending_deletions(journal) == {}
    for topic in ("a", "b", "c"):
        create_document(journal.mailbox, f"{paths.DELETE_TOPICS}/{topic}", "")
    create_document(journal.mailbox, f"{paths.TOPICS}/a", '{"version":3,"partitions":{"0":[1,9],"1":[2,1]}}')
    create_document(journal.mailbox, f"{paths.TOPICS}/b", "[]")
    assert read_pending_deletions(journal) == {"a": {1, 2, 9}, "b": set(), "c": set()}
