"""A plan's life after its publication: requests to cancel it, decisions of persons about it, and its completion.

Completion settles unfinished partitions, writes the final message, and releases the plan slot. A named person may
resume a plan, abandon it, or change the rate of its moves.

A request to cancel (KIP-236), or to roll back the whole plan, is stored in the record of its plan; the steps of the
`PlanRunner` execute it. The cancel of one plan therefore never waits for the cancel of another, and the request ends
with the plan in one write. `cancel.py` reads KIP-236's signal, by which other tools request a cancel.

The requests of each task of Airflow are recorded: a further try of the task repeats them, and means the same plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

from kafka_steward.assignment import Operation, counted, name_brokers, name_some, only_reorders
from kafka_steward.cluster.state import Snapshot
from kafka_steward.commands import command_line
from kafka_steward.errors import PlanError, VersionConflict
from kafka_steward.execution.demotions import forget_cancelled_plan
from kafka_steward.execution.moves.skips import delete_skips
from kafka_steward.execution.moves.states import DONE, filter_unsettled, final_status
from kafka_steward.execution.plans.rollback import find_unfinished_rollback, is_rollback_unfinished
from kafka_steward.execution.plans.slot import release_slot
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.throttles.leases import leased_rates, list_external_rates
from kafka_steward.execution.throttles.leftovers import find_external_rates
from kafka_steward.execution.throttles.rates import (
    RELEASED_LATER,
    UNKNOWN_SERVERS,
    ExternalRate,
    external_rates_message,
    ineffective_message,
    rate_text,
    stricter_rates,
)
from kafka_steward.journal.audit import Action, Actor, AuditRecord, event_number
from kafka_steward.journal.kip_documents import CancelRequest
from kafka_steward.journal.locks import Fence
from kafka_steward.journal.records import (
    TASK_REQUESTS,
    Cause,
    MoveRow,
    MoveState,
    PlanRecord,
    PlanStatus,
    TaskRequest,
)
from kafka_steward.journal.retention import delete_old_rows
from kafka_steward.journal.store import Journal
from kafka_steward.settings import Settings

_HOUR_MS = 3_600_000

_DAY_MS = 24 * _HOUR_MS

#: The number of latest plans that are searched for a digest prefix.
_PLANS = 1000

#: Why a rate is changed that is given with a cancel.
_WITH_CANCEL = "requested with the cancel"

#: Causes set by an external actor; a new plan would conflict with it.
_EXTERNAL_CAUSES = {Cause.CANCELLED_ELSEWHERE, Cause.REASSIGNED_ELSEWHERE}


@dataclass(frozen=True)
class PlanCompletion:
    """The completion of a plan. `left` counts the partitions that are not fully replicated after it.

    `live_brokers` are the brokers with which nothing more could be done: a broker that this plan heals counts as
    handled until the live brokers change. The field is empty when a new plan could do more at once.
    """

    left: int
    live_brokers: tuple[int, ...]
    sentence: str
    status: PlanStatus = PlanStatus.COMPLETED


def repeated_sentence(record: PlanRecord, conn_id: str | None) -> str:
    """Return when a heal that left partitions for lack of room, or the same as the one before, is followed by another.

    It is empty for any other heal. `conn_id` is the connection of the cluster.
    """
    if not record.repeats and not record.lacks_room:
        return ""
    why = (
        "The heal before left the same partitions for the same targets; they are"
        if record.repeats
        else "What no broker has room for is"
    )
    return (
        f"{why} planned again after a day, when a "
        f"broker joins, or when the failure is reported: {command_line(f'failed {record.failed_brokers[0]}', conn_id)}."
    )


def completion_of(
    record: PlanRecord,
    rows: Sequence[MoveRow],
    snapshot: Snapshot,
    leased_brokers: Sequence[int],
    *,
    cancelled: bool = False,
    conn_id: str | None = None,
) -> PlanCompletion:
    """Return the completion of a plan whose rows are all settled. Pure.

    `leased_brokers` are dead brokers that still have our throttle, `conn_id` is the connection of the cluster.
    """
    # A rollback that could restore nothing has failed, like one that lost each partition before its turn.
    nothing_restored = record.rolls_back is not None and not rows and record.left > 0 and not cancelled
    status = PlanStatus.FAILED if nothing_restored else final_status(rows, cancelled=cancelled)
    broken = [row for row in rows if not is_fully_replicated(row, snapshot)]
    # Moves that a person cancelled must not be planned again without being requested. A partition that was moved, and
    # has a replica on another broker that is down, is left to the heal of that broker.
    undone = any(row.state not in DONE and row.cause not in _EXTERNAL_CAUSES for row in broken)
    again = undone and not cancelled and not record.repeats
    # Another order of the same replicas leaves the partition as replicated as it was.
    left = record.left + sum(not only_reorders(row.move.before, row.move.after) for row in broken)
    sentence = _completion_message(record, rows, broken, leased_brokers, _ENDS[status])
    if undone and record.repeats:
        sentence += f" {repeated_sentence(record, conn_id)}"
    return PlanCompletion(left, () if again else record.live_brokers, sentence, status)


def end_plan(journal: Journal, record: PlanRecord, ending: PlanCompletion, *, who: Actor, fence: Fence) -> PlanRecord:
    """Record the completion and release the plan slot; return the final record.

    If the process crashes in between, the next step finishes it.
    """
    entry = AuditRecord(Action.FINISH, ending.sentence, plan=record.digest, after={"left": ending.left}, who=who)
    with journal.transaction():
        journal.audit.record(entry)
        ended = journal.plans.update(
            record,
            fence=fence,
            status=ending.status,
            reason=ending.sentence,
            attempts=0,
            stepped_ms=journal.now_ms(),
            left=ending.left,
            live_brokers=ending.live_brokers,
        )
    release_slot(journal, record.digest, who)
    return ended


def purge_old_plans(journal: Journal, settings: Settings) -> None:
    """Delete the plans that ended longer ago than `plan_retention` days, but at least one hour ago.

    Processes that still read them have that hour. Their approvals are deleted with them, and so are quarantined
    documents of the same age.
    """
    kept_ms = max(int(settings.plan_retention * _DAY_MS), _HOUR_MS)
    before_ms = journal.now_ms() - kept_ms
    delete_skips(journal, journal.plans.purge(before_ms))
    delete_old_rows(journal, before_ms)


def is_fully_replicated(row: MoveRow, snapshot: Snapshot) -> bool:
    """Return whether all replicas of the row's partition are live and not offline, or the partition is gone."""
    partition = snapshot.partitions.get(row.topic_partition)
    return partition is None or frozenset(partition.replicas) <= snapshot.live - partition.offline


#: Partitions that a message names; the others are only counted.
_NAMED = 3

_ENDS = {
    PlanStatus.COMPLETED: "is complete",
    PlanStatus.FAILED: "has failed",
    PlanStatus.CANCELLED: "is cancelled",
}


def _completion_message(
    record: PlanRecord, rows: Sequence[MoveRow], broken: Sequence[MoveRow], leased_brokers: Sequence[int], how: str
) -> str:
    """Return a message in which each partition is counted once; in brackets, how many of these are `broken`."""
    counts = Counter(row.state for row in rows)
    words = {
        MoveState.COMPLETED: f"of {counted(len(rows), 'partition')} moved",
        MoveState.SATISFIED: "no longer needed to move",
        MoveState.DROPPED: "dropped",
        MoveState.FAILED: "taken over by other reassignments",
    }
    parts = [
        f"{counts[state]} {word}{_still_clause([row for row in broken if row.state is state])}"
        for state, word in words.items()
        if rows and (counts[state] or state is MoveState.COMPLETED)
    ]
    parts = parts or ["it had nothing to move"]
    if record.left:
        what = "more partition" if rows else "partition"
        rolling_back = record.operation == Operation.ROLLBACK.value
        parts.append(f"{counted(record.left, what)} {'left alone' if rolling_back else 'left by the plan'}")
    if leased_brokers:
        parts.append(f"the throttle of {name_brokers(leased_brokers)} is {RELEASED_LATER}")
    return f"Plan {record.digest[:12]} {how}: {', '.join(parts)}."


def find_plan_by_prefix(journal: Journal, beginning: str) -> PlanRecord:
    """Return the plan whose digest is, or starts with, `beginning`. Raises PlanError for none or several."""
    known = journal.plans.get(beginning)
    if known is not None:
        return known
    matches = [record for record in journal.plans.latest(_PLANS) if record.digest.startswith(beginning)]
    if len(matches) == 1:
        return matches[0]
    what = f"{len(matches)} plans begin" if matches else "no plan begins"
    raise PlanError(
        f"In the journal of cluster {journal.cluster_id}, {what} with {beginning[:64]}; see "
        f"`{command_line('plans', journal.conn_id)}`."
    )


def _still_clause(broken: Sequence[MoveRow]) -> str:
    if not broken:
        return ""
    named = name_some([row.topic_partition for row in broken], _NAMED)
    return f" ({len(broken)} still not fully replicated: {named})"


#: The scope of a request: cancel the pending moves of a plan (KIP-236), or also roll back its completed moves.
Scope = Literal["pending", "plan"]

#: Attempts to write a request while a step changes the same record.
_TRIES = 20


def request_cancel(
    journal: Journal,
    digest: str,
    *,
    who: Actor,
    reason: str,
    scope: Scope = "pending",
    even_if_disabled: bool = False,
    number: int | None = None,
    throttle: int | None = None,
) -> PlanRecord:
    """Request that the pending moves of a plan are cancelled; return the plan's record with the request.

    The next step of the plan executes the request, whether or not the plan holds the plan slot. Scope "plan" also
    requests the rollback of the completed moves; the plan may have ended, and may have been rolled back before. A
    repeated request can extend an earlier one, but never narrows it. Moves that an abandoned plan left in flight are
    pending too.

    With `throttle`, in bytes per second into one broker, the plan and its rollback get that rate together with the
    request, or a rollback that has started before it: no move begins at the old one. A plan that has ended, and is not
    rolled back, keeps its rate.

    Each request has a row in the audit trail, also one that adds nothing. A caller that repeats one request passes its
    `number` each time (`event_number`): it then has one row.

    Raises PlanError for an unknown plan, for one that has ended if only pending moves are to be cancelled, and if
    others keep changing the record.
    """
    wanted = CancelRequest(None, scope, who.person, reason, even_if_disabled)
    words = "cancel" if scope == "pending" else "cancel, and roll back completed moves"
    attempt = event_number() if number is None else number
    entry = AuditRecord(Action.REQUEST, f"{words}: {reason}", plan=digest, attempt=attempt, who=who)
    return _write_cancel_request(journal, digest, wanted, entry, throttle)


def _write_cancel_request(
    journal: Journal, digest: str, wanted: CancelRequest, entry: AuditRecord, throttle: int | None
) -> PlanRecord:
    scope = wanted.scope
    for _ in range(_TRIES):
        record = _require_cancellable(journal, digest, scope)
        both = wanted if record.cancel is None else record.cancel.merge(wanted)
        status, earlier = _status_if_reopened(journal, record), _rollback_to_repeat(journal, record, scope)
        asked = replace(record, cancel=both, status=status, earlier_rollback=earlier)
        rate = record.throttle if throttle is None else _rate_with_cancel(journal, asked, throttle, entry.who)
        if (asked, rate) == (record, record.throttle):
            record_request(journal, entry, has_effect=False)
            return record
        with journal.transaction():
            record_request(journal, entry, has_effect=True)
            if rate != record.throttle:
                # By the number of the request: one that is repeated has one row for its rate, too.
                number = event_number("throttle", entry.attempt)
                record_request(journal, _throttle_entry(record, rate, number, entry.who), has_effect=True)
            updated = journal.plans.try_update(
                record, cancel=both, status=status, earlier_rollback=earlier, throttle=rate
            )
        if updated is not None:
            forget_cancelled_plan(journal, digest)
            return updated
    raise PlanError(
        f"Plan {digest[:12]} was changed by other processes at every attempt, and was not cancelled; try again."
    )


def _rate_with_cancel(journal: Journal, asked: PlanRecord, throttle: int, who: Actor) -> int | None:
    """Return the rate that a plan gets with the request to cancel it, `asked`; change that of a running rollback."""
    moving = _moving_plan(journal, asked)
    if moving is not None and moving.digest == asked.digest:
        return throttle
    if moving is not None:
        change_plan_throttle(journal, moving.digest, throttle, who, _WITH_CANCEL)
    return asked.throttle


def _require_cancellable(journal: Journal, digest: str, scope: str) -> PlanRecord:
    record = journal.plans.get(digest)
    if record is None:
        raise PlanError(f"Plan {digest[:12]} cannot be cancelled: there is no such plan.")
    ended = record.status.finished and _status_if_reopened(journal, record) is record.status
    if ended and scope == "pending" and record.cancel is None:
        raise PlanError(f"Plan {digest[:12]} cannot be cancelled: it has already ended: {record.reason}")
    return record


def _status_if_reopened(journal: Journal, record: PlanRecord) -> PlanStatus:
    """Return RUNNING for an abandoned plan with unsettled moves, otherwise the status of the plan.

    An abandoned plan may still have reassignments in flight. To cancel them, the plan runs again.
    """
    if record.status is PlanStatus.ABANDONED and filter_unsettled(journal.plans.rows(record.digest)):
        return PlanStatus.RUNNING
    return record.status


def _rollback_to_repeat(journal: Journal, record: PlanRecord, scope: str) -> str | None:
    """Return the rollback that a further request for a rollback repeats: one that has ended."""
    rollback = None if record.rolled_back_by is None else journal.plans.get(record.rolled_back_by)
    again = scope == "plan" and rollback is not None and rollback.status.finished
    return record.rolled_back_by if again else record.earlier_rollback


def resume_plan(journal: Journal, digest: str, who: Actor, reason: str = "a user resumed it") -> PlanRecord:
    """Resume a stuck plan and reset its attempts; a plan that is not stuck stays unchanged.

    Raises PlanError for an unknown plan or one that has ended, VersionConflict when it is changed at this moment.
    """
    record = _require_unfinished(journal, digest)
    if record.status is not PlanStatus.STUCK:
        return record
    with journal.transaction():
        journal.audit.record(AuditRecord(Action.RESUME, reason, plan=digest, attempt=event_number(), who=who))
        return journal.plans.update(record, status=PlanStatus.RUNNING, attempts=0, reason=reason)


def abandon_plan(journal: Journal, digest: str, who: Actor, reason: str) -> PlanRecord:
    """Abandon a plan: completed moves stay, moves in flight continue under Kafka, and the plan slot is released.

    A rollback that was requested before is not begun: it would leave what is in flight. The next poll of the detector
    releases its throttles. Raises the errors of `resume_plan`.
    """
    record = _require_unfinished(journal, digest)
    cancel = record.cancel and replace(record.cancel, scope="pending")
    sentence = f"Plan {digest[:12]} was abandoned: {reason}"
    # A cancel may reopen the plan, which then ends a second time.
    entry = AuditRecord(
        Action.FINISH, sentence, plan=digest, attempt=event_number(), after={"status": "abandoned"}, who=who
    )
    with journal.transaction():
        journal.audit.record(entry)
        ended = journal.plans.update(
            record, status=PlanStatus.ABANDONED, reason=sentence, live_brokers=(), cancel=cancel
        )
    release_slot(journal, digest, who)
    return ended


def change_plan_throttle(journal: Journal, digest: str, throttle: int, who: Actor, reason: str) -> PlanRecord:
    """Limit a plan's moves to `throttle` bytes per second into one broker, 0 for no throttle.

    The rate applies to this plan and to its rollback, regardless of the process that steps them and of the settings.
    The next step sets it on the brokers. Of a plan that is being rolled back, the rollback is changed and returned. If
    the plan has that rate already, the request is recorded, and nothing is changed. Raises the errors of `resume_plan`.
    """
    number = event_number()
    for _ in range(_TRIES):
        known = journal.plans.get(digest)
        record = (known and _moving_plan(journal, known)) or _require_unfinished(journal, digest)
        entry = _throttle_entry(record, throttle, number, who, reason)
        if record.throttle == throttle:
            record_request(journal, entry, has_effect=False)
            return record
        with suppress(VersionConflict), journal.transaction():  # a step may have changed it in between
            record_request(journal, entry, has_effect=True)
            return journal.plans.update(record, throttle=throttle)
    raise VersionConflict(
        f"Plan {digest[:12]} was changed by other processes at every attempt, and its throttle was not "
        "changed; try again."
    )


def _throttle_entry(
    record: PlanRecord, throttle: int | None, number: int, who: Actor, reason: str = _WITH_CANCEL
) -> AuditRecord:
    return AuditRecord(
        Action.REQUEST,
        f"throttle: {reason}",
        plan=record.digest,
        attempt=number,
        before=record.throttle,
        after={"throttle": throttle},
        who=who,
    )


def read_stricter_rates(context: ClusterContext, record: PlanRecord) -> list[ExternalRate]:
    """Return the rates of others that are stricter than the plan's for the moves that it has left.

    They are read from the cluster; one that a rate of ours hides is as the last step saw it. Raises ClusterError.
    """
    journal, known = context.journal, list_external_rates(context.journal, record)
    if not record.throttle:
        return known
    moves = [row.move for row in filter_unsettled(journal.plans.rows(record.digest))]
    rates = find_external_rates(context.cluster, journal, leaders=context.settings.throttle_leaders)
    hidden = {key for key, lease in leased_rates(journal).items() if lease.ours is not None}
    kept = (rate for rate in known if (rate.broker, rate.side) in hidden)
    return sorted({*stricter_rates(moves, rates, record.throttle), *kept})


def throttle_message(
    journal: Journal, record: PlanRecord, external: Sequence[ExternalRate], *, connection: str = UNKNOWN_SERVERS
) -> str:
    """Return the message about the rate that was requested for a plan, and where the `external` ones are stricter."""
    rate, moving = record.throttle or 0, Counter[int]()
    for row in journal.plans.rows(record.digest) if rate else ():
        moving.update(row.move.adding if row.state is MoveState.SUBMITTED else ())
    stricter = external_rates_message(external, rate, connection=connection)
    message = f"{'at most ' if stricter else ''}{rate_text(rate)} into one broker" if rate else "no throttle"
    because = f", because {stricter[0].lower()}{stricter[1:]}" if stricter else "."
    ineffective = ineffective_message(rate, max(moving.values(), default=1))
    undone = record.rolls_back
    plan = f"Plan {record.digest[:12]}" + (f", which rolls back plan {undone[:12]}" if undone else "")
    return " ".join(filter(None, [f"{plan}: {message}, from its next step on{because}", ineffective]))


def _moving_plan(journal: Journal, record: PlanRecord) -> PlanRecord | None:
    """Return the plan, or its rollback once that has started; None if the plan has ended and is not rolled back."""
    if is_rollback_unfinished(journal, record):
        return find_unfinished_rollback(journal, record) or record
    return None if record.status.finished else record


def _require_unfinished(journal: Journal, digest: str) -> PlanRecord:
    record = journal.plans.get(digest)
    if record is None:
        raise PlanError(f"There is no plan {digest[:12]} in the journal of this cluster.")
    if record.status.finished:
        raise PlanError(f"Plan {digest[:12]} has already ended: {record.reason}")
    return record


def record_request(journal: Journal, entry: AuditRecord, *, has_effect: bool) -> None:
    """Record a request, whose `attempt` is the number of an event: one row of the audit trail, completed at once.

    A further try of an Airflow task repeats the request of the try before it, and a run that no person triggered
    the request whose event started it. Without an effect, that is not recorded again.
    """
    # Only a task of a run is tried again, and would then repeat its request.
    if entry.who.run_id is None:
        journal.audit.record(entry)
        return
    rows, key = journal.rows(TASK_REQUESTS), _task_key(entry.who)
    number = event_number(entry.action.value, entry.plan, entry.who.person, entry.reason, entry.after)
    with journal.transaction():
        row = rows.get(key)
        numbers = () if row is None else row.value.numbers
        if has_effect or not (number in numbers or (entry.who.person is None and entry.action is Action.REQUEST)):
            journal.audit.record(entry)
        if number not in numbers or (row is not None and row.value.plan != entry.plan):
            rows.put(key, TaskRequest(entry.plan, tuple(dict.fromkeys((*numbers, number)))), row)


def last_requested_plan(journal: Journal, who: Actor) -> str | None:
    """Return the digest of the plan of the task's last request in this run; None without one."""
    row = None if who.run_id is None else journal.rows(TASK_REQUESTS).get(_task_key(who))
    return None if row is None else row.value.plan or None


def _task_key(who: Actor) -> str:
    return f"{who.dag_id}/{who.run_id}/{who.task_id}"
