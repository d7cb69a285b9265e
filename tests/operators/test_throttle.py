"""A running plan's rate, changed by the operator or in the connection: the brokers have it within two steps."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from kafka_steward.errors import PlanError, WrongJournal
from kafka_steward.execution.announcements import disable_reassignment, enable_reassignment
from kafka_steward.execution.plans.cancel import send_cancel_signal
from kafka_steward.execution.plans.lifecycle import abandon_plan
from kafka_steward.execution.plans.publishing import publish_plan
from kafka_steward.execution.plans.runner import PlanRunner
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.hooks.steward import StewardHook
from kafka_steward.journal.audit import Action, Actor
from kafka_steward.journal.identity import Identity
from kafka_steward.journal.kip_documents import CancelRequest
from kafka_steward.operators.execution import PlanExecutionOperator
from kafka_steward.operators.plan_control import CancelReassignmentOperator, ChangeThrottleOperator
from kafka_steward.operators.submit import SubmitReassignmentOperator
from kafka_steward.settings import Settings
from tests.airflow_home import Connect, context
from tests.operators.simulated import CONN_ID, Cluster, MakeCluster
from tests.simulated_plan import RATE, WHO, move, plan_of

#: Slow enough that the plan does not end in these tests.
SLOW: dict[str, Any] = {"throttle": 10, "step_interval": 0.1, "min_free": 0.0}
SETTINGS = Settings(**SLOW)


@pytest.fixture
def cluster(make_cluster: MakeCluster) -> Cluster:
    return make_cluster("1a 2b 3c 4a 5b", "orders: 123 123 123 123", cluster_id="simulated", **SLOW)


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
        "sentence": (
            f"Plan {digest[:12]}: 40 bytes/s into one broker, from its next step on. 40 bytes/s limit "
            "nothing: for each partition that moves into a broker, Kafka lets about 90 kB/s through, one fetch of up "
            "to replica.fetch.max.bytes per quota window of 11 s (2 move into one now: 180 kB/s)."
        ),
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
    waits = {1: lambda: connect(CONN_ID, extra={**SLOW, "throttle": 40}), 4: lambda: seen.append(rates(cluster))}
    run(submit(published(cluster)), cluster, waits, reread_s=60)
    assert seen == [{4: "10", 5: "10"}]
    assert PlanExecutionOperator._reread_s == 60


def test_a_cancel_in_the_worker_follows_edits_too(cluster: Cluster, connect: Connect) -> None:
    digest = published(cluster)
    cancelled = submit(digest)
    run(cancelled, cluster, {})
    seen: list[dict[int, str]] = []
    waits = {2: lambda: connect(CONN_ID, extra={**SLOW, "throttle": 40}), 5: lambda: seen.append(rates(cluster))}
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
    assert (returned["left_alone_count"], returned["as_before"]) == (1, False)
    assert returned["returned"] == [{"topic": "orders", "partition": 1, "target": [1, 2, 4], "originals": [1, 2, 3]}]
    assert returned["sentence"].startswith(f"1 of 2 partitions that plan {digest[:12]} had started to move is exactly")
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


def test_a_rollback_waits_while_reassignments_are_disabled_and_says_so(
    make_cluster: MakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = make_cluster("1a 2b 3c 4a", "orders: 412 123", step_interval=0.1, min_free=0.0)
    plan = plan_of(cluster, [move("orders-1", "123", "124")], operation="apply")
    context_of = ClusterContext(cluster, cluster.journal, StewardHook(CONN_ID).settings, WHO)
    runner = PlanRunner(context_of, publish_plan(context_of, plan).digest)
    while not runner.step().ended:
        cluster.tick()
    disable_reassignment(cluster.journal, who=WHO, reason="racks")
    pauses: list[float] = []

    def wait(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 5:
            assert cluster.replicas()["orders-1"] == (1, 2, 4)
            enable_reassignment(cluster.journal, who=WHO)
        cluster.tick()

    cancel = CancelReassignmentOperator(
        task_id="cancel", conn_id=CONN_ID, plan=plan.digest, scope="plan", deferrable=False
    )
    cancel._wait_unless_killed = wait  # type: ignore[method-assign]
    assert cancel.execute(context())["status"] == "rolled_back"
    assert len(pauses) > 4
    assert "The rollback waits until they are enabled; a run with even_if_disabled does not." in capsys.readouterr().out


def test_of_a_plan_of_which_nothing_was_moved_there_is_nothing_to_revert(
    make_cluster: MakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = make_cluster("1a 2b 3c 4a", "orders: 412 123", step_interval=0.1, min_free=0.0)
    plan = plan_of(cluster, [move("orders-1", "123", "124")], operation="apply")
    publish_plan(ClusterContext(cluster, cluster.journal, StewardHook(CONN_ID).settings, WHO), plan)
    for scope in ("pending", "plan"):
        cancel = CancelReassignmentOperator(
            task_id="cancel", conn_id=CONN_ID, plan=plan.digest, scope=scope, deferrable=False
        )
        assert cancel.execute(context())["status"] == "cancelled"
    assert len(cluster.journal.plans.latest(9)) == 1
    assert "was not reverted: there was nothing to revert, and it had moved none." in capsys.readouterr().out


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
