"""What sentences decided in journals of earlier releases, columns decide now: the migration, row by row."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from kafka_steward.journal.audit import Code
from kafka_steward.journal.records import Cause, MoveRow, Phase
from kafka_steward.journal.store import open_journal
from tests.journal.recorded import record

INTENDED, ACCEPTED, CANCELLING = Phase.INTENDED, Phase.ACCEPTED, Phase.CANCELLING
#: State, attempt, detail; then phase, stage, cause, and whether Kafka may not have answered.
MOVES = {
    "never asked": ("waiting", 0, "", None, 0, None, False),
    "not heard": ("waiting", 1, "Kafka was not asked, or did not hear", None, 0, None, True),
    "not heard, and held": ("held", 1, "t-0 was not moved: broker 4 is not live.", None, 0, None, True),
    "intended": ("submitted", 1, "intended", INTENDED, 0, None, True),
    "nobody knows": ("submitted", 1, "", INTENDED, 0, None, True),
    "intended, staged": ("submitted", 2, "intended: 2 of 13 new replicas", INTENDED, 2, None, True),
    "accepted": ("submitted", 1, "accepted", ACCEPTED, 0, None, False),
    "accepted, staged": ("submitted", 3, "accepted: 12 of 13 new replicas", ACCEPTED, 12, None, False),
    "cancelling": (
        "submitted",
        1,
        "cancelling: cancelled: too slow (1 of 3 new replicas)",
        CANCELLING,
        1,
        Cause.REQUESTED,
        False,
    ),
    "stalled": ("submitted", 1, "cancelling: no progress for 600 s", CANCELLING, 0, Cause.STALLED, False),
    "broker died": ("submitted", 1, "cancelling: broker 4 of its target died", CANCELLING, 0, Cause.BROKER_DIED, False),
    "halfway": (
        "submitted",
        1,
        "cancelling: someone else cancelled it",
        CANCELLING,
        0,
        Cause.CANCELLED_ELSEWHERE,
        False,
    ),
    "cancelled": ("dropped", 1, "cancelled: too slow", None, 0, Cause.REQUESTED, False),
    "by someone": ("dropped", 1, "someone else cancelled it", None, 0, Cause.CANCELLED_ELSEWHERE, False),
    "taken over": ("failed", 1, "someone else reassigned the partition", None, 0, Cause.REASSIGNED_ELSEWHERE, False),
    "deleted": ("dropped", 1, "the topic was deleted", None, 0, None, False),
    "complete": ("completed", 1, "complete, every replica in sync", None, 0, None, False),
}
SKIPS = {
    "not rolled back: it does not exist any more": Code.LEFT_ALONE,
    "KIP-236: no original replicas are recorded": Code.FORBIDDEN,
    "t-0 already has the replicas [4, 2, 3].": None,
}


@pytest.fixture(scope="module")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, MoveRow], dict[str, Code | None]]:
    """The rows of a journal of release 0.1.0, after this release has opened it."""
    path = Path(tmp_path_factory.mktemp("old")) / "journal.db"
    with closing(sqlite3.connect(path)) as database:
        database.executescript((record.FOLDER / "0.1.0" / "journal.sql").read_text())
        for place, (name, (state, attempt, detail, *_)) in enumerate(MOVES.items()):
            move = (record.CLUSTER, "old", name, 0, "[1]", "[2]", 0, place, "given", state, detail, attempt, False)
            database.execute(
                "INSERT INTO steward_plan_move (cluster_id, plan, topic, partition, before, after, chunk, position,"
                " reason, state, detail, attempt, isr_seen) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)",
                move,
            )
        for number, reason in enumerate(SKIPS):
            record.insert_audit_row(database, number, "skip", reason)
        database.commit()
    with open_journal(f"sqlite:///{path}", record.CLUSTER, host=record.HOST) as journal:
        rows = {row.move.topic: row for row in journal.plans.rows("old")}
        codes = {row.entry.reason: row.entry.code for row in journal.audit.rows(plan="old")}
    return rows, codes


@pytest.mark.parametrize("name", MOVES)
def test_a_move_of_an_earlier_release(migrated: tuple[dict[str, MoveRow], object], name: str) -> None:
    row = migrated[0][name]
    assert row.detail == MOVES[name][2], "the words for people stay"
    assert (row.phase, row.stage, row.cause, row.unacknowledged) == MOVES[name][3:]


def test_an_audit_row_of_an_earlier_release(migrated: tuple[object, dict[str, Code | None]]) -> None:
    assert migrated[1] == SKIPS
