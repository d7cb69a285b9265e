"""Which brokers have failed, and by whose word (KIP-46).

A broker that we cannot reach may be behind a broken wire of ours. It is called failed only when the cluster says so:
it has replicas, the cluster does not list it as live, and two other live brokers (all of them, where there are fewer),
asked one by one, do not list it either. A cluster of which no broker answers has no failed broker: it is unreachable.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafka_steward.cluster.state import Snapshot

__all__ = ["failed_brokers", "witnesses"]

WORDS_NEEDED = 2


def failed_brokers(snapshot: Snapshot, views: Mapping[int, frozenset[int]]) -> frozenset[int]:
    """The brokers that have failed. `views` is what each live broker that answered lists as live itself."""
    needed = min(WORDS_NEEDED, len(snapshot.live))
    words = witnesses(snapshot, views)
    return frozenset(broker for broker, by in words.items() if needed and len(by) >= needed)


def witnesses(snapshot: Snapshot, views: Mapping[int, frozenset[int]]) -> dict[int, frozenset[int]]:
    """Each broker that has replicas and is not live, to the live brokers that do not list it as live."""
    # -1 in a ZooKeeper-mode assignment is a placeholder for a replica to come, not a broker.
    missing = {broker for broker in snapshot.hosting - snapshot.live if broker >= 0}
    return {
        broker: frozenset(witness for witness in snapshot.live & set(views) if broker not in views[witness])
        for broker in sorted(missing)
    }
