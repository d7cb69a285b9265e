"""Every path of the journal's documents, and the names in paths. The KIPs' paths are under `/admin`.

Each component of a path is validated here, so that no topic name, digest or number from outside can address a node
other than its own. Topic names need no escaping: the characters that Kafka allows are allowed in a path.

No other module parses the name of a node: a name becomes part of a path, a statement or a request to Kafka only after
its `NodeName` has parsed it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from kafka_steward.assignment import TopicPartition
from kafka_steward.errors import RequestError
from kafka_steward.escaping import UNPRINTABLE

#: KIP-46: one child per failed broker.
FAILED_BROKERS = "/admin/failed_brokers"
#: KIP-46: one child per broker that announced its shutdown.
ROLLING_BOUNCE = "/admin/rolling_bounce"
#: KIP-236: while this node exists, reassignments are disabled: none may start.
REASSIGN_CANCEL = "/admin/reassign_cancel"
#: KIP-236: a request to cancel the pending reassignments.
CANCEL_IN_PROGRESS = "/admin/cancel_reassignment_in_progress"
#: KIP-236: reassignment requests of any client, one sequential child each.
REASSIGNMENT_REQUESTS = "/admin/reassignment_requests"
REQUEST_PREFIX = f"{REASSIGNMENT_REQUESTS}/request_"
#: KIP-236: further requests while reassignments are in flight.
REASSIGN_QUEUE = "/admin/reassign_partitions_queue"
#: The legacy znode, which Kafka itself reads on ZooKeeper clusters.
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
#: Kafka's own with ZooKeeper: one child per topic whose deletion is pending, and one per topic with its replicas.
DELETE_TOPICS, TOPICS = "/admin/delete_topics", "/brokers/topics"
#: KIP-46: chunks of plans; beside, not under, the legacy znode that Kafka itself reads.
REASSIGN_CHUNKS = "/admin/reassign_chunks"
CHUNK_PREFIX = f"{REASSIGN_CHUNKS}/chunk_"
#: KIP-236: reassignments in flight, one node per partition.
REASSIGNMENTS = "/admin/reassignments"
#: The id of the journal, which is also stored with its rows.
JOURNAL = "/steward/journal"
#: The longest path that every backend accepts, in characters.
MAX_PATH = 1024
#: Broker ids and partition numbers are int32 in Kafka.
MAX_ID = 2**31 - 1

T = TypeVar("T")

_PATH = re.compile(r"(/[^/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]+)+")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,9}")
_NUMBERED = re.compile(r"request_([0-9]{1,19})")
_NUMBERED_CHUNK = re.compile(r"chunk_([0-9]{1,19})")
#: The path of a request, parent included, must not exceed MAX_PATH.
_LONGEST_REQUEST = 900
#: Characters that ZooKeeper accepts in no path.
_UNNAMEABLE = re.compile("[\ud800-\uf8ff\ufff0-\uffff]")


@dataclass(frozen=True)
class NodeName(Generic[T]):
    """A kind of node name: `what` is a description of it for messages; `parse` returns None for any other name."""

    what: str
    parse: Callable[[str], T | None]

    def validate(self, value: object) -> str:
        """Return the name of the node for `value`. Raises RequestError if it is invalid."""
        name = str(value)
        if self.parse(name) is None:
            raise RequestError(f"{name[:80]!r} is no {self.what}.")
        return name


def _parse_id(name: str) -> int | None:
    # Each number has exactly one name: `0003` would be a different node from `3`, which is created and deleted.
    number = int(name) if _NUMBER.fullmatch(name) else None
    return number if number is not None and number <= MAX_ID else None


def _parse_topic(name: str) -> str | None:
    return name if is_topic(name) else None


def _parse_request_name(name: str) -> str | None:
    fits = 0 < len(name) <= _LONGEST_REQUEST and name not in {".", ".."} and "/" not in name
    return name if fits and UNPRINTABLE.search(name) is None and _UNNAMEABLE.search(name) is None else None


def request_number(name: str) -> int | None:
    """Return the number in `request_<n>`, which orders the requests; None if the name has no number."""
    match = _NUMBERED.fullmatch(name)
    return None if match is None else int(match[1])


def chunk_number(name: str) -> int | None:
    """Return the number in `chunk_<n>`, which orders the chunks; None if the name has no number."""
    match = _NUMBERED_CHUNK.fullmatch(name)
    return None if match is None else int(match[1])


_FORM = "at most 249 letters, digits, dots, underscores and hyphens"
BROKER: NodeName[int] = NodeName("broker id, a whole number from 0 to 2147483647 without leading zeros", _parse_id)
PARTITION: NodeName[int] = NodeName("partition, a whole number from 0 to 2147483647 without leading zeros", _parse_id)
TOPIC: NodeName[str] = NodeName(f"topic: {_FORM}", _parse_topic)
REQUEST: NodeName[str] = NodeName("request: at most 900 printable characters", _parse_request_name)
DIGEST: NodeName[str] = NodeName(f"plan: {_FORM}", _parse_topic)
_CHUNK: NodeName[str] = NodeName(f"chunk: {_FORM}", _parse_topic)


def is_topic(value: object) -> bool:
    """Return whether `value` is a valid topic name by Kafka's own rule (org.apache.kafka.common.internals.Topic)."""
    return isinstance(value, str) and _TOPIC.fullmatch(value) is not None and value not in {".", ".."}


def is_broker_or_partition_id(value: object) -> bool:
    """Return whether `value` is a valid broker id or partition number."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_ID


def failed_broker(broker: int) -> str:
    """Return the path of the failure entry of `broker` (KIP-46)."""
    return f"{FAILED_BROKERS}/{BROKER.validate(broker)}"


def rolling_bounce(broker: int) -> str:
    """Return the path of the announced shutdown of `broker` (KIP-46)."""
    return f"{ROLLING_BOUNCE}/{BROKER.validate(broker)}"


def reassignments_of(topic: str) -> str:
    """Return the parent path of `topic`'s partitions with a reassignment in flight (KIP-236)."""
    return f"{REASSIGNMENTS}/{TOPIC.validate(topic)}"


def reassignment(partition: TopicPartition) -> str:
    """Return the path of the reassignment in flight of `partition` (KIP-236)."""
    return f"{reassignments_of(partition.topic)}/{PARTITION.validate(partition.partition)}"


def chunk(name: str) -> str:
    """Return the path of a chunk from its node's name, such as `chunk_0000000003`."""
    return f"{REASSIGN_CHUNKS}/{_CHUNK.validate(name)}"


def validate_path(path: str) -> str:
    """Return `path` unchanged. Raises RequestError unless it is valid in every backend."""
    if not is_path(path):
        raise RequestError(f"{path[:80]!r} is not a path in the journal; a path looks like /admin/failed_brokers/3.")
    return path


def is_path(path: str) -> bool:
    """Return whether `path` is a valid path of a node in every backend."""
    return len(path) <= MAX_PATH and _PATH.fullmatch(path) is not None and not {".", ".."} & set(path.split("/"))


def is_digest(name: str) -> bool:
    """Return whether `name` is a valid name of a plan."""
    return DIGEST.parse(name) is not None
