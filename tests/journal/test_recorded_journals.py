"""Journals as each release left them, in the middle of a plan: today's code reads them, and goes on with the plan."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kafka_steward.journal import paths
from kafka_steward.journal.audit import Outcome
from kafka_steward.journal.kip_documents import (
    AnnouncedRestartDocument,
    CancelRequest,
    Chunk,
    FailedBroker,
    InFlight,
    Request,
)
from kafka_steward.journal.records import MoveState, PlanStatus, ThrottleLease
from kafka_steward.journal.store import Journal, open_journal
from tests.journal.recorded import record
from tests.journal.test_schema import stored
from tests.present import present

#: The journals that are recorded, and the one that the command would record now.
JOURNALS = ["of this version", *sorted(path.parent.name for path in record.FOLDER.glob("*/journal.sql"))]


@pytest.fixture(params=JOURNALS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    now = request.param == JOURNALS[0]
    file = record.main(tmp_path) if now else record.FOLDER / request.param / "journal.sql"
    with closing(sqlite3.connect(tmp_path / "journal.db")) as database:
        database.executescript(file.read_text())
    return f"sqlite:///{tmp_path}/journal.db"


@pytest.fixture
def recorded(url: str) -> Iterator[Journal]:
    with open_journal(url, record.CLUSTER, host=record.HOST) as journal:
        yield journal


def test_a_recorded_journal_is_never_written_again(tmp_path: Path) -> None:
    record.main(tmp_path)
    with pytest.raises(FileExistsError):
        record.main(tmp_path)


@pytest.mark.usefixtures("recorded")
def test_its_tables_are_those_of_a_new_journal(url: str, tmp_path: Path) -> None:
    open_journal(f"sqlite:///{tmp_path}/new.db", "c").close()
    opened, new = stored(url), stored(f"sqlite:///{tmp_path}/new.db")
    assert {name: found[:-1] for name, found in opened.items()} == {name: found[:-1] for name, found in new.items()}


def test_the_plans_are_read(recorded: Journal) -> None:
    assert [(plan.digest, plan.status) for plan in recorded.plans.unfinished()] == [
        ("aaaa", PlanStatus.PREEMPTED),
        ("bbbb", PlanStatus.RUNNING),
    ]
    heal = present(recorded.plans.get("bbbb"))
    assert (heal.operation, heal.failed_brokers, heal.attempts, heal.who) == ("heal", (1,), 1, record.WHO)
    states = [row.state for row in recorded.plans.rows("bbbb")]
    completed, held = MoveState.COMPLETED, MoveState.HELD
    assert states == [completed, completed, held, MoveState.SUBMITTED, MoveState.WAITING]
    assert recorded.plans.rows("bbbb")[3].move.before == (1, 2, 3)


def test_every_document_is_read(recorded: Journal) -> None:
    for path, kind in (
        (paths.failed_broker(1), FailedBroker),
        (paths.rolling_bounce(4), AnnouncedRestartDocument),
        (paths.CANCEL_IN_PROGRESS, CancelRequest),
        (paths.lease("broker", "4", "follower.rate"), ThrottleLease),
        (f"{paths.REASSIGNMENTS}/orders/3", InFlight),
        (f"{paths.REQUEST_PREFIX}0000000000", Request),
        (paths.chunk("chunk_0000000003"), Chunk),
    ):
        node = recorded.tree.get(path)
        assert node is not None, path
        assert kind.from_node(node).to_json() == node.data


def test_the_audit_trail_is_read(recorded: Journal) -> None:
    detect, submit = recorded.audit.rows()
    assert (detect.entry.broker, detect.entry.plan) == (1, "")
    assert (submit.outcome, submit.entry.after, submit.entry.who) == (Outcome.DONE, [4, 2, 3], record.WHO)


def test_the_plan_goes_on_to_its_end(recorded: Journal) -> None:
    assert (recorded.slot.holders(), recorded.slot.preempted_plans()) == (("bbbb",), ("aaaa",))
    with recorded.step_lock("today") as fence:
        rest = [row.topic_partition for row in recorded.plans.rows("bbbb") if not row.state.settled]
        recorded.plans.set_move_states("bbbb", rest, MoveState.COMPLETED, fence=fence)
        recorded.plans.update(present(recorded.plans.get("bbbb")), fence=fence, status=PlanStatus.COMPLETED)
    assert recorded.slot.release("bbbb") == "aaaa"
    left = [recorded.tree.get(paths.chunk(name)) for name in recorded.tree.children(paths.REASSIGN_CHUNKS)]
    assert {Chunk.from_node(node).plan for node in left if node} == {"aaaa"}
    assert recorded.tree.create_sequential(paths.CHUNK_PREFIX, "{}").path == paths.chunk("chunk_0000000005")
