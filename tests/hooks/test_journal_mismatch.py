"""Work that another process began with one journal does not go on with another one."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_steward.errors import WrongJournal
from kafka_steward.hooks.context import hook_of
from kafka_steward.hooks.steward import StewardHook
from kafka_steward.triggers.base import ClusterWorker
from kafka_steward.triggers.run_plan import RunPlanTrigger
from kafka_steward.triggers.wait import WaitTrigger
from tests.airflow_home import Connect, context

ELSEWHERE = {"id": "bb", "place": "sqlite:////airflow/journal.db on the host triggerer-1"}


def run_started_by(*payloads: Any) -> Any:
    """A task's context in a run that these events of watches started."""
    found = context()
    found["dag_run"].consumed_asset_events = [SimpleNamespace(extra={"payload": payload}) for payload in payloads]
    return found


def hook_in(run: Any, conn_id: str) -> StewardHook:
    return hook_of(SimpleNamespace(conn_id=conn_id, settings={}), run)


def test_a_run_refuses_another_journal_than_its_watch_has(connect: Connect) -> None:
    run = run_started_by({"conn_id": "another", "journal": {"id": "cc"}}, {"conn_id": connect(), "journal": ELSEWHERE})
    with pytest.raises(
        WrongJournal,
        match=r"started with the journal at .* on the host triggerer-1, and this process opened another one",
    ):
        hook_in(run, "kafka_test").journal("c1")


@pytest.mark.parametrize(
    "payload",
    [
        {"conn_id": "another", "journal": ELSEWHERE},
        {"conn_id": "kafka_test"},
        {"conn_id": "kafka_test", "journal": 5},
        [],
    ],
)
def test_an_event_that_says_nothing_of_this_journal_holds_up_nothing(connect: Connect, payload: Any) -> None:
    connect()
    with hook_in(run_started_by(payload), "kafka_test").journal("c1") as journal:
        assert journal.identity is not None


def test_a_run_goes_on_with_the_journal_of_its_watch(connect: Connect) -> None:
    with StewardHook(connect()).journal("c1") as theirs:
        assert theirs.identity is not None
        payload = {"conn_id": "kafka_test", "journal": theirs.identity.to_json()}
    with hook_in(run_started_by(payload), "kafka_test").journal("c1") as ours:
        assert ours.identity == theirs.identity


def test_a_trigger_opens_the_journal_of_its_task_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []

    def open_and_fail(hook: StewardHook) -> None:
        opened.append(hook.expected_origin)
        raise WrongJournal("Another one.")

    monkeypatch.setattr(StewardHook, "open", open_and_fail)
    triggers: list[RunPlanTrigger | WaitTrigger] = [
        RunPlanTrigger("kafka", "aa", journal=ELSEWHERE),
        WaitTrigger("kafka", "ready", journal=ELSEWHERE),
    ]

    async def connect(thread: ClusterWorker) -> None:
        with pytest.raises(WrongJournal):
            await thread.submit(lambda _: None)
        thread.close()

    for trigger in triggers:
        asyncio.run(connect(type(trigger)(**trigger.serialize()[1])._thread))
    assert opened == [ELSEWHERE] * 2
