"""One real Airflow for the tests of this folder, and what a person does with it: over REST, as a named user."""

from __future__ import annotations

import json
import secrets
import shutil
import urllib.parse
from collections.abc import Collection, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafka_steward.sandbox import Sandbox
from kafka_steward.sandbox.airflow import AirflowFailed, LocalAirflow
from kafka_steward.sandbox.artifacts import find_or_install_java
from kafka_steward.sandbox.processes import marked_processes
from tests.airflow_home import connect
from tests.eventually import eventually
from tests.postgres import PostgresServer
from tests.sandbox.processes import alive
from tests.statsd import StatsD

if TYPE_CHECKING:
    # Not at run time: Airflow must be imported after tests.airflow_home, and this file is the first that pytest loads.
    from kafka_steward.hooks.session import ClusterSession

__all__ = ["Desk", "airflow", "connect", "desk", "statsd"]

DONE = ("success", "failed")
PARTS = ("api-server", "scheduler", "dag-processor", "triggerer")
#: Characters from the end of each part's log, when a test fails.
_TOLD_OF_A_LOG = 3000


@pytest.fixture(scope="package")
def statsd() -> Iterator[StatsD]:
    """Where the Airflow sends its metrics."""
    with StatsD() as statsd:
        yield statsd


@pytest.fixture(scope="package")
def postgres() -> Iterator[PostgresServer]:
    """Where each Airflow keeps its state: on SQLite, whoever writes makes all others wait, and some give up."""
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="package")
def airflow(
    tmp_path_factory: pytest.TempPathFactory, statsd: StatsD, postgres: PostgresServer
) -> Iterator[LocalAirflow]:
    home = tmp_path_factory.mktemp("airflow")
    ours = {
        "JAVA_HOME": str(find_or_install_java().home),
        "EVENTS_FILE": str(home / "events.jsonl"),
        "GREETING": "and welcome",
    }
    # A file that has not changed is not read again, unless it is asked for: each takes a process, and seconds of it.
    seldom = {"AIRFLOW__CORE__TEST_CONNECTION": "Enabled", "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "600"}
    environment = {**ours, **statsd.environment, **seldom}
    users = {"admin": "admin", "ann": "op", "uma": "user", "victor": "viewer"}
    # Workers outlive a scheduler that is killed with its connection, and what it had locked stays locked without this.
    database = postgres.new_database(idle_in_transaction_session_timeout="30s")
    with LocalAirflow(home, users=users, environment=environment, database=database) as airflow:
        yield airflow
        running = marked_processes(f"airflow:{home}")
        assert len(running) > len(PARTS)
    assert not [pid for pid in running if alive(pid)], "stopping Airflow leaves no process"


@dataclass(frozen=True)
class Desk:
    """Airflow and one cluster behind the connection `conn_id`, as a person at a desk meets them.

    `login` and `password` are the connection's; `extra` says how it is secured, and where its documents are.
    """

    airflow: LocalAirflow
    conn_id: str
    bootstrap: str
    journal: str
    login: str | None = None
    password: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def connect(self, conn_id: str, **fields: Any) -> None:
        """Create or change a connection."""
        body = {"connection_id": conn_id, **fields}
        try:
            self.airflow.call_api("POST", "/api/v2/connections", body)
        except AirflowFailed:
            self.airflow.call_api("PATCH", f"/api/v2/connections/{conn_id}", body)

    def configure(self, **settings: Any) -> None:
        """Make, or change, the connection of the cluster."""
        quick = {"heal_failure_interval": 5, "heal_retry_interval": 15, "step_interval": 1, "watch_interval": 1}
        extra = json.dumps({**quick, **self._extra, **settings})
        login = {"login": self.login, "password": self.password} if self.login else {}
        self.connect(self.conn_id, conn_type="kafka_steward", host=self.bootstrap, extra=extra, **login)

    def add_dags(self, name: str, text: str, *dag_ids: str, by_spark: Collection[str] = ()) -> None:
        """Write a DAG file, and wait until the dag-processor has found its DAGs; those `by_spark` plan with Spark.

        A file whose DAGs all do is written as it is.
        """
        if not set(by_spark) >= set(dag_ids):
            shutil.copy(Path(__file__).with_name("planned_here.py"), self.airflow.dags)
            text = f"import planned_here\n\nplanned_here.BY_SPARK |= set({list(by_spark)!r})\n{text}"
        (self.airflow.dags / f"{name}.py").write_text(text)
        eventually(lambda: [self.dag(dag_id) for dag_id in dag_ids], within=90, every=1, errors=(AirflowFailed,))

    def dag(self, dag_id: str) -> Any:
        return self.airflow.call_api("GET", f"/api/v2/dags/{dag_id}")

    def pause(self, dag_id: str, *, paused: bool) -> None:
        dag = self.airflow.call_api("PATCH", f"/api/v2/dags/{dag_id}", {"is_paused": paused})
        # Only a DAG that assets start has a watch, and each file that is read takes a process, and seconds of it.
        if not paused and "asset" in (dag["timetable_summary"] or "").lower():
            self.airflow.reread_dags()

    def trigger(self, dag_id: str, conf: dict[str, Any], user: str) -> str:
        body = {"logical_date": None, "conf": conf}
        return str(self.airflow.call_api("POST", f"/api/v2/dags/{dag_id}/dagRuns", body, user=user)["dag_run_id"])

    def runs(self, dag_id: str) -> list[Any]:
        """Its runs, oldest first."""
        path = f"/api/v2/dags/{dag_id}/dagRuns?order_by=id"
        return list(self.airflow.call_api("GET", path)["dag_runs"])

    def ended(self, dag_id: str, number: int, *, within: float = 400) -> Any:
        """The run of that number (0: the first), when it has ended."""

        def run() -> Any:
            found = self.runs(dag_id)
            assert len(found) > number, f"{dag_id} has {len(found)} runs"
            assert found[number]["state"] in DONE, found[number]
            return found[number]

        # The api-server takes a tenth of a second and more for an answer, and others wait for theirs.
        return eventually(run, within=within, every=2, errors=(AirflowFailed,))

    def tasks(self, dag_id: str, run_id: str) -> dict[str, str]:
        """State by task."""
        path = f"/api/v2/dags/{dag_id}/dagRuns/{urllib.parse.quote(run_id, safe='')}/taskInstances"
        return {task["task_id"]: task["state"] for task in self.airflow.call_api("GET", path)["task_instances"]}

    def xcom(self, dag_id: str, run_id: str, task_id: str) -> Any:
        run = urllib.parse.quote(run_id, safe="")
        path = f"/api/v2/dags/{dag_id}/dagRuns/{run}/taskInstances/{task_id}/xcomEntries/return_value"
        value = self.airflow.call_api("GET", path)["value"]
        return json.loads(value) if isinstance(value, str) else value

    def log(self, dag_id: str, run_id: str, task_id: str, try_number: int = 1) -> str:
        run = urllib.parse.quote(run_id, safe="")
        path = f"/api/v2/dags/{dag_id}/dagRuns/{run}/taskInstances/{task_id}/logs/{try_number}"
        return json.dumps(self.airflow.call_api("GET", path))

    def notified(self, dag_id: str) -> list[str]:
        """The events that the DAG's notifiers got, in order."""
        path = self.airflow.home / "events.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [event for notified_by, event in map(json.loads, lines) if notified_by == dag_id]

    def opened(self) -> ClusterSession:
        """Cluster and journal, connected from here."""
        from kafka_steward.cluster.client import KafkaCluster
        from kafka_steward.hooks.cluster_config import ConnectionFields, cluster_config
        from kafka_steward.hooks.session import ClusterSession
        from kafka_steward.journal.store import open_journal

        given = ConnectionFields(
            self.conn_id, host=self.bootstrap, login=self.login, password=self.password, extra=self._extra
        )
        access = cluster_config(given, None, {}, {}, Path("/nowhere"))
        cluster = KafkaCluster(access.client)
        return ClusterSession(
            access, cluster, open_journal(self.journal, cluster.cluster_id, zookeeper=access.zookeeper)
        )

    @property
    def _extra(self) -> dict[str, Any]:
        # However full the disk is to which the brokers write.
        return {"min_free": 0, **self.extra, "journal": self.journal}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What went wrong in an Airflow stands in its parts' logs."""
    report = yield
    running = getattr(item, "funcargs", {}).get("airflow")
    if report.failed and running is not None:
        report.sections += [(f"{part}.log", running.part_log(part)[-_TOLD_OF_A_LOG:]) for part in PARTS]
    return report


@pytest.fixture
def desk(airflow: LocalAirflow, sandbox: Sandbox) -> Iterator[Desk]:
    """The sandbox's cluster behind the connection `kafka_kraft` or `kafka_zookeeper`; its DAG files go afterwards."""
    # Its own: what one test did to the cluster is not what the next one's watch goes on from.
    journal = f"sqlite:///{airflow.home}/kafka_steward/{secrets.token_hex(4)}.db"
    desk = Desk(airflow, f"kafka_{sandbox.mode}", sandbox.bootstrap, journal)
    desk.configure()
    yield desk
    # Each is parsed again and again, and a watch that nobody needs any more would run on.
    for file in airflow.dags.glob("*.py"):
        file.unlink()
