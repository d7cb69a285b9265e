"""Cancellation of everything pending. Only this module reads and writes KIP-236's cancel signal.

The signal is `/admin/cancel_reassignment_in_progress`. An empty node, the KIP's own form, requests the cancel of
everything: each plan that has not ended, the moves that abandoned plans left in flight, and external reassignments. The
watch and the steps of all plans read the node. The first process that finds it writes the request into the record of
each plan and cancels the external reassignments. It deletes the node only after that.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

from kafka_steward.errors import DocumentError, PlanError, RequestError
from kafka_steward.execution.moves.external import (
    ExternalCancel,
    ExternalCancelState,
    cancel_external_reassignments,
    find_external_reassignments,
)
from kafka_steward.execution.plans.lifecycle import Scope, find_plan_by_prefix, request_cancel
from kafka_steward.execution.plans.rollback import nothing_to_revert_reason
from kafka_steward.execution.ports import ClusterContext, ClusterPort
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action, Actor, AuditRecord, Outcome, event_number
from kafka_steward.journal.kip_documents import CancelRequest
from kafka_steward.journal.listing import delete_or_quarantine
from kafka_steward.journal.locks import Fence
from kafka_steward.journal.mailbox import Node, put_one, read_one
from kafka_steward.journal.records import ACCEPTED_DOCUMENTS, AcceptedDocument, PlanStatus
from kafka_steward.journal.store import Journal
from kafka_steward.settings import Settings

#: Milliseconds for which the signal is kept while the cluster does not show the end of a cancel.
_PENDING_MS = 30_000


@dataclass(frozen=True)
class CancelOutcome:
    """The result of a cancel: digests of the plans that are now being cancelled, external reassignments, messages."""

    plans: tuple[str, ...] = ()
    external: tuple[ExternalCancel, ...] = ()
    sentences: tuple[str, ...] = ()

    @property
    def is_pending(self) -> bool:
        """Return True while Kafka does not show the end of a cancel yet."""
        return any(cancel.state is ExternalCancelState.PENDING for cancel in self.external)


def send_cancel_signal(journal: Journal, request: CancelRequest, who: Actor) -> str:
    """Create the cancel signal; return the message. The next reader executes it: a watch, or a step of any plan.

    Raises RequestError while an earlier signal has not been executed.
    """
    if put_one(journal.mailbox, paths.CANCEL_IN_PROGRESS, request.to_json()) is None:
        raise RequestError(
            f"{paths.CANCEL_IN_PROGRESS} exists: an earlier signal has not been executed yet; wait until a watch or a "
            "running plan has deleted it."
        )
    what = f"plan {request.plan[:12]}" if request.plan else "everything that is pending"
    also = ", and the completed moves are rolled back" if request.scope == "plan" else ""
    sentence = f"The cancel of {what} is signalled{also}: {_cancel_reason(request)}."
    entry = AuditRecord(Action.REQUEST, sentence, plan=request.plan or "", attempt=event_number(), who=who)
    journal.audit.record(entry)
    return sentence


def consume_cancel_signal(
    cluster: ClusterPort, journal: Journal, who: Actor, *, fence: Fence | None = None
) -> CancelOutcome | None:
    """Execute the cancel signal and delete it; return None if there is none, or if it is not fully executed yet.

    An unreadable signal is treated like the KIP's own, which is empty: its author wants a cancel. `fence` is the
    caller's step lock; without it, the lock is acquired if an external reassignment is to be cancelled.

    Raises ClusterError, JournalError, LockLost. The plans have the request by then, and the signal stays for the next
    reader.
    """
    node = read_one(journal.mailbox, paths.CANCEL_IN_PROGRESS)
    if node is None:
        return None
    try:
        request = CancelRequest.from_node(node)
    except DocumentError:
        request = CancelRequest()
    request = replace(request, reason=request.reason or f"{paths.CANCEL_IN_PROGRESS} was created")
    number = event_number(node.path, node.modified_id)  # it is read until the cluster shows the end of the cancels
    if request.plan:
        outcome = _request_named_cancel(cluster, journal, request, who, number)
    else:
        outcome = cancel_everything(cluster, journal, request, who, fence=fence, number=number)
    refused = request.plan and not outcome.plans
    # Until Kafka shows the end, the node stays: if this process dies, the next reader goes on.
    is_pending = outcome.is_pending and journal.now_ms() - node.modified_ms < _PENDING_MS
    _record_signal(journal, node, outcome.plans, executed=not is_pending)
    if is_pending:
        return None
    sentences = outcome.sentences or (f"{paths.CANCEL_IN_PROGRESS} was created, and there was nothing to cancel.",)
    entry = AuditRecord(
        Action.REQUEST, " ".join(sentences)[:2000], after="cancel signal", who=_requesting_actor(request, who)
    )
    journal.audit.record(entry, Outcome.REFUSED if refused else Outcome.DONE)
    # A node that was changed since it was read is a new request: it stays for the next reader.
    delete_or_quarantine(journal, node, CancelRequest.from_node)
    return replace(outcome, sentences=sentences)


def _record_signal(journal: Journal, node: Node, plans: Sequence[str], *, executed: bool) -> None:
    """Record the signal, with the plans whose cancel it has requested so far.

    One that cancels no plan is no event: a run that it started would have nothing to cancel.
    """
    name = f"{node.path}@{node.modified_id}"
    row = journal.rows(ACCEPTED_DOCUMENTS).get("cancel")
    earlier = row.value.plans if row is not None and row.value.node == name else ()
    requested = tuple(dict.fromkeys((*earlier, *plans)))
    if requested:
        record_accepted(journal, "cancel", AcceptedDocument(name, requested, executed))


def record_accepted(journal: Journal, event: str, document: AcceptedDocument) -> None:
    """Record that a document is executed, which is an "event" for the watches."""
    rows = journal.rows(ACCEPTED_DOCUMENTS)
    row = rows.get(event)
    if row is None or row.value != document:
        rows.put(event, document, row)


def cancel_everything(
    cluster: ClusterPort,
    journal: Journal,
    request: CancelRequest,
    who: Actor,
    *,
    fence: Fence | None = None,
    number: int | None = None,
    throttle: int | None = None,
) -> CancelOutcome:
    """Request the cancel of each pending plan, and cancel external reassignments; the steps of the plans do the rest.

    `who` executes the request, which `request.person` made. A call that is repeated with the same `number` requests
    nothing twice. `throttle` is as in `request_cancel`. Raises the errors of `consume_cancel_signal`.
    """
    plans = pending_plans(journal)
    outcome = _request_cancels(journal, plans, request, who, number=number, throttle=throttle)
    external = find_external_reassignments(cluster, journal, plans)
    if not external:
        return outcome
    with journal.step_lock() if fence is None else nullcontext(fence) as held:
        cancelled = cancel_external_reassignments(
            cluster, journal, external, reason=f"external reassignment: {_cancel_reason(request)}", who=who, fence=held
        )
    messages = (*outcome.sentences, *(cancel.sentence for cancel in cancelled))
    return CancelOutcome(outcome.plans, tuple(cancelled), messages)


def pending_plans(journal: Journal) -> list[str]:
    """Return the digests of the plans that have not ended, and of the abandoned plans with moves in flight."""
    unfinished = [record.digest for record in journal.plans.unfinished()]
    in_flight = [digest for digest in journal.plans.in_flight() if digest not in unfinished]
    records = (journal.plans.get(digest) for digest in in_flight)
    abandoned = (record for record in records if record is not None and record.status is PlanStatus.ABANDONED)
    return unfinished + [record.digest for record in abandoned]


def _request_cancels(
    journal: Journal, plans: Sequence[str], request: CancelRequest, who: Actor, **given: int | None
) -> CancelOutcome:
    refusals = {digest: _try_request_cancel(journal, digest, request, who, **given) for digest in plans}
    reason = _cancel_reason(request)
    messages = [refusal or f"Plan {digest[:12]} is cancelled: {reason}." for digest, refusal in refusals.items()]
    return CancelOutcome(tuple(digest for digest in plans if not refusals[digest]), (), tuple(messages))


def _request_named_cancel(
    cluster: ClusterPort, journal: Journal, request: CancelRequest, who: Actor, number: int
) -> CancelOutcome:
    """Request the cancel of the plan that the signal names, by its digest or by a prefix of it.

    Of a plan that has ended, and of which nothing is to be reverted, nothing is requested.
    """
    try:
        record = find_plan_by_prefix(journal, request.plan or "")
    except PlanError as error:
        return CancelOutcome(sentences=(f"{paths.CANCEL_IN_PROGRESS} was refused: {error}",))
    context = ClusterContext(cluster, journal, Settings(), who)  # no setting decides what is to be reverted
    if request.scope == "plan" and (nothing := nothing_to_revert_reason(context, record)):
        return CancelOutcome(sentences=(f"Plan {record.digest[:12]} was {nothing}.",))
    return _request_cancels(journal, [record.digest], request, who, number=number)


def _try_request_cancel(journal: Journal, digest: str, request: CancelRequest, who: Actor, **given: int | None) -> str:
    """Request the cancel of one plan; return why it cannot be cancelled, or an empty string."""
    scope: Scope = "plan" if request.scope == "plan" else "pending"
    try:
        request_cancel(
            journal,
            digest,
            who=_requesting_actor(request, who),
            reason=_cancel_reason(request),
            scope=scope,
            even_if_disabled=request.even_if_disabled,
            **given,
        )
    except PlanError as error:
        return str(error)
    return ""


def _cancel_reason(request: CancelRequest) -> str:
    return request.reason or "a user requested it"


def _requesting_actor(request: CancelRequest, who: Actor) -> Actor:
    return Actor(dag_id=who.dag_id, task_id=who.task_id, person=request.person)
