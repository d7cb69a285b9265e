"""What a notification says, from a context of Airflow to the text of each channel, and that each channel gets it."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pagerduty
import pytest

from kafka_steward.errors import NotificationFailed, SettingError
from kafka_steward.notifications.channels import email_html, pagerduty_actions, slack_blocks, teams_card
from kafka_steward.notifications.message import EVENT_KINDS, Message, Severity, build_message
from kafka_steward.notifications.steward import StewardNotifier
from kafka_steward.operators.base import notify
from tests.airflow_home import Connect, context
from tests.notifications.endpoints import Endpoint, mail_server, web_endpoint

#: A topic name or a reason as someone writes it who means harm.
HOSTILE = "<!channel> <http://evil|x> *b* [l](http://e) </td><script>alert(1)</script>\r\nBcc: x\u202e & {{ 7 }}"


def given(event: str, **facts: Any) -> dict[str, Any]:
    task = SimpleNamespace(conn_id="kafka_prod")
    return {**context(), "task": task, "kafka_steward": {"event": event, **facts}}


def test_it_names_cluster_event_facts_and_run() -> None:
    message = build_message(given("failure_detected", sentence="Broker 3 is down.", brokers=[3], cluster_id="Qx"))
    assert (message.title, message.severity) == ("kafka_prod: Broker failure detected", Severity.WARNING)
    assert message.sentence == "Broker 3 is down."
    assert dict(message.facts) == {"Cluster id": "Qx", "Brokers": "3", "Run": "heal manual__2026-11-21T08:00:00+00:00"}


def test_it_shows_no_fact_that_is_not_meant_to_be_shown() -> None:
    message = build_message(
        given("done", sentence="Done.", uri="s3://k:secret@b", measures={"a": 1}, password="secret")
    )
    assert "secret" not in repr(message)


def test_a_password_in_a_url_of_a_sentence_is_left_out() -> None:
    message = build_message(given("stuck", sentence="The journal at postgresql://steward:secret@db/x is away."))
    assert message.sentence == "The journal at postgresql://***@db/x is away."


@pytest.mark.parametrize("event", EVENT_KINDS)
def test_a_repeated_event_has_the_same_keys_and_another_run_another_key(event: str) -> None:
    facts = {"sentence": "x", "digest": "3f2a91c04d5e6f", "of": "outage", "subject": ""}
    once, again = build_message(given(event, **facts)), build_message(given(event, **facts))
    assert (once.key, once.opens, once.closes) == (again.key, again.opens, again.closes)
    other = given(event, **facts)
    other["ti"].run_id = "another"
    assert build_message(other).key != once.key


@pytest.mark.parametrize(
    ("opening", "closing"),
    [("failure_detected", "healed"), ("not_healable", "healed"), ("stuck", "done"), ("stalled", "rolled_back")],
)
def test_what_ends_a_problem_closes_what_opened_it(opening: str, closing: str) -> None:
    opened = build_message(given(opening, digest="3f2a91c04d5e6f", sentence="x"))
    closed = build_message(given(closing, plan="3f2a91c04d5e6f", sentence="x"))
    assert opened.opens in closed.closes
    assert ("resolve", opened.opens) in pagerduty_actions(closed)


def test_a_recovery_closes_the_alert_that_it_names() -> None:
    opened = build_message(given("heal_overdue", conn_id="kafka_prod", subject="3", sentence="x"))
    closed = build_message(given("recovered", of="heal_overdue", conn_id="kafka_prod", subject="3", sentence="x"))
    assert closed.closes == (opened.opens,)
    assert closed.title == "kafka_prod: Works again (Heal overdue)"


def test_the_callback_of_a_dag_says_which_run_failed_and_not_why() -> None:
    run = SimpleNamespace(dag_id="heal", run_id="scheduled__1")
    message = build_message({"dag_run": run, "exception": "secret"}, "http://airflow.example.com/")
    assert message.sentence == "A run of the DAG heal failed; its log says why."
    assert (message.event, message.opens) == ("failed", "kafka-steward:heal:run:heal")
    assert message.link == "http://airflow.example.com/dags/heal"


def test_an_approval_links_to_its_answer_and_no_other_scheme_is_a_link() -> None:
    message = build_message(given("approval_asked", sentence="Move?", link="http://a/required_actions"))
    assert (message.link, message.link_label) == ("http://a/required_actions", "Answer in Airflow")
    other = given("done", sentence="x")
    other["ti"].log_url = "javascript:alert(1)"
    assert build_message(other).link == ""


DIGEST = "3f2a91c0" * 8
#: The events that concern a plan, each with the fact that names it.
ABOUT_PLANS = dict.fromkeys(
    ("approval_asked", "started", "stalled", "stuck", "no_process", "healed"), "digest"
) | dict.fromkeys(("cancelled", "rolled_back"), "plan")


@pytest.mark.parametrize(("event", "name"), ABOUT_PLANS.items())
def test_what_concerns_a_plan_links_to_its_page_in_each_channel(event: str, name: str) -> None:
    message = build_message(given(event, sentence="x", **{name: DIGEST}), "https://a.example.com/team/")
    url = f"https://a.example.com/team/kafka-steward/plan?conn=kafka_prod&digest={DIGEST}"
    assert message.plan_link == url
    assert (url, "Plan in Airflow") in message.links
    assert f"<{url.replace('&', '&amp;')}|Plan in Airflow>" in slack_blocks(message)[-1]["text"]["text"]
    actions = teams_card(message)["attachments"][0]["content"]["actions"]
    assert {"type": "Action.OpenUrl", "title": "Plan in Airflow", "url": url} in actions
    assert f'href="{url.replace("&", "&amp;")}"' in email_html(message)


@pytest.mark.parametrize("base_url", [None, "", "airflow", "javascript:alert(1)//"])
def test_an_airflow_that_does_not_know_its_address_links_to_no_page(base_url: str | None) -> None:
    message = build_message(given("started", sentence="x", digest=DIGEST), base_url)
    assert message.plan_link == ""


def test_what_concerns_no_plan_or_no_known_connection_links_to_no_page() -> None:
    base_url = "https://a.example.com"
    assert build_message(given("failure_detected", sentence="x"), base_url).plan_link == ""
    dag_only = {"kafka_steward": {"event": "started", "digest": DIGEST}}
    assert build_message({**context(), **dag_only}, base_url).plan_link == ""


def test_a_hostile_connection_does_not_break_out_of_the_link() -> None:
    named = given("started", sentence="x", digest=DIGEST, conn_id=HOSTILE)
    link = build_message(named, "https://a.example.com").plan_link
    assert link.isascii()
    assert not set("<>|*[]()\"' \r\n") & set(link)


def hostile() -> Message:
    return build_message(given("cancelled", sentence=HOSTILE, asked_by=HOSTILE, link="http://a/x?y=<z>|"))


def test_slack_gets_plain_text_only_except_for_the_link() -> None:
    blocks = slack_blocks(hostile())
    marked = [found for found in _texts(blocks) if found.get("type") == "mrkdwn"]
    assert [found["text"] for found in marked] == ["<http://a/x?y=&lt;z&gt;%7C|Answer in Airflow>"]
    plain = [found["text"] for found in _texts(blocks) if found.get("type") == "plain_text"]
    assert any("<!channel>" in text for text in plain)
    assert not any("\n" in text or "\u202e" in text for text in plain)
    assert all(len(block["fields"]) <= 10 for block in blocks if "fields" in block)


def test_teams_gets_no_element_that_interprets_markdown() -> None:
    card = teams_card(hostile())["attachments"][0]["content"]
    assert {element["type"] for element in card["body"]} == {"RichTextBlock"}
    assert {found["type"] for element in card["body"] for found in element["inlines"]} == {"TextRun"}


def test_an_e_mail_is_escaped() -> None:
    text = email_html(hostile())
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    assert re.findall(r'href="([^"]*)"', text) == ["http://a/x?y=&lt;z&gt;|"]


def test_every_text_has_a_limit() -> None:
    message = build_message(given("done", sentence="x" * 9_000, brokers=list(range(500)), status="y" * 9_000))
    assert len(message.sentence) == 2_000
    assert all(len(value) <= 300 for _, value in message.facts)
    assert len(json.dumps(teams_card(message))) < 20_000


def _texts(found: Any) -> list[dict[str, Any]]:
    if isinstance(found, list):
        return [text for each in found for text in _texts(each)]
    if isinstance(found, dict):
        own = [found] if isinstance(found.get("text"), str) else []
        return own + [text for each in found.values() for text in _texts(each)]
    return []


SECRET = "T0000-signature-0000"


@pytest.fixture
def web() -> Iterator[Endpoint]:
    with web_endpoint() as endpoint:
        yield endpoint


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
