"""The operators of the switch, of announced restarts and of the controls, on a journal whose cluster is down."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from kafka_steward.errors import RequestError
from kafka_steward.execution.announcements import announced_restarts, disabled_reason
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Actor
from kafka_steward.journal.mailbox import read_one
from kafka_steward.journal.store import Journal, open_journal
from kafka_steward.operators.documents import (
    AnnounceBrokerRestartOperator,
    ControlClusterOperator,
    DisableReassignmentOperator,
    EnableReassignmentOperator,
)
from tests.airflow_home import Connect, context

CLUSTER = "known-before"


@pytest.fixture
def journal(connect: Connect, tmp_path: Path) -> Iterator[Journal]:
    """The journal of a connection whose brokers do not answer; its cluster is known from the connection."""
    connect(extra={"cluster_id": CLUSTER})
    with open_journal(f"sqlite:///{tmp_path}/journal.db", CLUSTER) as opened:
        yield opened


def control(**request: Any) -> str:
    operator = ControlClusterOperator(task_id="control", conn_id="kafka_test", **request)
    return operator.execute(context(person="ada", task_id="control"))


def test_disable_and_enable_name_the_person_and_the_reason(journal: Journal) -> None:
    control(action="disable", reason="the racks are being rewired")
    off = disabled_reason(journal.mailbox)
    assert off.startswith("by ada since ")
    assert off.endswith(" (the racks are being rewired)")
    control(action="enable", reason="done")
    assert not disabled_reason(journal.mailbox)
    assert [row.entry.who.person for row in journal.audit.rows()] == ["ada", "ada"]


@pytest.mark.parametrize(("minutes", "lasts_ms"), [(None, None), ("", None), (20, 1_200_000), ("20", 1_200_000)])
def test_a_restart_is_announced_for_the_minutes(journal: Journal, minutes: Any, lasts_ms: int | None) -> None:
    control(action="announce_restart", broker="3", minutes=minutes)
    (announced,) = announced_restarts(journal.mailbox).values()
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


def run(operator: Any) -> str:
    return str(operator.execute(context(person="ada", task_id=operator.task_id)))


def disable(reason: str) -> str:
    return run(DisableReassignmentOperator(task_id="off", conn_id="kafka_test", reason=reason))


def enable(reason: str = "") -> str:
    return run(EnableReassignmentOperator(task_id="on", conn_id="kafka_test", reason=reason))


def announce(broker: int | str, lasts: timedelta | None = None) -> str:
    return run(AnnounceBrokerRestartOperator(task_id="announce", conn_id="kafka_test", broker=broker, lasts=lasts))


def requests(journal: Journal) -> list[tuple[str, object, Actor]]:
    return [(row.entry.reason, row.entry.after, row.entry.who) for row in journal.audit.rows()]


def by(task_id: str) -> Actor:
    return Actor("heal", "manual__2026-11-21T08:00:00+00:00", task_id, 1, "ada")


def test_disable_creates_the_switch_with_person_and_reason_and_enable_deletes_it(journal: Journal) -> None:
    told = disable("the racks are being rewired")
    off = disabled_reason(journal.mailbox)
    assert off.startswith("by ada since ")
    assert off.endswith(" (the racks are being rewired)")
    assert told == f"Reassignments are disabled {off}; moves in flight complete."
    assert enable("done") == f"Reassignments are enabled again; they were disabled {off}."
    assert read_one(journal.mailbox, paths.REASSIGN_CANCEL) is None
    assert requests(journal) == [
        ("disabled: the racks are being rewired", "disabled", by("off")),
        ("enabled again: done", "enabled", by("on")),
    ]


def test_a_second_run_of_either_changes_nothing(journal: Journal) -> None:
    disable("first")
    assert disable("second").startswith("Reassignments are already disabled, by ada since ")
    assert disabled_reason(journal.mailbox).endswith(" (first)")
    enable()
    assert enable() == "Reassignments are already enabled."
    assert [after for _, after, _ in requests(journal)] == ["disabled", "enabled"]


@pytest.mark.parametrize(("broker", "lasts"), [(3, None), ("3", timedelta(minutes=20))])
def test_announce_writes_the_brokers_entry_with_the_stated_time(
    journal: Journal, broker: int | str, lasts: timedelta | None
) -> None:
    told = announce(broker, lasts)
    assert told.startswith(f"Broker 3 announced a restart: it has {'1200 s' if lasts else 'its grace period'} to come")
    ((number, bounce),) = announced_restarts(journal.mailbox).items()
    assert (number, bounce.node.path) == (3, "/admin/rolling_bounce/3")
    assert bounce.until_ms == (bounce.announced_ms + 1_200_000 if lasts else None)
    assert requests(journal) == [(told, bounce.until_ms, by("announce"))]


@pytest.mark.parametrize("broker", ["", "x", "-1", "{{ params.broker }}"])
def test_what_is_no_broker_is_not_announced(journal: Journal, broker: str) -> None:
    with pytest.raises(RequestError, match="is not a broker id; it is a number from 0"):
        announce(broker)
    assert announced_restarts(journal.mailbox) == {}
