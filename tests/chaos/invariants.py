"""What must hold while a round runs, and at its end. What others did to the cluster is kept here, to be told apart."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterator
from functools import cached_property
from itertools import chain
from typing import Any

from kafka_steward.assignment import Assignment, TopicPartition
from kafka_steward.execution.moves.in_flight import list_in_flight_plans
from kafka_steward.execution.moves.skips import read_skips
from kafka_steward.execution.throttles.rates import ThrottleSide
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Code, Outcome
from kafka_steward.journal.locks import STEP_LOCK
from kafka_steward.journal.mailbox import Node, read_below, read_one
from kafka_steward.journal.records import (
    CORDONS,
    THROTTLE_LEASES,
    Cause,
    LeaseKey,
    MoveRow,
    MoveState,
    PlanRecord,
    PlanStatus,
)
from kafka_steward.journal.store import Journal
from tests.chaos.world import World
from tests.crash import Faults
from tests.simulator import CORDONED

__all__ = ["Expectations", "find_broken", "sentence_fault"]

LISTS = tuple(side.replicas_key for side in ThrottleSide)
RATES = tuple(side.rate_key for side in ThrottleSide)
#: What no sentence for people has.
_NOT_FOR_PEOPLE = re.compile(r"\bNone\b|Traceback|\bobject at 0x|/steward/|\bdict_|frozenset|TopicPartition\(|\n")
#: Why a partition may end where nobody wanted it: each is named, with its reason.
_NAMED = {Cause.ORDER_REFUSED, Cause.CANCELLED_ELSEWHERE, Cause.REASSIGNED_ELSEWHERE}


def sentence_fault(sentence: str) -> str:
    """Return what is wrong with a sentence for people; empty if nothing is."""
    found = _NOT_FOR_PEOPLE.search(sentence)
    return "it is empty" if not sentence.strip() else f"it has {found[0]!r}" if found else ""


class Expectations:
    """What others have done to the cluster, and the replicas with which partitions began."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.begun: dict[TopicPartition, Assignment] = {}
        self.willed: dict[TopicPartition, list[Assignment]] = defaultdict(list)
        self.cancelled: set[TopicPartition] = set()
        #: Reassignments of others that end neither by themselves nor by us, and their targets.
        self.stays_in_flight: dict[TopicPartition, Assignment] = {}
        #: Rates that others set within a step: between our look and our change, Kafka lets nobody compare.
        self.raced: set[tuple[int, str]] = set()
        self.lists: dict[tuple[str, str], set[str]] = {}
        self.rates: dict[tuple[int, str], str] = {}
        self.defaults: dict[str, str] = {}

    @cached_property
    def journal(self) -> Journal:
        """The journal as it is read here: nothing happens to these calls."""
        return self.world.context(Faults()).journal

    def begin(self) -> None:
        """Note the cluster as it is."""
        simulator = self.world.simulator
        self.begun = {name: each.original for name, each in simulator.topics.items()}
        for topic, of in simulator.topic_settings.items():
            self.lists |= {(topic, key): _entries(of[key]) for key in LISTS if key in of}
        for broker, of in simulator.broker_settings.items():
            self.rates |= {(broker, key): of[key] for key in RATES if key in of}
        self.defaults = dict(simulator.broker_defaults)

    def foreign_move(self, name: TopicPartition, target: Assignment) -> None:
        """Let somebody else reassign a partition."""
        if self.world.simulator.alter({name: target})[name] is None:
            self.willed[name].append(target)
            if self.stays_in_flight.pop(name, None) is not None:
                self.cancelled.add(name)

    def foreign_cancel(self, name: TopicPartition) -> None:
        """Let somebody else cancel the reassignment of a partition; Kafka refuses it without a replica in sync."""
        if self.world.simulator.cancel([name])[name] is None:
            self.cancelled.add(name)
            self.stays_in_flight.pop(name, None)
        elif name in self.willed:
            self.stays_in_flight[name] = self.world.simulator.topics[name].target

    def end_foreign_reassignments(self) -> None:
        """Let the others cancel what they have in flight, and what they have wedged."""
        for name, each in sorted(self.world.simulator.topics.items()):
            if each.wedged or (each.reassigning and each.target in self.willed[name]):
                self.foreign_cancel(name)

    def abandoned(self) -> set[str]:
        """Return the plans that were abandoned, by a person or for a new heal: what they had in flight goes on."""
        records = self.journal.plans.latest(1000)
        return {record.digest for record in records if record.status is PlanStatus.ABANDONED}

    def foreign_rate(self, broker: int, key: str, rate: str) -> None:
        """Let somebody else set a rate."""
        self.raced |= {(broker, key)} if self.world.is_inside else set()
        self.world.simulator.broker_settings[broker][key] = self.rates[broker, key] = rate

    def foreign_default_rate(self, key: str, rate: str | None) -> None:
        """Let somebody else set the rate of all brokers, or remove it."""
        self.world.simulator.broker_defaults = {} if rate is None else {key: rate}
        self.defaults = dict(self.world.simulator.broker_defaults)

    def foreign_entry(self, topic: str, key: str, entry: str) -> None:
        """Let somebody else add an entry to a list, but none that is ours: nobody could tell it apart from it."""
        settings = self.world.simulator.topic_settings[topic]
        entries = [each for each in settings.get(key, "").split(",") if each]
        lease = self.journal.rows(THROTTLE_LEASES).get(LeaseKey(topic, key))
        ours = set(chain.from_iterable(lease.value.entries.values())) if lease is not None else set()
        if entry not in ours.union(entries):
            settings[key] = ",".join([*entries, entry])
            self.lists.setdefault((topic, key), set()).add(entry)

    def clear_throttles(self) -> None:
        """Let somebody else remove every throttle, ours too."""
        simulator = self.world.simulator
        for of in (*simulator.topic_settings.values(), *simulator.broker_settings.values()):
            for key in (*LISTS, *RATES):
                of.pop(key, None)
        self.lists, self.rates = {}, {}

    def delete_topic(self, topic: str) -> None:
        """Let somebody else delete a topic."""
        self.world.simulator.delete(topic)
        self.lists = {key: entries for key, entries in self.lists.items() if key[0] != topic}
        for known in (self.begun, self.willed, self.stays_in_flight):
            for name in [name for name in known if name.topic == topic]:
                del known[name]
        self.cancelled = {name for name in self.cancelled if name.topic != topic}

    def created(self, topic: str) -> None:
        """Note a topic that was created anew."""
        topics = self.world.simulator.topics.items()
        self.begun |= {name: each.replicas for name, each in topics if name.topic == topic}

    def look(self) -> None:
        """While a round runs: partitions at rest are where somebody wanted them."""
        for name, each in self.world.simulator.topics.items():
            if name not in self.begun:
                self.world.broken.append(f"{name} has come from nowhere")
                continue
            wanted = [self.begun[name], *self.willed[name], *self.world.submitted.get((name, each.topic_id), ())]
            if not each.reassigning and set(each.replicas) not in map(set, wanted):
                self.world.broken.append(f"{name} is at {each.replicas}, and nobody wanted that: {wanted}")


def _entries(value: str) -> set[str]:
    return {entry for entry in value.split(",") if entry}


def find_broken(expected: Expectations, plans: Collection[str]) -> None:
    """At the end of a round: add a sentence to the world's for each invariant that does not hold."""
    found = [
        *_throttles(expected),
        *_cordons(expected),
        *_orphans(expected, plans),
        *_audit(expected),
        *_partitions(expected),
    ]
    expected.world.broken += found


def _throttles(expected: Expectations) -> Iterator[str]:
    simulator = expected.world.simulator
    lists = {
        (topic, key): _entries(of[key])
        for topic, of in simulator.topic_settings.items()
        for key in LISTS
        if of.get(key)
    }
    rates = {(broker, key): of[key] for broker, of in simulator.broker_settings.items() for key in RATES if key in of}
    foreign = {key: entries for key, entries in expected.lists.items() if entries}
    kept = {key: rate for key, rate in expected.rates.items() if key in rates or key not in expected.raced}
    for what, there, wanted in (
        ("lists", lists, foreign),
        ("rates", rates, kept),
        ("default rates", simulator.broker_defaults, expected.defaults),
    ):
        if there != wanted:
            yield f"throttles: the {what} are {there}, and others left {wanted}"


def _cordons(expected: Expectations) -> Iterator[str]:
    """The cordon of a drain stays, unless the drain is taken back."""
    plans = {row.key: row.value.plan for row in expected.journal.rows(CORDONS).all()}
    for broker, of in sorted(expected.world.simulator.broker_settings.items()):
        record = expected.journal.plans.get(plans.get(broker, ""))
        if of.get(CORDONED) and (record is None or record.cancel is not None):
            yield f"the cordon of broker {broker} is left, whose drain is {record}"


def _orphans(expected: Expectations, plans: Collection[str]) -> Iterator[str]:
    journal = expected.journal
    claims = (journal.slot.holders(), journal.slot.preempted_plans())
    locks = [row for row in journal.rows(STEP_LOCK).all() if row.value.owner is not None]
    left: dict[str, Any] = {
        "leases are left": [str(row.key) for row in journal.rows(THROTTLE_LEASES).all()],
        "the plan slot is held": claims if any(claims) else (),
        "the step lock is held": [row for row in locks if row.at_ms + row.value.ttl_ms > journal.now_ms()],
        "in-flight documents are left": list_in_flight_plans(journal.mailbox),
        # Those of a rollback whose process died before its record was written go when they are old.
        "chunk documents are left": [
            node.path for node in read_below(journal.mailbox, paths.REASSIGN_CHUNKS) if _is_known(journal, node)
        ],
        "the cancel signal is left": read_one(journal.mailbox, paths.CANCEL_IN_PROGRESS),
    }
    yield from (f"{what}: {found}" for what, found in left.items() if found)
    moving, foreign = _in_flight(expected), expected.stays_in_flight
    if moving != foreign:
        yield f"in flight are {moving}, and others have left {foreign} in flight"
    records = {digest: journal.plans.get(digest) for digest in plans}
    for digest, record in records.items():
        if record is None or not record.status.finished:
            yield f"plan {digest[:6]} has not ended: {record}"


def _in_flight(expected: Expectations) -> dict[TopicPartition, Assignment]:
    """Return what is in flight; what an abandoned plan had in flight goes on."""
    plans = expected.journal.plans
    left = {row.topic_partition for digest in expected.abandoned() for row in plans.rows(digest)}
    return {
        name: each.target
        for name, each in sorted(expected.world.simulator.topics.items())
        if each.reassigning and (name not in left or name in expected.stays_in_flight)
    }


def _is_known(journal: Journal, chunk: Node) -> bool:
    return journal.plans.get(json.loads(chunk.data)["plan"]) is not None


def _audit(expected: Expectations) -> Iterator[str]:
    if expected.world.interrupted:
        return  # the outcome of what a call did may be unknown then
    for row in expected.world.audit_rows():
        if row.outcome is Outcome.INTENDED:
            yield f"the audit trail does not say what became of {row.entry}"


def _partitions(expected: Expectations) -> Iterator[str]:
    journal, simulator = expected.journal, expected.world.simulator
    records = sorted(journal.plans.latest(1000), key=lambda record: record.published_ms)
    rows: dict[TopicPartition, list[tuple[PlanRecord, MoveRow]]] = defaultdict(list)
    for record in records:
        for row in journal.plans.rows(record.digest):
            rows[row.topic_partition].append((record, row))
    for name, each in sorted(simulator.topics.items()):
        if name in expected.stays_in_flight:
            continue
        of_topic = [(record, row) for record, row in rows[name] if row.move.topic_id in {None, each.topic_id}]
        if any("the new one" in row.detail for _, row in rows[name]):
            continue  # its topic was created anew while a move was submitted, and it is named
        yield from _judge(expected, name, each, of_topic)


def _judge(
    expected: Expectations, name: TopicPartition, partition: Any, rows: list[tuple[PlanRecord, MoveRow]]
) -> Iterator[str]:
    """Judge where a partition ended, by the rows of it, in the order in which their plans were published."""
    wanted = {expected.begun[name], *expected.willed[name]}
    wanted |= {row.move.after for _, row in rows if row.state is MoveState.COMPLETED}
    # A cancel of somebody else loses the order.
    sets = {frozenset(replicas) for replicas in wanted} if name in expected.cancelled else set()
    is_wanted = partition.replicas in wanted or frozenset(partition.replicas) in sets
    states = [(record.digest[:6], record.status.value, row.state.value, row.cause, row.detail) for record, row in rows]
    named = _is_named(expected.journal, name, rows) or any(record.status is PlanStatus.ABANDONED for record, _ in rows)
    # Between its stages, a move may not be able to go either way.
    named = named or any(f"it keeps {list(partition.replicas)}" in row.detail for _, row in rows)
    if not (is_wanted or named):
        yield f"{name} ended at {partition.replicas}, which is none of {sorted(wanted)}: {states}"
    if expected.willed[name] or name in expected.cancelled or named:
        return
    begun = [(record, row) for record, row in rows if row.attempt]
    if not begun:
        return
    record, row = begun[-1]
    stays = row.state is MoveState.COMPLETED and record.status is not PlanStatus.ROLLED_BACK
    right = {row.move.after if stays else row.move.before}
    right |= {row.move.after} if row.state is MoveState.SATISFIED else set()
    if partition.replicas not in right:
        yield f"{name} ended at {partition.replicas}, and {sorted(right)} is what the journal says: {states}"


def _is_named(journal: Journal, name: TopicPartition, rows: list[tuple[PlanRecord, MoveRow]]) -> bool:
    """Return whether the partition is named with the reason why it is not where somebody wants it."""
    if any(row.cause in _NAMED and row.detail for _, row in rows):
        return True
    codes = (Code.LEFT_ALONE, Code.FORBIDDEN)
    digests = {record.digest for record, _ in rows} | {record.rolled_back_by or "" for record, _ in rows}
    skipped = [skip for digest in sorted(digests) for code in codes for skip in read_skips(journal, digest, code)]
    return any((skip.topic, skip.partition) == tuple(name) and skip.why for skip in skipped)
