"""The proof of a plan: its movement, the least movement possible, and the balance before and after."""

from __future__ import annotations

from typing import Any

import numpy as np

from kafka_steward.assignment import Operation
from kafka_steward.planning.files.options import Options
from kafka_steward.planning.solver.arrays import Brokers
from kafka_steward.planning.solver.measures import Measures
from kafka_steward.planning.solver.spread import spread_of

__all__ = ["proof_of"]

#: Reasons that mean "not now" rather than "impossible".
_PINNED = ("in_flight", "pinned", "excluded")


def proof_of(measures: Measures, brokers: Brokers, operation: Operation, options: Options) -> dict[str, Any]:
    """Return the fields of `proof.json`; the caller adds the digests, the cluster id and `log_dirs_failed`.

    docs/planning.md explains each field.

    `lower_bound` is proven. For heal and fill it is the number of missing replicas of every partition that can have
    them. Each must be added somewhere, and each addition counts once, so that no plan that makes those partitions fully
    replicated moves fewer. No replica that is in place is moved, so that the plan moves exactly that many. For
    rebalance, expand and drain it is the cost of the flow, and `prices`, if they could be found, let `check` prove it
    without the flow.
    """
    counts = measures.counts
    gap = counts["replicas_moved"] - counts["lower_bound"]
    return {
        "operation": operation.value,
        "options": options.to_json(operation),
        "partitions": counts["partitions"],
        "partitions_moved": counts["partitions_moved"],
        "replicas_moved": counts["replicas_moved"],
        "bytes_moved": counts["bytes_moved"],
        "lower_bound": counts["lower_bound"],
        "gap": gap,
        "gap_reason": _gap_reason(gap, options),
        "leader_changes": counts["leader_changes"],
        "leader_changes_forced": counts["leader_changes_forced"],
        "leader_changes_bound": _leader_bound(measures, brokers, operation),
        "rack_violations": {"before": counts["rack_violations_before"], "after": counts["rack_violations_after"]},
        "brokers_failed": _ids(brokers, "failed"),
        "brokers_draining": _ids(brokers, "draining"),
        "spread": spread_of(measures, brokers),
        "unplaced": [_left(*one) for one in measures.left if one[2] not in _PINNED],
        "pinned": [_left(*one) for one in measures.left if one[2] in _PINNED],
        "prices": _prices(measures, brokers),
        "predicted_seconds": _seconds(measures, options),
        "notes": [*measures.notes, *_notes(counts)],
    }


def _gap_reason(gap: int, options: Options) -> str | None:
    if gap == 0:
        return None
    if options.balance == "bytes":
        return (
            "The bound counts the replicas that must leave their brokers; the others move to even out the disks, for "
            "which the notes give the fewest bytes."
        )
    return (
        f"The bound looks at each topic as a whole; whether partition by partition {gap} fewer moves would do was left "
        "open at this size."
    )


def _leader_bound(measures: Measures, brokers: Brokers, operation: Operation) -> int:
    """Return the fewest leader changes of any plan with these replicas per topic and broker.

    The leaders of such a plan are as even as here.
    """
    if operation is Operation.APPLY:
        return measures.counts["leader_changes"]
    if len(measures.leader_bounds) == 1 and measures.leader_bounds[0] is not None:
        return measures.leader_bounds[0]
    # The shards' flows cannot be added up, because brokers are shared. The upper bounds on what each shard could keep
    # can.
    planned, sharing = int(measures.leaders_planned.sum()), max(int(brokers.target.sum()), 1)
    most = np.maximum(-(-planned // sharing), measures.leaders_planned)
    by_broker = int(np.minimum(measures.leaders_keepable, most).sum())
    return max(planned - min(measures.counts["leaders_keepable"], by_broker), 0)


def _prices(measures: Measures, brokers: Brokers) -> dict[str, int]:
    usable = brokers.ids[brokers.having("live", "new")]
    return {str(broker): price for broker, price in zip(usable, measures.prices, strict=False)}


def _ids(brokers: Brokers, state: str) -> list[int]:
    return [int(broker) for broker in brokers.ids[brokers.having(state)]]


def _left(topic: str, partition: int, reason: str) -> dict[str, Any]:
    return {"topic": topic, "partition": partition, "reason": reason}


def _seconds(measures: Measures, options: Options) -> float | None:
    """Return the time that the busiest broker needs at the throttle; None when unthrottled.

    No order of the moves can be faster.
    """
    if not options.throttle:
        return None
    busiest = max(int(np.max(measures.bytes_in, initial=0)), int(np.max(measures.bytes_out, initial=0)))
    return round(busiest / options.throttle, 1)


def _notes(counts: dict[str, int]) -> list[str]:
    unknown = counts["partitions_without_size"]
    return [f"{unknown} partitions have no known size; each counts as 0 bytes."] if unknown else []
