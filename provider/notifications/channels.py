"""The channels of a notification: its text in the format of each, and how Airflow's own providers send it.

What others wrote (topic names, reasons, user names) is never interpreted: Slack and Teams get elements of plain text,
e-mails are escaped. Airflow's providers are imported when a message is sent.
"""

from __future__ import annotations

import html
import importlib
import json
from dataclasses import dataclass
from typing import Any, Protocol

from kafka_steward.errors import NotificationFailed
from kafka_steward.notifications.message import Message, Severity

#: Seconds until a server that does not answer is given up.
_TIMEOUT_S = 15
#: Characters of a Slack header and of PagerDuty's summary.
_HEADER, _SUMMARY = 150, 1_000


class Channel(Protocol):
    """A place that messages are sent to."""

    def send(self, message: Message) -> None:
        """Send a message. Raises NotificationFailed, or any error of Airflow's provider."""


@dataclass(frozen=True)
class Slack:
    """Slack, through an incoming webhook: a connection of type `slackwebhook`."""

    conn_id: str

    def send(self, message: Message) -> None:
        """Send a message as blocks of plain text."""
        module = _load("airflow.providers.slack.hooks.slack_webhook", "slack")
        module.SlackWebhookHook(slack_webhook_conn_id=self.conn_id, timeout=_TIMEOUT_S).send(
            text=_escape_slack(message.title), blocks=slack_blocks(message), unfurl_links=False, unfurl_media=False
        )


@dataclass(frozen=True)
class Teams:
    """Microsoft Teams, through a workflow's webhook: a connection of type `http`.

    Its host is the scheme and host of the webhook, and its password is the rest, which contains the signature.
    """

    conn_id: str

    def send(self, message: Message) -> None:
        """Send a message as an adaptive card."""
        module = _load("airflow.providers.http.hooks.http", "teams")
        hook = module.HttpHook(method="POST", http_conn_id=self.conn_id)
        connection = hook.get_connection(self.conn_id)
        hook.run(
            connection.password or "",
            data=json.dumps(teams_card(message)),
            headers={"Content-Type": "application/json"},
            extra_options={"timeout": _TIMEOUT_S},
        )


@dataclass(frozen=True)
class PagerDuty:
    """PagerDuty's Events API, version 2: a connection of type `pagerduty_events`.

    An event that opens a problem triggers an incident, with the problem's key; one that ends it resolves the incident.
    Other events are not sent.
    """

    conn_id: str

    def send(self, message: Message) -> None:
        """Trigger or resolve an incident."""
        if not (message.opens or message.closes):
            return
        module = _load("airflow.providers.pagerduty.hooks.pagerduty_events", "pagerduty")
        hook = module.PagerdutyEventsHook(pagerduty_events_conn_id=self.conn_id)
        for action, key in pagerduty_actions(message):
            hook.send_event(
                summary=f"{message.title}: {message.sentence}"[:_SUMMARY],
                severity=message.severity.value,
                source=message.source,
                action=action,
                dedup_key=key,
                component="kafka",
                group=message.source,
                class_type=message.event,
                custom_details=dict(message.facts),
                links=[{"href": url, "text": label} for url, label in message.links] or None,
            )


@dataclass(frozen=True)
class Email:
    """E-mail, through a connection of type `smtp`, to the addresses `to`."""

    conn_id: str
    to: tuple[str, ...]

    def send(self, message: Message) -> None:
        """Send a message as HTML. A repeated event has the same Message-ID, by which mail servers drop the copy."""
        module = _load("airflow.providers.smtp.hooks.smtp", "smtp")
        with module.SmtpHook(smtp_conn_id=self.conn_id) as hook:
            hook.send_email_smtp(
                to=list(self.to),
                subject=f"[Kafka Steward] {message.title}",
                html_content=email_html(message),
                mime_subtype="alternative",
                custom_headers={
                    "Message-ID": f"<{message.key}@kafka-steward.invalid>",
                    "X-Kafka-Steward-Event": message.event,
                },
            )


def slack_blocks(message: Message) -> list[dict[str, Any]]:
    """Return the blocks of a message for Slack. Pure."""
    mark = {Severity.INFO: "", Severity.WARNING: "⚠ "}.get(message.severity, "🔴 ")
    blocks: list[dict[str, Any]] = [
        {"type": "header", "text": _plain(f"{mark}{message.title}"[:_HEADER])},
        {"type": "section", "text": _plain(message.sentence)},
    ]
    if message.facts:
        fields = [_plain(f"{label}: {value}") for label, value in message.facts]
        # Slack takes at most ten fields in a section.
        blocks += [{"type": "section", "fields": fields[at : at + 10]} for at in range(0, len(fields), 10)]
    if message.links:
        links = " · ".join(f"<{_escape_slack(url).replace('|', '%7C')}|{label}>" for url, label in message.links)
        blocks.append({"type": "section", "text": {"type": "mrkdwn", "text": links, "verbatim": True}})
    return blocks


def _plain(text: str) -> dict[str, Any]:
    return {"type": "plain_text", "text": text or " ", "emoji": False}


def _escape_slack(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def teams_card(message: Message) -> dict[str, Any]:
    """Return a message for the webhook of a workflow of Teams: one adaptive card. Pure."""
    color = {Severity.INFO: "good", Severity.WARNING: "warning"}.get(message.severity, "attention")
    body = [
        _rich_text(message.title, size="large", weight="bolder", color=color),
        _rich_text(message.sentence),
        *(_rich_text(f"{label}: {value}", isSubtle=True) for label, value in message.facts),
    ]
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": body,
        "actions": [{"type": "Action.OpenUrl", "title": label, "url": url} for url, label in message.links],
    }
    return {
        "type": "message",
        "attachments": [
            {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
        ],
    }


def _rich_text(text: str, **style: Any) -> dict[str, Any]:
    # A TextBlock and a FactSet interpret Markdown; a TextRun does not.
    return {"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": text, **style}]}


def pagerduty_actions(message: Message) -> list[tuple[str, str]]:
    """Return the actions of the Events API for a message, each with its `dedup_key`. Pure."""
    opened = [("trigger", message.opens)] if message.opens else []
    return opened + [("resolve", key) for key in message.closes]


def email_html(message: Message) -> str:
    """Return the HTML of an e-mail. Pure."""
    rows = "".join(
        f"<tr><td>{html.escape(label)}</td><td>{html.escape(value)}</td></tr>" for label, value in message.facts
    )
    links = "".join(f'<p><a href="{html.escape(url)}">{html.escape(label)}</a></p>' for url, label in message.links)
    title, sentence = html.escape(message.title), html.escape(message.sentence)
    return f"<h3>{title}</h3><p>{sentence}</p><table>{rows}</table>{links}"


def _load(module: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise NotificationFailed(
            f"A notification needs a package that is not installed ({error.name or module}); install "
            f"airflow-provider-kafka-steward[{extra}] where Airflow's tasks, triggers and DAG files run."
        ) from None
