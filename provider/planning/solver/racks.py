"""Rebalance with `balance="racks"`, for one shard: only partitions that break the rack rule move, and as little as can.

A partition breaks the rule if its replicas could be spread better over the racks. Of its replicas, those that crowd a
rack give way, and are placed as a heal places missing replicas: on the racks that lack one, where the load is least.
How many give way is counted: those beyond the most that a rack may hold, or as many as the racks lack, whichever are
more. No plan that repairs the partition moves fewer.

A partition with a replica on a broker that is not live is left alone: it is for a heal, which may repair it too. So is
one with a live replica out of sync, for which Kafka would wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from kafka_steward.planning.solver.fair_shares import rack_bounds, rack_spread_violated
from kafka_steward.planning.solver.problem import Bools, Disposition, Ints, Problem, held_dispositions, rows_that_lag

#: The note of a proof about partitions that are left to a heal.
_HEAL_NOTE = "Partitions that break the rack rule and have a replica on a broker that is not live are left to a heal."

_bounds = lru_cache(maxsize=4096)(rack_bounds)


@dataclass(frozen=True)
class CrowdedReplicas:
    """A mask of the replicas that give way, the rows that lose them, and notes for the readers of the proof.

    `lagging` are the rows that break the rule and stay, because a live replica is out of sync.
    """

    give_way: Bools
    row: Ints
    lagging: Ints
    notes: tuple[str, ...] = ()


def find_crowded_replicas(problem: Problem) -> CrowdedReplicas:
    """Return the replicas that give way: of a crowded rack, the busiest first, and its leader only if no other can."""
    rows, brokers = problem.rows, problem.brokers
    suspect = rack_spread_violated(rows.row, rows.broker, len(rows), brokers)
    # The bounds of a partition on a broker that receives nothing are its own.
    suspect[rows.row[(brokers.usable & ~brokers.receivers)[rows.broker]]] = True
    suspect &= held_dispositions(problem) == Disposition.UNTOUCHED
    unhealthy = np.zeros(len(rows), bool)
    unhealthy[rows.row[~brokers.usable[rows.broker] | rows.lost]] = True
    notes = (_HEAL_NOTE,) if (suspect & unhealthy).any() else ()
    lags, lagging = rows_that_lag(problem), list[int]()
    give_way, load = np.zeros(len(rows.row), bool), np.bincount(rows.broker, minlength=len(brokers))
    for row in np.flatnonzero(suspect & ~unhealthy).tolist():
        chosen = _choose_of_row(problem, np.arange(rows.row_starts[row], rows.row_starts[row + 1]), load)
        if lags[row]:
            lagging += [row] if chosen else []
            continue
        give_way[chosen] = True
        load[rows.broker[chosen]] -= 1
    return CrowdedReplicas(give_way, np.unique(rows.row[give_way]), np.array(lagging, np.int64), notes)


def _choose_of_row(problem: Problem, replicas: Ints, load: Ints) -> list[int]:
    """Return those of a row's replicas that give way; `load` has the replicas of each broker."""
    rows, brokers = problem.rows, problem.brokers
    broker = dict(zip(replicas.tolist(), rows.broker[replicas].tolist(), strict=True))
    rack = {one: int(brokers.rack[at]) for one, at in broker.items() if brokers.rack[at] >= 0}
    low, high = _bounds_of_row(problem, rows.broker[replicas])
    held = np.bincount(np.array(list(rack.values()), np.int64), minlength=len(low))
    leader = rows.leader[rows.row[replicas[0]]]
    waiting = sorted(
        rack,
        key=lambda one: (
            *(rows.replica_positions[one] == 0, brokers.ids[broker[one]] == leader, rows.in_sync[one]),
            *(-load[broker[one]], one),
        ),
    )
    chosen: list[int] = []
    while (crowded := _next_crowded(held, low, high, placed=len(chosen))) is not None:
        gone = next(one for one in waiting if rack[one] == crowded)
        waiting.remove(gone)
        chosen.append(gone)
        held[crowded] -= 1
    return chosen


def _bounds_of_row(problem: Problem, held: Ints) -> tuple[Ints, Ints]:
    """Return the fewest and most replicas per rack of one partition, on brokers that hold it or may receive it."""
    brokers = problem.brokers
    reach = brokers.receivers.copy()
    reach[held] = True
    sizes = np.bincount(brokers.rack[reach & (brokers.rack >= 0)], minlength=int(brokers.rack.max(initial=-1)) + 1)
    rackless = int((reach & (brokers.rack < 0)).sum())
    low, high = _bounds(len(held), tuple(sizes.tolist()), rackless, own_rack=True)
    return np.maximum(np.array(low, np.int64), 0), np.array(high, np.int64)


def _next_crowded(held: Ints, low: Ints, high: Ints, *, placed: int) -> int | None:
    """Return the fullest rack that has to give up a replica, when `placed` are to be placed elsewhere; None if none."""
    over = (held > high).any()
    if not over and np.maximum(low - held, 0).sum() <= placed:
        return None
    return int(np.where(held > (high if over else low), held, -1).argmax())
