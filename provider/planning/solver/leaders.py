"""Choose leaders, and the order in which other replicas take over, so that both are even over the brokers.

A preferred leader stays while its broker lives, unless evenness takes another one. The replicas after the leader take
over when it fails, in their order. They are ordered so that failover is even, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kafka_steward.planning.solver.candidate import CandidatePlan
from kafka_steward.planning.solver.flow import Infeasible, Network
from kafka_steward.planning.solver.problem import Bools, Disposition, Ints, count_pairs, positions_within, sum_by

#: Topics times brokers, up to which the exact flow of `fewest_leader_changes` is solved, in tenths of a second.
MAX_FLOW_CELLS = 1_000_000

#: Each round makes at least one exchange that lowers the sum of squares; few rounds make nearly all.
_EXCHANGE_ROUNDS = 200


def choose_leaders(row: Ints, broker: Ints, second_choice: Bools, load: Ints) -> tuple[Ints, Ints]:
    """Choose one candidate (row, broker) for each row, so that `load` plus the choices is as even as possible.

    A candidate marked as second choice (out of sync, or about to leave) is taken only if its row has no other
    candidate. Of equally even choices, the one with the earliest candidates in the rows is taken, as Kafka elects them.
    Return the rows in order, and the broker chosen for each row.
    """
    rows, index = np.unique(row, return_inverse=True)
    if len(rows) == 0:
        return rows, rows
    used, most = np.unique(broker, return_counts=True)
    level = np.repeat(load[used], most) + positions_within(most)
    level -= level.min()
    turn = np.empty_like(index)
    turn[np.argsort(index, kind="stable")] = positions_within(np.bincount(index))
    # Costs in three ranks: first choices only, then evenness, then early candidates. Each outweighs all of the next.
    worth = int(turn.sum()) + 1
    cost = np.where(second_choice, (int(level.max()) + 1) * worth, 0) + turn
    chosen = _assign_evenly(index, broker, len(load), cost, level * worth)
    return rows, broker[chosen][np.argsort(index[chosen], kind="stable")]


def _assign_evenly(row: Ints, resource: Ints, resources: int, cost: Ints, level: Ints) -> Bools:
    """Return a mask of the candidates (row, resource) that are taken: one for each row, at the least total cost.

    `level` has the cost of each further candidate on a resource, resource by resource. Because these costs grow, the
    cheapest flow has the least sum of squares.
    """
    net = Network()
    rows, nodes, sink = net.add_nodes(int(row.max()) + 1), net.add_nodes(resources), net.add_nodes(1)
    taken = net.add_arcs(rows[row], nodes[resource], 1, cost)
    net.add_arcs(nodes[np.sort(resource)], sink, 1, level)
    net.add_supply(rows, 1)
    net.add_supply(sink, -len(rows))
    return np.asarray(net.solve()[taken] > 0, bool)


@dataclass(frozen=True)
class Replicas:
    """Replicas as arrays: row (ascending), broker, and flags for replicas that lead now and for new replicas."""

    row: Ints
    broker: Ints
    leads: Bools
    added: Bools


@dataclass(frozen=True)
class LeaderBounds:
    """The fewest and most leaders per topic and broker, and per broker."""

    name: str
    cell: tuple[Ints, Ints]
    broker: tuple[Ints, Ints]


def leader_bounds(topic: Ints, replicas: Replicas, target: Bools, *, alike: bool) -> list[LeaderBounds]:
    """Return bounds for leaders, the most even first; the last bounds can always be met.

    `even` gives every broker the same share. `proportional` gives a broker the share of its replicas: a broker that
    holds half of the replicas leads half of the partitions. If brokers are not `alike` in capacity, only
    `proportional` is fair.
    """
    topics = int(topic.max()) + 1
    share_low, share_high = _proportional_bounds(topic, replicas, topics, len(target))
    # The same bounds over all partitions, as if they were of one topic.
    total_low, total_high = _proportional_bounds(np.zeros_like(topic), replicas, 1, len(target))
    last = LeaderBounds("proportional", (share_low, share_high), (total_low[0], total_high[0]))
    if not alike:
        return [last]
    low, high = equal_shares(np.bincount(topic, minlength=topics)[:, None], target)
    level = equal_shares(np.array(len(topic)), target)
    wide = (np.minimum(low, share_low), np.maximum(high, share_high))
    return [LeaderBounds("even", (low, high), level), LeaderBounds("global-even", wide, level), last]


def leader_candidates(replicas: Replicas, demoted: Bools) -> Replicas:
    """Return the replicas that may lead: none on a demoted broker, unless its row has no other."""
    able = ~demoted[replicas.broker]
    if able.all():
        return replicas
    others = np.bincount(replicas.row[able], minlength=int(replicas.row[-1]) + 1) > 0
    able |= ~others[replicas.row]
    return Replicas(replicas.row[able], replicas.broker[able], replicas.leads[able], replicas.added[able])


def equal_shares(count: Ints, receivers: Bools) -> tuple[Ints, Ints]:
    """Return the fewest and most of `count` leaders per broker, if all receivers lead as many."""
    sharing = max(int(receivers.sum()), 1)
    low = np.where(receivers, count // sharing, 0)
    return low, -(-count // sharing) + np.zeros_like(low)


def has_level_leaders(leaders: Ints, receivers: Bools) -> bool:
    """Return True if every broker leads its equal share of the planned partitions, rounded up or down."""
    low, high = equal_shares(leaders.sum(), receivers)
    return bool(((low <= leaders) & (leaders <= high)).all())


def _proportional_bounds(topic: Ints, replicas: Replicas, topics: int, brokers: int) -> tuple[Ints, Ints]:
    degree = np.bincount(replicas.row, minlength=len(topic))
    # Shares are counted in multiples of a common denominator, which keeps their sums exact.
    whole = math.lcm(*np.unique(degree[degree > 0]).tolist())
    cell = topic[replicas.row] * brokers + replicas.broker
    sums = sum_by(whole // degree[replicas.row], cell, topics * brokers).reshape(topics, brokers)
    return sums // whole, -(-sums // whole)


def balanced_leaders(topic: Ints, replicas: Replicas, choices: list[LeaderBounds]) -> tuple[Ints, str]:
    """Return each row's leader, and the name of the first bounds that could be met.

    Of all choices within the bounds, this one has the fewest leader changes, then the fewest leaders without data.
    Raises Infeasible.
    """
    for bounds in choices:
        with suppress(Infeasible):
            net, chosen, _ = _leader_network(topic, replicas, bounds)
            return replicas.broker[net.solve()[chosen] > 0], bounds.name
    raise Infeasible


def balanced_leaders_with_prices(
    topic: Ints, replicas: Replicas, choices: list[LeaderBounds]
) -> tuple[Ints, str, Ints]:
    """Return what `balanced_leaders` does, and a price per broker that proves that no such choice changes fewer.

    No replica is new. Raises Infeasible.
    """
    for bounds in choices:
        with suppress(Infeasible):
            net, chosen, ends = _leader_network(topic, replicas, bounds, change=1)
            flow, prices = net.solve_with_prices(len(topic) + 1)
            return replicas.broker[flow[chosen] > 0], bounds.name, prices[ends[-1]] - prices[ends[:-1]]
    raise Infeasible


def _leader_network(
    topic: Ints, replicas: Replicas, bounds: LeaderBounds, change: int = 0
) -> tuple[Network, slice, Ints]:
    """Return the network of leaders, the arcs that choose them, and the nodes of the brokers and the sink.

    A change of leader costs `change`, or else more than any number of leaders without data.
    """
    net = Network()
    brokers = bounds.broker[0].size
    parts, cells = net.add_nodes(len(topic)), net.add_nodes(bounds.cell[0].size).reshape(-1, brokers)
    ends, sink = net.add_nodes(brokers), net.add_nodes(1)
    cost = np.where(replicas.leads, 0, change or len(topic) + 1) + replicas.added
    chosen = net.add_arcs(parts[replicas.row], cells[topic[replicas.row], replicas.broker], 1, cost)
    net.add_bounded_arcs(cells, ends, bounds.cell, 0)
    net.add_bounded_arcs(ends, sink, bounds.broker, 0)
    net.add_supply(parts, 1)
    net.add_supply(sink, -len(topic))
    return net, chosen, np.append(ends, sink)


def uneven_note(evenness: str) -> str:
    """Return the note of a proof about leaders that are not as even as can be."""
    return f"Leaders are even in the sense {evenness!r}: the replicas allow no more."


def order_for_failover(row: Ints, broker: Ints, brokers: int, *, exact: bool, last: Bools | None = None) -> Ints:
    """Return the replicas' brokers with those after the first reordered, so that failover is as even as possible.

    Replicas are in order within ascending rows. Position by position, the next replica is chosen so that the pairs of
    neighbours are as even as possible (least sum of squares). If `exact`, a flow finds the choice with the fewest
    changes. Otherwise, for one shard among several, exchanges of replicas find a choice. The least sum of squares of
    one shard is not that of the cluster, and exchanges come as near to that in a fraction of the time. They also leave
    in place what is already even.

    The replicas on the brokers in `last`, which stand at the end, stay there.
    """
    broker = broker.copy()
    degree = np.bincount(row)
    start = np.cumsum(degree) - degree
    if last is not None:
        degree = np.bincount(row[~last[broker]], minlength=len(degree))
    for place in range(1, int(degree.max(initial=0)) - 1):
        rows = np.flatnonzero(degree > place)
        first, count = start[rows] + place, degree[rows] - place
        index, turn = np.repeat(np.arange(len(rows)), count), positions_within(count)
        at = first[index] + turn
        _, pair = np.unique(broker[first[index] - 1] * brokers + broker[at], return_inverse=True)
        chosen = _choose_next_by_flow(index, turn, pair) if exact else _choose_next_by_exchanges(index, turn, pair)
        move_chosen_first(broker, first, at[chosen])
    return broker


def _choose_next_by_flow(index: Ints, turn: Ints, pair: Ints) -> Ints:
    """Return the candidate that each row takes, given each candidate's row, position and pair of brokers."""
    height = positions_within(np.bincount(pair))
    # The step from n^2 to (n+1)^2 is 2n+1. Times more than the number of rows, it outweighs all changes.
    level = (2 * height + 1) * (int(index[-1]) + 2)
    return np.flatnonzero(_assign_evenly(index, pair, int(pair.max()) + 1, np.where(turn > 0, 1, 0), level))


def _choose_next_by_exchanges(index: Ints, turn: Ints, pair: Ints) -> Ints:
    """Return the candidate that each row takes, found by exchanges from the first candidates, the most worth first."""
    taken = np.flatnonzero(turn == 0)
    height = np.bincount(pair[taken], minlength=int(pair.max(initial=-1)) + 1)
    for _ in range(_EXCHANGE_ROUNDS):
        source, target = pair[taken][index], pair
        gain = height[source] - height[target] - 1
        better = np.flatnonzero(gain > 0)
        if len(better) == 0:
            break
        # At most one exchange per pair and round, so that every exchange is worth what was computed.
        better = better[np.argsort(-gain[better], kind="stable")]
        for key in (target, source, index):
            better = better[np.sort(np.unique(key[better], return_index=True)[1])]
        better = better[~np.isin(target[better], source[better])]
        np.subtract.at(height, source[better], 1)
        np.add.at(height, target[better], 1)
        taken[index[better]] = better
    return taken


def move_chosen_first(broker: Ints, first: Ints, chosen: Ints) -> None:
    """Move the chosen replicas to the places `first`, in place; the replicas that they pass keep their order."""
    moved = chosen > first
    first, chosen = first[moved], chosen[moved]
    for step in range(int((chosen - first).max(initial=0))):
        at = chosen[chosen - first > step] - step
        broker[at], broker[at - 1] = broker[at - 1], broker[at].copy()


@dataclass(frozen=True)
class Leadership:
    """Leaders that can be kept, and bounds for leaders: per topic and broker (`cell`), and per `broker`."""

    kept: Ints
    cell: tuple[Ints, Ints]
    broker: tuple[Ints, Ints]
    #: Number of partitions of each topic.
    partitions: Ints


def build_leadership(candidate: CandidatePlan, leading: Bools, demoted: Bools) -> Leadership | None:
    """Return the leadership of the planned rows, or None without such rows; brokers in `leading` share it."""
    brokers, sharing = len(leading), int(leading.sum())
    rows, planned = candidate.rows, candidate.disposition == Disposition.PLANNED
    if not planned.any() or sharing == 0:
        return None
    names, topic = np.unique(rows.topic[planned], return_inverse=True)
    shape = (len(names), brokers)
    of_row = np.zeros(len(rows), np.int64)
    of_row[planned] = topic
    mine = planned[candidate.row]
    held = count_pairs(of_row[candidate.row[mine]], candidate.broker[mine], shape)
    led = count_pairs(topic, rows.broker[rows.row_starts[:-1]][planned], shape)
    leads = count_pairs(topic, candidate.broker[candidate.row_starts[:-1]][planned], shape)
    count = np.bincount(topic)
    low, high = (count // sharing)[:, None], (-(-count // sharing))[:, None]
    # A demoted broker leads only what no other may lead.
    held = np.where(demoted, leads, held)
    total, every = leads.sum(axis=0), int(planned.sum())
    return Leadership(
        kept=np.minimum(led, held),
        # If the plan itself is less even than an equal share, any other plan may be so too.
        cell=(np.minimum(low, leads), np.minimum(np.maximum(high, leads), held)),
        broker=(np.minimum(every // sharing, total), np.maximum(-(-every // sharing), total)),
        partitions=count,
    )


def fewest_leader_changes(leadership: Leadership) -> int | None:
    """Return a lower bound on leader changes, for any plan with as many replicas of each topic on each broker.

    The bound leaves open which partition's replica is on a broker: it holds for every plan with these counts and with
    leaders no less even than these. A topic assigns its leaderships to brokers: as many as it already leads there are
    kept, and each further one is a change. One flow finds the fewest changes.

    Return None if topics and brokers are too many for a flow (`MAX_FLOW_CELLS`), or if it has no solution. A caller
    then has the sums of `keepable_leaders`, which give a weaker bound.
    """
    low = leadership.cell[0]
    if low.size > MAX_FLOW_CELLS:
        return None
    net = Network()
    topics, ends, sink = net.add_nodes(low.shape[0]), net.add_nodes(low.shape[1]), net.add_nodes(1)
    add_leader_arcs(net, topics, np.broadcast_to(ends, low.shape), [leadership.kept], leadership.cell)
    net.add_bounded_arcs(ends, sink, leadership.broker, 0)
    net.add_supply(topics, leadership.partitions - low.sum(axis=1))
    net.add_supply(ends, low.sum(axis=0))
    net.add_supply(sink, -int(leadership.partitions.sum()))
    try:
        gained = net.total_cost(net.solve())
    except Infeasible:
        return None
    # The flow distributes the leaders beyond the floors; each of them that it does not keep is a change.
    beyond_floors = int(leadership.partitions.sum() - low.sum())
    return beyond_floors + gained + int(np.maximum(low - leadership.kept, 0).sum())


def add_leader_arcs(
    net: Network, topic: Ints, broker: Ints, tiers: Sequence[npt.NDArray[Any]], bounds: tuple[Ints, Ints]
) -> list[tuple[tuple[Ints, ...], slice]]:
    """Add arcs for the leaders of each topic on each broker beyond the floor: kept leaders gain, changes cost nothing.

    `topic` has a node for each topic; `broker` a node for each cell of topic and broker. `tiers` are tables of the
    leaders that could stay in each cell, the surest first. A leader that is kept gains 1, and 1 more for each further
    tier that it is in. Return the cells and the flows of each block of arcs.

    A topic has as many leaders as partitions, so that the cheapest flow changes the fewest. Keeping gains, instead of
    changes costing, because the solver then begins with all that may be kept, and most of that is kept.
    """
    low, high = bounds
    taken, blocks = low, []
    for gain, most in zip(range(len(tiers), -1, -1), [*(np.minimum(tier, high) for tier in tiers), high], strict=True):
        room = np.maximum(most - taken, 0)
        at = np.nonzero(room)
        blocks.append((at, net.add_arcs(topic[at[0]], broker[at], room[at], -gain)))
        taken = taken + room
    return blocks


def keepable_leaders(leadership: Leadership) -> tuple[int, Ints]:
    """Return the number of leaders that the topics can keep, and the number that each broker can keep.

    Both are upper bounds, and add up over shards: no broker keeps more than it may lead, and no topic keeps leaders
    that the floors of its other brokers take away.
    """
    low, high = leadership.cell
    kept = np.minimum(leadership.kept, high)
    taken = np.maximum(low - kept, 0)
    by_topic = np.minimum(kept.sum(axis=1), leadership.partitions - taken.sum(axis=1))
    return int(by_topic.sum()), kept.sum(axis=0)
