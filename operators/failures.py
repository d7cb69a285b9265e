"""Failed brokers: their detection, the first task of a heal, and the report of a failure from a DAG (KIP-46)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from kafka_steward.assignment import name_brokers
from kafka_steward.escaping import printable
from kafka_steward.hooks.context import actor_of, hook_of
from kafka_steward.operators.base import (
    Notifiers,
    StewardOperator,
    fail_without_retry,
    notify,
    open_session,
    skip_downstream,
    to_notifier_list,
)
from kafka_steward.operators.snapshot import take_task_snapshot
from kafka_steward.value_parsing import parse_broker_ids

if TYPE_CHECKING:
    from airflow.sdk import Context

    from kafka_steward.execution.watch.failure_detector import DetectionResult
    from kafka_steward.hooks.session import ClusterSession

__all__ = ["FindFailuresOperator", "ReportFailureOperator"]


class FindFailuresOperator(StewardOperator):
    """Finds failed brokers whose grace period has expired and that no plan heals yet (KIP-46).

    The cluster and the journal are read. Of the event that started the run only the journal's address is used: Airflow
    may duplicate or drop trigger events. If nothing is to be healed now, or while reassignments are disabled (KIP-236),
    the task and its downstream tasks are skipped; its log and its XCom `sentence` give the reason. The task fails
    without a retry during an outage, in which only brokers are healed that a person reported, or named in `brokers`,
    and for a broker id that the cluster does not have. `brokers` restricts the result to some ids, a list or text such
    as "3, 4"; `ignore_grace` heals brokers that are dead now. With `snapshot`, it also takes the snapshot of what it
    found, as SnapshotClusterOperator does, which saves a task and a connection. Returns `{"brokers": [ids],
    "sentence", "cluster_id"}`, and with `snapshot` also its `"uri"` and `"digest"`, as PlanReassignmentOperator takes
    them.

    >>> FindFailuresOperator(task_id="find_failures", brokers=[3], ignore_grace=True)
    <Task(FindFailuresOperator): find_failures>
    """

    template_fields: Sequence[str] = (*StewardOperator.template_fields, "brokers", "ignore_grace")

    def __init__(
        self,
        *,
        brokers: Collection[int] | Any | None = None,
        ignore_grace: bool | Any = False,
        snapshot: bool = False,
        on_failure_detected: Notifiers = None,
        on_not_healable: Notifiers = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**{"multiple_outputs": True, **kwargs})
        self.brokers = brokers
        self.ignore_grace = ignore_grace
        self.takes_snapshot = snapshot
        self.on_failure_detected = to_notifier_list(on_failure_detected)
        self.on_not_healable = to_notifier_list(on_not_healable)

    def execute(self, context: Context) -> dict[str, Any]:
        """Detect failed brokers; skip the downstream tasks when nothing is to be healed."""
        with fail_without_retry():
            self.brokers = parse_broker_ids(self.brokers)
        with self._open_session(context) as opened:
            # The first snapshot waits half a second after the first list; the detector is imported meanwhile.
            opened.cluster.reassignments()
            from kafka_steward.execution.announcements import disabled_reason

            verdict, cluster_id = self._detect_failures(opened, context), opened.cluster.cluster_id
            self._refuse_unknown_brokers(opened, verdict)
            disabled = disabled_reason(opened.journal.mailbox)
            failed = [broker for broker in verdict.failed if not self.brokers or broker in self.brokers]
            sentence = " ".join(filter(None, (verdict.sentence, self._overruled_bounds(opened, verdict, context))))
            facts = {"brokers": failed, "sentence": sentence, "cluster_id": cluster_id}
            if verdict.outage and not failed:
                notify(self.on_not_healable, context, "not_healable", facts)
                raise AirflowFailException(printable(verdict.sentence))
            if not failed:
                at_once = " To heal before that, run this with ignore_grace." if verdict.waiting else ""
                skip_downstream(self, context, f"Nothing is to be healed now. {verdict.sentence}{at_once}")
            if disabled:
                skip_downstream(self, context, f"Nothing is healed while reassignments are disabled {disabled}.")
            self.log.info("%s", printable(sentence))
            # Before people are notified: a retry of the snapshot then notifies nobody twice.
            taken = take_task_snapshot(opened, context, failed=failed) if self.takes_snapshot else {}
        notify(self.on_failure_detected, context, "failure_detected", facts)
        return {**facts, **taken}

    def _refuse_unknown_brokers(self, opened: ClusterSession, verdict: DetectionResult) -> None:
        requested = set(self.brokers or ()) - set(verdict.down)
        live = opened.cluster.live_brokers() if requested else ()
        unknown = sorted(requested - set(live))
        if unknown:
            why = (
                f"{name_brokers(unknown).capitalize()} cannot be healed: cluster {opened.cluster.cluster_id} has "
                f"none of that id, dead or live; down: {', '.join(map(str, verdict.down)) or 'none'}."
            )
            raise AirflowFailException(printable(why))

    def _open_session(self, context: Context) -> ClusterSession:
        hook = hook_of(self, context)
        if self.ignore_grace:
            hook.overrides["heal_failure_interval"] = 0
        return open_session(hook)

    def _detect_failures(self, opened: ClusterSession, context: Context) -> DetectionResult:
        from kafka_steward.execution.ports import ClusterContext
        from kafka_steward.execution.watch.failure_detector import FailureDetector
        from kafka_steward.execution.watch.upkeep import run_chores

        who = actor_of(context)
        detector = FailureDetector(opened.cluster, opened.journal, opened.settings, who)
        verdict = detector.poll(announce=False, named=self.brokers or ())
        # Without a watch, it is a run of heal that pauses the plan before it, and takes back what that one left.
        run_chores(ClusterContext(opened.cluster, opened.journal, opened.settings, who))
        return verdict

    def _overruled_bounds(self, opened: ClusterSession, verdict: DetectionResult, context: Context) -> str:
        """Return which parameters of this run keep its failures from being an outage; empty if none has to."""
        from kafka_steward.execution.failures.rules import overruled_text
        from kafka_steward.hooks.steward import StewardHook

        params = context.get("params") or {}
        if verdict.outage or all(params.get(name) is None for name in ("max_failed_brokers", "max_failed_fraction")):
            return ""
        usual = StewardHook(self.conn_id, self.settings).settings
        return overruled_text(verdict.down, verdict.known, verdict.not_counted, opened.settings, usual)


class ReportFailureOperator(StewardOperator):
    """Reports that a broker has failed and will not return: its heal is due at once, without the grace period (KIP-46).

    Writes `/admin/failed_brokers/<broker>`; the watch of `heal` then starts it at its next poll. The task fails without
    a retry for a broker that Kafka does not see as down: a live one is to be drained. With `log_dirs`, the failed log
    directories of a live broker are reported: Kafka has to report each of them as failed, and `heal_failed_disks` may
    be off. Returns the message.

    >>> ReportFailureOperator(task_id="report_failure", broker=3, reason="its host burnt down")
    <Task(ReportFailureOperator): report_failure>
    """

    template_fields: Sequence[str] = (*StewardOperator.template_fields, "broker", "log_dirs", "reason")

    def __init__(
        self, *, broker: int | str, log_dirs: Collection[str] | Any = (), reason: str = "", **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.broker = broker
        self.log_dirs = log_dirs
        self.reason = reason

    def execute(self, context: Context) -> str:
        """Report the failure."""
        from kafka_steward.errors import RequestError
        from kafka_steward.execution.watch.failure_detector import report_broker, report_log_dirs

        with self.open(context) as opened, fail_without_retry():
            if not str(self.broker).isdecimal():
                raise RequestError(f"{self.broker!r} is not a broker id; it is a number from 0.")
            cluster, broker = opened.context(actor_of(context)), int(self.broker)
            if self.log_dirs:
                sentence = report_log_dirs(cluster, broker, self.log_dirs, reason=self.reason)
            else:
                sentence = report_broker(cluster, broker, reason=self.reason)
        self.log.info("%s", printable(sentence))
        return sentence
