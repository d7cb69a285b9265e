"""The process may die between any two calls; any call may fail or lose its reply: no plan is lost.

For each scenario, a run without faults gives the list of calls; then comes one run for each fault at each call. After
the fault another process goes on, and the end must be the same as if nothing had happened.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster import transport
from kafka_steward.errors import ClusterError, JournalError
from kafka_steward.execution.moves import preflight_inputs
from kafka_steward.execution.moves.progress import Progress
from kafka_steward.execution.plans.lifecycle import request_cancel
from kafka_steward.execution.plans.publishing import publish_plan
from kafka_steward.execution.plans.rollback import find_unfinished_cancels
from kafka_steward.execution.plans.runner import PlanRunner
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.execution.throttles.leftovers import ExternalThrottle, remove_leftover_throttles, survey_throttles
from kafka_steward.execution.watch.failure_detector import DetectionResult
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action, Outcome
from kafka_steward.journal.kip_documents import CancelRequest
from kafka_steward.journal.listing import QUARANTINE
from kafka_steward.journal.locks import PlanSlot
from kafka_steward.journal.mailbox import Mailbox, read_one
from kafka_steward.journal.records import RESTARTS, MoveState, PlanStatus
from kafka_steward.journal.sql.audit import AuditTable
from kafka_steward.journal.sql.moves import MoveTable
from kafka_steward.journal.sql.plans import PlanTable
from kafka_steward.journal.state import Rows, State
from kafka_steward.settings import Settings
from tests.cancelling import CancelRunner
from tests.crash import FREE, Died, Faults, points
from tests.crash_environment import LOCK_TICKS, Place, persist
from tests.documents import create_document
from tests.gate import Gate
from tests.rings import one_in
from tests.simulated_plan import RATE, WHO, heal_moves, move, plan_of
from tests.simulator import UNCLEAN, Simulator
from tests.watching import tick_of

T0 = TopicPartition("t", 0)


def go(place: Place, faults: Faults, *, cancel_at: int | None = None) -> Progress:
    """One process: publish, step to the end, and perhaps ask for a cancel at that tick."""
    context, published = place.context(faults), False
    journal, runner = context.journal, PlanRunner(context, place.plan.digest)

    def step() -> Progress:
        nonlocal published
        if not published:
            publish_plan(context, place.plan)
            published = True
        if cancel_at is not None and place.ticks >= cancel_at:
            record = journal.plans.get(place.plan.digest)
            if record is not None and not record.status.finished and record.cancel is None:
                request_cancel(journal, place.plan.digest, who=WHO, reason="enough")
        return runner.step()

    return persist(place, step)


def healing() -> Place:
    """A broker died; two partitions of two topics are in flight at once, throttled."""
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123", "u: 312")
    simulator.kill(1)
    moves = heal_moves(simulator, 1, 4)
    settings = Settings(throttle=80, max_in_per_broker=2)
    return Place(simulator, moves, settings, plan_of(simulator, moves, failed=(1,)))


def rescued() -> Place:
    """The target dies in the middle and comes back; what was in flight is cancelled, restored and done again."""
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123", size=300)
    moves = [move("t-0", "123", "423", size=300)]
    place = Place(simulator, moves, Settings(throttle=150), plan_of(simulator, moves, operation="apply"))
    place.happenings = {1: lambda each: each.kill(4), 4: lambda each: each.restart(4)}
    return place


def came_back() -> Place:
    """The failed broker is back in the middle: what is in flight completes, the rest is dropped."""
    place = healing()
    place.settings = Settings(throttle=80, max_in_per_broker=1)
    place.happenings = {1: lambda each: each.restart(1)}
    return place


def cancelled() -> Place:
    """Someone asks for a cancel of everything in the middle: one is in flight, one waits."""
    place = healing()
    place.settings = Settings(throttle=80, max_in_per_broker=1)
    request = CancelRequest(reason="enough").to_json()
    place.happenings = {1: lambda _: create_document(place.stores[0], paths.CANCEL_IN_PROGRESS, request)}
    return place


def outdone() -> Place:
    """A stricter rate for all brokers appears in the middle, and is withdrawn before the end."""
    place = healing()
    place.happenings = {
        1: lambda each: each.broker_defaults.update({RATE: "30"}),
        3: lambda each: each.broker_defaults.clear(),
    }
    return place


def placed() -> Place:
    """Kafka would put the new replicas into a log directory without room: the other one of the broker is asked for."""
    place = healing()
    place.simulator.disks[4] = {"/small": 50, "/large": 1_000_000}
    return place


SCENARIOS = {
    "healing": healing,
    "rescued": rescued,
    "came back": came_back,
    "cancelled": cancelled,
    "outdone": outdone,
    "placed": placed,
}


def verify_nothing_left(place: Place) -> None:
    """Neither a throttle, nor a document but those that are kept, nor the slot."""
    mailbox = place.stores[0]
    assert not any("throttled" in key for of in place.simulator.topic_settings.values() for key in of)
    assert not any(place.simulator.broker_settings.values())
    assert list(mailbox._nodes) == []
    assert {noun for noun, _ in place.state.rows} <= {
        "slot",
        "step_lock",
        "task_requests",
        "skipped_partitions",
        "released_throttles",
        "accepted_documents",
    }
    assert PlanSlot(place.state).holders() == ()
    released = [row for row in place.stores[2]._rows if row.entry.action is Action.UNTHROTTLE]
    assert all(row.outcome is not Outcome.INTENDED for row in released), released


def verify(place: Place, progress: Progress) -> None:
    """The plan ended, and nothing is left behind."""
    _, moves, audit = place.stores
    for row in moves.rows(place.plan.digest):
        partition = place.simulator.topics[row.topic_partition]
        undone = row.state in {MoveState.SATISFIED, MoveState.DROPPED}
        assert partition.replicas == (row.move.before if undone else row.move.after)
        assert not partition.reassigning
    cancelled = progress.status is PlanStatus.CANCELLED
    assert cancelled == any(row.detail == "cancelled: enough" for row in moves.rows(place.plan.digest))
    assert progress.left == sum(row.state is MoveState.DROPPED for row in moves.rows(place.plan.digest))
    verify_nothing_left(place)
    if place.simulator.disks:
        place.simulator.log_dirs([4])
        assert set(place.simulator.located.values()) == {"/large"}
    told = [row.entry.topic for row in audit._rows if row.entry.action is Action.SETTLE]
    assert len(told) == sum(row.state is MoveState.COMPLETED for row in moves.rows(place.plan.digest))


def try_every_fault(
    scenario: Callable[[], Place],
    process: Callable[[Place, Faults], Progress],
    verify: Callable[[Place, Progress], None],
) -> Progress:
    """Run it without faults, then once for each fault at each call; returns the end of the first run."""
    quiet, place = Faults(), scenario()
    ended = process(place, quiet)
    verify(place, ended)
    assert len(list(points(quiet.calls))) > 2 * len(quiet.calls)
    for at, kind, call in points(quiet.calls, every=one_in(93)):
        place = scenario()
        try:
            try:
                progress = process(place, Faults(at, kind))
            except Died:
                place.tick(LOCK_TICKS)
                progress = process(place, Faults())
            verify(place, progress)
        except AssertionError as error:
            raise AssertionError(f"{kind} call {at}, {call}: {error}") from error
    return ended


@pytest.mark.parametrize("name", SCENARIOS)
def test_whatever_dies_or_is_lost_the_next_process_ends_the_plan(name: str) -> None:
    try_every_fault(SCENARIOS[name], go, verify)


def moving_three(ticks: int) -> Place:
    """A plan that a person gave, some ticks after it began: three partitions, one after the other, the first small."""
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123 231 312")
    moves = [
        move("t-0", "123", "423", size=20),
        move("t-1", "231", "431", position=1, size=300),
        move("t-2", "312", "342", position=2, size=300),
    ]
    for each in moves:
        simulator.topics[each.topic_partition].size = each.size_bytes or 0
    place = Place(
        simulator, moves, Settings(throttle=150, max_in_per_broker=1), plan_of(simulator, moves, operation="apply")
    )
    runner = place.published().runner(Faults())
    for _ in range(ticks):
        runner.step()
        place.tick()
    return place


def take_back(place: Place, faults: Faults) -> Progress:
    """One process: undo all of it."""
    undo = CancelRunner(*place.process(faults), place.plan.digest, place.settings, WHO, scope="plan", reason="enough")
    return persist(place, undo.step)


def verify_taken_back(place: Place, progress: Progress) -> None:
    """Everything is exactly as it was, by one rollback, and nothing is left behind."""
    audit = place.stores[2]
    journal = place.process(Faults())[1]
    for each in place.moves:
        partition = place.simulator.topics[each.topic_partition]
        assert (partition.replicas, partition.reassigning) == (each.before, False)
    verify_nothing_left(place)
    by_digest = {record.digest: record for record in journal.plans.latest(9)}
    assert len(by_digest) == 2
    undone = by_digest[place.plan.digest]
    assert (progress.digest, progress.status, undone.status) == (undone.digest, *[PlanStatus.ROLLED_BACK] * 2)
    rollback = str(undone.rolled_back_by)
    assert by_digest[rollback].status is PlanStatus.COMPLETED
    assert find_unfinished_cancels(journal) == []
    told = [row.entry.action for row in audit._rows if row.entry.plan == rollback]
    assert told.count(Action.PUBLISH) == 1


@pytest.mark.parametrize(
    "ticks", [pytest.param(2, id="in the middle"), pytest.param(9, id="when it had ended", marks=pytest.mark.ci)]
)
def test_whatever_dies_or_is_lost_a_plan_is_taken_back_exactly(ticks: int) -> None:
    place = moving_three(ticks)
    begun = [row.state for row in place.stores[1].rows(place.plan.digest)]
    assert begun.count(MoveState.COMPLETED) == (1 if ticks == 2 else 3)
    try_every_fault(lambda: moving_three(ticks), take_back, verify_taken_back)


def staged(*, unclean: bool) -> Place:
    """One replica at a time, or all new ones behind the originals, of which one lags."""
    size = 300 if unclean else 100
    simulator = Simulator.of("1a 2b 3c 4a 5b 6c 7a", "t: 123", size=size)
    moves = [move("t-0", "123", "451" if unclean else "456", size=size)]
    settings = Settings(throttle=100, one_replica_at_a_time=not unclean)
    if unclean:
        simulator.topic_settings["t"][UNCLEAN] = "true"
        simulator.topics[T0].isr.discard(2)
        simulator.topics[T0].held[2] = -2_000
    return Place(simulator, moves, settings, plan_of(simulator, moves, operation="apply"))


def verify_one_side(place: Place, _: Progress) -> None:
    """It ended at one side or the other, and nothing is left behind."""
    (row,) = place.stores[1].rows(place.plan.digest)
    partition, moved = place.simulator.topics[T0], place.moves[0]
    assert row.state in {MoveState.COMPLETED, MoveState.DROPPED}
    assert partition.replicas == (moved.after if row.state is MoveState.COMPLETED else moved.before)
    assert not partition.reassigning
    verify_nothing_left(place)


@pytest.mark.parametrize("unclean", [False, True], ids=["one at a time", "unclean elections"])
@pytest.mark.parametrize("cancel_at", [None, 2], ids=["to its end", "cancelled in the middle"])
def test_whatever_dies_or_is_lost_another_process_goes_on_in_stages(cancel_at: int | None, *, unclean: bool) -> None:
    ended = try_every_fault(lambda: staged(unclean=unclean), partial(go, cancel_at=cancel_at), verify_one_side)
    assert ended.status is (PlanStatus.COMPLETED if cancel_at is None else PlanStatus.CANCELLED)


#: Calls that no step and no look makes.
NEVER_IN_A_STEP = {
    "audit.import_rows": "copies a journal; a copy can be repeated",
    "audit.rows_before": "read for a copy or an archive",
    "audit.remove": "archives the trail; what is in the file already can be archived again",
    "cluster.log_starts": "read before an election, and for a plan; both can be repeated",
    "state.everything": "read for a copy",
    "moves.import_rows": "as that of the audit trail",
    "plans.delete": "purges what ended long ago; a purge can be repeated",
    "plans.digests": "read for a copy or an archive",
    "plans.values": "read for a copy",
    "plans.import_values": "copies a journal; a copy can be repeated",
    "plans.by_source": "read where a document requests something; a poll can be repeated",
    "plans.ask": "a task asks for an approval before the plan is published; it can ask again",
    "plans.approval": "read of a plan that needs one; a step can be repeated",
    "plans.answer": "the same of the answer",
    "moves.unsettled_partitions": "read where plans share the slot; a poll, or a claim of the slot, can be repeated",
    "moves.delete": "purges what ended long ago; a purge can be repeated",
    "cluster.broker_configs": "read before a topic is created",
    "cluster.elect_leaders": "a task after the heal; electing again is no error",
    "cluster.hidden_topics": "asked only where a topic is not to be seen",
}


def test_every_call_that_a_seam_has_is_made_by_some_scenario() -> None:
    """Whoever gives a seam a new call finds it here until a scenario comes to it, and so has faults at it."""
    counted = Faults()
    for scenario in SCENARIOS.values():
        go(scenario(), Faults(calls=counted.calls))
    for ticks in (2, 9):
        take_back(moving_three(ticks), Faults(calls=counted.calls))
    place = moving_three(2)
    runners = [place.runner(Faults(calls=counted.calls)) for _ in range(2)]
    for runner in runners * 2:  # by turns
        runner.step()
    place = healing()
    create_document(place.stores[0], "/admin/rolling_bounce/2", "soon")
    create_document(place.stores[0], "/admin/failed_brokers/not-a-broker/below", "{}")
    looked(place, Faults(calls=counted.calls))
    left = healing()
    left.simulator.broker_defaults[RATE] = "7"
    left_over(left, Faults(calls=counted.calls))
    seams = {"cluster": ClusterPort, "mailbox": Mailbox, "state": State, "moves": MoveTable}
    seams |= {"audit": AuditTable, "plans": PlanTable}
    there = {f"{seam}.{name}" for seam, kind in seams.items() for name in dir(kind) if not name.startswith("_")}
    free = {f"{seam}.{name}" for seam in seams for name in FREE}
    assert there - free - set(counted.calls) == set(NEVER_IN_A_STEP)


def left_over(place: Place, faults: Faults) -> dict[ExternalThrottle, ClusterError | None]:
    """A person has all removed that is left over."""
    cluster, journal = place.process(faults)
    return remove_leftover_throttles(cluster, journal, survey_throttles(cluster, journal).leftovers, WHO, "old")


def test_whatever_dies_or_is_lost_what_is_left_over_is_removed_and_nothing_else() -> None:
    key, lists = "leader.replication.throttled.rate", "leader.replication.throttled.replicas"

    def scene(*, moving: bool) -> Place:
        place = moving_three(2) if moving else healing()
        place.simulator.broker_defaults[key] = "7"
        place.simulator.broker_settings[3][RATE] = "8"
        place.simulator.topic_settings["t"][lists] = "1:1,2:2,0:1"
        return place

    for moving in (True, False):
        quiet, place = Faults(), scene(moving=moving)
        needed = dict(place.simulator.broker_settings[4])
        removed = {each.entity: each.value for each in left_over(place, quiet)}
        # Partition 1 is in flight, and is in the list that others left.
        assert removed == ({"3": "8", "t": "2:2,0:1"} if moving else {"": "7", "3": "8", "t": "1:1,2:2,0:1"})
        for at, kind, call in points(quiet.calls, every=one_in(7)):
            place = scene(moving=moving)
            with suppress(Died, ClusterError, JournalError):
                left_over(place, Faults(at, kind))
            place.simulator.now_ms += 100_000
            left_over(place, Faults())
            assert survey_throttles(*place.process(Faults())).leftovers == (), (at, kind, call)
            simulator = place.simulator
            assert (simulator.broker_settings[4], simulator.broker_settings[3]) == (needed, {}), (at, kind, call)
            assert simulator.topic_settings["t"].get(lists) == ("1:1" if moving else None)
            assert simulator.broker_defaults == ({key: "7"} if moving else {})


def looked(place: Place, faults: Faults) -> DetectionResult:
    return tick_of(*place.process(faults), place.settings)[0]


def test_what_cannot_be_read_is_kept_whatever_dies_while_it_is_moved_aside() -> None:
    def strays() -> Place:
        place = healing()
        create_document(place.stores[0], "/admin/failed_brokers/not-a-broker", "whose is this?")
        create_document(place.stores[0], "/admin/rolling_bounce/2", "soon")
        return place

    quiet, place = Faults(), strays()
    looked(place, quiet)
    for at, kind, _ in points(quiet.calls):
        place = strays()
        with suppress(Died, ClusterError, JournalError):
            looked(place, Faults(at, kind))
        looked(place, Faults())
        mailbox = place.stores[0]
        kept = {row.value.text for row in Rows(place.state, QUARANTINE).all()}
        assert kept == {"whose is this?", "soon"}
        assert mailbox.children("/admin/failed_brokers") == ["1"]
        assert [each.key for each in RESTARTS.list_with_unreadable(mailbox).readable] == [(2,)]
        assert RESTARTS.list_with_unreadable(mailbox).unreadable == []


def test_a_look_that_dies_anywhere_leaves_a_later_look_the_same_time() -> None:
    def first_look_ms(place: Place) -> int | None:
        node = read_one(place.stores[0], "/admin/failed_brokers/1")
        return None if node is None else node.created_ms

    quiet, place = Faults(), healing()
    looked(place, quiet)
    for at, kind, _ in points(quiet.calls):
        place = healing()
        with suppress(Died, ClusterError, JournalError):
            looked(place, Faults(at, kind))
        seen_ms = first_look_ms(place)
        place.simulator.tick(5)
        looked(place, Faults())
        due_ms = looked(place, Faults()).waiting[1]
        assert due_ms - 1_800_000 in {seen_ms, place.simulator.now_ms, place.simulator.now_ms - 5000}


def test_whatever_dies_between_two_requests_the_next_process_ends_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each partition, topic and broker in a request of its own: the rows of all are written before the first one."""
    monkeypatch.setattr(transport, "MAX_BATCH", 1)
    test_whatever_dies_or_is_lost_the_next_process_ends_the_plan("healing")


def place(**rules: Any) -> Place:
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123 231", "u: 312")
    simulator.kill(1)
    moves = heal_moves(simulator, 1, 4)
    return Place(
        simulator, moves, Settings(max_in_per_broker=2, **rules), plan_of(simulator, moves, failed=(1,))
    ).published()


def to_the_end(at: Place) -> None:
    other = at.runner(Faults())
    for _ in range(20):
        if other.step().ended:
            return
        at.simulator.tick()
    raise AssertionError("not ended")


def steps_taken(rules: dict[str, Any], steps: int) -> list[str]:
    """The calls of so many steps, undisturbed: the points at which a stepper can be stopped."""
    gate, quiet = Gate(), place(**rules)
    first = quiet.runner(gate)
    for _ in range(steps):
        first.step()
        quiet.simulator.tick()
    return gate.calls


def state_of(at: Place) -> tuple[Any, ...]:
    simulator = at.simulator
    replicas = {name: each.replicas for name, each in simulator.topics.items()}
    rows = [(row.topic_partition, row.state) for row in at.stores[1].rows(at.plan.digest)]
    return replicas, simulator.topic_settings, simulator.broker_settings, rows


@pytest.mark.parametrize("rules", [{"throttle": 0}, {"throttle": 90}], ids=["unthrottled", "throttled"])
def test_a_stepper_that_was_stopped_beyond_its_lock_changes_nothing(rules: dict[str, Any]) -> None:
    calls = steps_taken(rules, 3)
    for at, call in list(enumerate(calls))[:: one_in(15)]:
        here = place(**rules)

        def meanwhile(here: Place = here) -> None:
            here.simulator.now_ms += LOCK_TICKS * 1000
            to_the_end(here)

        gate = Gate(at, meanwhile)
        slow = here.runner(gate)
        for _ in range(3):
            with suppress(JournalError):
                slow.step()
            here.simulator.tick()
        to_the_end(here)
        # Stopped between reading the fence and changing a throttle, it does change that: and leases it from then on.
        tick_of(*here.process(Faults()), here.settings)
        verify_done(here, call)


def verify_done(at: Place, call: str) -> None:
    """Every partition is at its target, no change was made twice, and no throttle is left."""
    for each in at.moves:
        partition = at.simulator.topics[each.topic_partition]
        assert (partition.replicas, partition.reassigning) == (each.after, False), call
    # Taken out of a list that is not there, an entry leaves an empty one.
    assert not any(entries for of in at.simulator.topic_settings.values() for entries in of.values()), call
    assert not any(at.simulator.broker_settings.values()), call
    rows = at.stores[2]._rows
    settled = [(row.entry.topic, row.entry.partition) for row in rows if row.entry.action is Action.SETTLE]
    assert len(settled) == len(set(settled)) == len(at.moves), call


def test_a_live_stepper_beside_another_does_nothing_at_any_point() -> None:
    calls = steps_taken({"throttle": 0}, 2)
    for at in range(0, len(calls), one_in(9)):
        here = place(throttle=0)
        seen: list[Any] = []

        def meanwhile(here: Place = here, seen: list[Any] = seen) -> None:
            before = state_of(here)
            progress = here.runner(Faults()).step()
            seen.append((progress.busy, state_of(here) == before))

        slow = here.runner(Gate(at, meanwhile))
        for _ in range(2):
            slow.step()
            here.simulator.tick()
        busy, unchanged = seen[0]
        # Before it holds the lock, or after it gave it back, the other one may step: then this one is the busy one.
        assert unchanged or not busy, calls[at]
        to_the_end(here)
        verify_done(here, calls[at])


def test_a_step_that_reads_the_settings_of_many_topics_keeps_its_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight_inputs, "_TOPICS", 100)
    topics = [f"topic-{at}: 123" for at in range(250)]
    simulator = Simulator.of("1a 2b 3c 4a", *topics)
    simulator.kill(1)
    moves = heal_moves(simulator, 1, 4, chunk_size=500)
    here = Place(simulator, moves, Settings(), plan_of(simulator, moves, failed=(1,))).published()
    read, meanwhile = simulator.topic_configs, []

    def slowly(topics: Collection[str], names: Collection[str], **more: bool) -> dict[str, dict[str, str]]:
        if "min.insync.replicas" in names:
            simulator.now_ms += 400 * len(topics)
            with monkeypatch.context() as quick:
                quick.setattr(simulator, "topic_configs", read)
                meanwhile.append(here.runner(Faults()).step().busy)
        return read(topics, names, **more)

    monkeypatch.setattr(simulator, "topic_configs", slowly)
    assert not here.runner(Faults()).step().busy
    assert meanwhile == [True, True, True]
