"""What every tree must do: run on the tree in a dict and on each real backend; and all of them agree."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule, run_state_machine_as_test

from kafka_steward.errors import DocumentError, JournalError, NodeExists, NodeMissing, RequestError, VersionConflict
from kafka_steward.journal.store import open_journal
from kafka_steward.journal.tree import MAX_BYTES, Documents, Node
from kafka_steward.journal.zookeeper.options import ZooKeeperOptions
from tests.journal.conftest import PATIENT_S
from tests.journal.zookeeper import ClockedZkTree, ZooKeeperServer
from tests.memory_tree import MemoryTree
from tests.present import present
from tests.rings import tried

PATH = "/admin/failed_brokers/3"


def test_a_created_node_is_read_back(tree: Documents) -> None:
    created = tree.create(PATH, '{"a": 1}')
    assert created == tree.get(PATH)
    assert (created.path, created.data, created.version) == (PATH, '{"a": 1}', 0)
    assert created.created_id == created.modified_id
    assert created.created_ms == created.modified_ms


def test_the_times_are_the_backends_clock(tree: Documents) -> None:
    assert abs(tree.create(PATH, "{}").created_ms - time.time() * 1000) < 60_000


def test_a_node_is_created_once(tree: Documents) -> None:
    tree.create(PATH, "first")
    with pytest.raises(NodeExists, match="/admin/failed_brokers/3 already exists"):
        tree.create(PATH, "second")
    assert _data(tree, PATH) == "first"


def test_a_change_counts_versions_and_keeps_the_creation(tree: Documents) -> None:
    created = tree.create(PATH, "first")
    changed = tree.set(PATH, "second", version=0)
    assert changed == tree.get(PATH)
    assert (changed.data, changed.version) == ("second", 1)
    assert (changed.created_id, changed.created_ms) == (created.created_id, created.created_ms)
    assert changed.modified_id > created.modified_id
    assert changed.modified_ms >= created.modified_ms


@pytest.mark.parametrize("version", [0, 2, -1])
def test_every_version_is_compared_also_zero_one_to_come_and_minus_one(tree: Documents, version: int) -> None:
    tree.create(PATH, "first")
    tree.set(PATH, "second", version=0)
    with pytest.raises(VersionConflict, match=f"was changed since version {version} was read"):
        tree.set(PATH, "third", version=version)
    with pytest.raises(VersionConflict, match=f"since version {version} was read"):
        tree.delete(PATH, version=version)
    assert _data(tree, PATH) == "second"


def test_a_missing_node_is_not_changed(tree: Documents) -> None:
    with pytest.raises(NodeMissing, match="no longer exists"):
        tree.set(PATH, "x", version=0)
    with pytest.raises(NodeMissing):
        tree.delete(PATH, version=0)


def test_a_recreated_node_has_another_id(tree: Documents) -> None:
    first = tree.create(PATH, "x")
    tree.delete(PATH, version=0)
    assert (tree.get(PATH), tree.children("/admin/failed_brokers")) == (None, [])
    second = tree.create(PATH, "x")
    assert second.version == 0
    assert second.created_id > first.created_id


def test_ids_of_all_nodes_come_from_one_counter(tree: Documents) -> None:
    ids = [tree.create(f"/a/{name}", "x").created_id for name in "abc"]
    ids.append(tree.set("/a/a", "y", version=0).modified_id)
    assert ids == sorted(set(ids))


def test_a_refused_change_leaves_the_counter_growing(tree: Documents) -> None:
    first = tree.create("/a/a", "x")
    with pytest.raises(VersionConflict):
        tree.set("/a/a", "y", version=7)
    assert tree.create("/a/b", "x").created_id > first.created_id


def test_sequence_numbers_have_ten_digits_and_grow(tree: Documents) -> None:
    names = [tree.create_sequential("/admin/reassign_chunks/chunk_", str(n)).path for n in range(3)]
    assert names == sorted(set(names))
    assert all(name.removeprefix("/admin/reassign_chunks/chunk_").isdigit() for name in names)
    assert {len(name) for name in names} == {len("/admin/reassign_chunks/chunk_") + 10}
    assert [_data(tree, name) for name in names] == ["0", "1", "2"]


def test_a_sequence_number_is_never_used_again(tree: Documents) -> None:
    used = set()
    for _ in range(5):
        path = tree.create_sequential("/q/r_", "x").path
        assert path not in used
        used.add(path)
        tree.delete(path, version=0)
    assert tree.create_sequential("/q/r_", "x").path not in used


def test_created_ids_are_those_of_the_documents_in_the_order_asked_for(tree: Documents) -> None:
    first, second = tree.create("/a/z", "x"), tree.create("/a/b", "y")
    tree.set("/a/z", "changed", version=0)
    paths = ["/a/b", "/a/gone", "/a/z", *(f"/a/{number}" for number in range(600))]
    assert tree.created_ids(paths) == [second.created_id, None, first.created_id, *[None] * 600]
    assert tree.created_ids([]) == []


def test_children_are_the_names_directly_below(tree: Documents) -> None:
    for path in ("/a/b/c/d", "/a/b/e", "/a/bb/f", "/a/b0/g", "/a/b-/h", "/ab/i"):
        tree.create(path, "x")
    assert tree.children("/a/b") == ["c", "e"]
    assert tree.children("/a") == ["b", "b-", "b0", "bb"]
    assert tree.children("/a/b/c/d") == []
    assert tree.children("/nowhere") == []
    assert {"a", "ab"} <= set(tree.children("/"))


def test_documents_below_are_those_directly_below_and_no_mere_parents(tree: Documents) -> None:
    for path in ("/a/b/c/d", "/a/b/e", "/a/b/f", "/a/b-/h"):
        tree.create(path, f"at {path}")
    assert [(node.path, node.data) for node in tree.below("/a/b")] == [("/a/b/e", "at /a/b/e"), ("/a/b/f", "at /a/b/f")]
    assert tree.below("/a/b")[0] == tree.get("/a/b/e")
    assert tree.below("/a/b/e") == tree.below("/nowhere") == []


def test_documents_at_and_below_a_path_come_before_their_parents(tree: Documents) -> None:
    """So that they can be deleted in this order."""
    for path in ("/a/b", "/a/b/c", "/a/b/c/d", "/a/b/e", "/a/bb", "/a/b-/f"):
        tree.create(path, f"at {path}")
    found = tree.subtree("/a/b", 9)
    paths = [node.path for node in found]
    assert sorted(paths) == ["/a/b", "/a/b/c", "/a/b/c/d", "/a/b/e"]
    assert (paths[0], paths[-1]) == ("/a/b/c/d", "/a/b")
    assert all(node == tree.get(node.path) for node in found)
    assert len(tree.subtree("/a/b", 2)) == 2
    for most in range(1, 5):  # what is returned can be deleted in this order
        first = [node.path for node in tree.subtree("/a/b", most)]
        assert all(
            below in first[: first.index(path)]
            for path in first
            for below in paths
            if below > f"{path}/" and below.startswith(f"{path}/")
        )
    assert tree.subtree("/nowhere", 9) == []


def test_several_nodes_are_created_together_and_those_that_exist_stay(tree: Documents) -> None:
    there = tree.create("/many/b/2", "first")
    documents = {f"/many/{parent}/{number}": f"{parent}{number}" for parent in "ab" for number in range(600)}
    assert tree.create_all({}) == []
    assert tree.create_all(documents) == ["/many/b/2"]
    assert tree.get("/many/b/2") == there
    assert tree.create_all(documents) == list(documents)
    tree.delete("/many/b/2", version=0)
    assert tree.create_all({"/many/b/2": "again", "/many/a/0": ""}) == ["/many/a/0"]
    there = tree.read(["/many/b/2"])[0] or there
    assert there.data == "again"
    nodes = [*tree.below("/many/a"), *tree.below("/many/b")]
    assert {node.path: node.data for node in nodes if node != there} == {
        f"/many/{parent}/{number}": f"{parent}{number}"
        for parent in "ab"
        for number in range(600)
        if (parent, number) != ("b", 2)
    }
    assert len({node.created_id for node in nodes}) == len(nodes)
    assert all((node.version, node.modified_id) == (0, node.created_id) for node in nodes)
    later = tree.create("/later", "x")
    assert later.created_id > max(node.created_id for node in nodes), "their numbers are used up"


def test_several_nodes_are_deleted_together_but_those_that_changed(tree: Documents) -> None:
    tree.create_all({f"/many/a/{number}": "x" for number in range(600)})
    nodes = tree.below("/many/a")
    changed = tree.set("/many/a/7", "y", version=0)
    tree.delete("/many/a/8", version=0)
    tree.delete_all(nodes)
    assert tree.below("/many/a") == [changed]
    for each in ([changed], []):
        tree.delete_all(each)
    assert tree.children("/many/a") == []


def test_names_are_sorted_byte_by_byte(tree: Documents) -> None:
    for name in ("b", "B", "a", "_", "10", "9"):
        tree.create(f"/n/{name}", name)
    assert tree.children("/n") == ["10", "9", "B", "_", "a", "b"]
    assert (_data(tree, "/n/b"), _data(tree, "/n/B")) == ("b", "B")


def test_documents_come_back_as_they_were_also_the_largest(tree: Documents) -> None:
    texts = ["", "{}", "ünïcödé \U0001f600", '"quoted" \\ %s :name', "line\nend", "x" * MAX_BYTES]
    for number, text in enumerate(texts):
        tree.create(f"/n/{number}", text)
        assert _data(tree, f"/n/{number}") == text


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
def test_what_cannot_be_kept_whole_is_refused(tree: Documents, data: str, sentence: str) -> None:
    tree.create("/n/b", "x")
    writes: dict[str, Callable[[], object]] = {
        "/n/a": lambda: tree.create("/n/a", data),
        "/n/s_0": lambda: tree.create_sequential("/n/s_", data),
        "/n/b": lambda: tree.set("/n/b", data, version=0),
        "/n/d": lambda: tree.create_all({"/n/c": "x", "/n/d": data}),
    }
    for path, write in writes.items():
        with pytest.raises(DocumentError, match=f"^The text to write to {path} .*{sentence}"):
            write()
    assert tree.children("/n") == ["b"]
    assert _data(tree, "/n/b") == "x"


@pytest.mark.parametrize("path", ["", "a", "/", "//a", "/a/", "/a//b", "/a/../b", "/a/.", "/a\x00", "/" + "a" * 1024])
def test_what_is_no_path_is_refused(tree: Documents, path: str) -> None:
    uses: list[Callable[[], object]] = [
        lambda: tree.create(path, "x"),
        lambda: tree.get(path),
        lambda: tree.set(path, "x", version=0),
        lambda: tree.delete(path, version=0),
    ]
    for use in uses:
        with pytest.raises(RequestError, match="is not a path in the journal"):
            use()


@pytest.mark.parametrize("exists", [True, False])
def test_of_many_who_create_the_same_node_or_change_the_same_version_one_wins(tree: Documents, exists: bool) -> None:
    if exists:
        tree.create("/n/a", "0")

    def try_it(number: int) -> Node | None:
        try:
            return tree.set("/n/a", str(number), version=0) if exists else tree.create("/n/a", str(number))
        except (VersionConflict, NodeExists):
            return None

    with ThreadPoolExecutor(8) as pool:
        winners = [node for node in pool.map(try_it, range(8)) if node is not None]
    assert [node.data for node in winners] == [_data(tree, "/n/a")]


def test_sequence_numbers_differ_among_threads(tree: Documents) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda number: tree.create_sequential("/q/r_", str(number)), range(24)))
    assert len({node.path for node in made}) == 24
    assert len({node.created_id for node in made}) == 24
    assert len(tree.children("/q")) == 24


def _data(tree: Documents, path: str) -> str:
    return present(tree.get(path)).data


_runs = (f"agree-{number}" for number in itertools.count())
_PATHS = ("/admin/failed_brokers/1", "/admin/failed_brokers/2", "/admin/rolling_bounce/1", "/admin/rolling_bounce/2")
#: ZooKeeper goes on listing a parent when nothing is below it any more, so only parents of documents are compared.
_PARENTS = ("/admin/failed_brokers", "/admin/rolling_bounce")
_PREFIXES = ("/admin/reassign_chunks/chunk_", "/admin/reassignment_requests/request_")
_DATA = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20)
_VERSIONS = st.integers(0, 3)

Operation = Callable[[Documents], Any]


class Agreement(RuleBasedStateMachine):
    """A subclass says on which trees; they are made anew for each run."""

    open_trees: ClassVar[Callable[[], Mapping[str, Documents]]]
    sequential = Bundle("sequential")

    def __init__(self) -> None:
        super().__init__()
        self.trees = type(self).open_trees()

    def all_answer(self, operation: Operation) -> Any:
        answers = {name: _answer(tree, operation) for name, tree in self.trees.items()}
        first = next(iter(answers.values()))
        assert all(answer == first for answer in answers.values()), answers
        return first

    @rule(path=st.sampled_from(_PATHS), data=_DATA)
    def create(self, path: str, data: str) -> None:
        self.all_answer(lambda tree: _shape(tree.create(path, data)))

    @rule(target=sequential, prefix=st.sampled_from(_PREFIXES), data=_DATA)
    def create_sequential(self, prefix: str, data: str) -> dict[str, str]:
        """Numbers may differ between backends, so each has its own path."""
        made = {name: tree.create_sequential(prefix, data) for name, tree in self.trees.items()}
        assert len({(node.version, node.data) for node in made.values()}) == 1
        return {name: node.path for name, node in made.items()}

    @rule(path=st.sampled_from(_PATHS), data=_DATA, version=_VERSIONS)
    def set(self, path: str, data: str, version: int) -> None:
        self.all_answer(lambda tree: _shape(tree.set(path, data, version=version)))

    @rule(path=st.sampled_from(_PATHS), version=_VERSIONS)
    def delete(self, path: str, version: int) -> None:
        self.all_answer(lambda tree: tree.delete(path, version=version))

    @rule(paths=st.sets(st.sampled_from(_PATHS)), data=_DATA)
    def create_all(self, paths: AbstractSet[str], data: str) -> None:
        self.all_answer(lambda tree: tree.create_all(dict.fromkeys(sorted(paths), data)))

    @rule(paths=st.sets(st.sampled_from(_PATHS)), change=st.none() | st.sampled_from(_PATHS))
    def delete_all(self, paths: AbstractSet[str], change: str | None) -> None:
        """Those that were read, of which one may have been changed since."""
        read = {name: [node for node in tree.read(sorted(paths)) if node] for name, tree in self.trees.items()}
        for version in range(4 if change else 0):
            self.all_answer(partial(_set, change or "", version))
        for name, tree in self.trees.items():
            tree.delete_all(read[name])

    @rule(made=consumes(sequential))
    def delete_sequential(self, made: dict[str, str]) -> None:
        for name, path in made.items():
            self.trees[name].delete(path, version=0)

    @invariant()
    def the_same_nodes(self) -> None:
        for path in _PATHS:
            self.all_answer(partial(_get, path))

    @invariant()
    def the_same_children(self) -> None:
        for parent in _PARENTS:
            self.all_answer(partial(_children, parent))
        for prefix in _PREFIXES:
            self.all_answer(partial(_number_of_children, prefix.rpartition("/")[0]))


def _get(path: str, tree: Documents) -> Any:
    return _shape(tree.get(path))


def _set(path: str, version: int, tree: Documents) -> Any:
    return _shape(tree.set(path, "changed", version=version))


def _children(parent: str, tree: Documents) -> list[str]:
    return tree.children(parent)


def _number_of_children(parent: str, tree: Documents) -> int:
    return len(tree.children(parent))


def _shape(node: Any) -> Any:
    """What must agree: ids and times are each backend's own."""
    return node and (node.path, node.data, node.version, node.created_id == node.modified_id)


def _answer(tree: Documents, operation: Operation) -> Any:
    try:
        return operation(tree)
    except JournalError as error:
        return type(error), str(error)


def test_all_trees_agree(sqlite_url: str, postgres_url: str, zookeeper: ZooKeeperServer) -> None:
    with ExitStack() as opened:

        def trees() -> Mapping[str, Documents]:
            opened.close()  # those of the run before
            run = next(_runs)
            on_zookeeper = ClockedZkTree(ZooKeeperOptions(zookeeper.at(run), timeout_s=PATIENT_S))
            opened.callback(on_zookeeper.close)
            return {
                "memory": MemoryTree(lambda: time.time_ns() // 1_000_000),
                "sqlite": opened.enter_context(open_journal(sqlite_url, run)).tree,
                "postgresql": opened.enter_context(open_journal(postgres_url, run)).tree,
                "zookeeper": on_zookeeper,
            }

        run_state_machine_as_test(
            type("AgreementOfAll", (Agreement,), {"open_trees": staticmethod(trees)}),
            settings=settings(
                max_examples=tried(8), stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
            ),
        )
