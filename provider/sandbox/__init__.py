"""Real local Kafka clusters, for the demo, the tests, the benchmarks and DAG authors."""

from __future__ import annotations

from kafka_steward.sandbox.cluster import Sandbox, SandboxBroker, start
from kafka_steward.sandbox.neglected import Neglected, start_neglected

__all__ = ["Neglected", "Sandbox", "SandboxBroker", "start", "start_neglected"]
