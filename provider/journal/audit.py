"""The audit trail: what was done, why, by whom, and what came of it.

A row is written before a change to Kafka (`intended`) and completed after it; a decision that changes nothing is one
row, completed at once. Rows are never changed again, and deleted only by a person who archives them. What a plan does
is written once per (plan, chunk, partition, broker, action, attempt): a step that is done again after a crash adds no
second row.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafka_steward.journal.sql_audit import AuditTable

__all__ = ["Action", "Audit", "AuditRow", "Code", "Entry", "Outcome", "Who"]


#: Rows that are read at once of a trail that may be long.
_PAGE = 500


class Action(str, Enum):
    """What was done."""

    #: A broker was seen to be gone (KIP-46).
    DETECT = "detect"
    #: A failed broker came back, and its entry went.
    CLEAR = "clear"
    #: A failure was announced as due.
    ANNOUNCE = "announce"
    #: More brokers are gone than may be healed: reported only.
    OUTAGE = "outage"
    #: A plan was approved, by a person or by a rule.
    APPROVE = "approve"
    #: A plan was not approved: a person said no, or nobody answered.
    REJECT = "reject"
    #: A plan was written down and owns the cluster.
    PUBLISH = "publish"
    #: A partition was held back; it may go on later.
    HOLD = "hold"
    #: A reassignment was submitted to Kafka.
    SUBMIT = "submit"
    #: A reassignment was seen to be complete (KIP-46: caught up in the ISR, once).
    SETTLE = "settle"
    #: A reassignment in flight was cancelled (KIP-236).
    CANCEL = "cancel"
    #: The order of replicas was restored or changed.
    REORDER = "reorder"
    #: A throttle was set, or our entries were added to it.
    THROTTLE = "throttle"
    #: A throttle was given back.
    UNTHROTTLE = "unthrottle"
    #: A preferred leader was elected.
    ELECT = "elect"
    #: A partition needed nothing any more (KIP-46: already satisfied).
    SKIP = "skip"
    #: A partition of the plan will not be done.
    DROP = "drop"
    #: A plan made way for another.
    PAUSE = "pause"
    #: A paused plan went on.
    RESUME = "resume"
    #: A plan makes no progress and waits for a person.
    STUCK = "stuck"
    #: A person asked for something.
    REQUEST = "request"
    #: A partition went back to its original replicas (KIP-236).
    ROLL_BACK = "roll_back"
    #: Someone else's reassignment was seen to start while reassignments are switched off (KIP-236).
    FOREIGN = "foreign"
    #: A document that could not be read was moved aside, and made anew.
    MEND = "mend"
    #: A topic, or partitions of one, were created.
    CREATE = "create"
    #: A partition was given fewer replicas than it shall have: the rest is owed (KIP-409).
    OWE = "owe"
    #: A plan ended.
    FINISH = "finish"


class Code(str, Enum):
    """What a row says to a program, where its action alone does not; `reason` says it to a person."""

    #: A rollback leaves the partition as it is.
    LEFT_ALONE = "left_alone"
    #: A rule of KIP-236 forbids to cancel the partition's reassignment.
    FORBIDDEN = "kip_236"


class Outcome(str, Enum):
    """What came of it."""

    #: Written before the change: if it stays so, nobody knows whether it was made.
    INTENDED = "intended"
    DONE = "done"
    #: Kafka said no; `detail` has its words.
    REFUSED = "refused"
    #: It failed on our side; `detail` says how.
    FAILED = "failed"
    #: No answer came: it may have been done.
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Who:
    """Who did it: an Airflow task's try, and the person who asked for it. Whatever is unknown is None."""

    dag_id: str | None = None
    run_id: str | None = None
    task_id: str | None = None
    try_number: int | None = None
    person: str | None = None

    def __str__(self) -> str:
        place = "/".join(part for part in (self.dag_id, self.task_id) if part)
        return " for ".join(part for part in (place, self.person) if part)


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing to be written. `before` and `after` take any JSON value; `reason` is a sentence.

    `broker` tells apart what a plan does to several brokers, such as their throttles.
    """

    action: Action
    reason: str
    plan: str = ""
    chunk: int | None = None
    topic: str | None = None
    partition: int | None = None
    broker: int | None = None
    attempt: int = 0
    before: Any = None
    after: Any = None
    who: Who = field(default_factory=Who)
    code: Code | None = None


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One row as it was written. Times are the journal's, in milliseconds since 1970.

    `completed_ms` is None while the outcome is still `intended`.
    """

    id: int
    when_ms: int
    completed_ms: int | None
    cluster_id: str
    entry: Entry
    outcome: Outcome
    detail: str


class Audit:
    """The trail of one cluster. Any method may raise JournalUnreachable."""

    def __init__(self, table: AuditTable) -> None:
        self._table = table

    def intend(self, entries: Sequence[Entry]) -> None:
        """Write down what is about to be done. What is already written down stays as it is."""
        self._table.insert(entries, Outcome.INTENDED, "")

    def complete(self, entries: Sequence[Entry], outcome: Outcome | str, detail: str = "") -> None:
        """Write what came of it. A row that was completed before is left as it is."""
        self._table.complete(entries, Outcome(outcome), detail)

    def note(self, entry: Entry, outcome: Outcome | str = Outcome.DONE, detail: str = "") -> None:
        """Write down what was decided rather than done: one row, complete at once."""
        self._table.insert([entry], Outcome(outcome), detail)

    def note_all(self, entries: Sequence[Entry]) -> None:
        """Write down several decisions, each in a row that is complete at once."""
        self._table.insert(entries, Outcome.DONE, "")

    def remove(self, ids: Sequence[int]) -> None:
        """Delete rows that were archived elsewhere."""
        self._table.remove(ids)

    def pages(self, before_ms: int | None = None) -> Iterator[list[AuditRow]]:
        """Yield all rows, or those from before a moment, in the order of their ids, some hundreds at a time."""
        last = 0
        while rows := self._table.older(before_ms, last, _PAGE):
            yield rows
            last = rows[-1].id

    def adopt(self, pages: Iterable[Sequence[AuditRow]]) -> int:
        """Take over the history of another journal of this cluster, as it was: all rows older than the oldest here.

        Returns how many there were: all of them, or none once they were taken over.
        """
        return self._table.adopt(pages)

    def rows(
        self,
        *,
        plan: str | None = None,
        action: Action | str | None = None,
        topic: str | None = None,
        since_ms: int | None = None,
        limit: int | None = None,
    ) -> list[AuditRow]:
        """The rows that match, oldest first; with `limit`, the newest that many of them."""
        chosen = None if action is None else Action(action)
        return self._table.select(plan=plan, action=chosen, topic=topic, since_ms=since_ms, limit=limit)


def to_column(value: Any) -> str | None:
    """A JSON value as it is stored; None stays None."""
    return None if value is None else json.dumps(value, sort_keys=True)


def from_column(text: str | None) -> Any:
    """The JSON value that was stored."""
    return None if text is None else json.loads(text)
