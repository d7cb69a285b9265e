"""What a page costs in SQL does not grow with the journal: each statement searches an index, and none reads a table."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa

from tests.ui.conftest import Visit, everything
from tests.ui.scene import CONN_IDS, Scene, digest_of

MOVING = CONN_IDS[1]
PLAN = f"plan?conn={MOVING}&digest={digest_of('running')}"
#: The tables that grow with time, or with the size of a plan.
GROWING = ("steward_audit", "steward_ended_plan", "steward_health", "steward_plan", "steward_plan_move")


@contextmanager
def sent() -> Iterator[list[tuple[str, Any]]]:
    """The statements that are sent to any database within the block, with their parameters."""
    statements: list[tuple[str, Any]] = []

    def keep(*given: Any) -> None:
        statements.append((given[2], given[3]))

    sa.event.listen(sa.Engine, "before_cursor_execute", keep)
    try:
        yield statements
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", keep)


def steps(scene: Scene, statements: list[tuple[str, Any]]) -> list[str]:
    """How SQLite executes those of the statements that read our tables, step by step."""
    ours = [(text, given) for text, given in statements if "steward_" in text and text.startswith("SELECT")]
    assert ours
    engine = sa.create_engine(scene.url)
    with engine.connect() as connection:
        found = [
            row[3]
            for text, given in ours
            for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", given).all()
        ]
    engine.dispose()
    return found


@pytest.mark.parametrize("path", ["", f"cluster?conn={MOVING}", PLAN, f"{PLAN}&state=dropped", f"audit?conn={MOVING}"])
def test_no_statement_of_a_page_reads_all_of_a_table_that_grows(scene: Scene, visit: Visit, path: str) -> None:
    client = visit(everything())
    with sent() as statements:
        assert client.get(path).status_code == 200
    read = [step for step in steps(scene, statements) if re.match(rf"SCAN ({'|'.join(GROWING)})\b", step)]
    assert read == []


def test_the_moves_of_a_plan_are_counted_and_listed_by_state_from_an_index_alone(scene: Scene, visit: Visit) -> None:
    client = visit(everything())
    with sent() as statements:
        client.get(f"{PLAN}&state=dropped")
    about = [step for step in steps(scene, statements) if "steward_plan_move" in step]
    index = "INDEX steward_plan_move_state (cluster_id=? AND plan=?"
    assert [step for step in about if index not in step] == []
    assert [step.partition(" USING ")[2] for step in about] == [f"COVERING {index})", f"{index} AND state=?)"]
