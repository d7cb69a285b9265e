"""A task that steps in the worker goes on with an Airflow connection that was edited, as the triggerer does."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from kafka_steward.errors import WrongJournal
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.publishing import publish_plan
from kafka_steward.hooks.steward import StewardHook
from kafka_steward.journal.identity import Identity
from kafka_steward.operators.cancel import CancelReassignmentOperator
from kafka_steward.operators.execution import PlanExecutionOperator
from kafka_steward.operators.submit import SubmitReassignmentOperator
from tests.airflow_home import Connect, context
from tests.operators.simulated import CONN_ID, Cluster, MakeCluster, make_cluster
from tests.simulated_plan import RATE, WHO, move, plan_of

__all__ = ["make_cluster"]

SLOW: dict[str, Any] = {"throttle": 10, "step_interval": 0.1, "min_free": 0.0}


@pytest.fixture
def cluster(make_cluster: MakeCluster) -> Cluster:
    return make_cluster("1a 2b 3c 4a 5b", "orders: 123 123 123 123", **SLOW)


def published(cluster: Cluster) -> str:
    moves = [move(f"orders-{number}", "123", f"12{target}") for number, target in enumerate("4545")]
    plan = plan_of(cluster, moves, operation="apply")
    return publish_plan(ClusterContext(cluster, cluster.journal, StewardHook(CONN_ID).settings, WHO), plan).digest


def run(
    operator: PlanExecutionOperator, cluster: Cluster, waits: dict[int, Any], *, reread_s: float = 0.0
) -> dict[str, Any]:
    """Execute it; `waits` says what happens in which wait between two steps."""
    count = 0

    def wait(seconds: float) -> None:
        nonlocal count
        count += 1
        waits.get(count, lambda: None)()
        cluster.tick()

    operator._wait_unless_killed, operator._reread_s = wait, reread_s  # type: ignore[method-assign]
    found: dict[str, Any] = operator.execute(context())
    return found


def rates(cluster: Cluster) -> dict[int, str]:
    return {broker: found[RATE] for broker, found in cluster.broker_settings.items() if RATE in found}


def submit(digest: str) -> SubmitReassignmentOperator:
    plan = {"uri": "/nowhere", "digest": digest}
    return SubmitReassignmentOperator(task_id="submit", conn_id=CONN_ID, plan=plan, deferrable=False)


def test_a_rate_that_is_edited_reaches_every_broker_within_two_steps(cluster: Cluster, connect: Connect) -> None:
    seen: list[dict[int, str]] = []
    waits = {
        1: lambda: seen.append(rates(cluster)),
        2: lambda: connect(CONN_ID, extra={**SLOW, "throttle": 40}),
        4: lambda: seen.append(rates(cluster)),
    }
    told = run(submit(published(cluster)), cluster, waits)
    assert seen == [{4: "10", 5: "10"}, {4: "40", 5: "40"}]
    assert (told["status"], told["left"], rates(cluster)) == ("completed", 0, {})


def test_it_is_looked_up_every_minute_only(cluster: Cluster, connect: Connect) -> None:
    seen: list[dict[int, str]] = []
    waits = {
        1: lambda: connect(CONN_ID, extra={**SLOW, "throttle": 40}),
        4: lambda: seen.append(rates(cluster)),
    }
    run(submit(published(cluster)), cluster, waits, reread_s=60)
    assert seen == [{4: "10", 5: "10"}]
    assert PlanExecutionOperator._reread_s == 60


def test_a_cancel_in_the_worker_follows_edits_too(cluster: Cluster, connect: Connect) -> None:
    digest = published(cluster)
    cancelled = submit(digest)
    run(cancelled, cluster, {})
    seen: list[dict[int, str]] = []
    waits = {
        2: lambda: connect(CONN_ID, extra={**SLOW, "throttle": 40}),
        5: lambda: seen.append(rates(cluster)),
    }
    operator = CancelReassignmentOperator(
        task_id="cancel", conn_id=CONN_ID, plan=digest, scope="plan", deferrable=False
    )
    told = run(operator, cluster, waits)
    assert told["as_before"]
    assert seen == [{3: "40"}]


def test_a_connection_that_is_deleted_or_broken_meanwhile_ends_nothing(
    cluster: Cluster, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = {
        1: lambda: monkeypatch.delenv(f"AIRFLOW_CONN_{CONN_ID.upper()}"),
        2: lambda: connect(CONN_ID, extra={**SLOW, "throttle": "much"}),
    }
    assert run(submit(published(cluster)), cluster, waits)["status"] == "completed"


def test_another_journal_is_refused_in_the_middle_of_a_plan(
    cluster: Cluster, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan is in the journal that it was begun with; what would be read in another one is none of it."""
    begun_with: list[Any] = []
    digest = published(cluster)
    cluster.journal.identity = Identity("0a1b", "memory", "memory")

    def journal(hook: StewardHook, *_: Any, **__: Any) -> Any:
        begun_with.append(hook.expected_origin)
        Identity("0a1b" if len(begun_with) == 1 else "ffff", "memory", "memory").require_same_journal(
            hook.expected_origin
        )
        return cluster.journal

    monkeypatch.setattr(StewardHook, "journal", journal)
    with pytest.raises(AirflowFailException, match="started with the journal at memory") as refused:
        run(submit(digest), cluster, {2: lambda: connect(CONN_ID, extra={**SLOW, "throttle": 40})})
    assert isinstance(refused.value.__cause__, WrongJournal)
    assert begun_with == [None, {"id": "0a1b", "place": "memory"}]
