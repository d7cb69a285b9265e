"""Broker configuration for both modes: small, local, with fast failure detection and without background activity."""

from __future__ import annotations

from kafka_steward.sandbox.layout import BrokerLayout, Layout

__all__ = ["broker_properties"]

# The defaults of these properties reserve memory and threads for larger machines.
_SMALL: dict[str, object] = {
    "background.threads": 2,
    "log.cleaner.dedupe.buffer.size": 2 * 1024**2,
    "log.cleaner.threads": 1,
    "log.index.size.max.bytes": 1024**2,
    "log.segment.delete.delay.ms": 1000,
    "log.segment.bytes": 16 * 1024**2,
    "num.io.threads": 2,
    "num.network.threads": 2,
    "num.recovery.threads.per.data.dir": 1,
}
# A test must observe only its own changes, not those that the cluster makes by itself.
_DETERMINISTIC: dict[str, object] = {
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "group.initial.rebalance.delay.ms": 0,
    "replica.lag.time.max.ms": 5000,
}


def broker_properties(place: BrokerLayout, layout: Layout) -> dict[str, object]:
    """Return the properties that do not depend on the mode; the layout's overrides are not included."""
    copies = min(3, len(layout.brokers))
    return {
        "broker.rack": place.rack,
        "log.dirs": ",".join(map(str, layout.log_dirs(f"broker-{place.id}"))),
        "offsets.topic.replication.factor": copies,
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": 1,
        **_SMALL,
        **_DETERMINISTIC,
    }
