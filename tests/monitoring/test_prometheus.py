"""The rules and the dashboard's queries in Prometheus' own promtool, and the mapping in a real statsd_exporter."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kafka_steward.monitoring import list_files
from kafka_steward.sandbox.cluster_layout import pick_ports
from tests.eventually import eventually
from tests.monitoring.tools import promtool, statsd_exporter

pytestmark = [pytest.mark.process, pytest.mark.slow]

FILES = {path.name: path for path in list_files()}
#: As Airflow sends them: to plain StatsD, and with statsd_datadog_enabled.
PLAIN = [
    "airflow.kafka_steward.watch.age:7|g",
    "airflow.kafka_steward.watch.documents_failing:2|g",
    "airflow.kafka_steward.plan.stalled:1|g",
    "airflow.kafka_steward.plan.ended.stuck:1|c",
    "airflow.kafka_steward.cluster.under_replicated_partitions:3|g",
    "airflow.kafka_steward.cluster.under_replicated_partitions.4:2|g",
    "airflow.kafka_steward.broker.under_replicated_partitions:9|g",
    "airflow.kafka_steward.cluster.reassignment_bytes_in_per_sec.4:10.5|g",
]
READ = {
    "kafka_steward_watch_age": 7,
    "kafka_steward_watch_documents_failing": 2,
    "kafka_steward_plan_stalled": 1,
    'kafka_steward_plan_ended_total{status="stuck"}': 1,
    "kafka_steward_cluster_under_replicated_partitions": 3,
    'kafka_steward_broker_under_replicated_partitions{broker="4"}': 2,
    'kafka_steward_broker_reassignment_bytes_in_per_sec{broker="4"}': 10.5,
}


def test_promtool_accepts_the_rules_and_each_fires_when_it_should(tmp_path: Path) -> None:
    tool = promtool()
    rules = shutil.copy(FILES["prometheus-rules.yaml"], tmp_path)
    cases = shutil.copy(Path(__file__).with_name("rules_test.yaml"), tmp_path)
    for command in (["check", "rules", "--lint-fatal", rules], ["test", "rules", cases]):
        done = subprocess.run([tool, *command], capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_accepts_each_query_of_the_dashboard(tmp_path: Path) -> None:
    panels = json.loads(FILES["grafana-metrics.json"].read_text())["panels"]
    queries = [_with_values(target["expr"]) for panel in panels for target in panel["targets"]]
    assert len(queries) > 20
    rules = [{"record": f"query_{number}", "expr": query} for number, query in enumerate(queries)]
    (file := tmp_path / "queries.json").write_text(json.dumps({"groups": [{"name": "queries", "rules": rules}]}))
    command: list[str | Path] = [promtool(), "check", "rules", "--lint-fatal", file]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(queries)} rules found" in done.stdout


def _with_values(query: str) -> str:
    """The query with the values that Grafana puts into it before Prometheus gets it."""
    for name, value in {"$conn_id": "kafka_production|kafka_test", "$__range": "3600s"}.items():
        query = query.replace(name, value)
    assert "$" not in query
    return query


@pytest.mark.parametrize("tags", ["", "|#conn_id:kafka_prod"])
def test_statsd_exporter_names_each_metric_as_the_rules_do(tags: str) -> None:
    with exporter() as (statsd, web), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        # With tags, the name with the broker in it and the one with a tag arrive both.
        lines = [f"{line}{tags}{',broker:4' if tags and '.broker.' in line else ''}" for line in PLAIN]

        def received() -> None:
            for line in lines:
                if "|c" not in line:
                    client.sendto(line.encode(), ("127.0.0.1", statsd))
            found = metrics(web)
            assert {name: found.get(name) for name in expected} == expected

        client.sendto(next(line for line in lines if "|c" in line).encode(), ("127.0.0.1", statsd))
        expected = {_with_conn_id(name) if tags else name: value for name, value in READ.items()}
        eventually(received, within=30, every=0.3)
        ours = {name for name in metrics(web) if name.startswith("kafka_steward")}
        assert ours == expected.keys()


def _with_conn_id(name: str) -> str:
    """The name of the series with the label as well; labels are sorted."""
    head, _, labels = name.partition("{")
    both = sorted(['conn_id="kafka_prod"', *filter(None, [labels.rstrip("}")])])
    return f"{head}{{{','.join(both)}}}"


def metrics(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return {
        name: float(value)
        for line in lines
        if (found := re.fullmatch(r"([^#]\S*(?:\{.*\})?) (\S+)", line))
        for name, value in [found.groups()]
    }


@contextmanager
def exporter() -> Iterator[tuple[int, int]]:
    """The ports of a running statsd_exporter: for StatsD, over UDP, and for Prometheus."""
    statsd, web = pick_ports(2)
    command = [
        statsd_exporter(),
        f"--statsd.mapping-config={FILES['statsd-mapping.yaml']}",
        f"--statsd.listen-udp=127.0.0.1:{statsd}",
        "--statsd.listen-tcp=",
        f"--web.listen-address=127.0.0.1:{web}",
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        eventually(lambda: metrics(web), within=30, every=0.2, errors=(OSError,))
        yield statsd, web
    finally:
        process.terminate()
        process.wait(timeout=10)
