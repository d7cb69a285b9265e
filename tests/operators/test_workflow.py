"""The tasks of a rebalance, one by one, on a simulated cluster with a real journal and real plan folders."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, DownstreamTasksSkipped, TaskDeferred

from kafka_steward.assignment import TopicPartition
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.watch.broker_joins import poll_empty_brokers
from kafka_steward.hooks.steward import StewardHook
from kafka_steward.journal.audit import Actor
from kafka_steward.journal.records import MoveState
from kafka_steward.journal.store import Journal
from kafka_steward.operators.approve import ApprovePlanOperator
from kafka_steward.operators.checks import CheckReassignmentOperator, ClusterReadyOperator
from kafka_steward.operators.rebalance import ClaimEmptyBrokersOperator, PlanRebalanceOperator
from kafka_steward.operators.report import ReportPlanOperator
from kafka_steward.operators.review import ReviewPlanOperator
from kafka_steward.operators.snapshot import SnapshotClusterOperator
from kafka_steward.operators.submit import SubmitReassignmentOperator
from kafka_steward.planning.files.formats import read_plan
from kafka_steward.settings import Settings
from tests.airflow_home import Connect, context
from tests.simulated_plan import memory_journal
from tests.simulator import Simulator


class Desk:
    """A simulated cluster behind the connection, and the tasks of a workflow on it."""

    def __init__(self, folder: Path, simulator: Simulator, journal: Journal) -> None:
        self.folder, self.simulator, self.journal = folder, simulator, journal
        self.settings = Settings(throttle=0, step_interval=0.1)
        self.origin = {"id": "0a1b", "place": "memory"}

    @property
    def access(self) -> Any:
        return SimpleNamespace(workspace=str(self.folder), settings=self.settings)

    @property
    def cluster(self) -> Simulator:
        return self.simulator

    def context(self, actor: Actor) -> ClusterContext:
        return ClusterContext(self.simulator, self.journal, self.settings, actor)

    def snapshot(self, *draining: int) -> dict[str, str]:
        operator = SnapshotClusterOperator(task_id="snapshot", conn_id="kafka_test", draining_brokers=list(draining))
        return operator.execute(context())

    def plan(self, snapshot: dict[str, str], *, run_type: str = "manual", **request: Any) -> dict[str, Any]:
        operator = PlanRebalanceOperator(task_id="plan", snapshot=snapshot, request=request, conn_id="kafka_test")
        return operator.execute(run_of(run_type))


def run_of(run_type: str = "manual", person: str | None = None) -> Any:
    found = context(person=person)
    found["dag_run"].run_type = run_type
    return found


@pytest.fixture
def desk(connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plans_in_process: None) -> Desk:
    connect()
    simulator = Simulator.of("1a 2b 3c 4a", "orders: 123 231 342 412", size=100)
    desk = Desk(tmp_path, simulator, memory_journal(simulator))

    @contextmanager
    def opened(_: StewardHook) -> Iterator[Desk]:
        yield desk

    monkeypatch.setattr(StewardHook, "open", opened)
    return desk


def responded(option: str, name: str | None = "ann", reason: str = "") -> dict[str, Any]:
    user = None if name is None else {"id": "7", "name": name}
    when = datetime(2026, 11, 21, tzinfo=UTC)
    return {
        "chosen_options": [option],
        "params_input": {"reason": reason},
        "responded_at": when,
        "responded_by_user": user,
    }


def asking(made: dict[str, Any], snapshot: dict[str, str], **more: Any) -> ApprovePlanOperator:
    return ApprovePlanOperator(task_id="approve", plan=made, snapshot=snapshot, conn_id="kafka_test", **more)


def approved(made: dict[str, Any], snapshot: dict[str, str], event: dict[str, Any]) -> dict[str, Any]:
    """What the task of an approval returns, after this answer."""
    answer = asking(made, snapshot).execute_complete(context(), event, digest=made["digest"])
    return dict(answer)


def submit(desk: Desk, made: dict[str, Any], snapshot: dict[str, str] | None = None) -> dict[str, Any]:
    operator = SubmitReassignmentOperator(
        task_id="submit", plan=made, snapshot=snapshot, require_approval=True, deferrable=False, conn_id="kafka_test"
    )
    operator._wait_unless_killed = lambda *_: desk.simulator.tick()  # type: ignore[method-assign]  # time passes, simulated
    return operator.execute(context())


def report(**given: Any) -> dict[str, Any]:
    return ReportPlanOperator(task_id="report", conn_id="kafka_test", **given).execute(context())


# the gate


def test_the_gate_goes_on_skips_or_waits(desk: Desk) -> None:
    def gate(**more: Any) -> ClusterReadyOperator:
        return ClusterReadyOperator(task_id="gate", conn_id="kafka_test", **more)

    assert gate().execute(context()) == "The cluster is fully replicated, and nothing is in flight."
    desk.simulator.kill(4)
    with pytest.raises(
        AirflowSkipException,
        match=r"The cluster is not ready: broker 4 is not live \(heal or restart it\); orders-2 and 1",
    ):
        gate().execute(context())
    with pytest.raises(TaskDeferred) as waits:
        gate(when_busy="wait").execute(context())
    assert waits.value.trigger.serialize()[1]["question"] == "ready"
    with pytest.raises(AirflowFailException, match="when_busy is 'hope'; it takes skip or wait"):
        gate(when_busy="hope").execute(context())


def test_a_maintenance_window_that_never_opens_fails_for_good_before_anything_is_connected_to(connect: Connect) -> None:
    connect()
    gate = ClusterReadyOperator(task_id="gate", conn_id="kafka_test")
    with pytest.raises(AirflowFailException, match="The maintenance window 22:00-22:00 never opens"):
        gate.execute(context(params={"maintenance_window": "22:00-22:00"}))


def test_a_gate_that_waits_in_the_worker_goes_on_when_the_cluster_is_whole(desk: Desk) -> None:
    desk.simulator.kill(4)
    gate = ClusterReadyOperator(
        task_id="gate", conn_id="kafka_test", when_busy="wait", deferrable=False, poke_interval=timedelta(seconds=0.01)
    )
    happenings: Iterator[Callable[[], object]] = iter(
        [lambda: None, lambda: desk.simulator.restart(4), desk.simulator.tick]
    )

    def waited(timeout: float | None = None) -> bool:
        next(happenings)()
        return False

    gate._killed.wait = waited  # type: ignore[method-assign]  # while it waits, something happens
    assert gate.execute(context()) == "The cluster is fully replicated, and nothing is in flight."


# drain, to the end


def test_a_drain_empties_the_broker_and_says_what_is_left_to_do(desk: Desk) -> None:
    snapshot = desk.snapshot(4)
    made = desk.plan(snapshot, operation="drain", brokers=[4])
    assert read_plan(made["uri"]).proof["brokers_draining"] == [4]
    answer = approved(made, snapshot, responded("Approve", reason="quarterly"))
    done = submit(desk, made)
    assert done["status"] == "completed"
    for partition in desk.simulator.topics.values():
        partition.held.pop(4, None)
    facts = report(plan=made, review={"stop": ""}, answer=answer, submitted=done, brokers=[4])
    assert (facts["empty"], facts["not_done_count"]) == (True, 0)
    assert "Broker 4 is empty in Kafka and cordoned. Next: stop it, and on KRaft" in facts["sentence"]
    (row,) = desk.journal.audit.rows(plan=made["digest"], action="approve")
    assert (row.entry.who.person, row.entry.reason) == ("ann", "approved: quarterly")


@pytest.mark.parametrize(
    ("brokers", "sentence"),
    [
        ([1, 2, 3, 4], "All live brokers would be drained"),
        ([9], "Broker 9 cannot be drained: the cluster has no broker 9"),
    ],
)
def test_draining_what_cannot_be_drained_fails_for_good(desk: Desk, brokers: list[int], sentence: str) -> None:
    with pytest.raises(AirflowFailException, match=sentence):
        desk.snapshot(*brokers)


def test_a_contradictory_request_fails_without_a_retry(desk: Desk) -> None:
    snapshot = desk.snapshot()
    with pytest.raises(AirflowFailException, match="Name the brokers to drain"):
        desk.plan(snapshot, operation="drain")
    with pytest.raises(AirflowFailException, match="Unknown rebalance option 'broker'"):
        desk.plan(snapshot, operation="drain", broker=[4])


def test_what_the_plan_left_on_a_drained_broker_is_said(desk: Desk) -> None:
    snapshot = desk.snapshot(4)
    made = desk.plan(snapshot, operation="drain", brokers=[4], max_moves=1)
    approved(made, snapshot, responded("Approve"))
    done = submit(desk, made)
    facts = report(plan=made, review={"stop": ""}, submitted=done, brokers=[4])
    assert facts["empty"] is False
    assert "Broker 4 is not empty yet: orders-" in facts["sentence"]


# nothing to do, dry run


def test_nothing_to_do_is_a_success_that_says_so(desk: Desk) -> None:
    snapshot = desk.snapshot()
    made = desk.plan(snapshot, operation="expand")
    assert (made["partitions"], made["uri"], made["page_digest"]) == (0, None, None)
    shown = stopped(made, snapshot)
    assert shown["sentence"] == "Nothing to do. No broker is live and empty: there is nothing to expand to."
    assert shown["stop"] == "nothing"
    facts = report(plan=made, review=shown)
    assert (facts["status"], facts["sentence"]) == ("nothing", shown["sentence"])


def test_a_dry_run_stops_after_the_plan_and_shows_it(desk: Desk) -> None:
    snapshot = desk.snapshot(4)
    made = desk.plan(snapshot, operation="drain", brokers=[4])
    shown = stopped(made, snapshot, plan_only=True)
    assert shown["stop"] == "dry_run"
    assert f"Dry run, nothing is submitted. The plan {made['digest'][:12]} moves" in shown["sentence"]
    facts = report(plan=made, review=shown, brokers=[4])
    assert (facts["sentence"], facts["empty"]) == (shown["sentence"], False)
    assert desk.journal.plans.latest(1) == []


def stopped(made: dict[str, Any], snapshot: dict[str, str], **more: Any) -> dict[str, str]:
    """What the task that shows the plan tells when it stops the run there."""
    with DAG("rebalance", schedule=None):
        show = ReviewPlanOperator(task_id="show", plan=made, snapshot=snapshot, conn_id="kafka_test", **more)
        show >> [
            ClusterReadyOperator(task_id="next"),
            ReportPlanOperator(task_id="report", plan=made, trigger_rule="none_failed_min_one_success"),
        ]
    where = context()
    with pytest.raises(DownstreamTasksSkipped) as skipped:
        show.execute(where)
    assert skipped.value.tasks == ["next"], "the report still runs"
    return dict(where["ti"].xcoms["return_value"])


# the budget of a scheduled run


def test_a_scheduled_run_is_planned_within_a_tenth_of_the_bytes(desk: Desk) -> None:
    desk.simulator.create("skewed", [(1, 2, 3)] * 12, size=100)
    snapshot = desk.snapshot()
    by_hand = desk.plan(snapshot, operation="rebalance")
    nightly = desk.plan(snapshot, operation="rebalance", run_type="scheduled")
    assert nightly["bytes_moved"] <= 0.1 * 16 * 3 * 100 < by_hand["bytes_moved"]
    assert nightly["partitions"] > 0


# approval


def test_a_small_plan_of_a_scheduled_run_goes_on_without_a_person_and_the_journal_says_so(desk: Desk) -> None:
    snapshot = desk.snapshot(4)
    made = desk.plan(snapshot, operation="drain", brokers=[4], max_moves=1, run_type="scheduled")
    options = read_plan(made["uri"]).proof["options"]
    assert (options["max_moves"], options["max_bytes"]) == (1, None), "the budget that was given, and no other"
    answer = asking(made, snapshot, approve_above=10**12).execute(run_of("scheduled"))
    assert (answer["approved"], answer["asked"], answer["person"]) == (True, False, None)
    (row,) = desk.journal.audit.rows(plan=made["digest"], action="approve")
    assert "a scheduled run moves" in row.entry.reason
    assert submit(desk, made)["status"] == "completed"


@pytest.mark.parametrize(
    ("event", "sentence"),
    [
        (responded("Reject", "bob", "too large"), "was rejected by bob (too large); nothing was submitted."),
        (responded("Reject", None), "was rejected as nobody answered; nothing was submitted."),
    ],
)
def test_what_is_rejected_or_not_answered_is_not_carried_out(desk: Desk, event: dict[str, Any], sentence: str) -> None:
    snapshot = desk.snapshot(4)
    made = desk.plan(snapshot, operation="drain", brokers=[4])
    where = context()
    with pytest.raises(AirflowSkipException, match="was rejected"):
        asking(made, snapshot).execute_complete(where, event, digest=made["digest"])
    with pytest.raises(AirflowFailException, match="it is not approved"):
        submit(desk, made)
    facts = report(plan=made, review={"stop": ""}, answer=where["ti"].xcoms["return_value"])
    assert facts["status"] == "rejected"
    assert facts["sentence"].endswith(sentence)
    assert [row.entry.action.value for row in desk.journal.audit.rows(plan=made["digest"])] == ["reject"]


def test_a_plan_that_was_made_anew_needs_another_approval(desk: Desk) -> None:
    snapshot = desk.snapshot(4)
    made = desk.plan(snapshot, operation="drain", brokers=[4])
    approved(made, snapshot, responded("Approve"))
    desk.simulator.tick()
    anew = desk.plan(desk.snapshot(4), operation="drain", brokers=[4])
    assert anew["digest"] != made["digest"]
    with pytest.raises(AirflowFailException, match=f"Plan {anew['digest'][:12]} was not submitted: it is not approved"):
        submit(desk, anew)


def test_what_changed_since_the_approval_is_reported_and_never_replaced(desk: Desk) -> None:
    snapshot = desk.snapshot(4)
    made = desk.plan(snapshot, operation="drain", brokers=[4])
    answer = approved(made, snapshot, responded("Approve"))
    desk.simulator.delete("orders")
    desk.simulator.create("orders", [(1, 2, 3)] * 4)
    done = submit(desk, made)
    told = context()
    task = ReportPlanOperator(
        task_id="report", conn_id="kafka_test", plan=made, review={"stop": ""}, answer=answer, submitted=done
    )
    with pytest.raises(AirflowFailException, match=f"^Plan {made['digest'][:12]}, failed: 0 partitions were moved"):
        task.execute(told)
    facts = told["ti"].xcoms["return_value"]
    planned_moves = len(read_plan(made["uri"]).moves)
    assert facts["not_done_count"] == planned_moves > 0
    assert all("deleted and re-created" in why for _, why in facts["not_done"])
    assert f"{planned_moves} partitions were not moved as approved, and no other moves were made" in (facts["sentence"])
    rows = desk.journal.plans.rows(made["digest"])
    assert {row.state for row in rows} == {MoveState.DROPPED}


# apply


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("{", "The reassignment is not JSON"),
        ({"version": 1, "partitions": []}, "lists no partition"),
        (
            GIVEN_TWICE := {"partitions": [{"topic": "orders", "partition": 0, "replicas": [1]}] * 2},
            "lists orders-0 twice",
        ),
        (
            {"partitions": [{"topic": "gone", "partition": 0, "replicas": [1]}]},
            "the topic gone, which the cluster does not have.",
        ),
        (
            {"partitions": [{"topic": "orders", "partition": 9, "replicas": [1]}]},
            "the partition orders-9, which the cluster does not have.",
        ),
        (
            {"partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 9]}]},
            "orders-0 is refused: the cluster has no broker 9; live are",
        ),
        (
            {"partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 4]}]},
            "orders-0 is refused: broker 4 is not live; live are",
        ),
        (
            {
                "partitions": [
                    {"topic": "orders", "partition": 0, "replicas": [1, 2, 3], "log_dirs": ["any", "/disk-2", "any"]}
                ]
            },
            'names the log directory "/disk-2" .* for orders-0 on broker 2, which has it in "/disk-1"',
        ),
    ],
)
def test_a_reassignment_that_cannot_be_carried_out_is_refused_with_a_sentence(
    desk: Desk, given: Any, sentence: str
) -> None:
    desk.simulator.kill(4)
    check = CheckReassignmentOperator(task_id="check", reassignment=given, conn_id="kafka_test")
    with pytest.raises(AirflowFailException, match=sentence):
        check.execute(context())


def test_a_reassignment_that_leaves_fewer_replicas_than_min_insync_replicas_is_refused(desk: Desk) -> None:
    desk.simulator.topic_settings["orders"]["min.insync.replicas"] = "4"
    given = {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [4, 2]}]}
    check = CheckReassignmentOperator(task_id="check", reassignment=given, conn_id="kafka_test")
    with pytest.raises(AirflowFailException, match="orders-0 is refused: it would go from 3 to 2 replicas"):
        check.execute(context())


def test_the_directory_of_an_added_replica_is_left_to_the_broker_and_logged(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = {"topic": "orders", "partition": 0, "replicas": [4, 2, 3]}
    given = {"version": 1, "partitions": [{**entry, "log_dirs": ["/disk-2", "/disk-1", "any"]}]}
    check = CheckReassignmentOperator(task_id="check", reassignment=given, conn_id="kafka_test")
    assert check.execute(context())["reassignment"] == {"version": 1, "partitions": [entry]}
    assert 'names a log directory (KIP-113) for orders-0 on broker 4; it is taken as "any"' in capsys.readouterr().out


@pytest.mark.parametrize("as_text", [True, False])
def test_a_reassignment_is_taken_as_it_was_written(desk: Desk, as_text: bool) -> None:
    import json

    given = {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [4, 2, 3]}]}
    check = CheckReassignmentOperator(
        task_id="check", reassignment=json.dumps(given) if as_text else given, conn_id="kafka_test"
    )
    assert check.execute(context()) == {"reassignment": given, "partitions": 1}
    assert desk.simulator.topics[TopicPartition("orders", 0)].replicas == (1, 2, 3)


def find(run_type: str = "asset_triggered", **more: Any) -> dict[str, Any]:
    return ClaimEmptyBrokersOperator(task_id="find_joined", conn_id="kafka_test", **more).execute(run_of(run_type))


def with_a_new_broker(desk: Desk) -> None:
    desk.simulator.racks[5] = "b"
    desk.simulator.broker_settings[5] = {}
    desk.simulator.alive.add(5)
    assert poll_empty_brokers(desk.simulator, desk.journal, desk.settings).due == (5,)


def test_a_broker_that_joined_is_taken_up_and_the_plan_gives_it_replicas(desk: Desk) -> None:
    with pytest.raises(AirflowSkipException, match=r"No broker that joined is waiting\."):
        find()
    with_a_new_broker(desk)
    found = find()
    assert found == {"operation": "expand", "brokers": [5], "sentence": "Broker 5 has joined."}
    made = desk.plan(desk.snapshot(), operation=found["operation"], run_type="asset_triggered")
    assert (made["nothing"], made["replicas_moved"] > 0) == ("", True)
    assert find()["brokers"] == [5], "a retry of the same run goes on"


def test_the_notes_of_a_plan_and_topics_that_take_no_part_are_in_the_log(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = desk.snapshot(2)
    desk.plan(taken, operation="drain", brokers=[2])
    assert "Broker 3 will hold a replica of all 4 partitions: it is alone in rack c." in capsys.readouterr().out
    for operation in ("rebalance", "expand"):
        with pytest.raises(AirflowFailException, match=r"No topic has a full name that matches typo; correct topics\."):
            desk.plan(desk.snapshot(), operation=operation, topics=["typo"])


def test_once_it_holds_something_a_rebalance_does_what_an_expand_would(desk: Desk) -> None:
    with_a_new_broker(desk)
    desk.simulator.alter({TopicPartition("orders", 0): (5, 2, 3)})
    desk.simulator.run()
    assert (find()["operation"], find()["brokers"]) == ("rebalance", [5])


def test_a_run_that_a_person_started_does_what_its_form_says_and_takes_up_nobody(desk: Desk) -> None:
    with_a_new_broker(desk)
    assert find("manual", operation="drain")["operation"] == "drain"
    assert find()["brokers"] == [5]
