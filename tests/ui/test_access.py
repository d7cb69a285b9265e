"""What Airflow's auth manager answers decides what a user sees: each DAG, each approval, and each route of the page."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import sessionmaker

from tests.ui.scene import CONN_IDS, Scene

if TYPE_CHECKING:
    # Not at run time: Airflow must be imported after tests.airflow_home.
    from starlette.testclient import TestClient

    from kafka_steward.ui.access import AirflowAccess

_, MOVING, QUIET = CONN_IDS
NOW = datetime(2026, 11, 21, 8, tzinfo=UTC)


@dataclass(frozen=True)
class User:
    name: str = "ada"

    def get_name(self) -> str:
        return self.name

    def get_id(self) -> str:
        return f"id-of-{self.name}"


@dataclass
class Manager:
    """An auth manager that lets everybody read these DAGs and connections, and do with each DAG what `rights` say."""

    readable: Collection[str] = ()
    connections: Collection[str] = ()
    rights: Collection[tuple[str, str, str]] = ()
    #: The DAGs that were asked for, with their team.
    asked: set[tuple[str, str | None]] = field(default_factory=set)

    def filter_authorized_dag_ids(
        self, *, dag_ids: set[str], user: User, method: str, team_name: str | None
    ) -> set[str]:
        assert (user, method) == (User(), "GET")
        self.asked |= {(dag_id, team_name) for dag_id in dag_ids}
        return dag_ids & set(self.readable)

    def get_authorized_connections(self, *, user: User, method: str) -> set[str]:
        assert (user, method) == (User(), "GET")
        return set(self.connections)

    def is_authorized_dag(self, *, method: str, access_entity: Any, details: Any, user: User) -> bool:
        assert user == User()
        self.asked.add((details.id, details.team_name))
        return (details.id, access_entity.value, method) in self.rights

    def is_authorized_hitl_task(self, *, assigned_users: set[str], user: User) -> bool:
        return user.get_id() in assigned_users


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> Manager:
    from kafka_steward.ui import access

    made = Manager()
    monkeypatch.setattr(access, "get_auth_manager", lambda: made)
    return made


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[sa.Engine]:
    """Airflow's database: of MOVING a DAG of a team and a stale one, of QUIET one, and a connection without any."""
    from airflow import settings
    from airflow.models import import_all_models
    from airflow.models.base import Base

    from kafka_steward.cluster_tag import cluster_tag, workflow_tag

    import_all_models()
    engine = sa.create_engine(f"sqlite:///{tmp_path}/airflow.db")
    tables = Base.metadata.tables
    names = ["dag", "dag_tag", "dag_bundle", "team", "dag_bundle_team", "connection", "task_instance", "hitl_detail"]
    names += ["dag_run", "log_template"]
    Base.metadata.create_all(engine, tables=[tables[name] for name in names])
    dags = {"moving_it": (MOVING, "ours", False), "quiet_it": (QUIET, "all", False), "stale_it": (MOVING, "all", True)}
    with engine.begin() as connection:

        def add(table: str, *rows: Mapping[str, Any]) -> None:
            connection.execute(sa.insert(tables[table]), rows)

        add("dag_bundle", {"name": "ours"}, {"name": "all"})
        add("team", {"name": "orders"})
        add("dag_bundle_team", {"dag_bundle_name": "ours", "team_name": "orders"})
        add("connection", *({"conn_id": each, "conn_type": "kafka_steward"} for each in (MOVING, QUIET, "unused")))
        for dag_id, (conn_id, bundle, stale) in dags.items():
            limits = {"max_active_tasks": 1, "max_consecutive_failed_dag_runs": 0, "has_task_concurrency_limits": False}
            states = {"is_stale": stale, "is_paused": dag_id == "quiet_it"}
            add("dag", {"dag_id": dag_id, "bundle_name": bundle, **limits, **states})
            for tag in ("kafka-steward", cluster_tag(conn_id), workflow_tag("rebalance")):
                add("dag_tag", {"dag_id": dag_id, "name": tag})
    monkeypatch.setattr(settings, "Session", sessionmaker(engine))
    yield engine
    engine.dispose()


def access() -> AirflowAccess:
    from kafka_steward.ui.access import AirflowAccess

    return AirflowAccess(User())  # type: ignore[arg-type]


def ask(
    engine: sa.Engine,
    dag_id: str,
    assignees: list[dict[str, str]] | None,
    minute: int,
    *,
    person: str | None = None,
    state: str = "awaiting_input",
) -> None:
    """A task of the DAG, in a run that a person has started, waits for an answer since that minute."""
    from airflow.models.base import Base

    tables, number = Base.metadata.tables, uuid.uuid4()
    task = {"id": number, "dag_id": dag_id, "run_id": f"run-{minute}", "task_id": "approve", "pool": "default_pool"}
    detail = {"ti_id": number, "options": [], "subject": f"of {dag_id}", "params": {}, "params_input": {}}
    run = {"dag_id": dag_id, "run_id": f"run-{minute}", "run_type": "manual", "triggering_user_name": person}
    with engine.begin() as connection:
        connection.execute(sa.insert(tables["dag_run"]).values(**run, run_after=NOW))
        connection.execute(sa.insert(tables["task_instance"]).values(**task, state=state))
        created = NOW.replace(minute=minute)
        connection.execute(sa.insert(tables["hitl_detail"]).values(**detail, assignees=assignees, created_at=created))


@pytest.fixture
def page(scene: Scene, database: sa.Engine) -> Iterator[TestClient]:
    """The page for a user who is signed in: what they may see is asked of the auth manager."""
    from airflow.api_fastapi.core_api.security import get_user
    from fastapi import FastAPI
    from starlette.testclient import TestClient

    from kafka_steward.page_address import MOUNT
    from kafka_steward.ui.app import create_app

    app, server = create_app(), FastAPI()
    app.dependency_overrides[get_user] = User
    server.mount(MOUNT, app)
    yield TestClient(server, base_url=f"http://testserver{MOUNT}/")
    app.state.journals.close()


def test_a_user_sees_the_clusters_of_the_dags_that_they_may_read(database: sa.Engine, manager: Manager) -> None:
    from kafka_steward.ui.access import VisibleClusters, WorkflowDag

    manager.readable = ["quiet_it", "stale_it"]
    quiet = WorkflowDag("quiet_it", "rebalance", paused=True)
    assert access().visible_clusters() == VisibleClusters({QUIET: (quiet,)})
    assert access().dags_of(QUIET) == (quiet,)
    assert access().dags_of(MOVING) == ()
    manager.readable = ["moving_it"]
    assert access().dags_of(MOVING) == (WorkflowDag("moving_it", "rebalance", paused=False, team="orders"),)
    assert access().dags_of(QUIET) == ()
    assert manager.asked == {("moving_it", "orders"), ("quiet_it", None)}


def test_a_connection_without_a_dag_is_named_to_who_may_read_it(database: sa.Engine, manager: Manager) -> None:
    assert access().visible_clusters().without_dag == ()
    manager.connections = ["unused", QUIET, "of_another_type"]
    assert access().visible_clusters().without_dag == ("unused",)


def test_every_page_asks_whether_a_dag_of_the_cluster_may_be_read(page: TestClient, manager: Manager) -> None:
    manager.readable = ["quiet_it"]
    for path in ("cluster", "health", "health.json", "audit", "audit.csv", "stop"):
        statuses = [page.get(path, params={"conn": conn_id}).status_code for conn_id in (QUIET, MOVING)]
        assert statuses == [200, 404], path
    for path in ("", "stop"):
        text = page.get(path).text
        assert (QUIET in text, MOVING in text) == (True, False)


def test_a_run_is_started_by_who_may_create_one(database: sa.Engine, manager: Manager) -> None:
    manager.readable, manager.rights = ["moving_it", "quiet_it"], [("moving_it", "RUN", "POST")]
    answers = [access().may_trigger(*access().dags_of(conn_id)) for conn_id in (MOVING, QUIET)]
    assert answers == [True, False]


@pytest.mark.parametrize("may", [True, False])
@pytest.mark.parametrize(
    ("assignees", "named"),
    [
        (None, True),
        ([], True),
        ([{"id": "id-of-ada", "name": "ada"}, {"id": "id-of-bob", "name": "bob"}], True),
        ([{"id": "id-of-bob", "name": "ada"}], False),
    ],
)
def test_an_approval_is_answered_by_its_approvers_who_may_answer_for_the_dag(
    database: sa.Engine, manager: Manager, assignees: list[dict[str, str]] | None, named: bool, may: bool
) -> None:
    manager.readable = ["moving_it"]
    manager.rights = [("moving_it", "HITL_DETAIL", "PUT")] if may else [("moving_it", "HITL_DETAIL", "GET")]
    ask(database, "moving_it", assignees, 5, person="grace")
    ((asked),) = access().pending_approvals(access().dags_of(MOVING))
    assert (asked.subject, asked.since_ms) == ("of moving_it", int(NOW.timestamp() * 1000) + 300_000)
    assert asked.person == "grace"
    assert asked.answerable == (named and may)


def test_the_approvals_are_those_of_the_dags_the_oldest_first(database: sa.Engine, manager: Manager) -> None:
    manager.readable = ["moving_it", "quiet_it"]
    for dag_id, minute in {"quiet_it": 1, "moving_it": 3}.items():
        ask(database, dag_id, None, minute)
    ask(database, "moving_it", None, 2, state="deferred")  # in Airflow 3.2
    asked = access().pending_approvals(access().dags_of(MOVING))
    assert [each.run_id for each in asked] == ["run-2", "run-3"]
    assert [each.person for each in asked] == [None, None]


def test_every_route_is_tried_in_a_real_airflow_by_those_who_may_not_see_it() -> None:
    from starlette.routing import Match, Route

    from kafka_steward.ui.app import ROUTES, create_app
    from tests.airflow.test_page import ROUTES as TRIED

    routes = [route for route in create_app().routes if isinstance(route, Route)]
    assert {route.path for route in routes} == set(ROUTES)
    scopes = [{"type": "http", "method": "GET", "path": f"/{path.partition('?')[0]}"} for path in TRIED]
    tried = {route.path for scope in scopes for route in routes if route.matches(scope)[0] is Match.FULL}
    assert tried == set(ROUTES)


@pytest.mark.parametrize("frame", [True, False])
def test_without_a_session_a_page_says_how_to_sign_in(scene: Scene, frame: bool) -> None:
    from starlette.testclient import TestClient

    from kafka_steward.ui.app import create_app

    app = create_app()
    answer = TestClient(app).get("/", headers={"Sec-Fetch-Dest": "iframe" if frame else "document"})
    assert answer.status_code == 401
    # There is no script without a session, and without a script Airflow's frame lets no link lead out of it.
    assert ("Reload the whole page in your browser" in answer.text) == frame
    assert ('/auth/login" target="_top">Sign in to Airflow' in answer.text) != frame
    app.state.journals.close()
