"""What every mailbox must do: run on the mailbox in a dict and on each real backend; and all of them agree."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule, run_state_machine_as_test

from kafka_steward.errors import DocumentError, RequestError
from kafka_steward.journal.mailbox import MAX_BYTES, Mailbox, Node, put_one, read_below, read_one, read_subtree
from kafka_steward.journal.store import open_journal
from kafka_steward.journal.zookeeper.options import ZooKeeperOptions
from tests.documents import change_document, create_document, delete_document
from tests.journal.conftest import PATIENT_S
from tests.journal.zookeeper import ClockedZkMailbox, ZooKeeperServer
from tests.memory_mailbox import MemoryMailbox
from tests.present import present
from tests.rings import tried

PATH = "/admin/failed_brokers/3"


def test_a_created_node_is_read_back(mailbox: Mailbox) -> None:
    created = create_document(mailbox, PATH, '{"a": 1}')
    assert created == read_one(mailbox, PATH)
    assert (created.path, created.data, created.version) == (PATH, '{"a": 1}', 0)
    assert created.created_id == created.modified_id
    assert created.created_ms == created.modified_ms


def test_the_times_are_the_backends_clock(mailbox: Mailbox) -> None:
    assert abs(create_document(mailbox, PATH, "{}").created_ms - time.time() * 1000) < 60_000


def test_a_node_is_created_once(mailbox: Mailbox) -> None:
    first = create_document(mailbox, PATH, "first")
    assert mailbox.put({PATH: "second"}) == {}
    assert read_one(mailbox, PATH) == first


def test_a_change_counts_versions_and_keeps_the_creation(mailbox: Mailbox) -> None:
    created = create_document(mailbox, PATH, "first")
    changed = present(put_one(mailbox, PATH, "second", created))
    assert changed == read_one(mailbox, PATH)
    assert (changed.data, changed.version) == ("second", 1)
    assert (changed.created_id, changed.created_ms) == (created.created_id, created.created_ms)
    assert changed.modified_id > created.modified_id
    assert changed.modified_ms >= created.modified_ms


@pytest.mark.parametrize("version", [0, 2, -1])
def test_every_version_is_compared_also_zero_one_to_come_and_minus_one(mailbox: Mailbox, version: int) -> None:
    first = create_document(mailbox, PATH, "first")
    second = present(put_one(mailbox, PATH, "second", first))
    seen = replace(second, version=version)
    assert (mailbox.put({PATH: "third"}, [seen]), mailbox.delete([seen])) == ({}, [])
    assert read_one(mailbox, PATH) == second


def test_a_missing_node_is_not_changed(mailbox: Mailbox) -> None:
    seen = create_document(mailbox, PATH, "x")
    delete_document(mailbox, PATH)
    assert (mailbox.put({PATH: "y"}, [seen]), mailbox.delete([seen])) == ({}, [])
    assert read_one(mailbox, PATH) is None


def test_a_recreated_node_has_another_id(mailbox: Mailbox) -> None:
    first = create_document(mailbox, PATH, "x")
    assert mailbox.delete([first]) == [first]
    assert (read_one(mailbox, PATH), mailbox.children("/admin/failed_brokers")) == (None, [])
    second = create_document(mailbox, PATH, "x")
    assert second.version == 0
    assert second.created_id > first.created_id


def test_ids_of_all_nodes_come_from_one_counter(mailbox: Mailbox) -> None:
    ids = [create_document(mailbox, f"/a/{name}", "x").created_id for name in "abc"]
    ids.append(change_document(mailbox, "/a/a", "y").modified_id)
    assert ids == sorted(set(ids))


def test_a_refused_change_leaves_the_counter_growing(mailbox: Mailbox) -> None:
    first = create_document(mailbox, "/a/a", "x")
    assert put_one(mailbox, "/a/a", "y", replace(first, version=7)) is None
    assert create_document(mailbox, "/a/b", "x").created_id > first.created_id


def test_sequence_numbers_have_ten_digits_and_grow(mailbox: Mailbox) -> None:
    names = [mailbox.append("/admin/reassign_chunks/chunk_", str(n)).path for n in range(3)]
    assert names == sorted(set(names))
    assert all(name.removeprefix("/admin/reassign_chunks/chunk_").isdigit() for name in names)
    assert {len(name) for name in names} == {len("/admin/reassign_chunks/chunk_") + 10}
    assert [_data(mailbox, name) for name in names] == ["0", "1", "2"]


def test_a_sequence_number_is_never_used_again(mailbox: Mailbox) -> None:
    used = set()
    for _ in range(5):
        path = mailbox.append("/q/r_", "x").path
        assert path not in used
        used.add(path)
        delete_document(mailbox, path)
    assert mailbox.append("/q/r_", "x").path not in used


def test_children_are_the_names_directly_below(mailbox: Mailbox) -> None:
    for path in ("/a/b/c/d", "/a/b/e", "/a/bb/f", "/a/b0/g", "/a/b-/h", "/ab/i"):
        create_document(mailbox, path, "x")
    assert mailbox.children("/a/b") == ["c", "e"]
    assert mailbox.children("/a") == ["b", "b-", "b0", "bb"]
    assert mailbox.children("/a/b/c/d") == []
    assert mailbox.children("/nowhere") == []
    assert {"a", "ab"} <= set(mailbox.children("/"))


def test_documents_below_are_those_directly_below_and_no_mere_parents(mailbox: Mailbox) -> None:
    for path in ("/a/b/c/d", "/a/b/e", "/a/b/f", "/a/b-/h"):
        create_document(mailbox, path, f"at {path}")
    found = [(node.path, node.data) for node in read_below(mailbox, "/a/b")]
    assert found == [("/a/b/e", "at /a/b/e"), ("/a/b/f", "at /a/b/f")]
    assert read_below(mailbox, "/a/b/e") == read_below(mailbox, "/nowhere") == []


def test_documents_at_and_below_a_path_come_before_their_parents(mailbox: Mailbox) -> None:
    """So that they can be deleted in this order."""
    for path in ("/a/b", "/a/b/c", "/a/b/c/d", "/a/b/e", "/a/bb", "/a/b-/f"):
        create_document(mailbox, path, f"at {path}")
    found = read_subtree(mailbox, "/a/b", 9)
    paths = [node.path for node in found]
    assert sorted(paths) == ["/a/b", "/a/b/c", "/a/b/c/d", "/a/b/e"]
    assert (paths[0], paths[-1]) == ("/a/b/c/d", "/a/b")
    assert all(node == read_one(mailbox, node.path) for node in found)
    assert len(read_subtree(mailbox, "/a/b", 2)) == 2
    for most in range(1, 5):  # what is returned can be deleted in this order
        first = [node.path for node in read_subtree(mailbox, "/a/b", most)]
        assert all(
            below in first[: first.index(path)]
            for path in first
            for below in paths
            if below > f"{path}/" and below.startswith(f"{path}/")
        )
    assert read_subtree(mailbox, "/nowhere", 9) == []


def test_several_nodes_are_created_together_and_those_that_exist_stay(mailbox: Mailbox) -> None:
    there = create_document(mailbox, "/many/b/2", "first")
    documents = {f"/many/{parent}/{number}": f"{parent}{number}" for parent in "ab" for number in range(600)}
    assert mailbox.put({}) == {}
    created = mailbox.put(documents)
    assert {path: node.data for path, node in created.items()} == {
        path: text for path, text in documents.items() if path != there.path
    }
    assert list(created.values()) == mailbox.read(list(created))
    assert read_one(mailbox, "/many/b/2") == there
    assert mailbox.put(documents) == {}
    assert len({node.created_id for node in created.values()}) == len(created)
    assert all((node.version, node.modified_id) == (0, node.created_id) for node in created.values())
    later = create_document(mailbox, "/later", "x")
    assert later.created_id > max(node.created_id for node in created.values()), "their numbers are used up"


def test_some_nodes_are_changed_and_others_created_together(mailbox: Mailbox) -> None:
    old, changed = create_document(mailbox, "/n/old", "1"), create_document(mailbox, "/n/changed", "1")
    change_document(mailbox, "/n/changed", "2")
    written = mailbox.put({"/n/old": "3", "/n/changed": "3", "/n/new": "3"}, [old, changed])
    assert {path: (node.data, node.version) for path, node in written.items()} == {
        "/n/old": ("3", 1),
        "/n/new": ("3", 0),
    }
    assert list(written.values()) == mailbox.read(list(written))
    assert _data(mailbox, "/n/changed") == "2"


def test_several_nodes_are_deleted_together_but_those_that_changed(mailbox: Mailbox) -> None:
    mailbox.put({f"/many/a/{number}": "x" for number in range(600)})
    nodes = read_below(mailbox, "/many/a")
    changed = change_document(mailbox, "/many/a/7", "y")
    delete_document(mailbox, "/many/a/8")
    kept = {"/many/a/7", "/many/a/8"}
    assert {node.path for node in mailbox.delete(nodes)} == {node.path for node in nodes} - kept
    assert read_below(mailbox, "/many/a") == [changed]
    assert (mailbox.delete([changed]), mailbox.delete([])) == ([changed], [])
    assert mailbox.children("/many/a") == []


def test_names_are_sorted_byte_by_byte(mailbox: Mailbox) -> None:
    for name in ("b", "B", "a", "_", "10", "9"):
        create_document(mailbox, f"/n/{name}", name)
    assert mailbox.children("/n") == ["10", "9", "B", "_", "a", "b"]
    assert (_data(mailbox, "/n/b"), _data(mailbox, "/n/B")) == ("b", "B")


def test_documents_come_back_as_they_were_also_the_largest(mailbox: Mailbox) -> None:
    texts = ["", "{}", "ünïcödé \U0001f600", '"quoted" \\ %s :name', "line\nend", "x" * MAX_BYTES]
    for number, text in enumerate(texts):
        create_document(mailbox, f"/n/{number}", text)
        assert _data(mailbox, f"/n/{number}") == text


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ("x" * (MAX_BYTES + 1), "1000001 bytes, more than the 1000000 .* smaller chunk_size"),
        ("ü" * (MAX_BYTES // 2 + 1), "1000002 bytes"),
        ("a\x00b", "NUL"),
        ("\ud800", "not valid Unicode"),
    ],
    # An id of a megabyte would be in the environment of the servers that a fixture starts, and none could start.
    ids=["too long", "too many bytes", "NUL", "half a character"],
)
def test_what_cannot_be_kept_whole_is_refused(mailbox: Mailbox, data: str, sentence: str) -> None:
    node = create_document(mailbox, "/n/b", "x")
    writes: dict[str, Callable[[], object]] = {
        "/n/a": lambda: mailbox.put({"/n/a": data}),
        "/n/s_0": lambda: mailbox.append("/n/s_", data),
        "/n/b": lambda: mailbox.put({"/n/b": data}, [node]),
        "/n/d": lambda: mailbox.put({"/n/c": "x", "/n/d": data}),
    }
    for path, write in writes.items():
        with pytest.raises(DocumentError, match=f"^The text to write to {path} .*{sentence}"):
            write()
    assert mailbox.children("/n") == ["b"]
    assert _data(mailbox, "/n/b") == "x"


@pytest.mark.parametrize("path", ["", "a", "/", "//a", "/a/", "/a//b", "/a/../b", "/a/.", "/a\x00", "/" + "a" * 1024])
def test_what_is_no_path_is_refused(mailbox: Mailbox, path: str) -> None:
    seen = Node(path, "x", 0, 1, 1, 1, 1)
    uses: list[Callable[[], object]] = [
        lambda: mailbox.put({path: "x"}),
        lambda: read_one(mailbox, path),
        lambda: mailbox.put({path: "x"}, [seen]),
    ]
    for use in uses:
        with pytest.raises(RequestError, match="is not a path in the journal"):
            use()


@pytest.mark.parametrize("exists", [True, False])
def test_of_many_who_create_the_same_node_or_change_the_same_version_one_wins(mailbox: Mailbox, exists: bool) -> None:
    seen = create_document(mailbox, "/n/a", "0") if exists else None
    with ThreadPoolExecutor(8) as pool:
        written = pool.map(lambda number: put_one(mailbox, "/n/a", str(number), seen), range(8))
        winners = [node for node in written if node is not None]
    assert [node.data for node in winners] == [_data(mailbox, "/n/a")]


def test_sequence_numbers_differ_among_threads(mailbox: Mailbox) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda number: mailbox.append("/q/r_", str(number)), range(24)))
    assert len({node.path for node in made}) == 24
    assert len({node.created_id for node in made}) == 24
    assert len(mailbox.children("/q")) == 24


def _data(mailbox: Mailbox, path: str) -> str:
    return present(read_one(mailbox, path)).data


_runs = (f"agree-{number}" for number in itertools.count())
_PATHS = ("/admin/failed_brokers/1", "/admin/failed_brokers/2", "/admin/rolling_bounce/1", "/admin/rolling_bounce/2")
#: ZooKeeper goes on listing a parent when nothing is below it any more, so only parents of documents are compared.
_PARENTS = ("/admin/failed_brokers", "/admin/rolling_bounce")
_PREFIXES = ("/admin/reassign_chunks/chunk_", "/admin/reassignment_requests/request_")
_DATA = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20)
_VERSIONS = st.integers(-1, 3)

Operation = Callable[[Mailbox], Any]


class Agreement(RuleBasedStateMachine):
    """A subclass says on which trees; they are made anew for each run."""

    open_trees: ClassVar[Callable[[], Mapping[str, Mailbox]]]
    sequential = Bundle("sequential")

    def __init__(self) -> None:
        super().__init__()
        self.mailboxes = type(self).open_trees()

    def all_answer(self, operation: Operation) -> Any:
        answers = {name: operation(mailbox) for name, mailbox in self.mailboxes.items()}
        first = next(iter(answers.values()))
        assert all(answer == first for answer in answers.values()), answers
        return first

    @rule(target=sequential, prefix=st.sampled_from(_PREFIXES), data=_DATA)
    def append(self, prefix: str, data: str) -> dict[str, Node]:
        """Numbers may differ between backends, so each has its own path."""
        made = {name: mailbox.append(prefix, data) for name, mailbox in self.mailboxes.items()}
        assert len({(node.version, node.data) for node in made.values()}) == 1
        return made

    @rule(paths=st.sets(st.sampled_from(_PATHS)), change=st.sets(st.sampled_from(_PATHS)), data=_DATA)
    def put(self, paths: AbstractSet[str], change: AbstractSet[str], data: str) -> None:
        """Those in `change` are changed if they exist, the others created."""
        self.all_answer(partial(_put, sorted(paths), sorted(change), data))

    @rule(path=st.sampled_from(_PATHS), data=_DATA, version=_VERSIONS)
    def put_another_version(self, path: str, data: str, version: int) -> None:
        seen = Node(path, "", version, 1, 1, 1, 1)
        self.all_answer(lambda mailbox: _shapes(mailbox.put({path: data}, [seen])))

    @rule(paths=st.sets(st.sampled_from(_PATHS)), change=st.none() | st.sampled_from(_PATHS))
    def delete(self, paths: AbstractSet[str], change: str | None) -> None:
        """Those that were read, of which one may have been changed since."""
        self.all_answer(partial(_delete, sorted(paths), change))

    @rule(made=consumes(sequential))
    def delete_appended(self, made: dict[str, Node]) -> None:
        for name, node in made.items():
            assert self.mailboxes[name].delete([node]) == [node]

    @invariant()
    def the_same_nodes(self) -> None:
        self.all_answer(lambda mailbox: [_shape(node) for node in mailbox.read(_PATHS)])

    @invariant()
    def the_same_children(self) -> None:
        for parent in _PARENTS:
            self.all_answer(partial(_children, parent))
        for prefix in _PREFIXES:
            self.all_answer(partial(_number_of_children, prefix.rpartition("/")[0]))


def _put(paths: Sequence[str], change: Sequence[str], data: str, mailbox: Mailbox) -> Any:
    seen = [node for node in mailbox.read(change) if node]
    return _shapes(mailbox.put(dict.fromkeys([*paths, *(node.path for node in seen)], data), seen))


def _delete(paths: Sequence[str], change: str | None, mailbox: Mailbox) -> Any:
    read = [node for node in mailbox.read(paths) if node]
    if change:
        _put([], [change], "changed", mailbox)
    return [_shape(node) for node in mailbox.delete(read)]


def _children(parent: str, mailbox: Mailbox) -> list[str]:
    return mailbox.children(parent)


def _number_of_children(parent: str, mailbox: Mailbox) -> int:
    return len(mailbox.children(parent))


def _shapes(nodes: Mapping[str, Node]) -> dict[str, Any]:
    return {path: _shape(node) for path, node in nodes.items()}


def _shape(node: Node | None) -> Any:
    """What must agree: ids and times are each backend's own."""
    return node and (node.path, node.data, node.version, node.created_id == node.modified_id)


def test_all_mailboxes_agree(sqlite_url: str, postgres_url: str, zookeeper: ZooKeeperServer) -> None:
    with ExitStack() as opened:

        def mailboxes() -> Mapping[str, Mailbox]:
            opened.close()  # those of the run before
            run = next(_runs)
            on_zookeeper = ClockedZkMailbox(ZooKeeperOptions(zookeeper.at(run), timeout_s=PATIENT_S))
            opened.callback(on_zookeeper.close)
            return {
                "memory": MemoryMailbox(lambda: time.time_ns() // 1_000_000),
                "sqlite": opened.enter_context(open_journal(sqlite_url, run)).mailbox,
                "postgresql": opened.enter_context(open_journal(postgres_url, run)).mailbox,
                "zookeeper": on_zookeeper,
            }

        run_state_machine_as_test(
            type("AgreementOfAll", (Agreement,), {"open_trees": staticmethod(mailboxes)}),
            settings=settings(
                max_examples=tried(8), stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
            ),
        )
