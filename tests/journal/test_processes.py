"""Real processes: stopped beyond their lock's life, and killed in the middle of a publication."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.errors import LockLost
from kafka_steward.journal import paths
from kafka_steward.journal.kip_documents import Chunk
from kafka_steward.journal.locks import Fence
from kafka_steward.journal.records import MoveState, PlanStatus
from kafka_steward.journal.store import Journal
from tests.eventually import eventually
from tests.journal.test_plans import moves_of, record_of

ORDERS_0 = TopicPartition("orders", 0)
TTL_MS = 500

_fork = multiprocessing.get_context("fork")


def _step_late(journal: Journal, parent: Connection) -> None:
    """Take the lock, be stopped, wake up, and try to go on."""
    with journal.step_lock("late", ttl_ms=TTL_MS) as fence:
        record = journal.plans.get("d1")
        assert record is not None
        parent.send("has the lock")
        parent.recv()
        attempts: list[Callable[[], object]] = [
            lambda: journal.plans.set_move_states("d1", [ORDERS_0], MoveState.FAILED, fence=fence),
            lambda: journal.plans.update(record, fence=fence, status=PlanStatus.STUCK),
            fence.check,
        ]
        parent.send([_outcome(attempt) for attempt in attempts])


def _outcome(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except LockLost:
        return "lock lost"
    return "changed something"


def test_a_process_that_was_stopped_beyond_its_locks_life_changes_nothing(journal: Journal) -> None:
    journal.plans.publish(record_of(journal), moves_of(2))
    here, there = _fork.Pipe()
    child = _fork.Process(target=_step_late, args=(journal, there))
    child.start()
    assert here.recv() == "has the lock"
    os.kill(int(child.pid or 0), signal.SIGSTOP)
    fence = eventually(lambda: journal.step_lock("next").acquire(), within=30, errors=(LockLost,))
    journal.plans.set_move_states("d1", [ORDERS_0], MoveState.SUBMITTED, fence=fence)
    os.kill(int(child.pid or 0), signal.SIGCONT)
    here.send("go on")
    assert here.recv() == ["lock lost"] * 3
    child.join(30)
    _still_ours(journal, fence)


def _still_ours(journal: Journal, fence: Fence) -> None:
    fence.check()
    record = journal.plans.get("d1")
    assert record is not None
    assert (record.status, record.revision) == (PlanStatus.PUBLISHED, 0)
    assert [row.state for row in journal.plans.rows("d1")] == [MoveState.SUBMITTED, MoveState.WAITING]


def _publish_for_ever(journal: Journal, parent: Connection) -> None:
    number = 0
    while True:
        digest = f"d{number}"
        journal.plans.publish(record_of(journal, digest), moves_of(40, size=4, topic=digest))
        parent.send(digest)
        number += 1


@pytest.mark.parametrize("after_s", [0.002, 0.01, 0.03])
def test_a_process_killed_while_publishing_leaves_whole_plans_only(journal: Journal, after_s: float) -> None:
    here, there = _fork.Pipe(duplex=False)
    child = _fork.Process(target=_publish_for_ever, args=(journal, there))
    child.start()
    here.recv()
    child.join(after_s)
    child.kill()
    child.join(30)
    records = journal.plans.unfinished()
    for record in records:
        assert [row.move for row in journal.plans.rows(record.digest)] == moves_of(40, 4, topic=record.digest)
        assert [_plan_of(journal, name) for name in record.chunks] == [record.digest] * 10
    digest = f"d{len(records)}"
    again = journal.plans.publish(record_of(journal, digest), moves_of(40, size=4, topic=digest))
    named = {name for record in [*records, again] for name in record.chunks}
    assert set(journal.tree.children(paths.REASSIGN_CHUNKS)) == named


def _plan_of(journal: Journal, name: str) -> str | None:
    node = journal.tree.get(paths.chunk(name))
    return None if node is None else Chunk.from_node(node).plan
