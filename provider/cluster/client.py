"""`KafkaCluster`, through which Kafka Steward reads and changes a Kafka cluster, in terms of its own dataclasses.

The same code supports ZooKeeper-mode and KRaft clusters. `transport` implements waiting, retries and the handling of
missing responses; `requests` and `configs` build requests and parse responses.

Decoding the partitions of a large cluster occupies the interpreter, in kafka-python's thread and in ours. One thread
that decodes barely delays the other threads. Ten such threads do, because each of them gets its time slice before the
event loop of a triggerer runs again. Therefore a process decodes one large response at a time.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Self

from kafka_steward.assignment import Assignment, TopicPartition
from kafka_steward.cluster import configs, requests
from kafka_steward.cluster.configs import SHOWN_WITHIN_S, BrokerRate, ConfigChange, RecentConfigChanges
from kafka_steward.cluster.connection import LOG_DIRS_TIMEOUT, validate_config
from kafka_steward.cluster.metadata_freshness import MetadataReconciler
from kafka_steward.cluster.state import (
    Broker,
    BrokerLogDirs,
    LogStart,
    Partition,
    Reassignment,
    Snapshot,
    without_stray_replicas,
)
from kafka_steward.cluster.transport import KafkaTransport, batches
from kafka_steward.errors import BrokerUnreachable, ClusterError, JournalError, KafkaRefused

#: Seconds that a snapshot waits for earlier snapshots. Then it proceeds, so that a stalled cluster does not block the
#: snapshots of other clusters.
_MAX_WAIT_S = 3.0

_decoding = threading.Lock()


@contextmanager
def limit_concurrent_decoding(max_wait_s: float = _MAX_WAIT_S) -> Iterator[None]:
    """Enter the context when no other thread of this process is in it, or after `max_wait_s` seconds at the latest."""
    acquired = _decoding.acquire(timeout=max_wait_s)
    try:
        yield
    finally:
        if acquired:
            _decoding.release()


#: The interval, in seconds, at which a broker is asked again until it shows a changed setting that it has accepted.
_POLL_S = 0.05

#: The metadata propagation delay: twice the longest measured lag of a broker behind the controller.
_PROPAGATION_DELAY_S = 0.5
#: Seconds for which a list of the reassignments in flight counts as new: none can start and end in that time. A
#: controller that has much to do takes seconds for each list, because it answers after its other work.
_JUST_LISTED_S = 0.01

#: The setting of brokers in ZooKeeper mode whose metadata moves to KRaft (KIP-866).
MIGRATION = "zookeeper.metadata.migration.enable"
#: Seconds for which the brokers' answers about that setting are cached, because a migration takes hours; and seconds
#: to wait for the answers.
_MIGRATION_KEPT_S, _MIGRATION_WAIT_S = 60.0, 2.0


class KafkaCluster:
    """A connection to one Kafka cluster, used as a context manager. Create it after a fork: it owns a thread.

    `config` holds kafka-python's keyword arguments (`bootstrap_servers`, `security_protocol`, …). `controllers` are the
    addresses of the KRaft controllers, through which the settings of dead brokers are changed (KIP-919). Raises
    ClusterUnreachable, AuthenticationFailed (immediately), WrongCluster when the servers respond with an id other than
    `expected_cluster_id`, and SettingError for an invalid configuration.
    """

    _controllers = ""

    def __init__(
        self, config: Mapping[str, Any], *, expected_cluster_id: str | None = None, controllers: str = ""
    ) -> None:
        self._controllers = controllers
        self._transport = KafkaTransport(validate_config(config), expected_cluster_id)
        self._reconciler = MetadataReconciler(orders_raise_epochs=self.zookeeper_mode)
        self._first_listed_s = math.inf
        self._listed_s = -math.inf
        self._configs_changed_s = 0.0
        self._config_changes = RecentConfigChanges()
        self._unanswered: dict[int, ClusterError] = {}
        self._migration: tuple[float, bool] | None = None
        #: Reads topics whose deletion is pending, with the brokers of their replicas, where Kafka's ZooKeeper is known.
        self.read_deletions: Callable[[], Mapping[str, Collection[int]]] = dict
        self._deletions: Mapping[str, Collection[int]] = {}
        self._secured = bool(config.get("security_protocol", "PLAINTEXT") != "PLAINTEXT")

    def __repr__(self) -> str:
        return f"<KafkaCluster {self.cluster_id} at {self._transport.servers}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections and stop their thread."""
        self._transport.close()

    @property
    def cluster_id(self) -> str:
        """Kafka's own id of the cluster; every later response with an id is compared with it."""
        return self._transport.cluster_id

    @property
    def secured(self) -> bool:
        """True if clients need more than an address to connect."""
        return self._secured

    def check_controllers(self) -> None:
        """Raise ClusterUnreachable if no controller answers, and WrongCluster if they are of another cluster."""
        self._transport.send_to_controllers(self._controllers, None)

    @property
    def changes_dead_brokers(self) -> bool:
        """True if the settings of brokers that are down can be changed, though not read (KIP-919)."""
        return bool(self._controllers)

    @property
    def zookeeper_mode(self) -> bool:
        """True if ZooKeeper keeps this cluster's metadata."""
        return self._transport.session().zookeeper_mode

    @property
    def in_migration(self) -> bool:
        """True if a live broker has the setting `MIGRATION`: a KRaft controller may then lead it in ZooKeeper mode.

        Kafka 4 has no ZooKeeper mode. Without the right to read the setting it is unknown, and False. Raises
        ClusterError.
        """
        if int(self.kafka_version.partition(".")[0]) >= 4:
            return False
        now_s = time.monotonic()
        if self._migration is None or now_s - self._migration[0] > _MIGRATION_KEPT_S:
            try:
                values = self.broker_configs(self.live_brokers(), [MIGRATION], timeout_s=_MIGRATION_WAIT_S)
            except KafkaRefused:
                # A principal without DescribeConfigs must be able to work with the cluster all the same.
                values = {}
            self._migration = now_s, any(config.get(MIGRATION) == "true" for config in values.values())
        return self._migration[1]

    @property
    def mode_text(self) -> str:
        """The mode for messages, such as "KRaft mode", and whether the cluster is in migration. Raises ClusterError."""
        mode = f"{'ZooKeeper' if self.zookeeper_mode else 'KRaft'} mode"
        return f"{mode} (in migration to KRaft)" if self.in_migration else mode

    @property
    def kafka_version(self) -> str:
        """The newest Kafka version, such as "4.3", all of whose requests a broker supports: brokers name no version."""
        return self._transport.session().kafka_version

    def snapshot(self, topics: Collection[str] | None = None) -> Snapshot:
        """Return brokers, partitions and reassignments in flight, without sizes; only of `topics`, if given.

        Topics in `topics` that we may not describe are `hidden`. Without `topics`, Kafka leaves them out silently.

        The controller is the source of truth for reassignments in flight; older state shown by a broker is corrected
        (see `metadata_freshness`). Topics whose deletion is pending are left out: brokers differ in whether they still
        list them. Just after a topic was created in KRaft, Kafka reports a full ISR while logs are
        still being created.
        """
        taken_ms = time.time_ns() // 1_000_000
        # Before the metadata as well: what ends in between is then known to have been in flight.
        if time.monotonic() - self._listed_s > _JUST_LISTED_S:
            self.reassignments()
        # A reassignment that ended just before the client's first list is not in its memory, and could not be
        # reconciled.
        time.sleep(max(0.0, self._first_listed_s + _PROPAGATION_DELAY_S - time.monotonic()))
        with limit_concurrent_decoding() if topics is None else nullcontext():
            metadata = self._transport.metadata(topics)
            partitions = requests.parse_partitions(metadata)
            # The list must be newer than the metadata: see `MetadataReconciler.reconcile`.
            listed = self.reassignments()
            reconciled = self._reconciler.reconcile(partitions, listed)
            hidden = requests.parse_hidden_topics(metadata)
        with suppress(JournalError):  # what was pending at the last look is taken to be so still
            self._deletions = self.read_deletions()
        known = reconciled | self._with_eligible_replicas(reconciled)
        snapshot = Snapshot(self.cluster_id, taken_ms, self._list_brokers(), known, hidden)
        asked = listed if topics is None else {name: listed[name] for name in listed if name.topic in topics}
        return snapshot.without_deleted(self._deletions, asked)

    def _with_eligible_replicas(
        self, partitions: Mapping[TopicPartition, Partition]
    ) -> dict[TopicPartition, Partition]:
        """Return the partitions of which it matters, with their eligible leader replicas, where Kafka has such."""
        asked = {name: partition for name, partition in partitions.items() if partition.may_lack_a_leader}
        if not asked or not self._transport.session().describes_partitions:
            return {}
        try:
            answer = self._transport.send_to_any(
                partial(requests.eligible_replicas_request, {name.topic for name in asked})
            )
        except ClusterError:
            return {}  # a message is less precise without them
        eligible = requests.parse_eligible_replicas(answer)
        return {name: replace(asked[name], eligible=eligible[name]) for name in asked.keys() & eligible.keys()}

    def live_brokers(self) -> dict[int, Broker]:
        """Return the live brokers: registered and not fenced."""
        return {broker.id: broker for broker in self._list_brokers().values() if not broker.fenced}

    def live_views(self, brokers: Collection[int], *, timeout_s: float = 2.0) -> dict[int, frozenset[int]]:
        """Return the live brokers as each of `brokers` itself lists them; brokers that do not respond are left out."""
        answers = self._transport.send_to_responding(
            dict.fromkeys(brokers, partial(requests.metadata_request, ())), timeout_ms=int(timeout_s * 1000)
        )
        return {broker: frozenset(requests.parse_live_brokers(answer)) for broker, answer in answers.items()}

    def reassignments(self) -> dict[TopicPartition, Reassignment]:
        """Return all reassignments in flight, including external ones (KIP-455).

        The client's first snapshot waits until half a second after its first list: a caller who lists at once, and then
        does something else, waits less.
        """
        response = self._transport.send_to_controller(
            partial(requests.list_reassignments_request, self._transport.server_timeout_ms), change=False
        )
        listed = requests.parse_reassignments(response)
        self._listed_s = time.monotonic()
        self._first_listed_s = min(self._first_listed_s, self._listed_s)
        self._reconciler.on_listed(listed, self._listed_s)
        return listed

    def alter(
        self, targets: Mapping[TopicPartition, Assignment], *, keep_factor: bool = False
    ) -> dict[TopicPartition, KafkaRefused | None]:
        """Submit new assignments, in batches; return None, or Kafka's refusal with its own message, per partition.

        With `keep_factor` Kafka refuses, with code 38, a target that would change a replication factor (KIP-860), for
        example because another client has changed the factor since our last poll. Kafka before 4.1 does not support
        this check, and kafka-python leaves it out without an error: the factor is then read just before the request.

        Raises KafkaTimeout when a batch was not confirmed: it, and the batches before it, may have been applied. Do not
        use it to revert a reassignment in flight, which stays in flight in Kafka 4.3: `cancel` first.
        """
        # ZooKeeper-mode brokers learn of topic settings late, and do not throttle copies that begin before that.
        if self.zookeeper_mode:
            time.sleep(max(0.0, self._configs_changed_s + _PROPAGATION_DELAY_S - time.monotonic()))
        refused: dict[TopicPartition, KafkaRefused | None] = {}
        # Asked for each call: the controller may be another broker by now, of another version.
        if keep_factor and not self._transport.controller_supports(*requests.FACTOR_GUARD):
            refused = self._refuse_changed_factors(targets)
        wanted = {name: target for name, target in targets.items() if name not in refused}
        return refused | self._alter_in_batches(wanted, "the new assignment", keep_factor=keep_factor)

    def _refuse_changed_factors(
        self, targets: Mapping[TopicPartition, Assignment]
    ) -> dict[TopicPartition, KafkaRefused | None]:
        """Return the refusals of KIP-860 for the targets with another number of replicas than Kafka shows now."""
        metadata = self._transport.metadata(sorted({name.topic for name in targets}))
        partitions = requests.parse_partitions(metadata)
        counts = {name: len(partition.replicas) for name, partition in partitions.items()}
        # While a reassignment is in flight, a partition's replicas include those to be removed.
        counts |= {name: len(reassignment.target) for name, reassignment in self.reassignments().items()}
        return {
            name: requests.changed_factor_refusal(name, counts[name], len(target))
            for name, target in targets.items()
            if name in counts and counts[name] != len(target)
        }

    def name_directories(
        self, wanted: Mapping[tuple[TopicPartition, int], str]
    ) -> dict[tuple[TopicPartition, int], ClusterError | None]:
        """Name the log directories in which brokers create replicas that they do not have yet (KIP-113).

        Return None, or the error, by partition and broker. A broker remembers the directory until it creates the
        replica, or restarts. Do not use it for a replica that the broker already has: the broker would move it.
        """
        by_broker: dict[int, dict[TopicPartition, str]] = {}
        for (name, broker), path in wanted.items():
            by_broker.setdefault(broker, {})[name] = path
        answers = self._transport.send_to_each(
            {broker: partial(requests.name_directories_request, paths) for broker, paths in by_broker.items()}
        )
        results: dict[tuple[TopicPartition, int], ClusterError | None] = {}
        for broker, answer in answers.items():
            names = list(by_broker[broker])
            outcomes: Mapping[TopicPartition, ClusterError | None] = (
                dict.fromkeys(names, answer)
                if isinstance(answer, ClusterError)
                else requests.parse_named_directories(answer, names, broker)
            )
            results |= {(name, broker): outcomes[name] for name in names}
        return results

    def cancel(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, KafkaRefused | None]:
        """Cancel the reassignments in flight of these partitions; code 85 means that there was none.

        Kafka restores the set of replicas, but not their order, and therefore not the preferred leader: `alter` to the
        original order afterwards. Raises KafkaTimeout as `alter` does.
        """
        return self._alter_in_batches(dict.fromkeys(partitions), "the cancellation")

    def elect_leaders(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, KafkaRefused | None]:
        """Elect the preferred leaders; return None per partition if its preferred leader leads, else the refusal."""
        results: dict[TopicPartition, KafkaRefused | None] = {}
        for batch in batches(list(partitions)):
            request = partial(requests.elect_leaders_request, batch, self._transport.server_timeout_ms)
            results |= requests.parse_elections(self._transport.send_to_controller(request, change=True), batch)
        return results

    def log_dirs(self, brokers: Collection[int], *, assigned: Snapshot | None = None) -> dict[int, BrokerLogDirs]:
        """Return bytes by replica, and disk space, of each of `brokers`. Brokers that do not respond are left out.

        A broker that was offline may still hold replicas that were moved off it: with `assigned`, only replicas that
        this snapshot assigns to the broker count.
        """
        dirs = self._describe_log_dirs(dict.fromkeys(brokers))
        if assigned is None:
            return dirs
        return {broker: without_stray_replicas(dirs[broker], assigned, broker) for broker in dirs}

    @property
    def log_dirs_failures(self) -> Mapping[int, str]:
        """The brokers that did not answer the last request for log directories, and why, as sentences."""
        return {broker: str(error) for broker, error in self._unanswered.items()}

    def directories(self, brokers: Collection[int], *, timeout_s: float = 2.0) -> dict[int, BrokerLogDirs]:
        """Return the log directories of each of `brokers`, without replicas; leave out brokers that do not respond."""
        return self._describe_log_dirs(dict.fromkeys(brokers, ()), timeout_ms=int(timeout_s * 1000))

    def log_sizes(self, held: Mapping[int, Collection[TopicPartition]]) -> dict[tuple[TopicPartition, int], int]:
        """Return the bytes of `held`'s partitions on those brokers; leave out sizes that a broker does not report."""
        asked = {broker: partitions for broker, partitions in held.items() if partitions}
        return {
            (partition, broker): size
            for broker, dirs in self._describe_log_dirs(asked).items()
            for partition, size in dirs.replica_bytes.items()
        }

    def hidden_topics(self, topics: Collection[str]) -> frozenset[str]:
        """Return the elements of `topics` that we may not describe: it is unknown whether they exist."""
        return requests.parse_hidden_topics(self._transport.metadata(sorted(topics))) if topics else frozenset()

    def log_ends(
        self, held: Mapping[int, Collection[TopicPartition]], *, timeout_s: float | None = None
    ) -> dict[tuple[TopicPartition, int], int]:
        """Return the log end offsets of `held`'s partitions on those brokers, leaders or followers.

        Offsets that cannot be read are left out. A follower's true lag is the leader's end offset minus its own: see
        `lag`.
        """
        ends = self._offsets(held, requests.LATEST, timeout_s)
        return {replica: end for replica, end in ends.items() if end >= 0}

    def local_starts(
        self, held: Mapping[int, Collection[TopicPartition]], *, timeout_s: float | None = None
    ) -> dict[tuple[TopicPartition, int], int]:
        """Return the first offsets of `held`'s partitions in the local logs of those brokers, as `log_ends` does."""
        starts = self._offsets(held, requests.EARLIEST_LOCAL, timeout_s)
        return {replica: start for replica, start in starts.items() if start >= 0}

    def _offsets(
        self, held: Mapping[int, Collection[TopicPartition]], at: int, timeout_s: float | None = None
    ) -> dict[tuple[TopicPartition, int], int]:
        """Return the offsets at `at`, -1 where there is none; those that cannot be read are left out."""
        asked = {broker: partial(requests.log_ends_request, names, at) for broker, names in held.items() if names}
        answers = self._transport.send_to_responding(
            asked, timeout_ms=None if timeout_s is None else int(timeout_s * 1000)
        )
        return {
            (name, broker): offset
            for broker, answer in answers.items()
            for name, offset in requests.parse_offsets(answer).items()
        }

    def log_starts(self, held: Mapping[int, Collection[TopicPartition]]) -> dict[tuple[TopicPartition, int], LogStart]:
        """Return where the local logs of `held`'s partitions begin on those brokers, and what is in remote storage.

        Partitions without remote storage, and brokers before Kafka 3.9, are left out.
        """
        local, tiered = self.local_starts(held), self._offsets(held, requests.LATEST_TIERED)
        # Read last: a log's end only grows, so none of the other two offsets is beyond it.
        ends = self.log_ends(held)
        return {key: LogStart(local[key], tiered[key], ends[key]) for key in ends.keys() & local.keys() & tiered.keys()}

    def topic_configs(
        self, topics: Collection[str], names: Collection[str], *, own_only: bool = False
    ) -> dict[str, dict[str, str]]:
        """Return values by topic and key; with `own_only` only those set on the topic itself.

        Unknown topics are left out. With `own_only`, values from before a change by this client are read again, until
        the broker shows the change or `SHOWN_WITHIN_S` have passed since.
        """
        values = self._describe_topic_configs(topics, names, own_only=own_only)
        while own_only and (stale := self._config_changes.find_stale(values, names, time.monotonic())):
            time.sleep(_POLL_S)
            again = self._describe_topic_configs(stale, names, own_only=True)
            values = {topic: kept for topic, kept in values.items() if topic not in stale} | again
        return values

    def broker_configs(
        self,
        brokers: Collection[int],
        names: Collection[str],
        *,
        own_only: bool = False,
        timeout_s: float | None = None,
    ) -> dict[int, dict[str, str]]:
        """Return values by broker and key; with `own_only` only those set dynamically on the broker itself.

        Values from the broker's file and cluster-wide values are then excluded. Each request is sent to the broker
        itself; brokers that do not respond are left out.
        """
        return {
            broker: configs.parse_config_values(answer, own_only=own_only)[str(broker)]
            for broker, answer in self._describe_brokers(brokers, names, timeout_s=timeout_s).items()
        }

    def broker_rates(self, brokers: Collection[int], keys: Collection[str]) -> dict[str, dict[int, BrokerRate]]:
        """Return the rates `keys` by broker: its own, and the one for all brokers where it applies; see BrokerRate.

        Kafka before 3.9 shows a rate for all brokers and does not apply it. Each request is sent to the broker itself;
        brokers that do not respond are left out.
        """
        answers = self._describe_brokers(brokers, keys, synonyms=True)
        applies = self._transport.session().applies_default_rates
        return {
            key: {
                broker: configs.parse_broker_rate(answer, key, defaults_apply=applies(broker))
                for broker, answer in answers.items()
            }
            for key in keys
        }

    def _describe_brokers(
        self, brokers: Collection[int], keys: Collection[str], *, synonyms: bool = False, timeout_s: float | None = None
    ) -> dict[int, Any]:
        describe = partial(configs.describe_configs_request, configs.BROKER, keys=keys, synonyms=synonyms)
        asked = {broker: partial(describe, [str(broker)]) for broker in brokers}
        timeout_ms = None if timeout_s is None else int(timeout_s * 1000)
        return self._transport.send_to_responding(asked, timeout_ms=timeout_ms)

    def change_topic_configs(self, changes: Mapping[str, Sequence[ConfigChange]]) -> dict[str, KafkaRefused | None]:
        """Change single keys of topics (KIP-339); return None, or Kafka's refusal, per topic. Raises KafkaTimeout."""
        results: dict[str, KafkaRefused | None] = {}
        for batch in batches(list(changes)):
            request = partial(configs.change_configs_request, configs.TOPIC, {topic: changes[topic] for topic in batch})
            answers = configs.parse_config_changes(self._transport.send_to_controller(request, change=True))
            results |= answers
            # Once Kafka has answered: from here `alter` waits until brokers in ZooKeeper mode know the setting.
            self._configs_changed_s = time.monotonic()
            for topic in batch:
                if answers[topic] is None:
                    self._config_changes.on_accepted(topic, changes[topic], self._configs_changed_s)
        return results

    def change_broker_configs(self, changes: Mapping[int, Sequence[ConfigChange]]) -> dict[int, ClusterError | None]:
        """Change keys of brokers; return None, or the refusal, BrokerUnreachable or KafkaTimeout, per broker.

        Kafka accepts a change of a broker's setting at that broker only: the change of a failed broker has to wait.
        Returns when the brokers show the changes that they accepted. A broker of a ZooKeeper-mode cluster applies a
        change a moment after it accepted it, and uses the old value until then: a copy that starts immediately would
        not be throttled. The settings of a broker that is down are changed through the controllers, if they are known:
        nobody can read them then.
        """
        results = self._send_broker_configs(changes, validate_only=False)
        unreachable = {broker for broker, error in results.items() if isinstance(error, BrokerUnreachable)}
        dead = unreachable - self.live_brokers().keys() if unreachable and self._controllers else set[int]()
        if dead:
            results |= self._change_dead_brokers({broker: changes[broker] for broker in sorted(dead)})
        # Nobody can read the settings of a broker that is down: there is nothing to wait for.
        changed = {broker for broker, error in results.items() if error is None} - dead
        self._wait_for_config_changes({broker: changes[broker] for broker in changed})
        return results

    def _change_dead_brokers(self, changes: Mapping[int, Sequence[ConfigChange]]) -> Mapping[int, ClusterError | None]:
        by_name = {str(broker): changes[broker] for broker in changes}
        request = partial(configs.change_configs_request, configs.BROKER, by_name)
        try:
            answer = self._transport.send_to_controllers(self._controllers, request)
        except ClusterError as error:
            return dict.fromkeys(changes, error)
        return {int(name): refusal for name, refusal in configs.parse_config_changes(answer).items()}

    def change_default_broker_configs(self, changes: Sequence[ConfigChange]) -> KafkaRefused | None:
        """Change keys of the cluster-wide default of all brokers; return None, or Kafka's refusal.

        Raises KafkaTimeout. Brokers show and apply the change a moment later.
        """
        request = partial(configs.change_configs_request, configs.BROKER, {"": changes})
        return configs.parse_config_changes(self._transport.send_to_controller(request, change=True))[""]

    def check_topic_configs(self, changes: Mapping[str, Sequence[ConfigChange]]) -> dict[str, KafkaRefused | None]:
        """Return what `change_topic_configs` would return, without a change: Kafka validates it only."""
        request = partial(configs.change_configs_request, configs.TOPIC, changes, validate_only=True)
        return configs.parse_config_changes(self._transport.send_to_controller(request, change=False))

    def check_broker_configs(self, changes: Mapping[int, Sequence[ConfigChange]]) -> dict[int, ClusterError | None]:
        """Return what `change_broker_configs` would return, without a change: Kafka validates it only."""
        return self._send_broker_configs(changes, validate_only=True)

    def _send_broker_configs(
        self, changes: Mapping[int, Sequence[ConfigChange]], *, validate_only: bool
    ) -> dict[int, ClusterError | None]:
        answers = self._transport.send_to_each(
            {
                broker: partial(
                    configs.change_configs_request,
                    configs.BROKER,
                    {str(broker): broker_changes},
                    validate_only=validate_only,
                )
                for broker, broker_changes in changes.items()
            }
        )
        return {
            broker: answer if isinstance(answer, ClusterError) else configs.parse_config_changes(answer)[str(broker)]
            for broker, answer in answers.items()
        }

    def create_topic(
        self,
        topic: str,
        partitions: int,
        replication_factor: int,
        *,
        assignments: Sequence[Assignment] | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> KafkaRefused | None:
        """Create a topic; return None, or Kafka's refusal. May raise KafkaTimeout.

        `assignments`, one for each partition, replace `partitions` and `replication_factor`.
        """
        request = partial(
            requests.create_topic_request,
            topic,
            partitions,
            replication_factor,
            assignments,
            settings or {},
            timeout_ms=self._transport.server_timeout_ms,
        )
        # Once: without an answer, a second request would be refused because of what the first one created.
        response = self._transport.send_to_controller(request, change=True, once=True)
        return requests.parse_creation(response.topics[0], f"creating topic {topic}")

    def create_partitions(
        self, topic: str, count: int, assignments: Sequence[Assignment] | None = None
    ) -> KafkaRefused | None:
        """Increase a topic to `count` partitions in total; return None, or Kafka's refusal. May raise KafkaTimeout.

        `assignments` are those of the new partitions.
        """
        request = partial(
            requests.create_partitions_request, topic, count, assignments, self._transport.server_timeout_ms
        )
        response = self._transport.send_to_controller(request, change=True, once=True)
        return requests.parse_creation(response.results[0], f"adding partitions to topic {topic}")

    def _describe_topic_configs(
        self, topics: Collection[str], names: Collection[str], *, own_only: bool
    ) -> dict[str, dict[str, str]]:
        values: dict[str, dict[str, str]] = {}
        for batch in batches(list(topics)):
            response = self._transport.send_to_any(
                partial(configs.describe_configs_request, configs.TOPIC, batch, names)
            )
            values |= configs.parse_config_values(response, own_only=own_only, missing=requests.NO_SUCH_TOPIC)
        return values

    def _wait_for_config_changes(self, changes: Mapping[int, Sequence[ConfigChange]]) -> None:
        """Wait, at most `SHOWN_WITHIN_S`, until the responding brokers show the changes, which are already made."""
        deadline = time.monotonic() + SHOWN_WITHIN_S
        keys = {change.name for broker_changes in changes.values() for change in broker_changes}
        late = dict(changes)
        while late:
            try:
                values = self.broker_configs(late, keys, own_only=True, timeout_s=SHOWN_WITHIN_S)
            except KafkaRefused:
                return  # a principal that may change a setting is not necessarily allowed to read it
            late = {
                broker: late[broker] for broker in values if not configs.are_changes_shown(late[broker], values[broker])
            }
            if not late or time.monotonic() >= deadline:
                return
            time.sleep(_POLL_S)

    def _describe_log_dirs(
        self, held: Mapping[int, Collection[TopicPartition] | None], *, timeout_ms: int | None = None
    ) -> dict[int, BrokerLogDirs]:
        """Return log directories by broker, with the sizes of `held`'s partitions (None: all partitions).

        Brokers that do not respond are left out.
        """
        asked = {broker: partial(requests.log_dirs_request, partitions) for broker, partitions in held.items()}
        own_ms = self._transport.log_dirs_timeout_ms
        answers = (
            self._transport.send_to_each(asked, timeout_ms=own_ms, setting=LOG_DIRS_TIMEOUT)
            if timeout_ms is None
            else self._transport.send_to_each(asked, timeout_ms=timeout_ms)
        )
        self._unanswered = {broker: answer for broker, answer in answers.items() if isinstance(answer, ClusterError)}
        return {
            broker: requests.parse_log_dirs(answer, broker)
            for broker, answer in answers.items()
            if broker not in self._unanswered
        }

    def _list_brokers(self) -> dict[int, Broker]:
        if not self._transport.session().describes_cluster:
            # Kafka before 2.8 does not support the request; it has no fenced brokers either.
            return requests.parse_live_brokers(self._transport.metadata(()))
        return requests.parse_brokers(self._transport.send_to_any(requests.describe_cluster_request))

    def _alter_in_batches(
        self, targets: Mapping[TopicPartition, Assignment | None], what: str, *, keep_factor: bool = False
    ) -> dict[TopicPartition, KafkaRefused | None]:
        results: dict[TopicPartition, KafkaRefused | None] = {}
        self._listed_s = -math.inf  # what is in flight changes
        for batch in batches(list(targets)):
            wanted = {partition: targets[partition] for partition in batch}
            timeout_ms = self._transport.server_timeout_ms
            request = partial(requests.alter_reassignments_request, wanted, timeout_ms, keep_factor=keep_factor)
            response = self._transport.send_to_controller(request, change=True)
            answers = requests.parse_alterations(response, batch, what)
            accepted = {partition: targets[partition] for partition in batch if answers[partition] is None}
            # Asked only once Kafka has answered, because this question must neither delay the change nor fail it.
            if self.zookeeper_mode:
                with suppress(ClusterError):
                    # A KRaft controller that leads brokers in ZooKeeper mode raises no epoch for an order.
                    self._reconciler.orders_raise_epochs = not self.in_migration
            self._reconciler.on_accepted(accepted, time.monotonic())
            results |= answers
        return results
