"""The journal's tables in memory, for histories by the thousand; `test_memory_tables` holds them against SQLite."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from kafka_steward.assignment import Move, TopicPartition
from kafka_steward.journal.audit import Action, AuditRecord, Outcome, StoredAuditRecord
from kafka_steward.journal.records import ENDED, Cause, MoveRow, MoveState, Phase, PlanRecord


class MemoryMoves:
    """What `MoveTable` does."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
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
        attempt: int | None,
        isr_seen: bool | None,
        phase: Phase | None = None,
        stage: int | None = None,
        cause: Cause | None = None,
        unacknowledged: bool | None = None,
    ) -> int:
        rows, now_ms = self._plans.get(digest, {}), self._clock()
        known = [name for name in set(partitions) if name in rows]
        for name in known:
            rows[name] = rows[name].with_state(
                state,
                detail if isinstance(detail, str) else detail[name],
                now_ms=now_ms,
                attempt=attempt,
                isr_seen=isr_seen,
                phase=phase,
                stage=stage,
                cause=cause,
                unacknowledged=unacknowledged,
            )
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


class MemoryEnded:
    """What `EndedPlans` does."""

    def __init__(self) -> None:
        self._plans: dict[str, tuple[PlanRecord, int]] = {}

    def put(self, record: PlanRecord, ended_ms: int) -> None:
        self._plans[record.digest] = replace(record, revision=ENDED), ended_ms

    def get(self, digest: str) -> PlanRecord | None:
        return self._plans[digest][0] if digest in self._plans else None

    def latest(self, n: int) -> list[PlanRecord]:
        records = [record for record, _ in self._plans.values()]
        return sorted(records, key=lambda record: (-record.published_ms, record.digest))[:n]

    def digests(self, *, ended_before_ms: int | None = None) -> list[str]:
        plans = self._plans.items()
        return sorted(digest for digest, (_, at) in plans if ended_before_ms is None or at < ended_before_ms)

    def delete(self, digest: str) -> None:
        self._plans.pop(digest, None)


class MemoryAudit:
    """What `AuditTable` does."""

    def __init__(self, cluster_id: str, clock: Callable[[], int]) -> None:
        self._cluster_id = cluster_id
        self._clock = clock
        self._rows: list[StoredAuditRecord] = []
        self._keys: dict[object, int] = {}

    def insert(self, entries: Sequence[AuditRecord], outcome: Outcome, detail: str) -> None:
        for entry in entries:
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
