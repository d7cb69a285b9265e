"""The checker: is a plan valid for its snapshot? From the data alone, without the solver, sharing no module with it.

It is written for a second opinion, not for speed: plain Python, one partition at a time, and only what a reader can
verify against the operation's definition.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from kafka_steward.assignment import Operation, TopicPartition
from kafka_steward.planning.certificate import misplaced, unproven
from kafka_steward.planning.formats import PlanFolder, SnapshotFolder, plan_table
from kafka_steward.planning.judge import position_of
from kafka_steward.planning.rules import Facts, facts_of, faults

__all__ = ["Verdict", "check"]

EVEN = ("rebalance", "expand", "drain")
_INTERNAL = ("__consumer_offsets", "__share_group_state", "__transaction_state")


@dataclass(frozen=True)
class Verdict:
    """Whether a plan may be carried out, what is wrong with it, and what of its minimality is not proven.

    Each in one sentence. A plan that is `ok` is valid; one without `unproven` moves as little as any valid plan could.
    """

    ok: bool
    problems: list[str]
    unproven: tuple[str, ...] = ()


def check(snapshot: SnapshotFolder, plan: PlanFolder) -> Verdict:
    """Judge a plan: made from this snapshot, every move possible, what the operation promises, and complete."""
    facts = facts_of(snapshot, plan.proof)
    problems = [*_head(snapshot, plan), *_order(plan, facts)]
    for move in plan.moves:
        problems += [f"{move.topic_partition}: {problem}" for problem in faults(move, facts)]
    if facts.operation in (Operation.HEAL.value, Operation.FILL.value):
        problems += _complete(plan, facts)
    problems += _sums(plan)
    if facts.operation not in EVEN:
        return Verdict(not problems, problems)
    found, open_questions = _even(snapshot, plan)
    return Verdict(not problems + found, problems + found, tuple(open_questions))


def _even(snapshot: SnapshotFolder, plan: PlanFolder) -> tuple[list[str], list[str]]:
    """What is uneven, and what of the plan's minimality its prices do not prove."""
    options = plan.proof.get("options") or {}
    if options.get("exclude_brokers"):
        return [], ["With excluded brokers the fair shares are not defined, and nothing was proven."]
    if options.get("balance") == "bytes":
        return [], ["Even disks are found by a heuristic; its bound in bytes is in the proof's notes."]
    if options.get("max_moves") or options.get("max_bytes"):
        return list(_over_budget(plan, options)), [
            "A plan within a budget leaves the cluster uneven: nothing was proven."
        ]
    position = position_of(snapshot.brokers, _touchable(snapshot, options), plan_table(plan.moves), options)
    prices = plan.proof.get("prices") or {}
    usable = sorted(row["broker"] for row in snapshot.brokers.to_pylist() if row["state"] in ("live", "new"))
    if not position.topics:
        return [], []
    if sorted(prices) != sorted(map(str, usable)) or not all(isinstance(one, int) for one in prices.values()):
        return misplaced(position), ["The proof has no price for every broker, and nothing was proven."]
    return misplaced(position), unproven(position, np.array([prices[str(broker)] for broker in usable], np.int64))


def _over_budget(plan: PlanFolder, options: Mapping[str, Any]) -> Iterator[str]:
    moved = sum(len(move.adding) for move in plan.moves)
    moved_bytes = sum(len(move.adding) * (move.size_bytes or 0) for move in plan.moves)
    for name, value in (("max_moves", moved), ("max_bytes", moved_bytes)):
        if options.get(name) and value > options[name]:
            yield f"The plan moves {value}, beyond {name} = {options[name]}."


def _touchable(snapshot: SnapshotFolder, options: Mapping[str, Any]) -> pa.Table:
    """The partitions that the plan may touch: selected, not pinned, not in flight, not lost."""
    failed = {row["broker"] for row in snapshot.brokers.to_pylist() if row["state"] == "failed"}
    pinned, include = set(options.get("pin", ())), options.get("include", ())
    touched = []
    for row in snapshot.partitions.to_pylist():
        chosen = not include or any(re.fullmatch(pattern, row["topic"]) for pattern in include)
        barred = any(re.fullmatch(pattern, row["topic"]) for pattern in options.get("exclude", ()))
        name = TopicPartition(row["topic"], row["partition"])
        still = row["adding"] or row["removing"] or str(name) in pinned
        barred |= row["topic"] in _INTERNAL and options.get("internal_topics") is False
        touched.append(bool(chosen and not barred and not still and set(row["replicas"]) - failed))
    return snapshot.partitions.filter(pa.array(touched, pa.bool_()))


def _head(snapshot: SnapshotFolder, plan: PlanFolder) -> Iterator[str]:
    if plan.proof.get("cluster_id") != snapshot.cluster_id:
        yield f"The plan is for cluster {plan.proof.get('cluster_id')}, not for {snapshot.cluster_id}."
    if plan.proof.get("snapshot_digest") != snapshot.digest:
        yield "The plan was made from another snapshot."
    twice = [str(name) for name, times in Counter(move.topic_partition for move in plan.moves).items() if times > 1]
    if twice:
        yield f"{twice[0]} is in the plan twice."


def _order(plan: PlanFolder, facts: Facts) -> Iterator[str]:
    size = int(facts.options.get("chunk_size", 0)) or len(plan.moves) or 1
    if any((move.chunk, move.position) != divmod(number, size) for number, move in enumerate(plan.moves)):
        yield f"Chunks and positions do not count through the plan in chunks of {size}."
    known = [move for move in plan.moves if move.topic_partition in facts.parts]
    for one, other in pairwise(known):
        if facts.parts[one.topic_partition].in_sync > facts.parts[other.topic_partition].in_sync:
            yield f"{other.topic_partition} has fewer in-sync replicas than {one.topic_partition} and comes after it."
            return


def _complete(plan: PlanFolder, facts: Facts) -> Iterator[str]:
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
