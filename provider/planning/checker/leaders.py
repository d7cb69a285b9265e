"""Count a plan's leaders and failover order again from its rows, and compare them with what its proof says.

Leaders and order move no data, and no price proves them. The checker trusts no claim about them all the same. Leaders
have to be as even as the proof's `leader_evenness` says, by bounds computed from that word's definition. The counts
that a person reads in the proof have to be those of the rows. `LeftExchanges` counts what an exchange of two replicas
of one partition would still improve.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor
from typing import Any, NamedTuple

from kafka_steward.assignment import EVEN_OPERATIONS, Assignment, Move, Operation
from kafka_steward.planning.checker.leader_bytes import EVEN, NEAR
from kafka_steward.planning.checker.rules import CheckContext, hold_reasons, promises_evenness

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


class Led(NamedTuple):
    """A partition: its replicas after the plan, whether the plan may touch it, and the brokers that share its lead."""

    replicas: Assignment
    planned: bool
    candidates: Collection[int]
    leader_before: int


#: The partitions of each topic.
LedTopics = Mapping[str, Sequence[Led]]


def leaders_by_topic(moves: Sequence[Move], context: CheckContext) -> LedTopics:
    """Return each topic's partitions after the plan."""
    new = {move.topic_partition: move.after for move in moves}
    by_topic: dict[str, list[Led]] = defaultdict(list)
    for name, part in context.partitions.items():
        after, planned = new.get(name) or part.replicas, not hold_reasons(name, context)
        by_topic[name.topic].append(Led(after, planned, context.leader_candidates(part, after), part.replicas[0]))
    return by_topic


def count_leaders(topics: LedTopics) -> LeaderCounts:
    """Return the counts of some topics."""
    rows = [led for parts in topics.values() for led in parts]
    return LeaderCounts(
        led=dict(Counter(str(led.replicas[0]) for led in rows)),
        planned=dict(Counter(str(led.replicas[0]) for led in rows if led.planned)),
        pairs=dict(Counter(f"{led.replicas[0]} {led.replicas[1]}" for led in rows if len(led.replicas) > 1)),
    )


def topic_leader_problems(topics: LedTopics, context: CheckContext, *, alike: bool) -> Iterator[str]:
    """Yield a problem for each topic that is led less evenly than the proof says.

    `alike` says whether all brokers have the same capacity.
    """
    word = context.proof.get("leader_evenness")
    if word is None or word in (EVEN, NEAR):
        return
    if word not in _KNOWN:
        yield f"The proof's leader_evenness {word!r} is unknown; there are {', '.join(_KNOWN)}."
        return
    for topic, parts in topics.items():
        planned = [led for led in parts if led.planned]
        bounds = _topic_bounds(planned, context, even=word in _EVEN_TOPICS, alike=alike)
        led = Counter(part.replicas[0] for part in planned)
        for broker, (low, high) in bounds.items():
            if not low <= led[broker] <= high:
                yield (
                    f"The proof says that leaders are {word}; broker {broker} leads {led[broker]} partitions of "
                    f"{topic}, which is not between {low} and {high}."
                )
                # One broker shows that the topic is uneven.
                break


def demoted_problems(topics: LedTopics, context: CheckContext) -> Iterator[str]:
    """Yield a problem for each topic with a partition that an even plan may touch and where a demoted broker leads.

    Or where it comes before another broker. A budget may leave that to later plans.
    """
    options = context.options
    whole = promises_evenness(context.proof) or context.operation == Operation.LEADERS.value
    if not context.demoted or not whole or options.get("max_moves") or options.get("max_bytes"):
        return
    for topic, parts in topics.items():
        for led in (led for led in parts if led.planned):
            first, others = led.replicas[0], led.replicas[1:]
            if first not in led.candidates or context.put_demoted_last(others) != others:
                yield f"A partition of {topic} is led by a demoted broker, or has one before another broker."
                break


def _topic_bounds(
    planned: Sequence[Led], context: CheckContext, *, even: bool, alike: bool
) -> dict[int, tuple[int, int]]:
    """Return the fewest and most leaders per broker: equal shares, or shares by the replicas that each broker holds."""
    equal = equal_shares(len(planned), context)
    if even:
        return equal
    held = round_shares({**dict.fromkeys(equal, Fraction(0)), **shares_of_leaders(planned)})
    if not alike:
        return held
    # Among brokers of equal capacity, an equal share counts as even whatever replicas they hold.
    return {
        broker: (min(low, equal.get(broker, (0, 0))[0]), max(high, equal.get(broker, (0, 0))[1]))
        for broker, (low, high) in held.items()
    }


def shares_of_leaders(parts: Iterable[Led]) -> dict[int, Fraction]:
    """Return how many partitions each broker leads if the candidates of each partition share it equally."""
    degree = Counter((broker, len(part.candidates)) for part in parts for broker in part.candidates)
    share = defaultdict[int, Fraction](Fraction)
    for (broker, count), times in degree.items():
        share[broker] += Fraction(times, count)
    return dict(share)


def round_shares(share: Mapping[int, Fraction]) -> dict[int, tuple[int, int]]:
    """Return the floor and the ceiling of each share."""
    return {broker: (floor(part), ceil(part)) for broker, part in share.items()}


def equal_shares(count: int, context: CheckContext) -> dict[int, tuple[int, int]]:
    """Return the fewest and most of `count` leaders per usable broker; brokers that receive nothing may lead none."""
    sharing = max(len(context.leading), 1)
    return {
        broker: (count // sharing if broker in context.leading else 0, -(-count // sharing))
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
    promised = unbounded and (
        context.operation == Operation.LEADERS.value
        or (options.get("balance") == "replicas" and context.operation in EVEN_OPERATIONS)
    )
    if word is None and counts.planned and promised:
        yield "The proof does not say how even leaders are, and its plan is to even them out."
    if word in _EVEN_BROKERS:
        for broker, (low, high) in equal_shares(sum(counts.planned.values()), context).items():
            led = counts.planned.get(str(broker), 0)
            if not low <= led <= high:
                yield (
                    f"The proof says that leaders are {word}; broker {broker} leads {led} partitions, which is not "
                    f"between {low} and {high}."
                )


def takeovers(moves: Sequence[Move], context: CheckContext) -> dict[tuple[int, int], int]:
    """Count, of what a demotion gives another leader, each pair of that leader and another broker that may lead it."""
    if context.operation != Operation.DEMOTE.value:
        return {}
    pairs = Counter[tuple[int, int]]()
    for move in moves:
        part = context.partitions.get(move.topic_partition)
        if part is not None and move.before[:1] != move.after[:1]:
            others = context.may_lead(part) - context.demoted
            pairs.update((move.after[0], broker) for broker in others if broker != move.after[0])
    return dict(pairs)


def takeover_problems(counts: LeaderCounts, pairs: Mapping[tuple[int, int], int]) -> Iterator[str]:
    """Yield a problem for each broker from which what it takes over could go to one that leads at least two fewer.

    It may go by way of others, each of which gives another partition on. Without such a chain, the leaders are as even
    as they can be: the sum of their squares is the least.
    """
    gives: dict[int, set[int]] = defaultdict(set)
    for giver, receiver in pairs:
        gives[giver].add(receiver)
    for giver in sorted(gives):
        reached, left = {giver}, [giver]
        while left:
            further = gives.get(left.pop(), set()) - reached
            reached |= further
            left += further
        led = {broker: counts.led.get(str(broker), 0) for broker in sorted(reached)}
        fewest = min(led, key=led.__getitem__)
        if led[fewest] < led[giver] - 1:
            yield (
                f"Broker {giver} would lead {led[giver]} partitions and broker {fewest} {led[fewest]}: what the "
                "demoted brokers led could be taken over more evenly."
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


def count_planned_pairs(topics: LedTopics) -> Counter[Assignment]:
    """Return the number of partitions that a plan may touch for each pair of a leader and the next in line."""
    rows = (led.replicas for parts in topics.values() for led in parts if led.planned)
    return Counter(row[:2] for row in rows if len(row) > 1)


def left_exchanges(
    topics: LedTopics,
    context: CheckContext,
    led: Mapping[str, int],
    pairs: Mapping[Assignment, int],
) -> LeftExchanges:
    """Return the improvements left in some topics.

    `led` and `pairs` are the leaders per broker and the pairs next in line of all partitions that the plan may touch.
    """
    leaders, order = 0, 0
    level = equal_shares(sum(led.values()), context)
    for parts in topics.values():
        planned = [part.replicas for part in parts if part.planned]
        rows = [row for row in planned if len(row) > 1]
        in_topic = Counter(row[0] for row in planned)
        equal = equal_shares(in_topic.total(), context)
        for row in rows:
            leaders += any(
                _leads_better(row[0], later, ((in_topic, equal), ({b: led.get(str(b), 0) for b in row}, level)))
                for later in row[1:]
                if later not in context.demoted
            )
            able = (pairs.get((row[0], later), 0) for later in row[2:] if later not in context.demoted)
            rarest = min(able, default=pairs[row[:2]])
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
