"""A person takes a drained broker into use again."""

from __future__ import annotations

from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.cluster.configs import ConfigChange, ConfigOp
from kafka_steward.execution.cordons import KEY
from kafka_steward.sandbox import Sandbox
from tests.eventually import eventually

__all__ = ["lift_cordon"]


def lift_cordon(sandbox: Sandbox, broker: int) -> bool:
    """Delete the cordon of a broker, and wait until it knows; return whether it had one."""

    def assert_lifted() -> None:
        assert not cluster.directories([broker])[broker].cordoned

    with KafkaCluster({"bootstrap_servers": sandbox.live_bootstrap}) as cluster:
        had = bool(cluster.broker_configs([broker], [KEY], own_only=True)[broker].get(KEY))
        assert cluster.change_broker_configs({broker: [ConfigChange(KEY, ConfigOp.DELETE)]}) == {broker: None}
        eventually(assert_lifted, within=30)
    return had
