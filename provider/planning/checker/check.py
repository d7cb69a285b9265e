"""The checker: it decides from the data alone if a plan is valid for its snapshot, and if it is proven minimal.

It imports nothing of the solver. It is written as a second opinion, not for speed: it contains only rules that a reader
can verify against the operation's definition. `look` judges any set of whole topics on its own, and `verdict` combines
the findings. `review` can therefore do the same on Spark, as one map over shards of topics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_steward.assignment import Move, Operation, TopicPartition
from kafka_steward.planning.checker.certificate import Totals, misplaced_in_all, unproven_in_all
from kafka_steward.planning.checker.evenness import Evenness, evenness_of, is_even, seek_prices
from kafka_steward.planning.checker.judge import Court
from kafka_steward.planning.checker.loads import Loads, band_gaps, loads_of, overfull
from kafka_steward.planning.checker.rules import Facts, facts_of, faults, goal, grounds, room
from kafka_steward.planning.files.formats import PlanFolder, SnapshotFolder, plan_table

__all__ = ["Findings", "Verdict", "check", "head_problems", "look", "order_problems", "state_problems", "verdict"]


@dataclass(frozen=True)
class Verdict:
    """The result of a check: permission to execute the plan, its problems, and what of its minimality is not proven.

    Each problem is one sentence. A plan that is `ok` is valid. A plan without `unproven` moves as little as any valid
    plan could.
    """

    ok: bool
    problems: list[str]
    unproven: tuple[str, ...] = ()


@dataclass(frozen=True)
class Findings:
    """The findings of `look` for some topics: problems, sums of moves, and inputs for the checks of all topics."""

    problems: list[str]
    moved: int
    moved_bytes: int
    leaders: int
    loads: Loads
    evenness: Evenness | None

    @classmethod
    def total(cls, parts: Sequence[Findings]) -> Findings:
        """Combine the findings of all topics."""
        even = [part.evenness for part in parts if part.evenness is not None]
        return cls(
            problems=[one for part in parts for one in part.problems],
            moved=sum(part.moved for part in parts),
            moved_bytes=sum(part.moved_bytes for part in parts),
            leaders=sum(part.leaders for part in parts),
            loads=Loads.total([part.loads for part in parts]),
            evenness=Evenness.total(even) if even else None,
        )


def check(snapshot: SnapshotFolder, plan: PlanFolder, *, proven: bool = True) -> Verdict:
    """Judge a plan: made from this snapshot, every move possible, as the operation promises, and complete.

    Without `proven`, check only that the plan is valid. The proof that it moves least is skipped, which takes most of
    the time.
    """
    rows = plan_table(plan.moves)
    problems = head_problems(snapshot.cluster_id, snapshot.digest, plan.proof)
    problems += state_problems(snapshot.brokers, plan.proof)
    problems += order_problems(snapshot.partitions, rows, plan.proof)
    priced = seek_prices(snapshot, rows, plan.proof) if proven and not problems else plan.proof
    proof = priced if proven else {**plan.proof, "prices": {}}
    found = look(snapshot.brokers, snapshot.partitions, plan.moves, proof)
    return verdict(snapshot.brokers, proof, replace(found, problems=problems + found.problems))


def look(brokers: pa.Table, partitions: pa.Table, moves: Sequence[Move], proof: Mapping[str, Any]) -> Findings:
    """Judge the moves of some whole topics, given all partitions of these topics."""
    facts = facts_of(brokers, partitions, proof)
    twice = [str(name) for name, times in Counter(move.topic_partition for move in moves).items() if times > 1]
    problems = [f"{name} is in the plan twice." for name in twice[:1]]
    for move in moves:
        problems += [f"{move.topic_partition}: {problem}" for problem in faults(move, facts)]
    problems += _complete(moves, facts)
    # A row that is no move of this snapshot, or that appears twice, gives no position that could be judged.
    judged = is_even(proof) and not twice and all(move.topic_partition in facts.parts for move in moves)
    evenness = evenness_of(brokers, partitions, moves, proof) if judged else None
    return Findings(
        problems=problems + (evenness.problems if evenness else []),
        moved=sum(len(move.adding) for move in moves),
        moved_bytes=sum(len(move.adding) * (move.size_bytes or 0) for move in moves),
        leaders=sum(move.before[:1] != move.after[:1] for move in moves),
        loads=loads_of(facts, moves),
        evenness=evenness,
    )


def verdict(brokers: pa.Table, proof: Mapping[str, Any], found: Findings) -> Verdict:
    """Return the verdict for the combined findings of all topics."""
    options = proof.get("options") or {}
    problems = [*found.problems, *_sums(proof, found), *_over_budget(options, found)]
    if proof.get("operation") not in ("rebalance", "expand", "drain"):
        return Verdict(not problems, problems)
    if options.get("balance") == "bytes":
        problems += overfull(found.loads, brokers)
        return Verdict(not problems, problems, tuple(band_gaps(found.loads, brokers, options, found.moved_bytes)))
    if found.evenness is None:
        return Verdict(not problems, problems)
    return _even_verdict(brokers, proof, problems, found.evenness)


def _even_verdict(brokers: pa.Table, proof: Mapping[str, Any], problems: list[str], evenness: Evenness) -> Verdict:
    options = proof.get("options") or {}
    court = Court.of(brokers, options)
    totals = Totals(np.array(evenness.held), np.array(evenness.placed), evenness.factors)
    uneven = evenness.uneven + misplaced_in_all(court, totals)
    if uneven and (options.get("max_moves") or options.get("max_bytes")):
        sentence = "A plan within a budget leaves the cluster uneven; that no other leaves less to do is not proven."
        return Verdict(not problems, problems, (sentence,))
    problems = problems + uneven
    prices = evenness.prices
    if prices is None:
        sentence = "The proof has no price for every broker, and none were found: nothing was proven."
        return Verdict(not problems, problems, (sentence,) if evenness.factors else ())
    questions = unproven_in_all(court, totals, np.array(prices))
    questions += [f"The topic {name} may do with fewer moves." for name in evenness.open_topics]
    return Verdict(not problems, problems, tuple(questions))


def head_problems(cluster_id: str, digest: str, proof: Mapping[str, Any]) -> list[str]:
    """Return a problem for each of cluster, snapshot and operation that does not match the plan."""
    problems = []
    if proof.get("cluster_id") != cluster_id:
        problems.append(f"The plan is for cluster {proof.get('cluster_id')}, not for {cluster_id}.")
    if proof.get("snapshot_digest") != digest:
        problems.append("The plan was made from another snapshot.")
    if proof.get("operation") not in [operation.value for operation in Operation]:
        problems.append(f"There is no operation {proof.get('operation')!r}.")
    return problems


def state_problems(brokers: pa.Table, proof: Mapping[str, Any]) -> list[str]:
    """Return a problem if the plan's failed or draining brokers differ from those of the snapshot."""
    problems = []
    for state in ("failed", "draining"):
        there = sorted(row["broker"] for row in brokers.to_pylist() if row["state"] == state)
        said = proof.get(f"brokers_{state}") or []
        if said != there:
            problems.append(f"The proof says brokers_{state} = {said}; the snapshot says {there}.")
    return problems


def order_problems(partitions: pa.Table, rows: pa.Table, proof: Mapping[str, Any]) -> list[str]:
    """Return the problems in the order of a plan; `rows` are the plan's rows, in order.

    Chunks and positions must be numbered consecutively, and partitions nearest to data loss must come first.
    """
    problems = []
    number = np.arange(len(rows))
    size = int((proof.get("options") or {}).get("chunk_size", 0)) or len(rows) or 1
    places = [rows.column(name).to_numpy() for name in ("chunk", "position")]
    if (places[0] != number // size).any() or (places[1] != number % size).any():
        problems.append(f"Chunks and positions do not count through the plan in chunks of {size}.")
    keys = ["topic", "partition"]
    in_sync = pc.list_value_length(partitions.column("isr"))
    known = rows.select(keys).append_column("number", pa.array(number))
    joined = known.join(partitions.select(keys).append_column("in_sync", in_sync), keys, join_type="inner")
    joined = joined.sort_by("number")
    drops = np.flatnonzero(np.diff(joined.column("in_sync").to_numpy()) < 0)
    for at in drops[:1].tolist():
        one, other = (f"{row['topic']}-{row['partition']}" for row in joined.slice(at, 2).to_pylist())
        problems.append(f"{other} has fewer in-sync replicas than {one} and comes after it.")
    return problems


def _over_budget(options: Mapping[str, Any], found: Findings) -> Iterator[str]:
    for name, value in (("max_moves", found.moved), ("max_bytes", found.moved_bytes)):
        if options.get(name) and value > options[name]:
            yield f"The plan moves {value}, beyond {name} = {options[name]}."


def _complete(moves: Sequence[Move], facts: Facts) -> Iterator[str]:
    """Yield a problem for each requested change that is neither in the plan nor listed as impossible.

    A listed partition must have a reason that is true.
    """
    planned = {move.topic_partition for move in moves}
    listed = {
        TopicPartition(one["topic"], one["partition"]): one["reason"]
        for one in [*(facts.proof.get("unplaced") or ()), *(facts.proof.get("pinned") or ())]
    }
    for name, part in facts.parts.items():
        due, held = goal(name, facts), len(facts.alive(part.replicas, part))
        as_asked = facts.given.get(name, part.replicas) == part.replicas
        if name in planned or (due == held and as_asked):
            continue
        reasons = [*grounds(name, facts), *(["too_few_brokers"] if room(name, facts) < due else [])]
        if name not in listed:
            yield f"{name} has {held} replicas, not what it is due, and is neither in the plan nor listed."
        elif listed[name] not in reasons:
            yield f"{name} is listed as {listed[name]}, and is not."


def _sums(proof: Mapping[str, Any], found: Findings) -> Iterator[str]:
    counted = {"replicas_moved": found.moved, "bytes_moved": found.moved_bytes, "leader_changes": found.leaders}
    for name, value in counted.items():
        if proof.get(name) != value:
            yield f"The proof says {name} = {proof.get(name)}; the rows say {value}."
    bound = proof.get("lower_bound")
    if not isinstance(bound, int) or bound > found.moved:
        yield f"The proof's lower bound {bound} is above the {found.moved} replicas that the plan moves."
    if proof.get("operation") == Operation.HEAL.value and bound != found.moved:
        yield f"A heal moves what was lost and nothing else; this one moves {found.moved} for {bound}."
