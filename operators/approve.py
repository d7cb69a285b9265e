"""A person approves exactly one plan, in the Airflow UI; then the journal says who did, and when."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.providers.standard.operators.hitl import ApprovalOperator, HITLOperator
from airflow.sdk import Param
from airflow.sdk.exceptions import AirflowSkipException, TaskAwaitingInput

from kafka_steward.hooks.context import is_scheduled, who_of
from kafka_steward.operators.base import StewardOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

__all__ = ["ApprovePlanOperator", "RecordApprovalOperator"]


class ApprovePlanOperator(ApprovalOperator):
    """Shows a plan (proof, moves by broker, predicted duration, what it breaks), and waits for a yes or a no.

    `plan` and `snapshot` are what the tasks that made them return. The answer is for the digest that was shown,
    whatever becomes of those tasks meanwhile. A request that nobody answers within `response_timeout` is rejected. A
    scheduled run's plan that moves at most `approve_above` bytes goes on without a person; None asks always.

    Nothing is skipped here: RecordApprovalOperator comes next, and writes the answer down. Returns `{"digest",
    "approved", "asked", "person", "reason", "answered_ms"}`.

    >>> ApprovePlanOperator(task_id="approve", plan={"uri": "/plan"}, snapshot={"uri": "/snapshot"}).defaults
    ['Reject']
    """

    template_fields: Sequence[str] = (*HITLOperator.template_fields, "plan", "snapshot", "approve_above")

    def __init__(
        self,
        *,
        plan: Mapping[str, Any] | Any,
        snapshot: Mapping[str, Any] | Any,
        approve_above: int | Any | None = None,
        response_timeout: timedelta = timedelta(days=1),
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("subject", "Approve the plan?")
        kwargs.setdefault("params", {"reason": Param("", "Why, for the audit trail.", type="string", maxLength=500)})
        super().__init__(**{"defaults": self.REJECT, "response_timeout": response_timeout, **kwargs})
        self.plan = plan
        self.snapshot = snapshot
        self.approve_above = approve_above

    def execute(self, context: Context) -> Any:
        """Show the plan and wait, or go on where no person is needed."""
        from kafka_steward.execution.approving import goes_without
        from kafka_steward.execution.decisions.briefing import briefing, in_bytes
        from kafka_steward.planning.files.formats import read_plan, read_snapshot

        plan = read_plan(self.plan["uri"])
        why = goes_without(plan.proof, scheduled=is_scheduled(context), approve_above=self.approve_above)
        if why:
            self.log.info("No person is asked: %s.", why)
            return _answer(plan.digest, approved=True, asked=False, reason=why)
        moved, size = plan.proof["replicas_moved"], in_bytes(plan.proof["bytes_moved"])
        self.subject = f"Move {moved} replicas, {size} ({plan.proof['operation']}, plan {plan.digest[:12]})?"
        self.body = briefing(plan, read_snapshot(self.snapshot["uri"]))
        self.log.info("%s\n%s", self.subject, self.body)
        return self._ask(context, plan.digest)

    def execute_complete(self, context: Context, event: dict[str, Any], digest: str = "") -> dict[str, Any]:
        """Read the answer. Not the base's way: it would skip what is to write the answer down."""
        answer = HITLOperator.execute_complete(self, context, event)
        person = answer["responded_by_user"] or {}
        approved = answer["chosen_options"] == [self.APPROVE]
        name = person.get("name") or person.get("id")
        reason = str((answer["params_input"] or {}).get("reason") or "")
        if not approved and name is None:
            reason = f"nobody answered within {self.response_timeout}"
        self.log.info("%s by %s%s", "Approved" if approved else "Rejected", name or "nobody", reason and f": {reason}")
        answered_ms = _ms(answer["responded_at"])
        return _answer(digest, approved=approved, asked=True, person=name, reason=reason, answered_ms=answered_ms)

    def _ask(self, context: Context, digest: str) -> NoReturn:
        try:
            super().execute(context)
        except TaskAwaitingInput as parked:
            parked.kwargs = {**(parked.kwargs or {}), "digest": digest}
            raise
        raise AssertionError("Airflow's own operator waits by raising.")


class RecordApprovalOperator(StewardOperator):
    """Writes who approved which plan, and when, into the journal; what was rejected is skipped from here on.

    `answer` is what ApprovePlanOperator returns. SubmitReassignmentOperator(require_approval=True) carries out only
    plans whose approval was written down so. Returns the answer.

    >>> RecordApprovalOperator(task_id="record_approval", answer={"digest": "3f2a", "approved": True})
    <Task(RecordApprovalOperator): record_approval>
    """

    template_fields: Sequence[str] = (*StewardOperator.template_fields, "answer")

    def __init__(self, *, answer: Mapping[str, Any] | Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.answer = answer

    def execute(self, context: Context) -> dict[str, Any]:
        """Write it down; skip what follows unless it is a yes."""
        from kafka_steward.execution.approving import approve, reject
        from kafka_steward.journal.approvals import Approval

        answer = json.loads(json.dumps(self.answer))
        digest, person, reason = answer["digest"], answer.get("person"), answer.get("reason") or ""
        with self.open(context) as opened:
            if answer["approved"]:
                approval = Approval(digest, person, reason or None, answer.get("answered_ms"))
                approve(opened.journal, approval, who_of(context))
                self.log.info("Plan %s was approved by %s.", digest[:12], person or "a rule")
                return dict(answer)
            by = f"by {person}" if person else "as nobody answered"
            reject(opened.journal, digest, who_of(context), person=person, reason=reason or by)
        context["ti"].xcom_push("return_value", answer)
        raise AirflowSkipException(f"Plan {digest[:12]} was rejected {by}; nothing is submitted.")


def _answer(
    digest: str,
    *,
    approved: bool,
    asked: bool,
    person: str | None = None,
    reason: str = "",
    answered_ms: int | None = None,
) -> dict[str, Any]:
    told = {"person": person, "reason": reason, "answered_ms": answered_ms}
    return {"digest": digest, "approved": approved, "asked": asked, **told}


def _ms(when: datetime | None) -> int | None:
    return None if when is None else int(when.timestamp() * 1000)
