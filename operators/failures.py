"""Detection of the failed brokers to heal now: the first task of a heal."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from kafka_steward.escaping import printable
from kafka_steward.hooks.context import actor_of, hook_of
from kafka_steward.operators.base import (
    Notifiers,
    StewardOperator,
    notify,
    open_session,
    skip_downstream,
    to_notifier_list,
)

if TYPE_CHECKING:
    from airflow.sdk import Context

    from kafka_steward.execution.failure_detector import DetectionResult
    from kafka_steward.hooks.steward import ClusterSession

__all__ = ["FindFailuresOperator"]


class FindFailuresOperator(StewardOperator):
    """Finds failed brokers whose grace period has expired and that no plan heals yet (KIP-46).

    The cluster and the journal are read. Of the event that started the run only the journal's address is used: Airflow
    may duplicate or drop trigger events. If nothing is to be healed now, or while reassignments are disabled (KIP-236),
    the task and its downstream tasks are skipped; its log and its XCom `sentence` give the reason. The task fails
    without a retry during an outage, in which nothing is healed until some brokers are back, and for a broker id that
    the cluster does not have. `brokers` restricts the result to some ids; `ignore_grace` heals brokers that are dead
    now. Returns `{"brokers": [ids], "sentence", "cluster_id"}`.

    >>> FindFailuresOperator(task_id="find_failures", brokers=[3], ignore_grace=True)
    <Task(FindFailuresOperator): find_failures>
    """

    template_fields: Sequence[str] = (*StewardOperator.template_fields, "brokers", "ignore_grace")

    def __init__(
        self,
        *,
        brokers: Collection[int] | Any | None = None,
        ignore_grace: bool | Any = False,
        on_failure_detected: Notifiers = None,
        on_not_healable: Notifiers = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**{"multiple_outputs": True, **kwargs})
        self.brokers = brokers
        self.ignore_grace = ignore_grace
        self.on_failure_detected = to_notifier_list(on_failure_detected)
        self.on_not_healable = to_notifier_list(on_not_healable)

    def execute(self, context: Context) -> dict[str, Any]:
        """Detect failed brokers; skip the downstream tasks when nothing is to be healed."""
        from kafka_steward.execution.readiness import disabled_reason

        with self._open_session(context) as opened:
            verdict, cluster_id = self._detect_failures(opened, context), opened.cluster.cluster_id
            self._refuse_unknown_brokers(opened, verdict)
            disabled = disabled_reason(opened.journal.tree)
        failed = [broker for broker in verdict.failed if not self.brokers or broker in self.brokers]
        facts = {"brokers": failed, "sentence": verdict.sentence, "cluster_id": cluster_id}
        if verdict.outage:
            notify(self.on_not_healable, context, "not_healable", facts)
            raise AirflowFailException(printable(verdict.sentence))
        if not failed:
            skip_downstream(self, context, f"Nothing is to be healed now. {verdict.sentence}")
        if disabled:
            skip_downstream(self, context, f"Nothing is healed while reassignments are disabled {disabled}.")
        self.log.info("%s", printable(verdict.sentence))
        notify(self.on_failure_detected, context, "failure_detected", facts)
        return facts

    def _refuse_unknown_brokers(self, opened: ClusterSession, verdict: DetectionResult) -> None:
        requested = set(self.brokers or ()) - set(verdict.down)
        live = opened.cluster.live_brokers() if requested else ()
        unknown = ", ".join(map(str, sorted(requested - set(live))))
        if unknown:
            why = (
                f"Broker {unknown} cannot be healed: cluster {opened.cluster.cluster_id} has none of that id, dead "
                f"or live; down: {', '.join(map(str, verdict.down)) or 'none'}."
            )
            raise AirflowFailException(printable(why))

    def _open_session(self, context: Context) -> ClusterSession:
        hook = hook_of(self, context)
        if self.ignore_grace:
            hook.overrides["heal_failure_interval"] = 0
        return open_session(hook)

    def _detect_failures(self, opened: ClusterSession, context: Context) -> DetectionResult:
        from kafka_steward.execution.failure_detector import FailureDetector

        detector = FailureDetector(opened.cluster, opened.journal, opened.settings, actor_of(context))
        return detector.poll(announce=False)
