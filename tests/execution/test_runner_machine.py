"""Random histories: brokers die and return, others meddle, processes die, replies are lost, time jumps.

What must hold after each rule is an invariant; when the faults have stopped, the plan must end within a bounded number
of steps, with nothing borrowed and nothing of ours in flight.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from itertools import chain, combinations
from typing import Any, ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kafka_steward.assignment import Assignment, Move, TopicPartition
from kafka_steward.errors import ClusterError, JournalError, PlanError
from kafka_steward.execution.moves.staging import intermediate_assignments
from kafka_steward.execution.plans.drive import StepRunner
from kafka_steward.execution.plans.lifecycle import change_plan_throttle, request_cancel, resume_plan
from kafka_steward.execution.plans.publishing import publish_plan
from kafka_steward.execution.plans.rollback import find_left_alone, find_unfinished_cancels
from kafka_steward.execution.plans.runner import PlanRunner
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.watch.upkeep import pause_idle_plans
from kafka_steward.journal import paths
from kafka_steward.journal.locks import PlanSlot
from kafka_steward.journal.mailbox import read_below, read_one
from kafka_steward.journal.plans import ORPHAN_MS
from kafka_steward.journal.records import MoveState, PlanStatus
from kafka_steward.planning.files.formats import PlanFolder
from kafka_steward.settings import Settings
from tests.cancelling import CancelRunner
from tests.crash import Died, Faults
from tests.crash_environment import LOCK_TICKS, Place
from tests.documents import create_document, delete_document
from tests.rings import tried
from tests.simulated_plan import FOLLOWERS, RATE, WHO, heal_moves, move, plan_of
from tests.simulator import UNCLEAN, Simulator
from tests.watching import tick_of

BROKERS = (1, 2, 3, 4)
#: Steps within which an undisturbed plan of this size must end, attempts and a lock to run out included.
BOUND = 60
CAP = 2


class RunnerMachine(RuleBasedStateMachine):
    """One heal plan, one cluster, and everything that may happen to them; it may be taken back at any moment."""

    staggered: ClassVar[bool] = False
    unclean: ClassVar[bool] = False
    histories: ClassVar[int] = 0
    happened: ClassVar[int] = 0

    @initialize(mode=st.sampled_from(["kraft", "zookeeper"]), failed=st.sampled_from([1, 2, 3]), slow=st.booleans())
    def begin(self, mode: str, failed: int, slow: bool) -> None:
        simulator = Simulator.of("1a 2b 3c 4a", "t: 123 231 312", "u: 213", mode=mode, bandwidth=40 if slow else 150)
        simulator.topic_settings["u"][FOLLOWERS] = "0:3"
        simulator.broker_settings[4][RATE] = "77"
        self.foreign = {"u": "0:3", "4": "77"}
        simulator.kill(failed)
        self.plan_for(simulator, heal_moves(simulator, failed, 4), failed=(failed,))

    def plan_for(self, simulator: Simulator, moves: list[Move], **more: Any) -> None:
        rules = Settings(throttle=60, max_in_per_broker=CAP, max_out_per_broker=CAP, max_attempts=4)
        rules = replace(rules, one_replica_at_a_time=self.staggered)
        plan: PlanFolder = plan_of(simulator, moves, **more)
        self.place = Place(simulator, moves, rules, plan)
        self.simulator = simulator
        self.moves: dict[TopicPartition, Move] = {move.topic_partition: move for move in moves}
        self.begun = {name: each.replicas for name, each in simulator.topics.items()}
        self.willed: dict[TopicPartition, set[Assignment]] = {name: set() for name in simulator.topics}
        self.late = False
        self.undoing = False
        self.runner = self.new_process(Faults())

    def new_process(self, faults: Faults) -> StepRunner:
        cluster, journal = self.place.process(faults)
        settings, plan = self.place.settings, self.place.plan
        context = ClusterContext(cluster, journal, settings, WHO)
        with suppress(ClusterError, JournalError, Died):
            publish_plan(context, plan)
        if self.undoing:
            return CancelRunner(cluster, journal, plan.digest, settings, WHO, scope="plan", reason="as it was")
        return PlanRunner(context, plan.digest)

    @rule(ticks=st.integers(0, 3))
    def step(self, ticks: int) -> None:
        with suppress(JournalError, PlanError):
            self.runner.step()
        self.simulator.tick(ticks)

    @rule(at=st.integers(0, 120), kind=st.sampled_from(["dies before", "dies after", "fails", "reply lost"]))
    def step_with_a_fault(self, at: int, kind: str) -> None:
        faulty = self.new_process(Faults(at, kind))
        with suppress(Died, JournalError, ClusterError, PlanError):
            faulty.step()
            faulty.step()
        self.runner = self.new_process(Faults())

    @rule(rate=st.sampled_from([0, 20, 500]))
    def its_throttle_is_changed(self, rate: int) -> None:
        with suppress(PlanError):
            change_plan_throttle(self.place.process(Faults())[1], self.place.plan.digest, rate, WHO, "it is too slow")

    @rule()
    def someone_clears_all_throttles(self) -> None:
        for of in (*self.simulator.topic_settings.values(), *self.simulator.broker_settings.values()):
            of.clear()
        self.foreign = {}

    @rule(ticks=st.integers(1, 8))
    def time_passes(self, ticks: int) -> None:
        self.simulator.tick(ticks)

    @rule()
    def the_clock_jumps(self) -> None:
        self.simulator.now_ms += LOCK_TICKS * 1000

    @rule(broker=st.sampled_from(BROKERS))
    @precondition(lambda self: len(self.simulator.alive) > 2)
    def a_broker_dies(self, broker: int) -> None:
        self.simulator.kill(broker)

    @rule(broker=st.sampled_from(BROKERS))
    def a_broker_returns(self, broker: int) -> None:
        self.simulator.restart(broker)

    @rule(name=st.sampled_from(["t-0", "t-1"]), where=st.permutations(BROKERS).map(lambda each: tuple(each[:3])))
    def someone_else_moves(self, name: str, where: Assignment) -> None:
        topic, number = name.split("-")
        partition = TopicPartition(topic, int(number))
        if partition in self.simulator.topics:
            answer = self.simulator.alter({partition: where})
            if answer[partition] is None:
                self.willed[partition].add(where)

    @rule()
    def someone_else_cancels(self) -> None:
        moving = list(self.simulator.reassignments())
        self.simulator.cancel(moving)

    @rule()
    @precondition(lambda self: any(name.topic == "u" for name in self.simulator.topics))
    def a_topic_is_recreated(self) -> None:
        live = sorted(self.simulator.alive)[:3]
        if len(live) == 3:
            self.simulator.delete("u")
            self.simulator.create("u", [tuple(live)])
            self.foreign.pop("u", None)
            self.willed[TopicPartition("u", 0)].add(tuple(live))

    @rule()
    def someone_asks_for_a_cancel(self) -> None:
        with suppress(PlanError):
            request_cancel(self.place.process(Faults())[1], self.place.plan.digest, who=WHO, reason="enough")

    @rule()
    def someone_wants_all_of_it_back(self) -> None:
        self.undoing = True
        self.runner = self.new_process(Faults())

    @rule()
    def nobody_steps_it_for_long_and_the_watch_pauses_it(self) -> None:
        self.simulator.now_ms += int(self.place.settings.abandoned_after * 1000) + 1
        cluster, journal = self.place.process(Faults())
        for _ in range(2):
            with suppress(ClusterError, JournalError):
                pause_idle_plans(cluster, journal, self.place.settings, WHO)

    @rule()
    def someone_resumes_it(self) -> None:
        with suppress(PlanError, JournalError):
            resume_plan(self.place.process(Faults())[1], self.place.plan.digest, WHO)

    @rule()
    def someone_flips_the_switch(self) -> None:
        mailbox = self.place.stores[0]
        switch = read_one(mailbox, paths.REASSIGN_CANCEL)
        if switch is None:
            create_document(mailbox, paths.REASSIGN_CANCEL, "")
        else:
            delete_document(mailbox, switch.path)

    @rule(entry=st.sampled_from(["0:9", "2:9"]))
    def someone_else_slows_a_replica(self, entry: str) -> None:
        entries = [each for each in self.simulator.topic_settings["t"].get(FOLLOWERS, "").split(",") if each]
        self.simulator.topic_settings["t"][FOLLOWERS] = ",".join([*entries, *({entry} - set(entries))])
        listed = {each for each in self.foreign.get("t", "").split(",") if each}
        self.foreign["t"] = ",".join(sorted(listed | {entry}))

    @rule(broker=st.sampled_from(BROKERS), rate=st.sampled_from(["55", "66"]))
    def someone_else_sets_a_rate(self, broker: int, rate: str) -> None:
        self.simulator.broker_settings[broker][RATE] = rate
        self.foreign[str(broker)] = rate

    @rule(rate=st.sampled_from([None, "10", "66"]))
    def someone_else_sets_a_rate_for_all_brokers(self, rate: str | None) -> None:
        self.simulator.broker_defaults = {} if rate is None else {RATE: rate}

    @rule(after=st.integers(1, 4))
    def an_answer_is_lost_and_it_is_applied_late(self, after: int) -> None:
        self.late, whole = True, self.simulator.alter
        self.simulator.alter = lambda targets, **_: self.simulator.alter_unanswered(targets, after_ticks=after)  # type: ignore[method-assign]
        try:
            with suppress(JournalError, PlanError):
                self.runner.step()
        finally:
            self.simulator.alter = whole  # type: ignore[method-assign]

    @invariant()
    def it_is_counted(self) -> None:
        RunnerMachine.happened += 1

    @invariant()
    def nothing_is_ever_anywhere_but_where_someone_wants_it(self) -> None:
        for name, partition in self.simulator.topics.items():
            if partition.reassigning:
                continue
            sets = [frozenset(self.begun[name]), *map(frozenset, self.willed[name])]
            if name in self.moves:
                there = self.moves[name]
                back = replace(there, before=there.after, after=there.before)
                sets += map(
                    frozenset,
                    (
                        there.after,
                        *intermediate_assignments(there),
                        *(intermediate_assignments(back) if self.undoing else ()),
                        *(_without_dead(there) if self.unclean else ()),
                        *(_without_dead(back) if self.unclean and self.undoing else ()),
                    ),
                )
            assert frozenset(partition.replicas) in sets, f"{name} is at {partition.replicas}"

    @invariant()
    def what_completed_is_at_its_target(self) -> None:
        if self.undoing:
            return  # on its way back
        for row in self.place.stores[1].rows(self.place.plan.digest):
            partition = self.simulator.topics.get(row.topic_partition)
            if row.state is MoveState.COMPLETED and partition and not self.willed[row.topic_partition]:
                assert partition.replicas == row.move.after

    @invariant()
    def no_broker_receives_more_than_its_cap(self) -> None:
        if any(self.willed.values()) or self.late:
            return  # what others start, or what an unheard request starts, is not ours to count
        moving = [each for each in self.simulator.topics.values() if each.reassigning]
        for broker in BROKERS:
            assert sum(broker in each.adding for each in moving) <= CAP

    def teardown(self) -> None:
        if not hasattr(self, "simulator"):
            return
        RunnerMachine.histories += 1
        for broker in BROKERS:
            self.simulator.restart(broker)
        switch = read_one(self.place.stores[0], paths.REASSIGN_CANCEL)
        if switch is not None:
            self.someone_flips_the_switch()
        self.simulator.tick(6)
        self.simulator.cancel(
            [name for name, each in self.simulator.topics.items() if each.wedged or each.target in self.willed[name]]
        )
        self.simulator.now_ms += LOCK_TICKS * 1000
        for _ in range(BOUND):
            progress = self.new_process(Faults()).step()
            if progress.ended:
                break
            if progress.waits_for_person:
                resume_plan(self.place.process(Faults())[1], progress.digest, WHO)
            self.simulator.tick()
        assert progress.ended, progress
        if self.undoing:
            self.verify_undone()
        # What an ended plan leased on a broker that was dead is released by any later poll.
        tick_of(*self.place.process(Faults()), self.place.settings)
        self.verify_only_orphans_are_left()
        self.verify_end()

    def verify_only_orphans_are_left(self) -> None:
        """The chunks of a rollback that died before its record, and was planned otherwise then; they go when old."""
        journal = self.place.process(Faults())[1]
        plans = {json.loads(node.data)["plan"] for node in read_below(journal.mailbox, paths.REASSIGN_CHUNKS)}
        assert [digest for digest in plans if journal.plans.get(digest) is not None] == []
        self.simulator.now_ms += ORPHAN_MS + 1
        journal.plans.purge(0)

    def verify_undone(self) -> None:
        """Every partition of the plan is as it was, order included, but for those that are listed with a reason."""
        journal = self.place.process(Faults())[1]
        undone = journal.plans.get(self.place.plan.digest)
        assert undone is not None
        listed = {
            TopicPartition(each.topic, each.partition) for each in find_left_alone(journal, undone.rolled_back_by)
        }
        assert undone.not_rolled_back == len(listed)
        rows = journal.plans.rows(undone.digest)
        if all(row.state is MoveState.SATISFIED for row in rows):
            # Its brokers were back before anything began: it stays completed, with nothing to revert.
            assert (undone.status, listed) == (PlanStatus.COMPLETED, set())
        else:
            assert (undone.status is PlanStatus.ROLLED_BACK) == (not listed)
        assert find_unfinished_cancels(journal) == []
        for name in self.moves.keys() - listed:
            # What Kafka received only after it had answered everything else is nobody's to know.
            if not self.willed[name] and not self.late:
                assert self.simulator.topics[name].replicas == self.begun[name], name

    def verify_end(self) -> None:
        """Ended: nothing of ours is borrowed, noted as in flight, or owned; what others set is still there."""
        mailbox, _, _ = self.place.stores
        # Since when others reassign is known of the cluster, and is no plan's.
        assert list(mailbox._nodes) == []
        assert {noun for noun, _ in self.place.state.rows} <= {
            "slot",
            "step_lock",
            "unsettled",
            "task_requests",
            "skipped_partitions",
            "released_throttles",
        }
        assert PlanSlot(self.place.state).holders() == ()
        lists = {topic: of[FOLLOWERS] for topic, of in self.simulator.topic_settings.items() if FOLLOWERS in of}
        rates = {str(broker): of[RATE] for broker, of in self.simulator.broker_settings.items() if RATE in of}
        lists = {topic: ",".join(sorted(entries.split(","))) for topic, entries in lists.items()}
        assert lists | rates == self.foreign


class StaggeredMachine(RunnerMachine):
    """The same with a plan that people asked for, which adds replicas one at a time; all of it may stop halfway."""

    staggered = True

    @initialize(mode=st.sampled_from(["kraft", "zookeeper"]), slow=st.booleans())
    def begin(self, mode: str, slow: bool) -> None:
        topics = ("t: 123 231 12", "u: 213")
        simulator = Simulator.of("1a 2b 3c 4a 5b 6c", *topics, mode=mode, bandwidth=40 if slow else 150)
        simulator.topic_settings["u"][FOLLOWERS] = "0:3"
        simulator.broker_settings[4][RATE] = "77"
        self.foreign = {"u": "0:3", "4": "77"}
        moves = [
            move("t-0", "123", "456"),
            move("t-1", "231", "341", position=1),
            move("t-2", "12", "1234", position=2),
            move("u-0", "213", "451", position=3),
        ]
        if self.unclean:
            simulator.topic_settings["t"][UNCLEAN] = "true"
        self.plan_for(simulator, moves, operation="apply")


class UncleanMachine(StaggeredMachine):
    """The same with a topic that allows unclean elections, whose new replicas come behind all live originals."""

    staggered = False
    unclean = True


def _without_dead(there: Move) -> list[Assignment]:
    """Return the assignments of a move with all new replicas, and without some of those that leave: dead ones."""
    kept = [broker for broker in there.before if broker in there.after]
    leaving = sorted(there.removing)
    subsets = chain.from_iterable(combinations(leaving, size) for size in range(len(leaving) + 1))
    return [(*kept, *some, *sorted(there.adding)) for some in subsets]


TestUncleanMachine = UncleanMachine.TestCase
TestUncleanMachine.settings = settings(max_examples=tried(30), stateful_step_count=30, deadline=None)
TestStaggeredMachine = StaggeredMachine.TestCase
TestStaggeredMachine.settings = settings(max_examples=tried(30), stateful_step_count=30, deadline=None)
TestRunnerMachine = RunnerMachine.TestCase
TestRunnerMachine.settings = settings(max_examples=tried(80), stateful_step_count=30, deadline=None)


@pytest.mark.slow
def test_many_and_long_histories() -> None:
    RunnerMachine.happened = RunnerMachine.histories = 0
    run_state_machine_as_test(
        RunnerMachine, settings=settings(max_examples=600, stateful_step_count=60, deadline=None, print_blob=True)
    )
    print(f"{RunnerMachine.happened} steps in {RunnerMachine.histories} histories")
