"""The real hooks of Airflow's providers send to servers on this machine that play Slack, Teams, PagerDuty and mail."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pagerduty
import pytest

from kafka_steward.errors import NotificationFailed, SettingError
from kafka_steward.notifications.steward import StewardNotifier
from kafka_steward.operators.base import notify
from tests.airflow_home import Connect, context
from tests.notifications.endpoints import Endpoint, mail_server, web_endpoint

SECRET = "T0000-signature-0000"


@pytest.fixture
def web() -> Iterator[Endpoint]:
    with web_endpoint() as endpoint:
        yield endpoint


def given(event: str, **facts: Any) -> dict[str, Any]:
    return {**context(), "task": SimpleNamespace(conn_id="kafka_prod"), "kafka_steward": {"event": event, **facts}}


@pytest.fixture
def slack(connect: Connect, web: Endpoint) -> str:
    return connect("slack_ops", conn_type="slackwebhook", host=web.url, password=f"/services/{SECRET}")


@pytest.fixture
def teams(connect: Connect, web: Endpoint) -> str:
    path = f"/workflows/1/triggers/manual/paths/invoke?sig={SECRET}"
    return connect("teams_ops", conn_type="http", host=web.url, password=path)


@pytest.mark.process
def test_slack(slack: str, web: Endpoint) -> None:
    StewardNotifier(slack_conn_id=slack)(given("healed", sentence="Healed <broker> 3."))
    ((path, body),) = web.posted
    assert path == f"/services/{SECRET}"
    assert body["text"] == "kafka_prod: Healed"
    assert body["blocks"][1]["text"] == {"type": "plain_text", "text": "Healed <broker> 3.", "emoji": False}


@pytest.mark.process
def test_teams(teams: str, web: Endpoint) -> None:
    StewardNotifier(teams_conn_id=teams)(given("stuck", sentence="Plan 3f2a is stuck."))
    ((path, body),) = web.posted
    assert path == f"/workflows/1/triggers/manual/paths/invoke?sig={SECRET}"
    assert body["attachments"][0]["content"]["body"][1]["inlines"][0]["text"] == "Plan 3f2a is stuck."


@pytest.mark.process
def test_pagerduty_gets_problems_and_their_ends_with_one_key(
    connect: Connect, web: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Its client takes addresses with TLS only.
    monkeypatch.setattr(pagerduty.EventsApiV2Client, "url", property(lambda _: web.url, lambda *_: None))
    web.status, web.answer = 202, '{"status": "success", "dedup_key": "x", "message": "ok"}'
    notifier = StewardNotifier(pagerduty_conn_id=connect("pages", conn_type="pagerduty_events", password="k" * 32))
    for event in ("started", "stuck", "stuck", "done"):
        notifier(given(event, sentence="It was so.", digest="3f2a91c04d5e6f"))
    sent = [(path, body["event_action"], body["dedup_key"]) for path, body in web.posted]
    key = "kafka-steward:kafka_prod:plan:3f2a91c04d5e"
    assert sent == [("/v2/enqueue", action, key) for action in ("trigger", "trigger", "resolve")]
    payload = web.posted[0][1]["payload"]
    assert (payload["severity"], payload["summary"]) == ("error", "kafka_prod: Plan stuck: It was so.")


@pytest.mark.process
def test_mail(connect: Connect) -> None:
    with mail_server() as (port, taken):
        extra = {"disable_ssl": True, "disable_tls": True, "from_email": "steward@example.com"}
        conn_id = connect("mails", conn_type="smtp", host="127.0.0.1", port=port, extra=extra)
        notifier = StewardNotifier(smtp_conn_id=conn_id, to="ops@example.com")
        for _ in range(2):
            notifier(given("cancelled", sentence="<b>Cancelled</b>\r\nBcc: evil@example.com"))
    first, second = taken
    assert first["Subject"] == "[Kafka Steward] kafka_prod: Plan cancelled"
    assert (first["To"], first["Bcc"]) == ("ops@example.com", None)
    assert first["Message-ID"] == second["Message-ID"], "a copy is known as one"
    html: Any = first.get_body(("html",))
    assert "&lt;b&gt;Cancelled&lt;/b&gt;\\x0d\\x0aBcc" in html.get_content()


@pytest.mark.process
def test_a_channel_that_fails_is_named_without_its_address_and_the_others_get_the_message(
    connect: Connect, teams: str, web: Endpoint
) -> None:
    away = connect("slack_away", conn_type="slackwebhook", host="http://127.0.0.1:1", password=f"/services/{SECRET}")
    with pytest.raises(NotificationFailed) as failed:
        StewardNotifier(slack_conn_id=away, teams_conn_id=teams)(given("healed", sentence="x"))
    assert "could not be sent to Slack by the connection slack_away" in str(failed.value)
    assert SECRET not in str(failed.value)
    assert len(web.posted) == 1


@pytest.mark.process
def test_a_refusal_is_an_error_without_the_address(slack: str, teams: str, web: Endpoint) -> None:
    web.status, web.answer = 403, f"no {SECRET}"
    with pytest.raises(NotificationFailed) as failed:
        StewardNotifier(slack_conn_id=slack, teams_conn_id=teams)(given("healed", sentence="x"))
    assert str(failed.value).count("could not be sent") == 2
    assert SECRET not in str(failed.value)


@pytest.mark.process
def test_a_missing_package_is_one_sentence_with_the_extras_name(slack: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "airflow.providers.slack.hooks.slack_webhook", None)
    with pytest.raises(NotificationFailed, match=r"install airflow-provider-kafka-steward\[slack\]"):
        StewardNotifier(slack_conn_id=slack)(given("healed", sentence="x"))


@pytest.mark.process
def test_a_failed_notification_fails_no_task(connect: Connect) -> None:
    connect("nowhere", conn_type="slackwebhook", host="http://127.0.0.1:1", password="/x")
    notify([StewardNotifier(slack_conn_id="nowhere")], context(), "healed", {"sentence": "x"})


@pytest.mark.process
def test_only_the_chosen_events_are_sent(slack: str, web: Endpoint) -> None:
    notifier = StewardNotifier(slack_conn_id=slack, events=["healed"])
    notifier(given("started", sentence="x"))
    notifier(given("healed", sentence="x"))
    assert [body["text"] for _, body in web.posted] == ["kafka_prod: Healed"]


@pytest.mark.process
def test_a_secret_that_airflow_knows_is_masked_in_the_facts(slack: str, web: Endpoint) -> None:
    from airflow.sdk.log import mask_secret

    mask_secret("hunter2hunter2")
    StewardNotifier(slack_conn_id=slack)(given("healed", sentence="It said hunter2hunter2."))
    assert "hunter2" not in str(web.posted)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({}, "needs a channel"),
        ({"smtp_conn_id": "m"}, "needs both smtp_conn_id and addresses"),
        ({"slack_conn_id": "s", "to": "a@b"}, "needs both smtp_conn_id and addresses"),
        ({"slack_conn_id": "s", "events": ["heeled"]}, "'heeled' is no list of events"),
        ({"slack_conn_id": "s", "events": "healed"}, "'healed' is no list of events"),
    ],
)
def test_a_wrong_argument_is_refused_when_the_dag_file_is_parsed(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        StewardNotifier(**wrong)
