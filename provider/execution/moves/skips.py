"""The partitions that the cancel or the rollback of a plan leaves as they are: a row for each plan that has any."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass

from kafka_steward.journal.audit import AuditRecord, Code
from kafka_steward.journal.records import SKIPPED_PARTITIONS, SkippedPartitions
from kafka_steward.journal.state import parse_partition
from kafka_steward.journal.store import Journal


@dataclass(frozen=True, order=True)
class SkippedPartition:
    """A partition that the cancel or rollback of a plan skipped, and why."""

    topic: str
    partition: int
    why: str

    @property
    def sentence(self) -> str:
        """The partition, and why it was skipped."""
        return f"{self.topic}-{self.partition}: {self.why}"


def record_skips(journal: Journal, plan: str, code: Code, entries: Sequence[AuditRecord]) -> None:
    """Record the partitions that a plan skips, each with a row of the audit trail; the first reason of each stays."""
    if not entries:
        return
    skipped = {f"{entry.topic}-{entry.partition}": entry.reason for entry in entries}
    with journal.transaction():
        journal.audit.record_all(entries)
        rows = journal.rows(SKIPPED_PARTITIONS)
        row = rows.get(plan)
        known = {} if row is None else asdict(row.value)
        changed = SkippedPartitions(**known | {code.value: skipped | known.get(code.value, {})})
        if row is None or changed != row.value:
            rows.put(plan, changed, row)


def read_skips(journal: Journal, plan: str, code: Code) -> list[SkippedPartition]:
    """Return the partitions that a plan skipped for this reason, sorted."""
    row = journal.rows(SKIPPED_PARTITIONS).get(plan)
    reasons = {} if row is None else asdict(row.value)[code.value]
    return sorted(SkippedPartition(*parse_partition(name), why) for name, why in reasons.items())


def delete_skips(journal: Journal, plans: Collection[str]) -> None:
    """Delete what these plans skipped, which are deleted themselves."""
    rows = journal.rows(SKIPPED_PARTITIONS)
    rows.delete_all([row for row in rows.all() if row.key in plans])
