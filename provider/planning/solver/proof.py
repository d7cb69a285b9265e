"""Measure a candidate plan, and write the fields of its proof: its movement, the least possible, and the balance.

The measures of a candidate plan are counts of one shard, which add up over the shards. `proof_fields` turns the sums of
all shards into the proof that people and the checker read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from kafka_steward.assignment import EVEN_OPERATIONS, GIVEN_OPERATIONS, REORDERING_OPERATIONS, Operation, counted
from kafka_steward.planning.options import Options
from kafka_steward.planning.solver.candidate import CandidatePlan
from kafka_steward.planning.solver.fair_shares import rack_spread_violated
from kafka_steward.planning.solver.flow import mebibytes
from kafka_steward.planning.solver.leader_bytes import BY_BYTES, NEAR_BY_BYTES
from kafka_steward.planning.solver.leaders import (
    build_leadership,
    equal_shares,
    fewest_leader_changes,
    has_level_leaders,
    keepable_leaders,
)
from kafka_steward.planning.solver.plan_rows import sending_brokers
from kafka_steward.planning.solver.problem import (
    Brokers,
    Disposition,
    Ints,
    PartitionTable,
    Problem,
    count_pairs,
    leaderless_dispositions,
    static_dispositions,
    sum_by,
)
from kafka_steward.rack_rule import NAMED, RackRule, judge_racks
from kafka_steward.service_topics import matches_any

#: Reasons that mean "not now" rather than "impossible".
_PINNED = ("in_flight", "pinned", "excluded", "out_of_sync")
#: The counts that a proof contains unchanged.
_COUNTED = (
    *("partitions", "partitions_moved", "replicas_moved", "bytes_moved"),
    *("lower_bound", "leader_changes", "leader_changes_forced"),
)
#: The words for how even leaders are, the best first. "topic-even" is for many shards: each topic is led evenly, and
#: the brokers over all topics not quite.
LEADER_EVENNESS = ("even", "topic-even", "global-even", "proportional")
#: The number of topics with the widest spread that a proof names.
_NAMED = 5
#: The part of all partitions from which on a note names a broker that is alone in its rack.
_MOST = 0.75
#: Before the reason in the name of a count.
_RACK_LEFT = "rack_left_"
#: The count of replicas that would move if room did not limit the plan.
_WITHOUT_LIMIT = "moved_without_limit"
_ROOM_PROVEN = "room_proven"
#: The count of partitions whose rate is assumed; there is none if no rate is known.
_ASSUMED = "rates_assumed"
#: The number of replicas out of sync that the notes of a shard name; they only count the rest.
_NAMED_LATE = 10


@dataclass(frozen=True)
class Balance:
    """Replicas, leaders and bytes per broker, partitions per pair (preferred leader, next in line), and topic spreads.

    A topic's spread is the replicas on its fullest usable broker minus those on its emptiest. `spreads` is the number
    of topics per spread, `widest` names the worst few.
    """

    replicas: Ints
    leaders: Ints
    bytes: Ints
    #: The bytes per second that come into all replicas, and into those that lead; 0 if no rate is known.
    bytes_in: Ints
    leader_bytes_in: Ints
    pairs: Ints
    spreads: dict[str, int]
    widest: list[tuple[str, int]]

    @classmethod
    def of(cls, rows: PartitionTable, row: Ints, broker: Ints, brokers: Brokers) -> Balance:
        """Measure the balance of the rows with the given replicas."""
        count = len(brokers)
        first = np.flatnonzero(np.diff(row, prepend=-1))
        # Only a row with a second replica has a next in line.
        lead = first[np.append(np.diff(row) == 0, False)[first]]
        spread = np.zeros(len(rows.topics), np.int64)
        if brokers.receivers.any():
            usable = count_pairs(rows.topic[row], broker, (len(rows.topics), count))[:, brokers.receivers]
            spread = usable.max(axis=1) - usable.min(axis=1)
        worst = np.argsort(-spread, kind="stable")[:_NAMED].tolist()
        rates = np.zeros(len(rows), np.int64) if rows.bytes_per_s is None else rows.bytes_per_s
        return cls(
            replicas=np.bincount(broker, minlength=count),
            leaders=np.bincount(broker[first], minlength=count),
            bytes=sum_by(rows.size[row], broker, count),
            bytes_in=_sum_rates(rates[row], broker, count),
            leader_bytes_in=_sum_rates(rates[row[first]], broker[first], count),
            pairs=count_pairs(broker[lead], broker[lead + 1], (count, count)).ravel(),
            spreads={str(value): int(topics) for value, topics in enumerate(np.bincount(spread)) if topics},
            widest=[(rows.topics[topic], int(spread[topic])) for topic in worst],
        )

    def report(self, brokers: Brokers) -> dict[str, Any]:
        """Return one side of the field `spread` of a proof."""
        worst = sorted(self.widest, key=lambda topic: (-topic[1], topic[0]))[:_NAMED]
        return {
            "replicas": _summary_per_broker(self.replicas, brokers),
            "leaders": _summary_per_broker(self.leaders, brokers),
            "bytes": _summary_per_broker(self.bytes, brokers),
            "topics": {
                "by_spread": self.spreads,
                "widest": [{"topic": name, "spread": spread} for name, spread in worst],
            },
            "topic_widest": max(map(int, self.spreads), default=0),
            "next_in_line": _failover_summary(self.pairs, self.leaders, brokers),
            "next_in_line_most": int(self.pairs.max(initial=0)),
        }


def _sum_rates(rates: Ints, broker: Ints, count: int) -> Ints:
    # The floats of bincount hold these sums exactly, and it is quicker than `sum_by`.
    return np.bincount(broker, rates, count).astype(np.int64)


@dataclass(frozen=True)
class Measures:
    """Sums of one shard, or of all. Arrays are per broker."""

    counts: dict[str, int]
    before: Balance
    after: Balance
    bytes_in: Ints
    bytes_out: Ints
    #: Leaders of planned partitions that each broker could keep, and leaders that the plan gives it.
    leaders_keepable: Ints
    leaders_planned: Ints
    #: The fewest leader changes, if the shard's flow was solved.
    leader_bounds: list[int | None]
    #: Topic, partition and reason of each partition that needs a change and does not get it.
    not_planned: list[tuple[str, int, str]]
    #: Topic, partition and reason of the first partitions that break the rack rule and are left, for each reason.
    rack_left: list[tuple[str, int, str]]
    notes: list[str]
    #: One price per usable broker that proves the plan minimal. Empty if counting proves it, or no prices were
    #: searched.
    prices: list[int]
    #: The name of the bounds that the leaders of each shard meet, if they are to be even.
    leader_evenness: list[str]

    def limited_by_room(self, free: Measures, *, proven: bool) -> Measures:
        """Return these measures of a plan that room limits, given those of the plan that would be made without limit.

        The plan is the best one within the room if that is `proven`. A plan that is less even than the other may move
        less than its bound.
        """
        bound = min(free.counts["lower_bound"], self.counts["replicas_moved"])
        room = {_WITHOUT_LIMIT: free.counts["replicas_moved"], _ROOM_PROVEN: int(proven)}
        return replace(self, counts={**self.counts, "lower_bound": bound, **room})


def measure_candidate(candidate: CandidatePlan, problem: Problem, prices: list[int]) -> Measures:
    """Measure a candidate plan."""
    rows, brokers = candidate.rows, problem.brokers
    count = len(brokers)
    rack_counts, rack_left = _measure_racks(candidate, problem)
    late = candidate.catching_up
    row = np.concatenate([candidate.row[candidate.added], rows.row[late]])
    broker = np.concatenate([candidate.broker[candidate.added], rows.broker[late]])
    source = np.searchsorted(brokers.ids, sending_brokers(rows, brokers))[row]
    leadership = build_leadership(candidate, brokers.leading, brokers.demoted)
    changes: int | None = 0
    keep, able = 0, np.zeros(count, np.int64)
    if leadership is not None:
        changes, (keep, able) = fewest_leader_changes(leadership), keepable_leaders(leadership)
    return Measures(
        counts={**_count_changes(candidate, brokers), **rack_counts, "leaders_keepable": keep},
        before=Balance.of(rows, rows.row, rows.broker, brokers),
        after=Balance.of(rows, candidate.row, candidate.broker, brokers),
        bytes_in=sum_by(rows.size[row], broker, count),
        bytes_out=sum_by(rows.size[row], np.minimum(source, count - 1), count),
        leaders_keepable=able,
        leaders_planned=candidate.planned_leaders(count),
        leader_bounds=[changes],
        not_planned=[
            (rows.topics[rows.topic[at]], int(rows.number[at]), Disposition(candidate.disposition[at]).reason_word)
            for at in np.flatnonzero(candidate.disposition > Disposition.PLANNED)
        ],
        rack_left=rack_left,
        notes=[*candidate.notes, *_catching_up_notes(candidate, brokers)],
        prices=prices,
        leader_evenness=[] if candidate.leader_evenness is None else [candidate.leader_evenness],
    )


def _count_changes(candidate: CandidatePlan, brokers: Brokers) -> dict[str, int]:
    rows = candidate.rows
    added = candidate.row[candidate.added]
    return {
        "partitions": len(rows),
        "partitions_moved": len(candidate.changed_rows),
        "replicas_moved": len(added),
        "bytes_moved": int(rows.size[added].sum()),
        # In the unit of the flows, to compare it with their bound.
        "weight_moved": int(mebibytes(rows.size)[added].sum()),
        "lower_bound": candidate.bound,
        "leader_changes": int((candidate.broker[candidate.row_starts[:-1]] != rows.broker[rows.row_starts[:-1]]).sum()),
        # A preferred leader whose broker no longer holds the partition has to change.
        "leader_changes_forced": int(candidate.removed[rows.row_starts[:-1]].sum()),
        "partitions_without_size": int(rows.unsized.sum()),
        "copied_without_size": int(rows.unsized[np.unique(added)].sum()),
        **({} if rows.bytes_per_s is None else {_ASSUMED: int(rows.rate_assumed.sum())}),
        **_count_lost_racks(candidate, brokers),
    }


def _measure_racks(candidate: CandidatePlan, problem: Problem) -> tuple[dict[str, int], list[tuple[str, int, str]]]:
    """Return how many partitions break the rack rule, as the health check counts them, and which of them are left.

    A draining broker counts before the plan, and not after it: it is to go.
    """
    rows, brokers, options = candidate.rows, problem.brokers, problem.options
    service = np.array([matches_any(topic, options.service_topics) for topic in rows.topics], bool)
    left = {
        RackRule.IN_FLIGHT: rows.moving,
        RackRule.SERVICE_TOPIC: service[rows.topic],
        RackRule.NO_LEADER: leaderless_dispositions(problem) != Disposition.UNTOUCHED,
    }
    judge = partial(judge_racks, rows=len(rows), rack=brokers.known_rack, left=left)
    live, remaining = brokers.usable | brokers.state_mask("draining"), brokers.usable
    stays = ~rows.leaving
    before = judge(rows.row[stays], rows.broker[stays], live=live, able=live & ~brokers.cordoned)
    after = judge(candidate.row, candidate.broker, live=remaining, able=remaining & ~brokers.cordoned)
    after = np.where(rows.moving, before, after)
    why = np.where(after == RackRule.BROKEN, _reasons_to_leave_racks(candidate, problem), after)
    left_rows = [(reason, np.flatnonzero(why == reason)) for reason in RackRule if reason > RackRule.BROKEN]
    counts = {
        "rack_violations_before": int((before == RackRule.BROKEN).sum()),
        "rack_violations_after": int((after == RackRule.BROKEN).sum()),
        **{f"{_RACK_LEFT}{reason.word}": len(at) for reason, at in left_rows},
    }
    first = [(reason.word, row) for reason, at in left_rows for row in at[:NAMED].tolist()]
    return counts, [(rows.topics[rows.topic[row]], int(rows.number[row]), word) for word, row in first]


def _reasons_to_leave_racks(candidate: CandidatePlan, problem: Problem) -> Ints:
    """Return why the plan would leave each partition, if it breaks the rack rule after it."""
    options, rows, moved = problem.options, candidate.rows, np.zeros(len(candidate.rows), bool)
    moved[candidate.row[candidate.added]] = True
    if problem.operation in GIVEN_OPERATIONS:
        return np.where(moved, RackRule.MOVED.value, RackRule.OTHER_GOAL.value)
    static, mendable = static_dispositions(problem), np.zeros(len(rows), bool)
    if options.has_budget:
        mendable = rack_spread_violated(candidate.row, candidate.broker, len(rows), problem.brokers)
    reasons = {
        RackRule.PINNED: static == Disposition.PINNED,
        RackRule.EXCLUDED: static == Disposition.EXCLUDED,
        RackRule.OUT_OF_SYNC: candidate.disposition == Disposition.OUT_OF_SYNC,
        RackRule.BUDGET: mendable,
    }
    otherwise = RackRule.EXCLUDED_BROKERS if options.balance == "racks" else RackRule.OTHER_GOAL
    reasons |= {} if options.balance == "racks" else {RackRule.MOVED: moved}
    return np.select(list(reasons.values()), [reason.value for reason in reasons], otherwise.value)


def _lost_racks(brokers: Brokers) -> list[int]:
    """Return the racks of which no broker is live, and some have failed."""
    failed, usable = brokers.state_mask("failed"), brokers.usable
    return sorted(set(brokers.rack[failed & (brokers.rack >= 0)].tolist()) - set(brokers.rack[usable].tolist()))


def _count_lost_racks(candidate: CandidatePlan, brokers: Brokers) -> dict[str, int]:
    """Return, for each lost rack, the number of partitions with a replica there that get two copies in one rack."""
    rows, racks = candidate.rows, int(brokers.rack.max(initial=-1)) + 1
    lost = _lost_racks(brokers)
    if not lost:
        return {}
    racked = brokers.rack[candidate.broker] >= 0
    held = count_pairs(candidate.row[racked], brokers.rack[candidate.broker[racked]], (len(rows), racks))
    twice = np.asarray((held > 1).any(axis=1), bool)
    gone = {rack: np.unique(rows.row[candidate.removed & (brokers.rack[rows.broker] == rack)]) for rack in lost}
    return {f"lost_rack_{rack}": int(twice[row].sum()) for rack, row in gone.items()}


def rack_notes(measures: Measures, brokers: Brokers, names: Sequence[str | None]) -> Iterator[str]:
    """Yield notes on lost racks, and on brokers that are alone in their rack and get a replica of most partitions.

    `names` has the rack of each broker.
    """
    name_of = {int(rack): name for rack, name in zip(brokers.rack, names, strict=True)}
    for rack in _lost_racks(brokers):
        if count := measures.counts[f"lost_rack_{rack}"]:
            copies = "1 partition" if count == 1 else f"each of {count} partitions"
            yield f"All brokers of rack {name_of[rack]} are down: {copies} will have two copies in one rack."
    partitions, usable = measures.counts["partitions"], brokers.usable & (brokers.rack >= 0)
    sizes = np.bincount(brokers.rack[usable], minlength=int(brokers.rack.max(initial=-1)) + 1)
    # Where every rack has one broker, none of them stands out.
    if sizes.max(initial=0) < 2:
        return
    for at in np.flatnonzero(usable & (sizes[brokers.rack] == 1)):
        before, after = int(measures.before.replicas[at]), int(measures.after.replicas[at])
        if before < after and after >= _MOST * partitions:
            which = f"all {partitions}" if after == partitions else f"{after} of {partitions}"
            yield (
                f"Broker {brokers.ids[at]} will hold a replica of {which} partitions: it is alone in rack "
                f"{name_of[int(brokers.rack[at])]}."
            )


def _catching_up_notes(candidate: CandidatePlan, brokers: Brokers) -> Iterator[str]:
    rows, at = candidate.rows, np.flatnonzero(candidate.catching_up)
    for replica in at[:_NAMED_LATE]:
        name = rows.partition_name(int(rows.row[replica]))
        broker = brokers.ids[rows.broker[replica]]
        yield f"{name} keeps broker {broker}, which is not in sync: Kafka completes the move once it is."
    more = len(np.unique(rows.row[at[_NAMED_LATE:]]))
    if more:
        yield f"{counted(more, 'more partition', 'keeps', 'keep')} a broker that is not in sync."


def proof_fields(measures: Measures, brokers: Brokers, operation: Operation, options: Options) -> dict[str, Any]:
    """Return the fields of `proof.json`; the caller adds the digests, the cluster id and `log_dirs_failed`.

    docs/planning.md explains each field.

    `lower_bound` is proven. For heal and fill it is the number of replicas that all partitions which can have them
    miss. Each must be added somewhere, and each addition counts once, so that no plan that makes those partitions fully
    replicated moves fewer. No replica that is in place is moved, so that the plan moves exactly that many. For
    rebalance, expand and drain it is the cost of the flow, and `prices`, if they could be found, let `check` prove it
    without the flow.
    """
    counts, before, after = measures.counts, measures.before.report(brokers), measures.after.report(brokers)
    gap = counts["replicas_moved"] - counts["lower_bound"]
    usable = map(str, brokers.ids[brokers.usable])
    busiest = max(int(np.max(measures.bytes_in, initial=0)), int(np.max(measures.bytes_out, initial=0)))
    names = ("topic", "partition", "reason")
    left = [dict(zip(names, values, strict=True)) for values in sorted(measures.not_planned)]
    no_room = sum(row["reason"] == Disposition.NO_ROOM.reason_word for row in left)
    # Even disks depend on all sizes, and another plan on those of the partitions that it copies.
    by_bytes = operation in EVEN_OPERATIONS and options.balances_bytes
    unknown = counts["partitions_without_size" if by_bytes else "copied_without_size"]
    of = f"Of {counted(unknown, 'partition')}{'' if by_bytes else ' to copy'}"
    notes = [f"{of} the size is not known; each counts as 0 bytes."] if unknown else []
    return {
        "operation": operation.value,
        "options": options.to_json(operation),
        **{name: counts[name] for name in _COUNTED},
        "gap": gap,
        "gap_reason": _room_reason(counts, no_room) or _bound_gap_reason(gap, operation, options),
        "limited_by_room": _WITHOUT_LIMIT in counts,
        "leader_evenness": _leader_evenness(measures, brokers),
        "leader_changes_bound": _leader_bound(measures, brokers, operation),
        "rack_violations": {"before": counts["rack_violations_before"], "after": counts["rack_violations_after"]},
        "rack_left": _racks_left(measures),
        "brokers_failed": _broker_ids(brokers, "failed"),
        "brokers_draining": _broker_ids(brokers, "draining"),
        "brokers_demoted": brokers.ids[brokers.demoted].tolist(),
        "spread": {name: {"before": side, "after": after[name]} for name, side in before.items()},
        "load": _load(measures, brokers),
        "unplaced": [row for row in left if row["reason"] not in _PINNED],
        "pinned": [row for row in left if row["reason"] in _PINNED],
        "prices": dict(zip(usable, measures.prices, strict=False)),
        # The time that the busiest broker needs at the throttle, whatever the order.
        "predicted_seconds": round(busiest / options.throttle, 1) if options.throttle else None,
        "notes": [*dict.fromkeys(measures.notes), *notes],
    }


def _racks_left(measures: Measures) -> dict[str, Any]:
    """Return how many partitions break the rack rule after the plan, by reason, and the first few of each."""
    every = {reason.word: measures.counts.get(f"{_RACK_LEFT}{reason.word}", 0) for reason in RackRule}
    counts = {word: count for word, count in every.items() if count}
    first = [
        partition
        for word in counts
        for partition in sorted(partition for partition in measures.rack_left if partition[2] == word)[:NAMED]
    ]
    names = ("topic", "partition", "reason")
    return {"counts": counts, "first": [dict(zip(names, values, strict=True)) for values in first]}


def _load(measures: Measures, brokers: Brokers) -> dict[str, Any] | None:
    """Return the bytes per second into brokers, and of how many partitions they are assumed; None if not known."""
    if _ASSUMED not in measures.counts:
        return None
    sides = {"before": measures.before, "after": measures.after}
    return {
        "assumed": measures.counts[_ASSUMED],
        "replicas": {when: _load_per_broker(side.bytes_in, brokers) for when, side in sides.items()},
        "leaders": {when: _load_per_broker(side.leader_bytes_in, brokers) for when, side in sides.items()},
    }


def _load_per_broker(load: Ints, brokers: Brokers) -> dict[str, Any]:
    usable = np.flatnonzero(brokers.usable)
    total, capacity = int(load[usable].sum()), np.array(brokers.capacity, float)[usable]
    shares = total * capacity / capacity.sum()
    return {
        "by_broker": {str(broker): int(value) for broker, value in zip(brokers.ids, load, strict=True)},
        # With other capacities, the highest over the broker's share.
        "highest_over_mean": round(float((load[usable] / shares).max()), 3) if total else None,
    }


def _room_reason(counts: Mapping[str, int], no_room: int) -> str | None:
    """Return what room cost, for a plan that it limits; `no_room` counts the partitions that it leaves for that."""
    if _WITHOUT_LIMIT not in counts:
        return None
    without = counted(counts[_WITHOUT_LIMIT], "replica")
    sentence = f"Log directories have too little room: if they had enough, the plan would move {without}."
    if counts[_ROOM_PROVEN]:
        return sentence
    most = f"place up to {counted(no_room, 'more partition')}, or " if no_room else ""
    return f"{sentence} Whether another plan could {most}be more even or move less was left open at this size."


def _bound_gap_reason(gap: int, operation: Operation, options: Options) -> str | None:
    if gap == 0:
        return None
    if operation is Operation.RELIEVE:
        return "The plan moves few bytes: fewer and larger replicas would take more of them along."
    if options.balances_bytes:
        what = "the disks" if options.balance == "bytes" else "disks and bytes in"
        return (
            f"The bound counts the replicas that must leave their brokers; the others move to even out {what}, for "
            "which the notes give the fewest bytes."
        )
    return (
        f"The bound looks at each topic as a whole; whether partition by partition {gap} fewer moves would do was left "
        "open at this size."
    )


def _leader_evenness(measures: Measures, brokers: Brokers) -> str | None:
    """Return the name of the bounds that all leaders meet, which are those of the least even shard.

    Return None if no leaders are to be even.
    """
    if not measures.leader_evenness:
        return None
    if set(measures.leader_evenness) <= {BY_BYTES, NEAR_BY_BYTES}:
        return measures.leader_evenness[0]
    worst = max(measures.leader_evenness, key=LEADER_EVENNESS.index)
    if worst == "proportional" or has_level_leaders(measures.leaders_planned, brokers.leading):
        return worst
    return "topic-even" if worst == "even" else "proportional"


def _leader_bound(measures: Measures, brokers: Brokers, operation: Operation) -> int:
    """Return the fewest leader changes of any plan with these replicas per topic and broker, and as even."""
    if operation in GIVEN_OPERATIONS | REORDERING_OPERATIONS:
        return measures.counts["leader_changes"]
    if len(measures.leader_bounds) == 1 and measures.leader_bounds[0] is not None:
        return measures.leader_bounds[0]
    # The shards share brokers, so that their flows cannot be added up. The numbers of leaders that each shard could
    # keep can be: their sum is an upper bound.
    planned = int(measures.leaders_planned.sum())
    most = np.maximum(equal_shares(np.array(planned), brokers.leading)[1], measures.leaders_planned)
    by_broker = int(np.minimum(measures.leaders_keepable, most).sum())
    return max(planned - min(measures.counts["leaders_keepable"], by_broker), 0)


def _broker_ids(brokers: Brokers, state: str) -> list[int]:
    return [int(broker) for broker in brokers.ids[brokers.state_mask(state)]]


def _summary_per_broker(values: Ints, brokers: Brokers) -> dict[str, Any]:
    usable = values[brokers.receivers]
    return {
        "by_broker": {str(broker): int(value) for broker, value in zip(brokers.ids, values, strict=True)},
        "least": int(usable.min(initial=int(usable.max(initial=0)))),
        "most": int(usable.max(initial=0)),
    }


def _failover_summary(pairs: Ints, leaders: Ints, brokers: Brokers) -> dict[str, Any]:
    """Summarize the pairs (preferred leader, next in line), and name the failure that burdens another broker most.

    In `heaviest`, `partitions` is what the broker that takes over would lead in addition, `leads` what it would lead in
    all.
    """
    count = len(brokers)
    table = pairs.reshape(count, count)
    in_use = table[table > 0]
    leads = np.where(table > 0, table + leaders[None, :], 0)
    dies, takes_over = divmod(int(leads.argmax()) if leads.size else 0, max(count, 1))
    heaviest = None
    if in_use.size:
        heaviest = {
            "dies": int(brokers.ids[dies]),
            "takes_over": int(brokers.ids[takes_over]),
            "partitions": int(table[dies, takes_over]),
            "leads": int(leads[dies, takes_over]),
        }
    return {
        "pairs": int(in_use.size),
        "least": int(in_use.min(initial=int(in_use.max(initial=0)))),
        "most": int(in_use.max(initial=0)),
        "squares": int((in_use.astype(np.int64) ** 2).sum()),
        "heaviest": heaviest,
    }
