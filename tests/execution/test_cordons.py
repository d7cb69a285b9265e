"""A drain cordons the brokers that it empties (KIP-1066), and a cancel or a rollback lifts what is its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_steward.cluster.configs import ConfigChange, ConfigOp
from kafka_steward.execution.cordons import cordons_in_effect
from kafka_steward.execution.plans.lifecycle import request_cancel
from kafka_steward.execution.plans.publishing import publish_plan
from kafka_steward.execution.plans.runner import PlanRunner
from kafka_steward.execution.watch.upkeep import run_chores
from kafka_steward.forecast.simulator import refused
from kafka_steward.journal.audit import Action, Outcome
from kafka_steward.journal.records import CORDONS, PlanStatus
from tests.crash import Died, Faults
from tests.crash_environment import BOUND, LOCK_TICKS, Place, persist
from tests.execution.desk import Desk
from tests.rings import one_in
from tests.simulated_plan import WHO
from tests.simulator import CORDONED, Simulator


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path, "1a 2b 3c 4a", "t: 123 231 341", "u: 12 14")


BEFORE = {"t-0": (1, 2, 3), "t-1": (2, 3, 1), "t-2": (3, 4, 1), "u-0": (1, 2), "u-1": (1, 4)}


def cordons(simulator: Simulator) -> dict[int, str]:
    return {broker: own[CORDONED] for broker, own in simulator.broker_settings.items() if CORDONED in own}


def set_cordon(desk: Desk, broker: int, value: str | None) -> None:
    """What another person does."""
    change = ConfigChange(CORDONED, ConfigOp.DELETE if value is None else ConfigOp.SET, value)
    assert desk.simulator.change_broker_configs({broker: [change]}) == {broker: None}


def outcomes(desk: Desk) -> list[tuple[Action, int | None, Outcome]]:
    rows = [*desk.journal.audit.rows(action=Action.CORDON), *desk.journal.audit.rows(action=Action.UNCORDON)]
    return [(row.entry.action, row.entry.broker, row.outcome) for row in rows]


def undo(desk: Desk, digest: str) -> str:
    """Roll a plan back as a task does; the last message but one."""
    request_cancel(desk.journal, digest, who=WHO, reason="undo", scope="plan")
    runner, said = PlanRunner(desk.context, digest), [""]
    for _ in range(BOUND):
        progress = runner.step()
        said.append(progress.sentence)
        if progress.ended:
            return said[1]
        desk.simulator.tick()
    raise AssertionError(said)


def test_what_is_drained_is_cordoned_before_the_first_move_and_stays_so(desk: Desk) -> None:
    plan = desk.publish("drain", 1)
    assert cordons(desk.simulator) == {}, "a plan that waits has changed nothing"
    PlanRunner(desk.context, plan.digest).step()
    assert cordons(desk.simulator) == {1: "*"}
    desk.run(plan.digest)
    assert not any(1 in order for order in desk.orders().values())
    assert (cordons(desk.simulator), outcomes(desk)) == ({1: "*"}, [(Action.CORDON, 1, Outcome.DONE)])
    assert cordons_in_effect(desk.journal)[1].plan == plan.digest
    desk.simulator.kill(4)
    desk.simulator.create_topic("new", 6, 2)
    assert all(1 not in order for name, order in desk.orders().items() if name.startswith("new"))
    run_chores(desk.context)
    assert cordons(desk.simulator) == {1: "*"}


def test_a_rollback_lifts_the_cordon_first_and_everything_goes_back(desk: Desk) -> None:
    plan = desk.execute("drain", 1)
    said = undo(desk, plan.digest)
    assert said == "The rollback begins once broker 1 may receive replicas again: the cordon is lifted."
    assert desk.orders() == BEFORE
    assert cordons(desk.simulator) == {}
    assert desk.journal.rows(CORDONS).all() == []
    record = desk.journal.plans.get(plan.digest)
    assert record is not None
    assert record.status is PlanStatus.ROLLED_BACK
    assert outcomes(desk) == [(Action.CORDON, 1, Outcome.DONE), (Action.UNCORDON, 1, Outcome.DONE)]


def test_a_cancel_lifts_it(desk: Desk) -> None:
    plan = desk.publish("drain", 1)
    PlanRunner(desk.context, plan.digest).step()
    request_cancel(desk.journal, plan.digest, who=WHO, reason="not now", scope="pending")
    desk.run(plan.digest)
    assert cordons(desk.simulator) == {}
    run_chores(desk.context)
    assert desk.journal.rows(CORDONS).all() == []


def test_a_plan_that_is_cancelled_before_its_first_step_has_cordoned_nothing(desk: Desk) -> None:
    plan = desk.publish("drain", 1)
    request_cancel(desk.journal, plan.digest, who=WHO, reason="not now", scope="pending")
    desk.run(plan.digest)
    assert (outcomes(desk), desk.journal.rows(CORDONS).all()) == ([], [])


@pytest.mark.parametrize("value", ["*", "/disk-1"])
def test_a_cordon_of_somebody_else_stays_theirs(desk: Desk, value: str) -> None:
    set_cordon(desk, 1, value)
    plan = desk.execute("drain", 1)
    assert desk.journal.rows(CORDONS).all() == []
    set_cordon(desk, 1, None)  # its replicas could not go back otherwise
    undo(desk, plan.digest)
    assert outcomes(desk) == []


def test_a_cordon_that_somebody_has_changed_since_is_not_lifted(desk: Desk) -> None:
    plan = desk.publish("drain", 1)
    PlanRunner(desk.context, plan.digest).step()
    set_cordon(desk, 1, "/disk-1")
    request_cancel(desk.journal, plan.digest, who=WHO, reason="not now", scope="pending")
    desk.run(plan.digest)
    assert cordons(desk.simulator) == {1: "/disk-1"}
    assert desk.journal.rows(CORDONS).all() == []


def test_one_that_somebody_has_lifted_is_not_set_again_by_a_second_process(desk: Desk) -> None:
    plan = desk.publish("drain", 1)
    PlanRunner(desk.context, plan.digest).step()
    set_cordon(desk, 1, None)
    PlanRunner(desk.context, plan.digest).step()
    assert cordons(desk.simulator) == {}


@pytest.mark.parametrize("lifted", [True, False])
def test_a_second_drain_of_a_broker_cordons_it_again_or_leaves_the_cordon_to_the_first_one(
    desk: Desk, lifted: bool
) -> None:
    first = desk.execute("drain", 1)
    if lifted:
        set_cordon(desk, 1, None)
    desk.simulator.create("later", [(1, 2), (1, 3)])
    second = desk.execute("drain", 1)
    assert cordons(desk.simulator) == {1: "*"}
    assert cordons_in_effect(desk.journal)[1].plan == (second if lifted else first).digest
    undo(desk, second.digest)
    assert cordons(desk.simulator) == ({} if lifted else {1: "*"})


def test_a_publication_that_is_repeated_after_a_crash_asks_for_the_cordon(desk: Desk) -> None:
    plan, snapshot = desk.plan("drain", 1)
    publish_plan(desk.context, plan, snapshot=snapshot)
    rows = desk.journal.rows(CORDONS)
    rows.delete_all(rows.all())  # it died before it had written them
    publish_plan(desk.context, plan, snapshot=snapshot)
    desk.run(plan.digest)
    assert cordons(desk.simulator) == {1: "*"}


def test_an_older_kafka_and_another_operation_cordon_nothing(desk: Desk) -> None:
    desk.execute("rebalance")
    desk.simulator.can_cordon = False
    desk.execute("drain", 1)
    assert (outcomes(desk), desk.journal.rows(CORDONS).all()) == ([], [])


def test_a_refusal_is_said_and_the_drain_goes_on(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = desk.publish("drain", 1)
    refusal = refused(29, "Cluster authorization failed.")
    monkeypatch.setattr(desk.simulator, "change_broker_configs", lambda changes: dict.fromkeys(changes, refusal))
    progress = PlanRunner(desk.context, plan.digest).step()
    assert (
        "a drained broker may receive new replicas: Kafka refused: Cluster authorization failed." in progress.sentence
    )
    desk.run(plan.digest)
    assert not any(1 in order for order in desk.orders().values())
    assert outcomes(desk) == [(Action.CORDON, 1, Outcome.REFUSED)]
    assert desk.journal.rows(CORDONS).all() == []


def test_the_cordon_of_a_dead_broker_is_lifted_when_it_is_back(desk: Desk) -> None:
    plan = desk.publish("drain", 1)
    PlanRunner(desk.context, plan.digest).step()
    desk.simulator.kill(1)
    request_cancel(desk.journal, plan.digest, who=WHO, reason="not now", scope="pending")
    desk.run(plan.digest)
    run_chores(desk.context)
    assert cordons(desk.simulator) == {1: "*"}
    desk.simulator.restart(1)
    for _ in range(2):
        desk.simulator.tick()
        run_chores(desk.context)
    assert cordons(desk.simulator) == {}
    assert desk.journal.rows(CORDONS).all() == []


@pytest.mark.parametrize("kind", ["dies before", "dies after", "fails", "reply lost"])
def test_wherever_a_process_dies_a_drain_ends_cordoned_and_a_rollback_without(tmp_path: Path, kind: str) -> None:
    at = 2
    while True:
        desk = Desk(tmp_path, "1a 2b 3c 4a", "t: 123 341")
        plan, _ = desk.plan("drain", 1)
        place = Place(desk.simulator, [], desk.context.settings, plan).published()
        faults = Faults(at, kind)
        step_through(place, faults)
        assert cordons(desk.simulator) == {1: "*"}, at
        request_cancel(place.context(Faults()).journal, plan.digest, who=WHO, reason="undo", scope="plan")
        step_through(place, faults)
        run_chores(place.context(Faults()))
        assert cordons(desk.simulator) == {}, at
        assert place.context(Faults()).journal.rows(CORDONS).all() == [], at
        assert desk.orders() == {"t-0": (1, 2, 3), "t-1": (3, 4, 1)}, at
        if len(faults.calls) <= at:
            return
        at += one_in(17)


def step_through(place: Place, faults: Faults) -> None:
    """Step to the end by a process with a fault, and by another one where it died."""
    try:
        persist(place, place.runner(faults).step)
    except Died:
        place.tick(LOCK_TICKS)
        persist(place, place.runner(Faults()).step)
