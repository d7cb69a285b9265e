"""The operator that changes a running plan's rate: what it writes, and that the brokers have it within two steps."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from kafka_steward.execution.lifecycle import abandon_plan
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.publishing import publish_plan
from kafka_steward.execution.runner import PlanRunner
from kafka_steward.journal.audit import Action, Actor
from kafka_steward.operators.throttle import ChangeThrottleOperator
from kafka_steward.settings import Settings
from tests.airflow_home import context
from tests.operators.simulated import CONN_ID, Cluster, MakeCluster, make_cluster
from tests.simulated_plan import RATE, WHO, move, plan_of

__all__ = ["make_cluster"]

#: Slow enough that the plan does not end in these tests.
SETTINGS = Settings(throttle=10, step_interval=0.1, min_free=0.0)


@pytest.fixture
def cluster(make_cluster: MakeCluster) -> Cluster:
    return make_cluster("1a 2b 3c 4a 5b", "orders: 123 123 123 123", cluster_id="simulated")


def begun(cluster: Cluster) -> PlanRunner:
    """A plan that copies to two brokers, after its first step."""
    moves = [move(f"orders-{number}", "123", f"12{target}") for number, target in enumerate("4545")]
    digest = publish_plan(
        ClusterContext(cluster, cluster.journal, SETTINGS, WHO), plan_of(cluster, moves, operation="apply")
    ).digest
    runner = PlanRunner(ClusterContext(cluster, cluster.journal, SETTINGS, WHO), digest)
    told = runner.step()
    assert rates(cluster) == {4: "10", 5: "10"}, told
    return runner


def rates(cluster: Cluster) -> dict[int, str]:
    return {broker: found[RATE] for broker, found in cluster.broker_settings.items() if RATE in found}


def change(rate: Any, *, run_id: str = "manual__1", **given: Any) -> dict[str, Any]:
    operator = ChangeThrottleOperator(task_id="throttle", conn_id=CONN_ID, rate=rate, **given)
    return operator.execute(context(person="ada", task_id="throttle", dag_id="throttle", run_id=run_id))


def test_a_changed_rate_reaches_every_broker_within_two_steps(cluster: Cluster) -> None:
    runner = begun(cluster)
    (digest,) = [record.digest for record in cluster.journal.plans.unfinished()]
    told = change(40, reason="the night is quiet")
    assert told == {
        "plan": digest,
        "throttle": 40,
        "sentence": f"Plan {digest[:12]}: 40 bytes per second into one broker, from its next step on.",
    }
    for _ in range(2):
        cluster.tick()
        runner.step()
    assert rates(cluster) == {4: "40", 5: "40"}
    (row,) = cluster.journal.audit.rows(action=Action.REQUEST)
    assert (row.entry.reason, row.entry.after) == ("throttle: the night is quiet", {"throttle": 40})
    assert row.entry.who == Actor("throttle", "manual__1", "throttle", 1, "ada")


def test_no_throttle_at_all_is_a_rate_too(cluster: Cluster) -> None:
    runner = begun(cluster)
    assert change(0)["sentence"].endswith(": no throttle, from its next step on.")
    for _ in range(2):
        runner.step()
    assert rates(cluster) == {}


def test_it_works_while_the_cluster_does_not_answer(cluster: Cluster) -> None:
    begun(cluster)
    cluster.reachable = False
    assert change("2e7")["throttle"] == 20_000_000
    assert cluster.journal.audit.rows(action=Action.REQUEST)[0].entry.reason == "throttle: no reason was given"


def test_a_second_try_means_the_plan_of_the_first(cluster: Cluster) -> None:
    begun(cluster)
    first = change(40)["plan"]
    abandon_plan(cluster.journal, first, WHO, "enough")
    other = publish_plan(
        ClusterContext(cluster, cluster.journal, SETTINGS, WHO),
        plan_of(cluster, [move("orders-0", "123", "124")], operation="apply"),
    )
    with pytest.raises(AirflowFailException, match=f"Plan {first[:12]} has already ended: .*enough"):
        change(50)
    assert change(50, run_id="manual__2")["plan"] == other.digest
    assert change(60, run_id="manual__3", plan=other.digest[:8])["plan"] == other.digest


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            {},
            (
                "No plan holds the plan slot of cluster simulated, so there is no throttle to change; name a waiting "
                "plan"
            ),
        ),
        ({"plan": "3f2a"}, "no plan begins with 3f2a"),
    ],
)
def test_without_a_plan_it_fails_for_good(cluster: Cluster, given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(AirflowFailException, match=sentence):
        change(40, **given)


@pytest.mark.parametrize("rate", [None, -1, "50M", "", 1.5, True, 2**63, "{{ params.rate }}"])
def test_what_is_no_rate_fails_for_good_before_anything_is_opened(rate: Any) -> None:
    with pytest.raises(AirflowFailException, match="it takes bytes per second into one broker, such as 50000000, or 0"):
        change(rate)
