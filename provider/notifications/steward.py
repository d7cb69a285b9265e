"""The notifier: one message for Slack, Microsoft Teams, PagerDuty and e-mail."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from airflow.sdk import BaseNotifier
from airflow.sdk.log import redact  # type: ignore[attr-defined]

from kafka_steward.airflow_versions import conf
from kafka_steward.errors import NotificationFailed, SettingError
from kafka_steward.escaping import printable
from kafka_steward.notifications.channels import Channel, Email, PagerDuty, Slack, Teams
from kafka_steward.notifications.message import EVENT_KINDS, Message, build_message

__all__ = ["StewardNotifier"]


class StewardNotifier(BaseNotifier):
    """Sends the events of workflows to Slack, Microsoft Teams, PagerDuty and e-mail, as a workflow's `notify`.

    Each channel is the id of an Airflow connection: `slack_conn_id` (type slackwebhook), `teams_conn_id` (http),
    `pagerduty_conn_id` (pagerduty_events), `smtp_conn_id` (smtp), which needs addresses `to`. They use Airflow's
    providers, which are installed by the extras `slack`, `teams`, `pagerduty` and `smtp`, and imported when a message
    is sent. `events` are the events to send, of `kafka_steward.notifications.message.EVENT_KINDS`; None: all.

    A message holds no secret: it names the facts of an event, and neither settings nor exceptions. PagerDuty gets
    problems and their ends only, with one key for each problem, so that a repeated callback adds no incident. A channel
    that fails does not keep the others from their message. Raises SettingError for a wrong argument, when the DAG file
    is parsed, and NotificationFailed once all channels were tried.

    >>> StewardNotifier(slack_conn_id="slack_ops", events=["healed"]).events
    frozenset({'healed'})
    """

    def __init__(
        self,
        *,
        slack_conn_id: str | None = None,
        teams_conn_id: str | None = None,
        pagerduty_conn_id: str | None = None,
        smtp_conn_id: str | None = None,
        to: Sequence[str] | str = (),
        events: Collection[str] | None = None,
    ) -> None:
        super().__init__()
        addresses = (to,) if isinstance(to, str) else tuple(to)
        kinds: tuple[tuple[Callable[[str], Channel], str | None], ...] = (
            (Slack, slack_conn_id),
            (Teams, teams_conn_id),
            (PagerDuty, pagerduty_conn_id),
            (lambda conn_id: Email(conn_id, addresses), smtp_conn_id),
        )
        self.channels = tuple(kind(conn_id) for kind, conn_id in kinds if conn_id)
        if not self.channels:
            raise SettingError(
                "A StewardNotifier needs a channel: slack_conn_id, teams_conn_id, pagerduty_conn_id or smtp_conn_id."
            )
        if bool(smtp_conn_id) != bool(addresses):
            raise SettingError("A StewardNotifier for e-mail needs both smtp_conn_id and addresses, as to=[...].")
        unknown = [events] if isinstance(events, str) else sorted(set(events or ()) - EVENT_KINDS.keys())
        if unknown:
            raise SettingError(f"{unknown[0]!r} is no list of events; there are {', '.join(EVENT_KINDS)}.")
        self.events = None if events is None else frozenset(events)

    def __repr__(self) -> str:
        return f"StewardNotifier({', '.join(map(repr, self.channels))})"

    def notify(self, context: Any) -> None:
        """Send the event in `context` to all channels."""
        # Every secret that Airflow knows is masked in the facts of the event.
        payload = context.get("kafka_steward")
        masked = {**context, "kafka_steward": redact(payload)} if payload else context
        message = build_message(masked, conf.get("api", "base_url", fallback=None))
        if self.events is not None and message.event not in self.events:
            return
        errors = [error for channel in self.channels if (error := _send(channel, message))]
        if errors:
            raise NotificationFailed(" ".join(errors))


def _send(channel: Channel, message: Message) -> str:
    """Send a message; return the sentence of the error, empty if there was none."""
    try:
        channel.send(message)
    except NotificationFailed as error:
        return printable(str(error))
    except Exception as error:  # noqa: BLE001 - any error of three providers; its text may contain the webhook's address
        status = getattr(getattr(error, "response", None), "status_code", None)
        code = f" with the status {status}" if status else ""
        where = f"the connection {getattr(channel, 'conn_id', '?')}"
        return printable(
            f"The event {message.event} could not be sent to {type(channel).__name__} by {where} "
            f"({type(error).__name__}{code}); check the connection, and that its server can be reached from here."
        )
    return ""
