"""The balance of a cluster before and after a plan: the field `spread` of a proof."""

from __future__ import annotations

from typing import Any

import numpy as np

from kafka_steward.planning.solver.arrays import Brokers, Ints
from kafka_steward.planning.solver.measures import Measures

__all__ = ["spread_of"]


def spread_of(measures: Measures, brokers: Brokers) -> dict[str, Any]:
    """Return replicas, leaders and bytes per broker, replicas per topic, and the failover order."""
    return {
        "replicas": _both(measures.replicas_before, measures.replicas_after, brokers),
        "leaders": _both(measures.leaders_before, measures.leaders_after, brokers),
        "bytes": _both(measures.bytes_before, measures.bytes_after, brokers),
        "topics": {when: _topics(measures, when) for when in ("before", "after")},
        "topic_widest": {when: max(map(int, measures.spreads[when]), default=0) for when in ("before", "after")},
        "next_in_line": {
            "before": _succession(measures.pairs_before, measures.leaders_before, brokers),
            "after": _succession(measures.pairs_after, measures.leaders_after, brokers),
        },
        "next_in_line_most": {
            "before": int(measures.pairs_before.max(initial=0)),
            "after": int(measures.pairs_after.max(initial=0)),
        },
    }


def _both(before: Ints, after: Ints, brokers: Brokers) -> dict[str, Any]:
    return {"before": _by_broker(before, brokers), "after": _by_broker(after, brokers)}


def _by_broker(values: Ints, brokers: Brokers) -> dict[str, Any]:
    usable = values[brokers.target]
    return {
        "by_broker": {str(broker): int(value) for broker, value in zip(brokers.ids, values, strict=True)},
        "least": int(usable.min(initial=int(usable.max(initial=0)))),
        "most": int(usable.max(initial=0)),
    }


def _topics(measures: Measures, when: str) -> dict[str, Any]:
    """Count the topics per difference between their fullest and their emptiest broker, and name the worst."""
    worst = [{"topic": name, "spread": spread} for name, spread in measures.widest[when]]
    return {"by_spread": measures.spreads[when], "widest": worst}


def _succession(pairs: Ints, leaders: Ints, brokers: Brokers) -> dict[str, Any]:
    """Return adjacent pairs (preferred leader, next in line), and the broker failure that burdens another broker most.

    `partitions` of `heaviest` is what its successor would lead in addition, `leads` what it would lead in all.
    """
    count = len(brokers)
    table = pairs.reshape(count, count)
    in_use = table[table > 0]
    leads = np.where(table > 0, table + leaders[None, :], 0)
    dies, takes_over = divmod(int(leads.argmax()) if leads.size else 0, max(count, 1))
    heaviest = None
    if in_use.size:
        heaviest = {
            "dies": int(brokers.ids[dies]),
            "takes_over": int(brokers.ids[takes_over]),
            "partitions": int(table[dies, takes_over]),
            "leads": int(leads[dies, takes_over]),
        }
    return {
        "pairs": int(in_use.size),
        "least": int(in_use.min(initial=int(in_use.max(initial=0)))),
        "most": int(in_use.max(initial=0)),
        "squares": int((in_use.astype(np.int64) ** 2).sum()),
        "heaviest": heaviest,
    }
