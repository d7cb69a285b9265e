"""Every query of the dashboard of the journal, on a real PostgreSQL, as the user that may only read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from kafka_steward.assignment import Move
from kafka_steward.execution.watch.alerts import Condition, update_alerts
from kafka_steward.journal.audit import Action, Actor, AuditRecord
from kafka_steward.journal.observed import CheckReport, ProgressReport
from kafka_steward.journal.records import MoveState, PlanRecord, PlanStatus
from kafka_steward.journal.store import Journal, open_journal
from kafka_steward.monitoring import list_files
from tests.postgres import PostgresServer

pytestmark = pytest.mark.process

FILES = {path.name: path for path in list_files()}
BOARD = json.loads(FILES["grafana-journal.json"].read_text())
CLUSTER, DIGEST = "it's-a-cluster", "3f2a91c0" * 8
#: A cluster whose tree is elsewhere, as with ZooKeeper: none of its documents is in SQL.
TREELESS, PROPOSED = "treeless", "7c1b04de" * 8
QUERIES = {panel["title"]: target["rawSql"] for panel in BOARD["panels"] for target in panel["targets"]} | {
    each["name"]: each["target"]["rawSql"] for each in BOARD["annotations"]["list"]
}
WHO = Actor("rebalance", "manual", "submit", 1, "ada")
MOVES = [Move("t", at, (1, 2), (1, 3), 0, at, "balance", None, 100) for at in range(3)]
MEASURES = {"failed_brokers": 1, "under_replicated_partitions": 3, "reassignment_bytes_in_per_sec.4": 10.5}
MEASURES |= {"leader_bytes_in_per_sec.4": 20.5, "follower_bytes_in_per_sec.4": 30.5}


@pytest.fixture(scope="module")
def reader() -> Iterator[psycopg.Connection[Any]]:
    """A journal with one of each, and a session of the user of grafana-reader.sql."""
    with PostgresServer() as server:
        url = server.new_database()
        with open_journal(url, CLUSTER) as journal:
            fill(journal)
            update_alerts(journal, [Condition("outage", 'Two "brokers" are down.')], journal.now_ms())
        with open_journal(url, TREELESS) as journal:
            fill(journal)
            plan_reports = journal.plan_reports
            watch_reports = journal.watch_reports
            assert plan_reports is not None
            assert watch_reports is not None
            journal.plans.ask(PROPOSED, "drain", 7, asked_by=WHO)
            journal.plans.ask("5" * 64, "drain", 7, asked_by=WHO, expires_in_ms=-1)
            watch_reports.put_check(CheckReport("kafka_c", "failures"))
            watch_reports.put_failure("kafka_c", "failures", "Kafka is away.", failures=3)
            stuck = journal.plans.publish(PlanRecord("6" * 64, TREELESS, "rebalance"), MOVES)
            journal.plans.update(stuck, status=PlanStatus.STUCK, reason="It needs an operator.")
            ended = journal.plans.publish(PlanRecord("8" * 64, TREELESS, "rebalance"), MOVES)
            journal.plans.update(ended, status=PlanStatus.CANCELLED)
        plain = url.replace("+psycopg", "")
        with psycopg.connect(plain, autocommit=True) as owner:
            owner.execute(FILES["grafana-reader.sql"].read_text().encode())
        with psycopg.connect(plain.replace("//steward@", "//grafana_reader@"), autocommit=True) as session:
            yield session


def fill(journal: Journal) -> None:
    """A health check, a plan that runs, and a row of the audit trail."""
    assert journal.health is not None
    journal.health.add_measures(MEASURES, every_ms=1, retention_ms=86_400_000)
    record = journal.plans.publish(PlanRecord(DIGEST, journal.cluster_id, "rebalance"), MOVES)
    journal.plans.update(record, status=PlanStatus.RUNNING)
    journal.plans.set_move_states(DIGEST, [MOVES[0].topic_partition], MoveState.COMPLETED, fence=None)
    assert journal.plan_reports is not None
    journal.plan_reports.put_progress(ProgressReport(DIGEST, bytes_per_s=7, eta_s=28))
    journal.audit.record(AuditRecord(Action.PUBLISH, 'it\'s "published"', plan=DIGEST, who=WHO))


def rows(reader: psycopg.Connection[Any], query: str, cluster: str = CLUSTER) -> list[dict[str, Any]]:
    """The rows, after Grafana's macros and variables were replaced as Grafana does."""
    text = query.replace("${cluster:sqlstring}", "'" + cluster.replace("'", "''") + "'")
    text = text.replace("$__unixEpochFrom()", "0").replace("$__unixEpochTo()", "4000000000")
    assert not re.search(r"\$[_{a-z]", text)
    cursor = reader.execute(text.encode())
    names = [each.name for each in cursor.description or ()]
    return [dict(zip(names, row, strict=True)) for row in cursor]


@pytest.mark.parametrize("title", QUERIES)
def test_each_query_runs_and_one_of_a_series_has_a_time(reader: psycopg.Connection[Any], title: str) -> None:
    found = rows(reader, QUERIES[title])
    panel = next((each for each in BOARD["panels"] if each["title"] == title), {"type": "annotation"})
    if title not in {"Plans ended, by status", "Bytes per second out of each broker"}:
        assert found, "the journal has such a thing"
    if panel["type"] in {"timeseries", "annotation"}:
        assert all("time" in row for row in found)


def test_the_variable_lists_the_clusters(reader: psycopg.Connection[Any]) -> None:
    (query,) = [each["query"] for each in BOARD["templating"]["list"] if each["name"] == "cluster"]
    assert rows(reader, query) == [{"cluster_id": CLUSTER}, {"cluster_id": TREELESS}]


def test_they_say_what_is_in_the_journal(reader: psycopg.Connection[Any]) -> None:
    (now,) = rows(reader, QUERIES["Now"])
    assert (now["Failed brokers"], now["Under-replicated"], now["Offline"]) == (1, 3, None)
    (plan,) = rows(reader, QUERIES["Plans that have not ended"])
    expected = {"plan": DIGEST[:12], "operation": "rebalance", "status": "running", "partitions": 3, "settled": 1}
    assert {name: plan[name] for name in expected} == expected
    assert (plan["bytes"], plan["bytes done"], plan["bytes per second"], plan["seconds left"]) == (300, 100, 7, 28)
    (rate,) = rows(reader, QUERIES["Bytes per second into each broker"])
    assert (rate["metric"], rate["value"]) == ("broker 4", 10.5)
    (alert,) = rows(reader, QUERIES["Alerts"])
    assert alert["alert"] == "outage"
    (annotation,) = rows(reader, QUERIES["Audit trail"])
    assert annotation["text"] == f'publish {DIGEST[:12]}: it\'s "published"'


def test_with_documents_in_zookeeper_plans_are_shown_too_and_no_alerts_of_another_cluster(
    reader: psycopg.Connection[Any],
) -> None:
    plans = {row["plan"]: row for row in rows(reader, QUERIES["Plans that have not ended"], TREELESS)}
    assert {plan: row["status"] for plan, row in plans.items()} == {
        DIGEST[:12]: "running",
        PROPOSED[:12]: "waits for approval",
        "6" * 12: "stuck",
    }
    assert (plans[DIGEST[:12]]["settled"], plans[DIGEST[:12]]["bytes done"]) == (1, 100)
    assert rows(reader, QUERIES["Alerts"], TREELESS) == []
    assert rows(reader, QUERIES["Plans ended, by status"], TREELESS) == [{"status": "cancelled", "plans": 1}]


def test_the_reader_may_read_nothing_else_and_write_nothing(reader: psycopg.Connection[Any]) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        reader.execute("SELECT * FROM steward_counter")
    reader.execute("SET default_transaction_read_only = off")
    for change in ("DELETE FROM steward_audit", "UPDATE steward_state SET value = ''"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            reader.execute(change.encode())
