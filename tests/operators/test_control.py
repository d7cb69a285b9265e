"""The operator of the controls: each of its three changes, and what it refuses, on a journal whose cluster is down."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from kafka_steward.execution.readiness import announced_restarts, disabled_reason
from kafka_steward.journal.store import Journal, open_journal
from kafka_steward.operators.control import ControlClusterOperator
from tests.airflow_home import Connect, context

CLUSTER = "known-before"


@pytest.fixture
def journal(connect: Connect, tmp_path: Path) -> Iterator[Journal]:
    connect(extra={"cluster_id": CLUSTER})
    with open_journal(f"sqlite:///{tmp_path}/journal.db", CLUSTER) as opened:
        yield opened


def control(**request: Any) -> str:
    operator = ControlClusterOperator(task_id="control", conn_id="kafka_test", **request)
    return operator.execute(context(person="ada", task_id="control"))


def test_disable_and_enable_name_the_person_and_the_reason(journal: Journal) -> None:
    control(action="disable", reason="the racks are being rewired")
    off = disabled_reason(journal.tree)
    assert off.startswith("by ada since ")
    assert off.endswith(" (the racks are being rewired)")
    control(action="enable", reason="done")
    assert not disabled_reason(journal.tree)
    assert [row.entry.who.person for row in journal.audit.rows()] == ["ada", "ada"]


@pytest.mark.parametrize(("minutes", "lasts_ms"), [(None, None), ("", None), (20, 1_200_000), ("20", 1_200_000)])
def test_a_restart_is_announced_for_the_minutes(journal: Journal, minutes: Any, lasts_ms: int | None) -> None:
    control(action="announce_restart", broker="3", minutes=minutes)
    (announced,) = announced_restarts(journal.tree).values()
    assert announced.until_ms == (lasts_ms and announced.announced_ms + lasts_ms)


@pytest.mark.parametrize(
    ("request_of_it", "sentence"),
    [
        ({"action": "explode"}, "There is no action 'explode'; there are disable, enable, announce_restart."),
        ({"action": "disable"}, "Give a reason why reassignments are disabled"),
        ({"action": "announce_restart"}, "The broker is None; it takes the id of a broker, a number from 0."),
        ({"action": "announce_restart", "broker": -1}, "The broker is -1; it takes"),
        ({"action": "announce_restart", "broker": 1, "minutes": "x"}, "The duration is 'x'; it takes a number of"),
        ({"action": "announce_restart", "broker": 1, "minutes": 0}, "A restart cannot last 0 ms"),
    ],
)
def test_a_request_that_is_not_complete_fails_without_a_retry(
    journal: Journal, request_of_it: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(AirflowFailException, match=sentence):
        control(**request_of_it)
    assert not list(journal.audit.rows())
