"""How few preferred leaders any plan could change that puts as many replicas of each topic on each broker.

Which partition's replica stands on a broker is left open, so the bound holds for every plan with these counts and with
leaders no less even than these; the plan itself decides partition by partition, and may need more.

A topic hands its leaderships to brokers: as many as it leads there already are kept, each further one is a change. One
flow finds the fewest. Beyond `MAX_FLOW_CELLS` the flow is replaced by the two sums that it contains: no broker keeps
more than it may lead, and no topic keeps what its other brokers' floors take away. They are never above the flow's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kafka_steward.planning.solver.arrays import Ints
from kafka_steward.planning.solver.drafts import Draft
from kafka_steward.planning.solver.flows import Infeasible, Network
from kafka_steward.planning.solver.selection import Fate

__all__ = ["MAX_FLOW_CELLS", "Leadership", "fewest_changes", "keepable", "leadership_of"]

#: Topics times brokers up to which the exact flow is solved: tenths of a second.
MAX_FLOW_CELLS = 1_000_000


@dataclass(frozen=True)
class Leadership:
    """Per topic and broker: leaders that can be kept, and the fewest and most there may be; per broker the same."""

    kept: Ints
    cell: tuple[Ints, Ints]
    broker: tuple[Ints, Ints]
    #: Partitions of each topic.
    partitions: Ints


def leadership_of(draft: Draft, brokers: int, sharing: int) -> Leadership | None:
    """The leadership of the rows that a draft plans, `sharing` brokers being fit to lead; None if there is none."""
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
        # Where the plan itself is less even than an equal share, so may any other plan be.
        cell=(np.minimum(low, leads), np.minimum(np.maximum(high, leads), held)),
        broker=(np.minimum(every // sharing, total), np.maximum(-(-every // sharing), total)),
        partitions=count,
    )


def _counted(topic: Ints, broker: Ints, shape: tuple[int, int]) -> Ints:
    return np.bincount(topic * shape[1] + broker, minlength=shape[0] * shape[1]).reshape(shape)


def fewest_changes(leadership: Leadership) -> int | None:
    """The fewest changes, by a flow; None where there are too many cells for one."""
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
    """How many leaders the topics can keep, and each broker: sums that add up over slices, each an upper bound."""
    low, high = leadership.cell
    kept = np.minimum(leadership.kept, high)
    taken = np.maximum(low - kept, 0)
    by_topic = np.minimum(kept.sum(axis=1), leadership.partitions - taken.sum(axis=1))
    return int(by_topic.sum()), kept.sum(axis=0)
