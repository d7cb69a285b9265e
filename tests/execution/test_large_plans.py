"""What concerns every move of a large plan is written in few statements, and in transactions that end soon."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from kafka_steward.assignment import Move
from kafka_steward.execution.moves import store
from kafka_steward.journal.audit import Action
from kafka_steward.journal.locks import STEP_LOCK, TTL_MS
from kafka_steward.journal.records import Cause, MoveState
from kafka_steward.journal.state import ONLY
from kafka_steward.journal.store import Journal, open_journal
from kafka_steward.settings import Settings
from tests.cancelling import undo_of
from tests.simulated_plan import World, journal_of
from tests.simulator import Simulator

MANY = 1_200


@pytest.fixture(autouse=True)
def small_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_DECISIONS_AT_ONCE", 300)


def plan_of_many(journal: Journal, simulator: Simulator) -> World:
    """All partitions go to broker 4, one at a time; the first is in flight."""
    moves = [
        Move(*name, (1, 2, 3), (4, 2, 3), at // 400, at % 400, "test", None, 100)
        for at, name in enumerate(sorted(simulator.topics))
    ]
    made = World(simulator, journal, moves, Settings(throttle=0, max_in_per_broker=1), auto_generated=False)
    made.step()
    return made


@pytest.fixture
def simulator() -> Simulator:
    return Simulator.of("1a 2b 3c 4a 5b", "t: " + " ".join(["123"] * MANY))


@pytest.fixture
def world(tmp_path: Path, simulator: Simulator) -> Iterator[World]:
    with open_journal(f"sqlite:///{tmp_path}/journal.db", simulator.cluster_id) as journal:
        yield plan_of_many(journal, simulator)


@pytest.fixture
def statements(world: World) -> list[str]:
    """What the database was told, with the number of rows that each change has changed."""
    engine, told = world.journal.plans._table.database.engine, []

    def listen(_connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        told.append(f"{statement.split(maxsplit=1)[0]} {cursor.rowcount}")

    sa.event.listen(engine, "after_cursor_execute", listen)
    return told


def verify_small(statements: list[str], rows: int = 2) -> None:
    """Few statements wrote `rows` rows for each move: of the audit trail, and of the plan."""
    # One by one, there would be a row of the audit trail, a change, and a look at the lock for each.
    assert len(statements) < MANY / 10
    writes = [int(each.split()[1]) for each in statements if each.startswith(("INSERT", "UPDATE"))]
    assert sum(writes) > rows * (MANY - 10)
    assert max(writes) <= 300
    assert sum(each.startswith("BEGIN") for each in statements) > 3


def test_all_that_waits_is_held_and_goes_on(world: World, statements: list[str]) -> None:
    waiting = [row for row in world.rows() if row.state is MoveState.WAITING]
    world.simulator.kill(4)
    world.simulator.tick()
    world.step()
    verify_small(statements)
    assert {row.state for row in world.rows()} == {MoveState.HELD, MoveState.SUBMITTED}
    held = world.journal.audit.rows(plan=world.digest, action=Action.HOLD)
    assert {row.entry.partition for row in held} >= {row.move.partition for row in waiting}
    assert {row.entry.reason for row in held} == {row.detail for row in world.rows() if row.state is MoveState.HELD}

    world.simulator.restart(4)
    world.simulator.tick()
    statements.clear()
    world.step()
    verify_small(statements, rows=1)
    assert MoveState.HELD not in {row.state for row in world.rows()}


def test_all_that_waits_is_dropped_by_a_cancel(world: World, statements: list[str]) -> None:
    undo_of(world, scope="pending").step()
    verify_small(statements)
    dropped = [row for row in world.rows() if row.state is MoveState.DROPPED]
    assert len(dropped) >= MANY - 2
    assert {row.cause for row in dropped} == {Cause.REQUESTED}


@pytest.mark.parametrize("what", ["held", "cancelled"])
def test_a_step_that_outlasts_the_lock_renews_it(simulator: Simulator, tmp_path: Path, what: str) -> None:
    """Each write takes a third of the lock's life: at no moment may another process take it."""
    journal = journal_of(simulator, tmp_path)
    made = plan_of_many(journal, simulator)
    age_ms, began_ms = [], simulator.now_ms

    def write(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("UPDATE steward_plan_move"):
            row = journal.rows(STEP_LOCK).get(ONLY)
            assert row is not None
            simulator.now_ms += TTL_MS // 3
            age_ms.append(simulator.now_ms - row.at_ms)

    sa.event.listen(journal.plans._table.database.engine, "before_cursor_execute", write)
    if what == "held":
        simulator.kill(4)
        made.step()
    else:
        undo_of(made, scope="pending").step()
    assert simulator.now_ms - began_ms > TTL_MS
    assert max(age_ms) < TTL_MS
