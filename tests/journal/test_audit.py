"""The audit trail: its rows, and how they are shown."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_steward.assignment import Move
from kafka_steward.journal.audit import Action, Actor, Audit, AuditRecord, Outcome, StoredAuditRecord
from kafka_steward.journal.kip_documents import CancelRequest
from kafka_steward.journal.records import MoveRow, MoveState, PlanRecord, PlanStatus
from kafka_steward.journal.render import Table, audit_table, moves_table, plan_lines, plans_table
from kafka_steward.journal.schema.tables import JSON
from kafka_steward.journal.store import Journal, open_journal
from tests.ended_plans import cost_of

SUBMIT = AuditRecord(
    Action.SUBMIT,
    "Broker 1 failed.",
    plan="d1",
    chunk=0,
    topic="orders",
    partition=7,
    attempt=1,
    before=[1, 2, 3],
    after=[4, 2, 3],
    who=Actor("heal", "manual__1", "submit", 2, "ann"),
)
DETECT = AuditRecord(Action.DETECT, "Broker 1 is down.", broker=1, after={"failure_timestamp": 5})


@pytest.fixture
def audit(sql_journal: Journal) -> Audit:
    return sql_journal.audit


def test_a_row_is_intended_then_completed(audit: Audit) -> None:
    audit.record_intent([SUBMIT])
    (intended,) = audit.rows()
    assert (intended.entry, intended.outcome, intended.completed_ms) == (SUBMIT, Outcome.INTENDED, None)
    assert intended.detail == ""
    audit.record_outcome([SUBMIT], "done", "applied")
    (completed,) = audit.rows()
    assert (completed.entry, completed.outcome, completed.detail) == (SUBMIT, Outcome.DONE, "applied")
    assert completed.completed_ms is not None
    assert completed.completed_ms >= completed.when_ms == intended.when_ms


def test_what_is_the_same_is_stored_as_the_same_text() -> None:
    texts = [JSON.write({"b": [1, None], "a": "x"}), JSON.write({"a": "x", "b": [1, None]})]
    assert texts == ['{"a": "x", "b": [1, null]}'] * 2
    read = JSON.read or str
    assert (JSON.write(None), read(None)) == (None, None)
    assert read('{"a": null}') == {"a": None}


def test_to_complete_a_row_costs_the_same_in_a_long_trail(tmp_path: Path) -> None:
    costs = []
    with open_journal(f"sqlite:///{tmp_path}/journal.db", "c1") as journal:
        for attempt in (1000, 2000):
            rows = [replace(SUBMIT, attempt=attempt + number) for number in range(500)]
            journal.audit.record_intent(rows)
            with cost_of(journal) as cost:
                journal.audit.record_outcome(rows[:1], "done")
            costs.append(cost.instructions)
    assert costs[1] < 1.2 * costs[0] < 1000


def test_times_are_the_journals(sql_journal: Journal) -> None:
    before_ms = sql_journal.now_ms()
    sql_journal.audit.record(SUBMIT)
    (row,) = sql_journal.audit.rows()
    assert before_ms <= row.when_ms <= sql_journal.now_ms()
    assert row.completed_ms == row.when_ms


def test_what_was_intended_twice_is_one_row(audit: Audit) -> None:
    audit.record_intent([SUBMIT, SUBMIT])
    audit.record_intent([replace(SUBMIT, reason="Another reason.")])
    assert [row.entry.reason for row in audit.rows()] == ["Broker 1 failed."]
    publish = AuditRecord(Action.PUBLISH, "r", plan="d1")
    for _ in range(2):
        audit.record_intent([publish])
    assert [row.entry for row in audit.rows()] == [SUBMIT, publish], "also without a partition"


def test_a_completed_row_is_never_changed(audit: Audit) -> None:
    audit.record_intent([SUBMIT])
    audit.record_outcome([SUBMIT], Outcome.DONE, "first")
    audit.record_outcome([SUBMIT], Outcome.REFUSED, "second")
    audit.record_intent([SUBMIT])
    audit.record(SUBMIT, Outcome.FAILED, "third")
    assert [(row.outcome, row.detail) for row in audit.rows()] == [(Outcome.DONE, "first")]


@pytest.mark.parametrize(
    "other",
    [
        replace(SUBMIT, plan="d2"),
        replace(SUBMIT, chunk=1),
        replace(SUBMIT, topic="orders2"),
        replace(SUBMIT, partition=8),
        replace(SUBMIT, broker=1),
        replace(SUBMIT, action=Action.SETTLE),
        replace(SUBMIT, attempt=2),
        replace(SUBMIT, chunk=None),
        replace(SUBMIT, topic=None, partition=None),
    ],
)
def test_each_part_of_the_key_distinguishes_rows(audit: Audit, other: AuditRecord) -> None:
    audit.record_intent([SUBMIT, other])
    assert [row.entry for row in audit.rows()] == [SUBMIT, other]
    audit.record_outcome([other], Outcome.DONE)
    assert [row.outcome for row in audit.rows()] == [Outcome.INTENDED, Outcome.DONE]


def test_what_belongs_to_no_plan_may_happen_again(audit: Audit) -> None:
    audit.record(DETECT)
    audit.record(DETECT)
    assert [row.entry for row in audit.rows()] == [DETECT, DETECT]
    audit.record_intent([DETECT, DETECT])
    assert [row.entry for row in audit.rows()] == [DETECT] * 4


def test_clusters_do_not_see_each_other(open_sql: Callable[[], Journal], url: str, cluster_id: str) -> None:
    open_sql().audit.record_intent([SUBMIT])
    with open_journal(url, f"{cluster_id}-other") as other:
        assert other.audit.rows() == []
        other.audit.record_intent([SUBMIT])
        other.audit.record_outcome([SUBMIT], Outcome.DONE)
    assert [row.outcome for row in open_sql().audit.rows()] == [Outcome.INTENDED]


def test_rows_are_chosen(audit: Audit) -> None:
    entries = [replace(SUBMIT, partition=number) for number in range(4)]
    audit.record_intent(entries)
    audit.record(DETECT)
    audit.record(replace(SUBMIT, plan="d2", topic="other"))
    assert [row.entry for row in audit.rows(plan="d1")] == entries
    assert [row.entry for row in audit.rows(plan="")] == [DETECT]
    assert [row.entry for row in audit.rows(action=Action.DETECT)] == [DETECT]
    assert [row.entry for row in audit.rows(action="detect")] == [DETECT]
    assert [row.entry.plan for row in audit.rows(topic="other")] == ["d2"]
    assert [row.entry for row in audit.rows(plan="d1", limit=2)] == entries[2:]
    assert audit.rows(since_ms=audit.rows()[-1].when_ms + 1) == []
    assert len(audit.rows(since_ms=audit.rows()[0].when_ms)) == 6


def test_many_rows_at_once(audit: Audit) -> None:
    entries = [replace(SUBMIT, partition=number) for number in range(1201)]
    audit.record_intent(entries)
    audit.record_outcome(entries[:1200], Outcome.DONE)
    assert [row.outcome for row in audit.rows()] == [Outcome.DONE] * 1200 + [Outcome.INTENDED]


def test_rows_of_all_pages_are_imported_unchanged_and_counted_once(audit: Audit, tmp_path: Path) -> None:
    audit.record_intent([replace(SUBMIT, partition=number) for number in range(1201)])
    audit.record_outcome([replace(SUBMIT, partition=7)], Outcome.REFUSED, "not now")
    rows = audit.rows()
    with open_journal(f"sqlite:///{tmp_path}/journal.db", rows[0].cluster_id) as other:
        assert other.audit.import_rows([rows[:700], rows[700:1200], rows[1200:]]) == 1201
        imported = other.audit.rows()
        assert [replace(row, id=0) for row in imported] == [replace(row, id=0) for row in rows]
        assert other.audit.import_rows([rows[:700], rows[700:]]) == 0
        assert other.audit.rows() == imported


@pytest.mark.parametrize("bounded", [False, True])
def test_pages_are_in_the_order_of_ids_even_where_the_times_are_not(audit: Audit, bounded: bool) -> None:
    audit.record(DETECT)
    (row,) = audit.rows()
    audit.import_rows([[replace(row, when_ms=row.when_ms - back_ms) for back_ms in (1, 2, 3)]])
    (page,) = audit.pages(row.when_ms + 1 if bounded else None)
    assert [each.when_ms - row.when_ms for each in page] == [0, -1, -2, -3]
    assert [each.id for each in page] == sorted(each.id for each in page)


def test_what_was_never_intended_is_not_completed(audit: Audit) -> None:
    audit.record_intent([])
    for entries in ([], [SUBMIT]):
        audit.record_outcome(entries, Outcome.DONE)
    assert audit.rows() == []


@pytest.mark.parametrize("words", ["a\x00b", "\ud800", "'; DROP TABLE steward_audit; --", "line\nend", ""])
def test_kafkas_words_may_hold_anything(audit: Audit, words: str) -> None:
    entry = replace(SUBMIT, reason=words, before={"said": words})
    audit.record_intent([entry])
    audit.record_outcome([entry], Outcome.REFUSED, words)
    (row,) = audit.rows()
    assert row.entry.before == {"said": words}
    assert row.detail == words.replace("\x00", "").replace("\ud800", "?")


def test_an_unknown_outcome_is_refused(audit: Audit) -> None:
    with pytest.raises(ValueError, match="splendid"):
        audit.record_outcome([SUBMIT], "splendid")


def test_of_two_that_intend_and_complete_at_once_one_row_remains(open_sql: Callable[[], Journal]) -> None:
    journals = [open_sql(), open_sql()]

    def act(number: int) -> None:
        journals[number % 2].audit.record_intent([SUBMIT])
        journals[number % 2].audit.record_outcome([SUBMIT], Outcome.DONE, str(number))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(act, range(8)))
    assert [row.outcome for row in journals[0].audit.rows()] == [Outcome.DONE]


def test_the_api_offers_no_way_to_change_a_row() -> None:
    public = {
        *("record_intent", "record_outcome", "record_outcomes", "record", "record_all", "record_decisions"),
        *("pages", "remove", "import_rows", "rows"),
    }
    assert {name for name in vars(Audit) if not name.startswith("_")} == public


@pytest.mark.parametrize(
    ("who", "words"),
    [
        (Actor(), ""),
        (Actor(person="ann"), "ann"),
        (Actor("heal", "r", "submit", 1), "heal/submit"),
        (Actor("heal", "r", "submit", 1, "ann"), "heal/submit for ann"),
    ],
)
def test_who_in_words(who: Actor, words: str) -> None:
    assert str(who) == words


# as text

SUBMITTED = replace(SUBMIT, before=[1, 2], after=[4, 2], who=Actor(person="ann"))
WHEN_MS = 1_700_000_000_000


def row(entry: AuditRecord, outcome: Outcome = Outcome.DONE, detail: str = "") -> StoredAuditRecord:
    return StoredAuditRecord(1, WHEN_MS, None, "cluster", entry, outcome, detail)


def test_the_audit_trail_is_a_plain_table() -> None:
    detect = AuditRecord(Action.DETECT, "Broker 1 is down.", broker=1, after={"failure_timestamp": 5})
    rows = [row(detect), row(SUBMITTED, Outcome.REFUSED, "no")]
    assert audit_table(rows).lines() == [
        "when                 action  partition  before -> after           outcome      reason             who",
        "2023-11-14 22:13:20  detect  broker 1   - -> failure_timestamp=5  done         Broker 1 is down.",
        "2023-11-14 22:13:20  submit  orders-7   [1,2] -> [4,2]            refused: no  Broker 1 failed.   ann",
    ]
    columns, cells = audit_table([row(SUBMITTED)])
    assert columns == ("when", "action", "partition", "before -> after", "outcome", "reason", "who")
    assert cells == [("2023-11-14 22:13:20", "submit", "orders-7", "[1,2] -> [4,2]", "done", "Broker 1 failed.", "ann")]
    assert audit_table([]).lines() == ["  ".join(columns)]


def test_times_are_utc_wherever_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert audit_table([row(SUBMITTED)]).rows[0][0] == "2023-11-14 22:13:20"
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
    assert plan_lines(replace(record, reason="", partitions=0), []) == [
        "plan 0123456789ab: heal, running, nothing to move",
        "  published 2023-11-14 22:13:20, last stepped 2023-11-14 22:13:25",
    ]
    cancelled = replace(record, cancel=CancelRequest(), reason="")
    assert plan_lines(cancelled, rows)[0] == "plan 0123456789ab: heal, running and being cancelled, 3 partitions"
    ended = replace(cancelled, status=PlanStatus.CANCELLED)
    assert plan_lines(ended, rows)[0] == "plan 0123456789ab: heal, cancelled, 3 partitions"
    assert plans_table([record]).lines() == [
        "published            plan          operation  status   partitions  reason        who",
        "2023-11-14 22:13:20  0123456789ab  heal       running  3           One is held.",
    ]


def test_only_what_is_shown_is_read_from_the_trail() -> None:
    """What a program decides by is a column or a row of its own.

    Leases read only the numbers of the rows that they wrote, which nothing but their next rows has.
    """
    read = re.compile(r"audit\.(rows|pages)\(")
    root = Path(__file__).parents[2]
    product = [
        path for folder in ("provider", "operators", "sensors", "dags") for path in (root / folder).rglob("*.py")
    ]
    assert {str(path.relative_to(root)) for path in product if read.search(path.read_text())} == {
        "operators/report.py",
        "provider/cli/show.py",
        "provider/demo/story.py",
        "provider/document_api/request_status.py",
        "provider/execution/throttles/leases.py",
        "provider/journal/copy.py",
        "provider/journal/retention.py",
    }
