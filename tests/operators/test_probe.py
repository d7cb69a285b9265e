"""The probe of the workspace: from a worker, then from the triggerer, each of which sees the same file or does not."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest
from airflow.sdk import Context
from airflow.sdk.exceptions import TaskDeferred

from kafka_steward.doctor.planning import Probe, marked_workspace, probe_workspace
from kafka_steward.errors import SettingError
from kafka_steward.operators.checks import ProbeWorkspaceOperator
from kafka_steward.triggers.probe import ProbeWorkspaceTrigger
from tests.airflow_home import Connect

NOTHING = cast("Context", {"params": {}})


def probed(conn_id: str, marker: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the worker found, and what the triggerer found."""
    with pytest.raises(TaskDeferred) as deferred:
        ProbeWorkspaceOperator(task_id="probe", conn_id=conn_id, marker=marker).execute(NOTHING)
    trigger = deferred.value.trigger
    assert isinstance(trigger, ProbeWorkspaceTrigger)
    path, keywords = trigger.serialize()
    assert path == "kafka_steward.triggers.probe.ProbeWorkspaceTrigger"
    again = asyncio.run(ProbeWorkspaceTrigger(**keywords).payload())
    assert deferred.value.kwargs is not None
    found = ProbeWorkspaceOperator(task_id="probe").finish(NOTHING, again, **deferred.value.kwargs)
    return found["worker"], found["triggerer"]


def test_both_see_the_file_of_who_asks_and_leave_nothing(connect: Connect, tmp_path: Path) -> None:
    conn_id = connect(extra={"workspace": str(tmp_path)})
    with marked_workspace(str(tmp_path)) as marker:
        for found in probed(conn_id, marker):
            assert (found["uri"], found["problem"], found["marked"]) == (str(tmp_path), "", True)
    assert list(tmp_path.iterdir()) == []


def test_a_workspace_of_another_machine_has_no_such_file(connect: Connect, tmp_path: Path) -> None:
    conn_id = connect(extra={"workspace": str(tmp_path / "own")})
    (tmp_path / "own").mkdir()
    with marked_workspace(str(tmp_path)) as marker:
        assert [found["marked"] for found in probed(conn_id, marker)] == [False, False]


def test_a_workspace_that_cannot_be_written_is_found_and_fails_no_task(connect: Connect) -> None:
    worker, triggerer = probed(connect(extra={"workspace": "/proc/nowhere"}), "")
    for found in (worker, triggerer):
        assert found["problem"].startswith("The workspace cannot be written: ")


def test_a_setting_that_cannot_be_read_there_is_found() -> None:
    def raising() -> str:
        raise SettingError("No.")

    assert probe_workspace(raising, "").problem == "No."


@pytest.mark.parametrize("marker", ["../../etc/passwd", "doctor-x.txt", "/etc/passwd"])
def test_only_a_file_of_doctor_is_looked_for(tmp_path: Path, marker: str) -> None:
    assert probe_workspace(lambda: str(tmp_path), marker).marked is None


def test_a_probe_is_kept_by_airflow_as_json() -> None:
    found = Probe("/w", "a", "No.", marked=None)
    assert Probe.from_json(found.to_json()) == found
