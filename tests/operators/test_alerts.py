"""The task that tells people of the watch's alerts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowSkipException

from kafka_steward.errors import JournalUnreachable
from kafka_steward.execution.alerts import ALERTS, Condition, list_untold, update_alerts
from kafka_steward.hooks.steward import StewardHook
from kafka_steward.journal.store import Journal
from kafka_steward.operators.alerts import SendAlertsOperator
from tests.airflow_home import context
from tests.simulated_plan import memory_journal
from tests.simulator import Simulator

FOUND = [Condition("outage", "Two brokers are down."), Condition("stuck", "Plan 3f2a is stuck.", "3f2a91")]


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch) -> Journal:
    simulator = Simulator.of("1a", "t: 1")
    journal = memory_journal(simulator)
    monkeypatch.setattr(StewardHook, "cluster_id", lambda _: "simulated")
    monkeypatch.setattr(StewardHook, "journal", lambda *_: journal)
    return journal


def tell(*notifiers: Any) -> Any:
    return SendAlertsOperator(task_id="tell", conn_id="kafka", on_alert=notifiers).execute(context())


def test_each_alert_is_told_once_and_so_is_its_end(journal: Journal) -> None:
    told: list[Any] = []
    update_alerts(journal, FOUND, journal.now_ms())
    assert tell(lambda given: told.append(given["kafka_steward"])) == [each.sentence for each in FOUND]
    assert [(each["event"], each["conn_id"], each.get("digest")) for each in told] == [
        ("outage", "kafka", None),
        ("stuck", "kafka", "3f2a91"),
    ]
    with pytest.raises(AirflowSkipException):
        tell(told.append)
    update_alerts(journal, FOUND[:1], journal.now_ms())
    tell(lambda given: told.append(given["kafka_steward"]))
    assert (told[-1]["event"], told[-1]["of"], told[-1]["digest"]) == ("recovered", "stuck", "3f2a91")
    assert [each.key[0] for each in ALERTS.list_valid(journal.tree)] == ["outage"]


def test_an_alert_that_no_notifier_could_send_is_sent_again(journal: Journal) -> None:
    def broken(_: Any) -> None:
        raise ConnectionError

    update_alerts(journal, FOUND[:1], journal.now_ms())
    with pytest.raises(AirflowException, match="No notifier could send"):
        tell(broken, broken)
    assert len(list_untold(journal)) == 1
    told: list[Any] = []
    tell(broken, told.append)
    assert len(told) == 1
    assert list_untold(journal) == []


def test_while_the_journal_is_away_what_the_event_says_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: Any) -> Any:
        raise JournalUnreachable("It is away.")

    monkeypatch.setattr(StewardHook, "cluster_id", away)
    found = {"kind": "watch_failing", "subject": "alerts", "sentence": "The journal is away."}
    mine = SimpleNamespace(extra={"payload": {"conn_id": "kafka", "unrecorded": [found]}})
    others = SimpleNamespace(extra={"payload": {"conn_id": "other", "unrecorded": [found]}})
    told: list[Any] = []
    given = context()
    operator = SendAlertsOperator(task_id="tell", conn_id="kafka", on_alert=told.append)
    with pytest.raises(JournalUnreachable):
        operator.execute(given)
    given["dag_run"].consumed_asset_events = [mine, mine, others]
    assert operator.execute(given) == ["The journal is away."]
    assert [each["kafka_steward"]["event"] for each in told] == ["watch_failing"]
