"""Prove that a plan for even leaders changes as few of them as possible, by one price per broker.

The proof is that of `certificate`, with leaders in place of replicas. A unit is the leadership of a partition, which
may go from its leader after the plan to any other candidate. That is worth +1 if a leader is left that led before, and
-1 if the leadership goes back to it. Leaders are as even as `leader_evenness` says: the bounds are computed from that
word's definition. That the leaders could not be more even is not proven.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from kafka_steward.planning.checker.certificate import ListedExchanges, improvable_topics, step_costs
from kafka_steward.planning.checker.constraints import Ints
from kafka_steward.planning.checker.leaders import LedTopics, equal_shares, round_shares, shares_of_leaders
from kafka_steward.planning.checker.rules import CheckContext

Bounds = Mapping[int, tuple[int, int]]
#: The bounds of a broker that no bound is known for.
_NONE = (0, 0)


@dataclass(frozen=True)
class LeaderFindings:
    """Findings of some topics: those that the prices do not prove, and each broker's leaders and share of them.

    The share is the number of leaders if the candidates of each partition share it equally.
    """

    unproven_topics: list[str]
    led: dict[int, int]
    share: dict[int, Fraction]


def check_leaders(topics: LedTopics, context: CheckContext, prices: Mapping[int, int]) -> LeaderFindings:
    """Return the findings of some topics."""
    planned = {name: mine for name, parts in topics.items() if (mine := [led for led in parts if led.planned])}
    every = [led for parts in planned.values() for led in parts]
    return LeaderFindings(
        unproven_topics=list(_unproven_topics(planned, context, prices)) if planned else [],
        led=dict(Counter(led.replicas[0] for led in every)),
        share=shares_of_leaders(every),
    )


def leader_price_objections(
    context: CheckContext, findings: LeaderFindings, prices: Mapping[int, int]
) -> Iterator[str]:
    """Yield the reasons why the prices do not fit the brokers' leaders over all topics, or leaders are less even."""
    bounds = _bounds(sum(findings.led.values()), findings.share, context, "even", "global-even")
    for broker, price in prices.items():
        (low, high), led = bounds.get(broker, _NONE), findings.led.get(broker, 0)
        if not low <= led <= high:
            yield f"Broker {broker} leads {led} partitions, which is not between {low} and {high}."
        if price > 0 and led < high:
            yield f"Broker {broker}, which may lead more, has a positive price."
        if price < 0 and led > low:
            yield f"Broker {broker}, which may lead fewer, has a negative price."
    yield from (f"The topic {name} may do with fewer changes of leaders." for name in findings.unproven_topics)


def _bounds(count: int, share: Mapping[int, Fraction], context: CheckContext, *equal: str) -> Bounds:
    """Return the fewest and most leaders per broker: equal shares for the words in `equal`, else those of candidates.

    Topics that are even in the sense `global-even` may be even in either sense.
    """
    held = round_shares(share)
    word = context.proof.get("leader_evenness")
    level = equal_shares(count, context)
    if word in equal:
        return level
    if word != "global-even":
        return held
    both = {broker: (held.get(broker, _NONE), level.get(broker, _NONE)) for broker in {*held, *level}}
    return {broker: (min(one[0], two[0]), max(one[1], two[1])) for broker, (one, two) in both.items()}


def _unproven_topics(topics: LedTopics, context: CheckContext, prices: Mapping[int, int]) -> Iterator[str]:
    """Yield the topics with a cycle of exchanges that may save a change."""
    ids = sorted(prices)
    index = {broker: at for at, broker in enumerate(ids)}
    count, low, high = np.zeros((3, len(topics), len(ids)), np.int64)
    exchanges: dict[tuple[int, int], int] = {}
    for number, parts in enumerate(topics.values()):
        bounds = _bounds(len(parts), shares_of_leaders(parts), context, "even")
        low[number], high[number] = np.array([bounds.get(broker, _NONE) for broker in ids]).T
        for led in (led for led in parts if led.replicas[0] in index):
            first, leader = number * len(ids), led.replicas[0]
            count[number, index[leader]] += 1
            for broker in led.candidates:
                arc = first + index[leader], first + index[broker]
                worth = (broker != led.leader_before) - (leader != led.leader_before)
                exchanges[arc] = min(worth, exchanges.get(arc, worth))
    arcs = np.array(list(exchanges), np.int64).reshape(-1, 2)
    listed = ListedExchanges(arcs[:, 0], arcs[:, 1], np.array(list(exchanges.values()), np.int32), len(ids))
    price: Ints = np.array([prices[broker] for broker in ids])
    improvable = improvable_topics(step_costs(count, (low, high), soft=False), listed, price.astype(np.int32))
    yield from (name for name, may in zip(topics, improvable.tolist(), strict=True) if may)
