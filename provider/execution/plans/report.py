"""The summary of a plan for its approver, and the outcome of a plan that an operator requested. Pure.

The summary is Markdown: the plan's proof, its moves by broker, and the constraints that it makes worse.

The outcome has every partition, in one message and a list. What a drain and a fill achieved is read from snapshots.
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
    Assignment,
    Move,
    MoveReason,
    Operation,
    TopicPartition,
    begin_with_brokers,
    bring_back,
    counted,
    last_in_sync,
    name_brokers,
    name_some,
    only_reorders,
)
from kafka_steward.cluster.state import BrokerLogDirs, Snapshot
from kafka_steward.errors import RequestError
from kafka_steward.escaping import escape_markdown, printable
from kafka_steward.execution.moves.states import DONE, bytes_to_copy
from kafka_steward.execution.throttles.rates import (
    UNKNOWN_SERVERS,
    UNLIMITED_BYTES_PER_S,
    ExternalRate,
    ThrottleSide,
    external_rates_lines,
    ineffective_message,
    limiting_rates,
)
from kafka_steward.journal.observed import ProofSummary
from kafka_steward.journal.records import MoveRow, MoveState
from kafka_steward.planning.files.formats import PlanFolder, SnapshotFolder, cordoned_brokers, min_isr_by_topic
from kafka_steward.planning.options import Options
from kafka_steward.rack_rule import RackRule, rack_left_sentence


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
    and for each that is to receive more bytes than it has room for, come first.
    """
    racks = {row["broker"]: row["rack"] for row in snapshot.brokers.to_pylist()}
    min_isr = min_isr_by_topic(snapshot.partitions)
    return [
        *_leader_regressions(moves, snapshot),
        *_room_regressions(moves, snapshot),
        *(sentence for move in moves for sentence in _move_regressions(move, racks, min_isr.get(move.topic))),
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


def _room_regressions(moves: Sequence[Move], snapshot: SnapshotFolder) -> Iterator[str]:
    """Yield a message for each broker that is to receive more bytes than its log directories have room for."""
    into = Counter[int]()
    for move in moves:
        into.update(dict.fromkeys(move.adding, move.size_bytes or 0))
    for row in snapshot.brokers.sort_by("broker").select(["broker", "usable_bytes"]).to_pylist():
        coming, room = into[row["broker"]], row["usable_bytes"]
        if room is not None and coming > room:
            yield (
                f"Broker {row['broker']} is to receive {format_bytes(coming)} and has {format_bytes(room)} free: what "
                "does not fit is not moved; free some, or exclude the broker."
            )


def _move_regressions(move: Move, racks: Mapping[int, str | None], min_isr: int | None) -> Iterator[str]:
    name = move.topic_partition
    before, after = _count_racks(move.before, racks), _count_racks(move.after, racks)
    if after < before and after < len(move.after):
        yield f"{name} will be on {counted(after, 'rack')} instead of {before}."
    if len(move.after) < len(move.before):
        yield f"{name} will have {counted(len(move.after), 'replica')} instead of {len(move.before)}."
    if min_isr is not None and len(move.after) < min_isr <= len(move.before):
        yield f"{name} will have fewer replicas than min.insync.replicas, {min_isr}: producers with acks=all will fail."


def _count_racks(replicas: Assignment, racks: Mapping[int, str | None]) -> int:
    """Return the number of racks that hold the replicas; a broker without a rack counts as a rack of its own."""
    return len({racks.get(broker) or broker for broker in replicas})


#: Partitions of a topic from which on it is worth saying that one broker will lead all.
_FEW_PARTITIONS = 4

#: The number of moves and regressions that are listed; the others are only counted.
_SHOWN = 20

#: The section about the rates of others, which may change while a plan waits for its approval.
_RATES = "Rates that others have set"

_CORDONED = "Broker {} is cordoned (cordoned.log.dirs): it keeps its replicas and receives none."

_UNITS = ("B", "kB", "MB", "GB", "TB")


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


def format_bytes(count: float) -> str:
    """Return a number of bytes in readable form, in powers of 1000: `1.2 GB`."""
    for unit in _UNITS[:-1]:
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} {_UNITS[-1]}"


def format_duration(seconds: float) -> str:
    """Return a duration in readable form: `40 s`, `12 min`, `3 h 5 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _cost_rows(
    plan: PlanFolder, snapshot: SnapshotFolder, stricter: Sequence[ExternalRate] | None
) -> list[tuple[str, str]]:
    proof = plan.proof
    racks = proof.get("rack_violations") or {}
    if not plan.moves and proof.get("replicas_moved") == 0:
        return [("replicas moved", "none: there is nothing to move")]
    return [
        ("replicas moved", f"{proof.get('replicas_moved')} (no plan can move fewer than {proof.get('lower_bound')})"),
        *_drained_row(plan, snapshot),
        ("bytes copied", _size_text(plan, snapshot)),
        ("partitions touched", f"{len(plan.moves)} of {proof.get('partitions')}"),
        ("preferred leaders that change", f"{proof.get('leader_changes')}"),
        ("predicted duration", _predicted_duration(plan, stricter)),
        ("partitions not spread over the racks", f"{racks.get('before', 0)} before, {racks.get('after', 0)} after"),
    ]


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
    return f"at least {format_duration(seconds)} at {format_bytes(throttle)}/s into each broker{unknown}"


def _throttle(plan: PlanFolder) -> int:
    return (plan.proof.get("options") or {}).get("throttle") or 0


def stricter_rates(moves: Sequence[Move], rates: Sequence[ExternalRate], throttle: int) -> list[ExternalRate]:
    """Return the rates of others that limit the moves more than `throttle`: of followers and of leaders. Pure.

    A replica that stays and is out of sync has no throttle of ours: a rate of others limits it in any case.
    """
    senders = _throttled_leaders(rates)
    copies = {(senders.get(move.topic_partition), broker) for move in moves for broker in move.adding}
    kept = {(senders.get(move.topic_partition), broker) for move in moves for broker in _throttled_kept(move, rates)}
    return sorted({*(limiting_rates(copies, rates, throttle) if throttle else ()), *limiting_rates(kept, rates, 0)})


def _throttled_kept(move: Move, rates: Sequence[ExternalRate]) -> list[int]:
    """Return the brokers of replicas that stay and are out of sync, and that a rate of others throttles."""
    return [
        rate.broker
        for rate in rates
        if rate.side is ThrottleSide.FOLLOWER
        and move.topic_partition in rate.partitions
        and rate.broker in frozenset(move.after) - move.adding
    ]


def _throttled_leaders(rates: Sequence[ExternalRate]) -> dict[TopicPartition, int]:
    return {name: rate.broker for rate in rates if rate.side is ThrottleSide.LEADER for name in rate.partitions}


def _duration_at_rates_of_others(moves: Sequence[Move], stricter: Sequence[ExternalRate], seconds: float) -> str:
    """Return the least duration, in which the `stricter` rates apply at their brokers, and `seconds` at the others."""
    size, count = Counter[tuple[ThrottleSide, int]](), Counter[tuple[ThrottleSide, int]]()
    senders = _throttled_leaders(stricter)
    for move in moves:
        followers = [*move.adding, *_throttled_kept(move, stricter)]
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
    return f"at least {format_duration(max(least, seconds))}, with {where}" if predicted else f"not predicted: {where}"


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


#: Why a partition was left as it is, and what a person can do, by the reasons of a proof.
REASONS_TO_LEAVE = {
    "all_replicas_lost": (
        "no replica of it is live, and moving it would lose its data; {bring_back}, or delete the topic, if that "
        "is not under way already"
    ),
    "no_leader": (
        "it has no leader, and so nothing to copy from; {bring_back}, let a replica lead that is out of sync, which "
        "loses data (kafka-leader-election.sh --election-type unclean), or delete the topic, "
        "if that is not under way already"
    ),
    "too_few_brokers": ("too few brokers may hold its replicas; start or add brokers, or lower its replication factor"),
    "below_min_isr": (
        "it would have fewer replicas than min.insync.replicas; ask for more replicas, or lower min.insync.replicas of "
        "its topic"
    ),
    "in_flight": (
        "a reassignment of it is in flight; make another plan when that has ended, or cancel one that does not end "
        "(kafka-reassign-partitions.sh --cancel)"
    ),
    "out_of_sync": (
        "a live replica of it is out of sync, and a move would wait for it; look for a throttle that somebody left "
        "(doctor), a failed log directory or another fault of its broker, and make another plan when it is in sync"
    ),
    "pinned": "the option pin keeps it as it is",
    "excluded": "the plan leaves out its topic, by include, exclude, internal_topics or service_topics",
}


#: Partitions that a sentence names; the others are only counted.
_NAMED = 3

#: The reasons of a proof's `pinned` partitions; those of all others are in `unplaced`.
_PINNED = frozenset({"in_flight", "out_of_sync", "pinned", "excluded"})

#: Why a partition stays for now that may need a change, by the reason in the proof.
_HELD = {
    "in_flight": "it is being reassigned",
    "out_of_sync": "a live replica of it is out of sync",
    "all_replicas_lost": "no replica of it is live",
    "no_leader": "it has no leader",
}


def held_sentence(proof: Mapping[str, Any]) -> str:
    """Return which partitions a plan leaves for now although they may need a change; empty without any."""
    held = [
        f"{TopicPartition(one['topic'], one['partition'])} ({_HELD[one['reason']]})"
        for one in [*(proof.get("unplaced") or ()), *(proof.get("pinned") or ())]
        if one["reason"] in _HELD
    ]
    return f"Left as it is for now: {name_some(held, _NAMED)}." if held else ""


def racks_sentence(proof: Mapping[str, Any]) -> str:
    """Return which partitions break the rack rule after the plan, and why it leaves them; empty without any."""
    left = proof.get("rack_left") or {}
    first = [(one["topic"], one["partition"], one["reason"]) for one in left.get("first") or ()]
    return rack_left_sentence(first, left.get("counts") or {})


#: The reasons why a repair of the racks leaves what it had to change, unless a person left it out or a budget did.
_RACKS_IN_NEED = frozenset({RackRule.OUT_OF_SYNC.word, RackRule.EXCLUDED_BROKERS.word})


def racks_in_need(proof: Mapping[str, Any]) -> tuple[Counter[str], list[TopicPartition]]:
    """Return how many partitions a repair of the racks had to change and leaves, by reason, and the first of them."""
    racks_only = (proof.get("options") or {}).get("balance") == "racks"
    left = (proof.get("rack_left") or {}) if racks_only else {}
    first = [one for one in left.get("first") or () if one["reason"] in _RACKS_IN_NEED]
    counts = {word: count for word, count in (left.get("counts") or {}).items() if word in _RACKS_IN_NEED}
    return Counter(counts), [TopicPartition(one["topic"], one["partition"]) for one in first]


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


def reason_to_leave(reason: str, brokers: Sequence[int] = (), disks: Collection[int] = ()) -> str:
    """Return why a partition was left as it was and what a person can do; one of `brokers` would lead it again.

    Those of `disks` are live, and have its replica in a failed log directory.
    """
    words = REASONS_TO_LEAVE.get(reason)
    return reason.replace("_", " ") if words is None else words.format(bring_back=bring_back(brokers, disks))


def left_sentence(proof: ProofSummary, unplaced: int | None = None) -> str:
    """Return how many partitions a plan left, why, and the first few of each reason; empty without any.

    `unplaced` of those that it could not place are partitions that it had to change; None if that is not known.
    """
    total, clauses = sum(proof.left_counts.values()), []
    for reason, count in proof.left_counts.items():
        names = [TopicPartition(*partition[:2]) for partition in proof.left if partition.reason == reason]
        clauses.append(f"{name_some(names, _NAMED, count)} ({reason_to_leave(reason).partition(';')[0]})")
    listed = sum(count for reason, count in proof.left_counts.items() if reason not in _PINNED)
    spared = 0 if unplaced is None else max(listed - unplaced, 0)
    of = f"{spared} of " if spared < total else ""
    which = f", {of}which it had no need to change" if spared else ""
    return f"Its plan left {counted(total, 'partition')}{which}: {'; '.join(clauses)}." if total else ""


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


#: What a plan without moves says.
NOTHING_TO_MOVE = "there was nothing to move."


@dataclass(frozen=True, slots=True)
class PlanOutcome:
    """What a plan did, by its rows: the counts of partitions by result, and of the replicas that it placed.

    `not_done` lists the planned partitions that were not moved, with reasons.
    """

    moved: int
    satisfied: int
    not_done: Sequence[tuple[str, str]]
    replicas_placed: int = 0

    @property
    def sentence(self) -> str:
        """Return a message: the moves that were done, and those that were not, with the reason."""
        if not (self.moved or self.satisfied or self.not_done):
            return NOTHING_TO_MOVE
        message = f"{counted(self.moved, 'partition', 'was', 'were')} moved"
        message += f", {self.satisfied} no longer needed to move." if self.satisfied else "."
        if not self.not_done:
            return message
        name, why = self.not_done[0]
        left = len(self.not_done)
        more = f" {counted(left - 1, 'more move', 'is', 'are')} held." if left > 1 else ""
        return (
            f"{message} {counted(left, 'partition', 'was', 'were')} not moved as approved, and no other moves "
            f"were made: {name}, {why.rstrip('.')}.{more}"
        )

    def account(self, done: str, *, left: int = 0, again: int = 0) -> str:
        """Return a clause that counts each partition that was due once, by what became of it; it ends a message.

        `done` is what was done with those that were moved, such as `repaired`; `again` of them are under-replicated
        again. The plan did not plan `left` more. `of 3 partitions due, 1 was repaired and 2 were not moved: t-1, ...`
        """
        undone = len(self.not_done)
        total = self.moved + self.satisfied + undone + left
        if not total:
            return NOTHING_TO_MOVE
        ends = {
            f"were {done}": self.moved - again,
            "were moved and are under-replicated again": again,
            "no longer needed to move": self.satisfied,
            "were left by the plan": left,
            "were not moved": undone,
        }
        done_any = self.moved or self.satisfied
        counts = {end: number for end, number in ends.items() if number or (end == f"were {done}" and not done_any)}
        *parts, last = [
            f"{number} {end.replace('were ', 'was ').replace(' are ', ' is ') if number == 1 else end}"
            for end, number in counts.items()
        ]
        message = f"of {counted(total, 'partition')} due, {', '.join(parts)}{' and ' if parts else ''}{last}"
        if not undone:
            return f"{message}."
        (name, why), more = self.not_done[0], undone - 1
        return f"{message}: {name}, {why.rstrip('.')}{f'; and {more} more' if more else ''}."


def summarize_outcome(rows: Sequence[MoveRow]) -> PlanOutcome:
    """Return the outcome of a finished plan from its rows."""
    counts = Counter(row.state for row in rows)
    return PlanOutcome(
        counts[MoveState.COMPLETED],
        counts[MoveState.SATISFIED],
        [(str(row.topic_partition), _reason(row)) for row in rows if row.state not in DONE],
        sum(len(row.move.adding) for row in rows if row.state is MoveState.COMPLETED),
    )


def _reason(row: MoveRow) -> str:
    """Return why a move was not made, without the name of its partition, which messages put before it."""
    return row.detail.removeprefix(f"{row.topic_partition} was not moved: ") or row.state.value


#: The number of partitions that a message names; the others are only counted.
_NAMED = 3


def refuse_invalid_drain(snapshot: Snapshot, brokers: Collection[int]) -> None:
    """Raise RequestError for brokers that are not live, or if no live broker would be left."""
    unknown = sorted(set(brokers) - snapshot.live)
    if unknown:
        broker, live = unknown[0], ", ".join(map(str, sorted(snapshot.live)))
        hosts = broker in snapshot.hosting_brokers
        why = "it is not live" if hosts or broker in snapshot.brokers else f"the cluster has no broker {broker}"
        heal = " A dead broker is emptied by heal." if hosts else ""
        raise RequestError(f"Broker {broker} cannot be drained: {why}; the live brokers are {live}.{heal}")
    if brokers and snapshot.live <= set(brokers):
        raise RequestError("All live brokers would be drained, and none would be left to host their replicas.")


@dataclass(frozen=True, slots=True)
class DrainStatus:
    """The replicas that remain on the drained brokers.

    `assigned` are partitions that are still assigned to one of them. `undeleted_logs` are partitions that are not
    assigned there any more, and whose logs Kafka has yet to delete. `unresponsive` are drained brokers that are live
    and did not report their log directories.
    """

    brokers: Sequence[int]
    assigned: Sequence[TopicPartition]
    undeleted_logs: Sequence[TopicPartition]
    unresponsive: Sequence[int] = ()

    @property
    def is_empty(self) -> bool:
        """Return True if no replica is left in the metadata or on the disks, and every live broker reported."""
        return not self.assigned and not self.undeleted_logs and not self.unresponsive

    @property
    def sentence(self) -> str:
        """Return a message: the remaining replicas, and the next action of the operator."""
        it, they_are = "it" if len(self.brokers) == 1 else "them", begin_with_brokers(self.brokers, "is", "are")
        if self.assigned:
            are, them = ("is", "it") if len(self.assigned) == 1 else ("are", "them")
            return (
                f"{they_are} not empty yet: {name_some(self.assigned, _NAMED)} {are} still assigned there; "
                f"drain again once nothing keeps {them} there, and do not stop {it} before."
            )
        unassigned = f"{begin_with_brokers(self.brokers, 'no longer has', 'no longer have')} an assigned replica"
        if self.undeleted_logs:
            return f"{unassigned}; Kafka has not yet deleted {len(self.undeleted_logs)} from disk."
        if self.unresponsive:
            return f"{unassigned}; {name_brokers(self.unresponsive)} did not report which logs are still on disk."
        return (
            f"{they_are} empty in Kafka. Next: stop {it} before new topics are placed on {it}, and on KRaft "
            f"unregister {it} (kafka-cluster.sh unregister)."
        )


def drain_status(snapshot: Snapshot, log_dirs: Mapping[int, BrokerLogDirs], brokers: Collection[int]) -> DrainStatus:
    """Return the replicas on `brokers` according to the metadata and to their own log directories."""
    wanted = frozenset(brokers)
    assigned = sorted(name for name, partition in snapshot.partitions.items() if wanted & frozenset(partition.replicas))
    held = {name for broker in wanted & log_dirs.keys() for name in log_dirs[broker].replica_bytes}
    silent = (wanted & snapshot.live) - log_dirs.keys()
    return DrainStatus(
        tuple(sorted(wanted)), tuple(assigned), tuple(sorted(held - set(assigned))), tuple(sorted(silent))
    )


@dataclass(frozen=True, slots=True)
class OutOfSyncPartition:
    """A partition that is not fully replicated: its replicas that are not in sync, and the reassignment flag."""

    topic: str
    partition: int
    missing: tuple[int, ...]
    reassigning: bool

    @property
    def sentence(self) -> str:
        """Return a message that names the brokers that are not in sync, or the reassignment in flight."""
        name = TopicPartition(self.topic, self.partition)
        if not self.missing:
            return f"{name} is being moved."
        moved = " and is being moved" if self.reassigning else ""
        return f"{name} waits for {name_brokers(self.missing)} to be in sync{moved}."


def find_out_of_sync(
    snapshot: Snapshot, partitions: Collection[TopicPartition] | None = None
) -> tuple[OutOfSyncPartition, ...]:
    """Return the partitions with a replica out of the ISR or a reassignment in flight, sorted.

    Only `partitions` are checked, or all if it is None. Partitions that do not exist are left out.
    """
    names = snapshot.partitions.keys() if partitions is None else set(partitions) & snapshot.partitions.keys()
    lagging = []
    for partition in (snapshot.partitions[name] for name in sorted(names)):
        missing = tuple(broker for broker in partition.replicas if broker not in partition.isr)
        if missing or partition.reassigning:
            lagging.append(OutOfSyncPartition(*partition.topic_partition, missing, partition.reassigning))
    return tuple(lagging)


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
    head = f"Cluster: connection **{escape_markdown(connection)}**. Requested by {escape_markdown(requested_by)}."
    body = f"{head}\n\n{plan_summary(plan, snapshot, moves_shown=_MOVES, rates=rates, connection=tools)}"
    return ApprovalRequest(f"{connection}: {what}: {cost}?", body)


def is_same_page(shown: str, body: str) -> bool:
    """Return whether two pages differ at most in what they say of the rates of others, who may change them."""
    return _OF_RATES.sub("", shown) == _OF_RATES.sub("", body)


def _subject_brokers(operation: str, plan: PlanFolder, snapshot: SnapshotFolder) -> str:
    """Return the brokers that are drained, healed or filled with the first replicas: `broker 4`, `brokers 4, 5`."""
    state = _SUBJECT_STATES.get(operation)
    subjects = sorted(row["broker"] for row in snapshot.brokers.to_pylist() if row["state"] == state)
    brokers = subjects or drained_brokers(plan)
    if not brokers:
        return ""
    return f"{'broker' if len(brokers) == 1 else 'brokers'} {', '.join(map(str, brokers))}"
