"""The summary of a plan for its approver, its tables for a terminal, and the request for an approval. Pure.

The summary is Markdown: the plan's proof, its moves by broker, and the constraints that it makes worse.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kafka_steward.assignment import (
    EVEN_OPERATIONS,
    REORDERING_OPERATIONS,
    Assignment,
    Move,
    MoveReason,
    Operation,
    TopicPartition,
    begin_with_brokers,
    counted,
    last_in_sync,
    name_brokers,
    name_some,
    only_reorders,
)
from kafka_steward.escaping import escape_markdown, printable
from kafka_steward.execution.moves.states import bytes_to_copy
from kafka_steward.execution.plans.report import format_bytes, format_duration, racks_sentence, reason_to_leave
from kafka_steward.execution.throttles.rates import (
    UNKNOWN_SERVERS,
    UNLIMITED_BYTES_PER_S,
    ExternalRate,
    ThrottleSide,
    external_rates_lines,
    ineffective_message,
    stricter_rates,
    throttled_kept,
    throttled_leaders,
)
from kafka_steward.planning.files.formats import PlanFolder, SnapshotFolder, cordoned_brokers, min_isr_by_topic
from kafka_steward.planning.options import Options

#: Partitions that a sentence names; the others are only counted.
_NAMED = 3


def bytes_to_copy_text(moves: Sequence[Move], snapshot: SnapshotFolder) -> str:
    """Return the megabytes that a plan copies, and of how many partitions the size is unknown. Pure."""
    unknown, copied = sum(move.size_bytes is None for move in moves if move.adding), sum(map(bytes_to_copy, moves))
    of = counted(unknown, "partition", "whose leader", "whose leaders")
    beside = f", beside {of} did not report a size" if unknown else ""
    return f"{copied / 1e6:.1f} MB to copy{beside}{_catching_up_clause(moves, snapshot)}"


def _catching_up_clause(moves: Sequence[Move], snapshot: SnapshotFolder) -> str:
    """Return how much is copied at most besides new replicas: into those that stay and are out of sync; may be empty.

    Kafka waits for them, too. How much of their partitions they lack is not in the snapshot.
    """
    serving = _live_brokers(snapshot)
    partitions = snapshot.partitions
    lagging = pc.less(pc.list_value_length(partitions["isr"]), pc.list_value_length(partitions["replicas"]))
    rows = partitions.filter(lagging).select(["topic", "partition", "isr"]).to_pylist()
    in_sync = {TopicPartition(row["topic"], row["partition"]): frozenset(row["isr"]) for row in rows}
    late = {
        move: frozenset(move.after) - move.adding - in_sync[move.topic_partition] & serving
        for move in moves
        if in_sync.get(move.topic_partition) and not only_reorders(move.before, move.after)
    }
    named = [move.topic_partition for move, brokers in late.items() if brokers]
    size = sum((move.size_bytes or 0) * len(brokers) for move, brokers in late.items())
    into = f"into replicas that stay and are out of sync ({name_some(named, _NAMED)})"
    return f", and up to {format_bytes(size)} {into}" if named else ""


def _live_brokers(snapshot: SnapshotFolder) -> set[int]:
    brokers = snapshot.brokers.select(["broker", "state"]).to_pylist()
    return {row["broker"] for row in brokers if row["state"] not in {"failed", "down"}}


def constraint_regressions(moves: Sequence[Move], snapshot: SnapshotFolder) -> list[str]:
    """Return a message for each regression: fewer racks, fewer replicas, fewer replicas than min.insync.replicas.

    Producers with acks=all fail in the last case. One more for each broker that will lead every partition of a topic,
    for each that will hold far more replicas than the others of its rack, and for each disk that becomes too full, come
    first.
    """
    rows = snapshot.brokers.to_pylist()
    racks = {row["broker"]: row["rack"] for row in rows}
    left = _count_racks(tuple(row["broker"] for row in rows if _takes_replicas(row)), racks)
    min_isr = min_isr_by_topic(snapshot.partitions)
    return [
        *_leader_regressions(moves, snapshot),
        *_load_regressions(moves, snapshot),
        *(sentence for move in moves for sentence in _move_regressions(move, racks, left, min_isr.get(move.topic))),
    ]


def _leader_regressions(moves: Sequence[Move], snapshot: SnapshotFolder) -> Iterator[str]:
    """Yield a message for each broker that will be the preferred leader of all partitions of a topic, and was not."""
    after = {move.topic_partition: move.after[0] for move in moves if move.after[:1] != move.before[:1]}
    topics = pa.array(sorted({name.topic for name in after}), pa.string())
    chosen = snapshot.partitions.filter(pc.is_in(snapshot.partitions["topic"], topics))
    was, will = defaultdict[str, list[int]](list), defaultdict[str, list[int]](list)
    for row in chosen.select(["topic", "partition", "replicas"]).to_pylist():
        name, first = TopicPartition(row["topic"], row["partition"]), row["replicas"][0]
        was[name.topic].append(first)
        will[name.topic].append(after.get(name, first))
    for topic, leaders in sorted(will.items()):
        if len(leaders) >= _FEW_PARTITIONS and len(set(leaders)) == 1 < len(set(was[topic])):
            yield f"Broker {leaders[0]} will be the preferred leader of all {len(leaders)} partitions of {topic}."


def _load_regressions(moves: Sequence[Move], snapshot: SnapshotFolder) -> Iterator[str]:
    """Yield a message for each broker that the plan makes much fuller than the others of its rack, or a disk too full.

    On several log directories, the fullest volume is looked at as if all that comes went there.
    """
    added, into = Counter[int](), Counter[int]()
    for move in moves:
        added.update(move.adding)
        added.subtract(move.removing)
        into.update(dict.fromkeys(move.adding, move.size_bytes or 0))
        into.subtract(dict.fromkeys(move.removing, move.size_bytes or 0))
    rows = snapshot.brokers.sort_by("broker").to_pylist()
    flat = pc.list_flatten(snapshot.partitions["replicas"])
    held = Counter({row["values"]: row["counts"] for row in pc.value_counts(flat).to_pylist()})
    for row in rows:
        broker, peers = row["broker"], [peer for peer in rows if peer["rack"] == row["rack"] and _takes_replicas(peer)]
        after = held[broker] + added[broker]
        mean = sum(held[peer["broker"]] + added[peer["broker"]] for peer in peers) / max(len(peers), 1)
        if added[broker] > 0 and after > _FAR_ABOVE_MEAN * mean:
            where = "of all brokers" if row["rack"] is None else f"of rack {row['rack']}"
            yield f"Broker {broker} will hold {counted(after, 'replica')}: the mean {where} is {mean:.0f}."
        parts = [
            (round(100 * (used + into[broker]) / total), total)
            for total, used in zip(row["disk_total"] or (), row["disk_used"] or (), strict=True)
            if into[broker] > 0 and used + into[broker] > _FULL_DISK * total > 0
        ]
        for percent, total in sorted(parts, reverse=True)[:1]:
            yield f"A disk of broker {broker} may become {percent} % full: it has {format_bytes(total)}."


def _takes_replicas(row: Mapping[str, Any]) -> bool:
    return row["state"] in ("live", "new") and not row["cordoned"]


def _move_regressions(
    move: Move, racks: Mapping[int, str | None], racks_left: int, min_isr: int | None
) -> Iterator[str]:
    name = move.topic_partition
    before, after = _count_racks(move.before, racks), _count_racks(move.after, racks)
    if after < before and after < len(move.after):
        # The rack rule counts it as broken only if another rack could take a replica.
        why = f": {counted(racks_left, 'rack', 'has', 'have')} a broker for it" if after >= racks_left else ""
        yield f"{name} will be on {counted(after, 'rack')} instead of {before}{why}."
    if len(move.after) < len(move.before):
        yield f"{name} will have {counted(len(move.after), 'replica')} instead of {len(move.before)}."
    if min_isr is not None and len(move.after) < min_isr <= len(move.before):
        yield f"{name} will have fewer replicas than min.insync.replicas, {min_isr}: producers with acks=all will fail."


def _count_racks(replicas: Assignment, racks: Mapping[int, str | None]) -> int:
    """Return the number of racks that hold the replicas; a broker without a rack counts as a rack of its own."""
    return len({racks.get(broker) or broker for broker in replicas})


#: A broker with more than this times the mean replicas of its rack is named, and a disk that is fuller than that part.
_FAR_ABOVE_MEAN, _FULL_DISK = 1.5, 0.85

#: Partitions of a topic from which on it is worth saying that one broker will lead all.
_FEW_PARTITIONS = 4

#: The number of moves and regressions that are listed; the others are only counted.
_SHOWN = 20

#: The section about the rates of others, which may change while a plan waits for its approval.
_RATES = "Rates that others have set"

_CORDONED = "Broker {} is cordoned (cordoned.log.dirs): it keeps its replicas and receives none."


def plan_summary(
    plan: PlanFolder,
    snapshot: SnapshotFolder,
    *,
    moves_shown: int = _SHOWN,
    rates: Sequence[ExternalRate] | None = None,
    connection: str = UNKNOWN_SERVERS,
) -> str:
    """Return the plan as a Markdown page: tables and lists only, because Airflow's Markdown drops everything else.

    At most `moves_shown` moves are listed; the others are counted. `rates` are those of others, None if nobody has
    asked the cluster for them, which the page then says. By the options `connection`, Kafka's tools connect.
    """
    proof = plan.proof
    stricter = None if rates is None else stricter_rates(plan.moves, rates, _throttle(plan))
    cluster_id, operation = (printable(str(proof.get(name))) for name in ("cluster_id", "operation"))
    head = (
        f"Plan **{plan.digest[:12]}** for cluster `{cluster_id}`: **{operation}**. The approval applies to exactly "
        f"this plan, `{plan.digest}`; a new plan needs a new approval."
    )
    parts = [
        head,
        escape_markdown(staying_sentence(plan, snapshot)),
        _format_table(("", ""), _cost_rows(plan, snapshot, stricter)),
        _format_section(_RATES, external_rates_lines(stricter or (), _throttle(plan), connection=connection)),
        _format_section("What it breaks", constraint_regressions(plan.moves, snapshot)),
    ]
    parts += ["### Brokers", _format_table(_BROKER_COLUMNS, _broker_rows(plan.moves, proof))]
    parts += [_format_section("Cordoned", [_CORDONED.format(broker) for broker in cordoned_brokers(snapshot.brokers)])]
    parts += [
        _format_section("Left as they are", not_moved_lines(proof, snapshot)),
        escape_markdown(racks_sentence(proof)),
        _format_section("Notes", proof.get("notes") or ()),
    ]
    moves = [_format_table(_MOVE_COLUMNS, map(_move_row, plan.moves[:moves_shown]))]
    parts += ["### Moves", *moves] if plan.moves else []
    parts += [f"… and {len(plan.moves) - moves_shown} more."] if len(plan.moves) > moves_shown else []
    return "\n\n".join(part for part in parts if part)


def _cost_rows(
    plan: PlanFolder, snapshot: SnapshotFolder, stricter: Sequence[ExternalRate] | None
) -> list[tuple[str, str]]:
    proof = plan.proof
    racks = proof.get("rack_violations") or {}
    if not plan.moves and proof.get("replicas_moved") == 0:
        return [("replicas moved", "none: there is nothing to move")]
    changes = f"{proof.get('leader_changes')}"
    if proof.get("operation") in REORDERING_OPERATIONS:
        return [
            ("replicas moved", "none: only the order of replicas changes"),
            ("partitions touched", f"{len(plan.moves)} of {proof.get('partitions')}"),
            ("preferred leaders that change", f"{changes} (no plan that makes them as even can change fewer)"),
        ]
    return [
        ("replicas moved", f"{proof.get('replicas_moved')} (no plan can move fewer than {proof.get('lower_bound')})"),
        *_drained_row(plan, snapshot),
        *_frontier_rows(proof),
        ("bytes copied", _size_text(plan, snapshot)),
        ("partitions touched", f"{len(plan.moves)} of {proof.get('partitions')}"),
        ("preferred leaders that change", changes),
        *_load_rows(proof),
        ("predicted duration", _predicted_duration(plan, stricter)),
        ("partitions not spread over the racks", f"{racks.get('before', 0)} before, {racks.get('after', 0)} after"),
    ]


def _load_rows(proof: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return how many times the mean producers bring into the fullest broker, before and after the plan."""
    load = proof.get("load") or {}
    known = [
        (name, [load[what][when]["highest_over_mean"] for when in ("before", "after")])
        for name, what in (("bytes in, fullest broker", "replicas"), ("bytes in, fullest leader", "leaders"))
        if load
    ]
    rates = counted(load.get("assumed") or 0, "rate", "is", "are")
    assumed = f"; {rates} assumed" if load.get("assumed") else ""
    return [
        (name, f"{before:.2f} times the mean before, {after:.2f} after{assumed}")
        for name, (before, after) in known
        if before is not None and after is not None
    ]


def _frontier_rows(proof: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what the other values of `topic_spread` would move, where that is something else."""
    own = (proof.get("options") or {}).get("topic_spread")
    frontier = proof.get("frontier") or ()
    known = [costs["replicas_moved"] for costs in frontier if costs["topic_spread"] == own]
    rows = []
    for costs in frontier:
        if costs["replicas_moved"] not in known:
            known.append(costs["replicas_moved"])
            less = costs["topics_less_even"]
            text = f"{counted(costs['replicas_moved'], 'replica')}, {format_bytes(costs['bytes_moved'])}"
            text += f"; {counted(less, 'topic')} less even than can be" if less else ""
            rows.append((f"with topic_spread {costs['topic_spread']}", text))
    return rows


def _size_text(plan: PlanFolder, snapshot: SnapshotFolder) -> str:
    return format_bytes(plan.proof.get("bytes_moved") or 0) + _catching_up_clause(plan.moves, snapshot)


def _drained_row(plan: PlanFolder, snapshot: SnapshotFolder) -> list[tuple[str, str]]:
    """Return how many replicas of a drain are on the brokers that it empties, on dead ones, and move to even out."""
    draining = drained_brokers(plan)
    if not draining:
        return []
    there = sum(len(move.removing.intersection(draining)) for move in plan.moves)
    lost = sum(len(move.removing - _live_brokers(snapshot)) for move in plan.moves)
    more = max(sum(len(move.adding) for move in plan.moves) - there - lost, 0)
    replicas = counted(there, "replica", "is", "are")
    clauses = f", {lost} on dead brokers" if lost else ""
    clauses += f"; {more} more {'evens' if more == 1 else 'even'} out" if more else ""
    return [("of these", f"{replicas} on {name_brokers(draining)}{clauses}")]


def drained_brokers(plan: PlanFolder) -> list[int]:
    """Return the brokers off which a drain moves replicas, sorted; none for another operation."""
    if plan.proof.get("operation") != Operation.DRAIN.value:
        return []
    left = frozenset[int]().union(*(move.removing for move in plan.moves))
    return sorted(left.intersection(plan.proof.get("brokers_draining") or ()))


def _predicted_duration(plan: PlanFolder, stricter: Sequence[ExternalRate] | None) -> str:
    throttle, seconds = _throttle(plan), plan.proof.get("predicted_seconds")
    if stricter and (seconds is not None or not throttle):
        return _duration_at_rates_of_others(plan.moves, stricter, seconds or 0.0)
    if not throttle or seconds is None:
        return "unthrottled: as fast as disks and network allow"
    if vain := ineffective_message(throttle):
        return f"not predicted: {vain}"
    unknown = " (without the rates that others have set)" if stricter is None else ""
    return f"{_at_least(seconds)} at {format_bytes(throttle)}/s into each broker{unknown}"


def _at_least(seconds: float) -> str:
    return f"at least {format_duration(seconds)}" if seconds >= 1 else "less than a second"


def _throttle(plan: PlanFolder) -> int:
    return (plan.proof.get("options") or {}).get("throttle") or 0


def _duration_at_rates_of_others(moves: Sequence[Move], stricter: Sequence[ExternalRate], seconds: float) -> str:
    """Return the least duration, in which the `stricter` rates apply at their brokers, and `seconds` at the others."""
    size, count = Counter[tuple[ThrottleSide, int]](), Counter[tuple[ThrottleSide, int]]()
    senders = throttled_leaders(stricter)
    for move in moves:
        followers = [*move.adding, *throttled_kept(move, stricter)]
        ends = [(ThrottleSide.FOLLOWER, broker) for broker in followers]
        if move.topic_partition in senders:
            ends += [(ThrottleSide.LEADER, senders[move.topic_partition])] * len(followers)
        for end in ends:
            size[end] += move.size_bytes or 0
            count[end] += 1
    # A rate that Kafka's fetches exceed anyhow says nothing about the duration; one of a leader may stop a copy.
    through = {rate: (rate.side, rate.broker) for rate in stricter}
    vain = [rate for rate, at in through.items() if rate.bytes_per_s < max(1, count[at]) * UNLIMITED_BYTES_PER_S]
    slow = [(size[at] / rate.bytes_per_s, rate) for rate, at in through.items() if rate not in vain]
    stopping = [rate for rate in vain if rate.side is ThrottleSide.LEADER]
    strictest = min(stopping or stricter, key=lambda rate: (rate.bytes_per_s, rate))
    least, rate = max(slow, default=(0.0, strictest)) if not stopping else (0.0, strictest)
    way = "out of" if rate.side is ThrottleSide.LEADER else "into"
    where = f"{format_bytes(rate.bytes_per_s)}/s {way} broker {rate.broker}, set by someone else"
    predicted = bool(slow) and not stopping
    return f"{_at_least(max(least, seconds))}, with {where}" if predicted else f"not predicted: {where}"


@dataclass(frozen=True, slots=True)
class PlanTables:
    """A plan as rows of cells, for a terminal: what it costs, what becomes of each broker, its moves, what is left."""

    costs: Sequence[tuple[str, str]]
    broker_columns: Sequence[str]
    brokers: Sequence[tuple[str, ...]]
    move_columns: Sequence[str]
    moves: Sequence[tuple[str, ...]]
    not_moved: Sequence[str]


def plan_tables(
    plan: PlanFolder, snapshot: SnapshotFolder, *, shown: int = _SHOWN, stricter: Sequence[ExternalRate] = ()
) -> PlanTables:
    """Return the tables of `plan_summary`, with at most `shown` moves.

    `stricter` are the rates of others that apply instead of the throttle at brokers that receive replicas.
    """
    return PlanTables(
        costs=_cost_rows(plan, snapshot, stricter),
        broker_columns=_BROKER_COLUMNS,
        brokers=_broker_rows(plan.moves, plan.proof),
        move_columns=_MOVE_COLUMNS,
        moves=[_move_row(move) for move in plan.moves[:shown]],
        not_moved=not_moved_lines(plan.proof, snapshot),
    )


_MOVE_COLUMNS = ("partition", "from", "to", "size", "why")

_BROKER_COLUMNS = ("broker", "replicas", "leaders", "bytes", "replicas in", "replicas out", "bytes in")


def _broker_rows(moves: Sequence[Move], proof: Mapping[str, Any]) -> list[tuple[str, ...]]:
    into, out_of, size = Counter[int](), Counter[int](), Counter[int]()
    for move in moves:
        into.update(move.adding)
        out_of.update(move.removing)
        size.update(dict.fromkeys(move.adding, move.size_bytes or 0))
    spread = proof.get("spread") or {}
    named = {int(broker) for broker in ((spread.get("replicas") or {}).get("before") or {}).get("by_broker", ())}
    return [
        (
            str(broker),
            *(_format_before_and_after(spread, what, broker) for what in ("replicas", "leaders", "bytes")),
            str(into[broker]),
            str(out_of[broker]),
            format_bytes(size[broker]),
        )
        for broker in sorted(named | into.keys() | out_of.keys())
    ]


def _format_before_and_after(spread: Mapping[str, Any], what: str, broker: int) -> str:
    both = [
        ((spread.get(what) or {}).get(when) or {}).get("by_broker", {}).get(str(broker)) for when in ("before", "after")
    ]
    return " → ".join("?" if load is None else format_bytes(load) if what == "bytes" else str(load) for load in both)


def staying_sentence(plan: PlanFolder, snapshot: SnapshotFolder) -> str:
    """Return that drained brokers will not be empty, and what stays there, with the reasons; empty if nothing does."""
    proof = plan.proof
    if proof.get("operation") != Operation.DRAIN.value:
        return ""
    draining = set(proof.get("brokers_draining") or ())
    if not draining:
        return ""
    listed = [*(proof.get("unplaced") or ()), *(proof.get("pinned") or ())]
    reasons = {TopicPartition(one["topic"], one["partition"]): str(one["reason"]) for one in listed}
    after = {move.topic_partition: move.after for move in plan.moves}
    staying = {
        name: there
        for name, replicas in _partitions_on(draining, snapshot.partitions)
        if (there := draining.intersection(after.get(name, replicas)))
    }
    if not staying:
        return ""
    brokers = sorted(set[int]().union(*staying.values()))
    options = Options.of(Operation.DRAIN, proof.get("options") or {})
    named = []
    for name in sorted(staying)[:_NAMED]:
        waits = options.has_budget and options.takes(name.topic, Operation.DRAIN)
        why = "max_moves or max_bytes leaves it to a later plan" if waits else "the plan leaves it out"
        why = reason_to_leave(reasons[name]).partition(";")[0] if name in reasons else why
        named.append(f"{name} ({why})")
    count = counted(len(staying), "partition", "stays", "stay")
    them = "it" if len(brokers) == 1 else "them"
    begin = begin_with_brokers(brokers, "will not be empty", "will not be empty")
    return f"{begin}: {count} on {them}: {name_some(named, _NAMED, len(staying))}."


def _partitions_on(brokers: Collection[int], partitions: pa.Table) -> Iterator[tuple[TopicPartition, Sequence[int]]]:
    """Yield the partitions that have a replica on one of the brokers, with their replicas."""
    replicas = partitions["replicas"].combine_chunks()
    there = pc.is_in(pc.list_flatten(replicas), pa.array(sorted(brokers), replicas.type.value_type))
    rows = pc.unique(pc.list_parent_indices(replicas).filter(there))
    for row in partitions.select(["topic", "partition", "replicas"]).take(rows).to_pylist():
        yield TopicPartition(row["topic"], row["partition"]), row["replicas"]


#: Reasons of partitions of which nothing can be copied: some operations list these also if they need no change.
_LEADERLESS = frozenset({"all_replicas_lost", "no_leader"})


def partitions_in_need(
    listed: Iterable[Mapping[str, Any]], proof: Mapping[str, Any], snapshot: SnapshotFolder | None
) -> list[TopicPartition]:
    """Return those partitions, of the ones that a proof lists as left, that its operation would have changed. Pure.

    The others are as they would be without the operation. Without a snapshot, which ones these are is not known.
    """
    reasons = {TopicPartition(one["topic"], one["partition"]): one.get("reason") for one in listed}
    operation, draining = proof["operation"], set(proof.get("brokers_draining") or ())
    factor = (proof.get("options") or {}).get("replication_factor")
    if operation in EVEN_OPERATIONS:
        unclear = {name for name, reason in reasons.items() if reason != "too_few_brokers"}
    elif operation == Operation.SET_REPLICATION_FACTOR:
        unclear = {name for name, reason in reasons.items() if reason in _LEADERLESS}
    else:
        unclear = set()
    if snapshot is None or not unclear:
        return list(reasons)
    spared = {
        name
        for name, replicas in _replicas_of(unclear, snapshot.partitions)
        if (len(replicas) == factor if operation not in EVEN_OPERATIONS else draining.isdisjoint(replicas))
    }
    return [name for name in reasons if name not in spared]


def _replicas_of(names: Collection[TopicPartition], table: pa.Table) -> Iterator[tuple[TopicPartition, Sequence[int]]]:
    topics = pa.array(sorted({name.topic for name in names}), pa.string())
    chosen = table.filter(pc.is_in(table["topic"], topics))
    for row in chosen.select(["topic", "partition", "replicas"]).to_pylist():
        if (name := TopicPartition(row["topic"], row["partition"])) in names:
            yield name, row["replicas"]


def not_moved_lines(proof: Mapping[str, Any], snapshot: SnapshotFolder) -> list[str]:
    """Return a clause for each partition that needs a change and does not get it: why, and what a person can do."""
    left = [
        (TopicPartition(one["topic"], one["partition"]), str(one["reason"]))
        for one in [*(proof.get("unplaced") or ()), *(proof.get("pinned") or ())]
    ]
    returning = brokers_to_bring_back(dict(left), snapshot)
    return [f"{name}: {reason_to_leave(reason, *returning.get(name, ()))}" for name, reason in left]


def brokers_to_bring_back(
    left: Mapping[TopicPartition, str], snapshot: SnapshotFolder
) -> dict[TopicPartition, tuple[list[int], list[int]]]:
    """Return, for those of the partitions that a plan left for want of a leader, the brokers one of which would lead.

    Beside them those of them that are live: a log directory has failed. `left` has the reasons of the proof.
    """
    leaderless = {name for name, reason in left.items() if reason in _LEADERLESS}
    topics = pa.array(sorted({name.topic for name in leaderless}), pa.string())
    chosen = snapshot.partitions.filter(pc.is_in(snapshot.partitions["topic"], topics))
    live, returning = _live_brokers(snapshot), {}
    broken = {row["broker"] for row in snapshot.brokers.to_pylist() if row["disk_failed"]}
    for row in chosen.to_pylist():
        if (name := TopicPartition(row["topic"], row["partition"])) in leaderless:
            serving = () if row["all_offline"] else live.difference(broken, row["offline"] or ())
            brokers = last_in_sync(row["replicas"], row["isr"], serving)
            returning[name] = brokers, [broker for broker in brokers if broker in live]
    return returning


def _move_row(move: Move) -> tuple[str, ...]:
    size = "?" if move.size_bytes is None else format_bytes(move.size_bytes)
    before, after = (", ".join(map(str, replicas)) for replicas in (move.before, move.after))
    return str(move.topic_partition), before, after, size, MoveReason.in_words(move.purpose)


def _format_section(title: str, lines: Sequence[str]) -> str:
    if not lines:
        return ""
    more = [f"- … and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    return "\n".join([f"### {title}", "", *(f"- {escape_markdown(line)}" for line in lines[:_SHOWN]), *more])


def _format_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *([escape_markdown(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


#: Moves that the page lists. Airflow places the buttons below the page, and its Markdown folds nothing.
_MOVES = 8

#: What a page says of the rates of others: the predicted duration, and a section of its own.
_OF_RATES = re.compile(rf"^(\| predicted duration \|.*$|### {_RATES}\n\n(- .*\n)+\n)", re.MULTILINE)

#: The state of the brokers that an operation is about, but for a drain.
_SUBJECT_STATES = {"heal": "failed", "expand": "new"}


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """The texts of a request for approval: `subject` is plain text, `body` Markdown."""

    subject: str
    body: str


def make_approval_request(
    plan: PlanFolder,
    snapshot: SnapshotFolder,
    *,
    connection: str,
    requested_by: str,
    rates: Sequence[ExternalRate] = (),
    tools: str = UNKNOWN_SERVERS,
) -> ApprovalRequest:
    """Return the request: the cluster by its connection, the operation and its brokers, its cost, and who asked.

    The duration is predicted with the `rates` of others. By the options `tools`, Kafka's tools connect.
    """
    proof = plan.proof
    operation, replicas = str(proof.get("operation")), proof.get("replicas_moved")
    size = _size_text(plan, snapshot)
    what = " ".join(filter(None, (operation, _subject_brokers(operation, plan, snapshot))))
    cost = f"move {replicas} {'replica' if replicas == 1 else 'replicas'}, {size}"
    if operation in REORDERING_OPERATIONS:
        cost = f"change {counted(proof.get('leader_changes') or 0, 'leader')} and copy nothing"
    head = f"Cluster: connection **{escape_markdown(connection)}**. Requested by {escape_markdown(requested_by)}."
    body = f"{head}\n\n{plan_summary(plan, snapshot, moves_shown=_MOVES, rates=rates, connection=tools)}"
    return ApprovalRequest(f"{connection}: {what}: {cost}?", body)


def is_same_page(shown: str, body: str) -> bool:
    """Return whether two pages differ at most in what they say of the rates of others, who may change them."""
    return _OF_RATES.sub("", shown) == _OF_RATES.sub("", body)


def _subject_brokers(operation: str, plan: PlanFolder, snapshot: SnapshotFolder) -> str:
    """Return the brokers that are drained, healed, demoted, promoted, or filled with the first replicas: `broker 4`."""
    state = _SUBJECT_STATES.get(operation)
    subjects = sorted(row["broker"] for row in snapshot.brokers.to_pylist() if row["state"] == state)
    # The options of a demotion and a promotion are named as the operations are.
    brokers = subjects or drained_brokers(plan) or (plan.proof.get("options") or {}).get(operation)
    if not brokers:
        return ""
    return f"{'broker' if len(brokers) == 1 else 'brokers'} {', '.join(map(str, brokers))}"
