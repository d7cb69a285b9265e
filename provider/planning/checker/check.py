"""Decide from the data alone if a plan is valid for its snapshot, and if it is proven to move least.

The checker imports nothing of the solver. It is written as a second opinion, not for speed: it contains only rules that
a reader can verify against the operation's definition. `check_topics` checks any set of whole topics on its own, and
`verdict` combines the findings of all topics. `check` calls them in this process, `check_with_spark` on Spark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_steward.assignment import EVEN_OPERATIONS, OPERATIONS, Assignment, Move, Operation, TopicPartition
from kafka_steward.planning.checker.certificate import (
    ReplicaTotals,
    badly_spread_partitions,
    cluster_price_objections,
    cluster_violations,
    find_prices,
    replica_totals,
    topic_violations,
    unproven_topics,
)
from kafka_steward.planning.checker.constraints import (
    BrokerConstraints,
    PlacementOutcome,
    build_outcome,
    exact_capacities,
)
from kafka_steward.planning.checker.even_load import LoadCheck, limit_problems, load_questions
from kafka_steward.planning.checker.leader_bytes import EVEN as BY_BYTES
from kafka_steward.planning.checker.leader_bytes import (
    is_by_bytes,
    knows_bytes_in,
    leader_bytes_problems,
    leader_bytes_questions,
    takeover_problems_by_bytes,
)
from kafka_steward.planning.checker.leader_prices import LeaderFindings, check_leaders, leader_price_objections
from kafka_steward.planning.checker.leaders import (
    LeaderCounts,
    LeftExchanges,
    cluster_leader_problems,
    count_leaders,
    count_planned_pairs,
    demoted_problems,
    leaders_by_topic,
    left_exchanges,
    takeover_problems,
    takeovers,
    topic_leader_problems,
)
from kafka_steward.planning.checker.load import load_problems, rates_by_partition
from kafka_steward.planning.checker.relief import VolumesLeft, volume_problems
from kafka_steward.planning.checker.room import NO_LIMIT, RoomLeft, room_left, room_problems
from kafka_steward.planning.checker.rules import (
    LEADERLESS,
    NO_ROOM,
    CheckContext,
    SnapshotPartition,
    build_context,
    count_available_brokers,
    count_replicas_due,
    drain_problems,
    hold_reasons,
    move_violations,
    promises_evenness,
    rack_repair_problems,
    read_demoted,
    relief_problems,
)
from kafka_steward.planning.files.formats import SNAPSHOT_PARTITIONS, PlanFolder, SnapshotFolder, moves_from_rows

#: Partitions that are checked at a time: some seconds of plain Python, in some hundred megabytes.
PART_ROWS = 10_000
#: Partitions up to which exchanges within partitions are counted: more are planned in shards, each with an order of
#: its own.
MAX_EXCHANGE_ROWS = 30_000


@dataclass(frozen=True)
class PlanVerdict:
    """The result of a check: whether the plan may be executed, its problems, and open questions about its minimality.

    Each problem and each question is one sentence. A plan that is `ok` is valid. A plan without `unproven` questions
    moves as little as any valid plan could. `left` counts what exchanges within a partition would improve, and is None
    if that was not counted; it is no part of the comparison of two verdicts.
    """

    ok: bool
    problems: list[str]
    unproven: tuple[str, ...] = ()
    left: LeftExchanges | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Findings:
    """Findings of some topics: problems, sums of moves, and inputs for the checks of all topics."""

    problems: list[str]
    moved: int
    moved_bytes: int
    leaders: int
    loads: DiskLoads
    evenness: EvennessFindings | None
    counts: LeaderCounts = field(default_factory=lambda: LeaderCounts({}, {}, {}))
    led: LeaderFindings | None = None
    takeovers: dict[tuple[int, int], int] = field(default_factory=dict)


def combine_findings(parts: Sequence[Any]) -> Any:
    """Return the findings of all topics, given those of some at a time: lists are joined, and numbers summed up."""
    columns = {item.name: [getattr(part, item.name) for part in parts] for item in fields(parts[0])}
    return replace(parts[0], **{name: _combine_values(values) for name, values in columns.items()})


def _combine_values(values: list[Any]) -> Any:
    # Sums over only some of the topics would not be the cluster's.
    if None in values:
        return None
    if isinstance(values[0], dict):
        total: Counter[Any] = Counter()
        for value in values:
            total.update(value)
        return dict(total)
    if isinstance(values[0], list):
        return [item for value in values for item in value]
    return combine_findings(values) if is_dataclass(values[0]) else sum(values)


def check(snapshot: SnapshotFolder, plan: PlanFolder, *, proven: bool = True) -> PlanVerdict:
    """Check that a plan was made from this snapshot, that it is possible and complete, and that it moves least.

    Without `proven`, check only that the plan is valid. The proof that it moves least is skipped, which takes most of
    the time. Topics are checked some at a time, so that memory does not grow with the cluster.
    """
    problems = snapshot_problems(snapshot, plan.rows, plan.proof)
    priced = add_prices(snapshot, plan.rows, plan.proof) if proven and not problems else plan.proof
    # Without prices, `check_topics` does not ask whether a topic may do with fewer moves.
    proof = priced if proven else {**plan.proof, "prices": {}}
    room = room_after(snapshot, plan)
    findings: Findings = combine_findings([
        check_topics(snapshot.brokers, partitions, moves_from_rows(rows), rows, proof, room=room)
        for partitions, rows in _parts_of_topics(snapshot.partitions, plan.rows)
    ])  # fmt: skip
    findings = replace(findings, problems=problems + findings.problems)
    judged = verdict(snapshot.brokers, proof, findings, questions_of_load(snapshot, plan.rows, proof))
    countable = proven and promises_evenness(proof) and len(snapshot.partitions) <= MAX_EXCHANGE_ROWS
    return replace(judged, left=_count_left_exchanges(snapshot, plan, findings.counts, room)) if countable else judged


def room_after(snapshot: SnapshotFolder, plan: PlanFolder) -> RoomLeft:
    """Return the room that a plan leaves, and what it does to the volumes."""
    volumes = VolumesLeft.of(snapshot.brokers, snapshot.partitions, plan.rows, plan.proof)
    return room_left(snapshot.brokers, plan.rows, volumes)


def _count_left_exchanges(
    snapshot: SnapshotFolder, plan: PlanFolder, counts: LeaderCounts, room: RoomLeft
) -> LeftExchanges:
    """Return what exchanges within a partition would improve, given the counts of all topics."""
    parts = []
    for partitions, rows in _parts_of_topics(snapshot.partitions, plan.rows):
        context = build_context(snapshot.brokers, partitions, plan.proof, room)
        parts.append((leaders_by_topic(moves_from_rows(rows), context), context))
    pairs: Counter[Assignment] = Counter()
    for topics, _ in parts:
        pairs.update(count_planned_pairs(topics))
    return LeftExchanges.combine(left_exchanges(topics, context, counts.planned, pairs) for topics, context in parts)


def _parts_of_topics(partitions: pa.Table, rows: pa.Table) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Yield the partitions of some whole topics at a time, with their rows of the plan in its order.

    Each row is in one part, even a row of a topic that the snapshot does not have.
    """
    if len(partitions) <= PART_ROWS:
        yield partitions, rows
        return
    # Every PART_ROWS-th partition in order of topics begins a part with its topic; a large topic begins only one.
    topics = pc.sort_indices(partitions["topic"])[::PART_ROWS]
    firsts = pc.unique(partitions["topic"].take(topics)).to_pylist()[1:]
    for first, following in pairwise([None, *firsts, None]):
        yield _topics_between(partitions, first, following), _topics_between(rows, first, following)


def _topics_between(table: pa.Table, first: str | None, following: str | None) -> pa.Table:
    if first is not None:
        table = table.filter(pc.greater_equal(table["topic"], first))
    return table if following is None else table.filter(pc.less(table["topic"], following))


def check_topics(
    brokers: pa.Table,
    partitions: pa.Table,
    moves: Sequence[Move],
    rows: pa.Table,
    proof: Mapping[str, Any],
    *,
    room: RoomLeft = NO_LIMIT,
) -> Findings:
    """Check the moves of some whole topics; `partitions` are all those of the topics, `rows` the moves as a table.

    `room` is what the whole plan leaves.
    """
    context = build_context(brokers, partitions, proof, room)
    twice = [str(name) for name, times in Counter(move.topic_partition for move in moves).items() if times > 1]
    problems = [f"{name} is in the plan twice." for name in twice[:1]]
    for move in moves:
        problems += [f"{move.topic_partition}: {problem}" for problem in move_violations(move, context)]
    problems += _completeness_problems(moves, context)
    problems += _order_problems_left(moves, context)
    problems += [*rack_repair_problems(moves, brokers, context), *relief_problems(moves, brokers, context)]
    problems += drain_problems(moves, context)
    # If a row is no move of this snapshot, or appears twice, the outcome of the topics is undefined.
    checkable = (
        promises_evenness(proof) and not twice and all(move.topic_partition in context.partitions for move in moves)
    )
    evenness = check_evenness(brokers, touchable_partitions(context, partitions), rows, proof) if checkable else None
    after = leaders_by_topic(moves, context)
    by_count = proof.get("operation") == Operation.LEADERS.value and not is_by_bytes(proof)
    prices = prices_by_broker(brokers, proof) if by_count else None
    alike = len(set(exact_capacities(brokers["capacity"].to_pylist()))) <= 1
    problems += topic_leader_problems(after, context, alike=alike)
    problems += demoted_problems(after, context)
    return Findings(
        problems=problems + (evenness.problems if evenness else []),
        moved=sum(len(move.adding) for move in moves),
        moved_bytes=sum(len(move.adding) * (move.size_bytes or 0) for move in moves),
        leaders=sum(move.before[:1] != move.after[:1] for move in moves),
        loads=disk_loads(context, moves),
        evenness=evenness,
        counts=count_leaders(after),
        led=None if prices is None else check_leaders(after, context, prices),
        takeovers=takeovers(moves, context),
    )


def questions_of_load(snapshot: SnapshotFolder, rows: pa.Table, proof: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what is not proven of a plan that balances the load of brokers; nothing for another one."""
    return tuple(load_questions(LoadCheck.of(snapshot.brokers, snapshot.partitions, rows, proof), proof))


def verdict(
    brokers: pa.Table, proof: Mapping[str, Any], findings: Findings, questions: tuple[str, ...] = ()
) -> PlanVerdict:
    """Return the verdict for the combined findings of all topics; `questions` are those of `questions_of_load`."""
    options = proof.get("options") or {}
    problems = [*findings.problems, *_sum_problems(proof, findings)]
    problems += cluster_leader_problems(
        build_context(brokers, SNAPSHOT_PARTITIONS.empty_table(), proof), findings.counts
    )
    if not knows_bytes_in(proof):
        problems += takeover_problems(findings.counts, findings.takeovers)
    for name, value in (("max_moves", findings.moved), ("max_bytes", findings.moved_bytes)):
        if options.get(name) and value > options[name]:
            problems.append(f"The plan moves {value}, beyond {name} = {options[name]}.")
    if proof.get("operation") == Operation.LEADERS.value:
        context = build_context(brokers, SNAPSHOT_PARTITIONS.empty_table(), proof)
        return PlanVerdict(not problems, problems, tuple(_leader_questions(context, brokers, findings)))
    if proof.get("operation") not in EVEN_OPERATIONS:
        return PlanVerdict(not problems, problems)
    if options.get("balance") == "bytes":
        return PlanVerdict(
            not problems, problems, tuple(tolerance_gaps(findings.loads, brokers, options, findings.moved_bytes))
        )
    if findings.evenness is None:
        return PlanVerdict(not problems, problems, questions)
    return _evenness_verdict(brokers, proof, problems, findings.evenness)


def _leader_questions(context: CheckContext, brokers: pa.Table, findings: Findings) -> Iterator[str]:
    """Yield why a plan for even leaders is not proven to change the fewest."""
    if is_by_bytes(context.proof):
        yield from leader_bytes_questions(context.proof)
        return
    prices = prices_by_broker(brokers, context.proof)
    if findings.counts.planned and (findings.led is None or prices is None):
        yield "The proof has no price for every broker: nothing was proven."
    elif findings.led is not None and prices is not None and findings.led.led:
        yield from leader_price_objections(context, findings.led, prices)


def prices_by_broker(brokers: pa.Table, proof: Mapping[str, Any]) -> dict[int, int] | None:
    """Return the proof's price of each usable broker; None if one is missing or no whole number."""
    constraints = BrokerConstraints.of(brokers, proof.get("options") or {})
    prices = prices_in_proof(constraints, proof)
    return None if prices is None else dict(zip(constraints.ids.tolist(), prices, strict=True))


def _evenness_verdict(
    brokers: pa.Table, proof: Mapping[str, Any], problems: list[str], evenness: EvennessFindings
) -> PlanVerdict:
    options = proof.get("options") or {}
    constraints = BrokerConstraints.of(brokers, options, _largest_factor(proof) or max(evenness.factors, default=0))
    held, placed = (np.array(list(count.values())) for count in (evenness.held, evenness.placed))
    totals = ReplicaTotals(held, placed, evenness.factors)
    uneven = evenness.uneven + cluster_violations(constraints, totals)
    if proof.get("limited_by_room"):
        message = (
            "Room limits the plan; that no other is more even or moves less within the room there is, is not proven."
        )
        return PlanVerdict(not problems, problems, (message,))
    # A budget explains an uneven cluster, but nothing then proves that the plan is the best within it.
    if uneven and (options.get("max_moves") or options.get("max_bytes")):
        message = "A plan within a budget leaves the cluster uneven; that no other leaves less to do is not proven."
        return PlanVerdict(not problems, problems, (message,))
    problems = problems + uneven
    prices = prices_in_proof(constraints, proof)
    if prices is None:
        message = "The proof has no price for every broker, and none were found: nothing was proven."
        return PlanVerdict(not problems, problems, (message,) if evenness.factors else ())
    questions = cluster_price_objections(constraints, totals, np.array(prices))
    questions += [f"The topic {name} may do with fewer moves." for name in evenness.unproven_topics]
    return PlanVerdict(not problems, problems, tuple(questions))


def snapshot_problems(snapshot: SnapshotFolder, rows: pa.Table, proof: Mapping[str, Any]) -> list[str]:
    """Return a problem for each difference between plan and snapshot, and for each fault in the order of the rows."""
    problems = header_problems(snapshot.cluster_id, snapshot.digest, proof)
    problems += broker_state_problems(snapshot.brokers, proof)
    largest = pc.max(snapshot.partitions["target_rf"]).as_py() or 0
    if _largest_factor(proof) not in (None, largest):
        problems.append(f"The proof says largest_factor = {_largest_factor(proof)}; the snapshot says {largest}.")
    problems += order_problems(snapshot.partitions, rows, proof)
    problems += volume_problems(VolumesLeft.of(snapshot.brokers, snapshot.partitions, rows, proof))
    tables = snapshot.brokers, snapshot.partitions, rows, proof
    limits = limit_problems(LoadCheck.of(*tables))
    return [*problems, *room_problems(*tables), *load_problems(*tables), *limits, *_led_bytes_problems(*tables)]


def _led_bytes_problems(
    brokers: pa.Table, partitions: pa.Table, rows: pa.Table, proof: Mapping[str, Any]
) -> Iterator[str]:
    """Yield a problem if `leaders` or `demote` does not make leaders even by the bytes in that are known."""
    operation, word = proof.get("operation"), proof.get("leader_evenness")
    if operation not in (Operation.LEADERS.value, Operation.DEMOTE.value):
        return
    rates = rates_by_partition(partitions)
    capacity = exact_capacities(brokers["capacity"].to_pylist())
    known = dict(zip(brokers["broker"].to_pylist(), capacity, strict=True))
    parts = (
        (build_context(brokers, some, proof), moves_from_rows(moves))
        for some, moves in _parts_of_topics(partitions, rows)
    )
    if operation == Operation.DEMOTE.value:
        yield from takeover_problems_by_bytes(parts, rates, known) if any(rates.values()) else ()
    elif word is not None and is_by_bytes(proof) != any(rates.values()):
        yield f"The proof says that leaders are even in the sense {word!r}, which is not what the snapshot asks for."
    elif word == BY_BYTES:
        yield from leader_bytes_problems(parts, rates, known, prices_by_broker(brokers, proof))


def _largest_factor(proof: Mapping[str, Any]) -> int | None:
    """Return the most replicas that a partition of the cluster is to have according to the proof; None without one."""
    factor = proof.get("largest_factor")
    return factor if isinstance(factor, int) else None


def header_problems(cluster_id: str, digest: str, proof: Mapping[str, Any]) -> list[str]:
    """Return a problem for each of cluster, snapshot and operation that does not match the plan."""
    problems = []
    if proof.get("cluster_id") != cluster_id:
        problems.append(f"The plan is for cluster {proof.get('cluster_id')}, not for {cluster_id}.")
    if proof.get("snapshot_digest") != digest:
        problems.append("The plan was made from another snapshot.")
    if proof.get("operation") not in OPERATIONS:
        problems.append(f"There is no operation {proof.get('operation')!r}.")
    return problems


def broker_state_problems(brokers: pa.Table, proof: Mapping[str, Any]) -> list[str]:
    """Return a problem if the plan's failed, draining or demoted brokers differ from those of the snapshot."""
    problems = []
    rows = brokers.to_pylist()
    known = {state: {row["broker"] for row in rows if row["state"] == state} for state in ("failed", "draining")}
    known["demoted"] = set(read_demoted(brokers, proof))
    for state, brokers_there in known.items():
        there = sorted(brokers_there)
        stated = proof.get(f"brokers_{state}") or []
        if stated != there:
            problems.append(f"The proof says brokers_{state} = {stated}; the snapshot says {there}.")
    return problems


def order_problems(partitions: pa.Table, rows: pa.Table, proof: Mapping[str, Any]) -> list[str]:
    """Return the faults in the order of a plan's rows, which `rows` has in their order.

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
    # One example of a wrong order is enough.
    drops = np.flatnonzero(np.diff(joined.column("in_sync").to_numpy()) < 0)
    for at in drops[:1].tolist():
        before, after = (f"{row['topic']}-{row['partition']}" for row in joined.slice(at, 2).to_pylist())
        problems.append(f"{after} has fewer in-sync replicas than {before} and comes after it.")
    return problems


#: Reasons for which an even plan lists a partition as left out even if it has the right number of replicas.
_LEFT_OUT = LEADERLESS | {"too_few_brokers", "out_of_sync", NO_ROOM}


def _completeness_problems(moves: Sequence[Move], context: CheckContext) -> Iterator[str]:
    """Yield a problem for each requested change that is neither planned nor listed with a true reason."""
    planned = {move.topic_partition for move in moves}
    listed = {
        TopicPartition(row["topic"], row["partition"]): row["reason"]
        for row in [*(context.proof.get("unplaced") or ()), *(context.proof.get("pinned") or ())]
    }
    for name, part in context.partitions.items():
        due, held = count_replicas_due(name, context), len(context.alive_replicas(part.replicas, part))
        as_given = context.given_targets.get(name, part.replicas) == part.replicas
        if name in planned or (context.only_empties and not context.on_draining(part.replicas)):
            continue
        reasons = hold_reasons(name, context)
        # An even plan concerns every selected partition, even a partition that has all replicas.
        left_out = (
            context.operation in EVEN_OPERATIONS and "excluded" not in reasons and _LEFT_OUT.intersection(reasons)
        )
        # What is lost elsewhere is not a drain's to replace; `drain_problems` judges what stays.
        held = due if context.only_empties else held
        # Where a replication factor was requested, replicas that are not live count, too.
        if name.topic in context.requested_factors:
            held = max(held, min(due + 1, len(part.replicas)))
        if due == held and as_given and not left_out:
            continue
        reasons += ["too_few_brokers"] if count_available_brokers(name, context) < due else []
        if name not in listed:
            leaderless = LEADERLESS.intersection(reasons)
            why = "has no leader" if left_out and leaderless else f"has {held} replicas, not its target number"
            yield f"{name} {why}, and is neither in the plan nor listed."
        elif listed[name] not in reasons:
            yield f"{name} is listed as {listed[name]}, and is not."


def _order_problems_left(moves: Sequence[Move], context: CheckContext) -> Iterator[str]:
    """Yield a problem for each partition whose order has to change, and that is neither planned nor listed."""
    planned = {move.topic_partition for move in moves}
    listed = {
        TopicPartition(row["topic"], row["partition"]): row["reason"]
        for row in [*(context.proof.get("unplaced") or ()), *(context.proof.get("pinned") or ())]
    }
    for name, part in context.partitions.items():
        if name not in planned and _must_reorder(part, context):
            reasons = hold_reasons(name, context)
            if "excluded" not in reasons and listed.get(name) not in reasons:
                yield f"{name} has to change its order, and is neither in the plan nor listed with a reason."


def _must_reorder(part: SnapshotPartition, context: CheckContext) -> bool:
    """Return whether a demotion or a promotion has to change the order of a partition's replicas."""
    if context.operation == Operation.DEMOTE.value:
        return context.must_demote(part)
    return context.operation == Operation.PROMOTE.value and context.restored_order(part) != part.replicas


def _sum_problems(proof: Mapping[str, Any], findings: Findings) -> Iterator[str]:
    sums = {"replicas_moved": findings.moved, "bytes_moved": findings.moved_bytes, "leader_changes": findings.leaders}
    for name, value in sums.items():
        if proof.get(name) != value:
            yield f"The proof says {name} = {proof.get(name)}; the rows say {value}."
    bound = proof.get("lower_bound")
    if not isinstance(bound, int) or bound > findings.moved:
        yield f"The proof's lower bound {bound} is above the {findings.moved} replicas that the plan moves."
    options = proof.get("options") or {}
    within_budget = options.get("max_moves") or options.get("max_bytes")
    for costs in proof.get("frontier") or ():
        own = costs["topic_spread"] == options.get("topic_spread") and not within_budget
        if own and costs["replicas_moved"] > findings.moved:
            yield f"The proof's frontier has {costs['replicas_moved']} moves for the plan, which has {findings.moved}."
    if proof.get("operation") == Operation.HEAL.value and bound != findings.moved:
        yield f"A heal moves lost replicas only; this one moves {findings.moved} for {bound}."


#: Partitions times brokers, up to which the checker itself searches prices that a proof lacks.
_MAX_SOUGHT = 100_000_000


@dataclass(frozen=True)
class EvennessFindings:
    """Findings of some topics about evenness, with sums per broker id. A budget explains what is in `uneven`."""

    problems: list[str]
    uneven: list[str]
    held: dict[int, int]
    placed: dict[int, int]
    factors: dict[int, int]
    #: The topics that the proof's prices do not prove.
    unproven_topics: list[str]


def check_evenness(brokers: pa.Table, touched: pa.Table, rows: pa.Table, proof: Mapping[str, Any]) -> EvennessFindings:
    """Check, by the proof's prices, how even a plan's `rows` leave the topics of the partitions that it may touch."""
    options = proof.get("options") or {}
    outcome = build_outcome(brokers, touched, rows, options, _largest_factor(proof))
    partial = bool(options.get("max_moves") or options.get("max_bytes"))
    uneven = topic_violations(outcome) + _unmoved_partition_problems(outcome.constraints, touched, rows)
    totals = replica_totals(outcome)
    prices, ids = prices_in_proof(outcome.constraints, proof), outcome.constraints.ids.tolist()
    return EvennessFindings(
        problems=_moved_partition_problems(outcome) if partial else [],
        uneven=uneven,
        held=dict(zip(ids, totals.held.tolist(), strict=True)),
        placed=dict(zip(ids, totals.placed.tolist(), strict=True)),
        factors=totals.factors,
        unproven_topics=[] if prices is None else unproven_topics(outcome, np.array(prices)),
    )


def add_prices(snapshot: SnapshotFolder, rows: pa.Table, proof: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the proof, with prices added if it has none and they can be found in reasonable time.

    The search uses the snapshot and the plan's rows alone.
    """
    options = proof.get("options") or {}
    constraints = BrokerConstraints.of(snapshot.brokers, options)
    small = len(snapshot.partitions) * len(constraints.ids) <= _MAX_SOUGHT
    if (
        not promises_evenness(proof)
        or not small
        or prices_in_proof(constraints, proof) is not None
        or not _rows_match_snapshot(snapshot, rows)
    ):
        return proof
    context = build_context(snapshot.brokers, snapshot.partitions, proof)
    touched = touchable_partitions(context, snapshot.partitions)
    prices = find_prices(build_outcome(snapshot.brokers, touched, rows, options, _largest_factor(proof)))
    if prices is None:
        return proof
    return {**proof, "prices": {str(broker): int(prices[at]) for at, broker in enumerate(constraints.ids)}}


def _rows_match_snapshot(snapshot: SnapshotFolder, rows: pa.Table) -> bool:
    """Return True if the rows are of distinct partitions of the snapshot."""
    keys = ["topic", "partition"]
    names = rows.select(keys).group_by(keys).aggregate([])
    known = names.join(snapshot.partitions.select(keys), keys, join_type="inner")
    return bool(len(known) == len(names) == len(rows))


def prices_in_proof(constraints: BrokerConstraints, proof: Mapping[str, Any]) -> list[int] | None:
    """Return the proof's prices in the order of the brokers.

    Return None unless the proof has one whole number below 2**24 in magnitude for each broker.
    """
    given = proof.get("prices") or {}
    names = [str(broker) for broker in constraints.ids]
    if sorted(given) != sorted(names) or any(
        type(price) is not int or abs(price) >= 1 << 24 for price in given.values()
    ):
        return None
    return [given[name] for name in names]


def _unmoved_partition_problems(constraints: BrokerConstraints, touched: pa.Table, rows: pa.Table) -> list[str]:
    """Report at most ten unmoved partitions that have all replicas due, and more on brokers that are to hold none."""
    usable, moved = set(constraints.ids.tolist()), set(_topic_partitions(rows))
    named = [
        name.topic
        for name, replicas, due in zip(
            _topic_partitions(touched), touched["replicas"].to_pylist(), touched["target_rf"].to_pylist(), strict=True
        )
        if name not in moved and len(usable.intersection(replicas)) == due < len(replicas)
    ]
    return [f"A partition of {topic} keeps a replica on a broker that is to hold none." for topic in named[:10]]


def _moved_partition_problems(outcome: PlacementOutcome) -> list[str]:
    """Report moved partitions that end up on the wrong racks or with a wrong number of replicas.

    Within a budget some partitions wait. Each partition that does move must be correct at once.
    """
    wrong = badly_spread_partitions(outcome) | (outcome.placed.sum(axis=1) != outcome.factor)
    moved = (outcome.placed & ~outcome.held).any(axis=1) & wrong
    named = {outcome.topics[topic] for topic in outcome.topic[moved]}
    return [f"A partition of {name} moves, and ends up on the wrong racks or number of brokers." for name in named]


def touchable_partitions(context: CheckContext, partitions: pa.Table) -> pa.Table:
    """Return the partitions that a plan may touch: those for which `hold_reasons` gives no reason."""
    return partitions.filter(
        pa.array([not hold_reasons(name, context) for name in _topic_partitions(partitions)], pa.bool_())
    )


def _topic_partitions(table: pa.Table) -> Iterator[TopicPartition]:
    return map(TopicPartition, table["topic"].to_pylist(), table["partition"].to_pylist())


@dataclass(frozen=True)
class DiskLoads:
    """Bytes per broker id: `before` without lost replicas, and `after`. `lost` bytes are copied again in any case."""

    before: dict[int, int]
    after: dict[int, int]
    lost: int


def disk_loads(context: CheckContext, moves: Sequence[Move]) -> DiskLoads:
    """Return the loads of some topics."""
    new = {move.topic_partition: move for move in moves}
    before, after = Counter[int](), Counter[int]()
    lost = 0
    for name, part in context.partitions.items():
        size, move = part.size or 0, new.get(name)
        alive = context.alive_replicas(part.replicas, part)
        before.update(dict.fromkeys(alive, size))
        after.update(dict.fromkeys(context.alive_replicas(move.after, part) if move else alive, size))
        if move:
            # Each replica that the partition lacks takes a copy of all its bytes.
            lost += size * max(len(move.after) - len(alive), 0)
    return DiskLoads(dict(before), dict(after), lost)


def tolerance_gaps(loads: DiskLoads, brokers: pa.Table, options: Mapping[str, Any], moved_bytes: int) -> Iterator[str]:
    """Yield sentences on brokers outside the tolerance, and on bytes moved beyond the fewest possible."""
    share = _capacity_shares(brokers, set(options.get("exclude_brokers") or ()))
    tolerance = Fraction(str(options.get("tolerance", 0.05)))
    total = sum(loads.after.values())
    low = {broker: part * total * (1 - tolerance) for broker, part in share.items()}
    high = {broker: part * total * (1 + tolerance) for broker, part in share.items()}
    # Allow one byte of slack: the planner's edges are floating-point numbers.
    outside = [b for b in share if not low[b] - 1 <= loads.after.get(b, 0) <= high[b] + 1]
    # Any byte that remains on a broker that is to be emptied is too much.
    emptied = [row["broker"] for row in brokers.to_pylist() if row["state"] in ("draining", "down")]
    outside += [b for b in emptied if loads.after.get(b, 0) > 0]
    if outside:
        names = ", ".join(str(broker) for broker in outside)
        yield f"The disks of these brokers stay out of the tolerance, and it is not proven that they must: {names}."
    excess = sum(max(held - high.get(b, Fraction(0)), Fraction(0)) for b, held in loads.before.items())
    lack = sum(max(low[b] - loads.before.get(b, 0), Fraction(0)) for b in share)
    least = int(max(loads.lost + excess, lack))
    if moved_bytes > least:
        yield f"The plan moves {moved_bytes} bytes; the fewest that could do are only known to be at least {least}."


def _capacity_shares(brokers: pa.Table, excluded: set[int]) -> dict[int, Fraction]:
    rows = brokers.to_pylist()
    capacity = exact_capacities([row["capacity"] for row in rows])
    weight = {
        row["broker"]: amount
        for row, amount in zip(rows, capacity, strict=True)
        if row["state"] in ("live", "new") and row["broker"] not in excluded
    }
    whole = sum(weight.values())
    return {broker: amount / whole for broker, amount in weight.items()}
