"""Every path of the journal's tree, in one place. The KIPs' own lie under `/admin`, ours under `/steward`.

Whatever a path is built from is checked here, so that no topic name, digest or number from outside can reach another
node than its own. Kafka's topic names need no escaping: its legal characters are legal in a path.
"""

from __future__ import annotations

import re

from kafka_steward.assignment import TopicPartition
from kafka_steward.errors import RequestError
from kafka_steward.journal import codec

__all__ = [
    "APPROVALS",
    "CANCEL_IN_PROGRESS",
    "CHUNK_PREFIX",
    "FAILED_BROKERS",
    "FAILED_LOG_DIRS",
    "FILL_ANNOUNCED",
    "JOINED_BROKERS",
    "JOURNAL",
    "OWED",
    "PARTITIONS_ASKED",
    "PLANS",
    "REASSIGNMENTS",
    "REASSIGNMENT_REQUESTS",
    "REASSIGN_CANCEL",
    "REASSIGN_CHUNKS",
    "REASSIGN_PARTITIONS",
    "REASSIGN_QUEUE",
    "REQUEST_PREFIX",
    "ROLLING_BOUNCE",
    "SLOT",
    "STEP_LOCK",
    "SWITCH_SEEN",
    "approval",
    "borrowed",
    "borrowed_below",
    "broker_of",
    "checked_path",
    "chunk",
    "failed_broker",
    "is_digest",
    "is_path",
    "owed",
    "owed_of",
    "partitions_asked",
    "plan",
    "reassignment",
    "reassignments_of",
    "rolling_bounce",
]

#: KIP-46: one child per broker that is gone.
FAILED_BROKERS = "/admin/failed_brokers"
#: KIP-46: one child per broker that announced its shutdown.
ROLLING_BOUNCE = "/admin/rolling_bounce"
#: KIP-236: while it is there, no reassignment may start.
REASSIGN_CANCEL = "/admin/reassign_cancel"
#: KIP-236: a request to cancel what is pending.
CANCEL_IN_PROGRESS = "/admin/cancel_reassignment_in_progress"
#: KIP-236: work asked for by anyone, one sequential child each.
REASSIGNMENT_REQUESTS = "/admin/reassignment_requests"
REQUEST_PREFIX = f"{REASSIGNMENT_REQUESTS}/request_"
#: KIP-236: more work while some is in flight.
REASSIGN_QUEUE = "/admin/reassign_partitions_queue"
#: What Kafka itself reads on ZooKeeper clusters: the old way to ask for reassignments.
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
#: KIP-46: chunks of plans; beside, not under, the znode that Kafka itself reads.
REASSIGN_CHUNKS = "/admin/reassign_chunks"
CHUNK_PREFIX = f"{REASSIGN_CHUNKS}/chunk_"
#: KIP-236: what is in flight, one node per partition.
REASSIGNMENTS = "/admin/reassignments"
#: The id of the journal, which its rows hold as well.
JOURNAL = "/steward/journal"
#: Since when a live broker has had replicas in a log directory that has failed.
FAILED_LOG_DIRS = "/steward/failed_log_dirs"
#: Which plan owns the cluster.
SLOT = "/steward/slot"
#: Which process steps the plan.
STEP_LOCK = "/steward/step_lock"
#: Which switch was seen, and what flew then.
SWITCH_SEEN = "/steward/switch"
#: One record per plan, named by its digest.
PLANS = "/steward/plans"
#: One approval per plan that needed one, named by its digest.
APPROVALS = "/steward/approvals"
#: What was borrowed of Kafka's configuration and must be given back.
_BORROWED = "/steward/borrowed"

#: KIP-409: replicas that are owed, one node per partition.
OWED = "/steward/owed"
#: Partitions that are to be added when there are brokers for them, one node per topic.
PARTITIONS_ASKED = "/steward/partitions_asked"
#: When it was last announced that something owed can be settled.
FILL_ANNOUNCED = "/steward/fill_announced"
#: Brokers that joined and hold nothing.
JOINED_BROKERS = "/steward/joined_brokers"

_PATH = re.compile(r"(/[^/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]+)+")
_LONGEST = 1024


def failed_broker(broker: int) -> str:
    """Where the failure of `broker` is written (KIP-46)."""
    return f"{FAILED_BROKERS}/{_number('broker', broker)}"


def rolling_bounce(broker: int) -> str:
    """Where the announced shutdown of `broker` is written (KIP-46)."""
    return f"{ROLLING_BOUNCE}/{_number('broker', broker)}"


def broker_of(name: str) -> int | None:
    """The broker that a child of FAILED_BROKERS or ROLLING_BOUNCE names; None when it names none."""
    return codec.BROKER.parse(name)


def reassignments_of(topic: str) -> str:
    """The parent of `topic`'s partitions in flight (KIP-236)."""
    return f"{REASSIGNMENTS}/{_segment('topic', topic)}"


def reassignment(partition: TopicPartition) -> str:
    """Where the reassignment in flight of `partition` is written (KIP-236)."""
    return f"{reassignments_of(partition.topic)}/{_number('partition', partition.partition)}"


def owed_of(topic: str) -> str:
    """The parent of `topic`'s partitions to which replicas are owed (KIP-409)."""
    return f"{OWED}/{_segment('topic', topic)}"


def owed(partition: TopicPartition) -> str:
    """Where it is written which replicas are owed to `partition` (KIP-409)."""
    return f"{owed_of(partition.topic)}/{_number('partition', partition.partition)}"


def partitions_asked(topic: str) -> str:
    """Where it is written that `topic` is to get more partitions."""
    return f"{PARTITIONS_ASKED}/{_segment('topic', topic)}"


def chunk(name: str) -> str:
    """The path of a chunk from its node's name, such as `chunk_0000000003`."""
    return f"{REASSIGN_CHUNKS}/{_segment('chunk', name)}"


def plan(digest: str) -> str:
    """Where the record of the plan with `digest` is written."""
    return f"{PLANS}/{_segment('plan digest', digest)}"


def approval(digest: str) -> str:
    """Where the approval of the plan with `digest` is written."""
    return f"{APPROVALS}/{_segment('plan digest', digest)}"


def borrowed_below(kind: str) -> str:
    """The parent of everything borrowed of the `kind` "broker" or "topic": its children are brokers or topics."""
    return f"{_BORROWED}/{_segment('kind', kind)}"


def borrowed(kind: str, name: str, config: str) -> str:
    """Where is written what was borrowed of the setting `config` of a broker or topic."""
    return f"{borrowed_below(kind)}/{_segment('name', name)}/{_segment('setting', config)}"


def checked_path(path: str) -> str:
    """The path itself. Raises RequestError unless it can name a node in every backend."""
    if not is_path(path):
        raise RequestError(f"{path[:80]!r} is not a path in the journal; a path looks like /admin/failed_brokers/3.")
    return path


def is_path(path: str) -> bool:
    """Whether it can name a node in every backend."""
    return len(path) <= _LONGEST and _PATH.fullmatch(path) is not None and not {".", ".."} & set(path.split("/"))


def is_digest(name: str) -> bool:
    """Whether it can name a plan."""
    return codec.DIGEST.parse(name) is not None


def _segment(what: str, name: str) -> str:
    if not codec.is_topic(name):
        raise RequestError(
            f"{name[:80]!r} is no {what}: use at most 249 letters, digits, dots, underscores and hyphens."
        )
    return name


def _number(what: str, number: int) -> int:
    if not codec.is_id(number):
        raise RequestError(f"{number!r} is no {what}: it is a number from 0 to 2147483647.")
    return number
