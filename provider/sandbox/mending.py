"""Puts a damaged sandbox right, so that the next test finds a whole cluster."""

from __future__ import annotations

from kafka_steward.sandbox.cluster import Sandbox
from kafka_steward.sandbox.readiness import ask

__all__ = ["delete_topics", "mend"]


def mend(sandbox: Sandbox) -> None:
    """Resume what is paused and restart dead brokers; returns when all are listed as live."""
    sandbox.resume_service()
    for broker in sandbox.paused:
        sandbox.resume(broker)
    for broker in sandbox.dead:
        sandbox.restart(broker)
    sandbox.wait_ready()


def delete_topics(sandbox: Sandbox, prefix: str) -> None:
    """Delete every topic whose name begins with `prefix`, with what is in flight for it."""
    doomed = [name for name in ask(sandbox.bootstrap, lambda client: client.list_topics()) if name.startswith(prefix)]
    if not doomed:
        return
    _cancel(sandbox, set(doomed))
    ask(sandbox.bootstrap, lambda client: client.delete_topics(doomed, raise_errors=False))


def _cancel(sandbox: Sandbox, topics: set[str]) -> None:
    # A topic with a move in flight is deleted with ZooKeeper only once that has ended, which it may never do.
    listed = ask(sandbox.bootstrap, lambda client: client.list_partition_reassignments())
    moving = [partition for partition in listed if partition.topic in topics]
    if moving:
        ask(sandbox.bootstrap, lambda client: client.alter_partition_reassignments(dict.fromkeys(moving)))
