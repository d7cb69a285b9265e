"""Creation of topics, and of real data in them.

kafka-python computes the checksum of each batch in plain Python, at about 7 MB/s. The checksum excludes the batch's
offset, so one batch is built once and sent repeatedly, to every partition.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from kafka.errors import KafkaError, for_code
from kafka.protocol.producer import ProduceRequest
from kafka.record.default_records import DefaultRecordBatchBuilder

from kafka_steward.errors import SandboxFailed
from kafka_steward.sandbox.readiness import admin, ask, wait_until_none

_MESSAGE_BYTES = 8 * 1024
# Kafka's default limit is 1 MiB.
_BATCH_BYTES = 1_000_000
_REQUEST_PARTITIONS = 16
_PATIENCE_S = 240.0
# The metadata of a new topic reaches other brokers with a delay.
_HEARD_WITHIN_S = 10.0
# The last version that identifies topics by name; later versions require their ids.
_MAX_VERSION = 9


def topic_spec(
    partitions: int,
    replication_factor: int,
    *,
    assignments: Mapping[int, Collection[int]] | None = None,
    configs: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return a topic in kafka-python's format; `assignments` (broker ids by partition) replaces the counts."""
    placed = {partition: list(replicas) for partition, replicas in (assignments or {}).items()}
    counts = {} if placed else {"num_partitions": partitions, "replication_factor": replication_factor}
    return {"assignments": placed, "configs": dict(configs or {}), **counts}


def create(bootstrap: str, topics: Mapping[str, Mapping[str, Any]]) -> None:
    """Create topics; return when Kafka has confirmed each. Raises SandboxFailed with Kafka's own message."""
    answers = ask(bootstrap, lambda client: client.create_topics(dict(topics), raise_errors=False)["topics"])
    refused = [f"{answer['name']}: {answer['error_message']}" for answer in answers if answer["error_code"]]
    if refused:
        raise SandboxFailed(f"Kafka did not create {'; '.join(refused)}")


def fill(bootstrap: str, topic: str, bytes_: int) -> int:
    """Append at least `bytes_`, evenly over the partitions; return the number of bytes. The whole ISR has them then."""
    partitions = set(ask(bootstrap, lambda client: _leaders(client, topic)))
    share = -(-bytes_ // len(partitions))
    rounds = -(-share // _BATCH_BYTES)
    batch = _batch(share // rounds)
    for _ in range(rounds):
        _append_to_all(bootstrap, topic, batch, set(partitions))
    return rounds * len(batch) * len(partitions)


def _batch(size: int) -> bytes:
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, size + 2 * _MESSAGE_BYTES)
    value = os.urandom(_MESSAGE_BYTES)
    now_ms = int(time.time() * 1000)
    for offset in range(max(1, size // _MESSAGE_BYTES)):
        builder.append(offset, now_ms, None, value, [])
    return bytes(builder.build())


def _append_to_all(bootstrap: str, topic: str, batch: bytes, waiting: set[int]) -> None:
    wait_until_none(lambda: _append(bootstrap, topic, batch, waiting), within_s=_PATIENCE_S)


def _append(bootstrap: str, topic: str, batch: bytes, waiting: set[int]) -> list[str]:
    with admin(bootstrap) as client:
        leaders = _leaders(client, topic)
        for requests in _rounds(topic, {partition: leaders[partition] for partition in waiting}, batch):
            waiting -= client._manager.run(_send, client, requests)  # noqa: SLF001 - no public call takes a request
    return [f"{topic}-{partition} took no data" for partition in sorted(waiting)]


def _rounds(topic: str, leaders: Mapping[int, int], batch: bytes) -> list[list[tuple[int, Any]]]:
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
            (leader, _request(topic, part, batch))
            for leader, partitions in by_leader.items()
            if (part := partitions[start : start + _REQUEST_PARTITIONS])
        ]
        for start in range(0, longest, _REQUEST_PARTITIONS)
    ]


def _request(topic: str, partitions: Iterable[int], batch: bytes) -> Any:
    data = ProduceRequest.TopicProduceData
    records = [data.PartitionProduceData(index=partition, records=batch) for partition in partitions]
    topics = [data(name=topic, partition_data=records)]
    return ProduceRequest(
        transactional_id=None, acks=-1, timeout_ms=30_000, topic_data=topics, max_version=_MAX_VERSION
    )


async def _send(client: Any, requests: Iterable[tuple[int, Any]]) -> set[int]:
    # The partitions of a leader that is down are left for a later attempt.
    futures = [client._manager.send(request, node_id=leader) for leader, request in requests]  # noqa: SLF001 - as above
    done: set[int] = set()
    for future in futures:
        with contextlib.suppress(KafkaError):
            answer = await future
            done.update(one.index for one in answer.responses[0].partition_responses if not one.error_code)
    return done


def _leaders(client: Any, topic: str) -> dict[int, int]:
    deadline = time.monotonic() + _HEARD_WITHIN_S
    while (described := client.describe_topics([topic])[0])["error_code"]:
        if time.monotonic() > deadline:
            raise SandboxFailed(f"There is no topic {topic} to fill: {for_code(described['error_code']).__name__}.")
        time.sleep(0.1)
    return {partition["partition_index"]: partition["leader_id"] for partition in described["partitions"]}
