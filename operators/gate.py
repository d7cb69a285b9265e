"""A check that a workflow may start now: the first task of workflows that can wait."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, NoReturn

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from kafka_steward.escaping import printable
from kafka_steward.hooks.context import merge_overrides
from kafka_steward.operators.base import StewardOperator, fail_without_retry, skip_downstream
from kafka_steward.triggers.wait import CheckResult, WaitTrigger, evaluate_check
from kafka_steward.value_parsing import require_choice

__all__ = ["ClusterReadyOperator"]


class ClusterReadyOperator(StewardOperator):
    """Lets a workflow start only on a fully replicated, idle cluster; changes nothing.

    The condition: no partition is under-replicated, no broker that hosts replicas is down, no reassignment is in
    progress, no plan holds the plan slot, and reassignments are not disabled (KIP-236). What no plan can repair is left
    out, and named in the message: partitions without a live replica, those that the last heal had to leave or that have
    more replicas than there are live brokers, and what is out of sync on live brokers, or being reassigned by somebody
    else, for longer than `stuck_after`. If the condition is not met,
    `when_busy="skip"` skips the task and its downstream tasks, with the reason in the log. `when_busy="wait"` waits, in
    the triggerer or with `deferrable=False` in the worker, for at most `wait_timeout`, with a check every
    `poke_interval`. Returns the message.

    >>> ClusterReadyOperator(task_id="gate", conn_id="kafka_production", when_busy="wait")
    <Task(ClusterReadyOperator): gate>
    """

    template_fields: Sequence[str] = (*StewardOperator.template_fields, "when_busy")

    def __init__(
        self,
        *,
        when_busy: str | Any = "skip",
        deferrable: bool = True,
        poke_interval: timedelta = timedelta(seconds=30),
        wait_timeout: timedelta = timedelta(days=1),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.when_busy = when_busy
        self.deferrable = deferrable
        self.poke_interval = poke_interval
        self.wait_timeout = wait_timeout
        self._killed = threading.Event()

    def execute(self, context: Context) -> str:
        """Check the cluster; then return, skip the downstream tasks, or wait."""
        with fail_without_retry():
            require_choice("when_busy", self.when_busy, "skip", "wait")
            answer, journal = self._check_ready(context)
        if answer.met:
            return answer.sentence
        if self.when_busy == "skip":
            skip_downstream(self, context, answer.sentence)
        if self.deferrable:
            self._defer_until_ready(context, journal)
        return self._wait_until_ready(context)

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> str:  # noqa: ARG002 - Airflow's
        """Return the message of the trigger's event. Fails without a retry if waiting cannot resolve the error."""
        if not event["done"]:
            raise AirflowFailException(printable(event["sentence"]))  # waiting would not resolve it
        return str(event["sentence"])

    def on_kill(self) -> None:
        """Stop waiting."""
        self._killed.set()

    def _check_ready(self, context: Context) -> tuple[CheckResult, dict[str, str] | None]:
        with self.open(context) as opened:
            answer = evaluate_check("ready", opened, {})
            self.log.info("%s", printable(answer.sentence))
            return answer, opened.origin

    def _defer_until_ready(self, context: Context, journal: Mapping[str, str] | None) -> NoReturn:
        overrides = merge_overrides(self.settings, context)
        trigger = WaitTrigger(self.conn_id, "ready", {}, self.poke_interval.total_seconds(), overrides, journal=journal)
        self.defer(trigger=trigger, method_name="execute_complete", timeout=self.wait_timeout)

    def _wait_until_ready(self, context: Context) -> str:
        polls = max(1, int(self.wait_timeout / self.poke_interval))
        for _ in range(polls):
            if self._killed.wait(self.poke_interval.total_seconds()):
                raise AirflowException("The task was killed while it waited for the cluster.")
            answer, _ = self._check_ready(context)
            if answer.met:
                return answer.sentence
        why = f"The cluster did not become ready within {self.wait_timeout}. {answer.sentence}"
        raise AirflowException(printable(why))
