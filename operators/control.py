"""One of three small changes to the journal, chosen in a run's form: disable, enable, or announce a restart."""

from __future__ import annotations

from collections.abc import Sequence
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

__all__ = ["CONTROL_ACTIONS", "ControlClusterOperator"]

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
