"""The status of a plan's partitions, in the format of `kafka-reassign-partitions --verify`, which scripts parse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafka_steward.cli.exits import Exit
from kafka_steward.journal.moves import MoveState
from kafka_steward.journal.plans import PlanStatus

if TYPE_CHECKING:
    from kafka_steward.assignment import Assignment, TopicPartition
    from kafka_steward.cluster.state import Partition
    from kafka_steward.journal.moves import MoveRow
    from kafka_steward.journal.records import PlanRecord

__all__ = ["PartitionStatus", "exit_of", "partition_statuses"]

_BEGINS = "Reassignment of partition"


@dataclass(frozen=True)
class PartitionStatus:
    """One partition: `code` is its own exit code, `sentence` is Kafka's own wording if Kafka has one."""

    partition: TopicPartition
    code: Exit
    sentence: str


def partition_statuses(
    record: PlanRecord, rows: Sequence[MoveRow], found: Mapping[TopicPartition, Partition]
) -> list[PartitionStatus]:
    """Return the status of each partition of the plan, compared with the cluster's current state. Pure."""
    return [PartitionStatus(row.topic_partition, *_status(record, row, found.get(row.topic_partition))) for row in rows]


def exit_of(standings: Sequence[PartitionStatus]) -> Exit:
    """Return UNFINISHED if any partition is in progress; else FAILED if any is not where it should be; else DONE."""
    codes = {standing.code for standing in standings}
    return next((code for code in (Exit.UNFINISHED, Exit.FAILED) if code in codes), Exit.DONE)


def _status(record: PlanRecord, row: MoveRow, now: Partition | None) -> tuple[Exit, str]:
    name = row.topic_partition
    if now is None:
        return Exit.FAILED, f"{_BEGINS} {name} cannot be verified: there is no such partition any more."
    if None not in (row.move.topic_id, now.topic_id) and row.move.topic_id != now.topic_id:
        return Exit.FAILED, f"{_BEGINS} {name} cannot be verified: its topic was deleted and created anew."
    if now.reassigning:
        return Exit.UNFINISHED, f"{_BEGINS} {name} is still in progress."
    spared = row.state in {MoveState.DROPPED, MoveState.FAILED}
    undone = record.status is PlanStatus.ROLLED_BACK or record.not_taken_back is not None
    back = undone or (spared and record.status is PlanStatus.CANCELLED)
    wanted = row.move.before if back else row.move.after
    if now.replicas == wanted:
        return Exit.DONE, f"{_BEGINS} {name} {'was taken back' if back else 'is completed'}."
    return _astray(record, row, now.replicas, wanted)


def _astray(record: PlanRecord, row: MoveRow, now: Assignment, wanted: Assignment) -> tuple[Exit, str]:
    name = row.topic_partition
    if not row.state.settled and not record.status.finished:
        return Exit.UNFINISHED, f"{_BEGINS} {name} has not begun."
    if now == row.move.before and row.detail:
        return Exit.FAILED, f"{_BEGINS} {name} was not made: {row.detail}"
    is_now, should = (",".join(map(str, replicas)) for replicas in (now, wanted))
    return (
        Exit.FAILED,
        f"There is no active reassignment of partition {name}, but replica set is {is_now} rather than {should}.",
    )
