from __future__ import annotations

import time
from dataclasses import replace

import pytest

from kafka_steward.assignment import Move
from kafka_steward.journal.audit import Action, Actor, AuditRecord, Outcome, StoredAuditRecord
from kafka_steward.journal.records import MoveRow, MoveState, PlanRecord, PlanStatus
from kafka_steward.journal.render import Table, audit_table, moves_table, plan_lines, plans_table

SUBMIT = AuditRecord(
    Action.SUBMIT,
    "Broker 1 failed.",
    plan="d1",
    chunk=0,
    topic="orders",
    partition=7,
    before=[1, 2],
    after=[4, 2],
    who=Actor(person="ann"),
)
WHEN_MS = 1_700_000_000_000


def row(entry: AuditRecord, outcome: Outcome = Outcome.DONE, detail: str = "") -> StoredAuditRecord:
    return StoredAuditRecord(1, WHEN_MS, None, "cluster", entry, outcome, detail)


def test_the_audit_trail_is_a_plain_table() -> None:
    detect = AuditRecord(Action.DETECT, "Broker 1 is down.", broker=1, after={"failure_timestamp": 5})
    rows = [row(detect), row(SUBMIT, Outcome.REFUSED, "no")]
    assert audit_table(rows).lines() == [
        "when                 action  partition  before -> after           outcome      reason             who",
        "2023-11-14 22:13:20  detect  broker 1   - -> failure_timestamp=5  done         Broker 1 is down.",
        "2023-11-14 22:13:20  submit  orders-7   [1,2] -> [4,2]            refused: no  Broker 1 failed.   ann",
    ]


def test_a_table_gives_its_cells() -> None:
    columns, cells = audit_table([row(SUBMIT)])
    assert columns == ("when", "action", "partition", "before -> after", "outcome", "reason", "who")
    assert cells == [("2023-11-14 22:13:20", "submit", "orders-7", "[1,2] -> [4,2]", "done", "Broker 1 failed.", "ann")]


def test_times_are_utc_wherever_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert audit_table([row(SUBMIT)]).rows[0][0] == "2023-11-14 22:13:20"
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    ("entry", "subject", "change"),
    [
        (AuditRecord(Action.CREATE, "r", topic="t"), "t", ""),
        (AuditRecord(Action.CREATE, "r", topic="t", partition=0, broker=1, chunk=2), "t-0", ""),
        (AuditRecord(Action.THROTTLE, "r", broker=0, chunk=2, before="10"), "broker 0", "10 -> -"),
        (AuditRecord(Action.HOLD, "r", chunk=0, after={"a": [1, None], "b": True}), "chunk 0", "- -> a=[1,-], b=True"),
        (AuditRecord(Action.FINISH, "r", before=(1, 2), after=[]), "", "[1,2] -> []"),
    ],
)
def test_what_it_was_done_to_and_how_that_changed(entry: AuditRecord, subject: str, change: str) -> None:
    assert audit_table([row(entry)]).rows[0][2:4] == (subject, change)


def test_long_cells_are_cut_except_in_the_last_column() -> None:
    fits, long = "x" * 70, "y" * 71
    person = AuditRecord(Action.HOLD, fits, who=Actor(person=long))
    (_, *lines) = audit_table([row(person), row(replace(person, reason=long))]).lines()
    assert lines[0].endswith(f"  {fits}  {long}")
    assert lines[1].endswith(f"  {'y' * 67}...  {long}")


def test_a_row_with_another_number_of_cells_is_refused() -> None:
    with pytest.raises(ValueError, match="is shorter than"):
        Table(("a", "b"), [("x", "y", "z")]).lines()


def test_words_from_outside_break_no_line() -> None:
    wild = AuditRecord(Action.HOLD, "one\ntwo\x1b[31m red\r" + "x" * 100, topic="t")
    lines = audit_table([row(wild)]).lines()
    assert len(lines) == 2
    assert lines[1].isprintable()
    assert r"one\x0atwo\x1b[31m red\x0dx" in lines[1]
    assert "..." in lines[1]


def test_without_rows_the_headings_remain() -> None:
    assert audit_table([]).lines() == ["when  action  partition  before -> after  outcome  reason  who"]


def test_a_plan_in_lines() -> None:
    moves = [Move("orders", number, (1, 2), (4, 2), 0, number, "broker_failed") for number in range(3)]
    rows = [MoveRow(moves[0], MoveState.COMPLETED), MoveRow(moves[1], MoveState.HELD, "why"), MoveRow(moves[2])]
    record = PlanRecord(
        "0123456789abcdef",
        "cluster",
        "heal",
        PlanStatus.RUNNING,
        partitions=3,
        published_ms=WHEN_MS,
        stepped_ms=WHEN_MS + 5000,
        reason="One is held.",
    )
    assert plan_lines(record, rows) == [
        "plan 0123456789ab: heal, running, 3 partitions",
        "  partitions: 1 waiting, 1 held, 1 completed",
        "  published 2023-11-14 22:13:20, last stepped 2023-11-14 22:13:25",
        "  One is held.",
    ]
    assert moves_table(rows).lines() == [
        "chunk  partition  before -> after  state      detail",
        "0      orders-0   [1,2] -> [4,2]   completed",
        "0      orders-1   [1,2] -> [4,2]   held       why",
        "0      orders-2   [1,2] -> [4,2]   waiting",
    ]
    assert plan_lines(replace(record, reason=""), [])[1:] == [
        "  partitions: none",
        "  published 2023-11-14 22:13:20, last stepped 2023-11-14 22:13:25",
    ]
    assert plans_table([record]).lines() == [
        "published            plan          operation  status   partitions  reason        who",
        "2023-11-14 22:13:20  0123456789ab  heal       running  3           One is held.",
    ]
