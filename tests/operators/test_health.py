"""The report of a cluster's health, executed on a simulated Kafka (KIP-352)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from kafka_steward.assignment import TopicPartition
from kafka_steward.operators import health as operator_module
from kafka_steward.operators.health import ReportHealthOperator
from tests.airflow_home import context
from tests.operators.simulated import CONN_ID, MakeCluster

UNDER_REPLICATED = "kafka_steward.cluster.under_replicated_partitions"
Gauges = dict[str, tuple[float, Any]]


def report(**given: Any) -> dict[str, Any]:
    operator = ReportHealthOperator(task_id="health", conn_id=CONN_ID, **{"sample_s": 0, **given})
    return operator.execute(context(task_id="health"))


def unexpected(_: Any) -> None:
    pytest.fail("nobody is to be notified")


def test_a_healthy_cluster_is_reported_and_measured_and_nobody_is_notified(
    make_cluster: MakeCluster, gauges: Gauges
) -> None:
    make_cluster("1a 2b 3c", "orders: 123 231")
    facts = report(when_unhealthy="fail", on_unhealthy=unexpected)
    assert (facts["healthy"], facts["above"]) == (True, [])
    assert facts["sentence"].startswith("Of 2 partitions 0 are under-replicated, 0 are under min ISR, 0 are offline.")
    assert {name: gauge for name, gauge in gauges.items() if ".broker." not in name} == {
        f"kafka_steward.cluster.{name}": (value, {"conn_id": CONN_ID}) for name, value in facts["measures"].items()
    }
    assert gauges[UNDER_REPLICATED] == (0, {"conn_id": CONN_ID})


def test_an_unhealthy_cluster_is_notified_of_and_the_task_succeeds_by_default(
    make_cluster: MakeCluster, gauges: Gauges
) -> None:
    make_cluster("1a 2b 3c", "orders: 123 231").kill(3)
    notified: list[Any] = []
    facts = report(on_unhealthy=notified.append)
    assert (facts["healthy"], facts["above"]) == (False, ["under_replicated_partitions"])
    assert facts["measures"]["under_replicated_partitions"] == 2
    assert [each["kafka_steward"] for each in notified] == [{"event": "unhealthy", **facts}]
    assert gauges[UNDER_REPLICATED][0] == 2


def test_the_partitions_are_named_in_the_result_for_the_notification_and_in_the_log(
    make_cluster: MakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    make_cluster("1a 2b 3c", "orders: 123 231").kill(3)
    notified: list[Any] = []
    facts = report(on_unhealthy=notified.append)
    names = {"under_replicated": ["orders-0", "orders-1"], "under_min_isr": [], "offline": [], "reassigning": []}
    assert facts["partitions"] == notified[0]["kafka_steward"]["partitions"] == names
    assert "under replicated, 1 to 2 of 2: orders-0, orders-1" in capsys.readouterr().out


def test_where_it_is_to_fail_an_unhealthy_cluster_fails_the_task_for_good_after_the_notification(
    make_cluster: MakeCluster, gauges: Gauges
) -> None:
    make_cluster("1a 2b 3c", "orders: 123 231").kill(3)
    notified: list[Any] = []
    with pytest.raises(AirflowFailException) as failed:
        report(when_unhealthy="fail", on_unhealthy=notified.append)
    assert str(failed.value) == (
        "under_replicated_partitions: above the limit. Of 2 partitions 2 are under-replicated (orders-0, orders-1), "
        "0 are under min ISR, 0 are offline. None is being reassigned. Broker 3 is down."
    )
    assert [each["kafka_steward"]["event"] for each in notified] == ["unhealthy"]
    assert gauges[UNDER_REPLICATED][0] == 2, "what fails is measured all the same"


def test_a_reassignment_in_progress_neither_notifies_nor_fails_the_task(
    make_cluster: MakeCluster, gauges: Gauges
) -> None:
    cluster = make_cluster("1a 2b 3c 4a", "orders: 123 231")
    cluster.alter({TopicPartition("orders", 0): (1, 2, 4)})
    facts = report(when_unhealthy="fail", on_unhealthy=unexpected)
    assert (facts["healthy"], facts["measures"]["reassigning_partitions"]) == (True, 1)
    assert gauges[UNDER_REPLICATED][0] == 0


def test_the_limits_that_are_given_replace_the_usual_ones(make_cluster: MakeCluster) -> None:
    make_cluster("1a 2b 3c", "orders: 123 231").kill(3)
    assert report(limits={"under_replicated_partitions": 2}, when_unhealthy="fail")["above"] == []
    assert report(limits={"failed_brokers": 0})["above"] == ["failed_brokers"]


def test_while_something_is_reassigned_bytes_per_second_are_measured_over_the_sample(
    make_cluster: MakeCluster, gauges: Gauges, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = make_cluster("1a 2b 3c 4a", "orders: 123 231")
    cluster.bandwidth = 20
    cluster.alter({TopicPartition("orders", 0): (1, 2, 4)})
    waited_s: list[float] = []

    def wait(seconds: float) -> None:
        waited_s.append(seconds)
        cluster.tick(round(seconds))

    monkeypatch.setattr(operator_module, "time", SimpleNamespace(sleep=wait))
    measures = report(sample_s=2.0)["measures"]
    assert waited_s == [2.0]
    assert measures["reassignment_bytes_in_per_sec.4"] == measures["reassignment_bytes_out_per_sec.1"] == 20
    assert measures["reassignment_max_lag"] == 60
    assert gauges["kafka_steward.cluster.reassignment_bytes_in_per_sec.4"][0] == 20


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"when_unhealthy": "shout"}, "when_unhealthy is 'shout'; it takes report or fail"),
        ({"limits": {"lag": 1}}, "There is no measure 'lag'"),
    ],
)
def test_what_cannot_be_asked_for_fails_for_good_before_anything_is_measured(
    make_cluster: MakeCluster, gauges: Gauges, given: dict[str, Any], sentence: str
) -> None:
    make_cluster("1a 2b 3c", "orders: 123")
    with pytest.raises(AirflowFailException, match=sentence):
        report(**given)
    assert gauges == {}
