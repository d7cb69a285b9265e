"""The page without an Airflow around it: its app, a journal in SQLite, and a user with given rights."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.airflow_home import Connect, connect

if TYPE_CHECKING:
    # Not at run time: Airflow must be imported after tests.airflow_home.
    from starlette.testclient import TestClient

    from kafka_steward.ui.access import PendingApproval, VisibleClusters, WorkflowDag
    from tests.ui.scene import Scene

__all__ = ["Visit", "Visitor", "connect", "dags_of", "everything", "scene", "visit"]

WORKFLOWS = ("apply", "cancel", "controls", "expand", "fill", "heal", "health", "rebalance", "throttle")


def dags_of(conn_id: str, *, paused: Collection[str] = (), without: Collection[str] = ()) -> tuple[WorkflowDag, ...]:
    from kafka_steward.ui.access import WorkflowDag

    names = [name for name in WORKFLOWS if name not in without]
    return tuple(WorkflowDag(f"{name}_{conn_id}", name, name in paused) for name in names)


def everything() -> Visitor:
    """Somebody who may see all clusters of the scene, and start all."""
    from tests.ui.scene import CONN_IDS

    return Visitor({conn_id: dags_of(conn_id) for conn_id in CONN_IDS})


@dataclass
class Visitor:
    """A user in place of Airflow's: the clusters that they may see, with the DAGs, and what they may start."""

    clusters: dict[str, tuple[WorkflowDag, ...]] = field(default_factory=dict)
    may_start: bool = True
    approvals: list[PendingApproval] = field(default_factory=list)
    without_dag: tuple[str, ...] = ()
    name: str = "ada"

    def visible_clusters(self) -> VisibleClusters:
        from kafka_steward.ui.access import VisibleClusters

        return VisibleClusters(self.clusters, self.without_dag)

    def dags_of(self, conn_id: str) -> tuple[WorkflowDag, ...]:
        return self.clusters.get(conn_id, ())

    def may_trigger(self, dag: WorkflowDag) -> bool:  # noqa: ARG002 - the same for all
        return self.may_start

    def pending_approvals(self, dags: Any) -> list[PendingApproval]:  # noqa: ARG002 - the same for all
        return self.approvals


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """The file of a journal with three clusters, and the time at which it was filled, in ms."""
    from tests.ui.scene import Scene, fill_scene

    file, now_ms = tmp_path_factory.mktemp("filled") / "journal.db", int(time.time() * 1000)
    fill_scene(Scene(f"sqlite:///{file}", now_ms))
    return file, now_ms


@pytest.fixture
def scene(connect: Connect, tmp_path: Path, filled: tuple[Path, int]) -> Scene:
    """A journal of its own with three clusters, behind three connections."""
    from tests.ui.scene import CONN_IDS, Scene, cluster_id

    file, now_ms = filled
    made = Scene(f"sqlite:///{shutil.copy(file, tmp_path)}", now_ms)
    for conn_id in CONN_IDS:
        connect(conn_id, extra={"journal": made.url, "cluster_id": cluster_id(conn_id)})
    return made


Visit = Callable[[Visitor], "TestClient"]


@pytest.fixture
def visit() -> Iterator[Visit]:
    """The page as a visitor meets it, mounted as the api-server mounts it."""
    from fastapi import FastAPI
    from starlette.testclient import TestClient

    from kafka_steward.page_address import MOUNT
    from kafka_steward.ui.app import create_app, get_access

    class Client(TestClient):
        """Takes addresses as a browser does: those without a slash are below the page's own."""

        def request(self, method: str, url: Any, **options: Any) -> Any:
            absolute = str(url).startswith(("/", "http:"))
            return super().request(method, url if absolute else f"{MOUNT}/{url}", **options)

    page = create_app()

    def client(visitor: Visitor) -> TestClient:
        page.dependency_overrides[get_access] = lambda: visitor
        server = FastAPI()
        server.mount(MOUNT, page)
        return Client(server)

    yield client
    page.state.journals.close()
