"""Each workflow in a real Airflow: triggered over REST, by a schedule, by an event.

In CI, half of them on KRaft and half with ZooKeeper; the other halves in `make slow`. The two clusters have
their evening at the same time, in threads of their own; a test waits for its step of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from kafka_steward.journal.audit import Action
from kafka_steward.sandbox.airflow import LocalAirflow
from tests.airflow.evening import FASTER, HALVES, SLOW, Evening

MODES = [pytest.param(mode, marks=getattr(pytest.mark, mode)) for mode in ("kraft", "zookeeper")]
pytestmark = [
    pytest.mark.airflow,
    pytest.mark.spark,
    pytest.mark.ci,
    pytest.mark.apart,
    pytest.mark.parametrize("mode", MODES),
]


@pytest.fixture(scope="module")
def evenings(airflow: LocalAirflow, request: pytest.FixtureRequest) -> Iterator[dict[str, Evening]]:
    selected = [item for item in request.session.items if item.path == request.path]
    steps = {mode: _steps([item for item in selected if item.get_closest_marker(mode)]) for mode in HALVES}
    found = {mode: Evening(airflow, mode, several) for mode, several in steps.items() if several}
    with ThreadPoolExecutor(len(found)) as pool:
        for evening in found.values():
            pool.submit(evening.run)
        yield found
    for file in airflow.dags.glob("evening_*.py"):
        file.unlink()


def _steps(tests: list[pytest.Item]) -> list[str]:
    """The halves of the evening that the tests of one mode look at."""
    halves = {mark.args[0] for test in tests if (mark := test.get_closest_marker("in_ci"))}
    return [step for half, steps in HALVES.items() if half in halves for step in steps]


@pytest.fixture
def evening(evenings: dict[str, Evening], mode: str) -> Evening:
    return evenings[mode]


@pytest.mark.in_ci("kraft")
def test_health_is_reported_on_demand_and_by_a_schedule(evening: Evening) -> None:
    found = evening.result("health")
    # Brokers 1 and 4 are in one rack of three, and three partitions have replicas on both.
    assert (found["by hand"]["healthy"], found["by hand"]["above"]) == (False, ["rack_violations"])
    measures = found["by hand"]["measures"]
    assert (measures["under_replicated_partitions"], measures["rack_violations"]) == (0, 3)
    assert (found["scheduled"]["state"], found["scheduled"]["run_type"]) == ("success", "scheduled")


@pytest.mark.in_ci("kraft")
def test_a_person_drains_a_broker_approves_that_plan_and_it_is_empty(evening: Evening) -> None:
    found = evening.result("drain")
    assert found["digest"] in found["asked"]
    assert all(word in found["asked"] for word in ("predicted duration", "replicas in", "even-0"))
    assert found["approved"] == ("ann", "approved: rack move")
    assert (found["status"], found["empty"], found["not_done_count"], found["holds"]) == ("completed", True, 0, 0)
    assert found["cordoned"]
    assert "Broker 4 is empty in Kafka and cordoned. Next: stop it, and" in found["sentence"]


@pytest.mark.in_ci("kraft")
def test_a_broker_that_joins_starts_the_fill_which_creates_the_pending_replicas(evening: Evening) -> None:
    found = evening.result("fill")
    assert (found["started"], found["were pending"], found["are pending"]) == ("asset_triggered", [0, 1, 2], [])
    assert (found["pending"], found["partitions"], found["replicas_moved"], found["lower_bound"]) == (0, 3, 3, 3)
    assert [set(replicas) for replicas in found["replicas"].values()] == [{1, 2, 3, 4}] * 3


@pytest.mark.in_ci("kraft")
def test_after_the_fill_the_broker_that_joined_gets_its_share(evening: Evening) -> None:
    found = evening.result("expand")
    assert (found["started"], found["status"], found["not_done_count"]) == ("asset_triggered", "completed", 0)
    assert found["holds"] > 3, "more than its pending replicas"


@pytest.mark.in_ci("kraft")
def test_a_person_demotes_a_broker_which_leads_nothing_and_promotes_it_again(evening: Evening) -> None:
    found = evening.result("demote")
    for operation in ("demote", "promote"):
        assert f": {operation} broker 1" in found[f"{operation} asked"]
        assert (found[operation]["status"], found[operation]["not_done_count"]) == ("completed", 0)
        assert found[f"{operation} copied"] == 0
    assert (found["demote led"], found["demote listed"]) == (0, {1})
    assert (found["promote led"] > 0, found["promote listed"]) == (True, set())
    assert (found["held after"], found["restored"]) == (found["held"], True)


@pytest.mark.in_ci("zookeeper")
def test_a_reassignment_by_hand_is_proven_approved_and_applied(evening: Evening) -> None:
    found = evening.result("apply")
    assert "will have 2 replicas instead of 3." in found["asked"]
    assert (found["status"], found["not_done_count"]) == ("completed", 0)
    assert found["replicas"] == found["given"]


@pytest.mark.in_ci("zookeeper")
def test_a_person_cancels_in_the_middle_and_all_that_was_in_flight_is_as_before(evening: Evening) -> None:
    found = evening.result("cancel")
    assert (found["as_before"], found["apply"]) == (True, "cancelled")
    assert found["after"] == found["before"] != {}


@pytest.mark.in_ci("zookeeper")
def test_a_form_changes_the_rate_of_a_plan_that_runs_on_every_broker(evening: Evening) -> None:
    found = evening.result("cancel")
    assert (found["rates"], found["changed"]) == ([{str(SLOW)}, {str(FASTER)}], FASTER)


@pytest.mark.in_ci("zookeeper")
def test_a_schedule_evens_out_by_itself(evening: Evening) -> None:
    found = evening.result("nightly")
    assert (found["started"], found["asked"], found["status"]) == ("scheduled", False, "completed")
    assert found["not_done_count"] == 0
    assert found["on broker 4"] > 0


@pytest.mark.in_ci("zookeeper")
def test_a_killed_broker_is_healed_and_nobody_looks(evening: Evening) -> None:
    found = evening.result("heal")
    assert (found["started"], found["brokers"]) == ("asset_triggered", [4])
    assert (found["under_replicated"], found["left"], found["hurt"]) == (0, 0, [])
    assert found["replicas_moved"] == found["lower_bound"] > 0
    assert {Action.PUBLISH, Action.SUBMIT, Action.SETTLE, Action.FINISH} <= found["actions"]
    assert found["runs"] == {found["run"]}
