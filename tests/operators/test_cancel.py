"""What the cancel task returns and logs; cancels on real clusters are in tests/airflow/test_cancel_dag.py."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_steward.errors import PlanError
from kafka_steward.execution.cancel_signal import send_cancel_signal
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.publishing import publish_plan
from kafka_steward.execution.runner import PlanRunner
from kafka_steward.hooks.steward import StewardHook
from kafka_steward.journal.kip_documents import CancelRequest
from kafka_steward.operators.cancel import CancelReassignmentOperator
from kafka_steward.operators.submit import SubmitReassignmentOperator
from tests.airflow_home import context
from tests.operators.simulated import CONN_ID, MakeCluster
from tests.simulated_plan import WHO, move, plan_of


def test_what_cannot_go_back_is_returned_and_logged_with_the_reason(
    make_cluster: MakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = make_cluster("1a 2b 3c 4a", "orders: 412 123", step_interval=0.1, min_free=0.0)

    def wait(seconds: float) -> None:
        assert seconds > 0
        cluster.tick()

    plan = plan_of(cluster, [move("orders-0", "412", "312"), move("orders-1", "123", "124")], operation="apply")
    digest = publish_plan(ClusterContext(cluster, cluster.journal, StewardHook(CONN_ID).settings, WHO), plan).digest
    submit = SubmitReassignmentOperator(
        task_id="submit", conn_id=CONN_ID, plan={"uri": "/nowhere", "digest": digest}, deferrable=False
    )
    submit._wait_unless_killed = wait  # type: ignore[method-assign]
    assert submit.execute(context())["status"] == "completed"
    cluster.kill(4)

    cancel = CancelReassignmentOperator(task_id="cancel", conn_id=CONN_ID, plan=digest, scope="plan", deferrable=False)
    cancel._wait_unless_killed = wait  # type: ignore[method-assign]
    returned = cancel.execute(context())
    why = "its original broker 4 is not live"
    assert returned["left_alone"] == [{"topic": "orders", "partition": 0, "why": why}]
    assert (returned["left_alone_count"], returned["as_before"]) == (1, True)
    assert returned["returned"] == [{"topic": "orders", "partition": 1, "target": (1, 2, 4), "originals": (1, 2, 3)}]
    assert f"orders-0, left alone: {why}" in capsys.readouterr().out
    assert cluster.replicas() == {"orders-0": (3, 1, 2), "orders-1": (1, 2, 3)}


@pytest.mark.parametrize(("scope", "event"), [("pending", "cancelled"), ("plan", "rolled_back")])
def test_a_cancel_is_notified_with_what_it_returns(make_cluster: MakeCluster, scope: str, event: str) -> None:
    cluster = make_cluster("1a 2b 3c 4a", "orders: 412 123", step_interval=0.1, min_free=0.0)
    plan = plan_of(cluster, [move("orders-1", "123", "124")], operation="apply")
    context_of = ClusterContext(cluster, cluster.journal, StewardHook(CONN_ID).settings, WHO)
    digest, told = publish_plan(context_of, plan).digest, list[Any]()
    PlanRunner(context_of, digest).step()
    cancel = CancelReassignmentOperator(
        task_id="cancel", conn_id=CONN_ID, plan=digest, scope=scope, deferrable=False, on_cancelled=told.append
    )
    cancel._wait_unless_killed = lambda *_: cluster.tick()  # type: ignore[method-assign]  # time passes, simulated
    returned = cancel.execute(context())
    assert [each["kafka_steward"] for each in told] == [{"event": event, **returned}]


@pytest.mark.parametrize("run_type", ["asset_triggered", "manual"])
def test_a_run_that_the_cancel_signal_started_verifies_the_plan_that_the_watch_has_cancelled(
    make_cluster: MakeCluster, run_type: str
) -> None:
    cluster = make_cluster("1a 2b 3c 4a", "orders: 412 123", step_interval=0.1, min_free=0.0)
    settings = StewardHook(CONN_ID).settings
    plan = plan_of(cluster, [move("orders-1", "123", "124")], operation="apply")
    digest = publish_plan(ClusterContext(cluster, cluster.journal, settings, WHO), plan).digest
    send_cancel_signal(cluster.journal, CancelRequest(person="ada", reason="peak"), WHO)
    runner = PlanRunner(ClusterContext(cluster, cluster.journal, settings, WHO), digest)
    while not runner.step().ended:
        cluster.tick()

    cancel = CancelReassignmentOperator(task_id="cancel", conn_id=CONN_ID, deferrable=False)
    told = context()
    told["dag_run"].run_type = run_type
    if run_type == "manual":
        with pytest.raises(PlanError, match="No plan is in progress"):
            cancel.execute(told)
    else:
        returned = cancel.execute(told)
        assert (returned["plan"], returned["status"], returned["as_before"]) == (digest, "cancelled", True)
