"""KIP-46's announcement of a broker restart, written from a DAG before it restarts the broker."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from airflow.sdk import Context

from kafka_steward.escaping import printable
from kafka_steward.hooks.context import actor_of
from kafka_steward.operators.base import StewardOperator

__all__ = ["AnnounceBrokerRestartOperator"]


class AnnounceBrokerRestartOperator(StewardOperator):
    """Writes `/admin/rolling_bounce/<broker>` (KIP-46): an announcement that the broker is about to be restarted.

    Until it is back, the broker has its grace period, or the duration `lasts`, and receives no replica. With
    `heal_fast_detection`, only brokers without an announcement are healed at once. Returns the message.

    >>> AnnounceBrokerRestartOperator(task_id="announce", broker=3, lasts=timedelta(minutes=20))
    <Task(AnnounceBrokerRestartOperator): announce>
    """

    template_fields: Sequence[str] = (*StewardOperator.template_fields, "broker")

    def __init__(self, *, broker: int | str, lasts: timedelta | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.broker = broker
        self.lasts = lasts

    def execute(self, context: Context) -> str:
        """Write the announcement. Raises RequestError if `broker` is not a broker id."""
        from kafka_steward.errors import RequestError
        from kafka_steward.execution.announcements import announce_restart

        if not str(self.broker).isdecimal():
            raise RequestError(f"{self.broker!r} is not a broker id; it is a number from 0.")
        lasts_ms = None if self.lasts is None else int(self.lasts.total_seconds() * 1000)
        with self.open_journal(context) as journal:
            sentence = announce_restart(journal, int(self.broker), who=actor_of(context), lasts_ms=lasts_ms)
        self.log.info("%s", printable(sentence))
        return sentence
