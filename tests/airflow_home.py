"""An AIRFLOW_HOME of its own for tests that import Airflow: import this before Airflow, as the conftests do."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

HOME = Path(tempfile.mkdtemp(prefix="kafka-steward-airflow-home-"))
atexit.register(shutil.rmtree, HOME, ignore_errors=True)
for name in [name for name in os.environ if name.startswith("AIRFLOW")]:
    del os.environ[name]
os.environ |= {"AIRFLOW_HOME": str(HOME), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}

# Airflow's DAG imports it when it first needs it, and it asks `file` what kind of Python this is: no test is to blame.
import_module("croniter")

#: Nothing listens there: port 1 of the loopback interface.
NOWHERE = "127.0.0.1:1"

Connect = Callable[..., str]


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Connect]:
    """Make an Airflow connection for this test: `connect("id", host=..., extra={...})`; returns the id."""

    def make(conn_id: str = "kafka_test", *, conn_type: str = "kafka_steward", **given: Any) -> str:
        places = {"journal": f"sqlite:///{tmp_path}/journal.db", "workspace": f"{tmp_path}/workspace"}
        # However full the disk is to which a real broker writes: no test is about this machine's.
        ours = {**places, "bootstrap_timeout_ms": 1000, "min_free": 0} if conn_type == "kafka_steward" else {}
        extra = {**ours, **given.pop("extra", {})}
        connection = {"conn_type": conn_type, "host": NOWHERE, **given, "extra": extra}
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(connection))
        return conn_id

    yield make
    # At each new secret Airflow's masker compiles all those that the process has seen: soon a tenth of a second.
    import_module("airflow.sdk._shared.secrets_masker").reset_secrets_masker()


def context(*, params: dict[str, Any] | None = None, person: str | None = None, **ti: Any) -> Any:
    """A task's context, as far as the operators read it; XComs that are pushed end up in `ti.xcoms`."""
    values = {"dag_id": "heal", "run_id": "manual__2026-11-21T08:00:00+00:00", "task_id": "task", "try_number": 1, **ti}
    xcoms: dict[str, Any] = {}
    task_instance = SimpleNamespace(**values, xcoms=xcoms, xcom_push=xcoms.__setitem__)
    return {"ti": task_instance, "params": params or {}, "dag_run": SimpleNamespace(triggering_user_name=person)}
