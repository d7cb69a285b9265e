"""Notification of what the watch has found: from the triggerer, in which Airflow runs no callbacks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowException

from kafka_steward.errors import StewardError
from kafka_steward.escaping import printable
from kafka_steward.hooks.context import event_payloads
from kafka_steward.operators.base import Notifiers, StewardOperator, notify, skip_downstream, to_notifier_list

if TYPE_CHECKING:
    from airflow.sdk import Context

    from kafka_steward.execution.watch.alerts import AlertRecord
    from kafka_steward.journal.state import Row
    from kafka_steward.journal.store import Journal

__all__ = ["SendAlertsOperator"]


class SendAlertsOperator(StewardOperator):
    """Calls `on_alert` for each alert in the journal that people do not know of yet, and records that they do.

    The alerts are those of the watch (kafka_steward.execution.watch.alerts): the events `stalled`, `stuck`, `paused`,
    `no_process`, `outage`, `heal_overdue` and `watch_failing`, each again an hour later while it lasts, and `recovered`
    with `of`, the event that is over. If all notifiers failed, the task fails, and a retry or the watch's next event
    repeats them. While the journal cannot be read, what the watch's event says itself is sent. Without an alert, the
    task is skipped. Returns the sentences.

    >>> SendAlertsOperator(task_id="send_alerts", on_alert=print)
    <Task(SendAlertsOperator): send_alerts>
    """

    def __init__(self, *, on_alert: Notifiers = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.on_alert = to_notifier_list(on_alert)

    def execute(self, context: Context) -> list[str]:
        """Send the alerts."""
        try:
            with self.open_journal(context) as journal:
                sentences = self._send_recorded(journal, context)
        except StewardError as error:
            self.log.warning("The journal cannot be read: %s", printable(str(error)))
            sentences = self._send_unrecorded(context)
            if not sentences:
                raise
        if not sentences:
            skip_downstream(self, context, "People know of everything that the watch has found.")
        return sentences

    def _send_recorded(self, journal: Journal, context: Context) -> list[str]:
        from kafka_steward.execution.watch.alerts import list_unnotified, record_notified

        sentences = []
        for alert in list_unnotified(journal):
            event, facts = _facts_of(alert)
            self._send(context, event, {**facts, "cluster_id": journal.cluster_id})
            record_notified(journal, alert)
            sentences.append(facts["sentence"])
        return sentences

    def _send_unrecorded(self, context: Context) -> list[str]:
        alerts: dict[str, Mapping[str, Any]] = {}
        for payload in event_payloads(self.conn_id, context):
            # A run may have consumed several events about one alert: the newest counts.
            alerts |= {str(alert.get("subject")): alert for alert in payload.get("unrecorded") or ()}
        sentences = []
        for alert in alerts.values():
            facts = {"sentence": str(alert.get("sentence", "")), "subject": str(alert.get("subject", ""))}
            self._send(context, str(alert.get("kind")), facts)
            sentences.append(facts["sentence"])
        return sentences

    def _send(self, context: Context, event: str, facts: Mapping[str, Any]) -> None:
        self.log.info("%s: %s", printable(event), printable(str(facts["sentence"])))
        if not notify(self.on_alert, context, event, {**facts, "conn_id": self.conn_id}):
            raise AirflowException("No notifier could send the alert; the log says why, and a retry sends it again.")


def _facts_of(alert: Row[str, AlertRecord]) -> tuple[str, dict[str, Any]]:
    from kafka_steward.execution.watch.alerts import split_key

    (kind, subject), record = split_key(alert.key), alert.value
    facts = {"sentence": record.sentence, "subject": subject, "since_ms": record.since_ms}
    if kind in {"stalled", "stuck", "paused", "no_process"}:
        facts["digest"] = subject
    if record.ended_ms is None:
        return kind, {**facts, "at_ms": record.notified_ms or record.since_ms}
    return "recovered", {**facts, "of": kind, "sentence": f"It is over: {record.sentence}", "at_ms": record.ended_ms}
