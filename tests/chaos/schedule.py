"""Schedules of chaos: a cluster, an operation, and what happens meanwhile, all drawn from a seed. Pure.

A schedule says nothing about what carries it out. An event names a kind and a number, from which the carrier chooses
the broker, the topic or the rate; so an event still means something after others were dropped from the schedule.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from random import Random

from kafka_steward.assignment import Assignment, Operation

__all__ = ["DIRT", "Event", "Scene", "Schedule", "draw"]

#: How often each kind of event is drawn, those at the boundary of two steps.
BETWEEN_STEPS = {
    # The cluster.
    "broker dies": 6,
    "broker returns": 6,
    "broker is unregistered": 1,
    "broker fails a disk": 1,
    "controller does not answer": 2,
    "cluster does not answer": 2,
    # Our processes and our journal.
    "process restarts": 3,
    "second process steps": 3,
    "watch polls": 4,
    "nobody steps": 1,
    "clock jumps": 1,
    "journal is locked": 2,
    # People.
    "cancel": 2,
    "roll back": 3,
    "throttle": 3,
    "disable": 1,
    "enable": 2,
    "resume": 1,
    "abandon": 1,
    "another plan": 4,
    "restart is announced": 1,
    # Others.
    "foreign reassignment": 3,
    "foreign cancel": 2,
    "foreign rate": 2,
    "foreign default rate": 1,
    "foreign list": 2,
    "throttles are cleared": 1,
    "topic is deleted": 1,
    "topic is created anew": 2,
}
#: The kinds that happen at one call of a process to the cluster or the journal, and to that call.
AT_A_CALL = {
    "dies before": 4,
    "dies after": 4,
    "dies half-way": 1,
    "fails": 3,
    "answer is lost": 4,
    "is applied late": 3,
}
#: The kinds that happen between two calls of one step, while its process waits; those of BETWEEN_STEPS do, too.
WITHIN_A_STEP = {"paused beyond its lock": 4}

#: What a neglected cluster has.
DIRT = (
    "foreign rates",
    "foreign default rate",
    "foreign lists",
    "foreign leader list",
    "duplicated entries",
    "foreign reassignment",
    "partition without a live replica",
    "dead broker in replicas",
    "replica without a log",
    "failed disk",
    "topic being deleted",
    "unreadable documents",
)
OPERATIONS = (
    *[Operation.HEAL] * 4,
    *[Operation.DRAIN] * 3,
    *[Operation.REBALANCE] * 3,
    *[Operation.APPLY] * 4,
    Operation.EXPAND,
    Operation.SET_REPLICATION_FACTOR,
    Operation.LEADERS,
    Operation.DEMOTE,
)
#: The steps in which events happen, and the calls after the begin of a step at which they do.
STEPS, CALLS = 16, 90


@dataclass(frozen=True)
class Scene:
    """The cluster and the plan with which a schedule begins.

    `racks` has the rack of each broker, from 1 on; `topics` the bytes and the replicas of each partition. `bandwidth`
    and `throttle` are bytes per second into one broker. `number` chooses what the operation is about. `database` is set
    for a journal in a database, and not in memory.
    """

    mode: str
    racks: tuple[str | None, ...]
    topics: tuple[tuple[str, int, tuple[Assignment, ...]], ...]
    operation: Operation
    number: int
    dirt: tuple[str, ...] = ()
    bandwidth: int = 100
    throttle: int = 0
    window: str = "sliding"
    caps: int = 1000
    one_replica_at_a_time: bool = False
    throttle_leaders: bool = False
    when_stalled: str = "wait"
    database: bool = False


@dataclass(frozen=True)
class Event:
    """Something that happens before step `step`, or `call` calls after its begin; `number` chooses to what."""

    step: int
    kind: str
    number: int
    call: int | None = None

    def __str__(self) -> str:
        where = f"before step {self.step}" if self.call is None else f"call {self.call} of step {self.step}"
        return f"{where}: {self.kind} ({self.number})"


@dataclass(frozen=True)
class Schedule:
    """What a seed gives."""

    seed: int
    scene: Scene
    events: tuple[Event, ...]

    def keeping(self, places: Collection[int]) -> Schedule:
        """Return the schedule with the events at these places alone."""
        return replace(self, events=tuple(event for place, event in enumerate(self.events) if place in places))


def draw(seed: int) -> Schedule:
    """Return the schedule of a seed: the same one each time."""
    random = Random(seed)
    return Schedule(seed, _draw_scene(random), _draw_events(random))


def _draw_scene(random: Random) -> Scene:
    mode = random.choice(("kraft", "zookeeper"))
    count = random.randint(4, 8)
    names = random.choice(("abc", "abc", "ab", "abcd", ""))
    racks = tuple(names[number % len(names)] if names else None for number in range(count))
    operation = random.choice(OPERATIONS)
    # An expand needs a broker that has nothing.
    hosts = range(1, count if operation is Operation.EXPAND else count + 1)
    dirty = random.random() < 0.5
    return Scene(
        mode,
        racks,
        tuple(_draw_topics(random, hosts)),
        operation,
        random.randrange(1 << 16),
        dirt=tuple(kind for kind in DIRT if random.random() < 0.3) if dirty else (),
        bandwidth=random.choice((15, 40, 100, 400)),
        throttle=random.choice((0, 0, 30, 60, 200)),
        window=random.choice(("sliding", "sliding", "chunk")),
        caps=random.choice((1, 2, 1000)),
        one_replica_at_a_time=random.random() < 0.25,
        throttle_leaders=random.random() < 0.25,
        when_stalled=random.choice(("wait", "cancel", "fail")),
        database=random.random() < 0.03,
    )


def _draw_topics(random: Random, hosts: Sequence[int]) -> list[tuple[str, int, tuple[Assignment, ...]]]:
    topics = []
    for name in "tuv"[: random.randint(1, 3)]:
        factor = random.choice((2, 3, 3))
        partitions = tuple(tuple(random.sample(hosts, factor)) for _ in range(random.randint(1, 6)))
        topics.append((name, random.choice((0, 60, 100, 300)), partitions))
    return topics


def _draw_events(random: Random) -> tuple[Event, ...]:
    events = []
    for _ in range(random.randint(0, 14)):
        step, number = min(random.randrange(STEPS), random.randrange(STEPS)), random.randrange(1 << 16)
        if random.random() < 0.4:
            events.append(Event(step, _draw_kind(random, BETWEEN_STEPS), number))
        else:
            kinds = random.choice((AT_A_CALL, AT_A_CALL, BETWEEN_STEPS | WITHIN_A_STEP))
            events.append(Event(step, _draw_kind(random, kinds), number, random.randrange(CALLS)))
    return tuple(sorted(events, key=lambda event: (event.step, event.call is not None, event.call or 0)))


def _draw_kind(random: Random, kinds: dict[str, int]) -> str:
    return random.choices(list(kinds), list(kinds.values()))[0]
