"""The checker: is a plan valid for its snapshot? From the data alone, without the solver, sharing no module with it.

It is written for a second opinion, not for speed: plain Python, one partition at a time, and only what a reader can
verify against the operation's definition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from kafka_steward.assignment import Assignment, Move, MoveReason, Operation, TopicPartition
from kafka_steward.planning.formats import PlanFolder, SnapshotFolder

__all__ = ["Verdict", "check"]

_REASONS = frozenset(reason.value for reason in MoveReason)


@dataclass(frozen=True)
class Verdict:
    """Whether a plan may be carried out, and in one sentence each what is wrong with it."""

    ok: bool
    problems: list[str]


@dataclass(frozen=True)
class _Part:
    """A partition of the snapshot."""

    replicas: Assignment
    topic_id: str | None
    target_rf: int
    in_sync: int
    moving: bool
    size: int | None


@dataclass(frozen=True)
class _Facts:
    """The snapshot as the checker reads it, with what the plan says about itself."""

    parts: Mapping[TopicPartition, _Part]
    state: Mapping[int, str]
    rack: Mapping[int, str | None]
    proof: Mapping[str, Any]

    @property
    def operation(self) -> str:
        return str(self.proof.get("operation"))

    @property
    def options(self) -> Mapping[str, Any]:
        return dict(self.proof.get("options") or {})

    @property
    def usable(self) -> frozenset[int]:
        """Brokers that may receive a replica."""
        barred = set(self.options.get("exclude_brokers", ()))
        return frozenset(b for b, state in self.state.items() if state in ("live", "new") and b not in barred)

    def alive(self, replicas: Assignment) -> Assignment:
        """Those of the replicas that are not on failed brokers."""
        return tuple(broker for broker in replicas if self.state.get(broker) != "failed")


def check(snapshot: SnapshotFolder, plan: PlanFolder) -> Verdict:
    """Judge a plan: made from this snapshot, every move possible, what the operation promises, and complete."""
    facts = _facts(snapshot, plan)
    problems = [*_head(snapshot, plan), *_order(plan, facts)]
    for move in plan.moves:
        problems += [f"{move.topic_partition}: {problem}" for problem in _move(move, facts)]
    if facts.operation in (Operation.HEAL.value, Operation.FILL.value):
        problems += _complete(plan, facts)
    problems += _sums(plan)
    return Verdict(not problems, problems)


def _facts(snapshot: SnapshotFolder, plan: PlanFolder) -> _Facts:
    parts = {}
    for row in snapshot.partitions.to_pylist():
        parts[TopicPartition(row["topic"], row["partition"])] = _Part(
            replicas=tuple(row["replicas"]),
            topic_id=row["topic_id"],
            target_rf=row["target_rf"],
            in_sync=len(row["isr"]),
            moving=bool(row["adding"] or row["removing"]),
            size=None if row["bytes"] is None or row["bytes"] < 0 else row["bytes"],
        )
    brokers = snapshot.brokers.to_pylist()
    state = {row["broker"]: row["state"] for row in brokers}
    return _Facts(parts, state, {row["broker"]: row["rack"] for row in brokers}, plan.proof)


def _head(snapshot: SnapshotFolder, plan: PlanFolder) -> Iterator[str]:
    if plan.proof.get("cluster_id") != snapshot.cluster_id:
        yield f"The plan is for cluster {plan.proof.get('cluster_id')}, not for {snapshot.cluster_id}."
    if plan.proof.get("snapshot_digest") != snapshot.digest:
        yield "The plan was made from another snapshot."
    twice = [str(name) for name, times in Counter(move.topic_partition for move in plan.moves).items() if times > 1]
    if twice:
        yield f"{twice[0]} is in the plan twice."


def _order(plan: PlanFolder, facts: _Facts) -> Iterator[str]:
    size = int(facts.options.get("chunk_size", 0)) or len(plan.moves) or 1
    if any((move.chunk, move.position) != divmod(number, size) for number, move in enumerate(plan.moves)):
        yield f"Chunks and positions do not count through the plan in chunks of {size}."
    known = [move for move in plan.moves if move.topic_partition in facts.parts]
    for one, other in pairwise(known):
        if facts.parts[one.topic_partition].in_sync > facts.parts[other.topic_partition].in_sync:
            yield f"{other.topic_partition} has fewer in-sync replicas than {one.topic_partition} and comes after it."
            return


def _move(move: Move, facts: _Facts) -> Iterator[str]:
    part = facts.parts.get(move.topic_partition)
    if part is None:
        yield "it is not in the snapshot."
        return
    yield from _same(move, part)
    yield from _possible(move, facts)
    yield from _RULES.get(facts.operation, _no_rule)(move, part, facts)


def _same(move: Move, part: _Part) -> Iterator[str]:
    """The move starts from what the snapshot says."""
    if move.before != part.replicas:
        yield f"its replicas in the snapshot are {list(part.replicas)}, not {list(move.before)}."
    if move.topic_id != part.topic_id:
        yield "its topic is another one of the same name."
    if move.size_bytes != part.size:
        yield f"its size in the snapshot is {part.size}, not {move.size_bytes}."
    if part.moving:
        yield "a reassignment of it is in flight."


def _possible(move: Move, facts: _Facts) -> Iterator[str]:
    """Kafka would take the target and could complete it."""
    if move.reason not in _REASONS:
        yield f"its reason {move.reason!r} is unknown."
    if len(set(move.after)) != len(move.after) or not move.after:
        yield f"its target {list(move.after)} is empty or names a broker twice."
    if move.after == move.before:
        yield "it changes nothing."
    for broker in sorted(move.adding - facts.usable):
        yield f"broker {broker} may not receive a replica: it is {facts.state.get(broker, 'unknown')} or excluded."
    if facts.alive(move.after) != move.after:
        yield "its target keeps a replica on a failed broker, and Kafka would never complete it."


def _no_rule(_move: Move, _part: _Part, _facts: _Facts) -> Iterator[str]:
    yield from ()


def _in_place(move: Move, part: _Part, facts: _Facts) -> Iterator[str]:
    """Heal and fill: what is in place stays, in its order; the rest is spread as well as the racks allow."""
    kept = facts.alive(part.replicas)
    factor = len(part.replicas) if facts.operation == Operation.HEAL.value else max(part.target_rf, len(kept))
    if len(move.after) != factor:
        yield f"its target has {len(move.after)} replicas; {factor} are due."
    if not kept:
        yield "all its replicas are lost: moving it would lose its data."
    for broker in kept:
        if broker not in move.after:
            yield f"its replica on broker {broker} is in place and must not move."
    yield from _lead(move, part, kept)
    if facts.options.get("rack_aware", True):
        yield from _racks(move, kept, facts)


def _lead(move: Move, part: _Part, kept: Assignment) -> Iterator[str]:
    """Leadership needs no data where it can be had without, and the kept replicas stay in their order."""
    if kept and move.after and move.after[0] not in kept:
        yield f"its new preferred leader {move.after[0]} has no data, while {kept[0]} has."
    if kept[:1] == part.replicas[:1] and move.after[:1] != kept[:1]:
        yield f"its preferred leader {kept[0]} is in place and must stay."
    stay = [broker for broker in move.after[1:] if broker in kept]
    if stay != [broker for broker in kept if broker in stay]:
        yield "its kept replicas are in another order."


def _racks(move: Move, kept: Assignment, facts: _Facts) -> Iterator[str]:
    """No single added replica could stand on another usable broker and leave the racks more evenly filled."""
    own = facts.options.get("rackless") == "own-rack"

    def rack_of(broker: int) -> str | None:
        rack = facts.rack.get(broker)
        return f"broker {broker}" if rack is None and own else rack

    filled = Counter(rack_of(broker) for broker in move.after)
    free = facts.usable - set(move.after)
    for broker in sorted(set(move.after) - set(kept)):
        here = rack_of(broker)
        for other in sorted(free):
            there = rack_of(other)
            if here is not None and there is not None and filled[there] + 1 < filled[here]:
                yield f"rack {here} holds {filled[here]} of its replicas while broker {other} on rack {there} is free."
                return


_RULES = {Operation.HEAL.value: _in_place, Operation.FILL.value: _in_place}


def _complete(plan: PlanFolder, facts: _Facts) -> Iterator[str]:
    """Whatever needs a replica is in the plan, or cannot have one and is listed with the reason."""
    planned = {move.topic_partition for move in plan.moves}
    listed = {
        TopicPartition(one["topic"], one["partition"]): one["reason"]
        for one in [*facts.proof.get("unplaced", []), *facts.proof.get("pinned", [])]
    }
    for name, part in facts.parts.items():
        alive = facts.alive(part.replicas)
        factor = len(part.replicas) if facts.operation == Operation.HEAL.value else part.target_rf
        if len(alive) >= factor or name in planned:
            continue
        if name not in listed:
            yield f"{name} needs {factor - len(alive)} replicas and is neither in the plan nor listed."
        elif listed[name] == "all_replicas_lost" and alive:
            yield f"{name} is listed as lost, and {list(alive)} are not."
        elif listed[name] == "too_few_brokers" and len(facts.usable - set(alive)) >= factor - len(alive):
            yield f"{name} is listed as having too few brokers, and there are enough."
        elif listed[name] == "in_flight" and not part.moving:
            yield f"{name} is listed as in flight, and is not."


def _sums(plan: PlanFolder) -> Iterator[str]:
    moved = sum(len(move.adding) for move in plan.moves)
    moved_bytes = sum(len(move.adding) * (move.size_bytes or 0) for move in plan.moves)
    leaders = sum(move.before[:1] != move.after[:1] for move in plan.moves)
    counted = {"replicas_moved": moved, "bytes_moved": moved_bytes, "leader_changes": leaders}
    for name, value in counted.items():
        if plan.proof.get(name) != value:
            yield f"The proof says {name} = {plan.proof.get(name)}; the rows say {value}."
    bound = plan.proof.get("lower_bound")
    if not isinstance(bound, int) or bound > moved:
        yield f"The proof's lower bound {bound} is above the {moved} replicas that the plan moves."
    if plan.proof.get("operation") == Operation.HEAL.value and bound != moved:
        yield f"A heal moves what was lost and nothing else; this one moves {moved} for {bound}."
