"""The audit trail: each action with its reason, its actor and its outcome.

A row is written before a change to Kafka (`intended`) and completed after it. A decision that changes nothing is one
row, completed at once. Completed rows are never changed again, and are deleted only when a user archives them. Each
action of a plan is written once per (plan, chunk, partition, broker, action, attempt): a step that is repeated after a
crash adds no second row. What may happen to a plan any number of times, such as a request of a person, has the number
of an event as its attempt (`event_number`), and is never taken for a row that exists.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafka_steward.journal.sql.audit import AuditTable


#: A larger `attempt` is the number of an event.
_MOST_ATTEMPTS = 1_000_000_000

#: Rows per page, since the trail may be long.
_PAGE = 500


def event_number(*identity: object) -> int:
    """Return the `attempt` of an event that may happen again, such as a request: no other event has the number.

    An event that is recorded repeatedly is named by its `identity`: then the number is the same each time, and the
    event has one row.
    """
    drawn = hashlib.sha256(repr(identity).encode()).digest() if identity else secrets.token_bytes(8)
    return _MOST_ATTEMPTS + (int.from_bytes(drawn[:8], "big") >> 2)  # 62 bits: the sum fits into a column of 64 bits


class Action(StrEnum):
    """The kind of action that an audit row records."""

    #: A broker failure was detected (KIP-46).
    DETECT = "detect"
    #: A failed broker came back, and its entry was deleted.
    CLEAR = "clear"
    #: A failure was announced as due: its grace period is over.
    ANNOUNCE = "announce"
    #: More brokers have failed than may be healed: reported only.
    OUTAGE = "outage"
    #: A plan was approved, by a user or by a rule.
    APPROVE = "approve"
    #: A plan was not approved: a user rejected it, or nobody answered.
    REJECT = "reject"
    #: A plan was published and holds the plan slot.
    PUBLISH = "publish"
    #: A partition was held back; it may be submitted later.
    HOLD = "hold"
    #: A reassignment was submitted to Kafka.
    SUBMIT = "submit"
    #: A log directory was named for a replica before its reassignment was submitted (KIP-113).
    PLACE = "place"
    #: A reassignment was observed to be complete (KIP-46: caught up in the ISR, once).
    SETTLE = "settle"
    #: A reassignment in flight was cancelled (KIP-236).
    CANCEL = "cancel"
    #: The order of replicas was restored or changed.
    REORDER = "reorder"
    #: A throttle was set, or our entries were added to it.
    THROTTLE = "throttle"
    #: A throttle lease was released.
    UNTHROTTLE = "unthrottle"
    #: A broker that a drain empties was cordoned (KIP-1066).
    CORDON = "cordon"
    #: A cordon of ours was lifted.
    UNCORDON = "uncordon"
    #: A preferred leader was elected.
    ELECT = "elect"
    #: A partition needed no change any more (KIP-46: already satisfied).
    SKIP = "skip"
    #: A partition of the plan will not be moved.
    DROP = "drop"
    #: A plan was preempted by another, or became idle.
    PAUSE = "pause"
    #: A paused plan was resumed.
    RESUME = "resume"
    #: A plan makes no progress and needs operator action.
    STUCK = "stuck"
    #: A user made a request.
    REQUEST = "request"
    #: A partition was restored to its original replicas (KIP-236).
    ROLL_BACK = "roll_back"
    #: An external reassignment was observed to start while reassignments are disabled (KIP-236).
    EXTERNAL = "external"
    #: An unreadable document was moved to quarantine, and repaired.
    REPAIR = "repair"
    #: A topic, or partitions of one, were created.
    CREATE = "create"
    #: A partition was given fewer replicas than its target: the others are pending replicas (KIP-409).
    PENDING = "pending"
    #: A plan ended.
    FINISH = "finish"


class Code(StrEnum):
    """A machine-readable code for rows whose action alone is ambiguous; `reason` is the same for a user."""

    #: A rollback leaves the partition as it is.
    LEFT_ALONE = "left_alone"
    #: A rule of KIP-236 forbids cancelling the partition's reassignment.
    FORBIDDEN = "forbidden"


class Outcome(StrEnum):
    """The outcome of an action."""

    #: Written before the change. If the row stays like this, it is unknown whether the change was made.
    INTENDED = "intended"
    DONE = "done"
    #: Kafka refused the request; `detail` is Kafka's error message.
    REFUSED = "refused"
    #: The action failed on our side; `detail` is the error.
    FAILED = "failed"
    #: No response arrived: the change may have been made.
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Actor:
    """The actor: an Airflow task's try, and the user who requested the action. Unknown fields are None."""

    dag_id: str | None = None
    run_id: str | None = None
    task_id: str | None = None
    try_number: int | None = None
    person: str | None = None

    def __str__(self) -> str:
        place = "/".join(part for part in (self.dag_id, self.task_id) if part)
        return " for ".join(part for part in (place, self.person) if part)


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """One audit record to be written. `before` and `after` take any JSON value; `reason` is a message.

    `broker` distinguishes the actions of one plan on several brokers, such as setting their throttles.
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
    who: Actor = field(default_factory=Actor)
    code: Code | None = None

    @property
    def submission(self) -> int | None:
        """The number of the submission of a plan's partition that the record is about; None if it is about none."""
        is_about_one = self.plan and self.partition is not None and self.attempt < _MOST_ATTEMPTS
        return self.attempt if is_about_one else None


@dataclass(frozen=True, slots=True)
class StoredAuditRecord:
    """One stored row. Times are by the journal's clock, in milliseconds since 1970.

    `completed_ms` is None while the outcome is still `intended`.
    """

    id: int
    when_ms: int
    completed_ms: int | None
    cluster_id: str
    entry: AuditRecord
    outcome: Outcome
    detail: str


class Audit:
    """The audit trail of one cluster. Any method may raise JournalUnreachable."""

    def __init__(self, table: AuditTable) -> None:
        self._table = table

    def record_intent(self, entries: Sequence[AuditRecord]) -> None:
        """Record actions before they are done (write-ahead). Rows that exist already are left unchanged."""
        self._table.insert([(entry, Outcome.INTENDED, "") for entry in entries])

    def record_outcome(self, entries: Sequence[AuditRecord], outcome: Outcome | str, detail: str = "") -> None:
        """Record the outcome of these actions. Rows that are already complete are left unchanged."""
        known = Outcome(outcome)
        self.record_outcomes([(entry, known, detail) for entry in entries])

    def record_outcomes(self, outcomes: Sequence[tuple[AuditRecord, Outcome, str]]) -> None:
        """Record the outcomes of several actions, each with its own detail, in one transaction."""
        self._table.complete(outcomes)

    def record(self, entry: AuditRecord, outcome: Outcome | str = Outcome.DONE, detail: str = "") -> None:
        """Record a decision that changes nothing: one row, completed at once."""
        self.record_decisions([(entry, Outcome(outcome), detail)])

    def record_all(self, entries: Sequence[AuditRecord]) -> None:
        """Record several decisions that are done, in one transaction."""
        self.record_decisions([(entry, Outcome.DONE, "") for entry in entries])

    def record_decisions(self, decisions: Sequence[tuple[AuditRecord, Outcome, str]]) -> None:
        """Record several decisions in one transaction, each in one row that is completed at once, with its detail."""
        self._table.insert(decisions)

    def remove(self, ids: Sequence[int]) -> None:
        """Delete the rows with these ids, which were archived elsewhere."""
        self._table.remove(ids)

    def pages(self, before_ms: int | None = None) -> Iterator[list[StoredAuditRecord]]:
        """Yield all rows, or those older than `before_ms`, in the order of their ids, in pages of some hundreds."""
        last = 0
        while rows := self._table.rows_before(before_ms, last, _PAGE):
            yield rows
            last = rows[-1].id

    def import_rows(self, pages: Iterable[Sequence[StoredAuditRecord]]) -> int:
        """Import the rows of another journal of this cluster unchanged: all that are older than the oldest row here.

        Returns the number of imported rows: all of them the first time, none once they have been imported.
        """
        return self._table.import_rows(pages)

    def rows(
        self,
        *,
        plan: str | None = None,
        action: Action | str | None = None,
        topic: str | None = None,
        since_ms: int | None = None,
        limit: int | None = None,
    ) -> list[StoredAuditRecord]:
        """Return the matching rows, oldest first; with `limit`, only the newest `limit` of them."""
        chosen = None if action is None else Action(action)
        return self._table.select(plan=plan, action=chosen, topic=topic, since_ms=since_ms, limit=limit)
