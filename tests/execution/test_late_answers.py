"""Answers that are lost, requests that begin later, and processes that wake too late: nothing is left in flight."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.document_api.request_intake import PartialCancel
from kafka_steward.errors import JournalError, KafkaRefused, KafkaTimeout, LockLost, PlanError
from kafka_steward.execution.moves.in_flight import record_in_flight
from kafka_steward.execution.moves.reversal_execution import LateRetraction, late_reversal
from kafka_steward.execution.moves.states import Held, HoldReason
from kafka_steward.execution.moves.store import MoveStore
from kafka_steward.execution.plans.drive import DrivePolicy, StepRunner, run_to_end
from kafka_steward.execution.plans.lifecycle import request_cancel
from kafka_steward.execution.plans.publishing import publish_plan
from kafka_steward.execution.plans.runner import PlanRunner
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.watch.upkeep import run_chores
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action
from kafka_steward.journal.kip_documents import FailedBroker
from kafka_steward.journal.records import THROTTLE_LEASES, Cause, LeaseKey, MoveRow, MoveState, Phase, PlanStatus
from kafka_steward.settings import Settings
from tests.cancelling import CancelRunner
from tests.crash import Faults
from tests.crash_environment import LOCK_TICKS, Place
from tests.documents import create_document, delete_document
from tests.gate import Gate
from tests.rings import one_in
from tests.simulated_plan import RATE, WHO, World, heal_moves, memory_journal, move, plan_of
from tests.simulator import Simulator
from tests.watching import tick_of

T0 = TopicPartition("t", 0)


class Away:
    """A cluster whose controller is away: it carries out what timed out for us when it is back, in its order."""

    def __init__(self, simulator: Simulator) -> None:
        self._simulator = simulator
        self.away = True
        self.unanswered_requests: list[dict[TopicPartition, Any]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._simulator, name)

    def alter(self, targets: Any, *, keep_factor: bool = False) -> Any:  # noqa: ARG002 - the port has it
        return self._asked(dict(targets))

    def cancel(self, partitions: Any) -> Any:
        return self._asked(dict.fromkeys(partitions))

    def _asked(self, targets: dict[TopicPartition, Any]) -> Any:
        if self.away:
            self.unanswered_requests.append(targets)
            raise KafkaTimeout("The controller did not answer in 30 s; the change may have been made.")
        self.back()
        return self._simulator._apply(targets)

    def back(self) -> None:
        """What it received before comes first."""
        self.away = False
        for targets in self.unanswered_requests:
            self._simulator._apply(targets)
        self.unanswered_requests = []


@pytest.fixture(params=["kraft", "zookeeper"])
def simulator(request: pytest.FixtureRequest) -> Simulator:
    return Simulator.of("1a 2b 3c 4a 5b", "t: 123 231", mode=request.param, size=1000)


def unanswered(simulator: Simulator, **more: Any) -> tuple[World, Away]:
    """A plan of one move, whose submission Kafka has not answered to."""
    cluster = Away(simulator)
    rules = more.pop("settings", Settings(throttle=0, max_attempts=5))
    world = World(simulator, memory_journal(simulator), [move("t-0", "123", "423")], settings=rules, **more)
    world.cluster = cluster
    world.runner = world.new_runner()
    world.step()
    row = world.row("t-0")
    assert (row.phase, row.unacknowledged) == (Phase.INTENDED, True)
    return world, cluster


def nothing_in_flight(world: World, cluster: Away) -> None:
    """Neither now nor once the controller has caught up."""
    cluster.back()
    world.simulator.tick(3)
    assert world.simulator.reassignments() == {}
    assert world.replicas("t-0") == (1, 2, 3)


def switched_off(world: World) -> None:
    create_document(world.journal.mailbox, paths.REASSIGN_CANCEL, "")


def dead_target(world: World) -> None:
    world.simulator.kill(4)


@pytest.mark.parametrize("held_by", [switched_off, dead_target, lambda _: None], ids=["switch", "dead", "nothing"])
def test_a_cancel_takes_back_what_was_never_answered_whatever_else_holds_the_move(
    simulator: Simulator, held_by: Callable[[World], None]
) -> None:
    world, cluster = unanswered(simulator, auto_generated=False)
    held_by(world)
    world.step()
    request_cancel(world.journal, world.digest, who=WHO, reason="stop")
    cluster.away = False
    assert world.run().status is PlanStatus.CANCELLED
    assert (world.states(), world.row("t-0").cause) == ({"t-0": "dropped"}, Cause.REQUESTED)
    nothing_in_flight(world, cluster)


def test_a_directory_that_is_refused_answers_no_earlier_submission(simulator: Simulator) -> None:
    world, cluster = unanswered(simulator, auto_generated=False)
    switched_off(world)
    world.step()
    with world.journal.step_lock("here") as fence:
        moves = MoveStore(world.journal, world.digest, WHO, fence)
        why = Held.of(T0, HoldReason.KAFKA_REFUSED, "There is no such directory.")
        moves.record_refused(moves.record_submission(moves.rows(), {T0: world.row("t-0").move}), [why], unsent=[T0])
    request_cancel(world.journal, world.digest, who=WHO, reason="stop")
    cluster.away = False
    assert world.run().status is PlanStatus.CANCELLED
    nothing_in_flight(world, cluster)


def test_while_kafka_does_not_answer_the_cancel_is_not_done(simulator: Simulator) -> None:
    world, cluster = unanswered(simulator, auto_generated=False)
    switched_off(world)
    world.step()
    request_cancel(world.journal, world.digest, who=WHO, reason="stop")
    for _ in range(5):
        assert not world.step().ended
    cluster.away = False
    assert world.run().status is PlanStatus.CANCELLED
    nothing_in_flight(world, cluster)


def test_a_heal_that_gives_up_takes_back_what_was_never_answered(simulator: Simulator) -> None:
    simulator.kill(1)
    world, cluster = unanswered(simulator, failed=(1,))
    simulator.kill(4)
    for _ in range(2):
        world.step()  # what it was asked has timed out, and so does its cancel
    cluster.away = False
    progress = world.run()
    assert (progress.status, progress.dropped) == (PlanStatus.FAILED, 1)
    nothing_in_flight(world, cluster)


def test_a_heal_that_needs_nothing_any_more_takes_back_what_was_never_answered(simulator: Simulator) -> None:
    simulator.kill(1)
    world, cluster = unanswered(simulator, failed=(1,))
    simulator.restart(1)
    simulator.topics[T0].isr.add(1)
    cluster.away = False
    progress = world.run()
    assert (progress.satisfied, world.states()) == (1, {"t-0": "satisfied"})
    nothing_in_flight(world, cluster)


def test_a_partition_that_is_taken_out_of_a_plan_is_taken_back_too(simulator: Simulator) -> None:
    world, cluster = unanswered(simulator, auto_generated=False)
    switched_off(world)
    world.step()
    cluster.away = False
    with world.journal.step_lock("here") as fence:
        withdrawal = PartialCancel(cluster, world.journal, world.digest, why="superseded", who=WHO, fence=fence)
        assert withdrawal.run([T0]) == {}
    nothing_in_flight(world, cluster)


def test_what_someone_else_has_in_flight_meanwhile_is_not_cancelled_for_it(simulator: Simulator) -> None:
    world, cluster = unanswered(simulator, auto_generated=False)
    switched_off(world)
    world.step()
    cluster.unanswered_requests = []  # the controller never received it
    simulator.alter({T0: (5, 2, 3)})
    request_cancel(world.journal, world.digest, who=WHO, reason="stop")
    cluster.away = False
    assert world.run().status is PlanStatus.CANCELLED
    simulator.run(100)
    assert world.replicas("t-0") == (5, 2, 3)


def test_a_cancel_of_an_earlier_plan_does_not_make_its_submission_the_latest(simulator: Simulator) -> None:
    world, cluster = unanswered(simulator, auto_generated=False)
    switched_off(world)
    world.step()
    cluster.unanswered_requests = []  # the controller never received it
    cluster.away = False
    later = World(simulator, world.journal, [move("t-0", "123", "523")], settings=world.settings, auto_generated=False)
    world.journal.slot.preempt_with(later.digest)
    delete_document(world.journal.mailbox, paths.REASSIGN_CANCEL)
    simulator.tick()
    assert later.run().completed == 1
    simulator.tick()
    request_cancel(world.journal, world.digest, who=WHO, reason="stop")
    assert world.run().status is PlanStatus.FAILED
    assert world.states() == {"t-0": "failed"}
    LateRetraction(cluster, world.journal, later.digest, WHO).retract_submissions({T0: (5, 2, 3)})
    assert "cancel" not in later.actions()
    assert world.replicas("t-0") == (5, 2, 3)


@pytest.mark.parametrize("answer", ["taken", "refused", "seen"])
def test_an_answer_or_what_is_seen_ends_the_uncertainty(simulator: Simulator, answer: str) -> None:
    world, cluster = unanswered(simulator, auto_generated=False)
    cluster.away = False
    if answer == "refused":
        refused = KafkaRefused(39, "no", "Kafka refused: no")
        cluster._asked = lambda targets: dict.fromkeys(targets, refused)  # type: ignore[method-assign]
    if answer == "seen":
        cluster.back()
    world.step()
    row = world.row("t-0")
    assert row.unacknowledged is False
    assert row.state is (MoveState.HELD if answer == "refused" else MoveState.SUBMITTED)


# processes that are stopped between the fence and the call


def place(**rules: Any) -> Place:
    simulator = Simulator.of("1a 2b 3c 4a 5b", "t: 123 231", size=400)
    targets = [("t-0", "123", "453"), ("t-1", "231", "431")]
    moves = [move(*each, position=n, size=400, topic_id="id1") for n, each in enumerate(targets)]
    plan = plan_of(simulator, moves, operation="apply")
    return Place(simulator, moves, Settings(max_in_per_broker=2, **rules), plan).published()


def cancelled_meanwhile(at: Place) -> None:
    """The lock runs out, and another process takes the plan back."""
    at.simulator.now_ms += LOCK_TICKS * 1000
    stepped(at, undo(at, Faults()))


def nth(call: str, **rules: Any) -> int:
    """Return the number of the first such call of a step that nothing disturbs."""
    gate = Gate()
    place(**rules).runner(gate).step()
    return gate.calls.index(f"cluster.{call}")


def stepped(at: Place, stepper: StepRunner) -> None:
    assert run_to_end(stepper.step, lambda _: at.simulator.tick(), DrivePolicy(interval_s=lambda: 1)).ended


@pytest.mark.parametrize(
    "rules",
    [{"throttle": 0}, {"throttle": 300}, {"throttle": 300, "one_replica_at_a_time": True}],
    ids=["unthrottled", "throttled", "one at a time"],
)
def test_a_process_that_wakes_after_its_plan_was_taken_back_takes_back_what_it_asked_for(rules: dict[str, Any]) -> None:
    gate, quiet = Gate(), place(**rules)
    first = quiet.runner(gate)
    for _ in range(8):
        first.step()
        quiet.simulator.tick()
    of_the_cluster = [(at, call) for at, call in enumerate(gate.calls) if call.startswith("cluster.")]
    for at, call in of_the_cluster[:: one_in(21)]:
        here = place(**rules)

        slow = here.runner(Gate(at, partial(cancelled_meanwhile, here)))
        for _ in range(8):
            with suppress(JournalError):
                slow.step()
            here.simulator.tick()
        as_it_was(here, call)


def as_it_was(at: Place, call: str) -> None:
    nothing_is_left(at, call)
    found = [at.simulator.topics[each.topic_partition].replicas for each in at.moves]
    assert found == [each.before for each in at.moves], call


def nothing_is_left(at: Place, call: str) -> None:
    """Neither in flight, nor a throttle, nor a record."""
    simulator = at.simulator
    tick_of(*at.process(Faults()), at.settings)  # releases what an ended plan leased
    assert simulator.reassignments() == {}, call
    # Taken out of a list that is not there, an entry leaves an empty one.
    assert not any(entries for of in simulator.topic_settings.values() for entries in of.values()), call
    assert not any(simulator.broker_settings.values()), call
    mailbox = at.stores[0]
    assert not [path for path in mailbox._nodes if path.startswith(paths.REASSIGNMENTS)], call
    assert not [key for noun, key in at.state.rows if noun == THROTTLE_LEASES.name], call


def test_a_stage_that_comes_too_late_for_a_plan_that_is_complete_is_rolled_back() -> None:
    rules = {"throttle": 0, "one_replica_at_a_time": True}
    at = nth("alter", **rules)
    here = place(**rules)

    def meanwhile() -> None:
        here.simulator.now_ms += LOCK_TICKS * 1000
        stepped(here, here.runner(Faults()))

    slow = here.runner(Gate(at, meanwhile))
    assert not slow.step().ended
    here.simulator.run()
    assert [here.simulator.topics[each.topic_partition].replicas for each in here.moves] == [(4, 5, 3), (4, 3, 1)]


def test_what_a_later_plan_asks_for_too_is_left_to_it() -> None:
    here = place(throttle=0)
    journal = here.process(Faults())[1]

    def meanwhile() -> None:
        cancelled_meanwhile(here)
        record_in_flight(journal.mailbox, "f" * 64, here.moves[:1])
        here.simulator.alter({T0: (4, 5, 3)})

    here.runner(Gate(nth("alter", throttle=0), meanwhile)).step()
    moving_now = here.simulator.reassignments()
    assert list(moving_now) == [T0]


def test_what_a_later_plan_has_in_flight_to_the_same_target_goes_on() -> None:
    here = place(throttle=0)
    plan = plan_of(here.simulator, here.moves[:1], operation="apply")
    cluster, journal = here.process(Faults())
    later = PlanRunner(ClusterContext(cluster, journal, here.settings, WHO), plan.digest)

    def meanwhile() -> None:
        cancelled_meanwhile(here)
        here.simulator.tick()
        publish_plan(ClusterContext(cluster, journal, here.settings, WHO), plan)
        later.step()

    here.runner(Gate(nth("alter", throttle=0), meanwhile)).step()
    assert list(here.simulator.reassignments()) == [T0]
    stepped(here, later)
    assert [here.simulator.topics[each.topic_partition].replicas for each in here.moves] == [(4, 5, 3), (2, 3, 1)]
    nothing_is_left(here, "alter")


def test_the_watch_goes_on_where_a_process_that_woke_too_late_died() -> None:
    here = place(throttle=0)
    cancelled_meanwhile(here)
    cluster, journal = here.process(Faults())
    record_in_flight(journal.mailbox, here.plan.digest, here.moves[:1])
    here.simulator.alter({T0: (4, 5, 3)})
    here.simulator.tick()
    tick_of(cluster, journal, here.settings)
    here.simulator.run()
    as_it_was(here, "the watch")
    told = [row.entry for row in journal.audit.rows(plan=here.plan.digest, action=Action.CANCEL)]
    assert "it was submitted after its plan had ended" in {entry.reason for entry in told}


def test_the_watch_lets_what_a_person_gave_up_go_on() -> None:
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123 231", size=400)
    simulator.kill(1)
    world = World(simulator, memory_journal(simulator), heal_moves(simulator, 1, 4), auto_generated=False)
    world.step()
    world.journal.plans.update(world.record(), status=PlanStatus.ABANDONED)
    tick_of(simulator, world.journal, world.settings)
    assert len(simulator.reassignments()) == 2
    assert world.journal.mailbox.children(paths.REASSIGNMENTS) == []


# the same of a process that cancels

LATER = [move("t-0", "123", "543", size=400), move("t-1", "231", "251", position=1, size=400)]
BEFORE, AFTER = [each.before for each in LATER], [each.after for each in LATER]
#: What another process does when the first plan has gone back; returns what it does when the sleeper has woken.
Since = Callable[[Place], Callable[[], None]]


def begun(**rules: Any) -> Place:
    """A plan of which each move has begun."""
    here = place(**rules)
    first = here.runner(Faults())
    for _ in range(2):
        first.step()
        here.simulator.tick()
    assert here.simulator.reassignments()
    return here


def undo(at: Place, faults: Any) -> CancelRunner:
    return CancelRunner(*at.process(faults), at.plan.digest, at.settings, WHO, scope="plan", reason="enough")


def nothing_more(_: Place) -> Callable[[], None]:
    return lambda: None


def moved(here: Place) -> Callable[[], None]:
    """A later plan moves each partition, and ends."""
    stepped(here, later_plan(here))
    return lambda: None


def moving(here: Place) -> Callable[[], None]:
    """A later plan has each partition in flight, and goes on with it."""
    later = later_plan(here)
    later.step()
    here.simulator.tick()
    assert len(here.simulator.reassignments()) == 2
    return lambda: stepped(here, later)


def later_plan(here: Place) -> PlanRunner:
    context, plan = here.context(Faults()), plan_of(here.simulator, LATER, operation="apply")
    publish_plan(context, plan)
    return PlanRunner(context, plan.digest)


@pytest.mark.parametrize("mode", ["kraft", "zookeeper"])
@pytest.mark.parametrize("one_by_one", [False, True], ids=["whole", "one at a time"])
@pytest.mark.parametrize("since", [nothing_more, moved, moving])
def test_a_cancel_that_wakes_after_its_plan_has_gone_back_leaves_everything_to_later_plans(
    since: Since, one_by_one: bool, mode: str
) -> None:
    rules = {"throttle": 300, "one_replica_at_a_time": one_by_one}
    gate, quiet = Gate(), begun(**rules)
    stepped(quiet, undo(quiet, gate))
    changes = {at: call for at, call in enumerate(gate.calls) if call in {"cluster.cancel", "cluster.alter"}}
    assert set(changes.values()) == {"cluster.cancel", "cluster.alter"}
    of_the_cluster = [at for at, call in enumerate(gate.calls) if call.startswith("cluster.")]
    for at in sorted({*changes, *of_the_cluster[:: one_in(21)]}):
        here = begun(**rules)
        here.simulator.mode = mode
        afterwards: list[Callable[[], None]] = []

        def meanwhile(here: Place = here, afterwards: list[Callable[[], None]] = afterwards) -> None:
            cancelled_meanwhile(here)
            here.simulator.tick()
            afterwards.append(since(here))

        slow = undo(here, Gate(at, meanwhile))
        for _ in range(20):
            with suppress(JournalError):
                slow.step()
            here.simulator.tick()
        afterwards[0]()
        found = [here.simulator.topics[each.topic_partition].replicas for each in LATER]
        if since is moving and at in changes:  # then its move counts as cancelled by someone
            assert all(now in pair for now, *pair in zip(found, BEFORE, AFTER, strict=True)), gate.calls[at]
        else:
            assert found == (BEFORE if since is nothing_more else AFTER), gate.calls[at]
        nothing_is_left(here, gate.calls[at])


def test_a_partial_cancel_that_comes_too_late_loses_no_order_of_a_later_plan() -> None:
    def withdraw(at: Place, faults: Any) -> None:
        cluster, journal = at.process(faults)
        with journal.step_lock("another process") as fence:
            PartialCancel(cluster, journal, at.plan.digest, why="superseded", who=WHO, fence=fence).run(
                [each.topic_partition for each in at.moves]
            )

    gate = Gate()
    withdraw(begun(throttle=0), gate)
    here = begun(throttle=0)

    def meanwhile() -> None:
        cancelled_meanwhile(here)
        here.simulator.tick()
        moving(here)

    with pytest.raises(LockLost):
        withdraw(here, Gate(gate.calls.index("cluster.cancel"), meanwhile))
    assert [here.simulator.topics[each.topic_partition].replicas for each in LATER] == BEFORE


def test_a_cancel_of_what_was_never_answered_that_comes_too_late_loses_no_order_of_a_later_plan() -> None:
    def unanswered_requests() -> Place:
        here = place(throttle=0)
        names = [each.topic_partition for each in here.moves]
        here.process(Faults())[1].plans.set_move_states(
            here.plan.digest, names, MoveState.HELD, fence=None, attempt=1, unacknowledged=True
        )
        return here

    gate, quiet, here = Gate(), unanswered_requests(), unanswered_requests()
    stepped(quiet, undo(quiet, gate))

    def meanwhile() -> None:
        cancelled_meanwhile(here)
        here.simulator.tick()
        moving(here)

    slow = undo(here, Gate(gate.calls.index("cluster.cancel"), meanwhile))
    slow.step()
    assert [here.simulator.topics[each.topic_partition].replicas for each in LATER] == BEFORE


@pytest.mark.parametrize("mode", ["kraft", "zookeeper"])
@pytest.mark.parametrize("until", ["it is in flight again", "it has arrived"])
def test_a_reorder_too_late_for_what_its_own_plan_submitted_again_is_taken_back(until: str, mode: str) -> None:
    gate = Gate()
    quiet, here = target_died(mode), target_died(mode)
    steps(quiet.runner(gate), quiet)
    second = here.runner(Faults())

    def meanwhile() -> None:
        here.simulator.now_ms += LOCK_TICKS * 1000
        steps(second, here)
        here.simulator.restart(4)
        second.step()
        assert len(here.simulator.reassignments()) == 2
        if until == "it has arrived":
            stepped(here, second)

    steps(here.runner(Gate(gate.calls.index("cluster.alter"), meanwhile)), here)
    stepped(here, second)
    if until == "it has arrived":
        assert [here.simulator.topics[each.topic_partition].replicas for each in here.moves] == [(4, 5, 3), (4, 3, 1)]
    nothing_is_left(here, until)


def target_died(mode: str) -> Place:
    """A plan whose target dies: what is in flight to it is cancelled, and may be submitted again."""
    here = begun(throttle=0)
    here.simulator.mode = mode
    here.simulator.kill(4)
    # Long enough ago for its moves to be cancelled.
    create_document(here.process(Faults())[1].mailbox, paths.failed_broker(4), FailedBroker(1).to_json())
    return here


def steps(stepper: StepRunner, at: Place) -> None:
    for _ in range(3):
        stepper.step()
        at.simulator.tick()


def test_a_rate_that_is_set_too_late_is_leased_by_the_plan_that_set_it() -> None:
    here = place(throttle=300)

    here.runner(Gate(nth("change_broker_configs", throttle=300), lambda: cancelled_meanwhile(here))).step()
    assert here.simulator.broker_settings[4] == {RATE: "300"}
    assert here.process(Faults())[1].rows(THROTTLE_LEASES).get(LeaseKey("4", RATE)) is not None
    as_it_was(here, "the rate")


def slower(at: Place) -> None:
    """The plan asks for less."""
    at.settings = replace(at.settings, throttle=30)


def stricter_for_all(at: Place) -> None:
    """A stricter rate is set for all brokers, so that the plan's is taken back."""
    at.simulator.broker_defaults[RATE] = "7"


def looser_for_all(at: Place) -> None:
    """The rate for all brokers, for which the plan had taken back its own, becomes a looser one."""
    stricter_for_all(at)
    at.runner(Faults()).step()
    at.simulator.broker_defaults[RATE] = "70"


@pytest.mark.parametrize("changed", [slower, stricter_for_all, looser_for_all])
def test_a_rate_that_is_changed_too_late_leaves_none_of_ours(changed: Callable[[Place], None]) -> None:
    gate = Gate()
    quiet, here = begun(throttle=50), begun(throttle=50)
    for each in (quiet, here):
        changed(each)
    quiet.runner(gate).step()

    here.runner(Gate(gate.calls.index("cluster.change_broker_configs"), lambda: cancelled_meanwhile(here))).step()
    as_it_was(here, "the rate")


# late requests that Kafka completes before they can be cancelled


class Quick(Gate):
    """Kafka completes the request of the gated call before the process goes on."""

    def __init__(self, at: int, here: Place, meanwhile: Callable[[], None]) -> None:
        super().__init__(at, meanwhile)
        self._here = here

    def call(self, name: str, act: Callable[[], Any]) -> Any:
        late = len(self.calls) == self.at
        answer = super().call(name, act)
        if late:
            self._here.simulator.bandwidth = 10_000
            self._here.simulator.tick()
        return answer


def completed_at_once(
    mode: str, happens: Callable[[Place], None] = lambda _: None, *, at_once: bool = True
) -> tuple[Place, PlanError | None]:
    """A process sends its request after another one has rolled the plan back, and Kafka completes it at once."""
    here = place(throttle=0)
    here.simulator.mode = mode

    def meanwhile() -> None:
        cancelled_meanwhile(here)
        happens(here)

    number = nth("alter", throttle=0)
    try:
        here.runner(Quick(number, here, meanwhile) if at_once else Gate(number, meanwhile)).step()
    except PlanError as error:
        return here, error
    return here, None


@pytest.mark.parametrize("mode", ["kraft", "zookeeper"])
def test_a_late_request_that_kafka_completed_at_once_is_rolled_back(mode: str) -> None:
    here, error = completed_at_once(mode)
    assert error is None
    here.simulator.run()
    as_it_was(here, mode)
    journal = here.process(Faults())[1]
    rolled_back = journal.audit.rows(plan=here.plan.digest, action=Action.ROLL_BACK)
    assert [(row.entry.before, row.entry.after) for row in rolled_back] == [
        ([4, 5, 3], [1, 2, 3]),
        ([4, 3, 1], [2, 3, 1]),
    ]


def recreated(at: Place) -> None:
    at.simulator.delete("t")
    at.simulator.create("t", [(1, 2, 3), (2, 3, 1)], size=10)


def test_what_a_late_request_did_to_a_recreated_topic_is_named() -> None:
    here, error = completed_at_once("kraft", recreated)
    assert "t-0 was moved to [4, 5, 3]" in str(error)
    assert "re-created" in str(error)
    assert "1 more partition" in str(error)
    journal = here.process(Faults())[1]
    named = journal.audit.rows(plan=here.plan.digest, action=Action.SKIP)
    assert [(str(row.entry.topic), row.entry.partition) for row in named] == [("t", 0), ("t", 1)]
    nothing_is_left(here, "recreated")


def test_a_late_request_whose_originals_are_dead_is_named_and_left() -> None:
    _, error = completed_at_once("kraft", lambda at: at.simulator.kill(1))
    assert "t-0 was moved to [4, 5, 3]" in str(error)
    assert "its original broker 1 is not live" in str(error)


def test_a_late_request_whose_originals_kafka_refuses_is_named_and_left() -> None:
    here, error = completed_at_once("kraft", lambda at: at.simulator.unregister(1), at_once=False)
    assert "t-0 was moved to [3, 1, 2] by a request" in str(error)
    assert "and Kafka refuses its original ones, [1, 2, 3], because broker 1 is not registered" in str(error)
    nothing_is_left(here, "unregistered")


def test_the_watch_rolls_back_what_kafka_completed_for_a_process_that_died() -> None:
    here = place(throttle=0)
    cancelled_meanwhile(here)
    cluster, journal = here.process(Faults())
    record_in_flight(journal.mailbox, here.plan.digest, here.moves[:1])
    here.simulator.alter({T0: (4, 5, 3)})
    here.simulator.run()
    assert here.simulator.topics[T0].replicas == (4, 5, 3)
    tick_of(cluster, journal, here.settings)
    here.simulator.run()
    as_it_was(here, "the watch")


def test_the_watch_restores_the_order_where_a_process_died_after_its_late_cancel() -> None:
    here = left_recorded()
    here.simulator.cancel([T0])
    assert here.simulator.topics[T0].replicas == (3, 1, 2)
    watch_once(here)
    as_it_was(here, "the watch")


def test_a_late_request_that_is_not_to_be_cancelled_stays_recorded_until_it_can_be() -> None:
    here = left_recorded()
    isr = here.simulator.topics[T0].isr
    here.simulator.topics[T0].isr = {4}
    watch_once(here)
    assert list(here.simulator.reassignments()) == [T0]
    assert here.stores[0].children(paths.REASSIGNMENTS) == ["t"]
    here.simulator.topics[T0].isr = isr
    watch_once(here)
    as_it_was(here, "the watch")


def left_recorded() -> Place:
    """A process began a move again after its plan had been rolled back, and died."""
    here = place(throttle=0)
    cancelled_meanwhile(here)
    record_in_flight(here.process(Faults())[1].mailbox, here.plan.digest, here.moves[:1])
    here.simulator.alter({T0: (4, 5, 3)})
    return here


def watch_once(here: Place) -> None:
    run_chores(ClusterContext(*here.process(Faults()), here.settings, WHO))


@pytest.mark.parametrize(
    ("state", "cause", "rolled_back", "known"),
    [
        (MoveState.DROPPED, None, True, True),
        (MoveState.COMPLETED, None, True, True),
        (MoveState.SUBMITTED, None, True, True),
        (MoveState.FAILED, None, True, False),
        (MoveState.SATISFIED, None, False, True),
        (MoveState.SATISFIED, Cause.BROKERS_RETURNED, True, True),
    ],
)
def test_what_rests_at_the_late_target_goes_back_where_that_is_known(
    state: MoveState, cause: Cause | None, rolled_back: bool, known: bool
) -> None:
    late = move("t-0", "123", "423")
    reversal = late_reversal("a" * 64, late, MoveRow(late, state, cause=cause))
    assert (reversal.rolls_back, not reversal.lost) == (rolled_back, known)


def test_a_heal_whose_brokers_returned_says_so_of_its_moves() -> None:
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123")
    world = World(simulator, memory_journal(simulator), heal_moves(simulator, 1, 4), failed=(1,))
    assert world.run().status is PlanStatus.COMPLETED
    assert (world.row("t-0").state, world.row("t-0").cause) == (MoveState.SATISFIED, Cause.BROKERS_RETURNED)
