"""The KIPs' documents that a DAG writes: announced restarts (KIP-46), reassignments disabled and enabled (KIP-236)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException

from kafka_steward.escaping import printable
from kafka_steward.hooks.context import actor_of
from kafka_steward.operators.base import StewardOperator, fail_without_retry
from kafka_steward.value_parsing import parse_whole_number, shorten_value

if TYPE_CHECKING:
    from kafka_steward.journal.audit import Actor
    from kafka_steward.journal.store import Journal

__all__ = [
    "AnnounceBrokerRestartOperator",
    "CONTROL_ACTIONS",
    "ControlClusterOperator",
    "DisableReassignmentOperator",
    "EnableReassignmentOperator",
]


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


class DisableReassignmentOperator(StewardOperator):
    """Creates `/admin/reassign_cancel` (KIP-236): no reassignment starts until it is deleted; running ones complete.

    `reason` is shown wherever work is blocked. Returns the message. Does no harm when the node exists already.

    >>> DisableReassignmentOperator(task_id="off", reason="the racks are being rewired")
    <Task(DisableReassignmentOperator): off>
    """

    template_fields: Sequence[str] = (*StewardOperator.template_fields, "reason")

    def __init__(self, *, reason: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.reason = reason

    def execute(self, context: Context) -> str:
        """Disable reassignments."""
        from kafka_steward.execution.announcements import disable_reassignment

        with self.open_journal(context) as journal:
            sentence = disable_reassignment(journal, who=actor_of(context), reason=self.reason)
        self.log.info("%s", printable(sentence))
        return sentence


class EnableReassignmentOperator(StewardOperator):
    """Deletes `/admin/reassign_cancel` (KIP-236). Returns the message. Does no harm when the node does not exist.

    >>> EnableReassignmentOperator(task_id="on")
    <Task(EnableReassignmentOperator): on>
    """

    template_fields: Sequence[str] = (*StewardOperator.template_fields, "reason")

    def __init__(self, *, reason: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.reason = reason

    def execute(self, context: Context) -> str:
        """Enable reassignments."""
        from kafka_steward.execution.announcements import enable_reassignment

        with self.open_journal(context) as journal:
            sentence = enable_reassignment(journal, who=actor_of(context), reason=self.reason)
        self.log.info("%s", printable(sentence))
        return sentence


#: The changes that a run may request.
CONTROL_ACTIONS = ("disable", "enable", "announce_restart")

_MINUTE_MS = 60_000


class ControlClusterOperator(StewardOperator):
    """Disables or enables reassignments (KIP-236), or announces a broker's restart (KIP-46), as `action` says.

    `reason` is required to disable, `broker` to announce; `minutes` is how long the restart lasts, or None for the
    broker's grace period. Only the journal is written, so it works while Kafka is down. Fails without a retry for a
    request that is not complete. Returns the message. Repeating a request does no harm.

    >>> ControlClusterOperator(task_id="control", action="disable", reason="the racks are being rewired")
    <Task(ControlClusterOperator): control>
    """

    template_fields: Sequence[str] = (*StewardOperator.template_fields, "action", "reason", "broker", "minutes")

    def __init__(
        self,
        *,
        action: str | Any,
        reason: str | Any = "",
        broker: int | str | Any | None = None,
        minutes: int | str | Any | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.action = action
        self.reason = reason
        self.broker = broker
        self.minutes = minutes

    def execute(self, context: Context) -> str:
        """Write the request into the journal."""
        if self.action not in CONTROL_ACTIONS:
            known = ", ".join(CONTROL_ACTIONS)
            raise AirflowFailException(
                printable(f"There is no action {shorten_value(self.action)}; there are {known}.")
            )
        with fail_without_retry(), self.open_journal(context) as journal:
            sentence = self._change(journal, actor_of(context))
        self.log.info("%s", printable(sentence))
        return sentence

    def _change(self, journal: Journal, who: Actor) -> str:
        from kafka_steward.execution.announcements import announce_restart, disable_reassignment, enable_reassignment

        reason = str(self.reason or "")
        if self.action == "disable":
            return disable_reassignment(journal, who=who, reason=reason)
        if self.action == "enable":
            return enable_reassignment(journal, who=who, reason=reason)
        broker = _whole_number(self.broker, "The broker", "the id of a broker, a number from 0")
        lasts_ms = None
        if self.minutes not in (None, ""):
            lasts_ms = _whole_number(self.minutes, "The duration", "a number of minutes") * _MINUTE_MS
        return announce_restart(journal, broker, who=who, lasts_ms=lasts_ms)


def _whole_number(value: Any, name: str, takes: str) -> int:
    try:
        number = parse_whole_number(value)
    except ValueError:
        number = -1
    if number < 0:
        raise AirflowFailException(printable(f"{name} is {shorten_value(value)}; it takes {takes}."))
    return number
