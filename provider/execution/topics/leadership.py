"""The share of the partitions that brokers lead after they have received replicas. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection

from kafka_steward.cluster.state import Snapshot

#: A broker leads too few partitions when it leads less than this part of its share.
_PART = 0.5


def describe_leader_shortfall(snapshot: Snapshot, received: Collection[int]) -> str:
    """Return a message that names the brokers of `received` that lead less than half of their share; else empty.

    A broker's share is one leader for each replication factor's worth of the replicas that it hosts.
    """
    leaders = Counter(partition.leader for partition in snapshot.partitions.values())
    share: dict[int, float] = defaultdict(float)
    for partition in snapshot.partitions.values():
        for broker in partition.replicas:
            share[broker] += 1 / len(partition.replicas)
    short = [
        f"broker {broker} leads {leaders[broker]} of its share of {share[broker]:.0f}"
        for broker in sorted(set(received) & snapshot.live)
        if leaders[broker] < _PART * share[broker] and share[broker] >= 1
    ]
    if not short:
        return ""
    return (
        f"Leaders are uneven: {', '.join(short)}, because a heal moves no leader that is alive; "
        "the operation rebalance makes them even."
    )
