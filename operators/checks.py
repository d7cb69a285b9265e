"""Tasks that change nothing: whether the cluster is ready and healthy, a reassignment valid, the workspace shared."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from kafka_steward.escaping import printable
from kafka_steward.hooks.context import hook_of, merge_overrides
from kafka_steward.operators.base import (
    Notifiers,
    StewardOperator,
    fail_without_retry,
    notify,
    skip_downstream,
    to_notifier_list,
)
from kafka_steward.triggers.probe import ProbeWorkspaceTrigger
from kafka_steward.triggers.reporting import emit_health
from kafka_steward.triggers.wait import CheckResult, WaitTrigger, evaluate_check
from kafka_steward.value_parsing import require_choice

if TYPE_CHECKING:
    from airflow.sdk import Context

    from kafka_steward.cluster.health import Health
    from kafka_steward.hooks.session import ClusterSession

__all__ = ["CheckReassignmentOperator", "ClusterReadyOperator", "ProbeWorkspaceOperator", "ReportHealthOperator"]


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


class ReportHealthOperator(StewardOperator):
    """Checks the health of the cluster, logs it, and emits it as metrics; changes nothing.

    Under-replicated partitions are counted as in KIP-352: replicas that a reassignment is adding do not count. `limits`
    are the highest healthy values, by measure; the default is `DEFAULT_LIMITS` of `execution.watch.health`. When a
    measure exceeds its limit, `on_unhealthy` is notified, and with `when_unhealthy="fail"` the task fails without a
    retry. During a reassignment, bytes per second are measured over `sample_s` seconds. Returns `{"healthy", "above",
    "sentence", "measures", "partitions"}`: `above` names the measures that exceed their limits, `partitions` the first
    100 partitions that are `under_replicated`, `under_min_isr`, `offline` and `reassigning`. The log names all of them.

    >>> ReportHealthOperator(task_id="health", when_unhealthy="fail", limits={"offline_partitions": 0})
    <Task(ReportHealthOperator): health>
    """

    template_fields: Sequence[str] = (*StewardOperator.template_fields, "limits", "when_unhealthy")

    def __init__(
        self,
        *,
        limits: Mapping[str, float] | Any | None = None,
        when_unhealthy: str | Any = "report",
        sample_s: float = 5.0,
        on_unhealthy: Notifiers = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.limits = limits
        self.when_unhealthy = when_unhealthy
        self.sample_s = sample_s
        self.on_unhealthy = to_notifier_list(on_unhealthy)

    def execute(self, context: Context) -> dict[str, Any]:
        """Check, log, emit and notify; fail if that was requested."""
        from kafka_steward.execution.watch.health import (
            health_message,
            partition_lines,
            partition_names,
            validate_limits,
            violated_limits,
        )

        with fail_without_retry():
            require_choice("when_unhealthy", self.when_unhealthy, "report", "fail")
            limits = validate_limits(self.limits)
        with self.open(context) as opened:
            health = self._measure_health(opened)
        emit_health(self.conn_id, health.measures)
        above, sentence = violated_limits(health, limits), health_message(health)
        facts = {
            "healthy": not above,
            "above": above,
            "sentence": sentence,
            "measures": health.measures,
            "partitions": partition_names(health),
        }
        for line in (sentence, *partition_lines(health)):
            self.log.info("%s", printable(line))
        if above:
            notify(self.on_unhealthy, context, "unhealthy", facts)
            if self.when_unhealthy == "fail":
                raise AirflowFailException(printable(f"{', '.join(above)}: above the limit. {sentence}"))
        return facts

    def _measure_health(self, opened: ClusterSession) -> Health:
        from kafka_steward.execution.watch.health import check_health

        service_topics = opened.settings.service_topic_patterns
        health, copies = check_health(opened.cluster, opened.journal, thorough=True, service_topics=service_topics)
        if not health.reassigning or self.sample_s <= 0:
            return health
        time.sleep(self.sample_s)
        later, _ = check_health(opened.cluster, opened.journal, copies, service_topics=service_topics)
        return replace(later, hidden_topics=health.hidden_topics)


class CheckReassignmentOperator(StewardOperator):
    """Validates a reassignment in the format of kafka-reassign-partitions against the cluster; changes nothing.

    `reassignment` is the document, or its text. The task fails without a retry, with a message for each fault: a topic,
    partition or broker that does not exist, a broker that is not live, or that is cordoned and would receive a replica,
    a partition or a broker that is listed twice, a partition that is being reassigned already, one that would have
    fewer replicas than it has, and than min.insync.replicas, a replica that would move to another log directory of its
    broker. A directory that is named for an added replica is logged: the broker chooses it.
    Returns `{"reassignment", "partitions"}`: the document in the planner's format, and the number of partitions.

    >>> CheckReassignmentOperator(
    ...     task_id="check",
    ...     reassignment='{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}',
    ... )
    <Task(CheckReassignmentOperator): check>
    """

    template_fields: Sequence[str] = (*StewardOperator.template_fields, "reassignment")

    def __init__(self, *, reassignment: Mapping[str, Any] | str | Any, **kwargs: Any) -> None:
        super().__init__(**{"multiple_outputs": True, **kwargs})
        self.reassignment = reassignment

    def execute(self, context: Context) -> dict[str, Any]:
        """Parse the reassignment and validate it against the cluster."""
        from kafka_steward.execution.cluster_queries import cordoned_brokers, readable_min_isr, with_hidden_topics
        from kafka_steward.execution.moves.directories import check_directories
        from kafka_steward.execution.plans.requests import parse_assignments, validate_against_cluster

        with fail_without_retry():
            given, named = parse_assignments(self.reassignment)
            with self.open(context) as opened:
                snapshot = with_hidden_topics(opened.cluster, opened.cluster.snapshot(), {name.topic for name in given})
                min_isr, _ = readable_min_isr(opened.cluster, sorted({name.topic for name in given} & snapshot.topics))
                named_brokers = {broker for target in given.values() for broker in target}
                cordoned = cordoned_brokers(opened.cluster, snapshot.live & named_brokers)
                validate_against_cluster(given, snapshot, min_isr, cordoned)
                note = check_directories(opened.cluster, snapshot, named)
        if note:
            self.log.info("%s", printable(note))
        self.log.info("The reassignment names %d partitions, all of which exist, on live brokers.", len(given))
        entries = [
            {"topic": name.topic, "partition": name.partition, "replicas": list(to)} for name, to in given.items()
        ]
        return {"reassignment": json.loads(json.dumps({"version": 1, "partitions": entries})), "partitions": len(given)}


class ProbeWorkspaceOperator(StewardOperator):
    """Writes, reads and deletes a file in the workspace from a worker, then from the triggerer.

    `marker` is the name of a file that the process which asks wrote there; empty for none. Returns `{"worker": ...,
    "triggerer": ...}`, each with the `uri` of the workspace, the `host`, the `problem`, and whether it is `marked`. A
    workspace that cannot be used fails no task: it is what was asked. Neither Kafka nor the journal is used.

    >>> ProbeWorkspaceOperator(task_id="probe")
    <Task(ProbeWorkspaceOperator): probe>
    """

    template_fields: Sequence[str] = (*StewardOperator.template_fields, "marker")

    def __init__(self, *, marker: str | Any = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.marker = marker

    def execute(self, context: Context) -> None:
        """Probe from this worker, and go on in the triggerer."""
        from kafka_steward.doctor.planning import probe_workspace

        hook = hook_of(self, context)
        worker = probe_workspace(lambda: hook.workspace, self.marker).to_json()
        self.defer(
            trigger=ProbeWorkspaceTrigger(self.conn_id, self.marker, hook.overrides),
            method_name="finish",
            kwargs={"worker": worker},
        )

    def finish(
        self,
        context: Context,  # noqa: ARG002 - Airflow's
        event: Mapping[str, Any],
        worker: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Return what both found."""
        return {"worker": dict(worker), "triggerer": dict(event)}
