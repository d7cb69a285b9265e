"""The journal's tables in memory, for histories by the thousand; `test_memory_tables` holds them against SQLite."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

from kafka_steward.assignment import Move, TopicPartition
from kafka_steward.journal.audit import Action, Actor, AuditRecord, Outcome, StoredAuditRecord
from kafka_steward.journal.observed import ApprovalState
from kafka_steward.journal.records import Approval, MoveChanges, MoveRow, MoveState, PlanRecord


class MemoryMoves:
    """What `MoveTable` does."""

    def __init__(self, clock: Callable[[], int], audit: MemoryAudit) -> None:
        self._clock = clock
        self._audit = audit
        self._plans: dict[str, dict[TopicPartition, MoveRow]] = {}
        self.place = "memory"

    def insert_missing(self, digest: str, moves: Sequence[Move]) -> None:
        rows = self._plans.setdefault(digest, {})
        for move in moves:
            rows.setdefault(move.topic_partition, MoveRow(move))

    def rows(self, digest: str) -> list[MoveRow]:
        rows = self._plans.get(digest, {}).values()
        return sorted(rows, key=lambda row: (row.move.chunk, row.move.position))

    def set_state(
        self,
        digest: str,
        partitions: Collection[TopicPartition],
        state: MoveState,
        detail: str | Mapping[TopicPartition, str],
        *,
        action: Action | None = None,
        who: Actor | None = None,
        **changes: Unpack[MoveChanges],
    ) -> int:
        rows, now_ms = self._plans.get(digest, {}), self._clock()
        known = [name for name in set(partitions) if name in rows]
        attempt = changes.get("attempt")
        if action is not None:
            # It comes first: without a transaction, a process that ends in between writes both again.
            told = dict.fromkeys(known, detail) if isinstance(detail, str) else detail
            asked = [row for row in self.rows(digest) if row.topic_partition in known]
            entries = [
                AuditRecord(
                    action,
                    told[row.topic_partition],
                    digest,
                    row.move.chunk,
                    *row.topic_partition,
                    attempt=row.attempt if attempt is None else attempt,
                    before=list(row.move.before),
                    who=who or Actor(),
                )
                for row in asked
            ]
            self._audit.insert([(entry, Outcome.DONE, "") for entry in entries])
        for name in known:
            text = detail if isinstance(detail, str) else detail[name]
            rows[name] = rows[name].with_state(state, text, now_ms=now_ms, **changes)
        return len(known)

    def unsettled_partitions(self, digest: str) -> tuple[int, set[TopicPartition]]:
        rows = self.rows(digest)
        return len(rows), {row.topic_partition for row in rows if not row.state.settled}

    def unsettled_rows(self, digest: str) -> tuple[int, list[MoveRow]]:
        rows = self.rows(digest)
        return len(rows), [row for row in rows if not row.state.settled]

    def count_states(self, digest: str) -> Counter[MoveState]:
        return Counter(row.state for row in self.rows(digest))

    def rows_of(self, digest: str, partitions: Collection[TopicPartition]) -> list[MoveRow]:
        return sorted((row for row in self.rows(digest) if row.topic_partition in partitions), key=_by_partition)

    def unsettled_chunks(self, digest: str) -> set[int]:
        return {row.move.chunk for row in self.rows(digest) if not row.state.settled}

    def in_flight(self) -> list[str]:
        plans = self._plans.items()
        return sorted(plan for plan, rows in plans if any(row.state is MoveState.SUBMITTED for row in rows.values()))

    def submissions_by_others(self, digest: str, partitions: Collection[TopicPartition]) -> list[tuple[str, MoveRow]]:
        others = [(plan, row) for plan, rows in self._plans.items() if plan != digest for row in rows.values()]
        found = [(plan, row) for plan, row in others if row.attempt and row.topic_partition in partitions]
        return sorted(found, key=lambda each: (each[1].submitted_ms or 0, each[0]))

    def delete(self, digest: str) -> None:
        self._plans.pop(digest, None)


def _by_partition(row: MoveRow) -> TopicPartition:
    return row.topic_partition


class MemoryPlans:
    """What `PlanTable` does."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._plans: dict[str, PlanRecord] = {}
        self._changed: dict[str, int] = {}
        self._approvals: dict[str, Approval] = {}

    def get(self, digest: str) -> PlanRecord | None:
        return self._plans.get(digest)

    def unfinished(self, *, or_cancelled: bool = False) -> list[PlanRecord]:
        return [each for each in self._sorted() if not each.status.finished or (or_cancelled and each.cancel)]

    def latest(self, n: int) -> list[PlanRecord]:
        return self._sorted()[::-1][:n]

    def by_source(self) -> dict[str, list[str]]:
        plans = self._sorted()
        sources = {source for plan in plans for source in plan.sources}
        return {source: [plan.digest for plan in plans if source in plan.sources] for source in sources}

    def digests(self) -> list[str]:
        return sorted(self._plans)

    def ended(self, before_ms: int) -> list[str]:
        ended = [digest for digest, plan in self._plans.items() if plan.status.finished]
        return sorted(digest for digest in ended if self._changed[digest] < before_ms)

    def insert(self, record: PlanRecord) -> bool:
        is_new = record.digest not in self._plans
        if is_new:
            self._plans[record.digest], self._changed[record.digest] = record, self._clock()
        return is_new

    def change(self, digest: str, revision: int, changes: Mapping[str, Any]) -> bool:
        known = self._plans.get(digest)
        if known is None or known.revision != revision:
            return False
        self._plans[digest] = replace(known, **changes, revision=revision + 1)
        self._changed[digest] = self._clock()
        return True

    def delete(self, digest: str) -> None:
        self._plans.pop(digest, None)
        self._approvals.pop(digest, None)

    def delete_proposals(self, before_ms: int) -> None:
        pass

    def ask(self, *_: Any, **__: Any) -> None:
        pass

    def answer(self, digest: str, state: ApprovalState, **answer: Any) -> None:
        if state is ApprovalState.APPROVED:
            names = {"person": answer["person"], "reason": answer["reason"], "answered_ms": answer["answered_ms"]}
            self._approvals.setdefault(digest, Approval(digest, **names))

    def approval(self, digest: str) -> Approval | None:
        return self._approvals.get(digest)

    def _sorted(self) -> list[PlanRecord]:
        return sorted(self._plans.values(), key=lambda each: each.published_ms)


class MemoryAudit:
    """What `AuditTable` does."""

    def __init__(self, cluster_id: str, clock: Callable[[], int]) -> None:
        self._cluster_id = cluster_id
        self._clock = clock
        self._rows: list[StoredAuditRecord] = []
        self._keys: dict[object, int] = {}

    def insert(self, records: Sequence[tuple[AuditRecord, Outcome, str]]) -> None:
        for entry, outcome, detail in records:
            if entry.plan and _key(entry) in self._keys:
                continue
            now_ms, number = self._clock(), len(self._rows)
            completed_ms = None if outcome is Outcome.INTENDED else now_ms
            self._keys[_key(entry)] = number
            self._rows.append(
                StoredAuditRecord(number + 1, now_ms, completed_ms, self._cluster_id, entry, outcome, detail)
            )

    def complete(self, outcomes: Sequence[tuple[AuditRecord, Outcome, str]]) -> None:
        ends = {_key(entry): (outcome, detail) for entry, outcome, detail in reversed(outcomes)}
        for number, row in enumerate(self._rows):
            if row.outcome is Outcome.INTENDED and _key(row.entry) in ends:
                outcome, detail = ends[_key(row.entry)]
                self._rows[number] = replace(row, outcome=outcome, detail=detail, completed_ms=self._clock())

    def select(
        self, *, plan: str | None, action: Action | None, topic: str | None, since_ms: int | None, limit: int | None
    ) -> list[StoredAuditRecord]:
        found = [
            row
            for row in self._rows
            if (plan is None or row.entry.plan == plan)
            and (action is None or row.entry.action is action)
            and (topic is None or row.entry.topic == topic)
            and (since_ms is None or row.when_ms >= since_ms)
        ]
        return found if limit is None else found[-limit:]


def _key(entry: AuditRecord) -> object:
    return entry.plan, entry.chunk, entry.topic, entry.partition, entry.broker, entry.action, entry.attempt
