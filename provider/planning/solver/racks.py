"""Choose the replicas that a rebalance with `balance="racks"` moves: those that crowd a rack, and no others.

A partition breaks the rack rule if its replicas could be spread better over the racks. The replicas that crowd a rack
give way. They are then placed as a heal places missing replicas: on the racks that lack one, where the load is least.
Two numbers are counted: the replicas beyond the most that their rack may hold, and the replicas that the racks lack.
The larger number gives way, and no plan that repairs the partition moves fewer.

A partition with a replica on a broker that is not live is left to a heal, which may repair its racks, too. A partition
with a live replica out of sync is left alone as well, because Kafka would wait for that replica.
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

    `lagging` are the rows that break the rule and stay because a live replica is out of sync.
    """

    give_way: Bools
    row: Ints
    lagging: Ints
    notes: tuple[str, ...] = ()


def find_crowded_replicas(problem: Problem) -> CrowdedReplicas:
    """Return the replicas that give way: in a crowded rack those on the busiest brokers first, and the leader last."""
    rows, brokers = problem.rows, problem.brokers
    suspect = rack_spread_violated(rows.row, rows.broker, len(rows), brokers)
    # A partition on a broker that receives nothing has bounds of its own, which `rack_spread_violated` does not know.
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
            # Only a row that would have moved is reported.
            lagging += [row] if chosen else []
            continue
        give_way[chosen] = True
        # The next row sees the brokers without the replicas that have left.
        load[rows.broker[chosen]] -= 1
    return CrowdedReplicas(give_way, np.unique(rows.row[give_way]), np.array(lagging, np.int64), notes)


def _choose_of_row(problem: Problem, replicas: Ints, load: Ints) -> list[int]:
    """Return the replicas of a row that give way; `load` has the number of replicas on each broker."""
    rows, brokers = problem.rows, problem.brokers
    broker = dict(zip(replicas.tolist(), rows.broker[replicas].tolist(), strict=True))
    rack = {replica: int(brokers.rack[at]) for replica, at in broker.items() if brokers.rack[at] >= 0}
    low, high = _bounds_of_row(problem, rows.broker[replicas])
    held = np.bincount(np.array(list(rack.values()), np.int64), minlength=len(low))
    leader = rows.leader[rows.row[replicas[0]]]
    waiting = sorted(
        rack,
        key=lambda replica: (
            *(rows.replica_positions[replica] == 0, brokers.ids[broker[replica]] == leader, rows.in_sync[replica]),
            *(-load[broker[replica]], replica),
        ),
    )
    chosen: list[int] = []
    while (crowded := _next_crowded(held, low, high, placed=len(chosen))) is not None:
        gone = next(replica for replica in waiting if rack[replica] == crowded)
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
    """Return the fullest rack that still has to give up a replica, after `placed` others; None if no rack has to."""
    # As long as a rack is too full, only such racks give. Then racks give that are above their floor.
    over = (held > high).any()
    if not over and np.maximum(low - held, 0).sum() <= placed:
        return None
    return int(np.where(held > (high if over else low), held, -1).argmax())
