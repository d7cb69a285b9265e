"""Check one move of a plan: that Kafka could execute it, and that it is what the operation promises.

`move_violations` is the entry. `RULES` has the function for each promise of an operation. No solver is used.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa

from kafka_steward.assignment import (
    EVEN_OPERATIONS,
    GIVEN_OPERATIONS,
    OPERATIONS,
    REORDERING_OPERATIONS,
    Assignment,
    Move,
    MoveReason,
    MoveRule,
    Operation,
    TopicPartition,
    below_min_isr_reason,
    only_reorders,
)
from kafka_steward.planning.checker.constraints import BrokerConstraints
from kafka_steward.planning.checker.relief import directories_of
from kafka_steward.planning.checker.room import NO_LIMIT, RoomLeft
from kafka_steward.service_topics import INTERNAL_TOPICS

_REASONS = frozenset(reason.value for reason in MoveReason)
#: The reason of partitions that no broker has room for.
NO_ROOM = "no_room"
#: Why a partition must stay unchanged, as a clause, by the word that a proof uses for the reason.
_STAYS = {
    "in_flight": "a reassignment of it is in flight.",
    "pinned": "it is pinned, and must not change.",
    "excluded": "its topic is not one that the plan may touch.",
    "all_replicas_lost": "all its replicas are lost: moving it would lose its data.",
    "no_leader": "it has no leader, so that nothing can be copied from it.",
    "below_min_isr": "it would have fewer replicas than min.insync.replicas, and fewer than it has.",
    "too_few_brokers": "it is to have more replicas than there are brokers for it.",
    "no_candidate": "no replica of it may lead: none on a usable broker is in sync.",
    "out_of_sync": "a live replica of it is out of sync, for which Kafka would wait.",
    NO_ROOM: "no broker has room for what it lacks.",
}
#: The reasons of partitions that nothing can be copied from.
LEADERLESS = frozenset({"all_replicas_lost", "no_leader"})


@dataclass(frozen=True)
class SnapshotPartition:
    """A partition of the snapshot."""

    replicas: Assignment
    topic_id: str | None
    target_rf: int
    moving: bool
    size: int | None
    #: The live brokers on which the replica is lost.
    offline: frozenset[int] = frozenset()
    #: The snapshot says that no replica is live, or that there is no leader.
    all_offline: bool = False
    leaderless: bool = False
    leader: int | None = None
    #: Empty if it is not known.
    isr: frozenset[int] = frozenset()
    min_isr: int | None = None
    #: The order before the demotions, if they have changed it, and nothing else has since.
    order_before: Assignment | None = None
    #: The number of the log directory of each replica; empty if each broker has only one.
    log_dirs: tuple[int, ...] = ()

    @property
    def directories(self) -> dict[int, int]:
        """The number of the log directory of each replica, by broker."""
        return directories_of(self.replicas, self.log_dirs)


@dataclass(frozen=True)
class CheckContext:
    """The snapshot as the checker reads it, with the plan's own description of itself (its proof)."""

    partitions: Mapping[TopicPartition, SnapshotPartition]
    state: Mapping[int, str]
    rack: Mapping[int, str | None]
    proof: Mapping[str, Any]
    cordoned: frozenset[int] = frozenset()
    #: The brokers that are to lead nothing.
    demoted: frozenset[int] = frozenset()
    #: The room on the brokers once the plan has been carried out.
    room: RoomLeft = NO_LIMIT

    @property
    def operation(self) -> str:
        """The operation that the plan was made for."""
        return str(self.proof.get("operation"))

    @cached_property
    def options(self) -> Mapping[str, Any]:
        """The options that the plan was requested with."""
        return dict(self.proof.get("options") or {})

    @cached_property
    def pinned(self) -> frozenset[str]:
        """The partitions that the options keep unchanged, as `topic-number`."""
        return frozenset(self.options.get("pin") or ())

    @cached_property
    def without_room(self) -> frozenset[TopicPartition]:
        """The partitions of which the proof says that no broker has room for what they lack."""
        rows = self.proof.get("unplaced") or ()
        return frozenset(TopicPartition(row["topic"], row["partition"]) for row in rows if row["reason"] == NO_ROOM)

    @cached_property
    def given_targets(self) -> Mapping[TopicPartition, Assignment]:
        """The targets of the reassignment that is to be applied."""
        entries = (self.options.get("reassignment") or {}).get("partitions") or ()
        return {
            TopicPartition(entry.get("topic"), entry.get("partition")): tuple(entry.get("replicas") or ())
            for entry in entries
        }

    @cached_property
    def requested_factors(self) -> Mapping[str, int]:
        """The replication factor that each named topic is to have."""
        return dict.fromkeys(self.options.get("topics") or (), self.options.get("replication_factor") or 0)

    @cached_property
    def in_use(self) -> frozenset[int]:
        """The brokers that keep what they hold, whether they may receive a replica or not."""
        return frozenset(broker for broker, state in self.state.items() if state in ("live", "new"))

    @cached_property
    def leading(self) -> frozenset[int]:
        """The brokers that share the leaders; those that are demoted only if all are."""
        return self.receivers - self.demoted or self.receivers

    @cached_property
    def receivers(self) -> frozenset[int]:
        """The brokers that may receive a replica."""
        # A plan's options name the cordoned brokers, too, but the checker does not rely on that.
        if self.operation in REORDERING_OPERATIONS:
            return self.in_use  # nobody receives anything, and cordoned brokers may lead
        excluded = {*self.options.get("exclude_brokers", ()), *self.cordoned}
        return self.in_use - excluded

    def may_lead(self, part: SnapshotPartition) -> frozenset[int]:
        """Return the brokers that may lead a partition: usable and in sync; its preferred leader may lag."""
        in_sync = part.isr.union(part.replicas[:1]) if part.isr else frozenset(part.replicas)
        return self.in_use.intersection(part.replicas) & in_sync - part.offline

    def leader_candidates(self, part: SnapshotPartition, after: Assignment) -> frozenset[int]:
        """Return the brokers that may lead a partition with the replicas `after`: demoted ones if no others can."""
        able = self.may_lead(part) if self.operation in REORDERING_OPERATIONS else frozenset(after)
        return able - self.demoted or able

    def put_demoted_last(self, replicas: Iterable[int]) -> Assignment:
        """Return the replicas in their order, with those on demoted brokers after all others."""
        return tuple(sorted(replicas, key=self.demoted.__contains__))

    def restored_order(self, part: SnapshotPartition) -> Assignment:
        """Return the order that a promotion gives a partition's replicas."""
        promoted = set(self.options.get("promote") or ())
        before = part.order_before
        if before is None or promoted.isdisjoint(part.replicas) or sorted(before) != sorted(part.replicas):
            return part.replicas
        return self.put_demoted_last(before)

    def must_demote(self, part: SnapshotPartition) -> bool:
        """Return whether a demoted broker is the preferred leader of a partition, or comes before another broker."""
        return part.replicas[0] in self.demoted or self.put_demoted_last(part.replicas) != part.replicas

    @cached_property
    def only_empties(self) -> bool:
        """Whether the plan moves what is on draining brokers, and nothing else."""
        return self.operation == Operation.DRAIN.value and self.options.get("balance") == "none"

    def on_draining(self, replicas: Assignment) -> list[int]:
        """Return the draining brokers among these."""
        return [broker for broker in replicas if self.state.get(broker) == "draining"]

    def alive_replicas(self, replicas: Assignment, part: SnapshotPartition) -> Assignment:
        """Return a partition's replicas that are neither lost nor on brokers that have failed.

        A new replication factor counts live replicas only, and so leaves out replicas on brokers that are down, too.
        """
        factor = self.operation == Operation.SET_REPLICATION_FACTOR.value
        gone = ("failed", "down") if factor else ("failed",)
        return tuple(broker for broker in replicas if self.state.get(broker) not in gone and broker not in part.offline)


def build_context(
    brokers: pa.Table, partitions: pa.Table, proof: Mapping[str, Any], room: RoomLeft = NO_LIMIT
) -> CheckContext:
    """Return the context of a check, given a snapshot's tables, a plan's proof and the room that the plan leaves."""
    parts = {}
    for row in partitions.to_pylist():
        parts[TopicPartition(row["topic"], row["partition"])] = SnapshotPartition(
            replicas=tuple(row["replicas"]),
            topic_id=row["topic_id"],
            target_rf=row["target_rf"],
            moving=bool(row["adding"] or row["removing"]),
            size=None if row["bytes"] is None or row["bytes"] < 0 else row["bytes"],
            offline=frozenset(row["offline"] or ()),
            all_offline=bool(row["all_offline"]),
            leaderless=row["leader"] < 0,
            leader=row["leader"],
            isr=frozenset(row["isr"]),
            min_isr=row["min_isr"],
            log_dirs=tuple(row["log_dirs"] or ()),
            order_before=tuple(row["order_before"] or ()) or None,
        )
    rows = brokers.to_pylist()
    state = {row["broker"]: row["state"] for row in rows}
    racks = {row["broker"]: row["rack"] for row in rows}
    cordoned = frozenset(row["broker"] for row in rows if row["cordoned"])
    return CheckContext(parts, state, racks, proof, cordoned, read_demoted(brokers, proof), room)


def read_demoted(brokers: pa.Table, proof: Mapping[str, Any]) -> frozenset[int]:
    """Return the brokers that are demoted once the plan is carried out."""
    options = proof.get("options") or {}
    demoted = {row["broker"] for row in brokers.to_pylist() if row["demoted"]}.union(options.get("demote") or ())
    return frozenset(demoted.difference(options.get("promote") or ()))


def promises_evenness(proof: Mapping[str, Any]) -> bool:
    """Return True if a plan promises an even number of replicas everywhere."""
    by = (proof.get("options") or {}).get("balance", "replicas")
    return proof.get("operation") in EVEN_OPERATIONS and by == "replicas"


def hold_reasons(name: TopicPartition, context: CheckContext) -> list[str]:
    """List the reasons why no plan may touch a partition, in the words of a proof; empty if a plan may touch it.

    A plan with a given assignment (apply or rollback) may touch it nevertheless, unless a reassignment is in flight, or
    there is no leader to copy from; of that one it may change the order.
    """
    part, options = context.partitions[name], context.options
    # `all_offline` also counts replicas on brokers that are dead and that no heal is to replace.
    lost = part.all_offline or all(
        context.state.get(broker) == "failed" or broker in part.offline for broker in part.replicas
    )
    holds = {
        "in_flight": part.moving,
        "pinned": str(name) in context.pinned,
        "excluded": not _takes_part(name.topic, options),
        "all_replicas_lost": lost,
        "no_leader": part.leaderless and not lost,
        "too_few_brokers": _lacks_brokers(name, context),
        "no_candidate": context.operation in REORDERING_OPERATIONS and _lacks_candidate(part, context),
        "out_of_sync": _lags(part, context),
        "below_min_isr": context.operation == Operation.SET_REPLICATION_FACTOR.value
        and bool(below_min_isr_reason(len(part.replicas), count_replicas_due(name, context), part.min_isr)),
        # An even plan may leave what would find room only after everything else, which depends on the order.
        NO_ROOM: name in context.without_room and (promises_evenness(context.proof) or lacks_room(name, context)),
    }
    return [word for word, true in holds.items() if true]


def _lacks_brokers(name: TopicPartition, context: CheckContext) -> bool:
    """Return whether there are fewer brokers, live or to be drained, than the partition is to have replicas."""
    part = context.partitions[name]
    if context.operation in (Operation.HEAL.value, Operation.FILL.value) or context.only_empties:
        return count_available_brokers(name, context) < count_replicas_due(name, context)
    holding = context.in_use.intersection(part.replicas)
    return promises_evenness(context.proof) and part.target_rf > len(context.receivers | holding)


def _lacks_candidate(part: SnapshotPartition, context: CheckContext) -> bool:
    """Return whether no broker may lead a partition; of a demotion, none in place of a demoted one that leads."""
    able = context.may_lead(part)
    if context.operation == Operation.PROMOTE.value:
        return False
    if context.operation == Operation.DEMOTE.value:
        return part.replicas[0] in context.demoted and able <= context.demoted
    return not able


def _lags(part: SnapshotPartition, context: CheckContext) -> bool:
    """Return whether an even plan leaves the partition alone because a replica on a usable broker is out of sync."""
    behind = frozenset(part.replicas) - part.isr - part.offline
    waits = promises_evenness(context.proof) or context.only_empties
    return waits and bool(part.isr and behind & context.in_use)


def lacks_room(name: TopicPartition, context: CheckContext) -> bool:
    """Return whether, with the plan's other moves, too few brokers have room for the replicas that a partition lacks.

    Racks do not count: a replica goes to a broker that breaks the rack rule before it goes to none.
    """
    part, size = context.partitions[name], context.partitions[name].size
    if target := context.given_targets.get(name):
        return any(not context.room.surely_takes(broker, size) for broker in set(target) - set(part.replicas))
    due = part.target_rf if promises_evenness(context.proof) else count_replicas_due(name, context)
    lacks = due - len(context.in_use.intersection(part.replicas) - part.offline)
    able = context.receivers.difference(part.replicas, part.offline)
    return lacks > sum(context.room.surely_takes(broker, size) for broker in able)


def _takes_part(topic: str, options: Mapping[str, Any]) -> bool:
    """Return whether the options let a plan touch a topic: a full name wins over all but `exclude`."""
    named, include = options.get("named_topics") or (), options.get("include") or ()
    if topic not in named:
        # The repair of racks takes Kafka's own topics along.
        internal = topic in INTERNAL_TOPICS and options.get("balance") != "racks"
        reserved = internal or _matches_any(topic, options.get("service_topics") or ())
        # Only operations that leave such topics out have the option.
        if reserved and options.get("internal_topics") is False:
            return False
        if (named or include) and not _matches_any(topic, include):
            return False
    return not _matches_any(topic, options.get("exclude") or ())


def count_replicas_due(name: TopicPartition, context: CheckContext) -> int:
    """Count the replicas that a partition is to have after an operation that adds or removes replicas."""
    part = context.partitions[name]
    held = len(context.alive_replicas(part.replicas, part))
    if context.operation == Operation.HEAL.value or (context.only_empties and context.on_draining(part.replicas)):
        return len(part.replicas)
    if context.operation == Operation.FILL.value:
        return max(part.target_rf, held)
    return context.requested_factors.get(name.topic, held)


def count_available_brokers(name: TopicPartition, context: CheckContext) -> int:
    """Count the brokers that could hold the replicas that a partition is due, if no replica in place moves.

    Brokers that are down do not count, because Kafka completes a move only once each replica is in sync.
    """
    part = context.partitions[name]
    held = context.alive_replicas(part.replicas, part)
    gone = {"down", "draining"} if context.only_empties else {"down"}
    alive = frozenset(broker for broker in held if context.state.get(broker) not in gone)
    if count_replicas_due(name, context) > len(alive):
        return len((context.receivers - part.offline) | alive)
    return len((context.in_use - part.offline) & alive)


def _matches_any(topic: str, patterns: Iterable[str]) -> bool:
    return any(re.fullmatch(pattern, topic) for pattern in patterns)


def move_violations(move: Move, context: CheckContext) -> Iterator[str]:
    """Yield one clause for each fault of a move."""
    part = context.partitions.get(move.topic_partition)
    if part is None:
        yield "it is not in the snapshot."
        return
    yield from _check_start(move, part)
    given = context.operation in GIVEN_OPERATIONS
    reordered = given and only_reorders(move.before, move.after)
    for word in hold_reasons(move.topic_partition, context):
        if not given or word == "in_flight" or (word in LEADERLESS and not reordered):
            yield _STAYS[word]
    yield from _check_executable(move, part, context)
    if not given and context.operation != Operation.PROMOTE.value:
        yield from _check_demoted_last(move, part, context)
    spec = OPERATIONS.get(context.operation)
    if spec is not None and spec.rule is not None:
        yield from RULES[spec.rule](move, part, context)


def _check_start(move: Move, part: SnapshotPartition) -> Iterator[str]:
    if move.before != part.replicas:
        yield f"its replicas in the snapshot are {list(part.replicas)}, not {list(move.before)}."
    if move.topic_id != part.topic_id:
        yield "its topic is another one of the same name."
    if move.size_bytes != part.size:
        yield f"its size in the snapshot is {part.size}, not {move.size_bytes}."


def _check_executable(move: Move, part: SnapshotPartition, context: CheckContext) -> Iterator[str]:
    """Check that Kafka would accept the target and could complete the move."""
    if move.purpose not in _REASONS:
        yield f"its reason {move.purpose!r} is unknown."
    if len(set(move.after)) != len(move.after) or not move.after:
        yield f"its target {list(move.after)} is empty or names a broker twice."
    if move.after == move.before:
        yield "it changes nothing."
    for broker in sorted(move.adding - context.receivers):
        state = "cordoned" if broker in context.cordoned else context.state.get(broker, "unknown")
        yield f"broker {broker} may not receive a replica: it is {state} or excluded."
    if context.operation in GIVEN_OPERATIONS | REORDERING_OPERATIONS and only_reorders(move.before, move.after):
        return  # Kafka completes it at once, whoever is live.
    if any(context.state.get(broker) in ("failed", "down") for broker in move.after):
        yield "its target keeps a replica on a dead broker, and Kafka would never complete it."
    if part.offline & frozenset(move.after):
        yield "its target keeps a replica in a failed log directory, and Kafka would never complete it."


def _check_demoted_last(move: Move, part: SnapshotPartition, context: CheckContext) -> Iterator[str]:
    """Check that demoted brokers come last, and that one leads only if no other replica could."""
    if context.put_demoted_last(move.after[1:]) != move.after[1:]:
        yield "a demoted broker comes before another broker."
    if promises_evenness(context.proof):
        able = frozenset(move.after)  # each replica is in sync before the move is complete
    else:
        able = context.may_lead(part).intersection(move.after) & (part.isr or frozenset(part.replicas))
    if move.after and move.after[0] in context.demoted and able - context.demoted:
        yield f"broker {move.after[0]} is demoted and would lead it, which broker {min(able - context.demoted)} could."


def _check_kept_replicas(move: Move, part: SnapshotPartition, context: CheckContext) -> Iterator[str]:
    """Check heal and fill: replicas in place stay, in their order; new replicas are spread as the racks allow."""
    held, factor = context.alive_replicas(part.replicas, part), count_replicas_due(move.topic_partition, context)
    gone = {"down", "draining"} if context.only_empties else {"down"}
    kept = context.put_demoted_last(broker for broker in held if context.state.get(broker) not in gone)
    if len(move.after) != factor:
        yield f"its target has {len(move.after)} replicas; {factor} are due."
    for broker in kept:
        if broker not in move.after:
            yield f"its replica on broker {broker} is in place and must not move."
    yield from _check_leader(move, part, kept)
    stay = [broker for broker in move.after[1:] if broker in kept]
    if stay != [broker for broker in kept if broker in stay]:
        yield "its kept replicas are in another order."
    yield from _check_rack_spread(move, kept, context)


def _check_leader(move: Move, part: SnapshotPartition, kept: Assignment) -> Iterator[str]:
    # A preferred leader that is in place stays. Otherwise a replica with data leads, if there is one.
    if not kept or not move.after:
        return
    if move.after[0] not in kept:
        yield f"its new preferred leader {move.after[0]} has no data, while {kept[0]} has."
    if kept[0] == part.replicas[0] != move.after[0]:
        yield f"its preferred leader {kept[0]} is in place and must stay."


def _check_rack_spread(move: Move, kept: Assignment, context: CheckContext) -> Iterator[str]:
    """Check that no added replica would fill the racks more evenly on another usable broker.

    A broker without a rack shares a rack with no replica, and so is always as good as an empty rack. Brokers that may
    have no room for the replica do not count.
    """
    if not context.options.get("rack_aware", True):
        return
    filled = Counter(rack for broker in move.after if (rack := context.rack.get(broker)) is not None)
    others = context.receivers - set(move.after) - context.partitions[move.topic_partition].offline
    free = {broker for broker in others if context.room.surely_takes(broker, move.size_bytes)}
    for broker in sorted(set(move.after) - set(kept)):
        here = context.rack.get(broker)
        for free_broker in sorted(free):
            there = context.rack.get(free_broker)
            if here is not None and (0 if there is None else filled[there]) + 1 < filled[here]:
                place = "without a rack" if there is None else f"on rack {there}"
                yield f"rack {here} holds {filled[here]} of its replicas while broker {free_broker} {place} is free."
                return


def _check_requested_factor(move: Move, part: SnapshotPartition, context: CheckContext) -> Iterator[str]:
    """Check set-replication-factor: only named topics, exactly as many replicas, and no other moves."""
    kept = context.put_demoted_last(context.alive_replicas(part.replicas, part))
    factor = context.requested_factors.get(move.topic)
    if factor is None:
        yield "its topic was not named."
    elif len(move.after) != factor:
        yield f"its target has {len(move.after)} replicas; {factor} are due."
    if len(move.adding) != max(0, len(move.after) - len(kept)):
        yield f"it adds {len(move.adding)} replicas, which is not the number that it lacks."
    yield from _check_dropped_replicas(move, part, kept, context)
    # Replicas on draining brokers are removed first, then replicas out of sync. Even the preferred leader is removed if
    # the only replica left is the leader.
    late = frozenset(kept) - part.isr if part.isr and len(move.after) < len(kept) else frozenset()
    places = context.in_use.union(move.after) - (late if late.isdisjoint(move.after) else frozenset())
    if move.after != (part.leader,) or part.leader not in part.isr:
        yield from _check_leader(move, part, tuple(broker for broker in kept if broker in places))
    yield from _check_rack_spread(move, kept, context)


def _check_dropped_replicas(
    move: Move, part: SnapshotPartition, kept: Assignment, context: CheckContext
) -> Iterator[str]:
    """Check that the replicas kept are those in sync, and the leader among them, even on brokers that receive none.

    A replica out of sync may stay only if every replica in sync on a broker in use stays.
    """
    dropped = [broker for broker in kept if broker not in move.after and broker in part.isr & context.in_use]
    late = [broker for broker in kept if broker in move.after and broker not in part.isr]
    if dropped and late:
        yield f"it drops broker {dropped[0]}, which is in sync, and keeps broker {late[0]}, which is not."
    # `_check_leader` reports a dropped leader that is also the preferred leader.
    if part.leader in dropped and part.leader != part.replicas[0]:
        yield f"it drops its leader {part.leader}, which is in sync."
    stay = list(context.put_demoted_last(broker for broker in part.replicas if broker in move.after))
    if len(move.after) == len(stay) < len(part.replicas) and _reorders_kept(move, part, stay, context):
        yield f"it keeps {stay} in another order, {list(move.after)}."


def _reorders_kept(move: Move, part: SnapshotPartition, stay: Sequence[int], context: CheckContext) -> bool:
    """Return whether the replicas that stay have another order than before.

    If the preferred leader goes, the leader may take its place, and any other replica if no leader in sync stays.
    """
    if stay[:1] == list(part.replicas[:1]):
        return list(move.after) != stay
    leads = part.leader in stay and part.leader in part.isr & context.in_use - context.demoted
    first = part.leader if leads else move.after[0]
    return list(move.after) != [first, *(broker for broker in stay if broker != first)]


def _check_target_factor(move: Move, part: SnapshotPartition, context: CheckContext) -> Iterator[str]:
    """Check rebalance, expand and drain: as many replicas as are due.

    For balanced disks, or a balanced load, a number between the current one and the due one is accepted.
    """
    if context.only_empties:
        yield from _check_kept_replicas(move, part, context)
        return
    by = str(context.options.get("balance"))
    heal = {part.target_rf, len(part.replicas)}
    due = {"bytes": heal, "load": heal, "racks": {len(part.replicas)}}.get(by, {part.target_rf})
    if not min(due) <= len(move.after) <= max(due):
        yield f"its target has {len(move.after)} replicas; {part.target_rf} are due."


def _check_same_replicas(move: Move, part: SnapshotPartition, context: CheckContext) -> Iterator[str]:
    """Check leaders: the same replicas, of which another one that may lead comes first, before all others."""
    leader = move.after[:1]
    others = context.put_demoted_last(broker for broker in part.replicas if broker not in leader)
    if move.after != (*leader, *others):
        yield "it does more than let another of its replicas lead."
    if not context.may_lead(part).issuperset(leader):
        yield f"broker {leader[0]} may not lead it: it is not usable or not in sync."


def _check_relief(move: Move, part: SnapshotPartition, context: CheckContext) -> Iterator[str]:
    """Check relieve: what leaves a full volume is replaced in its place in the order."""
    full = context.room.volumes.excess if context.room.volumes else {}
    for broker in sorted(move.removing):
        if (broker, part.directories.get(broker, -1)) not in full:
            yield f"its replica on broker {broker} is on no volume above max_used, and must not move."
    stays = [broker in move.removing for broker in move.before]
    if len(move.after) != len(move.before) or (
        context.demoted.isdisjoint(move.after)
        and any(
            before != after for before, after, leaves in zip(move.before, move.after, stays, strict=False) if not leaves
        )
    ):
        yield "it does more than to replace replicas on full volumes, each in its place."


def _check_demotion(move: Move, part: SnapshotPartition, context: CheckContext) -> Iterator[str]:
    """Check demote: only partitions with a demoted broker before others, whose other leaders stay."""
    yield from _check_same_replicas(move, part, context)
    if not context.must_demote(part):
        yield "no demoted broker leads it, or comes before another broker."
    if part.replicas[0] not in context.demoted and move.after[:1] != part.replicas[:1]:
        yield f"its preferred leader {part.replicas[0]} is not demoted, and must stay."


def _check_order_before(move: Move, part: SnapshotPartition, context: CheckContext) -> Iterator[str]:
    """Check promote: the order before the demotions, with the brokers last that are still demoted."""
    if move.after != context.restored_order(part):
        yield f"its order before the demotion was another one, {list(context.restored_order(part))}."


def _check_given_target(move: Move, _part: SnapshotPartition, context: CheckContext) -> Iterator[str]:
    if context.given_targets.get(move.topic_partition) != move.after:
        yield "its target is not the requested one."


#: The function that checks each promise. `move_violations` also checks that the move is possible.
RULES = {
    MoveRule.KEEP_REPLICAS: _check_kept_replicas,
    MoveRule.REQUESTED_FACTOR: _check_requested_factor,
    MoveRule.TARGET_FACTOR: _check_target_factor,
    MoveRule.SAME_REPLICAS: _check_same_replicas,
    MoveRule.DEMOTED_LAST: _check_demotion,
    MoveRule.ORDER_BEFORE: _check_order_before,
    MoveRule.GIVEN_TARGET: _check_given_target,
    MoveRule.FULL_VOLUMES: _check_relief,
}


def relief_problems(moves: Sequence[Move], brokers: pa.Table, context: CheckContext) -> Iterator[str]:
    """Yield a problem for each partition that a relief spreads worse, or leaves on a full volume that it could leave.

    A plan within a budget may leave any.
    """
    volumes = context.room.volumes
    if volumes is None:
        return
    constraints = BrokerConstraints.of(brokers, context.options)
    planned = {move.topic_partition: move for move in moves}
    whole = not context.options.get("max_moves") and not context.options.get("max_bytes")
    for name, part in context.partitions.items():
        crowded = partial(count_crowded_replicas, part=part, constraints=constraints)
        move = planned.get(name)
        if move is not None and crowded(move.after) > crowded(part.replicas):
            yield f"{name}: its racks break the rule after the plan, and did not before."
        full = [broker for broker in part.replicas if volumes.stays_full((broker, part.directories.get(broker, -1)))]
        in_sync = not part.isr or part.isr.issuperset(part.replicas)
        settled = in_sync and not part.offline and context.in_use.issuperset(part.replicas)
        if move or not (full and whole and settled and part.size) or hold_reasons(name, context):
            continue
        for broker in context.receivers - {*part.replicas}:
            spread = tuple(broker if at == full[0] else at for at in part.replicas)
            if volumes.takes(broker, part.size) and crowded(spread) <= crowded(part.replicas):
                yield f"{name}: broker {full[0]} stays above max_used, and broker {broker} has a place for its replica."
                break


def drain_problems(moves: Sequence[Move], context: CheckContext) -> Iterator[str]:
    """Yield a problem for each partition that moves off no drained broker, or stays on one without a reason."""
    if not context.only_empties:
        return
    planned = {move.topic_partition: move for move in moves}
    whole = not context.options.get("max_moves") and not context.options.get("max_bytes")
    for name, part in context.partitions.items():
        move, there = planned.get(name), context.on_draining(part.replicas)
        if move is None:
            if there and whole and not hold_reasons(name, context):
                yield f"{name}: it stays on broker {there[0]}, which is to be emptied."
        elif not there:
            yield f"{name}: it is on no broker that is to be emptied, and moves."
        elif left := context.on_draining(move.after):
            yield f"{name}: its target keeps a replica on broker {left[0]}, which is to be emptied."


def rack_repair_problems(moves: Sequence[Move], brokers: pa.Table, context: CheckContext) -> Iterator[str]:
    """Yield a problem for each partition that moves without need, too much, or to racks that still break the rule.

    A partition that is not repaired is a problem only without a budget, and if the plan may touch it.
    """
    if context.options.get("balance") != "racks":
        return
    constraints = BrokerConstraints.of(brokers, context.options)
    planned = {move.topic_partition: move for move in moves}
    whole = not context.options.get("max_moves") and not context.options.get("max_bytes")
    for name, part in context.partitions.items():
        move, due = planned.get(name), count_crowded_replicas(part.replicas, part, constraints)
        if move is None:
            if due and whole and name not in context.without_room and not hold_reasons(name, context):
                yield f"{name}: its replicas are not spread over the racks as they could be, and it does not move."
        elif not due:
            yield f"{name}: it breaks no rack rule, and moves."
        elif len(move.adding) != due:
            yield f"{name}: it adds {len(move.adding)} replicas; {due} repair its racks."
        elif count_crowded_replicas(move.after, part, constraints):
            yield f"{name}: its replicas are not spread over the racks as they could be after the plan."


def count_crowded_replicas(replicas: Assignment, part: SnapshotPartition, constraints: BrokerConstraints) -> int:
    """Count the replicas that have to move; 0 if one is out of sync, or on a broker or a disk that is not live."""
    holds = np.isin(constraints.ids, replicas)
    # Such a partition is left to a heal, or until its replicas are in sync.
    if part.offline or holds.sum() < len(replicas) or (part.isr and not part.isr.issuperset(part.replicas)):
        return 0
    # The best spread may use the brokers that hold the partition, even if they receive nothing.
    reach = ~constraints.receive_excluded | np.isin(constraints.ids, part.replicas)
    low, high = constraints.reachable_rack_bounds(len(replicas), reach, spread=True)
    held = [int(holds[group].sum()) for group in constraints.rack_members]
    beyond = sum(max(count - most, 0) for count, most in zip(held, high, strict=True))
    return max(beyond, sum(max(least - count, 0) for count, least in zip(held, low, strict=True)))
