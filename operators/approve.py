"""Approval of exactly one plan in the Airflow UI; the answer is recorded in the journal with its author and time."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, TypeVar

from airflow.providers.standard.operators.hitl import ApprovalOperator, HITLOperator
from airflow.sdk import Param
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from kafka_steward.airflow_versions import TaskAwaitingInput
from kafka_steward.errors import SettingError, StewardError
from kafka_steward.escaping import printable, printable_lines
from kafka_steward.hooks.context import actor_of, hook_of, is_scheduled, requester_of
from kafka_steward.operators.base import (
    Notifiers,
    fail_without_retry,
    notify,
    open_session,
    to_notifier_list,
    tools_connection,
)
from kafka_steward.operators.links import LinkedToPlan
from kafka_steward.operators.plan_folders import read_plan_page, read_task_plan, read_task_snapshot

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.execution_time.hitl import HITLUser

    from kafka_steward.execution.throttles.rates import ExternalRate
    from kafka_steward.hooks.session import ClusterSession
    from kafka_steward.journal.records import Approval
    from kafka_steward.planning.files.formats import PlanFolder, SnapshotFolder

__all__ = ["ApprovePlanOperator", "Approvers"]

T = TypeVar("T")

#: Ids of Airflow's users, or `{"id", "name"}` of each; None allows every user who may answer for the DAG.
Approvers: TypeAlias = "Collection[str | Mapping[str, str]] | None"

#: Seconds between retries while the journal is unreachable. A failed task would request approval again.
_PAUSES_S = (5.0, 10.0, 20.0, 40.0, 80.0, 160.0)


class ApprovePlanOperator(LinkedToPlan, ApprovalOperator):
    """Shows a plan (proof, moves by broker, predicted duration, constraint regressions) and records the answer.

    `plan` and `snapshot` are the results of the tasks that made them. The plan is checked against the snapshot first.
    The answer applies to the digest that was shown, even if those tasks run again meanwhile. It is written from Airflow
    into the journal here and is never read from an XCom. A request without an answer within `response_timeout` is
    rejected.

    A scheduled run's plan that moves at most `approve_above` bytes proceeds without a request; None always requests
    approval. Only `approvers` may answer: ids of Airflow's users, or `{"id", "name"}`. With None, every user who may
    answer for the DAG may approve. Without `self_approval`, the user who triggered the run may reject its plan but not
    approve it; the request then stays open for other users.

    `notifiers` are called when approval is requested, as those of the other operators, with the event `approval_asked`:
    it has the `link` to the answer, and `asked_by`, the user who started the run.

    If the plan is rejected, the task and its downstream tasks are skipped.
    SubmitReassignmentOperator(require_approval=True) executes only plans whose approval is recorded here.
    Returns `{"digest", "approved", "asked", "person", "reason", "answered_ms"}`.

    >>> ApprovePlanOperator(task_id="approve", plan={"uri": "/plan"}, snapshot={"uri": "/snapshot"}).defaults
    ['Reject']
    """

    template_fields: Sequence[str] = (*HITLOperator.template_fields, "conn_id", "settings", "plan", "snapshot")

    def __init__(
        self,
        *,
        plan: Mapping[str, Any] | Any,
        snapshot: Mapping[str, Any] | Any,
        conn_id: str = "kafka_steward_default",
        settings: Mapping[str, Any] | None = None,
        approve_above: int | None = None,
        approvers: Approvers = None,
        self_approval: bool = True,
        response_timeout: timedelta = timedelta(days=1),
        notifiers: Notifiers = None,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("subject", "Approve the plan?")
        kwargs.setdefault(
            "params", {"reason": Param("", "The reason, for the audit trail.", type="string", maxLength=500)}
        )
        ours = {
            "defaults": self.REJECT,
            "response_timeout": response_timeout,
            "assigned_users": parse_approvers(approvers),
        }
        super().__init__(**{**ours, **kwargs})
        # Not HITLOperator's, which it calls without the facts of the plan, and lets fail the task.
        self.on_approval_asked = to_notifier_list(notifiers)
        self.plan = plan
        self.snapshot = snapshot
        self.conn_id = conn_id
        self.settings = dict(settings or {})
        self.approve_above = validate_approve_above(approve_above)
        self.self_approval = self_approval

    def execute(self, context: Context) -> Any:
        """Show the plan and wait for an answer; return at once if it is already approved or needs no approval."""
        from kafka_steward.execution.plans.approval import approval_exemption
        from kafka_steward.execution.plans.progress_rows import report_request
        from kafka_steward.execution.plans.publishing import refuse_invalid_plan
        from kafka_steward.execution.throttles.leftovers import read_external_rates
        from kafka_steward.journal.records import Approval

        with fail_without_retry():
            plan, snapshot = read_task_plan(self.plan), read_task_snapshot(self.snapshot)
            refuse_invalid_plan(plan, snapshot)
        self.linked_plan = plan.digest
        why = approval_exemption(plan.moves, unattended=is_scheduled(context), approve_above=self.approve_above)
        with open_session(hook_of(self, context)) as opened:
            approval = opened.journal.plans.approval(plan.digest)
            if approval is None and not why:
                report_request(opened.context(actor_of(context)), plan, snapshot, expires_in=self.response_timeout)
                throttled = opened.settings.throttle_leaders
                rates = read_external_rates(opened.cluster, opened.journal, leaders=throttled)
        if approval is None and not why:
            self._request_approval(context, plan, snapshot, rates)
        if approval is None:
            self.log.info("No approval is requested: %s.", printable(why))
            approval = self._record_approval(context, Approval(plan.digest, None, why))
        return _answer_result(approval, approved=True, asked=approval.person is not None)

    def execute_complete(self, context: Context, event: dict[str, Any], digest: str = "") -> Any:
        """Record the answer. Request approval again if the user may not approve; skip after a rejection."""
        from kafka_steward.journal.records import Approval

        self.linked_plan = digest
        # Not ApprovalOperator's method, which would skip before the answer is recorded.
        answer = HITLOperator.execute_complete(self, context, event)
        approved = answer["chosen_options"] == [self.APPROVE]
        person = answer["responded_by_user"] or {}
        name = person.get("name") or person.get("id")
        reason = str((answer["params_input"] or {}).get("reason") or "")
        if approved and name is not None and name == self._excluded_user(context):
            self.log.warning(
                "%s started this run and may not approve its plan; the other approvers are asked.", printable(name)
            )
            return self.execute(context)
        if not approved and name is None:
            reason = f"nobody answered within {self.response_timeout}"
        message = f"{'Approved' if approved else 'Rejected'} by {name or 'nobody'}{reason and f': {reason}'}"
        self.log.info("%s", printable(message))
        at = answer["responded_at"]
        given = Approval(digest, name, reason or None, None if at is None else int(at.timestamp() * 1000))
        if not approved:
            self._record_rejection(context, given)
        return _answer_result(self._record_approval(context, given), approved=True, asked=True)

    def _request_approval(
        self, context: Context, plan: PlanFolder, snapshot: SnapshotFolder, rates: Sequence[ExternalRate]
    ) -> NoReturn:
        from kafka_steward.execution.plans.summary import is_same_page, make_approval_request

        with fail_without_retry():
            read_plan_page(self.plan)
        # Not the stored page: whoever may write XComs and the workspace could replace it together with its digest.
        by, tools = requester_of(context), tools_connection(hook_of(self, context))
        request = make_approval_request(
            plan, snapshot, connection=self.conn_id, requested_by=by, rates=rates, tools=tools
        )
        self.subject, self.body = request.subject, request.body
        self.assigned_users = self._remaining_approvers(context)
        self.log.info("%s\n%s", printable(self.subject), printable_lines(self.body))
        # A cleared task keeps the page of its first request, which may show another plan.
        subject, page, approvers = request_input(self, context)
        same = (subject, approvers) == (self.subject, self.assigned_users or [])
        if not (same and is_same_page(page or "", request.body)):
            raise AirflowFailException(
                f"Plan {plan.digest[:12]} cannot be approved in this run: Airflow still shows the request from before "
                f"{self.task_id} was cleared, and would accept an answer to it; trigger a new run."
            )
        notify(self.on_approval_asked, context, "approval_asked", self._approval_facts(context, plan))
        try:
            super().execute(context)
        except TaskAwaitingInput as parked:
            parked.kwargs = {**(parked.kwargs or {}), "digest": plan.digest}
            raise
        raise AssertionError("Airflow's own operator waits by raising.")

    def _approval_facts(self, context: Context, plan: PlanFolder) -> dict[str, Any]:
        facts = {"sentence": self.subject, "digest": plan.digest, "replicas_moved": plan.proof["replicas_moved"]}
        with suppress(ValueError):  # Airflow does not know its own address
            facts["link"] = self.generate_link_to_ui(task_instance=context["ti"])
        return {**facts, "asked_by": getattr(context["dag_run"], "triggering_user_name", None)}

    def _excluded_user(self, context: Context) -> str | None:
        """Return the name of the user who may not approve: without `self_approval`, the one who started the run."""
        return None if self.self_approval else getattr(context["dag_run"], "triggering_user_name", None)

    def _remaining_approvers(self, context: Context) -> list[Any] | None:
        """Return the approvers without the user who may not approve. Fails without a retry when none is left."""
        excluded = self._excluded_user(context)
        left = [user for user in self.assigned_users or () if excluded not in (user["id"], user["name"])]
        if self.assigned_users and not left:
            raise AirflowFailException(
                f"Nobody may approve the plan: {printable(str(excluded))} started this run, and is its only "
                "approver; let another user start it, or add another approver."
            )
        return left or None

    def _record_approval(self, context: Context, yes: Approval) -> Approval:
        from kafka_steward.execution.plans.approval import approve_plan

        return self._write_with_retry(context, lambda opened: approve_plan(opened.journal, yes, actor_of(context)))

    def _record_rejection(self, context: Context, no: Approval) -> NoReturn:
        from kafka_steward.execution.plans.approval import reject_plan

        by, who = f"by {no.person}" if no.person else "as nobody answered", actor_of(context)
        self._write_with_retry(
            context, lambda opened: reject_plan(opened.journal, no.plan, who, person=no.person, reason=no.reason or by)
        )
        context["ti"].xcom_push("return_value", _answer_result(no, approved=False, asked=True))
        sentence = f"Plan {no.plan[:12]} was rejected {by}; nothing is submitted."
        self.log.info("%s", printable(sentence))
        raise AirflowSkipException(printable(sentence))

    def _write_with_retry(self, context: Context, write: Callable[[ClusterSession], T]) -> T:
        """Write into the journal, and retry while it is unreachable. Raises the error of the last attempt."""
        from kafka_steward.execution.plans.drive import Patience, call_with_patience

        def attempt() -> T:
            with open_session(hook_of(self, context)) as opened:
                return write(opened)

        def warn(error: StewardError, failures: int) -> None:
            if error.retriable and failures <= len(_PAUSES_S):
                self.log.warning(
                    "The answer could not be recorded yet; it is retried in %d s: %s",
                    _PAUSES_S[failures - 1],
                    printable(str(error)),
                )

        return call_with_patience(attempt, time.sleep, Patience(_PAUSES_S, warn))


def _answer_result(given: Approval, *, approved: bool, asked: bool) -> dict[str, Any]:
    facts = {"person": given.person, "reason": given.reason or "", "answered_ms": given.answered_ms}
    return {"digest": given.plan, "approved": approved, "asked": asked, **facts}


def parse_approvers(given: Approvers) -> list[HITLUser] | None:
    """Return the approvers in Airflow's format, without duplicates. Raises SettingError for an empty or invalid value.

    The id format depends on Airflow's auth manager: the name with SimpleAuthManager, a number with the FAB provider's.
    """
    if given is None:
        return None
    if isinstance(given, str | Mapping) or not given:
        raise SettingError(
            f"approvers is {given!r}; it takes a list of the ids of Airflow's users, or None for no limit."
        )
    users = [_parse_user(one) for one in given]
    return [user for at, user in enumerate(users) if user not in users[:at]]


def _parse_user(given: Any) -> HITLUser:
    fields = {"id": given, "name": given} if isinstance(given, str) else given
    if not isinstance(fields, Mapping) or not all(isinstance(fields.get(name), str) for name in ("id", "name")):
        raise SettingError(f"The approver {given!r} is neither the id of a user nor {{'id': ..., 'name': ...}}.")
    return {"id": fields["id"], "name": fields["name"]}


def validate_approve_above(approve_above: Any) -> int | None:
    """Return `approve_above` unchanged. Raises SettingError unless it is a number of bytes or None.

    Only a literal of the DAG author is accepted: no field of a run's form and no other result of a run can replace it.
    """
    if approve_above is None or (type(approve_above) is int and approve_above >= 0):
        return approve_above
    raise SettingError(f"approve_above is {approve_above!r}; it takes a whole number of bytes, or None to ask always.")


def request_input(operator: HITLOperator, context: Context) -> tuple[str, str | None, list[HITLUser]]:
    """Request input as HITLOperator does; return the subject, body and approvers that Airflow then shows.

    Airflow keeps one request for each task of a run, and shows the first one even if a later try requests something
    else.
    """
    # HITLOperator sends the same message, but discards the response.
    from airflow.sdk.api.datamodels._generated import HITLUser as User
    from airflow.sdk.execution_time.comms import CreateHITLDetailPayload
    from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS

    shown: Any = SUPERVISOR_COMMS.send(
        msg=CreateHITLDetailPayload(
            ti_id=context["task_instance"].id,
            options=operator.options,
            subject=operator.subject,
            body=operator.body,
            defaults=operator.defaults,
            multiple=operator.multiple,
            params=operator.serialized_params,
            assigned_users=[User(**user) for user in operator.assigned_users or ()],
        )
    )
    return shown.subject, shown.body, [{"id": user.id, "name": user.name} for user in shown.assigned_users or ()]
