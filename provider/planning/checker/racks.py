"""The check of a plan that only repairs racks: what moves breaks the rule, moves as little as can, and is repaired.

A partition breaks the rule if a rack holds more of its replicas than the best spread over the brokers needs, or fewer.
Each replica beyond the most has to leave its rack, and each that a rack lacks has to come from another one: whichever
are more is the least that any plan moves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from kafka_steward.assignment import Assignment, Move
from kafka_steward.planning.checker.constraints import BrokerConstraints
from kafka_steward.planning.checker.rules import CheckContext, SnapshotPartition, hold_reasons


def rack_repair_problems(moves: Sequence[Move], brokers: pa.Table, context: CheckContext) -> Iterator[str]:
    """Yield a problem for each partition that moves without need, too much, or to racks that still break the rule.

    A partition that is not repaired is a problem only without a budget, and if the plan may touch it.
    """
    if context.options.get("balance") != "racks":
        return
    constraints = BrokerConstraints.of(brokers, context.options)
    planned = {move.topic_partition: move for move in moves}
    whole = not context.options.get("max_moves") and not context.options.get("max_bytes")
    for name, part in context.partitions.items():
        move, due = planned.get(name), count_crowded_replicas(part.replicas, part, constraints)
        if move is None:
            if due and whole and not hold_reasons(name, context):
                yield f"{name}: its replicas are not spread over the racks as they could be, and it does not move."
        elif not due:
            yield f"{name}: it breaks no rack rule, and moves."
        elif len(move.adding) != due:
            yield f"{name}: it adds {len(move.adding)} replicas; {due} repair its racks."
        elif count_crowded_replicas(move.after, part, constraints):
            yield f"{name}: its replicas are not spread over the racks as they could be after the plan."


def count_crowded_replicas(replicas: Assignment, part: SnapshotPartition, constraints: BrokerConstraints) -> int:
    """Count the replicas that have to move; 0 if one is out of sync, or on a broker or a disk that is not live."""
    holds = np.isin(constraints.ids, replicas)
    # Such a partition is left to a heal, or until its replicas are in sync.
    if part.offline or holds.sum() < len(replicas) or (part.isr and not part.isr.issuperset(part.replicas)):
        return 0
    # The best spread may use the brokers that hold the partition, even if they receive nothing.
    reach = ~constraints.receive_excluded | np.isin(constraints.ids, part.replicas)
    low, high = constraints.reachable_rack_bounds(len(replicas), reach, spread=True)
    held = [int(holds[group].sum()) for group in constraints.rack_members]
    beyond = sum(max(count - most, 0) for count, most in zip(held, high, strict=True))
    return max(beyond, sum(max(least - count, 0) for count, least in zip(held, low, strict=True)))
