"""The sandbox's client of its cluster: topics, data in them, and checks that all of it is ready.

An open port proves little, and so does a topic's full ISR: a KRaft cluster reports it while the brokers are still
creating the logs. Therefore every broker must answer, be listed and not be fenced; each partition must have its leader
and its full ISR; and each replica must be found in its broker's log directories.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

from kafka import KafkaAdminClient
from kafka.errors import KafkaError, TopicAlreadyExistsError, for_code
from kafka.protocol.producer import ProduceRequest
from kafka.record.default_records import DefaultRecordBatchBuilder

from kafka_steward.cluster.session import quiet_client_logs
from kafka_steward.errors import SandboxFailed

_EVERY_S = 0.1
_Result = TypeVar("_Result")


@contextmanager
def admin_client(bootstrap: str, *, timeout_ms: int = 30_000) -> Iterator[Any]:
    """Yield a new kafka-python admin client, which is closed at the end."""
    quiet_client_logs()
    client = KafkaAdminClient(
        bootstrap_servers=bootstrap.split(","), bootstrap_timeout_ms=timeout_ms, request_timeout_ms=timeout_ms
    )
    try:
        yield client
    finally:
        client.close()


def retry_on_admin(bootstrap: str, act: Callable[[Any], _Result]) -> _Result:
    """Return the result of `act` on a new admin client; retry on another client after an error of Kafka.

    A client may pick a broker that is dead already, and caches a controller that is. Raises SandboxFailed.
    """
    results: list[_Result] = []

    def attempt() -> list[str]:
        with admin_client(bootstrap) as client:
            results.append(act(client))
        return []

    wait_until_none(attempt, within_s=60)
    return results[0]


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
            raise SandboxFailed(f"The sandbox waited {within_s:.0f} s without success: {'; '.join(left[:5])}.")
        time.sleep(_EVERY_S)


def unready_brokers(addresses: Mapping[int, str]) -> list[str]:
    """Return one message for each broker that does not answer, or that another broker does not list as live.

    `addresses` are given by broker id. Each broker is queried by itself, because a broker that was paused still has its
    old metadata.
    """
    views = {broker: _live_brokers_at(address) for broker, address in addresses.items()}
    silent = [f"broker {broker} does not answer at {addresses[broker]}" for broker in views if views[broker] is None]
    unknown = [
        f"broker {witness} does not list broker {broker}"
        for witness, view in views.items()
        for broker in sorted(set(addresses) - (view or set()))
    ]
    if silent or unknown:
        return silent or unknown
    with admin_client(",".join(addresses.values())) as client:
        brokers = client.describe_cluster()["brokers"]
    live = {broker["broker_id"] for broker in brokers if not broker.get("is_fenced")}
    return [f"broker {broker} is fenced" for broker in sorted(set(addresses) - live)]


def _live_brokers_at(address: str) -> set[int] | None:
    host, port = address.split(":")
    try:
        with socket.create_connection((host, int(port)), timeout=2):
            pass
        # With this broker as its only bootstrap server, the client gets its first metadata from it.
        with admin_client(address, timeout_ms=2000) as client:
            return {broker.node_id for broker in client._manager.cluster.brokers()}  # noqa: SLF001 - no public name
    except (KafkaError, OSError):
        return None


def unready_partitions(bootstrap: str, topics: Collection[str] | None) -> list[str]:
    """Return one message for each replica of these topics (None: of all) that is not in the ISR, or has no log yet."""
    with admin_client(bootstrap) as client:
        described = client.describe_topics(None if topics is None else list(topics))
        absent = [
            f"topic {topic['name']} has error {topic['error_code']}" for topic in described if topic["error_code"]
        ]
        wanted = [(topic["name"], partition) for topic in described for partition in topic["partitions"]]
        behind = [message for topic, partition in wanted for message in _isr_problems(topic, partition)]
        return absent or behind or _replicas_without_log(client, wanted)


def _isr_problems(topic: str, partition: Mapping[str, Any]) -> list[str]:
    name = f"{topic}-{partition['partition_index']}"
    leaderless = [f"{name} has no leader"] if partition["leader_id"] < 0 else []
    missing = sorted(set(partition["replica_nodes"]) - set(partition["isr_nodes"]))
    return leaderless + [f"{name} lacks broker {broker} in its ISR" for broker in missing]


def _replicas_without_log(client: Any, wanted: list[tuple[str, Mapping[str, Any]]]) -> list[str]:
    hosting = sorted({broker for _, partition in wanted for broker in partition["replica_nodes"]})
    held = {
        (broker, topic["name"], partition["partition_index"])
        for broker in hosting
        for answer in client.describe_log_dirs(brokers=[broker])
        for log_dir in answer["log_dirs"]
        for topic in log_dir["topics"]
        for partition in topic["partitions"]
    }
    return [
        f"broker {broker} has no log of {topic}-{partition['partition_index']}"
        for topic, partition in wanted
        for broker in partition["replica_nodes"]
        if (broker, topic, partition["partition_index"]) not in held
    ]


def create_topics(
    bootstrap: str,
    topics: Collection[str],
    partitions: int,
    replication_factor: int,
    *,
    assignments: Mapping[int, Collection[int]] | None,
    configs: Mapping[str, str] | None,
) -> None:
    """Create topics; return when Kafka has confirmed each. Raises SandboxFailed with Kafka's own message.

    `assignments` (broker ids by partition) replaces the counts.
    """
    placed = {partition: list(replicas) for partition, replicas in (assignments or {}).items()}
    counts = {} if placed else {"num_partitions": partitions, "replication_factor": replication_factor}
    wanted = {topic: {"assignments": placed, "configs": dict(configs or {}), **counts} for topic in topics}
    accepted = {0}

    def create(client: Any) -> list[str]:
        try:
            answers = client.create_topics(wanted, raise_errors=False)["topics"]
        except KafkaError:
            # Kafka takes longer for thousands of partitions than it is given, and goes on: the next try finds them.
            accepted.add(TopicAlreadyExistsError.errno)
            raise
        return [
            f"{topic['name']}: {topic['error_message']}" for topic in answers if topic["error_code"] not in accepted
        ]

    if refused := retry_on_admin(bootstrap, create):
        raise SandboxFailed(f"Kafka did not create {'; '.join(refused)}")


def delete_topics(bootstrap: str, prefix: str) -> None:
    """Delete every topic whose name begins with `prefix`; cancel its reassignments in flight first."""
    listed = retry_on_admin(bootstrap, lambda client: client.list_topics())
    doomed = [name for name in listed if name.startswith(prefix)]
    if not doomed:
        return
    # With ZooKeeper, a topic is deleted only after its reassignment has completed, which may never happen.
    in_flight = retry_on_admin(bootstrap, lambda client: client.list_partition_reassignments())
    moving = [partition for partition in in_flight if partition.topic in doomed]
    if moving:
        retry_on_admin(bootstrap, lambda client: client.alter_partition_reassignments(dict.fromkeys(moving)))
    retry_on_admin(bootstrap, lambda client: client.delete_topics(doomed, raise_errors=False))


_MESSAGE_BYTES = 8 * 1024
# Kafka's default limit is 1 MiB.
_BATCH_BYTES = 1_000_000
_REQUEST_PARTITIONS = 16
_PATIENCE_S = 240.0
# The metadata of a new topic reaches other brokers with a delay.
_PROPAGATED_WITHIN_S = 10.0
# The last version that identifies topics by name; later versions require their ids.
_MAX_VERSION = 9


def fill_topic(bootstrap: str, topic: str, bytes_: int) -> int:
    """Append at least `bytes_`, evenly over the partitions; return the number of bytes. The whole ISR has them then.

    kafka-python computes the checksum of each batch in plain Python, at about 7 MB/s. The checksum excludes the batch's
    offset, so one batch is built once and sent repeatedly, to every partition.
    """
    partitions = set(retry_on_admin(bootstrap, lambda client: _partition_leaders(client, topic)))
    share = -(-bytes_ // len(partitions))
    rounds = -(-share // _BATCH_BYTES)
    batch = _record_batch(share // rounds)
    for _ in range(rounds):
        wait_until_none(partial(_append_batch, bootstrap, topic, batch, set(partitions)), within_s=_PATIENCE_S)
    return rounds * len(batch) * len(partitions)


def _record_batch(size: int) -> bytes:
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, size + 2 * _MESSAGE_BYTES)
    value = os.urandom(_MESSAGE_BYTES)
    now_ms = int(time.time() * 1000)
    for offset in range(max(1, size // _MESSAGE_BYTES)):
        builder.append(offset, now_ms, None, value, [])
    return bytes(builder.build())


def _append_batch(bootstrap: str, topic: str, batch: bytes, waiting: set[int]) -> list[str]:
    """Append to the partitions in `waiting`, and remove those that took it; return a message for each that is left."""
    with admin_client(bootstrap) as client:
        leaders = _partition_leaders(client, topic)
        for requests in _produce_rounds(topic, {partition: leaders[partition] for partition in waiting}, batch):
            waiting -= client._manager.run(_send_requests, client, requests)  # noqa: SLF001 - no public call takes a request
    return [f"{topic}-{partition} took no data" for partition in sorted(waiting)]


def _produce_rounds(topic: str, leaders: Mapping[int, int], batch: bytes) -> list[list[tuple[int, Any]]]:
    """Return the requests by round, with at most one request to each leader.

    A broker answers requests in order, and each waits for its followers: of many concurrent ones, the last would be
    late.
    """
    by_leader: dict[int, list[int]] = {}
    for partition, leader in sorted(leaders.items()):
        by_leader.setdefault(leader, []).append(partition)
    longest = max(map(len, by_leader.values()), default=0)
    return [
        [
            (leader, _produce_request(topic, part, batch))
            for leader, partitions in by_leader.items()
            if (part := partitions[start : start + _REQUEST_PARTITIONS])
        ]
        for start in range(0, longest, _REQUEST_PARTITIONS)
    ]


def _produce_request(topic: str, partitions: Iterable[int], batch: bytes) -> Any:
    data = ProduceRequest.TopicProduceData
    records = [data.PartitionProduceData(index=partition, records=batch) for partition in partitions]
    topics = [data(name=topic, partition_data=records)]
    return ProduceRequest(
        transactional_id=None, acks=-1, timeout_ms=30_000, topic_data=topics, max_version=_MAX_VERSION
    )


async def _send_requests(client: Any, requests: Iterable[tuple[int, Any]]) -> set[int]:
    # The partitions of a leader that is down are left for a later attempt.
    futures = [client._manager.send(request, node_id=leader) for leader, request in requests]  # noqa: SLF001 - as above
    done: set[int] = set()
    for future in futures:
        with suppress(KafkaError):
            answer = await future
            done.update(one.index for one in answer.responses[0].partition_responses if not one.error_code)
    return done


def _partition_leaders(client: Any, topic: str) -> dict[int, int]:
    deadline = time.monotonic() + _PROPAGATED_WITHIN_S
    while (described := client.describe_topics([topic])[0])["error_code"]:
        if time.monotonic() > deadline:
            raise SandboxFailed(f"There is no topic {topic} to fill: {for_code(described['error_code']).__name__}.")
        time.sleep(0.1)
    return {partition["partition_index"]: partition["leader_id"] for partition in described["partitions"]}
