"""Check that a plan's leaders are as even by bytes in as its proof says: within 1.1 times the mean, or within a bound.

The proof's prices are 1 for the brokers of a set and 0 for the others. What can be led only by brokers of the set has
to be led there, so that one of them leads at least the set's mean. And some broker leads the largest partition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from kafka_steward.assignment import Move, Operation, TopicPartition
from kafka_steward.planning.checker.rules import CheckContext, hold_reasons

#: The words of `leader_evenness` that are about bytes in; the second one promises nothing.
EVEN, NEAR = "bytes-in", "near-bytes-in"
#: What a broker may lead, as a factor of the mean, and what two sums of rounded levels may differ by.
_TARGET, _ROUNDED = Fraction(11, 10), Fraction(1, 10**6)
#: The part of a broker's bytes that another choice must be worth.
_WORTH = Fraction(1, 500)


def knows_bytes_in(proof: Mapping[str, Any]) -> bool:
    """Return whether the proof, whose statements of bytes in are checked, says that something comes in."""
    load = proof.get("load")
    before = (load or {}).get("leaders", {}).get("before", {}).get("by_broker", {}) if isinstance(load, dict) else {}
    return any(before.values())


def is_by_bytes(proof: Mapping[str, object]) -> bool:
    """Return whether a plan is to even out leaders by bytes in, and says so."""
    return proof.get("operation") == Operation.LEADERS.value and proof.get("leader_evenness") in (EVEN, NEAR)


def leader_bytes_questions(proof: Mapping[str, object]) -> Iterator[str]:
    """Yield what is not proven of a plan that evens out leaders by bytes in."""
    if proof.get("leader_evenness") == NEAR:
        yield "That a broker must lead more than 1.1 times the mean of the bytes in is not proven."
    yield "That no leaders as even by bytes in need fewer changes is not proven."


def takeover_problems_by_bytes(
    parts: Iterable[tuple[CheckContext, Sequence[Move]]],
    rates: Mapping[TopicPartition, int],
    capacity: Mapping[int, Fraction],
) -> Iterator[str]:
    """Yield a problem for a broker above the target that takes over what a broker with fewer bytes in could."""
    led, taken = Counter[int](), list[tuple[int, int, int]]()
    sharing = frozenset[int]()
    for context, moves in parts:
        sharing, after = context.leading, {move.topic_partition: move for move in moves}
        for name, part in context.partitions.items():
            move, rate = after.get(name), rates[name]
            leader = (move.after if move else part.replicas)[0]
            led[leader] += rate
            if move and move.before[:1] != move.after[:1]:
                able = context.may_lead(part) - context.demoted
                taken += [(leader, broker, rate) for broker in able if broker != leader and rate]
    total = sum((capacity[broker] for broker in sharing), Fraction(0))
    mean = Fraction(sum(led[broker] for broker in sharing)) / (total or 1)
    for giver, receiver, rate in taken:
        level = led[giver] / capacity[giver]
        if level > _TARGET * mean and (led[receiver] + rate) / capacity[receiver] < level * (1 - _WORTH):
            yield f"What broker {giver} would take over, broker {receiver} could lead with fewer bytes in."
            return


def leader_bytes_problems(
    parts: Iterable[tuple[CheckContext, Sequence[Move]]],
    rates: Mapping[TopicPartition, int],
    capacity: Mapping[int, Fraction],
    prices: Mapping[int, int] | None,
) -> Iterator[str]:
    """Yield a problem for a broker that leads more than the target and than the bound. `parts` are whole topics."""
    closed = frozenset(broker for broker, price in (prices or {}).items() if price)
    led, inside, single = Counter[int](), 0, Fraction(0)
    sharing = frozenset[int]()
    for context, moves in parts:
        after, sharing = {move.topic_partition: move.after for move in moves}, context.leading
        for name, part in context.partitions.items():
            replicas, rate = after.get(name) or part.replicas, rates[name]
            able = frozenset(replicas[:1])
            if not hold_reasons(name, context):
                able = context.leader_candidates(part, replicas)
                single = max(single, min((Fraction(rate) / capacity[each] for each in able), default=single))
            led[replicas[0]] += rate
            inside += rate if able <= closed else 0
    total = sum((capacity[broker] for broker in sharing), Fraction(0))
    if not total:
        return
    mean = Fraction(sum(led[broker] for broker in sharing)) / total
    whole = sum((capacity[broker] for broker in closed & sharing), Fraction(0))
    most = max(_TARGET * mean, single, Fraction(inside) / whole if whole else single)
    for broker in sorted(sharing):
        if led[broker] / capacity[broker] > most * (1 + _ROUNDED):
            yield (
                f"The proof says that leaders are even by bytes in; broker {broker} leads {led[broker]} bytes/s, and "
                f"{float(most * capacity[broker]):.0f} would do."
            )
            return
