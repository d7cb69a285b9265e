"""Checks that a cluster and its topics are ready and fully replicated, repeated until Kafka itself confirms it.

An open port proves little, and so does a topic's full ISR: a KRaft cluster reports it while the brokers are still
creating the logs. Therefore every broker must answer, be listed and not be fenced; each partition must have its leader
and its full ISR; and each replica must be found in its broker's log directories.
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

_EVERY_S = 0.1
_Answer = TypeVar("_Answer")


@contextmanager
def admin(bootstrap: str, *, timeout_ms: int = 30_000) -> Iterator[Any]:
    """Yield a new kafka-python admin client, which is closed at the end."""
    client = KafkaAdminClient(
        bootstrap_servers=bootstrap.split(","), bootstrap_timeout_ms=timeout_ms, request_timeout_ms=timeout_ms
    )
    try:
        yield client
    finally:
        client.close()


def ask(bootstrap: str, question: Callable[[Any], _Answer], *, within_s: float = 60.0) -> _Answer:
    """Return the result of `question` on a new admin client; retry on another client after an error of Kafka.

    A client may pick a broker that is dead already, and caches a controller that is. Raises SandboxFailed.
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
    """Call `missing` until it returns nothing. Raises SandboxFailed with its last result.

    `while_waiting` is called before each call; its errors end the wait.
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
    """Return one message for each broker that does not answer, or that another broker does not list as live.

    `addresses` are given by broker id. Each broker is queried by itself, because a broker that was paused still has its
    old metadata.
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
        # With this broker as its only bootstrap server, the client gets its first metadata from it.
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
    """Return one message for each replica of these topics (None: of all) that is not in the ISR, or has no log yet."""
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
                # The field for the topic's name is `name` in the protocol's own message.
                yield from ((topic["name"], partition["partition_index"]) for partition in topic["partitions"])
