"""Which failed brokers are to be healed now: the first task of a heal."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowSkipException

from kafka_steward.hooks.context import hook_of, who_of
from kafka_steward.operators.base import StewardOperator, opened_by
from kafka_steward.operators.notify import Notifiers, as_notifiers, notify

if TYPE_CHECKING:
    from airflow.sdk import Context

    from kafka_steward.execution.watching.detector import Verdict
    from kafka_steward.hooks.steward import Opened

__all__ = ["FindFailuresOperator"]


class FindFailuresOperator(StewardOperator):
    """Reads cluster and journal for brokers that are past their grace period and that no plan heals yet (KIP-46).

    The event that started the run is not read: Airflow doubles some and swallows others. With nothing to heal, the task
    and all after it are skipped, and its log says why. `brokers` narrows it to some ids; `ignore_grace` heals what is
    dead now. Returns `{"brokers": [ids], "sentence"}`.

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
        self.on_failure_detected = as_notifiers(on_failure_detected)
        self.on_not_healable = as_notifiers(on_not_healable)

    def execute(self, context: Context) -> dict[str, Any]:
        """Look, and skip what follows when nothing is to be healed."""
        with self._open(context) as opened:
            verdict, cluster_id = self._look(opened, context), opened.cluster.cluster_id
        failed = [broker for broker in verdict.failed if not self.brokers or broker in self.brokers]
        facts = {"brokers": failed, "sentence": verdict.sentence, "cluster_id": cluster_id}
        if verdict.outage:
            notify(self.on_not_healable, context, "not_healable", facts)
            raise AirflowSkipException(verdict.sentence)
        if not failed:
            raise AirflowSkipException(f"Nothing is to be healed now. {verdict.sentence}")
        self.log.info("%s", verdict.sentence)
        notify(self.on_failure_detected, context, "failure_detected", facts)
        return facts

    def _open(self, context: Context) -> Opened:
        hook = hook_of(self, context)
        if self.ignore_grace:
            hook.overrides["heal_failure_interval"] = 0
        return opened_by(hook)

    def _look(self, opened: Opened, context: Context) -> Verdict:
        from kafka_steward.execution.watching.detector import Detector

        detector = Detector(opened.cluster, opened.journal, opened.settings, who_of(context))
        return detector.look(announce=False)
