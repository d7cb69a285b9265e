"""The same operations on every tree, in any order: after each, all of them answer the same."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import ExitStack
from functools import partial
from typing import Any, ClassVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule, run_state_machine_as_test

from kafka_steward.errors import JournalError
from kafka_steward.journal.store import open_journal
from kafka_steward.journal.tree import Tree
from kafka_steward.journal.zookeeper.options import ZooKeeperOptions
from kafka_steward.journal.zookeeper.tree import ZkTree
from tests.journal.conftest import PATIENT_S
from tests.journal.zookeeper import ZooKeeperServer
from tests.memory_tree import MemoryTree

_runs = (f"agree-{number}" for number in itertools.count())
_PATHS = ("/admin/failed_brokers/1", "/admin/failed_brokers/2", "/steward/plans/d1", "/steward/plans/d2")
#: ZooKeeper goes on listing a parent when nothing is below it any more, so only parents of documents are compared.
_PARENTS = ("/admin/failed_brokers", "/steward/plans")
_PREFIXES = ("/admin/reassign_chunks/chunk_", "/admin/reassignment_requests/request_")
_DATA = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20)
_VERSIONS = st.integers(0, 3)

Operation = Callable[[Tree], Any]


class Agreement(RuleBasedStateMachine):
    """A subclass says on which trees; they are made anew for each run."""

    open_trees: ClassVar[Callable[[], Mapping[str, Tree]]]
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


def _get(path: str, tree: Tree) -> Any:
    return _shape(tree.get(path))


def _set(path: str, version: int, tree: Tree) -> Any:
    return _shape(tree.set(path, "changed", version=version))


def _children(parent: str, tree: Tree) -> list[str]:
    return tree.children(parent)


def _number_of_children(parent: str, tree: Tree) -> int:
    return len(tree.children(parent))


def _shape(node: Any) -> Any:
    """What must agree: ids and times are each backend's own."""
    return node and (node.path, node.data, node.version, node.created_id == node.modified_id)


def _answer(tree: Tree, operation: Operation) -> Any:
    try:
        return operation(tree)
    except JournalError as error:
        return type(error), str(error)


def test_all_trees_agree(sqlite_url: str, postgres_url: str, zookeeper: ZooKeeperServer) -> None:
    with ExitStack() as opened:

        def trees() -> Mapping[str, Tree]:
            opened.close()  # those of the run before
            run = next(_runs)
            on_zookeeper = ZkTree(ZooKeeperOptions(zookeeper.at(run), timeout_s=PATIENT_S))
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
                max_examples=8, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
            ),
        )
