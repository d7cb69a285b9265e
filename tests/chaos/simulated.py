"""Carry out a schedule on the simulated cluster: events, steps, and at the end a calm in which everything must end."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from kafka_steward.assignment import Assignment, Operation, TopicPartition
from kafka_steward.errors import PlanError, SlotTaken, StewardError
from kafka_steward.execution.announcements import announce_restart, disable_reassignment, enable_reassignment
from kafka_steward.execution.demotions import demoted_brokers, read_demotions
from kafka_steward.execution.plans.lifecycle import abandon_plan, change_plan_throttle, request_cancel, resume_plan
from kafka_steward.execution.plans.publishing import publish_plan
from kafka_steward.execution.plans.rollback import is_cancel_unfinished
from kafka_steward.execution.plans.runner import PlanRunner
from kafka_steward.execution.plans.snapshot import started_moves, take_snapshot
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.throttles.rates import ThrottleSide
from kafka_steward.execution.watch.failure_detector import FailureDetector
from kafka_steward.execution.watch.upkeep import run_chores
from kafka_steward.journal.records import PlanRecord, PlanStatus
from kafka_steward.planning.files.formats import PlanFolder, read_snapshot
from kafka_steward.settings import Settings
from tests.chaos.invariants import Expectations, find_broken, sentence_fault
from tests.chaos.schedule import STEPS, Event, Scene, Schedule
from tests.chaos.world import PERSON, Armed, Process, World
from tests.crash import Died
from tests.documents import create_document
from tests.local_plan import planned
from tests.simulator import Simulator

__all__ = ["Outcome", "carry_out"]

T = TypeVar("T")

#: The simulated seconds between two steps, and after which a step lock that a dead process left has run out.
_STEP_S, _LOCK_S = 2, 61
#: Steps within which everything must end once nothing more happens.
_CALM_STEPS = 150
#: After so many of them, a person cancels what is not over, and then abandons what cannot be cancelled either.
_PATIENCE, _LAST_PATIENCE = 90, 120
#: A broker that is dead for good.
_GHOST = 9
FOLLOWER, LEADER = ThrottleSide.FOLLOWER, ThrottleSide.LEADER


@dataclass(frozen=True)
class Outcome:
    """What became of a round: a sentence for each broken invariant, and the digest of all that happened."""

    broken: tuple[str, ...]
    trace: str
    plans: int = 0
    steps: int = 0
    happened: int = 0


def carry_out(schedule: Schedule, *, say: Callable[[str], None] = lambda _: None) -> Outcome:
    """Carry out a schedule on a new simulated cluster. `say` gets a line for each thing that happens."""
    with TemporaryDirectory(prefix="chaos-") as folder:
        carried = _Round(schedule, folder, say)
        try:
            carried.run()
        except Exception as error:  # noqa: BLE001 - it is what this looks for
            carried.world.broken.append(f"{type(error).__name__}: {error}\n{traceback.format_exc()}")
        world = carried.world
        return Outcome(tuple(world.broken), world.trace, len(carried.plans), carried.steps, carried.happened)


class _Round:
    def __init__(self, schedule: Schedule, folder: str, say: Callable[[str], None]) -> None:
        scene = schedule.scene
        self._schedule, self._scene, self._folder, self._say = schedule, scene, folder, say
        self._racks = dict(enumerate(scene.racks, 1))
        self.simulator = Simulator(dict(self._racks), {}, mode=scene.mode, bandwidth=scene.bandwidth)
        self.simulator.cluster_id = f"chaos-{schedule.seed}"
        for topic, size, partitions in scene.topics:
            self.simulator.create(topic, partitions, size=size)
        self.world = World(self.simulator, _settings_of(scene), folder=folder if scene.database else None)
        self.world.happen = self._happen
        self.expected = Expectations(self.world)
        #: The digests of the plans that were published, and what publishes those that were not yet.
        self.plans: list[str] = []
        self._unpublished: dict[str, Callable[[ClusterContext], object]] = {}
        self._runners: dict[str, PlanRunner] = {}
        self._again: set[str] = set()
        self._dead_for_good: set[int] = set()
        self.steps = self.happened = 0

    # the round

    def run(self) -> None:
        """From the neglected cluster to the calm at the end."""
        _neglect(self, Random(self._scene.number))
        self.expected.begin()
        self._begin()
        for step in range(STEPS):
            events = [event for event in self._schedule.events if event.step == step]
            self.world.armed += [Armed(event.call, event) for event in events if event.call is not None]
            for event in events:
                if event.call is None:
                    self._tell(str(event))
                    self._happen(event)
            self._step_all()
            if step % 5 == 4:
                self._poll()
            self.world.tick(_STEP_S)
            self.expected.look()
        self._calm_down()
        find_broken(self.expected, self.plans)

    def _tell(self, text: str) -> None:
        self.world.note(text)
        self._say(f"{self.simulator.now_ms / 1000 - 1000:7.2f} s  {text}")

    def _begin(self) -> None:
        number, operation = self._scene.number, self._scene.operation
        if operation is Operation.HEAL:
            victim = self._broker(number)
            self._tell(f"broker {victim} dies")
            self.simulator.kill(victim)
            if number % 2:
                self._dead_for_good.add(victim)
        self._plan(operation, number)

    def _calm_down(self) -> None:
        """Nothing happens any more: the brokers come back, and everything is stepped to its end."""
        self._tell("nothing more happens")
        world, simulator = self.world, self.simulator
        world.armed.clear()
        world.journal_locked_ms = world.cluster_silent_ms = world.controller_silent_ms = 0
        self._runners.clear()
        world.tick(12)
        for broker in sorted(self._racks.keys() - self._dead_for_good):
            simulator.restart(broker)
        self._call("people", lambda process: enable_reassignment(world.context(process).journal, who=PERSON))
        self.expected.end_foreign_reassignments()
        simulator.now_ms += _LOCK_S * 1000
        self._step_to_the_end()
        for broker in sorted(self._dead_for_good):
            simulator.restart(broker)
        for _ in range(3):
            world.tick(2)
            self._poll()
        self._plan_once_more()
        self._tell("the end")

    def _step_to_the_end(self) -> None:
        for number in range(_CALM_STEPS):
            if not self._step_all(number):
                return
            if number % 5 == 4:
                self._poll()
            self.world.tick(_STEP_S)
            self.expected.look()
        still = {record.digest[:6]: record.reason for record in self._unfinished()}
        self.world.broken.append(f"not ended after {_CALM_STEPS} steps without faults: {still}")

    def _plan_once_more(self) -> None:
        """Whatever happened, a further plan is not in the way of anything, and nothing is in its way."""
        simulator = self.simulator
        names = [
            name
            for name, each in sorted(simulator.topics.items())
            if not each.reassigning and len(each.replicas) > 1 and set(each.replicas) == each.isr & simulator.alive
        ]
        name = _choose([name for name in names if name.topic not in simulator.deletions], self._schedule.seed)
        if name is None:
            return
        target = {**name._asdict(), "replicas": list(simulator.topics[name].replicas[::-1])}
        known = len(self.plans)
        self._plan(Operation.APPLY, 0, {"reassignment": {"version": 1, "partitions": [target]}})
        self._step_to_the_end()
        if len(self.plans) == known:
            self.world.broken.append(f"a further plan, of {name}, was not published")

    # our processes

    def _call(self, who: str, act: Callable[[Process], T], process: Process | None = None) -> T | None:
        """Let a process do something, and judge how it ended; None if it died, or ended with an error."""
        process = process or Process(self.world)
        try:
            return act(process)
        except Died:
            self._tell(f"{who}: died")
        except StewardError as error:
            self._hear(who, str(error))
        except Exception as error:  # noqa: BLE001 - no process may end like this
            where = "".join(traceback.format_tb(error.__traceback__)[-6:])
            self.world.broken.append(f"{who} ended with {type(error).__name__}: {error}\n{where}")
        return None

    def _hear(self, who: str, sentence: str) -> None:
        self._tell(f"{who}: {sentence}")
        fault = sentence_fault(sentence)
        if fault:
            self.world.broken.append(f"{who} says {sentence!r}: {fault}")

    def _step_all(self, calm_step: int | None = None) -> bool:
        """Step each plan that is not over; return False once all are. In the calm, a person does what is to be done."""
        for digest in list(self._unpublished):
            self._publish(digest)
        records = self._unfinished()
        for record in records:
            rollback = self.expected.journal.plans.get(record.rolled_back_by or "")
            moving = record if rollback is None or rollback.status.finished else rollback
            if calm_step is not None:
                self._help(moving, calm_step)
            self._step(record.digest)
        return bool(records or self._unpublished)

    def _help(self, record: PlanRecord, calm_step: int) -> None:
        if calm_step == _PATIENCE:
            self._cancel(record.digest, "pending")
        elif calm_step == _LAST_PATIENCE:
            self._as_person(lambda journal: abandon_plan(journal, record.digest, PERSON, "it cannot go back either"))
        elif record.status is PlanStatus.STUCK:
            self._resume(record.digest)

    def _unfinished(self) -> list[PlanRecord]:
        """Return the plans that are not over, and those whose last step did not say how it ended: it is tried again."""
        journal = self.expected.journal
        records = [journal.plans.get(digest) for digest in self.plans]
        return [
            record
            for record in records
            if record is not None
            and (not record.status.finished or is_cancel_unfinished(journal, record) or record.digest in self._again)
        ]

    def _resume(self, digest: str) -> None:
        self._as_person(lambda journal: resume_plan(journal, digest, PERSON))

    def _step(self, digest: str) -> None:
        if digest not in self._runners:
            self._runners[digest] = PlanRunner(self.world.context(Process(self.world)), digest)
        runner = self._runners[digest]
        self.steps += 1
        progress = self._call(digest[:6], lambda _: runner.step())
        if progress is None:
            self._runners.pop(digest, None)  # another process tries again
            self._again.add(digest)
        else:
            self._again.discard(digest)
            self._hear(digest[:6], progress.sentence)

    def _poll(self) -> None:
        """One poll of a watch."""

        def poll(process: Process) -> list[str]:
            context = self.world.context(process)
            FailureDetector(context.cluster, context.journal, context.settings, context.actor).poll()
            return run_chores(context)

        for sentence in self._call("watch", poll) or ():
            self._hear("watch", sentence)

    def _as_person(self, act: Callable[[Any], object]) -> None:
        self._call("person", lambda process: act(self.world.context(process).journal))

    def _cancel(self, digest: str, scope: Any) -> None:
        self._as_person(lambda journal: request_cancel(journal, digest, who=PERSON, reason="enough", scope=scope))

    def _plan(self, operation: Operation, number: int, given: Mapping[str, Any] | None = None) -> None:
        """Make a plan, and publish it; `given` are options beside those that the number draws."""

        def make(process: Process) -> PlanFolder:
            context = self.world.context(process)
            random, cluster, journal = Random(number), context.cluster, context.journal
            live = sorted(self.simulator.alive)
            one = random.choice(live)
            dead = sorted(self._racks.keys() - self.simulator.alive)
            folder = f"{self._folder}/snapshot-{len(self.plans)}-{self.steps}"
            take_snapshot(
                cluster,
                folder,
                failed=dead if operation is Operation.HEAL else (),
                now_ms=journal.now_ms(),
                draining=[one] if operation is Operation.DRAIN else (),
                begun=started_moves(journal),
                demotions=read_demotions(journal),
            )
            snapshot = read_snapshot(folder)
            drawn = self._options_of(operation, one, journal, random) if given is None else dict(given)
            options = context.settings.planner_options() | drawn
            plan = planned(snapshot, operation.value, options)
            self._tell(f"{operation.value} {plan.digest[:6]}: {[str(move.topic_partition) for move in plan.moves]}")
            self._unpublished[plan.digest] = lambda context: publish_plan(context, plan, snapshot=snapshot, named=dead)
            return plan

        plan = self._call(f"plan {operation.value}", make)
        if plan is not None:
            self._publish(plan.digest)

    def _publish(self, digest: str) -> None:
        """Publish a plan; a process that dies, or does not reach the cluster or the journal, is followed by another."""

        def publish(process: Process) -> bool:
            try:
                self._unpublished[digest](self.world.context(process))
            except (SlotTaken, PlanError) as error:
                self._hear("publish", str(error))
            else:
                self.plans.append(digest)
            return True

        if self._call("publish", publish):
            self._unpublished.pop(digest, None)

    def _options_of(self, operation: Operation, one: int, journal: Any, random: Random) -> dict[str, Any]:
        topics = sorted({name.topic for name in self.simulator.topics})
        if operation is Operation.DEMOTE:
            return {"demote": [one]}
        if operation is Operation.PROMOTE:
            return {"promote": sorted(demoted_brokers(journal))}
        if operation is Operation.SET_REPLICATION_FACTOR:
            return {"topics": [random.choice(topics)], "replication_factor": random.randint(2, 4)}
        if operation is not Operation.APPLY:
            return {}
        names = random.sample(sorted(self.simulator.topics), min(len(self.simulator.topics), random.randint(1, 5)))
        return {"reassignment": {"version": 1, "partitions": [self._drawn_target(name, random) for name in names]}}

    def _drawn_target(self, name: TopicPartition, random: Random) -> dict[str, Any]:
        factor = max(1, len(self.simulator.topics[name].target) + random.choice((-1, 0, 0, 0, 1)))
        live = sorted(self.simulator.alive)
        replicas = random.sample(live, min(factor, len(live)))
        return {"topic": name.topic, "partition": name.partition, "replicas": replicas}

    # events

    def _happen(self, event: Event) -> None:
        self.happened += 1
        if event.call is not None:
            self._tell(str(event))
        getattr(self, f"_on_{event.kind.replace(' ', '_')}")(event.number)

    def _broker(self, number: int) -> int:
        return sorted(self._racks)[number % len(self._racks)]

    def _digest(self, number: int) -> str | None:
        return _choose(self.plans, number)

    def _on_broker_dies(self, number: int) -> None:
        if len(self.simulator.alive) > 2:
            self.simulator.kill(self._broker(number))

    def _on_broker_returns(self, number: int) -> None:
        dead = sorted(self._racks.keys() - self.simulator.alive)
        broker = _choose(dead, number)
        if broker is not None:
            self.simulator.restart(broker)
            self._dead_for_good.discard(broker)

    def _on_broker_is_unregistered(self, number: int) -> None:
        broker = _choose(sorted(self._racks.keys() - self.simulator.alive), number)
        if broker is not None and self.simulator.mode == "kraft":
            self.simulator.unregister(broker)

    def _on_broker_fails_a_disk(self, number: int) -> None:
        broker = self._broker(number)
        if broker in self.simulator.alive:
            names = [name for name, each in sorted(self.simulator.topics.items()) if broker in each.replicas]
            self.simulator.fail_disk(broker, *names[:: 2 + number % 2])

    def _on_controller_does_not_answer(self, number: int) -> None:
        self.world.controller_silent_ms = self.simulator.now_ms + 1000 * (1 + number % 20)

    def _on_cluster_does_not_answer(self, number: int) -> None:
        self.world.cluster_silent_ms = self.simulator.now_ms + 1000 * (1 + number % 20)

    def _on_journal_is_locked(self, number: int) -> None:
        self.world.journal_locked_ms = self.simulator.now_ms + 1000 * (1 + number % 30)

    def _on_process_restarts(self, number: int) -> None:
        del number
        self._runners.clear()

    def _on_second_process_steps(self, number: int) -> None:
        digest = self._digest(number)
        if digest is not None:
            self._step_beside(digest)

    def _step_beside(self, digest: str) -> None:
        self._call("another process", lambda process: PlanRunner(self.world.context(process), digest).step())

    def _on_paused_beyond_its_lock(self, number: int) -> None:
        """Others go on meanwhile, and may end everything."""
        self.world.interrupted = True
        self.simulator.now_ms += _LOCK_S * 1000
        for _ in range(number % 12):
            for record in self._unfinished():
                self._step_beside(record.digest)
            if number % 5 == 0:
                self._poll()
            self.world.tick(1 + number % 3)

    def _on_watch_polls(self, number: int) -> None:
        del number
        self._poll()

    def _on_nobody_steps(self, number: int) -> None:
        self.simulator.now_ms += int(self.world.settings.abandoned_after * 1000) + 1
        for _ in range(1 + number % 3):
            self._poll()
            self.world.tick()

    def _on_clock_jumps(self, number: int) -> None:
        self.simulator.now_ms += 1000 * (number % 300)

    def _on_cancel(self, number: int) -> None:
        self._request_cancel(number, "pending")

    def _on_roll_back(self, number: int) -> None:
        self._request_cancel(number, "plan")

    def _request_cancel(self, number: int, scope: Any) -> None:
        digest = self._digest(number)
        if digest is not None:
            self._cancel(digest, scope)

    def _on_throttle(self, number: int) -> None:
        digest, rate = self._digest(number), (0, 20, 500)[number % 3]
        if digest is not None:
            self._as_person(lambda journal: change_plan_throttle(journal, digest, rate, PERSON, "it is too slow"))

    def _on_disable(self, number: int) -> None:
        del number
        self._as_person(lambda journal: disable_reassignment(journal, who=PERSON, reason="a test"))

    def _on_enable(self, number: int) -> None:
        del number
        self._as_person(lambda journal: enable_reassignment(journal, who=PERSON))

    def _on_resume(self, number: int) -> None:
        digest = self._digest(number)
        if digest is not None:
            self._resume(digest)

    def _on_abandon(self, number: int) -> None:
        digest = self._digest(number)
        if digest is not None:
            self._as_person(lambda journal: abandon_plan(journal, digest, PERSON, "it takes too long"))

    def _on_restart_is_announced(self, number: int) -> None:
        broker = self._broker(number)
        self._as_person(lambda journal: announce_restart(journal, broker, who=PERSON, lasts_ms=30_000))

    def _on_another_plan(self, number: int) -> None:
        dead = self._racks.keys() - self.simulator.alive
        operations = [Operation.REBALANCE, Operation.APPLY, Operation.DRAIN, Operation.DEMOTE, Operation.PROMOTE]
        if dead:
            operations += [Operation.HEAL] * 5
        self._plan(operations[number % len(operations)], number)

    def _on_foreign_reassignment(self, number: int) -> None:
        random, names = Random(number), sorted(self.simulator.topics)
        name = _choose(names, number)
        if name is None:
            return
        target = tuple(random.sample(sorted(self.simulator.alive), min(2 + number % 2, len(self.simulator.alive))))
        self.expected.foreign_move(name, target)

    def _on_foreign_cancel(self, number: int) -> None:
        moving = sorted(self.simulator.reassignments())
        name = _choose(moving, number)
        if name is not None:
            self.expected.foreign_cancel(name)

    def _on_foreign_rate(self, number: int) -> None:
        side = (FOLLOWER, FOLLOWER, LEADER)[number % 3]
        self.expected.foreign_rate(self._broker(number), side.rate_key, str(25 + 2 * (number % 20)))

    def _on_foreign_default_rate(self, number: int) -> None:
        self.expected.foreign_default_rate(FOLLOWER.rate_key, (None, "15", "66")[number % 3])

    def _on_foreign_list(self, number: int) -> None:
        name = _choose(sorted(self.simulator.topics), number)
        if name is not None:
            entry = f"{name.partition}:{self._broker(number // 7)}"
            self.expected.foreign_entry(name.topic, (FOLLOWER, LEADER)[number % 2].replicas_key, entry)

    def _on_throttles_are_cleared(self, number: int) -> None:
        del number
        self.expected.clear_throttles()

    def _on_topic_is_deleted(self, number: int) -> None:
        topic = _choose(sorted(self.simulator.topic_settings.keys() & set("tuv")), number)
        if topic is not None:
            self.expected.delete_topic(topic)

    def _on_topic_is_created_anew(self, number: int) -> None:
        topic = _choose(sorted(self.simulator.topic_settings.keys() & set("tuv")), number)
        live = sorted(self.simulator.alive)
        if topic is not None:
            count = sum(name.topic == topic for name in self.simulator.topics)
            random = Random(number)
            self.expected.delete_topic(topic)
            self.simulator.create(topic, [tuple(random.sample(live, min(3, len(live)))) for _ in range(count)])
            self.expected.created(topic)


def _settings_of(scene: Scene) -> Settings:
    return Settings(
        throttle=scene.throttle,
        window=scene.window,
        max_in_per_broker=scene.caps,
        max_out_per_broker=scene.caps,
        one_replica_at_a_time=scene.one_replica_at_a_time,
        throttle_leaders=scene.throttle_leaders,
        when_stalled=scene.when_stalled,
        heal_chunk_size=3,
        max_attempts=8,
        stall_after=60,
        stuck_after=20,
        heal_failure_interval=5,
        max_failed_brokers=10,
        max_failed_fraction=1.0,
        heal_failed_disks=True,
    )


def _choose(items: Sequence[T], number: int) -> T | None:
    return items[number % len(items)] if items else None


def _neglect(carried: _Round, random: Random) -> None:
    """Leave the cluster as years and others have."""
    for kind in carried._scene.dirt:
        carried._tell(f"it has: {kind}")
        _LEAVE[kind](carried, random)


def _leave_dead_broker(carried: _Round, random: Random) -> None:
    simulator = carried.simulator
    if _GHOST in simulator.racks:
        return
    simulator.racks[_GHOST], simulator.broker_settings[_GHOST] = "a", {}
    simulator.alive.add(_GHOST)
    simulator.create("ghosts", [(1, _GHOST), (_GHOST, 2), (3, _GHOST, 4)])
    simulator.kill(_GHOST)
    if random.random() < 0.5 and simulator.mode == "kraft":
        simulator.unregister(_GHOST)


def _leave_lost_partition(carried: _Round, random: Random) -> None:
    _leave_dead_broker(carried, random)
    carried.simulator.create("lost", [(_GHOST,)], size=10)


def _leave_rates(carried: _Round, random: Random) -> None:
    for broker in random.sample(sorted(carried._racks), 2):
        side = random.choice((FOLLOWER, LEADER))
        carried.simulator.broker_settings[broker][side.rate_key] = str(random.randrange(21, 90, 2))


def _leave_default_rate(carried: _Round, random: Random) -> None:
    carried.simulator.broker_defaults[FOLLOWER.rate_key] = str(random.randrange(21, 90, 2))


def _leave_lists(carried: _Round, random: Random) -> None:
    for name in random.sample(sorted(carried.simulator.topics), 1):
        broker = random.choice(sorted(carried._racks))
        carried.simulator.topic_settings[name.topic][FOLLOWER.replicas_key] = f"{name.partition}:{broker},9:9"


def _leave_leader_list(carried: _Round, random: Random) -> None:
    topic = random.choice(sorted(carried.simulator.topic_settings))
    carried.simulator.topic_settings[topic][LEADER.replicas_key] = random.choice(("*", "0:1", "0:1,0:2"))


def _leave_duplicates(carried: _Round, random: Random) -> None:
    topic = random.choice(sorted(carried.simulator.topic_settings))
    carried.simulator.topic_settings[topic][FOLLOWER.replicas_key] = "0:1,0:1,7:7"


def _leave_reassignment(carried: _Round, random: Random) -> None:
    simulator = carried.simulator
    simulator.create("foreign", [(1, 2)], size=10**7)
    target: Assignment = (random.choice((3, 4)), 1)
    carried.expected.stays_in_flight[TopicPartition("foreign", 0)] = target
    simulator.alter({TopicPartition("foreign", 0): target})


def _leave_without_log(carried: _Round, random: Random) -> None:
    simulator = carried.simulator
    simulator.create("stuck", [(1, 3), (2, 4)])
    name, broker = random.choice(((TopicPartition("stuck", 0), 3), (TopicPartition("stuck", 1), 4)))
    simulator.without_log.add((name, broker))
    simulator.topics[name].isr.discard(broker)
    simulator.topics[name].held.pop(broker, None)


def _leave_failed_disk(carried: _Round, random: Random) -> None:
    broker = random.choice(sorted(carried._racks))
    names = [name for name, each in sorted(carried.simulator.topics.items()) if broker in each.replicas]
    carried.simulator.fail_disk(broker, *names[::3])


def _leave_deletion(carried: _Round, random: Random) -> None:
    if carried.simulator.mode == "zookeeper":
        carried.simulator.create("doomed", [(1, 2), (2, 3)])
        carried.simulator.deletions["doomed"] = {1, 2, 3}
        if random.random() < 0.5:
            carried.simulator.unshown.add("doomed")


def _leave_documents(carried: _Round, random: Random) -> None:
    mailbox: Any = carried.world._stores()["mailbox"]
    create_document(mailbox, "/admin/failed_brokers/not-a-broker", "whose is this?")
    create_document(mailbox, f"/admin/rolling_bounce/{random.randint(1, 4)}", "soon")


_LEAVE: dict[str, Callable[[_Round, Random], None]] = {
    "foreign rates": _leave_rates,
    "foreign default rate": _leave_default_rate,
    "foreign lists": _leave_lists,
    "foreign leader list": _leave_leader_list,
    "duplicated entries": _leave_duplicates,
    "foreign reassignment": _leave_reassignment,
    "partition without a live replica": _leave_lost_partition,
    "dead broker in replicas": _leave_dead_broker,
    "replica without a log": _leave_without_log,
    "failed disk": _leave_failed_disk,
    "topic being deleted": _leave_deletion,
    "unreadable documents": _leave_documents,
}
