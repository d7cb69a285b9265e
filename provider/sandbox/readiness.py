"""Is the cluster ready, is a topic ready, is everything whole? Asked of Kafka itself, until the answer is yes.

A port that is open proves little, and so does a topic's full ISR: a KRaft cluster claims it while the brokers are still
making the logs. So: every broker answers, is listed and not fenced; each partition has its leader and its ISR, and each
replica is found in its broker's log directories.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from kafka_steward.errors import SandboxFailed

__all__ = ["admin", "ask", "unready_brokers", "unready_partitions", "wait_until_none"]

_EVERY_S = 0.1
_Answer = TypeVar("_Answer")


@contextmanager
def admin(bootstrap: str, *, timeout_ms: int = 30_000) -> Iterator[Any]:
    """A new kafka-python admin client, closed at the end."""
    client = KafkaAdminClient(
        bootstrap_servers=bootstrap.split(","), bootstrap_timeout_ms=timeout_ms, request_timeout_ms=timeout_ms
    )
    try:
        yield client
    finally:
        client.close()


def ask(bootstrap: str, question: Callable[[Any], _Answer], *, within_s: float = 60.0) -> _Answer:
    """Put `question` to a new admin client, and again to another one while Kafka's answer is an error.

    A client may pick a broker that is dead already, and remembers a controller that is. Raises SandboxFailed.
    """
    answers: list[_Answer] = []

    def attempt() -> list[str]:
        with admin(bootstrap) as client:
            answers.append(question(client))
        return []

    wait_until_none(attempt, within_s=within_s)
    return answers[0]


def wait_until_none(
    missing: Callable[[], list[str]], *, within_s: float, while_waiting: Callable[[], None] = lambda: None
) -> None:
    """Ask `missing` what is still to come until that is nothing. Raises SandboxFailed with its last answer.

    `while_waiting` is called before each look; what it raises ends the wait.
    """
    deadline = time.monotonic() + within_s
    while True:
        while_waiting()
        try:
            left = missing()
        except (KafkaError, OSError) as error:
            left = [f"{type(error).__name__}: {error}"]
        if not left:
            return
        if time.monotonic() > deadline:
            raise SandboxFailed(f"The sandbox waited {within_s:.0f} s in vain: {'; '.join(left[:5])}.")
        time.sleep(_EVERY_S)


def unready_brokers(addresses: Mapping[int, str]) -> list[str]:
    """One sentence for each broker that does not answer, or that one of them does not list as live.

    `addresses` by broker id. Each broker is asked for itself: one that was paused still believes what it knew before.
    """
    views = {broker: _live_as_seen_at(address) for broker, address in addresses.items()}
    silent = [f"broker {broker} does not answer at {addresses[broker]}" for broker in views if views[broker] is None]
    unknown = [
        f"broker {other} does not list broker {broker}"
        for other, view in views.items()
        for broker in sorted(set(addresses) - (view or set()))
    ]
    return silent or unknown or _fenced(addresses)


def _live_as_seen_at(address: str) -> set[int] | None:
    host, port = address.split(":")
    try:
        with socket.create_connection((host, int(port)), timeout=2):
            pass
        # Made for this broker alone, the client gets its first metadata from no other.
        with admin(address, timeout_ms=2000) as client:
            return {broker.node_id for broker in client._manager.cluster.brokers()}  # noqa: SLF001 - no public name
    except (KafkaError, OSError):
        return None


def _fenced(addresses: Mapping[int, str]) -> list[str]:
    with admin(",".join(addresses.values())) as client:
        brokers = client.describe_cluster()["brokers"]
    live = {broker["broker_id"] for broker in brokers if not broker.get("is_fenced")}
    return [f"broker {broker} is fenced" for broker in sorted(set(addresses) - live)]


def unready_partitions(bootstrap: str, topics: Collection[str] | None) -> list[str]:
    """One sentence for each replica of these topics (None: of all) that is not in the ISR, or has no log yet."""
    with admin(bootstrap) as client:
        described = client.describe_topics(None if topics is None else list(topics))
        absent = [
            f"topic {topic['name']} has error {topic['error_code']}" for topic in described if topic["error_code"]
        ]
        wanted = [(topic["name"], partition) for topic in described for partition in topic["partitions"]]
        behind = [complaint for name, partition in wanted for complaint in _complaints(name, partition)]
        return absent or behind or _without_log(client, wanted)


def _complaints(topic: str, partition: Mapping[str, Any]) -> list[str]:
    name = f"{topic}-{partition['partition_index']}"
    leaderless = [f"{name} has no leader"] if partition["leader_id"] < 0 else []
    missing = sorted(set(partition["replica_nodes"]) - set(partition["isr_nodes"]))
    return leaderless + [f"{name} lacks broker {broker} in its ISR" for broker in missing]


def _without_log(client: Any, wanted: list[tuple[str, Mapping[str, Any]]]) -> list[str]:
    hosting = sorted({broker for _, partition in wanted for broker in partition["replica_nodes"]})
    held = {(broker, *log) for broker in hosting for log in _logs(client, broker)}
    return [
        f"broker {broker} has no log of {topic}-{partition['partition_index']}"
        for topic, partition in wanted
        for broker in partition["replica_nodes"]
        if (broker, topic, partition["partition_index"]) not in held
    ]


def _logs(client: Any, broker: int) -> Iterator[tuple[str, int]]:
    for answer in client.describe_log_dirs(brokers=[broker]):
        for log_dir in answer["log_dirs"]:
            for topic in log_dir["topics"]:
                # The topic's name is called `name` in the protocol's own message.
                yield from ((topic["name"], partition["partition_index"]) for partition in topic["partitions"])
