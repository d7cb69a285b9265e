"""What a DAG or its form changes about a plan under way: its throttle, and its cancel (KIP-236)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from kafka_steward.errors import StewardError
from kafka_steward.escaping import printable
from kafka_steward.hooks.context import actor_of, hook_of, is_scheduled
from kafka_steward.operators.base import (
    Notifiers,
    StewardOperator,
    fail_without_retry,
    notify,
    to_notifier_list,
    tools_connection,
)
from kafka_steward.operators.execution import PlanExecutionOperator, fail_task
from kafka_steward.operators.links import LinkedToPlan
from kafka_steward.value_parsing import parse_whole_number, require_choice, shorten_value

if TYPE_CHECKING:
    from airflow.sdk import Context

    from kafka_steward.execution.plans.lifecycle import Scope
    from kafka_steward.hooks.session import ClusterSession

__all__ = ["CancelReassignmentOperator", "ChangeThrottleOperator", "RollbackReassignmentOperator"]

#: The largest rate that Kafka's settings hold.
_MOST = 2**63 - 1

_WAITS = "The rollback waits until they are enabled; a run with even_if_disabled does not."


class ChangeThrottleOperator(LinkedToPlan, StewardOperator):
    """Limits the moves of a plan that has not ended to `rate` bytes per second into one broker; 0: no throttle.

    `plan` is a plan's digest or a prefix of it; without one, the plan that holds the plan slot is meant. The request is
    written into the journal, which is all that is needed: Kafka is asked only which rates of others are stricter, and
    need not answer. The plan's next step sets the rate on all brokers that its moves copy to. The rate applies to this
    plan until it ends, and overrides the settings. Fails without a retry for a plan that is unknown or has ended.
    Returns `{"plan", "throttle", "sentence"}`.

    >>> ChangeThrottleOperator(task_id="throttle", plan="3f2a91c0", rate=200_000_000, reason="the night is quiet")
    <Task(ChangeThrottleOperator): throttle>
    """

    template_fields: Sequence[str] = (*StewardOperator.template_fields, "plan", "rate", "reason")

    def __init__(
        self,
        *,
        rate: int | str | Any,
        plan: str | Any | None = None,
        reason: str | Any = "",
        **kwargs: Any,
    ) -> None:
        super().__init__(**{"multiple_outputs": True, **kwargs})
        self.rate = rate
        self.plan = plan
        self.reason = reason

    def execute(self, context: Context) -> dict[str, Any]:
        """Write the request into the journal."""
        from kafka_steward.execution.plans.lifecycle import change_plan_throttle, read_stricter_rates, throttle_message
        from kafka_steward.execution.plans.resolution import resolve_plan
        from kafka_steward.execution.throttles.leases import list_external_rates

        rate, who = self._parse_rate(), actor_of(context)
        reason = str(self.reason or "").strip() or "no reason was given"
        with fail_without_retry(), self.open_journal(context) as journal:
            digest = resolve_plan(journal, self.plan or None, "throttle", who=who).digest
            self.linked_plan = digest
            changed = change_plan_throttle(journal, digest, rate, who, reason)
            hook, external = hook_of(self, context), list_external_rates(journal, changed)
            with suppress(StewardError), hook.open() as opened:  # the cluster need not respond
                external = read_stricter_rates(opened.context(who), changed)
            sentence = throttle_message(journal, changed, external, connection=tools_connection(hook))
        self.log.info("%s", printable(sentence))
        return {"plan": digest, "throttle": rate, "sentence": sentence}

    def _parse_rate(self) -> int:
        try:
            rate = parse_whole_number(self.rate)
        except ValueError:
            rate = -1
        if not 0 <= rate <= _MOST:
            sentence = (
                f"The rate is {shorten_value(self.rate)}; it takes bytes per second into one broker, such as 50000000, "
                "or 0 for no throttle."
            )
            raise AirflowFailException(printable(sentence))
        return rate


class CancelReassignmentOperator(PlanExecutionOperator):
    """Cancels the pending reassignments of a plan (KIP-236); with `scope="plan"`, also reverts its completed moves.

    `plan` is a plan's digest or a prefix of it; without one, the plan that holds the plan slot is cancelled. In a run
    that the asset of the cancel signal started, it is the plan whose cancel the signal requested last: the watch may
    have completed that cancel, and the operator verifies it. The request is written into the journal first, so that
    after a crash the next try or another process resumes it. The plan's own task ends when its plan is cancelled. The
    operator works while reassignments are disabled, except for a rollback, which then waits until they are enabled, or
    continues with `even_if_disabled`. A rollback waits until no other plan holds the plan slot, and reports that.

    At the end the operator verifies that the former state is restored: replica order, leaders, no log left on a live
    broker to which the plan had added a replica, no throttle left except on a dead broker. It fails, and may be
    retried, if that is not the case within `verify_timeout`. Returns the result of that check: `{"plan", "rollback",
    "status", "sentence", "partitions", "as_before", "returned", "left_alone", "skipped", "changed_since", ...}`.
    `returned` lists the partitions that were moved back, each with its `target` and its `originals`; `skipped` lists
    the partitions that a rule of KIP-236 forbids to cancel, each with its rule; `changed_since` lists those that others
    changed after they had gone back. `on_cancelled` is notified of it, with the event `cancelled`, or `rolled_back` if
    completed moves were reverted too.

    >>> CancelReassignmentOperator(task_id="cancel", plan="3f2a91c0", reason="wrong racks")
    <Task(CancelReassignmentOperator): cancel>
    """

    template_fields: Sequence[str] = (
        *PlanExecutionOperator.template_fields,
        "plan",
        "scope",
        "reason",
        "even_if_disabled",
    )

    def __init__(
        self,
        *,
        plan: str | Any | None = None,
        scope: str | Any = "pending",
        reason: str | Any = "",
        even_if_disabled: bool | Any = False,
        verify_timeout: timedelta = timedelta(minutes=5),
        on_cancelled: Notifiers = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**{"multiple_outputs": True, **kwargs})
        self.plan = plan
        self.scope = scope
        self.reason = reason
        self.even_if_disabled = even_if_disabled
        self.verify_timeout = verify_timeout
        self.on_cancelled = to_notifier_list(on_cancelled)

    def execute(self, context: Context) -> dict[str, Any]:
        """Request the cancel, then run it to its end, or defer to the trigger that does."""
        from kafka_steward.execution.announcements import disabled_reason
        from kafka_steward.execution.plans.lifecycle import request_cancel
        from kafka_steward.execution.plans.resolution import resolve_plan
        from kafka_steward.execution.plans.rollback import nothing_to_revert_reason

        scope = cast("Scope", require_choice("The scope of a cancel", self.scope, "pending", "plan"))
        who = actor_of(context)
        with self.open_connections(context) as connections:
            opened = connections.current()
            signalled = is_scheduled(context)  # by an asset of the cancel signal: the plan may have ended already
            record = resolve_plan(
                opened.journal, self.plan or None, "cancel", who=who, scope=scope, after_signal=signalled
            )
            digest = self.linked_plan = record.digest
            if scope == "plan" and (nothing := nothing_to_revert_reason(opened.context(who), record)):
                self.log.info("%s", printable(f"Plan {digest[:12]} was {nothing}."))
                return self._report_cancel(opened, digest, context)
            disabled = "" if scope == "pending" or self.even_if_disabled else disabled_reason(opened.journal.mailbox)
            if disabled:
                self.log.warning("%s", printable(f"Reassignments are disabled {disabled}. {_WAITS}"))
            request_cancel(
                opened.journal,
                digest,
                who=who,
                reason=str(self.reason or (f"requested by {who.person}" if who.person else "no reason was given")),
                scope=scope,
                even_if_disabled=bool(self.even_if_disabled),
            )

            progress = self.create_runner(opened, digest, context).step()
            self.log.info("%s", printable(progress.sentence))
            if not progress.ended:
                self.run_or_defer(connections, digest, context, kwargs={"digest": digest})
            return self._report_cancel(connections.current(), digest, context)

    def execute_complete(self, context: Context, event: Mapping[str, Any], digest: str) -> dict[str, Any]:
        """Verify the cancel after the trigger, and return the result."""
        self.linked_plan = digest
        self.progress_from_event(event, context)
        with self.open(context) as opened:
            return self._report_cancel(opened, digest, context)

    def _report_cancel(self, opened: ClusterSession, digest: str, context: Context) -> dict[str, Any]:
        from kafka_steward.execution.plans.rollback import find_unsuccessful_rollback

        rollback = find_unsuccessful_rollback(opened.journal, digest)
        if rollback is not None:
            fail_task(
                f"The rollback of plan {digest[:12]} was itself cancelled or abandoned: {rollback.reason}",
                for_good=True,
            )
        outcome = self._verify_undone(opened, digest)
        self.log.info("%s", printable(outcome["sentence"]))
        for kind in ("left_alone", "skipped", "changed_since"):
            for entry in outcome[kind]:
                message = f"{entry['topic']}-{entry['partition']}, {kind.replace('_', ' ')}: {entry['why']}"
                self.log.warning("%s", printable(message))
        event = "rolled_back" if outcome["status"] == "rolled_back" else "cancelled"
        notify(self.on_cancelled, context, event, outcome)
        return outcome

    def _verify_undone(self, opened: ClusterSession, digest: str) -> dict[str, Any]:
        from kafka_steward.execution.plans.undo_verification import poll_until_undone, verify_undone

        within_s = self.verify_timeout.total_seconds()
        verification = poll_until_undone(
            lambda: verify_undone(opened.cluster, opened.journal, digest),
            self._wait_unless_killed,
            say=lambda message: self.log.info("%s", printable(message)),
            within_s=within_s,
        )
        if not verification.ok:
            raise AirflowException(printable(f"The original state is not restored: {verification.sentence}"))
        for partition in verification.returned:
            self.log.info("%s", printable(partition.sentence))
        return verification.to_json()


class RollbackReassignmentOperator(CancelReassignmentOperator):
    """Restores the original assignment, replica order included, of every partition of a running or ended plan.

    Pending reassignments are cancelled. Completed moves are reverted in chunks, the last first, throttled like any
    plan. Partitions that were changed externally since, were re-created, or would need a dead broker are left unchanged
    and listed. The operator is CancelReassignmentOperator with `scope="plan"`, and takes its other arguments.

    >>> RollbackReassignmentOperator(task_id="undo", plan="3f2a91c0").scope
    'plan'
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{**kwargs, "scope": "plan"})
