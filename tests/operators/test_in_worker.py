"""What a deferrable task does in the worker before it defers, on a simulator, and with what the trigger tells it."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException, TaskDeferred

from kafka_steward.errors import AuthenticationFailed, JournalUnreachable, PlanError
from kafka_steward.execution.announcements import disable_reassignment
from kafka_steward.execution.moves.progress import Progress
from kafka_steward.execution.plans.publishing import publish_plan
from kafka_steward.execution.plans.runner import PlanRunner
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.journal.audit import Action
from kafka_steward.journal.records import MoveState, PlanStatus
from kafka_steward.operators import submit as submit_module
from kafka_steward.operators.execution import PlanExecutionOperator, may_end_within
from kafka_steward.operators.plan_control import CancelReassignmentOperator
from kafka_steward.operators.submit import SubmitReassignmentOperator
from kafka_steward.settings import Settings
from kafka_steward.triggers.run_plan import RunPlanTrigger
from kafka_steward.triggers.wait import CheckResult, WaitTrigger, evaluate_check
from tests.airflow_home import context
from tests.operators.simulated import CONN_ID, Cluster, MakeCluster
from tests.simulated_plan import WHO, move, plan_of
from tests.triggers.progress_values import DIGEST, progress

#: A broker of the simulator takes in 100 bytes per tick.
SMALL, HUGE = 100, 10**6


@pytest.fixture
def small(make_cluster: MakeCluster) -> Cluster:
    return make_cluster("1a 2b 3c 4a", "orders: 123 231", step_interval=0.1, min_free=0.0)


def published(cluster: Cluster, size: int = SMALL) -> str:
    for partition in cluster.topics.values():
        partition.size = size
        partition.held = dict.fromkeys(partition.replicas, size)
    plan = plan_of(cluster, [move("orders-0", "123", "413", size=size)], operation="apply")
    return publish_plan(ClusterContext(cluster, cluster.journal, Settings(throttle=0), WHO), plan).digest


def submitting(cluster: Cluster, digest: str, **more: Any) -> tuple[SubmitReassignmentOperator, list[float]]:
    """The task of a plan, and the seconds that it waits: in each wait, a tick passes."""
    plan = {"uri": "/nowhere", "digest": digest}
    task = SubmitReassignmentOperator(task_id="submit", conn_id=CONN_ID, plan=plan, **more)
    return task, ticking(cluster, task)


def ticking(cluster: Cluster, task: PlanExecutionOperator) -> list[float]:
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        cluster.tick()

    task._wait_unless_killed = wait  # type: ignore[method-assign]  # time passes, simulated
    return waits


def deferred(task: PlanExecutionOperator) -> TaskDeferred:
    with pytest.raises(TaskDeferred) as waits:
        task.execute(context())
    return waits.value


def states(cluster: Cluster, digest: str) -> set[MoveState]:
    return {row.state for row in cluster.journal.plans.rows(digest)}


def test_a_plan_that_ends_soon_is_not_deferred_and_its_leaders_are_elected(small: Cluster) -> None:
    digest = published(small)
    task, waits = submitting(small, digest, elect_leaders=True)
    result = task.execute(context(task_id="submit"))
    assert (result["status"], result["left"], result["elected"], result["refused"]) == ("completed", 0, 1, 0)
    assert waits
    assert small.topics[row_of(small, digest)].leader == 4
    assert small.noted(Action.ELECT) == [("orders", "submit")]


def test_the_start_of_a_plan_is_notified_and_without_the_argument_no_leader_is_elected(small: Cluster) -> None:
    digest, told = published(small), list[Any]()
    task, _ = submitting(small, digest, on_started=told.append)
    assert set(task.execute(context())) == {"digest", "status", "sentence", "partitions", "left"}
    assert small.noted(Action.ELECT) == []
    assert [each["kafka_steward"] for each in told] == [
        {
            "event": "started",
            "sentence": f"Plan {digest[:12]} (apply) begins: 1 partition is moved.",
            "digest": digest,
            "partitions": 1,
            "brokers": [],
        }
    ]


def test_a_plan_that_gets_stuck_in_the_worker_is_notified(small: Cluster) -> None:
    digest, told = published(small), list[Any]()
    small.kill(4)
    task, _ = submitting(small, digest, deferrable=False, settings={"max_attempts": 2}, on_problem=told.append)
    with pytest.raises(AirflowFailException, match="is stuck after 2 attempts") as caught:
        task.execute(context())
    (facts,) = [each["kafka_steward"] for each in told]
    assert (facts["event"], facts["sentence"], facts["digest"]) == ("stuck", str(caught.value), digest)
    assert (facts["status"], facts["partitions"], facts["left"]) == ("stuck", 1, 0)


def row_of(cluster: Cluster, digest: str) -> Any:
    (row,) = cluster.journal.plans.rows(digest)
    return row.move.topic_partition


def test_a_plan_that_takes_longer_is_deferred_after_its_first_steps(small: Cluster) -> None:
    digest = published(small, HUGE)
    task, _ = submitting(small, digest, defer_after=timedelta(seconds=0.3))
    waiting = deferred(task)
    assert isinstance(waiting.trigger, RunPlanTrigger)
    assert (waiting.method_name, waiting.timeout, waiting.trigger.digest) == (
        "execute_complete",
        task.plan_timeout,
        digest,
    )
    assert states(small, digest) == {MoveState.SUBMITTED}


def test_a_plan_whose_bytes_take_longer_is_deferred_without_waiting_for_that(small: Cluster) -> None:
    task, waits = submitting(small, published(small, HUGE), defer_after=timedelta(hours=1))
    deferred(task)
    assert 0 < len(waits) < 5, "as soon as the rate is known"


def test_a_plan_that_may_not_start_while_reassignments_are_disabled_is_deferred_at_once(small: Cluster) -> None:
    digest = published(small)
    disable_reassignment(small.journal, who=WHO, reason="the racks are being rewired")
    task, waits = submitting(small, digest)
    deferred(task)
    assert (waits, states(small, digest)) == ([], {MoveState.HELD})


@pytest.mark.parametrize(
    "given",
    [{"settings": {"maintenance_window": "12:00-14:00"}}, {"defer_after": timedelta(0)}],
    ids=["outside its maintenance window", "with zero"],
)
def test_a_plan_is_deferred_before_its_first_step(small: Cluster, given: dict[str, Any]) -> None:
    digest = published(small)
    assert small.now_ms < 3_600_000, "the simulator's clock begins at 00:16:40"
    task, waits = submitting(small, digest, **given)
    deferred(task)
    assert (waits, states(small, digest)) == ([], {MoveState.WAITING})


@pytest.mark.parametrize(("age_ms", "begun"), [(None, False), (3_600_000, False), (2_000, True)])
def test_a_journal_that_no_watch_polls_may_not_be_the_triggerers(
    small: Cluster, age_ms: int | None, begun: bool
) -> None:
    digest = published(small, HUGE)
    rows = [] if age_ms is None else [{"kind": "failures", "age_ms": age_ms}]
    small.journal.hosts = SimpleNamespace(polls=lambda: rows)  # type: ignore[assignment]  # of all that it has
    task, waits = submitting(small, digest, defer_after=timedelta(hours=1))
    deferred(task)
    assert bool(waits) is begun
    assert states(small, digest) == {MoveState.SUBMITTED if begun else MoveState.WAITING}


@pytest.mark.parametrize(
    ("error", "ends"),
    [(JournalUnreachable("It is away."), TaskDeferred), (AuthenticationFailed("No."), AirflowFailException)],
)
def test_an_error_that_may_pass_is_left_to_the_triggerer(
    small: Cluster, monkeypatch: pytest.MonkeyPatch, error: Exception, ends: type[BaseException]
) -> None:
    def step(_: PlanRunner) -> Progress:
        raise error

    task, _ = submitting(small, published(small))
    monkeypatch.setattr(PlanRunner, "step", step)
    with pytest.raises(ends):
        task.execute(context())


@pytest.mark.parametrize(("on_kill", "asked"), [("nothing", False), ("cancel", True)])
def test_a_task_that_is_killed_in_the_worker_stops(
    small: Cluster, monkeypatch: pytest.MonkeyPatch, on_kill: str, asked: bool
) -> None:
    digest = published(small, HUGE)
    task = SubmitReassignmentOperator(
        task_id="submit", conn_id=CONN_ID, plan={"uri": "/nowhere", "digest": digest}, on_kill=on_kill
    )
    monkeypatch.setattr(submit_module, "is_task_over", lambda *_: True)
    task.on_kill()
    with pytest.raises(
        AirflowException, match="was killed; the plan stays in the journal, and clearing the task resumes"
    ):
        task.execute(context())
    record = small.journal.plans.get(digest)
    assert record is not None
    assert (record.cancel is not None) is asked


def test_a_retry_after_a_worker_died_resumes_the_plan(small: Cluster) -> None:
    digest = published(small)
    PlanRunner(ClusterContext(small, small.journal, Settings(throttle=0), WHO), digest).step()
    assert states(small, digest) == {MoveState.SUBMITTED}
    told: list[Any] = []
    task, _ = submitting(small, digest, on_started=told.append)
    assert task.execute(context())["status"] == "completed"
    assert told == [], "its first try has notified of the start"
    assert len(small.noted(Action.SUBMIT)) == 1


def test_a_cancel_that_ends_soon_is_not_deferred(small: Cluster) -> None:
    digest = published(small, HUGE)
    PlanRunner(ClusterContext(small, small.journal, Settings(throttle=0), WHO), digest).step()
    cancel = CancelReassignmentOperator(task_id="cancel", conn_id=CONN_ID, plan=digest, reason="wrong racks")
    ticking(small, cancel)
    assert (cancel.execute(context())["status"], small.replicas()["orders-0"]) == ("cancelled", (1, 2, 3))


def answering(monkeypatch: pytest.MonkeyPatch, *answers: bool) -> list[Any]:
    """Let the check of a plan's replicas be answered like this; returns what it was asked."""
    asked: list[Any] = []

    def evaluate(question: str, _: Any, arguments: Any) -> CheckResult:
        asked.append((question, arguments))
        return CheckResult(answers[min(len(asked), len(answers)) - 1], "orders-0 lacks 4 in its ISR.")

    monkeypatch.setattr(submit_module, "evaluate_check", evaluate)
    return asked


def test_replicas_that_are_in_sync_a_moment_later_are_waited_for_in_the_worker(
    small: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = published(small)
    asked = answering(monkeypatch, False, False, True)
    task, _ = submitting(small, digest, elect_leaders=True)
    assert task.execute(context())["elected"] == 1
    assert asked == [("caught_up", {"plan": digest})] * 3


def refusing(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Let the first check of a plan's replicas raise this."""
    errors = [error]

    def evaluate(question: str, opened: Any, arguments: Any) -> CheckResult:
        if errors:
            raise errors.pop()
        return evaluate_check(question, opened, arguments)

    monkeypatch.setattr(submit_module, "evaluate_check", evaluate)


def test_a_journal_that_is_away_after_the_plan_is_waited_for(small: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    refusing(monkeypatch, JournalUnreachable("It is away."))
    task, _ = submitting(small, published(small), elect_leaders=True)
    assert task.execute(context())["elected"] == 1


def test_what_waiting_cannot_resolve_fails_without_a_retry(small: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    refusing(monkeypatch, AuthenticationFailed("The password is wrong."))
    task, _ = submitting(small, published(small), elect_leaders=True)
    with pytest.raises(AirflowFailException, match=r"The password is wrong\."):
        task.execute(context())


def clocked(task: PlanExecutionOperator, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Let the clock of the task go on while it waits; returns what it waited for."""
    waits: list[float] = []
    monkeypatch.setattr(task, "_wait_unless_killed", waits.append)
    monkeypatch.setattr(submit_module, "time", SimpleNamespace(monotonic=lambda: sum(waits)))
    return waits


def ended(cluster: Cluster) -> str:
    digest = published(cluster)
    submitting(cluster, digest)[0].execute(context())
    return digest


def test_replicas_that_are_not_in_sync_for_long_are_waited_for_in_the_triggerer(
    small: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = ended(small)
    answering(monkeypatch, False)
    task, _ = submitting(small, digest, elect_leaders=True, catch_up_timeout=timedelta(hours=2))
    waits = clocked(task, monkeypatch)
    waiting = deferred(task)
    assert sum(waits) == 10
    trigger = waiting.trigger
    assert isinstance(trigger, WaitTrigger)
    assert (trigger.question, trigger.arguments, waiting.timeout) == ("caught_up", {"plan": digest}, timedelta(hours=2))
    assert small.noted(Action.ELECT) == []

    resume = getattr(task, waiting.method_name)
    event = {"done": True, "sentence": "All replicas of 1 partition is in sync.", "value": None}
    result = resume(context(), event, **(waiting.kwargs or {}))
    assert (result["digest"], result["status"], result["elected"]) == (digest, "completed", 1)
    with pytest.raises(AirflowFailException, match="is not in the journal"):
        resume(context(), {"done": False, "sentence": "The plan is not in the journal."}, **(waiting.kwargs or {}))


def test_a_worker_that_waits_itself_gives_up_after_the_timeout(small: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, False)
    task, _ = submitting(
        small, ended(small), elect_leaders=True, deferrable=False, catch_up_timeout=timedelta(seconds=25)
    )
    waits = clocked(task, monkeypatch)
    with pytest.raises(AirflowException, match=r"Not in sync within 0:00:25\. orders-0 lacks 4") as caught:
        task.execute(context())
    assert not isinstance(caught.value, AirflowFailException)
    assert waits == [1.0] * 10 + [10.0] * 2


def test_the_leaders_are_elected_after_the_triggerer_has_executed_the_plan(small: Cluster) -> None:
    told = progress(1, total=1, status=PlanStatus.COMPLETED, digest=ended(small))
    event = {"ended": True, "sentence": told.sentence, "progress": told.to_json()}
    task, _ = submitting(small, told.digest, elect_leaders=True)
    assert task.execute_complete(context(), event)["elected"] == 1


IN_FLIGHT: dict[str, Any] = {"in_flight": 1}


@pytest.mark.parametrize(
    ("changes", "left_s", "pause_s", "may"),
    [
        (IN_FLIGHT, 20, 2, True),
        (IN_FLIGHT, 2, 2, True),
        (IN_FLIGHT, 1.9, 2, False),
        ({**IN_FLIGHT, "eta_s": 20.1}, 20, 2, False),
        ({**IN_FLIGHT, "eta_s": 19.9}, 20, 2, True),
        ({}, 20, 2, False),
        ({"busy": True}, 20, 2, True),
        ({"soon_s": 0.3}, 20, 0.3, True),
        ({"soon_s": 0.3}, -1, 0.3, False),
    ],
)
def test_what_may_end_in_time(changes: dict[str, Any], left_s: float, pause_s: float, may: bool) -> None:
    assert may_end_within(progress(1, **changes), left_s, pause_s) is may


def test_the_waits_of_a_worker_are_its_own(small: Cluster) -> None:
    """With deferrable=False nothing is deferred, however long it takes."""
    task, waits = submitting(small, published(small, 2_000), deferrable=False, defer_after=timedelta(seconds=0.01))
    assert task.execute(context())["status"] == "completed"
    assert len(waits) > 10


def resumed(ended: bool, status: PlanStatus, on_problem: Any = None, **changes: Any) -> dict[str, Any]:
    told = progress(4, status=status, **changes)
    event = {"ended": ended, "sentence": told.sentence, "progress": told.to_json()}
    task = SubmitReassignmentOperator(task_id="submit", plan="/plan", on_problem=on_problem)
    return task.execute_complete(context(), event)


def test_the_end_is_returned_small() -> None:
    assert resumed(True, PlanStatus.COMPLETED, left=1, sentence="Done.") == {
        "digest": DIGEST,
        "status": "completed",
        "sentence": "Done.",
        "partitions": 4,
        "left": 1,
    }


@pytest.mark.parametrize(
    ("status", "event", "for_good"), [(PlanStatus.STUCK, "stuck", True), (PlanStatus.RUNNING, "stalled", False)]
)
def test_a_problem_that_the_triggerer_found_is_notified_and_only_what_waits_for_a_person_fails_for_good(
    status: PlanStatus, event: str, *, for_good: bool
) -> None:
    told: list[Any] = []
    with pytest.raises(AirflowException, match=r"It does not go on\.") as caught:
        resumed(False, status, told.append, left=2, sentence="It does not go on.")
    assert isinstance(caught.value, AirflowFailException) is for_good
    (facts,) = [each["kafka_steward"] for each in told]
    assert facts == {
        "event": event,
        "sentence": "It does not go on.",
        "partitions": 4,
        "digest": DIGEST,
        "status": status.value,
        "left": 2,
    }
    assert resumed(True, PlanStatus.COMPLETED, told.append)["status"] == "completed"
    assert len(told) == 1


@pytest.mark.parametrize("plan", [None, {"digest": "d"}, 7])
def test_what_is_no_plan_is_named(plan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from contextlib import nullcontext

    from kafka_steward.hooks.steward import StewardHook

    monkeypatch.setattr(StewardHook, "open", lambda _: nullcontext(None))
    with pytest.raises(PlanError, match="There is no plan: expected its URI"):
        SubmitReassignmentOperator(task_id="submit", plan=plan).execute(context())
