"""Count a plan's leaders and failover order again from its rows, and compare them with what its proof says.

Leaders and order move no data, and no price proves them. The checker trusts no claim about them all the same. Leaders
have to be as even as the proof's `leader_evenness` says, by bounds computed from that word's definition. The counts
that a person reads in the proof have to be those of the rows. `LeftExchanges` counts what an exchange of two replicas
of one partition would still improve.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor
from typing import Any

from kafka_steward.assignment import EVEN_OPERATIONS, Assignment, Move
from kafka_steward.planning.checker.rules import CheckContext, hold_reasons

#: The words of `leader_evenness` for which brokers have equal shares of each topic, and of all topics together.
_EVEN_TOPICS = ("even", "topic-even")
_EVEN_BROKERS = ("even", "global-even")
_KNOWN = (*_EVEN_TOPICS, "global-even", "proportional")


@dataclass(frozen=True)
class LeaderCounts:
    """Counts of some topics after the plan, by broker or by pair of brokers, with texts as keys, as in a proof.

    `led` counts all partitions that a broker leads, `planned` those of them that the plan may touch. A pair is a
    leader and the next in line.
    """

    led: dict[str, int]
    planned: dict[str, int]
    pairs: dict[str, int]


def replicas_by_topic(moves: Sequence[Move], context: CheckContext) -> dict[str, list[tuple[Assignment, bool]]]:
    """Return each topic's assignments after the plan, each with a flag for partitions that the plan may touch."""
    new = {move.topic_partition: move.after for move in moves}
    by_topic: dict[str, list[tuple[Assignment, bool]]] = defaultdict(list)
    for name, part in context.partitions.items():
        by_topic[name.topic].append((new.get(name, part.replicas), not hold_reasons(name, context)))
    return by_topic


def count_leaders(topics: Mapping[str, list[tuple[Assignment, bool]]]) -> LeaderCounts:
    """Return the counts of some topics."""
    rows = [row for parts in topics.values() for row in parts if row[0]]
    return LeaderCounts(
        led=dict(Counter(str(replicas[0]) for replicas, _ in rows)),
        planned=dict(Counter(str(replicas[0]) for replicas, planned in rows if planned)),
        pairs=dict(Counter(f"{replicas[0]} {replicas[1]}" for replicas, _ in rows if len(replicas) > 1)),
    )


def topic_leader_problems(
    topics: Mapping[str, list[tuple[Assignment, bool]]], context: CheckContext, *, alike: bool
) -> Iterator[str]:
    """Yield a problem for each topic that is led less evenly than the proof says.

    `alike` says whether all brokers have the same capacity.
    """
    word = context.proof.get("leader_evenness")
    if word is None:
        return
    if word not in _KNOWN:
        yield f"The proof's leader_evenness {word!r} is unknown; there are {', '.join(_KNOWN)}."
        return
    for topic, parts in topics.items():
        planned = [replicas for replicas, touched in parts if touched and replicas]
        bounds = _topic_bounds(planned, context, even=word in _EVEN_TOPICS, alike=alike)
        led = Counter(replicas[0] for replicas in planned)
        for broker, (low, high) in bounds.items():
            if not low <= led[broker] <= high:
                yield (
                    f"The proof says that leaders are {word}; broker {broker} leads {led[broker]} partitions of "
                    f"{topic}, which is not between {low} and {high}."
                )
                # One broker shows that the topic is uneven.
                break


def _topic_bounds(
    planned: Sequence[Assignment], context: CheckContext, *, even: bool, alike: bool
) -> dict[int, tuple[int, int]]:
    """Return the fewest and most leaders per broker: equal shares, or shares by the replicas that each broker holds."""
    equal = _equal_shares(len(planned), context)
    if even:
        return equal
    share: dict[int, Fraction] = dict.fromkeys(equal, Fraction(0))
    for replicas in planned:
        for broker in replicas:
            share[broker] = share.get(broker, Fraction(0)) + Fraction(1, len(replicas))
    held = {broker: (floor(part), ceil(part)) for broker, part in share.items()}
    if not alike:
        return held
    # Among brokers of equal capacity, an equal share counts as even whatever replicas they hold.
    return {
        broker: (min(low, equal.get(broker, (0, 0))[0]), max(high, equal.get(broker, (0, 0))[1]))
        for broker, (low, high) in held.items()
    }


def _equal_shares(count: int, context: CheckContext) -> dict[int, tuple[int, int]]:
    """Return the fewest and most of `count` leaders per usable broker; brokers that receive nothing may lead none."""
    sharing = max(len(context.receivers), 1)
    return {
        broker: (count // sharing if broker in context.receivers else 0, -(-count // sharing))
        for broker, state in context.state.items()
        if state in ("live", "new")
    }


def cluster_leader_problems(context: CheckContext, counts: LeaderCounts) -> Iterator[str]:
    """Yield a problem for each broker that leads more or fewer than the proof says, and one for the failover order."""
    yield from _level_problems(context, counts)
    spread = context.proof.get("spread")
    if not isinstance(spread, Mapping) or not spread:
        return
    claimed = _at(spread, "leaders", "after", "by_broker") or {}
    for broker in sorted({*claimed, *counts.led}, key=str):
        if claimed.get(broker, 0) != counts.led.get(broker, 0):
            yield (
                f"The proof says that broker {broker} leads {claimed.get(broker, 0)} partitions after the plan; the "
                f"rows say {counts.led.get(broker, 0)}."
            )
    squares = sum(count**2 for count in counts.pairs.values())
    if _at(spread, "next_in_line", "after", "squares") != squares:
        yield (
            "The proof says that the squares of the pairs next in line add up to "
            f"{_at(spread, 'next_in_line', 'after', 'squares')}; the rows say {squares}."
        )


def _level_problems(context: CheckContext, counts: LeaderCounts) -> Iterator[str]:
    """Yield a problem for each broker whose leaders over all topics are not as even as the proof says."""
    word, options = context.proof.get("leader_evenness"), context.options
    # A budget may leave even leaders to later plans.
    unbounded = not options.get("max_moves") and not options.get("max_bytes")
    promised = unbounded and options.get("balance") == "replicas" and context.operation in EVEN_OPERATIONS
    if word is None and counts.planned and promised:
        yield "The proof does not say how even leaders are, and its plan is to even them out."
    if word in _EVEN_BROKERS:
        for broker, (low, high) in _equal_shares(sum(counts.planned.values()), context).items():
            led = counts.planned.get(str(broker), 0)
            if not low <= led <= high:
                yield (
                    f"The proof says that leaders are {word}; broker {broker} leads {led} partitions, which is not "
                    f"between {low} and {high}."
                )


@dataclass(frozen=True)
class LeftExchanges:
    """The improvements left to exchanges of two replicas of one partition, which move no data.

    `leaders` is the number of partitions that another replica could lead, so that leaders are more even in the topic,
    and as even over the brokers. `order` is the most by which the sum of squares of the pairs next in line would fall
    if one partition exchanged its next in line for a later replica.
    """

    leaders: int
    order: int

    @classmethod
    def combine(cls, parts: Iterable[LeftExchanges]) -> LeftExchanges:
        """Combine those of all topics."""
        exchanges = list(parts)
        return cls(sum(part.leaders for part in exchanges), max((part.order for part in exchanges), default=0))


def count_planned_pairs(topics: Mapping[str, list[tuple[Assignment, bool]]]) -> Counter[Assignment]:
    """Return the number of partitions that a plan may touch for each pair of a leader and the next in line."""
    return Counter(row[:2] for parts in topics.values() for row, planned in parts if planned and len(row) > 1)


def left_exchanges(
    topics: Mapping[str, list[tuple[Assignment, bool]]],
    context: CheckContext,
    led: Mapping[str, int],
    pairs: Mapping[Assignment, int],
) -> LeftExchanges:
    """Return the improvements left in some topics.

    `led` and `pairs` are the leaders per broker and the pairs next in line of all partitions that the plan may touch.
    """
    leaders, order = 0, 0
    level = _equal_shares(sum(led.values()), context)
    for parts in topics.values():
        rows = [replicas for replicas, planned in parts if planned and len(replicas) > 1]
        in_topic = Counter(replicas[0] for replicas, planned in parts if planned and replicas)
        equal = _equal_shares(in_topic.total(), context)
        for row in rows:
            leaders += any(
                _leads_better(row[0], later, ((in_topic, equal), ({b: led.get(str(b), 0) for b in row}, level)))
                for later in row[1:]
            )
            rarest = min((pairs.get((row[0], later), 0) for later in row[2:]), default=pairs[row[:2]])
            # One pair gets rarer by one, the other more frequent by one: (a-1)^2 + (b+1)^2 is 2(a-b-1) below a^2 + b^2.
            order = max(order, 2 * (pairs[row[:2]] - rarest - 1))
    return LeftExchanges(leaders, order)


def _leads_better(
    leader: int, later: int, levels: tuple[tuple[Mapping[int, int], Mapping[int, tuple[int, int]]], ...]
) -> bool:
    """Return True if the `later` replica as leader makes the topic's leaders more even, and all leaders as even.

    `levels` are the leaders per broker, with the fewest and the most that count as even: of the topic, and of all.
    """
    (led, equal), (total, level) = levels
    if leader not in equal or later not in equal:
        return False
    better = led[leader] > equal[leader][1] or led.get(later, 0) < equal[later][0]
    allowed = led[leader] > equal[leader][0] and led.get(later, 0) < equal[later][1]
    return better and allowed and total[leader] > level[leader][0] and total[later] < level[later][1]


def _at(value: Any, *names: str) -> Any:
    # The proof may be anybody's: a part of the path may be missing, or be no object.
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
