"""The proof of a plan: what it moves, how little could do, and the balance before and after."""

from __future__ import annotations

from typing import Any

import numpy as np

from kafka_steward.assignment import Operation
from kafka_steward.planning.arrays import Brokers, Ints
from kafka_steward.planning.measures import Measures
from kafka_steward.planning.options import Options

__all__ = ["proof_of"]

#: Reasons that say "not now" rather than "cannot be".
_PINNED = ("in_flight", "pinned", "excluded")


def proof_of(measures: Measures, brokers: Brokers, operation: Operation, options: Options) -> dict[str, Any]:
    """Everything that `proof.json` holds but the digests and the cluster's id.

    `lower_bound` is proven. For heal and fill it is the number of missing replicas of every partition that can have
    them: each must be added somewhere, and each addition counts once, so no plan that makes those partitions whole
    moves fewer; and because none that is in place is moved, the plan moves exactly that many. For rebalance, expand and
    drain it is the cost of the flow, and `prices`, where they could be found, let `check` prove it without the flow.
    """
    counts = measures.counts
    return {
        "operation": operation.value,
        "options": options.to_json(operation),
        "partitions": counts["partitions"],
        "partitions_moved": counts["partitions_moved"],
        "replicas_moved": counts["replicas_moved"],
        "bytes_moved": counts["bytes_moved"],
        "lower_bound": counts["lower_bound"],
        "gap": counts["replicas_moved"] - counts["lower_bound"],
        "leader_changes": counts["leader_changes"],
        "leader_changes_forced": counts["leader_changes_forced"],
        "rack_violations": {"before": counts["rack_violations_before"], "after": counts["rack_violations_after"]},
        "brokers_failed": _ids(brokers, "failed"),
        "brokers_draining": _ids(brokers, "draining"),
        "spread": _spread(measures, brokers),
        "unplaced": [_left(*one) for one in measures.left if one[2] not in _PINNED],
        "pinned": [_left(*one) for one in measures.left if one[2] in _PINNED],
        "prices": _prices(measures, brokers),
        "predicted_seconds": _seconds(measures, options),
        "notes": [*measures.notes, *_notes(counts)],
    }


def _prices(measures: Measures, brokers: Brokers) -> dict[str, int]:
    usable = brokers.ids[brokers.having("live", "new")]
    return {str(broker): price for broker, price in zip(usable, measures.prices, strict=False)}


def _ids(brokers: Brokers, state: str) -> list[int]:
    return [int(broker) for broker in brokers.ids[brokers.having(state)]]


def _left(topic: str, partition: int, reason: str) -> dict[str, Any]:
    return {"topic": topic, "partition": partition, "reason": reason}


def _spread(measures: Measures, brokers: Brokers) -> dict[str, Any]:
    replicas = {"before": measures.replicas_before, "after": measures.replicas_after}
    leaders = {"before": measures.leaders_before, "after": measures.leaders_after}
    return {
        "replicas": {when: _by_broker(values, brokers) for when, values in replicas.items()},
        "leaders": {when: _by_broker(values, brokers) for when, values in leaders.items()},
        "topic_widest": {when: measures.widest[f"topic_spread_{when}"] for when in ("before", "after")},
        "next_in_line_most": {
            "before": int(measures.pairs_before.max(initial=0)),
            "after": int(measures.pairs_after.max(initial=0)),
        },
    }


def _by_broker(values: Ints, brokers: Brokers) -> dict[str, Any]:
    usable = values[brokers.target]
    return {
        "by_broker": {str(broker): int(value) for broker, value in zip(brokers.ids, values, strict=True)},
        "least": int(usable.min(initial=int(usable.max(initial=0)))),
        "most": int(usable.max(initial=0)),
    }


def _seconds(measures: Measures, options: Options) -> float:
    """The time that the busiest broker needs at the throttle: no order can be faster."""
    busiest = max(int(np.max(measures.bytes_in, initial=0)), int(np.max(measures.bytes_out, initial=0)))
    return round(busiest / options.throttle, 1)


def _notes(counts: dict[str, int]) -> list[str]:
    unknown = counts["partitions_without_size"]
    return [f"{unknown} partitions have no known size; each counts as 0 bytes."] if unknown else []
