"""Check a Kafka cluster and the rights of our principal there, by requests that change nothing.

A reassignment is requested of a topic that does not exist, and throttles are requested to be validated only. Managed
services are known by the addresses and ids with which they answer; their limits are those of the vendors' documents.
"""

from __future__ import annotations

import re
import secrets
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from kafka_steward.assignment import TopicPartition, counted, name_some
from kafka_steward.cluster.client import MIGRATION, KafkaCluster
from kafka_steward.cluster.configs import ConfigChange, ConfigOp
from kafka_steward.cluster.requests import NO_SUCH_TOPIC
from kafka_steward.cluster.state import BrokerLogDirs, Snapshot
from kafka_steward.doctor.findings import Commands, Finding, Level, set_for_airflow
from kafka_steward.errors import ClusterError, KafkaRefused
from kafka_steward.execution.cluster_queries import find_hidden_topics, readable_min_isr, readable_topic_configs
from kafka_steward.execution.failures.rules import build_view, lost_racks_clause
from kafka_steward.execution.plans.snapshot import unknown_racks_message
from kafka_steward.execution.throttles.leftovers import ThrottleLevel, ThrottleSurvey
from kafka_steward.execution.throttles.rates import ThrottleSide, external_rates_message, ineffective_message

#: Each right by what a person calls it, in the order of the report.
MOVE, BROKER_THROTTLE, TOPIC_THROTTLE, LOG_DIRS, TOPIC_SETTINGS = (
    "move replicas",
    "throttle brokers",
    "throttle topics",
    "read log directories",
    "read settings of topics",
)
#: What grants each right: the resource and the operation of kafka-acls.
_GRANTS = {
    MOVE: ("--cluster", "Alter"),
    BROKER_THROTTLE: ("--cluster", "AlterConfigs"),
    TOPIC_THROTTLE: ("--topic '*'", "AlterConfigs"),
    LOG_DIRS: ("--cluster", "Describe"),
    TOPIC_SETTINGS: ("--topic '*'", "DescribeConfigs"),
}
#: What Kafka offers since a version, and we do without before.
_SINCE = (
    ((3, 3), "free disk space (no move is held for want of it)"),
    ((4, 1), "the guard of a replication factor that somebody else changes meanwhile (KIP-860)"),
    ((4, 3), "cordoned log directories (KIP-1066)"),
)
#: The setting by which Confluent Server says whether it balances itself.
_OWN_BALANCER = "confluent.balancer.enable"
#: The topic setting by which Confluent Server places replicas, and observers.
_PLACEMENT = "confluent.placement.constraints"
#: Brokers and topics that a sentence names; the rest is only counted.
_NAMED = 5


@dataclass(frozen=True, slots=True)
class Service:
    """A managed Kafka, with advice to its users. Without `moves`, it lets nobody else move its replicas."""

    name: str
    advice: str
    moves: bool = True


_CONFLUENT_CLOUD = Service(
    "Confluent Cloud", "it balances itself and takes no reassignments: use health and status only", False
)
_EVENT_HUBS = Service(
    "Azure Event Hubs", "it has no brokers to move replicas between: it is not supported", moves=False
)
_MSK_SERVERLESS = Service("Amazon MSK Serverless", "it takes no reassignments: it is not supported", moves=False)
_MSK = Service(
    "Amazon MSK",
    "with Express brokers, pause intelligent rebalancing first (set throttle to 0 if throttles are refused)",
)
_REDPANDA = Service("Redpanda", "disable its continuous balancing, or both move the same replicas")
_AIVEN = Service("Aiven for Apache Kafka", "its own maintenance moves replicas, too")
_GOOGLE = Service("Google Cloud Managed Service for Apache Kafka", "turn its automatic rebalancing off")
_INSTACLUSTR = Service("Instaclustr for Apache Kafka", "its own maintenance may move replicas, too")

#: By the ends of the brokers' host names.
_BY_HOST = (
    ("confluent.cloud", _CONFLUENT_CLOUD),
    ("servicebus.windows.net", _EVENT_HUBS),
    ("aivencloud.com", _AIVEN),
    ("cloud.goog", _GOOGLE),
    ("instaclustr.com", _INSTACLUSTR),
    ("redpanda.com", _REDPANDA),
)
_AMAZON = re.compile(r"\.kafka(?P<serverless>-serverless)?\.[a-z0-9-]+\.amazonaws\.com(\.cn)?$")
#: By the beginning of the cluster id.
_BY_ID = (("lkc-", _CONFLUENT_CLOUD), ("redpanda.", _REDPANDA))


def inspect_cluster(
    cluster: KafkaCluster,
    commands: Commands,
    *,
    throttled: bool,
    read_racks: Callable[[], Mapping[int, str]] = dict,
) -> list[Finding]:
    """Return the findings about a cluster. `throttled` says whether the settings ask for a throttle.

    `read_racks` reads the racks that the watch observed last, which is done while a broker that hosts replicas is down.

    Raises ClusterError if the cluster cannot be described at all.
    """
    snapshot = cluster.snapshot()
    commands = commands.reaching({broker: snapshot.brokers[broker] for broker in snapshot.live})
    racks = read_racks() if snapshot.dead_hosting_brokers else {}
    log_dirs: dict[int, BrokerLogDirs] = {}
    refusals = {LOG_DIRS: _refusal_of(lambda: log_dirs.update(cluster.log_dirs(sorted(snapshot.live))))}
    unanswered = dict(cluster.log_dirs_failures)
    refusals |= _probe_rights(cluster, snapshot, throttled=throttled)
    hidden = [find_hidden_topics(cluster, snapshot, log_dirs)] if log_dirs else []
    return [
        describe_cluster(snapshot, cluster.kafka_version, commands, mode=cluster.mode_text, racks=racks),
        *migration_findings(in_migration=cluster.in_migration),
        capability_finding(cluster.kafka_version),
        *controller_findings(cluster, commands),
        *service_findings(snapshot, commands, balances_itself=_balances_itself(cluster, snapshot)),
        right_finding(refusals, commands),
        *(hidden_finding(topics, commands) for topics in hidden),
        *(Finding("deletions", Level.NOTE, sentence) for sentence in snapshot.deletion_sentences),
        *cordon_findings(snapshot, log_dirs, commands, unanswered),
        *lagging_findings(snapshot, _topics_with_observers(cluster, snapshot), commands),
    ]


def controller_findings(cluster: KafkaCluster, commands: Commands) -> list[Finding]:
    """Return whether the controllers answer that the connection names; nothing if it names none."""
    if not cluster.changes_dead_brokers:
        return []
    try:
        cluster.check_controllers()
    except ClusterError as error:
        return [Finding("controllers", Level.FAULT, str(error), commands.show_connection())]
    return [Finding("controllers", Level.OK, "The controllers answer: rates of dead brokers are put back at once.")]


def describe_cluster(
    snapshot: Snapshot, version: str, commands: Commands, *, mode: str, racks: Mapping[int, str] | None = None
) -> Finding:
    """Return what the cluster is; a fault while partitions have no leader, a note while brokers are down.

    `racks` are those that brokers had last: with ZooKeeper, Kafka forgets the racks of dead ones.
    """
    dead = sorted(snapshot.dead_hosting_brokers)
    under = sum(partition.under_replicated for partition in snapshot.partitions.values())
    offline = sum(partition.leader is None for partition in snapshot.partitions.values())
    sentence = (
        f"Cluster {snapshot.cluster_id} in {mode}, with the requests of Kafka {version}, answers; live brokers: "
        f"{_name(sorted(snapshot.live))}; {counted(len(snapshot.partitions), 'partition')}, {under} under-replicated."
    )
    if dead:
        lost = lost_racks_clause(build_view(snapshot, frozenset(dead), {}, racks).lost_racks)
        unknown = unknown_racks_message(snapshot, dead, racks or {})
        sentence += f" Brokers that are down and host replicas: {_name(dead)}{lost}.{unknown and f' {unknown}'}"
    if offline:
        sentence += f" {counted(offline, 'partition', 'has', 'have')} no leader."
        return Finding("kafka", Level.FAULT, sentence, commands.steward("partitions --unavailable-partitions"))
    if dead or under:
        return Finding("kafka", Level.NOTE, sentence, commands.steward("status"))
    return Finding("kafka", Level.OK, sentence)


def migration_findings(*, in_migration: bool) -> list[Finding]:
    """Return a note while a cluster is migrated from ZooKeeper to KRaft; empty otherwise."""
    if not in_migration:
        return []
    sentence = (
        f"The cluster is in migration from ZooKeeper to KRaft ({MIGRATION}): reassignments are submitted by the Admin "
        "API only, and brokers restart meanwhile; prefer to finish it before plans are made, and move a journal out of "
        "ZooKeeper before ZooKeeper is removed."
    )
    return [Finding("migration", Level.NOTE, sentence)]


def capability_finding(version: str) -> Finding:
    """Return what this version of Kafka does not offer of what is used; ok if it offers all."""
    numbers = tuple(int(part) for part in version.split(".") if part.isdigit())
    missing = [what for since, what in _SINCE if numbers < since]
    if missing:
        return Finding("capabilities", Level.NOTE, f"Kafka {version} does not offer {', '.join(missing)}.")
    return Finding("capabilities", Level.OK, f"Kafka {version} offers everything that is used.")


def service_findings(snapshot: Snapshot, commands: Commands, *, balances_itself: bool) -> list[Finding]:
    """Return a finding for a managed service, and for a cluster with a balancer of its own; empty for neither."""
    service = find_service(snapshot.cluster_id, [broker.host for broker in snapshot.brokers.values()])
    findings = []
    if service is not None:
        level, sentence = Level.NOTE if service.moves else Level.FAULT, f"This is {service.name}; {service.advice}."
        findings.append(Finding("service", level, sentence, commands.steward("status")))
    if balances_itself:
        sentence = (
            f"This cluster balances itself ({_OWN_BALANCER} is true), so that two would move the same replicas; turn "
            "it off, or leave rebalance, expand and drain to it."
        )
        findings.append(Finding("service", Level.FAULT, sentence, commands.set_on_brokers(_OWN_BALANCER, "false")))
    return findings


def right_finding(refusals: Mapping[str, ClusterError | None], commands: Commands) -> Finding:
    """Return one finding about all rights that were asked for. `refusals` has None for what is allowed."""
    refused = {right: error for right, error in refusals.items() if error is not None}
    if not refused:
        return Finding("rights", Level.OK, f"Kafka lets us {', '.join(refusals)}.")
    sentence = " ".join(f"We may not {right}: {error}" for right, error in refused.items())
    helps = [commands.grant(*_GRANTS[right]) for right in refused]
    if {BROKER_THROTTLE, TOPIC_THROTTLE}.intersection(refused) and MOVE not in refused:
        sentence += " Without throttles, set throttle to 0: moves then run at full speed."
        helps.append(set_for_airflow("throttle", "0"))
    return Finding("rights", Level.FAULT, sentence, "\n".join(helps))


def hidden_finding(hidden: Mapping[str, Sequence[int]], commands: Commands) -> Finding:
    """Return the finding about topics that we may not describe, with the brokers that host them."""
    if not hidden:
        return Finding("hidden topics", Level.OK, "No topic is hidden from us.")
    sentence = (
        f"Kafka does not let us describe {_name(hidden)}, and nothing is planned meanwhile; grant our principal "
        "Describe on every topic, as docs/permissions.md says."
    )
    return Finding("hidden topics", Level.FAULT, sentence, commands.grant("--topic '*'", "Describe"))


def cordon_findings(
    snapshot: Snapshot,
    log_dirs: Mapping[int, BrokerLogDirs],
    commands: Commands,
    unanswered: Mapping[int, str] | None = None,
) -> list[Finding]:
    """Return the findings about brokers that receive no replicas, and about failed log directories.

    `unanswered` has why a broker did not report its log directories.
    """
    cordoned = sorted(broker for broker, dirs in log_dirs.items() if dirs.cordoned)
    every = {broker: dirs.failed_paths for broker, dirs in log_dirs.items() if dirs.failed_paths}
    failed = {broker: paths for broker, paths in every.items() if broker in snapshot.offline_on_live_brokers}
    emptied = {broker: paths for broker, paths in every.items() if broker not in failed}
    silent = sorted(snapshot.live - log_dirs.keys()) if log_dirs else []
    findings = []
    if cordoned:
        sentence = f"Cordoned brokers (cordoned.log.dirs), which receive no replicas: {_name(cordoned)}."
        findings.append(Finding("cordons", Level.NOTE, sentence))
    if failed:
        sentence = f"Log directories have failed on {_name_paths(failed)}; replace the disks, or set heal_failed_disks."
        heals = [f"failed {broker} --disk {shlex.join(paths)}" for broker, paths in sorted(failed.items())]
        findings.append(Finding("disks", Level.FAULT, sentence, "\n".join(map(commands.steward, heals))))
    if emptied:
        sentence = f"Log directories have failed on {_name_paths(emptied)}; no replica is left there: replace them."
        findings.append(Finding("disks", Level.NOTE, sentence))
    if silent:
        reasons = [(unanswered or {}).get(broker, "") for broker in silent]
        why = f" {reasons[0]}" if reasons[0] else ""
        sentence = f"Brokers that did not report their disks in time: {_name(silent)}.{why}"
        findings.append(Finding("disks", Level.NOTE, sentence))
    return findings


def _name_paths(paths_of: Mapping[int, Sequence[str]]) -> str:
    return "; ".join(f"broker {broker}: {', '.join(paths)}" for broker, paths in sorted(paths_of.items()))


def lagging_findings(snapshot: Snapshot, observed: Collection[str], commands: Commands) -> list[Finding]:
    """Return a finding about replicas of live brokers that are not in sync; empty without any.

    `observed` are the topics among theirs whose placement may have observers, which never join the ISR.
    """
    lagging = {name: partition.lagging(snapshot) for name, partition in sorted(snapshot.partitions.items())}
    named = [f"{name} on {', '.join(map(str, sorted(brokers)))}" for name, brokers in lagging.items() if brokers]
    if not named:
        return []
    observers = (
        f" Topics with {_PLACEMENT}, whose observers never join the ISR: {_name(sorted(observed))}." if observed else ""
    )
    sentence = (
        f"Replicas of live brokers that are not in sync: {_name(named)}.{observers} If they do not catch up, look "
        "for a throttle that somebody left, or restart the broker; after stuck_after they keep no plan from starting."
    )
    return [Finding("replicas", Level.NOTE, sentence, commands.steward("partitions --under-replicated-partitions"))]


def find_service(cluster_id: str, hosts: Collection[str]) -> Service | None:
    """Return the service that a cluster is of; None for a Kafka of one's own, or an unknown service."""
    for beginning, service in _BY_ID:
        if cluster_id.startswith(beginning):
            return service
    names = [host.lower().rstrip(".") for host in hosts]
    for name in names:
        amazon = _AMAZON.search(name)
        if amazon is not None:
            return _MSK_SERVERLESS if amazon["serverless"] else _MSK
        for end, service in _BY_HOST:
            if name == end or name.endswith(f".{end}"):
                return service
    return None


def throttle_finding(survey: ThrottleSurvey, throttle: int, commands: Commands) -> Finding:
    """Return one finding about the throttles in Kafka. `throttle` is the setting, in bytes per second, 0 for none."""
    lists = sum(leftover.level is ThrottleLevel.TOPIC for leftover in survey.leftovers)
    rates, sentences = len(survey.leftovers) - lists, []
    if survey.leftovers:
        named = [counted(rates, "rate")] if rates else []
        named += [f"{counted(lists, 'list')} of throttled replicas"] if lists else []
        are, them = ("is", "it") if len(survey.leftovers) == 1 else ("are", "them")
        sentences.append(
            f"{' and '.join(named)} {are} left over: no reassignment in flight needs {them}. The next one is limited "
            "where a list, such as a plan's, names a replica of a broker with a rate."
        )
    if survey.in_use:
        foreign = counted(len(survey.in_use), "setting")
        sentences.append(f"{foreign} of others may be in use by reassignments in flight.")
    stricter = [rate for rate in survey.rates if rate.bytes_per_s < throttle]
    external = external_rates_message(stricter, throttle, whose="a plan's", connection=commands.connection)
    listed = {name for rate in stricter if rate.side is ThrottleSide.LEADER for name in rate.partitions}
    of_leaders = f"A leader's rate slows only what a list names: {_name(sorted(listed))}." if listed else ""
    sentences += filter(None, (external, of_leaders, ineffective_message(throttle), survey.file_sentence))
    if not sentences:
        sentences.append("No throttle is left over, and no rate is stricter than that of plans.")
        if not survey.unread:
            return Finding("throttles", Level.OK, sentences[0])
    sentences += filter(None, [survey.unread_sentence])
    command = commands.steward("throttles") if survey.leftovers or survey.in_use else ""
    return Finding("throttles", Level.NOTE, " ".join(sentences), command)


def _topics_with_observers(cluster: KafkaCluster, snapshot: Snapshot) -> list[str]:
    """Return the topics with replicas out of sync on live brokers that have placement constraints."""
    topics = sorted({name.topic for name, partition in snapshot.partitions.items() if partition.lagging(snapshot)})
    values, _ = readable_topic_configs(cluster, topics, [_PLACEMENT])
    return [topic for topic in topics if values.get(topic, {}).get(_PLACEMENT)]


def _probe_rights(cluster: KafkaCluster, snapshot: Snapshot, *, throttled: bool) -> dict[str, ClusterError | None]:
    live, topics = sorted(snapshot.live), sorted(snapshot.topics)
    # Kafka checks the right before the topic, and nothing can come of a topic that does not exist.
    nothing = TopicPartition(f"kafka-steward-probe-{secrets.token_hex(16)}", 0)
    answer = _refusal_of(lambda: cluster.alter({nothing: tuple(live[:1])})[nothing])
    missing = isinstance(answer, KafkaRefused) and answer.code in NO_SUCH_TOPIC
    refusals: dict[str, ClusterError | None] = {MOVE: None if missing else answer}
    if throttled and live:
        rate = ConfigChange(ThrottleSide.FOLLOWER.rate_key, ConfigOp.SET, "1000000000")
        refusals[BROKER_THROTTLE] = _refusal_of(lambda: cluster.check_broker_configs({live[0]: [rate]})[live[0]])
    if throttled and topics:
        entry = ConfigChange(ThrottleSide.FOLLOWER.replicas_key, ConfigOp.APPEND, "0:0")
        refusals[TOPIC_THROTTLE] = _refusal_of(lambda: cluster.check_topic_configs({topics[0]: [entry]})[topics[0]])
    if topics:
        _, unreadable = readable_min_isr(cluster, topics)
        refusals[TOPIC_SETTINGS] = next(iter(unreadable.values()), None)
    return refusals


def _refusal_of(request: Callable[[], ClusterError | None]) -> ClusterError | None:
    """Return the error that a request returns or raises; None if Kafka lets us."""
    try:
        return request()
    except ClusterError as error:
        return error


def _balances_itself(cluster: KafkaCluster, snapshot: Snapshot) -> bool:
    """Return whether Confluent Server says that it balances the cluster; Kafka knows no such setting."""
    live = sorted(snapshot.live)[:1]
    try:
        values = cluster.broker_configs(live, [_OWN_BALANCER])
    except ClusterError:
        return False  # the rights are asked for by themselves
    return any(config.get(_OWN_BALANCER) == "true" for config in values.values())


def _name(items: Collection[object]) -> str:
    return name_some(items, _NAMED) or "none"
