"""The watch starts the DAG `alert` in a real Airflow, which sends a message to an endpoint that plays Slack."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_steward.assignment import Move
from kafka_steward.execution.watch.alerts import ALERTS
from kafka_steward.journal.records import PlanRecord, PlanStatus
from tests.airflow.conftest import Desk
from tests.eventually import eventually
from tests.notifications.endpoints import Endpoint, web_endpoint

pytestmark = [pytest.mark.airflow, pytest.mark.ci]

DAGS = """\
# An Airflow DAG that notifies people.
from kafka_steward.dags import alert
from kafka_steward.notifications.steward import StewardNotifier
alert("{conn_id}", dag_id="alert", notify=StewardNotifier(slack_conn_id="slack_ops"), retries=0)
"""
DIGEST = "3f2a91c0" * 8


@pytest.mark.in_ci("kraft")
def test_a_stuck_plan_is_reported_once_and_so_is_its_end(desk: Desk) -> None:
    with web_endpoint() as slack, desk.opened() as opened:
        desk.connect("slack_ops", conn_type="slackwebhook", host=slack.url, password="/services/x")
        plans = opened.journal.plans
        moves = [Move("t", 0, (1, 2), (1, 3), 0, 0, "balance")]
        record = plans.publish(PlanRecord(DIGEST, opened.cluster.cluster_id, "rebalance"), moves)
        record = plans.update(record, status=PlanStatus.STUCK, reason="It is stuck <!channel>.")
        desk.add_dags("alert", DAGS.format(conn_id=desk.conn_id), "alert")
        desk.pause("alert", paused=False)
        eventually(lambda: _assert_titles(slack, f"{desk.conn_id}: Plan stuck"), within=180, every=1)
        assert {"type": "plain_text", "text": "It is stuck <!channel>.", "emoji": False} in [
            block.get("text") for block in slack.posted[0][1]["blocks"]
        ]
        plans.update(record, status=PlanStatus.ABANDONED, reason="It was given up.")
        ended = f"{desk.conn_id}: Works again (Plan stuck)"
        eventually(lambda: _assert_titles(slack, f"{desk.conn_id}: Plan stuck", ended), within=120, every=1)
        eventually(lambda: _assert_equal(opened.journal.rows(ALERTS).all(), []), within=30, every=1)
        desk.pause("alert", paused=True)


def _assert_titles(slack: Endpoint, *titles: str) -> None:
    assert [body["text"] for _, body in slack.posted] == list(titles)


def _assert_equal(found: Any, wanted: Any) -> None:
    assert found == wanted
