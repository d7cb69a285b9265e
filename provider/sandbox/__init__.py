"""Real local Kafka clusters, for the demo, the tests, the benchmarks and DAG authors."""

from __future__ import annotations

from kafka_steward.sandbox.cluster import Sandbox, SandboxBroker, start

__all__ = ["Sandbox", "SandboxBroker", "start"]
