"""The files for Grafana, Prometheus and statsd_exporter: they are whole, and name only what is emitted."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from kafka_steward.airflow_versions import stats
from kafka_steward.assignment import TopicPartition
from kafka_steward.execution.watch.health import check_health
from kafka_steward.journal.records import PlanStatus
from kafka_steward.journal.store import open_journal
from kafka_steward.monitoring import list_files
from kafka_steward.monitoring.__main__ import main
from kafka_steward.settings import Settings
from kafka_steward.triggers.alerts import AlertCheck
from kafka_steward.triggers.checks import (
    BrokerFailureCheck,
    BrokerJoinCheck,
    Check,
    ClusterHealthCheck,
    EmptyBrokerCheck,
)
from kafka_steward.triggers.reporting import emit_health, emit_progress
from tests.simulated_plan import memory_journal
from tests.simulator import Simulator
from tests.triggers.progress_values import progress

FILES = {path.name: path for path in list_files()}
RULES = yaml.safe_load(FILES["prometheus-rules.yaml"].read_text())["groups"][0]["rules"]
BOARDS = [name for name in FILES if name.endswith(".json")]
PAGE = (Path(__file__).parents[2] / "docs" / "dashboards.md").read_text()
CHECKS: tuple[type[Check[Any]], ...] = (
    BrokerFailureCheck,
    BrokerJoinCheck,
    EmptyBrokerCheck,
    ClusterHealthCheck,
    AlertCheck,
)


@pytest.fixture
def emitted(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names of all metrics that plans, the health of a cluster and the watch emit, as the mapping names them."""
    names: set[str] = set()
    monkeypatch.setattr(stats, "gauge", lambda name, *_, **__: names.add(name))
    monkeypatch.setattr(stats, "incr", lambda name, *_, **__: names.add(name))
    for status in PlanStatus:
        emit_progress("kafka", progress(4, status=status))
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123 231", bandwidth=10)
    simulator.alter({TopicPartition("t", 0): (1, 2, 4)})
    opened: Any = SimpleNamespace(
        cluster=simulator,
        journal=memory_journal(simulator),
        settings=Settings(),
        access=SimpleNamespace(conn_id="kafka"),
        origin=None,
    )
    emit_health("kafka", check_health(simulator, opened.journal, thorough=True)[0].measures)
    for kind in CHECKS:
        check = kind("kafka", lambda *_: None)
        for _ in range(2):
            check.report(check.poll(opened)[1])
            simulator.tick()
        check.reporter.report_error(ConnectionError("away"))
        check.reporter.report_age()
    return {_in_prometheus(name) for name in names}


def _in_prometheus(name: str) -> str:
    """The name after statsd-mapping.yaml; what statsd_exporter itself makes of it is tested beside."""
    if re.fullmatch(r"kafka_steward\.cluster\.\w+\.\d+", name):
        return "kafka_steward_broker_" + name.split(".")[2]
    if name.startswith("kafka_steward.plan.ended."):
        return "kafka_steward_plan_ended_total"
    return name.replace(".", "_")


def test_the_watch_measures_how_long_an_approval_waits_and_who_opened_the_journal(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gauges: dict[str, float] = {}
    monkeypatch.setattr(stats, "gauge", lambda name, value, **_: gauges.__setitem__(name, value))
    check = AlertCheck("kafka", lambda *_: None)
    with open_journal(f"sqlite:///{tmp_path}/journal.db", "c") as journal:
        opened: Any = SimpleNamespace(journal=journal, settings=Settings(), access=SimpleNamespace(conn_id="kafka"))
        monkeypatch.setattr(journal.plan_reports, "longest_wait_ms", lambda: 14_401_900)
        check.report(check.poll(opened)[1])
    assert gauges["kafka_steward.watch.approval_age"] == 14_401
    assert gauges["kafka_steward.watch.journal_hosts"] == 1


def _named(text: str) -> set[str]:
    return set(re.findall(r"\bkafka_steward_[a-z_]+\b", text))


def test_every_metric_of_the_rules_and_of_the_dashboard_is_emitted(emitted: set[str]) -> None:
    of_rules = {name for rule in RULES for name in _named(rule["expr"])} - {"kafka_steward_watch_"}
    # The documents' loop, which needs a real connection, reports as the other checks do.
    of_board = _named(FILES["grafana-metrics.json"].read_text()) - {"kafka_steward_watch_documents_failing"}
    assert min(len(of_rules), len(of_board)) > 10
    assert (of_rules | of_board) - emitted == set()


def test_every_rule_says_what_it_is_and_how_severe() -> None:
    for rule in RULES:
        assert rule["labels"]["severity"] in {"page", "ticket"}
        assert set(rule["annotations"]) == {"summary", "description"}
        assert f"`{rule['alert']}`" in PAGE, "the page lists it"


def test_promtool_is_given_a_time_at_which_each_rule_fires_and_one_at_which_it_does_not() -> None:
    (tests,) = yaml.safe_load(Path(__file__).with_name("rules_test.yaml").read_text())["tests"]
    cases = [(each["alertname"], bool(each["exp_alerts"])) for each in tests["alert_rule_test"]]
    assert sorted(set(cases)) == sorted((rule["alert"], fires) for rule in RULES for fires in (False, True))


@pytest.mark.parametrize("name", BOARDS)
def test_grafanas_own_types_take_every_part_of_a_dashboard(name: str) -> None:
    plugins = pytest.importorskip("grafana_foundation_sdk.cog.plugins", reason="it needs Python 3.11")
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.models.dashboard import Dashboard

    plugins.register_default_plugins()
    given = json.loads(FILES[name].read_text())
    taken = json.loads(JSONEncoder(sort_keys=True, indent=2).encode(Dashboard.from_json(given)))
    # The types know no query of an annotation, which is its data source's, and no `definition` of a variable.
    lost = {path for path in _lost(given, taken) if not re.search(r"/annotations/list/0/target/|/definition$", path)}
    assert lost == set()


def _lost(given: Any, taken: Any, path: str = "") -> set[str]:
    if isinstance(given, dict) and isinstance(taken, dict):
        return {each for key in given for each in _lost(given[key], taken.get(key, ...), f"{path}/{key}")}
    if isinstance(given, list) and isinstance(taken, list) and len(given) == len(taken):
        pairs = enumerate(zip(given, taken, strict=True))
        return {each for at, (one, other) in pairs for each in _lost(one, other, f"{path}/{at}")}
    return set() if given == taken else {path}


@pytest.mark.parametrize("name", BOARDS)
def test_panels_have_ids_descriptions_and_places_of_their_own(name: str) -> None:
    panels = json.loads(FILES[name].read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert all(panel["description"].endswith(".") for panel in panels)
    places = [panel["gridPos"] for panel in panels]
    cells = [
        (x, y) for at in places for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24


def test_they_are_listed_and_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert capsys.readouterr().out.splitlines() == [str(path) for path in list_files()]
    assert main(["grafana-metrics.json"]) == 0
    assert capsys.readouterr().out == FILES["grafana-metrics.json"].read_text()
    assert main(["another"]) == 2
    assert "grafana-journal.json" in capsys.readouterr().err
