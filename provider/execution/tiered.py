"""What a new replica of a topic with remote storage copies (KIP-405, KIP-1023).

It copies what its leader has locally, which is the size that the leader reports, and not what is in remote storage.
Where brokers have `follower.fetch.last.tiered.offset.enable` (Kafka 4.3), it begins after the last offset in remote
storage, and copies far less; until its local log is as long as the leader's, it would read what consumers ask for from
remote storage.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.state import Snapshot
from kafka_steward.errors import ClusterError
from kafka_steward.execution.ports import ClusterPort

#: The setting of a topic with remote storage.
REMOTE_STORAGE = "remote.storage.enable"
#: The setting of brokers whose new replicas begin after what is in remote storage.
BEGINS_LATE = "follower.fetch.last.tiered.offset.enable"


def read_copied_shares(cluster: ClusterPort, snapshot: Snapshot) -> dict[TopicPartition, float]:
    """Return the share of a partition's local bytes that a new replica copies, where that is not all of them."""
    with suppress(ClusterError):  # without the right to read them, all of the local bytes are planned for
        # All of them: a plan may place a replica on any broker.
        if _begin_late(cluster, snapshot.live) == snapshot.live:
            starts = cluster.log_starts(_led(cluster, snapshot, snapshot.partitions.keys()))
            return {name: start.share_after_tiered for (name, _), start in starts.items()}
    return {}


def find_begun_late(
    cluster: ClusterPort, snapshot: Snapshot, wanted: Collection[TopicPartition]
) -> dict[TopicPartition, str]:
    """Return the partitions whose preferred replica has a shorter local log than the leader, and why they are left."""
    late = dict[TopicPartition, str]()
    preferred = {name: snapshot.partitions[name].replicas[0] for name in wanted}
    with suppress(ClusterError):
        brokers = _begin_late(cluster, preferred.values())
        led = _led(cluster, snapshot, [name for name, broker in preferred.items() if broker in brokers])
        leaders = {name: leader for leader, names in led.items() for name in names}
        held: dict[int, set[TopicPartition]] = {}
        for name, leader in leaders.items():
            for broker in (leader, preferred[name]):
                held.setdefault(broker, set()).add(name)
        starts = cluster.log_starts(held)
        for name, leader in sorted(leaders.items()):
            ours, theirs = starts.get((name, preferred[name])), starts.get((name, leader))
            if ours is not None and theirs is not None and ours.local > theirs.local:
                late[name] = (
                    f"broker {preferred[name]} has its log from offset {ours.local} on, and the leader from "
                    f"{theirs.local} on: it would read the rest from remote storage (KIP-1023)"
                )
    return late


def _begin_late(cluster: ClusterPort, brokers: Collection[int]) -> frozenset[int]:
    settings = cluster.broker_configs(sorted(set(brokers)), [BEGINS_LATE])
    return frozenset(broker for broker, of in settings.items() if of.get(BEGINS_LATE) == "true")


def _led(
    cluster: ClusterPort, snapshot: Snapshot, names: Collection[TopicPartition]
) -> dict[int, list[TopicPartition]]:
    """Return, by leader, the partitions of `names` with remote storage."""
    topics = sorted({name.topic for name in names})
    settings: Mapping[str, Mapping[str, str]] = cluster.topic_configs(topics, [REMOTE_STORAGE]) if topics else {}
    led: dict[int, list[TopicPartition]] = {}
    for name in names:
        leader = snapshot.partitions[name].leader
        if leader is not None and settings.get(name.topic, {}).get(REMOTE_STORAGE) == "true":
            led.setdefault(leader, []).append(name)
    return led
