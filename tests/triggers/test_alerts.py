"""The check of the watch that starts the DAG `alert`."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_steward.errors import JournalUnreachable
from kafka_steward.execution.alerts import OVERDUE_MS, list_untold, record_told
from kafka_steward.hooks.steward import StewardHook
from kafka_steward.settings import Settings
from kafka_steward.triggers.alerts import (
    FAILING_S,
    STALLED_S,
    AlertCheck,
    CheckState,
    JournalWorker,
    watch_conditions,
)
from kafka_steward.triggers.base import ClusterWorker
from kafka_steward.triggers.periodic import BrokerFailureCheck, ClusterHealthCheck
from kafka_steward.triggers.watch import EVENTS, ClusterWatch
from tests.simulated_plan import memory_journal
from tests.simulator import Simulator


def check(simulator: Simulator, **settings: Any) -> tuple[AlertCheck, BrokerFailureCheck, Any]:
    access = SimpleNamespace(conn_id="kafka")
    opened: Any = SimpleNamespace(
        cluster=simulator, journal=memory_journal(simulator), settings=Settings(**settings), access=access, origin=None
    )
    failures = BrokerFailureCheck("kafka", ClusterWorker("kafka", {}), lambda *_: None)
    alerts = AlertCheck("kafka", ClusterWorker("kafka", {}), lambda *_: None)
    alerts.others = [failures, alerts]
    return alerts, failures, opened


def poll(failures: BrokerFailureCheck, opened: Any) -> None:
    failures.report(failures.poll(opened)[1])


def test_an_outage_is_an_event_until_a_run_has_told_people_and_so_is_its_end() -> None:
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123 234")
    alerts, failures, opened = check(simulator, max_failed_brokers=1, heal_failure_interval=0)
    poll(failures, opened)
    assert alerts.poll(opened)[0] is None
    simulator.kill(3)
    simulator.kill(2)
    poll(failures, opened)
    event, found, pause_s = alerts.poll(opened)
    assert event == {
        "cluster_id": "simulated",
        "conn_id": "kafka",
        "at_ms": simulator.now_ms,
        "journal": None,
        "alerts": ["outage"],
    }
    assert ([each.kind for each in found], pause_s) == (["outage"], 10.0)
    assert alerts.poll(opened)[0] is None, "it was announced"
    simulator.tick(60)
    assert alerts.poll(opened)[0] is not None, "and is announced again, as nobody was told"
    record_told(opened.journal, list_untold(opened.journal)[0])
    simulator.tick(60)
    assert alerts.poll(opened)[0] is None
    simulator.restart(2)
    simulator.restart(3)
    poll(failures, opened)
    event, found, _ = alerts.poll(opened)
    assert event is not None
    assert found == []


def test_a_heal_that_is_due_and_that_no_plan_begins_is_overdue_after_a_while() -> None:
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123 234")
    alerts, failures, opened = check(simulator, heal_failure_interval=10)
    simulator.kill(3)
    poll(failures, opened)
    assert alerts.poll(opened)[1] == [], "within the grace period"
    simulator.tick(10)
    poll(failures, opened)
    assert (alerts.poll(opened)[0], [each.kind for each in alerts.poll(opened)[1]]) == (None, ["heal_overdue"])
    simulator.tick(OVERDUE_MS // 1000)
    poll(failures, opened)
    event, found, _ = alerts.poll(opened)
    assert event is not None
    assert found[0].sentence.startswith("No plan heals broker 3, whose heal is due")


@pytest.mark.parametrize(
    ("state", "told"),
    [
        (CheckState("documents", True, FAILING_S, "why"), ["documents"]),
        (CheckState("documents", True, FAILING_S - 1, "why"), []),
        (CheckState("documents", False, 9_999, ""), []),
        (CheckState("failures", False, STALLED_S, ""), ["failures"]),
        (CheckState("failures", False, STALLED_S - 1, ""), []),
    ],
)
def test_a_check_that_fails_or_stalls_for_long_is_a_condition(state: CheckState, told: list[str]) -> None:
    assert [each.subject for each in watch_conditions("kafka", [state])] == told


def test_while_the_journal_does_not_answer_the_event_says_so_itself_once_an_hour() -> None:
    simulator = Simulator.of("1a", "t: 1")
    alerts, _, opened = check(simulator)
    state = CheckState("alerts", True, FAILING_S, "The journal is away.")
    event = alerts.own_event(state, 1_000.0)
    told = {"kind": "watch_failing", "subject": "alerts", "sentence": "The journal is away."}
    assert event is not None
    assert (event["conn_id"], event["unrecorded"]) == ("kafka", [told])
    assert alerts.own_event(state, 4_599.0) is None
    assert alerts.own_event(state, 4_600.0) is not None
    event, _, _ = alerts.poll(opened)
    assert event is not None, "the journal answers again: people are told of the end"
    assert list_untold(opened.journal)[0].document.ended_ms is not None
    assert alerts.own_event(CheckState("alerts", False, 0, ""), 9_999.0) is None


def test_it_opens_the_journal_and_not_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    journal = memory_journal(Simulator.of("1a", "t: 1"))
    monkeypatch.setattr(StewardHook, "cluster", lambda _: pytest.fail("Kafka is asked"))
    monkeypatch.setattr(StewardHook, "cluster_id", lambda _: "simulated")
    monkeypatch.setattr(StewardHook, "access", SimpleNamespace(conn_id="kafka", settings=Settings()))
    monkeypatch.setattr(StewardHook, "journal", lambda *_: journal)

    async def look() -> Any:
        worker = JournalWorker("kafka", {})
        try:
            return await worker.submit(lambda opened: AlertCheck("kafka", worker, print).poll(opened))
        finally:
            worker.close()

    assert asyncio.run(look())[1] == []


def test_an_error_is_counted_and_its_message_kept() -> None:
    alerts, _, _ = check(Simulator.of("1a", "t: 1"))
    alerts.reporter.report_error(JournalUnreachable("It is away."))
    assert (alerts.reporter.failures, "It is away." in alerts.reporter.last_message) == (1, True)
    alerts.reporter.record_success()
    assert (alerts.reporter.failures, alerts.reporter.last_message) == (0, "")


def test_a_watch_looks_for_alerts_while_somebody_listens_and_then_polls_for_failures_itself() -> None:
    watch = ClusterWatch("kafka", {}, log=print, log_error=print)
    assert not any(isinstance(each, AlertCheck) for each in watch.checks)
    queue = watch.listen("alert")
    kinds = {type(each) for each in watch.checks}
    assert {AlertCheck, ClusterHealthCheck} < kinds
    assert (_is_needed(watch), watch.failures.emits) == (True, False)
    watch.leave("alert", queue)
    assert not _is_needed(watch)
    assert EVENTS[-1] == "alert"


def _is_needed(watch: ClusterWatch) -> bool:
    return watch.failures.is_needed
