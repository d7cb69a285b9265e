"""What triggers report: metrics that reach a real StatsD by the names of docs/metrics.md, and lines of a log."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_steward.airflow_versions import stats
from kafka_steward.assignment import TopicPartition
from kafka_steward.errors import JournalUnreachable, PlanError
from kafka_steward.execution.watch.alerts import OVERDUE_MS, list_unnotified, record_notified
from kafka_steward.hooks.steward import StewardHook
from kafka_steward.journal.records import PlanStatus
from kafka_steward.settings import Settings
from kafka_steward.triggers.alerts import (
    FAILING_S,
    STALLED_S,
    AlertCheck,
    AlertLoop,
    CheckState,
    JournalWorker,
    watch_conditions,
)
from kafka_steward.triggers.checks import BrokerFailureCheck
from kafka_steward.triggers.cluster_watch import ClusterWatch
from kafka_steward.triggers.reporting import ProgressLog, WatchReporter, emit_progress, progress_line
from kafka_steward.triggers.watch import EVENTS
from tests.eventually import eventually
from tests.simulated_plan import memory_journal
from tests.simulator import Simulator
from tests.statsd import StatsD
from tests.triggers.progress_values import progress

#: As the trigger and the watch emit them, in a process of Airflow's with this StatsD; in the end, what says that this
#: was all.
EMITTING = """
from types import SimpleNamespace
from kafka_steward.airflow_versions import stats
from airflow.sdk.observability.metrics import stats_utils
from kafka_steward.assignment import TopicPartition
from kafka_steward.journal.records import PlanStatus
from kafka_steward.settings import Settings
from kafka_steward.triggers.reporting import emit_health, emit_progress
from kafka_steward.triggers.checks import ClusterHealthCheck
from kafka_steward.triggers.base import ClusterWorker
from kafka_steward.triggers.watch import WatchTrigger
from tests.simulator import Simulator
from tests.triggers.progress_values import progress
from tests.simulated_plan import memory_journal

stats.initialize(factory=stats_utils.get_stats_factory(), export_legacy_names=True)  # as the triggerer does
WatchTrigger("kafka_test")._watch.failures.reporter.report_error(ConnectionError("away"))
emit_progress("kafka_test", progress(1, in_flight=2, bytes_total=100, bytes_done=40))

emit_health("kafka_test", {"offline_partitions": 17, "replica_imbalance": 0.25})

simulator = Simulator.of("1a 2b 3c 4a", "t: 123 231", bandwidth=10)
simulator.alter({TopicPartition("t", 0): (1, 2, 4)})
opened = SimpleNamespace(cluster=simulator, journal=memory_journal(simulator), settings=Settings())
measuring = ClusterHealthCheck("kafka_test", print)
measuring.poll(opened)
simulator.tick()
simulator.kill(3)
measuring.poll(opened)

emit_progress("kafka_test", progress(4, status=PlanStatus.COMPLETED))
"""
LAST = "airflow.kafka_steward.plan.ended.completed:1|c"
PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


@pytest.fixture(scope="module")
def received() -> list[str]:
    """The lines that a StatsD has received from a process with Airflow's own configuration."""
    with StatsD() as statsd:
        environment = {**os.environ, **statsd.environment, "PYTHONPATH": str(Path(__file__).parents[2])}
        subprocess.run([sys.executable, "-c", EMITTING], env=environment, check=True, timeout=300, capture_output=True)
        eventually(lambda: _assert_received(statsd.received, LAST))
        return statsd.received


@pytest.fixture
def gauges(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    values: dict[str, float] = {}
    monkeypatch.setattr(stats, "gauge", lambda name, value, **_: values.update({name: value}))
    monkeypatch.setattr(stats, "incr", lambda name, **_: values.update({name: values.get(name, 0) + 1}))
    return values


def test_what_is_left_of_a_plan_is_measured_at_each_step(gauges: dict[str, float]) -> None:
    emit_progress("kafka", progress(1, in_flight=2, bytes_total=100, bytes_done=40, stalled=(TopicPartition("t", 0),)))
    assert gauges == {
        "kafka_steward.plan.partitions_left": 3,
        "kafka_steward.plan.in_flight": 2,
        "kafka_steward.plan.held": 0,
        "kafka_steward.plan.stalled": 1,
        "kafka_steward.plan.bytes_left": 60,
    }


@pytest.mark.parametrize("status", [PlanStatus.COMPLETED, PlanStatus.CANCELLED, PlanStatus.STUCK])
def test_its_end_is_counted_by_how_it_ended(gauges: dict[str, float], status: PlanStatus) -> None:
    emit_progress("kafka", progress(4, status=status))
    assert gauges[f"kafka_steward.plan.ended.{status.value}"] == 1


def test_a_step_that_did_nothing_measures_nothing(gauges: dict[str, float]) -> None:
    emit_progress("kafka", progress(1, busy=True))
    assert gauges == {}


@pytest.mark.process
def test_a_real_statsd_receives_each_by_the_name_that_the_page_lists(received: list[str]) -> None:
    _assert_received(received, "airflow.kafka_steward.watch.failing:1|g", "airflow.kafka_steward.plan.bytes_left:60|g")
    plans = {"kafka_steward.plan.ended.completed", *_listed_names()}
    by_measure = ("kafka_steward.cluster.", "kafka_steward.broker.")
    assert {name for name in _names(received) if not name.startswith(by_measure)} < plans


def _listed_names() -> Iterator[str]:
    """Yield the names of the page's table: a row in bold has the beginning of the names below it."""
    beginning = ""
    for cell in re.findall(r"^\| (.*?) \|", PAGE.read_text(), re.MULTILINE):
        if bold := re.match(r"\*\*`([a-z]+\.)", cell):
            beginning = bold[1]
        yield from (f"kafka_steward.{beginning}{name}" for name in re.findall(r"`([a-z_]+)`", cell))


@pytest.mark.process
def test_a_real_statsd_receives_each_measure_of_a_broker_by_both_names(received: list[str]) -> None:
    names = _names(received)
    legacy = {
        re.sub(r"\.\d+$", "", name.removeprefix("kafka_steward.cluster."))
        for name in names
        if re.fullmatch(r"kafka_steward\.cluster\.\w+\.\d+", name)
    }
    tagged = {name.removeprefix("kafka_steward.broker.") for name in names if name.startswith("kafka_steward.broker.")}
    assert tagged == legacy != set()


@pytest.mark.process
def test_a_real_statsd_receives_the_health_that_is_emitted(received: list[str]) -> None:
    _assert_received(
        received,
        "airflow.kafka_steward.cluster.offline_partitions:17|g",
        "airflow.kafka_steward.cluster.replica_imbalance:0.25|g",
    )


@pytest.mark.process
def test_a_real_statsd_receives_what_each_look_of_the_watch_measures(received: list[str]) -> None:
    cluster = "airflow.kafka_steward.cluster."
    first = received.index(f"{cluster}under_replicated_partitions:0|g")
    second = received.index(f"{cluster}under_replicated_partitions:2|g")
    assert first < second, "broker 3 was killed between the looks, and a reassignment is not counted"
    _assert_received(
        received[:second],
        f"{cluster}reassigning_partitions:1|g",
        f"{cluster}reassignment_max_lag:100|g",
        f"{cluster}failed_brokers:0|g",
    )
    _assert_received(
        received[second:],
        f"{cluster}reassignment_max_lag:90|g",
        f"{cluster}reassignment_bytes_in_per_sec.4:10|g",
        f"{cluster}reassignment_bytes_out_per_sec.1:10|g",
        f"{cluster}failed_brokers:1|g",
        f"{cluster}pending_replicas:0|g",
    )


@pytest.mark.process
def test_the_page_lists_each_measure_of_a_clusters_health(received: list[str]) -> None:
    prefix = "kafka_steward.cluster."
    measures = {re.sub(r"\.\d+$", "", name.removeprefix(prefix)) for name in _names(received) if prefix in name}
    page = PAGE.read_text().replace("`..._out_per_sec.<broker>`", "reassignment_bytes_out_per_sec")
    assert {measure for measure in measures if measure not in page} == set()


def _names(lines: list[str]) -> set[str]:
    return {line.split(":")[0].removeprefix("airflow.") for line in lines}


def _assert_received(lines: list[str], *expected: str) -> None:
    assert set(expected) <= set(lines), lines


@pytest.mark.parametrize(
    ("settled", "line"),
    [
        (0, "[--------------------]   0% of 4 partitions. 0 of 4."),
        (1, "[#####---------------]  25% of 4 partitions. 1 of 4."),
        (4, "[####################] 100% of 4 partitions. 4 of 4."),
    ],
)
def test_a_line_has_a_bar_and_the_runners_sentence(settled: int, line: str) -> None:
    assert progress_line(progress(settled)) == line


MB = 10**6
COPYING: dict[str, Any] = {"bytes_total": 192 * MB, "bytes_done": 48 * MB, "bytes_per_s": 9.6e6, "eta_s": 15.0}


@pytest.mark.parametrize(
    ("changes", "facts"),
    [
        ({}, "48.0 of 192.0 MB at 9.6 MB/s, about 15 s left"),
        ({"eta_s": 141.4}, "48.0 of 192.0 MB at 9.6 MB/s, about 2 min 21 s left"),
        ({"eta_s": 0.2}, "48.0 of 192.0 MB at 9.6 MB/s, about 1 s left"),
        ({"bytes_total": 3 * 10**12, "eta_s": 307_500}, "0.0 of 3.0 TB at 9.6 MB/s, about 85 h 25 min left"),
        ({"bytes_per_s": None, "eta_s": None}, "48.0 of 192.0 MB"),
        ({"bytes_per_s": 0.0, "eta_s": None}, "48.0 of 192.0 MB"),
        ({"bytes_done": 192 * MB, "eta_s": 0.0}, "192.0 of 192.0 MB at 9.6 MB/s"),
    ],
)
def test_a_line_has_bytes_rate_and_time_left_as_far_as_they_are_known(changes: dict[str, Any], facts: str) -> None:
    line = progress_line(progress(3, total=12, **{**COPYING, **changes}))
    assert line == f"[#####---------------]  25% of 12 partitions, {facts}. 3 of 12."


def test_without_sizes_or_after_the_end_a_line_says_what_is_known() -> None:
    unknown = {**COPYING, "bytes_total": 0, "bytes_done": 0}
    assert progress_line(progress(3, total=12, **unknown)) == "[#####---------------]  25% of 12 partitions. 3 of 12."
    ended = progress(12, total=12, status=PlanStatus.COMPLETED, **COPYING)
    assert progress_line(ended) == "[####################] 100% of 12 partitions. 12 of 12."


def test_a_plan_without_moves_has_no_bar_and_no_percentage() -> None:
    assert progress_line(progress(0, total=0)) == "0 of 0."


class Log:
    """Collects lines by second."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.lines: list[float] = []
        self.progress = ProgressLog(lambda _: self.lines.append(self.now_s), lambda: self.now_s)


@pytest.mark.parametrize(
    ("ends", "seconds", "lines"),
    [(False, 100, [0, 30, 60, 90]), (True, 12, [0, 5, 10])],
    ids=["every half minute while nothing ends", "every five seconds while partitions end"],
)
def test_a_line_is_logged(ends: bool, seconds: int, lines: list[int]) -> None:
    log = Log()
    for log.now_s in range(seconds):
        log.progress.report(progress(int(log.now_s) if ends else 1, total=100))
    assert log.lines == lines


@pytest.mark.parametrize("status", [PlanStatus.COMPLETED, PlanStatus.STUCK])
def test_the_end_is_logged_at_once(status: PlanStatus) -> None:
    log = Log()
    log.progress.report(progress(1))
    log.now_s = 0.1
    log.progress.report(progress(4, status=status))
    assert log.lines == [0, 0.1]


HOSTILE = "orders\n2026 INFO all is well \x1b[2J\u202e"
TRIES_AGAIN = "The watch of kafka cannot look, and tries again: "
ESCAPED = r"orders\x0a2026 INFO all is well \x1b[2J\u202e"


@pytest.mark.parametrize(
    ("report", "lines"),
    [
        (lambda reporter: reporter.log_once(HOSTILE, about=1), [ESCAPED]),
        (lambda reporter: reporter.log_new([HOSTILE, "a", f"{HOSTILE}2"]), [ESCAPED, "a", f"{ESCAPED}2"]),
        (lambda reporter: reporter.report_error(ValueError(HOSTILE)), [f"{TRIES_AGAIN}{ESCAPED}"]),
        (lambda reporter: reporter.report_error(PlanError(HOSTILE)), [f"{TRIES_AGAIN}{ESCAPED}"]),
    ],
    ids=["a message", "several", "an error of Python", "an error of ours"],
)
def test_what_a_watch_logs_is_printable_lines(report: Callable[[WatchReporter], None], lines: list[str]) -> None:
    logged: list[str] = []
    report(WatchReporter("kafka", lambda line, *rest: logged.append(line % rest), failing="failing", what="look"))
    assert logged == lines


def check(simulator: Simulator, **settings: Any) -> tuple[AlertCheck, BrokerFailureCheck, Any]:
    access = SimpleNamespace(conn_id="kafka")
    opened: Any = SimpleNamespace(
        cluster=simulator, journal=memory_journal(simulator), settings=Settings(**settings), access=access, origin=None
    )
    failures = BrokerFailureCheck("kafka", lambda *_: None)
    alerts = AlertCheck("kafka", lambda *_: None)
    alerts.watched = lambda: [failures, alerts]
    return alerts, failures, opened


def poll(failures: BrokerFailureCheck, opened: Any) -> None:
    failures.report(failures.poll(opened)[1])


def test_an_outage_is_an_event_until_a_run_has_notified_people_and_so_is_its_end() -> None:
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
    record_notified(opened.journal, list_unnotified(opened.journal)[0])
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
    ("state", "subjects"),
    [
        (CheckState("documents", True, FAILING_S, "why"), ["documents"]),
        (CheckState("documents", True, FAILING_S - 1, "why"), []),
        (CheckState("documents", False, 9_999, ""), []),
        (CheckState("failures", False, STALLED_S, ""), ["failures"]),
        (CheckState("failures", False, STALLED_S - 1, ""), []),
    ],
)
def test_a_check_that_fails_or_stalls_for_long_is_a_condition(state: CheckState, subjects: list[str]) -> None:
    assert [each.subject for each in watch_conditions("kafka", [state])] == subjects


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
    assert list_unnotified(opened.journal)[0].value.ended_ms is not None
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
            return await worker.submit(lambda opened: AlertCheck("kafka", print).poll(opened))
        finally:
            worker.close()

    assert asyncio.run(look())[1] == []


def test_an_error_is_counted_and_its_message_kept() -> None:
    alerts, _, _ = check(Simulator.of("1a", "t: 1"))
    alerts.reporter.report_error(JournalUnreachable("It is away."))
    assert (alerts.reporter.failures, "It is away." in alerts.reporter.last_message) == (1, True)
    alerts.reporter.record_success()
    assert (alerts.reporter.failures, alerts.reporter.last_message) == (0, "")


def test_a_watch_looks_for_alerts_while_somebody_listens_there_or_at_a_watch_that_stands_by() -> None:
    watch: Any = ClusterWatch("kafka", log=print, log_error=print)
    loop: Any
    (loop,) = (each for each in watch._loops if isinstance(each, AlertLoop))
    assert not loop.is_needed
    queue = watch.listen("alert")
    assert loop.is_needed
    watch.leave("alert", queue)
    assert not loop.is_needed
    watch._role.passed_on = frozenset({"alert"})
    assert loop.is_needed
    watch._role.leads = False
    assert not loop.is_needed
    assert EVENTS[-1] == "alert"
