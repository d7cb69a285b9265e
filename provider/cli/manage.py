"""Verbs that inspect or manage a plan without stepping it: verify, throttle, abandon.

`verify` prints in the format of `kafka-reassign-partitions --verify`, which scripts parse.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from kafka_steward.assignment import Assignment, TopicPartition, counted
from kafka_steward.cli import Exit
from kafka_steward.cli.show import plan_facts
from kafka_steward.cli.verb import CommandContext, print_error
from kafka_steward.cluster.state import Snapshot
from kafka_steward.document_api.request_status import BEGINS, misplaced_sentence
from kafka_steward.errors import ClusterError, LockLost, StewardError
from kafka_steward.execution.moves.recovery import gone_reason
from kafka_steward.execution.moves.skips import SkippedPartition
from kafka_steward.execution.moves.states import DONE
from kafka_steward.execution.plans.lifecycle import (
    abandon_plan,
    change_plan_throttle,
    find_plan_by_prefix,
    read_stricter_rates,
    throttle_message,
)
from kafka_steward.execution.plans.resolution import resolve_plan
from kafka_steward.execution.plans.rollback import find_left_alone
from kafka_steward.execution.throttles.leases import list_external_rates
from kafka_steward.execution.watch.upkeep import ended_plans_with_leases, release_orphaned_throttles
from kafka_steward.hooks.session import ClusterSession
from kafka_steward.journal.records import MoveRow, MoveState, PlanRecord, PlanStatus


@dataclass(frozen=True)
class PartitionStatus:
    """One partition: `code` is its own exit code, `sentence` is Kafka's own wording if Kafka has one."""

    partition: TopicPartition
    code: Exit
    sentence: str


def partition_statuses(
    record: PlanRecord,
    rows: Sequence[MoveRow],
    snapshot: Snapshot,
    alone: Iterable[SkippedPartition] = (),
) -> list[PartitionStatus]:
    """Return the status of each partition of the plan, compared with the cluster's current state. Pure.

    `alone` are those that a rollback left alone.
    """
    whys = {TopicPartition(partition.topic, partition.partition): partition.why for partition in alone}
    return [PartitionStatus(row.topic_partition, *_partition_status(record, row, snapshot, whys)) for row in rows]


def overall_exit(statuses: Sequence[PartitionStatus]) -> Exit:
    """Return UNFINISHED if any partition is in progress; else FAILED if any is not where it should be; else DONE."""
    codes = {status.code for status in statuses}
    return next((code for code in (Exit.UNFINISHED, Exit.FAILED) if code in codes), Exit.DONE)


def _partition_status(
    record: PlanRecord, row: MoveRow, snapshot: Snapshot, alone: Mapping[TopicPartition, str]
) -> tuple[Exit, str]:
    name, now = row.topic_partition, snapshot.partitions.get(row.topic_partition)
    gone = gone_reason(row.move, snapshot)
    if gone is not None or now is None:
        return Exit.FAILED, f"{BEGINS} {name} cannot be verified: {gone}."
    if now.reassigning:
        return Exit.UNFINISHED, f"{BEGINS} {name} is still in progress."
    unmoved = row.state in {MoveState.DROPPED, MoveState.FAILED}
    back = record.rolled_back or (unmoved and record.status is PlanStatus.CANCELLED)
    wanted = row.move.before if back else row.move.after
    if now.replicas == wanted and back and not (row.may_have_started or row.state in DONE):
        return Exit.DONE, f"{BEGINS} {name} had not begun: it was not moved, and has its original replicas."
    if now.replicas == wanted:
        return Exit.DONE, f"{BEGINS} {name} {'was rolled back' if back else 'is completed'}."
    code, sentence = _misplaced_status(record, row, now.replicas, wanted)
    has = "the target of the plan" if now.replicas == row.move.after else "these replicas"
    left = f" The rollback left it with {has}: {alone[name]}." if back and name in alone else ""
    return code, f"{sentence}{left}"


def _misplaced_status(record: PlanRecord, row: MoveRow, now: Assignment, wanted: Assignment) -> tuple[Exit, str]:
    name = row.topic_partition
    if not row.state.settled and not record.status.finished:
        return Exit.UNFINISHED, f"{BEGINS} {name} has not started."
    if now == row.move.before and row.detail:
        return Exit.FAILED, f"{BEGINS} {name} was not executed: {row.detail}"
    return Exit.FAILED, misplaced_sentence(name, now, wanted)


def verify(call: CommandContext) -> Exit:
    """Print the status of each partition of a plan; release throttles that ended plans left."""
    with call.hook.open() as opened:
        record = resolve_plan(opened.journal, call.arguments.plan, "verify")
        rows = opened.journal.plans.rows(record.digest)
        snapshot = opened.cluster.snapshot(sorted({row.move.topic for row in rows}))
        verified = partition_statuses(record, rows, snapshot, find_left_alone(opened.journal, record.rolled_back_by))
        released, unreleased = _release_throttles(call, opened)
    moves = [
        {**status.partition._asdict(), "exit": int(status.code), "sentence": status.sentence} for status in verified
    ]
    throttles = {"throttles_released": released, "throttles_unreleased": unreleased}
    facts = {**plan_facts(record), **throttles, "moves": moves}
    lines = [f"Status of plan {record.digest[:12]}: {record.status.value}.", *(status.sentence for status in verified)]
    lines += [f"Throttles of plan {plan[:12]} were released." for plan in released]
    call.out.print_facts(facts, lines)
    astray = sum(status.code is not Exit.DONE for status in verified)
    if astray:
        goal = "original" if record.rolled_back else "target"
        print_error(
            f"{astray} of {counted(len(rows), 'partition')} of plan {record.digest[:12]} "
            f"{'does not have its' if astray == 1 else 'do not have their'} {goal} replicas."
        )
    for plan in unreleased:
        print_error(f"Throttles of plan {plan[:12]} are still set; verify again.")
    return overall_exit(verified) or (Exit.UNFINISHED if unreleased else Exit.DONE)


def _release_throttles(call: CommandContext, opened: ClusterSession) -> tuple[list[str], list[str]]:
    """Release the throttle leases of ended plans.

    Returns the plans whose leases were released, and the plans that still have leases. Nothing is released while any of
    their reassignments is in flight, as after an abandoned plan: it would continue without a throttle.
    """
    before = ended_plans_with_leases(opened.journal)
    in_flight = opened.cluster.reassignments() if before else {}
    if any(row.topic_partition in in_flight for plan in before for row in opened.journal.plans.existing_rows(plan)):
        return [], before
    try:
        release_orphaned_throttles(opened.cluster, opened.journal, call.who)
    except (ClusterError, LockLost) as error:
        print_error(str(error))
    unreleased = ended_plans_with_leases(opened.journal)
    return [plan for plan in before if plan not in unreleased], unreleased


def set_plan_throttle(call: CommandContext) -> None:
    """Change the throttle of a plan."""
    with call.journal() as journal:
        digest = find_plan_by_prefix(journal, call.arguments.plan).digest
        changed = change_plan_throttle(journal, digest, call.arguments.rate, call.who, call.reason)
        external, connection = list_external_rates(journal, changed), call.connection()
        with suppress(StewardError), call.hook.open() as opened:  # the cluster need not respond
            external = read_stricter_rates(opened.context(call.who), changed)
            connection = call.connection(opened.cluster.live_brokers())
        sentence = throttle_message(journal, changed, external, connection=connection)
    facts = {**plan_facts(changed, external), "throttle": changed.throttle, "sentence": sentence}
    call.out.print_facts(facts, [sentence])


def abandon(call: CommandContext) -> None:
    """End a plan as it stands."""
    # Use the journal only: an unresponsive cluster is a reason to abandon a plan.
    with call.journal() as journal:
        record = find_plan_by_prefix(journal, call.arguments.plan)
        ended = abandon_plan(journal, record.digest, call.who, call.reason)
    call.out.print_facts(plan_facts(ended), [ended.reason])
    print_error(
        "Moves in flight continue in Kafka. To release their throttles once they have completed:",
        f"  {call.command_line(f'verify {ended.digest[:12]}')}",
    )
