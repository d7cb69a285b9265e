"""Verbs that inspect or manage a plan without stepping it: verify, throttle, abandon.

`verify` prints in the format of `kafka-reassign-partitions --verify`, which scripts parse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow.cli.cli_config import ActionCommand, Arg

from kafka_steward.cli.cancel import reason_of
from kafka_steward.cli.show import plan_facts
from kafka_steward.cli.verb import PLAN, RATE, REASON, CommandContext, Exit, print_error, verb
from kafka_steward.errors import ClusterError, LockLost
from kafka_steward.journal.moves import MoveState
from kafka_steward.journal.records import PlanStatus

if TYPE_CHECKING:
    from kafka_steward.assignment import Assignment, TopicPartition
    from kafka_steward.cluster.state import Partition
    from kafka_steward.hooks.steward import ClusterSession
    from kafka_steward.journal.moves import MoveRow
    from kafka_steward.journal.records import PlanRecord


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


_VERIFY = """\
Prints the lines of kafka-reassign-partitions --verify, from the cluster's own word. Exit code 0: every partition
is where the plan puts it, or was taken back; 3: some are in progress, or a throttle is still owed; 1: some are
elsewhere."""

_THROTTLE = """\
The next step of the plan carries the rate to all brokers that its moves copy to, so within seconds while a run or
a terminal steps it. It holds for this plan until it ends, whatever the connection or a run says; a rate that someone
else has set on a broker, and that is stricter, is left alone. Only the journal is needed."""

_ABANDON = """\
What has arrived stays, what is in flight goes on in Kafka, and another plan may have the cluster. Only the
journal is needed: it works while the cluster does not answer. `verify` gives the throttles back once all has
arrived."""


def verbs() -> tuple[ActionCommand, ...]:
    """Return the verbs of this module."""
    message = "Its digest, or the beginning of it; without: the plan under way, or the last"
    last = Arg(("plan",), help=message, nargs="?", metavar="PLAN")
    on = "--cluster kafka_production"
    about = "Say where each partition of a plan is, and give back throttles that ended plans left"
    verified = [f"verify {on}", f"verify 3f2a91c0 {on} --output json"]
    abandoned = [f"abandon 3f2a91c0 {on} --reason 'broker 4 will not return'"]
    return (
        verb("verify", about, _verify, (last,), examples=verified, details=_VERIFY),
        verb(
            "throttle",
            "Change how fast a plan may copy, while it runs",
            _throttle,
            (PLAN, RATE, REASON),
            examples=[f"throttle 3f2a91c0 200M {on} --reason 'the night is quiet'"],
            details=_THROTTLE,
        ),
        verb(
            "abandon",
            "Give a plan up as it stands: nothing is taken back",
            _abandon,
            (PLAN, REASON),
            examples=abandoned,
            details=_ABANDON,
        ),
    )


def _verify(call: CommandContext) -> Exit:
    from kafka_steward.execution.resolve import resolve_plan

    with call.hook.open() as opened:
        record = resolve_plan(opened.journal, call.arguments.plan, "verify")
        rows = opened.journal.plans.rows(record.digest)
        found = opened.cluster.snapshot(sorted({row.move.topic for row in rows})).partitions if rows else {}
        verified = partition_statuses(record, rows, found)
        given_back, owed = _settle_throttles(call, opened)
    moves = [{**each.partition._asdict(), "exit": int(each.code), "sentence": each.sentence} for each in verified]
    facts = {**plan_facts(record), "throttles_given_back": given_back, "throttles_owed": owed, "moves": moves}
    lines = [f"Status of plan {record.digest[:12]}: {record.status.value}.", *(each.sentence for each in verified)]
    lines += [f"Throttles of plan {plan[:12]} were given back." for plan in given_back]
    call.out.facts(facts, lines)
    astray = sum(each.code is not Exit.DONE for each in verified)
    if astray:
        print_error(f"{astray} of {len(rows)} partitions of plan {record.digest[:12]} are not where it puts them.")
    for plan in owed:
        print_error(f"Throttles of plan {plan[:12]} are still owed; verify again.")
    return exit_of(verified) or (Exit.UNFINISHED if owed else Exit.DONE)


def _settle_throttles(call: CommandContext, opened: ClusterSession) -> tuple[list[str], list[str]]:
    """Release the throttle leases of ended plans.

    Returns the plans whose leases were released, and the plans that still have leases. Nothing is released while any of
    their reassignments is in flight, as after an abandoned plan: it would continue without a throttle.
    """
    from kafka_steward.execution.upkeep import plans_with_leases, release_orphaned_throttles

    before = plans_with_leases(opened.journal)
    in_flight = opened.cluster.reassignments() if before else {}
    if any(row.topic_partition in in_flight for plan in before for row in opened.journal.plans.rows_found(plan)):
        return [], before
    try:
        release_orphaned_throttles(opened.cluster, opened.journal, frozenset(opened.cluster.live_brokers()), call.who)
    except (ClusterError, LockLost) as error:
        print_error(str(error))
    owed = plans_with_leases(opened.journal)
    return [plan for plan in before if plan not in owed], owed


def _throttle(call: CommandContext) -> Exit:
    from kafka_steward.execution.lifecycle import change_throttle, throttle_sentence
    from kafka_steward.execution.resolve import plan_by_prefix

    reason, rate = reason_of(call), call.arguments.rate
    with call.hook.journal(call.hook.cluster_id()) as journal:
        digest = plan_by_prefix(journal, call.arguments.plan).digest
        changed = change_throttle(journal, digest, rate, call.who, reason)
    call.out.facts({**plan_facts(changed), "throttle": changed.throttle}, [throttle_sentence(changed)])
    return Exit.DONE


def _abandon(call: CommandContext) -> Exit:
    from kafka_steward.execution.lifecycle import abandon_plan
    from kafka_steward.execution.resolve import plan_by_prefix

    reason = reason_of(call)
    # Use the journal only: an unresponsive cluster is a reason to abandon a plan.
    with call.hook.journal(call.hook.cluster_id()) as journal:
        record = plan_by_prefix(journal, call.arguments.plan)
        ended = abandon_plan(journal, record.digest, call.who, reason)
    call.out.facts(plan_facts(ended), [ended.reason])
    print_error(
        "What is in flight goes on in Kafka. To give back its throttles once it has arrived:",
        f"  {call.command(f'verify {ended.digest[:12]}')}",
    )
    return Exit.DONE
