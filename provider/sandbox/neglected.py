"""A real Kafka cluster as years leave it: dead brokers, old throttles, lost and stuck replicas, all at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from kafka import TopicPartition

from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.cluster.configs import ConfigChange, ConfigOp
from kafka_steward.errors import ClusterError
from kafka_steward.sandbox import client
from kafka_steward.sandbox.cluster import Sandbox, SmallDisk, can_mount, start

#: Uneven racks; broker 6 has none.
RACKS = ("a", "b", "a", "b", "c", None, "a", "c", "a")
#: Dead for good. The first had the only replica of `lost-0`.
GHOSTS = (8, 9)
#: It has joined, and has nothing but a partition of the canary.
JOINED = 7
#: It lags in `stuck-0`, and is to get `foreign-0`: the leader of both, broker 1, has a leader's rate of 1 byte/s.
STUCK = 3
#: Its second disk is full, and nearly empty of logs.
FULL_DISK = 4
#: The broker whose log directories are all cordoned (KRaft, KIP-1066).
CORDONED = 5
#: With a minimum of two replicas in sync as the cluster's default.
MIN_ISR = 2

_FOLLOWER, _LEADER = "follower.replication.throttled", "leader.replication.throttled"
_MIN_ISR_KEY = "min.insync.replicas"
_MB = 1_000_000
_DISK = SmallDisk(16 * _MB, used=13 * _MB)
_WITHIN_S = 120.0

#: Replicas by partition, the preferred leader first.
TOPICS: Mapping[str, Mapping[int, tuple[int, ...]]] = {
    "orders": {
        0: (1, 2, 5), 1: (2, 4, 5), 2: (4, 5, 1), 3: (5, 1, 4), 4: (1, 4, 8), 5: (2, 9, 5), 6: (8, 2, 1), 7: (8, 9, 2),
    },
    "scratch": {0: (1,), 1: (2,), 2: (3,), 3: (4,), 4: (5,), 5: (6,)},
    "lost": {0: (8,)},
    "wide": {0: (1, 2, 3, 4, 5, 6, 8, 9)},
    "stuck": {0: (1, 3)},
    "throttled-once": {0: (2, 4), 1: (4, 1)},
    "foreign": {0: (1, 2)},
    "large": {0: (1, 6)},
    "__amazon_msk_canary": {
        0: (1, 2), 1: (2, 3), 2: (3, 4), 3: (4, 5), 4: (5, 6), 5: (6, 1), 6: (7, 1), 7: (8, 1), 8: (9, 2),
    },
}  # fmt: skip
_BYTES = {"orders": 1_600_000, "throttled-once": 200_000, "foreign": 200_000, "large": 5 * _MB}
#: Deleted while one of its brokers is dead, which with ZooKeeper stays so.
DOOMED: Mapping[int, tuple[int, ...]] = {0: (2, 9)}
_STUCK_BYTES = 3 * _MB


@dataclass(frozen=True, slots=True)
class Neglected:
    """A running neglected cluster, by `start_neglected()`. As a context manager it stops the cluster at the end."""

    sandbox: Sandbox
    #: What this mode, or this machine, does not have: a sentence for each.
    lacks: tuple[str, ...]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.sandbox.stop()


def start_neglected(mode: str = "kraft", *, folder: Path | None = None, heap_mb: int = 192) -> Neglected:
    """Start a cluster that has been neglected for years, in about a minute; return it when all of this is so.

    Nine brokers: 1, 3, 7 and 9 in rack a, 2 and 4 in b, 5 and 8 in c, 6 without a rack.

    - Brokers 8 and 9 are dead for good, and listed in the replicas of several topics.
    - `lost-0` had its only replica on broker 8. `scratch` has a replication factor of 1, under a cluster-wide
      `min.insync.replicas` of 2. `wide-0` has 8 replicas, more than racks, and than live brokers.
    - `stuck-0` is under its minimum ISR: broker 3 lags, and the leader's rate of 1 byte/s of broker 1 keeps it so.
    - A reassignment of somebody else, of `foreign-0` from 1, 2 to 1, 3, stays in flight for the same reason.
    - Rates that nobody needs are left: of brokers 1 and 3, of all brokers by default, and in the file of broker 4, for
      followers and leaders; so are the lists of throttled replicas of `stuck`, `foreign` and `throttled-once`.
    - Each broker has a partition of `__amazon_msk_canary`, and broker 7, which joined last, has nothing else.
    - The second log directory of broker 4 is full, and has the fewest logs.
    - KRaft: broker 5 is cordoned, eligible leader replicas are on, and the minimum ISR is a dynamic setting.
    - ZooKeeper: the topic `doomed` is being deleted, which waits for broker 9.

    `lacks` names what is not there: in KRaft mode a pending deletion; with ZooKeeper a cordon and eligible leader
    replicas; without the right to mount, the full disk. A full disk is empty again if broker 4 is restarted. Raises
    SandboxFailed.
    """
    kraft, disks = mode == "kraft", {FULL_DISK: _DISK} if can_mount() else {}
    with ExitStack() as undo:
        sandbox = start(
            mode,
            brokers=len(RACKS),
            racks=RACKS,
            folder=folder,
            # A dynamic setting outranks it in KRaft mode, where the controller's own file gives a default.
            properties={_MIN_ISR_KEY: str(MIN_ISR)},
            properties_of={FULL_DISK: {f"{side}.rate": str(10 * _MB) for side in (_FOLLOWER, _LEADER)}},
            small_disks=disks,
            heap_mb=heap_mb,
        )
        undo.callback(sandbox.stop)
        _create(sandbox, kraft=kraft)
        if disks:
            _leave_few_logs(sandbox)
        _set_left_overs(sandbox, kraft=kraft)
        _lose_brokers(sandbox, kraft=kraft)
        _begin_foreign_move(sandbox)
        undo.pop_all()
    return Neglected(sandbox, tuple(_lacks(kraft=kraft, disks=bool(disks))))


def _lacks(*, kraft: bool, disks: bool) -> Iterable[str]:
    if kraft:
        yield "No topic is being deleted: a KRaft cluster deletes it at once."
    else:
        yield "No broker is cordoned, and there are no eligible leader replicas: Kafka has both in KRaft mode only."
    if not disks:
        yield "No disk is full: this process may not mount a file system."


def _create(sandbox: Sandbox, *, kraft: bool) -> None:
    for topic, assignments in {**TOPICS, **({} if kraft else {"doomed": DOOMED})}.items():
        # What is written while a follower is away could not be written otherwise.
        configs = {_MIN_ISR_KEY: "1"} if topic == "stuck" else {}
        client.create_topics(sandbox.bootstrap, [topic], 0, 0, assignments=assignments, configs=configs)
    sandbox.wait_replicated()
    for topic, bytes_ in _BYTES.items():
        sandbox.fill(topic, bytes_)


def _leave_few_logs(sandbox: Sandbox) -> None:
    """Leave one log on the full disk, so that Kafka chooses it for the next replica (KIP-113)."""

    def move(admin: Any) -> list[str]:
        roomy, full = sorted(_logs(admin, FULL_DISK).items())
        if not (extra := full[1][1:]):
            return []
        admin.alter_replica_log_dirs({(*name, FULL_DISK): roomy[0] for name in extra})
        return [f"{len(extra)} logs are still on the full disk"]

    _wait(sandbox.bootstrap, move)


def _set_left_overs(sandbox: Sandbox, *, kraft: bool) -> None:
    default = {f"{_FOLLOWER}.rate": 20 * _MB, **({_MIN_ISR_KEY: MIN_ISR} if kraft else {})}
    joined = ",".join(f"{key}={value}" for key, value in default.items())
    for_all = ("--alter", "--entity-type", "brokers", "--entity-default", "--add-config", joined)
    sandbox.kafka_tool("kafka.admin.ConfigCommand", "--bootstrap-server", sandbox.bootstrap, *for_all)
    brokers = {1: [_set(f"{_LEADER}.rate", "1")], STUCK: [_set(f"{_FOLLOWER}.rate", str(4 * _MB))]}
    if kraft:
        brokers[CORDONED] = [_set("cordoned.log.dirs", "*")]
    topics = {
        "stuck": [_set(f"{_LEADER}.replicas", "0:1")],
        "foreign": [_set(f"{_LEADER}.replicas", "0:1")],
        "throttled-once": [_set(f"{_FOLLOWER}.replicas", "0:2,0:4"), _set(f"{_LEADER}.replicas", "*")],
    }
    # Not when the topics are created: with ZooKeeper, such a list throttles nothing.
    _change(sandbox, lambda cluster: {**cluster.change_broker_configs(brokers), **cluster.change_topic_configs(topics)})


def _set(key: str, value: str) -> ConfigChange:
    return ConfigChange(key, ConfigOp.SET, value)


def _change(sandbox: Sandbox, act: Callable[[KafkaCluster], Mapping[Any, ClusterError | None]]) -> None:
    with KafkaCluster({"bootstrap_servers": sandbox.live_bootstrap}) as cluster:
        for error in act(cluster).values():
            if error is not None:
                raise error


def _lose_brokers(sandbox: Sandbox, *, kraft: bool) -> None:
    """Kill the ghosts; write to `stuck` while broker 3 is away; delete a topic of which a broker is dead."""
    for ghost in GHOSTS:
        sandbox.kill(ghost)
    sandbox.pause(STUCK)
    live = sandbox.live_bootstrap
    _wait(live, lambda admin: [] if _partitions(admin)["stuck", 0]["isr_nodes"] == [1] else ["3 is in sync"])
    client.fill_topic(live, "stuck", _STUCK_BYTES)
    back = {"stuck": [ConfigChange(_MIN_ISR_KEY, ConfigOp.DELETE)]}
    _change(sandbox, lambda cluster: cluster.change_topic_configs(back))
    if not kraft:
        # Kafka answers that it takes longer, which it will for ever.
        client.retry_on_admin(live, lambda admin: admin.delete_topics(["doomed"], timeout_ms=1000, raise_errors=False))
    sandbox.resume(STUCK)
    sandbox.wait_ready()


def _begin_foreign_move(sandbox: Sandbox) -> None:
    """Move `foreign-0` to broker 3, which gets nothing of it from broker 1; return when the cluster is at rest."""
    live, moved = sandbox.live_bootstrap, TopicPartition("foreign", 0)
    client.retry_on_admin(live, lambda admin: admin.alter_partition_reassignments({moved: [1, STUCK]}))
    _wait(live, lambda admin: [] if moved in admin.list_partition_reassignments() else ["foreign-0 does not move"])
    _wait(live, _unsettled)


def _wait(bootstrap: str, missing: Callable[[Any], list[str]]) -> None:
    def look() -> list[str]:
        with client.admin_client(bootstrap) as admin:
            return missing(admin)

    client.wait_until_none(look, within_s=_WITHIN_S)


def _partitions(admin: Any) -> dict[tuple[str, int], dict[str, Any]]:
    described = admin.describe_topics(None)
    return {(topic["name"], entry["partition_index"]): entry for topic in described for entry in topic["partitions"]}


def _logs(admin: Any, broker: int) -> dict[str, list[tuple[str, int]]]:
    """Return the partitions in each log directory of a broker."""
    return {
        folder["log_dir"]: [
            (topic["name"], entry["partition_index"]) for topic in folder["topics"] for entry in topic["partitions"]
        ]
        for answer in admin.describe_log_dirs(brokers=[broker])
        for folder in answer["log_dirs"]
    }


def _unsettled(admin: Any) -> list[str]:
    """Return what is not yet as it is to stay: live replicas that are not in sync, and dead ones that are."""
    left = []
    for (topic, number), entry in _partitions(admin).items():
        live = set(entry["replica_nodes"]) - {*GHOSTS, *([STUCK] if topic in {"stuck", "foreign"} else [])}
        # The last replica in sync stays in the ISR when its broker dies.
        if topic != "doomed" and live and set(entry["isr_nodes"]) != live:
            left.append(f"{topic}-{number} has {entry['isr_nodes']} in sync instead of {sorted(live)}")
    return left
