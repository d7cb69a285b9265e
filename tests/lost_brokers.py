"""Brokers that are away, and that a KRaft cluster does not know any more: Kafka places no replica on them."""

from __future__ import annotations

from kafka_steward.sandbox import Sandbox

__all__ = ["lose"]

_CLUSTER = "org.apache.kafka.tools.ClusterTool"


def lose(sandbox: Sandbox, broker: int) -> None:
    """Kill a broker, and on KRaft unregister it; it registers again when it is restarted."""
    sandbox.kill(broker)
    if sandbox.mode == "kraft":
        sandbox.kafka_tool(_CLUSTER, "unregister", "--bootstrap-server", sandbox.bootstrap, "--id", str(broker))
