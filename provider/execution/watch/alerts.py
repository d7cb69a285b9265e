"""Alerts: what the watch has found that needs a person, from its first appearance until people know of its end.

Each condition is a row. The watch emits its event while people are to be told, again and again until a run has told
them; then once an hour while the condition lasts, and once more after its end. So an event that Airflow lost, or that
came while the DAG was paused, is made up for.

A plan has a row of stalls while moves of a plan make no progress. The process that steps the plan writes it: no
other one knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from kafka_steward.execution.announcements import disabled_reason
from kafka_steward.execution.moves.progress import Progress
from kafka_steward.journal.document import sanitize_text
from kafka_steward.journal.records import PlanRecord, PlanStatus
from kafka_steward.journal.state import Noun, Row
from kafka_steward.journal.store import Journal

#: After which time people are told again of a condition that lasts, and a run is started again that has not told them.
REPEATED_MS, RETRIED_MS = 3_600_000, 60_000
#: For how long a heal may be due, and a plan be paused, before people are told.
OVERDUE_MS, PAUSED_MS = 900_000, 1_800_000
#: Characters of a sentence.
_SENTENCE = 2_000


@dataclass(frozen=True)
class Condition:
    """Something that a person should know of, `delay_ms` after it began; `subject` is its plan or check, if any."""

    kind: str
    sentence: str
    subject: str = ""
    delay_ms: int = 0

    @property
    def key(self) -> str:
        """The key of its row."""
        return f"{self.kind}.{self.subject}" if self.subject else self.kind


@dataclass(frozen=True)
class AlertRecord:
    """One condition. Times are by the journal's clock, in milliseconds since 1970.

    It began at `since_ms`; its last event was emitted at `announced_ms`, and people were notified at `notified_ms`,
    each None before. `ended_ms` is the time of its end, of which people are notified if they were of the condition.
    """

    since_ms: int
    sentence: str = ""
    announced_ms: int | None = None
    notified_ms: int | None = None
    ended_ms: int | None = None
    delay_ms: int = 0

    def is_notification_due(self, now_ms: int) -> bool:
        """Return whether people are to be notified of the condition, or of its end."""
        if self.ended_ms is not None:
            return self.notified_ms is not None
        if now_ms - self.since_ms < self.delay_ms:
            return False
        return self.notified_ms is None or now_ms - self.notified_ms >= REPEATED_MS


@dataclass(frozen=True)
class Stall:
    """Moves of a plan that make no progress: since when, how many, and the plan's sentence."""

    since_ms: int
    sentence: str = ""


ALERTS: Noun[str, AlertRecord] = Noun("alerts", AlertRecord)
STALLS: Noun[str, Stall] = Noun("stalls", Stall)


@dataclass(frozen=True)
class AlertDecision:
    """The rows to write, by key, None to delete one; and the keys that the event is emitted for."""

    changes: Mapping[str, AlertRecord | None] = field(default_factory=dict)
    due: tuple[str, ...] = ()


def decide_alerts(
    observed: Iterable[Condition], known: Mapping[str, AlertRecord], now_ms: int, *, retried_ms: int = RETRIED_MS
) -> AlertDecision:
    """Return what becomes of the alerts when the watch has found these conditions. Pure."""
    conditions = {condition.key: condition for condition in observed}
    changes: dict[str, AlertRecord | None] = {}
    due = []
    for key in sorted(conditions.keys() | known.keys()):
        condition = conditions.get(key)
        record = _next_record(condition, known.get(key), now_ms)
        if record is not None and _is_due(record, now_ms, retried_ms):
            due.append(key)
            sentence = record.sentence if condition is None else _sanitized(condition)
            record = replace(record, announced_ms=now_ms, sentence=sentence)
        if record != known.get(key):
            changes[key] = record
    return AlertDecision(changes, tuple(due))


def _next_record(condition: Condition | None, known: AlertRecord | None, now_ms: int) -> AlertRecord | None:
    if condition is None:
        if known is None or known.notified_ms is None:
            return None  # nobody knows of it: its end is no news
        return known if known.ended_ms is not None else replace(known, ended_ms=now_ms, announced_ms=None)
    if known is None:
        return AlertRecord(now_ms, _sanitized(condition), delay_ms=condition.delay_ms)
    # It began again before people were told of its end: for them it lasts. Its sentence is that of its last event.
    return replace(known, ended_ms=None)


def _is_due(record: AlertRecord, now_ms: int, retried_ms: int) -> bool:
    announced_ms = record.announced_ms
    return record.is_notification_due(now_ms) and (announced_ms is None or now_ms - announced_ms >= retried_ms)


def plan_conditions(plans: Iterable[PlanRecord], stalls: Mapping[str, Stall], disabled: str) -> list[Condition]:
    """Return the conditions of unfinished plans; `disabled` is the reason why reassignments are disabled. Pure."""
    conditions = []
    for plan in plans:
        name = f"Plan {plan.digest[:12]}"
        if plan.status is PlanStatus.STUCK:
            conditions.append(Condition("stuck", plan.reason or f"{name} is stuck.", plan.digest))
        elif plan.status is PlanStatus.IDLE:
            conditions.append(Condition("no_process", plan.reason or f"No process steps {name}.", plan.digest))
        elif plan.status is PlanStatus.PREEMPTED:
            conditions.append(Condition("paused", plan.reason or f"{name} is paused.", plan.digest, PAUSED_MS))
        elif disabled:
            sentence = f"{name} waits: reassignments are disabled {disabled}."
            conditions.append(Condition("paused", sentence, plan.digest, PAUSED_MS))
        if plan.digest in stalls and plan.status is PlanStatus.RUNNING:
            conditions.append(Condition("stalled", stalls[plan.digest].sentence or f"{name} is stalled.", plan.digest))
    return conditions


def read_plan_conditions(journal: Journal) -> list[Condition]:
    """Return the conditions of the journal's plans, and delete the stalls of ended ones. Raises JournalUnreachable."""
    plans = journal.plans.unfinished()
    rows = journal.rows(STALLS)
    stalls = {row.key: row for row in rows.all()}
    for digest in stalls.keys() - {plan.digest for plan in plans}:
        rows.delete(stalls[digest])  # its process crashed, or the plan was cancelled by another one
    conditions = {digest: row.value for digest, row in stalls.items()}
    return plan_conditions(plans, conditions, disabled_reason(journal.mailbox) if plans else "")


def update_alerts(journal: Journal, observed: Iterable[Condition], now_ms: int) -> dict[str, AlertRecord]:
    """Record the conditions that the watch has found; return the alerts to emit the event for, by key.

    A concurrent change of an alert wins: the next poll decides again. Raises JournalUnreachable.
    """
    known = {row.key: row for row in journal.rows(ALERTS).all()}
    decision = decide_alerts(observed, {key: row.value for key, row in known.items()}, now_ms)
    written = {key for key, record in decision.changes.items() if _write(journal, known.get(key), key, record)}
    records = {key: decision.changes[key] for key in decision.due if key in written}
    return {key: record for key, record in records.items() if record is not None}


def _write(journal: Journal, known: Row[str, AlertRecord] | None, key: str, record: AlertRecord | None) -> bool:
    rows = journal.rows(ALERTS)
    if record is None:
        return known is not None and rows.delete(known)
    return rows.put(key, record, known) is not None


def list_unnotified(journal: Journal) -> list[Row[str, AlertRecord]]:
    """Return the alerts of which people are to be notified. Raises JournalUnreachable."""
    now_ms = journal.now_ms()
    return [row for row in journal.rows(ALERTS).all() if row.value.is_notification_due(now_ms)]


def record_notified(journal: Journal, alert: Row[str, AlertRecord]) -> bool:
    """Record that people were notified of an alert; delete one that has ended. Return False if it changed meanwhile."""
    notified = replace(alert.value, notified_ms=journal.now_ms())
    return _write(journal, alert, alert.key, None if alert.value.ended_ms is not None else notified)


def record_unrecorded_outage(journal: Journal, condition: Condition, now_ms: int) -> None:
    """Record an alert that people got while the journal did not answer, so that they are notified of its end."""
    journal.rows(ALERTS).put(condition.key, AlertRecord(now_ms, _sanitized(condition), now_ms, now_ms), None)


def _sanitized(condition: Condition) -> str:
    return sanitize_text(condition.sentence, _SENTENCE)


def split_key(key: str) -> tuple[str, str]:
    """Return the kind and the subject of an alert's key."""
    kind, _, subject = key.partition(".")
    return kind, subject


class StallRecorder:
    """Keeps the row of the stalls of one plan; for the process that steps it. Costs nothing while none begins."""

    def __init__(self) -> None:
        self._recorded: bool | None = None

    def record(self, journal: Journal, progress: Progress) -> None:
        """Write or delete the row when moves have started or ceased to stall. Raises JournalUnreachable."""
        is_stalled = bool(progress.stalled) and not progress.ended
        if progress.busy or is_stalled == self._recorded:
            return
        rows = journal.rows(STALLS)
        row = rows.get(progress.digest)
        if is_stalled and row is None:
            rows.put(progress.digest, Stall(journal.now_ms(), sanitize_text(progress.sentence, _SENTENCE)), None)
        elif not is_stalled and row is not None:
            rows.delete(row)
        self._recorded = is_stalled
