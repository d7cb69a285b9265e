"""What all operators have: settings, folders, notifiers, examples, links, and the journal of their triggers."""

from __future__ import annotations

import asyncio
import doctest
import importlib
import inspect
import re
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import pytest
from airflow.sdk import BaseNotifier, BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException, TaskDeferred
from airflow.sdk.types import TaskInstanceKey

from kafka_steward.dags import apply, cancel, heal, rebalance, throttle
from kafka_steward.errors import KafkaRefused
from kafka_steward.execution.plans.publishing import publish_plan
from kafka_steward.execution.plans.runner import PlanRunner
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.hooks.context import actor_fields, merge_overrides
from kafka_steward.journal.identity import Identity
from kafka_steward.operators.approve import ApprovePlanOperator
from kafka_steward.operators.base import StewardOperator, attempt_folder, notify, skip_downstream
from kafka_steward.operators.checks import ClusterReadyOperator, ProbeWorkspaceOperator
from kafka_steward.operators.leaders import ElectLeadersOperator
from kafka_steward.operators.links import PlanLink
from kafka_steward.operators.plan_control import CancelReassignmentOperator, RollbackReassignmentOperator
from kafka_steward.operators.report import ReportPlanOperator
from kafka_steward.operators.submit import SubmitReassignmentOperator
from kafka_steward.provider_info import get_provider_info
from kafka_steward.sensors.health import ClusterHealthSensor
from kafka_steward.settings import Settings
from kafka_steward.triggers.reporting import ProgressLog
from kafka_steward.triggers.wait import CheckResult, WaitTrigger
from tests.airflow_home import context
from tests.operators.simulated import CONN_ID, Cluster, MakeCluster
from tests.simulated_plan import WHO, move, plan_of
from tests.triggers.progress_values import progress


def test_a_runs_parameters_win_over_the_operators_settings() -> None:
    run = context(params={"throttle": 3, "window": None, "mode": "report", "brokers": [1]})
    assert merge_overrides({"throttle": 2, "window": "chunk", "min_free": 0.2}, run) == {
        "throttle": 3,
        "window": "chunk",
        "min_free": 0.2,
    }


def test_who_is_the_try_and_the_person() -> None:
    assert actor_fields(context(person="ann", task_id="submit", try_number=3)) == {
        "dag_id": "heal",
        "run_id": "manual__2026-11-21T08:00:00+00:00",
        "task_id": "submit",
        "try_number": 3,
        "person": "ann",
    }


def folder(run_id: str) -> str:
    opened = SimpleNamespace(
        access=SimpleNamespace(workspace="s3://bucket/steward"), cluster=SimpleNamespace(cluster_id="Abc-1_x")
    )
    task = context(task_id="group.snapshot", try_number=2, run_id=run_id)
    return attempt_folder(cast("Any", opened), task, "snapshot")


def test_each_try_has_a_folder_of_its_own_that_any_file_system_takes() -> None:
    assert folder("manual__1") == "s3://bucket/steward/Abc-1_x/heal/manual__1/group.snapshot-snapshot-2"
    found = re.fullmatch(
        r"s3://bucket/steward/Abc-1_x/heal/manual__2026-11-21T08_00_00_00_00-[0-9a-f]{12}/group.snapshot-snapshot-2",
        folder("manual__2026-11-21T08:00:00+00:00"),
    )
    assert found


def test_two_runs_never_share_a_folder_and_none_leaves_the_workspace() -> None:
    names = ["a:b", "a+b", "a_b", ".", "..", "...", "../x", "a/b", "", "é"]
    folders = [folder(name) for name in names]
    assert len(set(folders)) == len(names)
    assert not any(part.strip(".") == "" for each in folders for part in each.removeprefix("s3://").split("/"))
    assert {each.count("/") for each in folders} == {folder("plain").count("/")}


class Remembering(BaseNotifier):
    """A notifier in Airflow's own form, with a template."""

    template_fields = ("message",)

    def __init__(self) -> None:
        super().__init__()
        self.message = "{{ kafka_steward.event }}: {{ kafka_steward.sentence }}"
        self.told: list[str] = []

    def notify(self, context: Any) -> None:  # noqa: ARG002 - Airflow's
        self.told.append(self.message)


def test_airflows_notifiers_and_functions_get_the_facts() -> None:
    notifier = Remembering()
    received: list[Any] = []
    notify([notifier, received.append], context(), "healed", {"sentence": "All whole.", "brokers": [3]})
    assert notifier.told == ["healed: All whole."]
    assert received[0]["kafka_steward"] == {"event": "healed", "sentence": "All whole.", "brokers": [3]}
    assert received[0]["ti"].task_id == "task"


def test_one_that_fails_stops_neither_the_others_nor_the_task() -> None:
    received: list[Any] = []

    def broken(_: Any) -> None:
        raise ZeroDivisionError

    notify([broken, received.append], context(), "healed", {"sentence": "All whole."})
    assert len(received) == 1


_INFO = get_provider_info()
_MODULES = [name for kind in ("operators", "sensors") for entry in _INFO[kind] for name in entry["python-modules"]]


def classes() -> list[type[Any]]:
    found = [
        value
        for name in _MODULES
        for _, value in inspect.getmembers(importlib.import_module(name), inspect.isclass)
        if issubclass(value, BaseOperator) and value.__module__ == name
    ]
    assert len(found) > 20
    return found


@pytest.mark.parametrize("operator", classes(), ids=lambda each: each.__name__)
def test_the_example_of_each_operator_runs(operator: type[Any]) -> None:
    module = importlib.import_module(operator.__module__)
    tests = doctest.DocTestFinder(recurse=False).find(operator, operator.__name__, module=module)
    with_examples: list[doctest.DocTest | None] = [test for test in tests if test.examples]
    (test,) = with_examples or [None]
    assert test is not None, "it has no example"
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    runner.run(test, clear_globs=False)
    assert runner.summarize(verbose=False).failed == 0


DIGEST = "3f2a91c0" * 8
HERE = TaskInstanceKey("heal", "submit", "manual__1")
#: What a connection or a digest may be called by someone who means harm.
HOSTILE = "a&digest=0000000#x?<script>\"'%2e/../é\u202e\ud800 b"


def link_of(task: BaseOperator) -> str:
    (link,) = task.operator_extra_links
    return link.get_link(task, ti_key=HERE)


@pytest.mark.parametrize(
    ("dag", "linked"),
    [
        (heal, {"plan", "submit", "report"}),
        (rebalance, {"plan", "show_plan", "approve", "submit", "report"}),
        (apply, {"plan", "show_plan", "approve", "submit", "report"}),
        (cancel, {"cancel", "elect_leaders"}),
        (throttle, {"throttle"}),
    ],
)
def test_each_task_that_makes_or_carries_out_a_plan_links_to_it(dag: Any, linked: set[str]) -> None:
    tasks = dag().tasks
    assert {
        task.task_id for task in tasks if any(isinstance(each, PlanLink) for each in task.operator_extra_links)
    } == (linked)


def test_airflow_knows_the_link() -> None:
    assert get_provider_info()["extra-links"] == [f"{PlanLink.__module__}.{PlanLink.__name__}"]


def test_a_task_links_to_the_plan_in_the_result_that_it_is_given() -> None:
    task = ReportPlanOperator(task_id="report", conn_id="kafka_east", plan={"uri": "/plan", "digest": DIGEST})
    assert link_of(task) == f"/kafka-steward/plan?conn=kafka_east&digest={DIGEST}"
    assert link_of(ElectLeadersOperator(task_id="elect", conn_id="kafka_east", plan=DIGEST)) == link_of(task)


def test_the_plan_that_a_task_has_found_counts_more_than_the_beginning_of_a_digest() -> None:
    task = CancelReassignmentOperator(task_id="cancel", conn_id="kafka_east", plan=DIGEST[:8])
    assert link_of(task).endswith(f"digest={DIGEST[:8]}")
    task.linked_plan = DIGEST
    assert link_of(task).endswith(f"digest={DIGEST}")


@pytest.mark.parametrize(
    "plan", [None, "", "/workspace/plan", {"digest": None, "uri": None}, {"uri": "/x"}, 3, HOSTILE]
)
def test_a_task_without_a_plan_links_to_nothing(plan: Any) -> None:
    assert link_of(SubmitReassignmentOperator(task_id="submit", plan=plan)) == ""


def test_no_connection_breaks_out_of_the_address() -> None:
    task = SubmitReassignmentOperator(task_id="submit", conn_id=HOSTILE, plan={"digest": DIGEST})
    link = link_of(task)
    assert link.isascii()
    assert link.isprintable()
    assert not set("<>\"' ") & set(link)
    parts = urlsplit(link)
    assert (parts.scheme, parts.netloc, parts.path, parts.fragment) == ("", "", "/kafka-steward/plan", "")
    assert parse_qs(parts.query) == {"conn": [HOSTILE.replace("\ud800", "?")], "digest": [DIGEST]}


@pytest.mark.parametrize(
    ("base_url", "path"),
    [("", ""), ("http://airflow.example.com", ""), ("https://a.example.com/team/airflow/", "/team/airflow")],
)
def test_airflow_below_a_path_is_linked_below_it(monkeypatch: pytest.MonkeyPatch, base_url: str, path: str) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", base_url)
    task = SubmitReassignmentOperator(task_id="submit", conn_id="c", plan={"digest": DIGEST})
    assert link_of(task) == f"{path}/kafka-steward/plan?conn=c&digest={DIGEST}"


OURS = Identity("a-journal", "sqlite:////airflow/journal.db on the host worker-1", "zk-1:2181/kafka")
SETTINGS = Settings(throttle=0)
AT_ONCE = timedelta(0)


def published(cluster: Cluster) -> str:
    plan = plan_of(cluster, [move("orders-0", "123", "423", size=1000)], operation="apply")
    return publish_plan(ClusterContext(cluster, cluster.journal, SETTINGS, WHO), plan).digest


def submit(cluster: Cluster) -> StewardOperator:
    plan = {"uri": "/workspace/plan", "digest": published(cluster)}
    return SubmitReassignmentOperator(task_id="submit", conn_id=CONN_ID, plan=plan, defer_after=AT_ONCE)


def cancel_begun(kind: type[CancelReassignmentOperator], cluster: Cluster) -> StewardOperator:
    digest = published(cluster)
    PlanRunner(ClusterContext(cluster, cluster.journal, SETTINGS, WHO), digest).step()
    return kind(task_id="cancel", conn_id=CONN_ID, plan=digest, reason="wrong racks", defer_after=AT_ONCE)


def gate(cluster: Cluster) -> StewardOperator:
    cluster.kill(3)
    return ClusterReadyOperator(task_id="gate", conn_id=CONN_ID, when_busy="wait")


#: A new operator that defers is missing here until it is tried.
MAKE: dict[type[StewardOperator], Callable[[Cluster], StewardOperator]] = {
    SubmitReassignmentOperator: submit,
    CancelReassignmentOperator: partial(cancel_begun, CancelReassignmentOperator),
    RollbackReassignmentOperator: partial(cancel_begun, RollbackReassignmentOperator),
    ClusterReadyOperator: gate,
}
#: The first opens neither the cluster nor the journal; the trigger of the second is Airflow's.
WITHOUT_A_JOURNAL = {ProbeWorkspaceOperator, ApprovePlanOperator}


def deferring() -> list[type[StewardOperator]]:
    names = [name for entry in get_provider_info()["operators"] for name in entry["python-modules"]]
    found = {each for name in names for _, each in inspect.getmembers(importlib.import_module(name), inspect.isclass)}
    ours = {each for each in found if issubclass(each, StewardOperator) and each.__module__ in names}
    defer = [each for each in ours - WITHOUT_A_JOURNAL if hasattr(each, "execute_complete")]
    return sorted(defer, key=lambda each: each.__name__)


@pytest.mark.parametrize("operator", deferring(), ids=lambda each: each.__name__)
def test_the_trigger_of_an_operator_has_the_tasks_journal(
    make_cluster: MakeCluster, operator: type[StewardOperator]
) -> None:
    cluster = make_cluster("1a 2b 3c 4a", "orders: 123")
    cluster.journal.identity = OURS
    task = MAKE[operator](cluster)
    with pytest.raises(TaskDeferred) as waits:
        task.execute(context(task_id=task.task_id))
    assert waits.value.trigger.serialize()[1]["journal"] == OURS.to_json()


TWO_LINES = "orders\n2026 INFO all is well \x1b[2J\u202e"
ESCAPED = r"orders\x0a2026 INFO all is well \x1b[2J\u202e"


def test_what_kafka_answered_is_logged_as_one_line(
    make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = make_cluster("1a 2b", "t: 12")
    cluster.kill(1)
    cluster.restart(1)
    cluster.tick()
    refused = KafkaRefused(80, TWO_LINES, f"Kafka refused: {TWO_LINES}")
    monkeypatch.setattr(cluster, "elect_leaders", lambda names: dict.fromkeys(names, refused))
    ElectLeadersOperator(task_id="elect", conn_id=CONN_ID).execute(context(task_id="elect"))
    logged = capsys.readouterr().out
    assert f"t-0 keeps its leader: Kafka refused: {ESCAPED}" in logged
    assert TWO_LINES not in logged


def test_what_a_sensor_found_in_the_triggerer_is_logged_as_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    sensor = ClusterHealthSensor(task_id="wait", conn_id="kafka_test")
    sensor.execute_complete(context(task_id="wait"), {"done": True, "sentence": TWO_LINES, "value": 1})
    logged = capsys.readouterr().out
    assert ESCAPED in logged
    assert TWO_LINES not in logged


def test_what_a_sensor_s_trigger_found_is_logged_as_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    trigger = WaitTrigger("kafka_test", "ready")

    async def ask(_: Any) -> CheckResult:
        return CheckResult(True, TWO_LINES)

    trigger._thread.submit = ask  # type: ignore[assignment, method-assign]  # stands in for the thread
    assert asyncio.run(trigger._wait_until_met()).sentence == TWO_LINES
    logged = capsys.readouterr().out
    assert ESCAPED in logged
    assert TWO_LINES not in logged


def test_a_task_that_a_trigger_fails_does_so_with_one_line() -> None:
    event = {"done": False, "ended": False, "sentence": TWO_LINES, "progress": None, "for_good": False}
    with pytest.raises(AirflowFailException) as of_gate:
        ClusterReadyOperator(task_id="gate").execute_complete(context(task_id="gate"), event)
    with pytest.raises(AirflowFailException) as of_sensor:
        ClusterHealthSensor(task_id="wait").execute_complete(context(task_id="wait"), event)
    with pytest.raises(AirflowException) as of_plan:
        SubmitReassignmentOperator(task_id="submit", plan={"uri": "/p"}).execute_complete({}, event)
    assert [str(each.value) for each in (of_gate, of_sensor, of_plan)] == [ESCAPED] * 3


def test_why_the_rest_of_a_workflow_is_skipped_is_logged_as_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    task, given = ClusterReadyOperator(task_id="gate"), context(task_id="gate")
    with pytest.raises(Exception, match="orders") as skipped:
        skip_downstream(task, given, f"Plan 12 was rejected by {TWO_LINES}.")
    assert str(skipped.value) == f"Plan 12 was rejected by {ESCAPED}."
    logged = capsys.readouterr().out
    assert ESCAPED in logged
    assert TWO_LINES not in logged


def test_the_progress_of_a_plan_is_logged_as_one_line() -> None:
    lines: list[str] = []
    ProgressLog(lines.append, lambda: 0.0).report(progress(1, sentence=TWO_LINES))
    assert len(lines) == 1
    assert lines[0].endswith(ESCAPED)
