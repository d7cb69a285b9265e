"""Repair of a damaged sandbox, so that the next test starts with a fully replicated cluster."""

from __future__ import annotations

from kafka_steward.sandbox.cluster import Sandbox
from kafka_steward.sandbox.readiness import ask

__all__ = ["delete_topics", "restore_cluster"]


def restore_cluster(sandbox: Sandbox) -> None:
    """Resume paused processes and restart dead brokers; return when all are listed as live."""
    sandbox.resume_service()
    for broker in sandbox.paused:
        sandbox.resume(broker)
    for broker in sandbox.dead:
        sandbox.restart(broker)
    sandbox.wait_ready()


def delete_topics(sandbox: Sandbox, prefix: str) -> None:
    """Delete every topic whose name begins with `prefix`; cancel its reassignments in flight first."""
    doomed = [name for name in ask(sandbox.bootstrap, lambda client: client.list_topics()) if name.startswith(prefix)]
    if not doomed:
        return
    _cancel(sandbox, set(doomed))
    ask(sandbox.bootstrap, lambda client: client.delete_topics(doomed, raise_errors=False))


def _cancel(sandbox: Sandbox, topics: set[str]) -> None:
    # With ZooKeeper, a topic is deleted only after its reassignment has completed, which may never happen.
    listed = ask(sandbox.bootstrap, lambda client: client.list_partition_reassignments())
    moving = [partition for partition in listed if partition.topic in topics]
    if moving:
        ask(sandbox.bootstrap, lambda client: client.alter_partition_reassignments(dict.fromkeys(moving)))
