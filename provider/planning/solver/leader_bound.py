"""Lower bound on preferred-leader changes, for any plan with the same number of replicas of each topic on each broker.

The bound leaves open which partition's replica is on a broker. It therefore holds for every plan with these counts and
with leaders no less even than these. The plan itself decides partition by partition, and may need more changes.

A topic assigns its leaderships to brokers: as many as it already leads there are kept, and each further one is a
change. One flow finds the fewest changes. Beyond `MAX_FLOW_CELLS` the flow is replaced by the two sums that it
contains: no broker keeps more than it may lead, and no topic keeps what its other brokers' floors take away. These sums
are never above the flow's result.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kafka_steward.planning.solver.arrays import Ints
from kafka_steward.planning.solver.drafts import Draft
from kafka_steward.planning.solver.flows import Infeasible, Network
from kafka_steward.planning.solver.selection import Fate

__all__ = ["MAX_FLOW_CELLS", "Leadership", "fewest_changes", "keepable", "leadership_of"]

#: Topics times brokers, up to which the exact flow is solved, in tenths of a second.
MAX_FLOW_CELLS = 1_000_000


@dataclass(frozen=True)
class Leadership:
    """Per topic and broker: leaders that can be kept, and the fewest and most allowed; the same bounds per broker."""

    kept: Ints
    cell: tuple[Ints, Ints]
    broker: tuple[Ints, Ints]
    #: Number of partitions of each topic.
    partitions: Ints


def leadership_of(draft: Draft, brokers: int, sharing: int) -> Leadership | None:
    """Return the leadership of the rows that a candidate plan plans; None if there is none.

    `sharing` is the number of brokers that are fit to lead.
    """
    rows, planned = draft.rows, draft.fate == Fate.PLANNED
    if not planned.any() or sharing == 0:
        return None
    names, topic = np.unique(rows.topic[planned], return_inverse=True)
    shape = (len(names), brokers)
    of_row = np.zeros(len(rows), np.int64)
    of_row[planned] = topic
    mine = planned[draft.row]
    held = _counted(of_row[draft.row[mine]], draft.broker[mine], shape)
    led = _counted(topic, rows.broker[rows.start[:-1]][planned], shape)
    leads = _counted(topic, draft.broker[draft.start[:-1]][planned], shape)
    count = np.bincount(topic)
    low, high = (count // sharing)[:, None], (-(-count // sharing))[:, None]
    total, every = leads.sum(axis=0), int(planned.sum())
    return Leadership(
        kept=np.minimum(led, held),
        # If the plan itself is less even than an equal share, any other plan may be so too.
        cell=(np.minimum(low, leads), np.minimum(np.maximum(high, leads), held)),
        broker=(np.minimum(every // sharing, total), np.maximum(-(-every // sharing), total)),
        partitions=count,
    )


def _counted(topic: Ints, broker: Ints, shape: tuple[int, int]) -> Ints:
    return np.bincount(topic * shape[1] + broker, minlength=shape[0] * shape[1]).reshape(shape)


def fewest_changes(leadership: Leadership) -> int | None:
    """Return the fewest changes, computed by a flow.

    Return None if there are too many cells for a flow, or if it has no solution.
    """
    low, high = leadership.cell
    if low.size > MAX_FLOW_CELLS:
        return None
    net = Network()
    topics, ends, sink = net.nodes(low.shape[0]), net.nodes(low.shape[1]), net.nodes(1)
    topic, broker = np.nonzero(high > 0)
    low, high, kept = low[topic, broker], high[topic, broker], leadership.kept[topic, broker]
    kept = np.minimum(kept, high)
    net.supply(topics[topic], -low)
    net.supply(ends[broker], low)
    net.connect(topics[topic], ends[broker], kept - np.minimum(low, kept), 0)
    changing = net.connect(topics[topic], ends[broker], high - np.maximum(low, kept), 1)
    net.connect_between(ends, np.broadcast_to(sink, ends.shape), leadership.broker, 0)
    net.supply(topics, leadership.partitions)
    net.supply(sink, -int(leadership.partitions.sum()))
    try:
        flow = net.solve()
    except Infeasible:
        return None
    return int(flow[changing].sum() + np.maximum(low - kept, 0).sum())


def keepable(leadership: Leadership) -> tuple[int, Ints]:
    """Return the number of leaders that the topics can keep, and the number that each broker can keep.

    Both add up over shards, and each is an upper bound.
    """
    low, high = leadership.cell
    kept = np.minimum(leadership.kept, high)
    taken = np.maximum(low - kept, 0)
    by_topic = np.minimum(kept.sum(axis=1), leadership.partitions - taken.sum(axis=1))
    return int(by_topic.sum()), kept.sum(axis=0)
