"""Read-only verbs for a cluster, its plans and its audit trail: status, health, partitions, plans, show, audit.

Values for programs are untruncated, with times in ISO 8601 (UTC).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from typing import Any

from kafka_steward.assignment import Assignment, TopicPartition, begin_with_brokers, counted, name_some
from kafka_steward.cli import Exit
from kafka_steward.cli.document_facts import document_facts, document_lines
from kafka_steward.cli.verb import NO_JOURNAL, CommandContext, print_error
from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.cluster.health import PartitionCondition, failed_log_dirs, failed_paths_text, partition_conditions
from kafka_steward.cluster.state import Partition, Snapshot
from kafka_steward.document_api.document_status import DocumentStatus, read_document_status
from kafka_steward.errors import ClusterError, PlanError, RequestError
from kafka_steward.escaping import iso_time
from kafka_steward.execution.announcements import restart_clause, restarting_brokers
from kafka_steward.execution.cluster_queries import describe_topic, readable_min_isr
from kafka_steward.execution.cordons import cordons_in_effect
from kafka_steward.execution.demotions import demotions_in_effect
from kafka_steward.execution.failures.records import read_failures
from kafka_steward.execution.failures.rules import build_view, lost_racks_clause, not_counted_text
from kafka_steward.execution.plans.lifecycle import find_plan_by_prefix
from kafka_steward.execution.plans.report import reason_to_leave
from kafka_steward.execution.plans.rollback import find_left_alone, mark_taken_back
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.execution.throttles.leases import list_external_rates
from kafka_steward.execution.throttles.rates import (
    ExternalRate,
    ThrottleSide,
    external_rates_message,
    names_rates,
    rate_text,
)
from kafka_steward.execution.watch.failure_detector import decide_outage
from kafka_steward.execution.watch.health import (
    DEFAULT_LIMITS,
    check_health,
    health_message,
    partition_lines,
    partition_names,
    violated_limits,
)
from kafka_steward.hooks.session import ClusterSession
from kafka_steward.journal.audit import StoredAuditRecord
from kafka_steward.journal.columns import audit_facts, move_facts
from kafka_steward.journal.listing import QUARANTINE, list_unreadable
from kafka_steward.journal.observed import ProofSummary
from kafka_steward.journal.records import WRITTEN, MoveRow, PlanRecord, PlanStatus
from kafka_steward.journal.render import Table, audit_table, moves_table, plan_lines, plans_table
from kafka_steward.journal.store import Journal
from kafka_steward.planning.files.reassignment import parse_reassignment, read_assignment
from kafka_steward.rack_rule import rack_left_sentence
from kafka_steward.settings import Settings

#: Topics that a message names; the rest is only counted.
_NAMED = 3
#: Rows of a table without --limit, and plans of an answer without a limit: retention keeps far fewer.
_NEWEST, _ALL_PLANS = 50, 1_000_000
#: Partitions that `status` names of those into which most bytes come.
_HOTTEST = 5
#: Seconds without a step, beyond three intervals, after which `status` says so.
_LATE_S = 30

#: The documents in quarantine that are listed for programs; the newest one alone has a line.
_QUARANTINED = 20


def plan_facts(record: PlanRecord, external: Sequence[ExternalRate] = ()) -> dict[str, Any]:
    """Return a plan's record as plain values, with the rates of others that apply instead of its own."""
    return {
        "plan": record.digest,
        "operation": record.operation,
        "status": record.status.value,
        "partitions": record.partitions,
        "left": record.left,
        "failed_brokers": list(record.failed_brokers),
        "rolled_back_by": record.rolled_back_by,
        "throttle": record.throttle,
        "external_rates": [rate.to_json() for rate in external],
        "published": iso_time(record.published_ms),
        "stepped": iso_time(record.stepped_ms),
        "reason": record.reason,
        "who": str(record.who),
    }


def time_argument_ms(time: int | datetime, now_ms: int) -> int:
    """Return a time argument, milliseconds ago or a point in time, as milliseconds since 1970."""
    return now_ms - time if isinstance(time, int) else int(time.timestamp() * 1000)


#: The facts for which `status` prints separate lines, besides those of the documents.
_APART = (
    *("dead_brokers_hold", "rates_for_all_brokers", "plans", "external_rates", "hosts", "polls"),
    *("failures", "failed_log_dirs", "announced_restarts", "pending_deletions", "bytes_in", "hottest_partitions"),
    *("demoted_brokers", "cordoned_by_drains", "documents_in_quarantine"),
)


def show_status(call: CommandContext) -> None:
    """Print the state of the cluster and its unfinished plans."""
    if call.direct is not None:
        with call.open_cluster() as cluster:
            facts = _status_without_journal(cluster)
        call.out.print_facts(facts, _cluster_lines(facts))
        print_error(NO_JOURNAL)
        return
    with call.open() as opened:
        unfinished = opened.journal.plans.unfinished()
        external = {record.digest: list_external_rates(opened.journal, record) for record in unfinished}
        documents, stored = read_document_status(opened.journal), opened.journal.plans
        facts = _status_facts(opened, unfinished, external, documents)
        lines = [*_cluster_lines(facts), *document_lines(documents)]
        told = (*facts["announced_restarts"], *facts["demoted_brokers"], *facts["cordoned_by_drains"])
        lines += [each["sentence"] for each in told]
        lines += _load_lines(facts)
        lines += [f"opened on: {host['host']}, last {host['last']}" for host in facts["hosts"]]
        connection = call.connection(opened.cluster.live_brokers())
        polls = [f"watched: {poll['kind']}, {poll['seconds']:.0f} s ago on {poll['host']}" for poll in facts["polls"]]
        lines += polls or ["watched: never; no watch has polled this journal"]
        for record in unfinished:
            lines += _plan_lines(record, stored.existing_rows(record.digest), external[record.digest], connection)
            lines += late_step_lines(record, opened.journal.now_ms(), opened.settings)
        call.out.print_facts({**facts, **document_facts(documents)}, lines)


def _cluster_lines(facts: Mapping[str, Any]) -> list[str]:
    lines = [f"{name.replace('_', ' ')}: {_value_text(value)}" for name, value in facts.items() if name not in _APART]
    lines += [*_lines_of_others(facts), *facts["failures"], *facts["pending_deletions"]]
    return lines + [
        f"log directory {failed_paths_text(failure['paths'])} of broker {failure['broker']} has failed"
        for failure in facts["failed_log_dirs"]
    ]


def _load_lines(facts: Mapping[str, Any]) -> list[str]:
    """Return a line about what producers bring into the brokers, and one about the partitions that get most of it."""
    brokers = [
        f"broker {each['broker']} {rate_text(each['as_leader'])} as leader, "
        f"{rate_text(each['as_follower'])} as follower"
        for each in facts["bytes_in"]
    ]
    hottest = [
        f"{each['topic']}-{each['partition']} {rate_text(each['bytes_per_s'])}" for each in facts["hottest_partitions"]
    ]
    return [
        *([f"bytes in: {'; '.join(brokers)}"] if brokers else []),
        *([f"hottest partitions: {', '.join(hottest)}"] if hottest else []),
    ]


def late_step_lines(record: PlanRecord, now_ms: int, settings: Settings) -> list[str]:
    """Return a line if no process has stepped a plan for long that is to be stepped; else none. Pure."""
    late_s = (now_ms - max(record.stepped_ms, record.published_ms)) / 1000
    if record.status.waits or record.status is PlanStatus.STUCK or late_s <= _LATE_S + 3 * settings.step_interval:
        return []
    return [f"  no process has stepped it for {late_s:.0f} s: look at the triggerer and the workers, or resume it"]


def _status_without_journal(cluster: KafkaCluster) -> dict[str, Any]:
    """Return the facts of a cluster by itself: what counts as an outage is a matter of a connection's settings."""
    snapshot = cluster.snapshot()
    view = build_view(snapshot, snapshot.dead_hosting_brokers, {})
    lost = [f"brokers are down{lost_racks_clause(view.lost_racks)}"] if view.lost_racks else []
    return _cluster_facts(cluster, snapshot, {"failures": lost})


def _cluster_facts(cluster: KafkaCluster, snapshot: Snapshot, failures: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts that a cluster has by itself, with those about failures among them."""
    dead = snapshot.dead_hosting_brokers
    broken = dict[int, tuple[str, ...]]()
    with suppress(ClusterError):  # without the right to read log directories, there is a status all the same
        broken = failed_log_dirs(snapshot, cluster.directories(sorted(snapshot.live)))
    return {
        "cluster_id": snapshot.cluster_id,
        "mode": cluster.mode_text.replace(" mode", ""),
        "live_brokers": sorted(snapshot.live),
        "dead_brokers": sorted(dead),
        "failed_log_dirs": [{"broker": broker, "paths": list(paths)} for broker, paths in broken.items()],
        "dead_brokers_hold": _held_by(snapshot, dead),
        "rates_for_all_brokers": _rates_for_all(cluster, snapshot),
        **failures,
        "pending_deletions": snapshot.deletion_sentences,
        "partitions": len(snapshot.partitions),
        "under_replicated": sum(partition.under_replicated for partition in snapshot.partitions.values()),
        "without_a_leader": sum(partition.leader is None for partition in snapshot.partitions.values()),
        "reassigning": len(snapshot.in_flight),
    }


def _status_facts(
    opened: ClusterSession,
    plans: Sequence[PlanRecord],
    external: Mapping[str, Sequence[ExternalRate]],
    documents: DocumentStatus,
) -> dict[str, Any]:
    snapshot, journal = opened.cluster.snapshot(), opened.journal
    openings = [] if journal.hosts is None else journal.hosts.openings()
    polls = [] if journal.hosts is None else journal.hosts.polls()
    reports = journal.watch_reports
    return {
        **_cluster_facts(opened.cluster, snapshot, _failure_facts(opened, snapshot, documents)),
        "bytes_in": [
            {"broker": broker, "as_leader": led, "as_follower": followed}
            for broker, (led, followed) in ({} if reports is None else reports.bytes_in()).items()
        ],
        "hottest_partitions": [
            {"topic": hot.topic, "partition": hot.partition}
            | {"bytes_per_s": hot.bytes_per_s, "highest_hour": hot.peak_bytes_per_s}
            for hot in ([] if reports is None else reports.hottest(_HOTTEST))
        ],
        "plans": [record.digest for record in plans],
        "external_rates": [{"plan": digest, **rate.to_json()} for digest, rates in external.items() for rate in rates],
        "journal": (opened.origin or {}).get("place"),
        "hosts": [
            {"host": row["host"], "first": iso_time(row["first_ms"]), "last": iso_time(row["last_ms"])}
            for row in openings
        ],
        "polls": [
            {"kind": row["kind"], "host": row["host"], "last": iso_time(row["at_ms"]), "seconds": row["age_ms"] / 1000}
            for row in polls
        ],
    }


def _failure_facts(opened: ClusterSession, snapshot: Snapshot, documents: DocumentStatus) -> dict[str, Any]:
    journal, dead = opened.journal, snapshot.dead_hosting_brokers
    failures = read_failures(journal)
    outage = decide_outage(journal, snapshot, failures, opened.settings)
    view, why, of_disks = outage.view, outage.brokers_why, outage.disks_why
    notes = filter(
        None,
        (
            why and f"{begin_with_brokers(sorted(dead), 'is', 'are')} down: {why}",
            not_counted_text(outage.brokers.not_counted, but=outage.brokers.due, conn_id=journal.conn_id),
            view.lost_racks and f"brokers are down{lost_racks_clause(view.lost_racks)}",
            of_disks and f"{begin_with_brokers(sorted(view.lost), 'has', 'have')} failed log directories: {of_disks}",
        ),
    )
    return {
        "outage": bool(why or of_disks),
        "failures": list(notes),
        "announced_restarts": [
            {"broker": broker, "until": iso_time(until_ms), "sentence": f"Broker {broker} {restart_clause(until_ms)}."}
            for broker, until_ms in sorted(restarting_brokers(journal.mailbox, journal.now_ms()).items())
        ],
        "demoted_brokers": _demotion_facts(journal, snapshot),
        "cordoned_by_drains": _cordon_facts(journal),
        "failures_written_down": sorted(failures.entries),
        "heals_called_off": sorted(failures.called_off - snapshot.live),
        "documents_that_cannot_be_read": [
            *(node.path for node in list_unreadable(journal.mailbox, WRITTEN)),
            *(node.path for node in documents.unreadable),
        ],
        "documents_in_quarantine": _quarantine_facts(journal),
    }


def _quarantine_facts(journal: Journal) -> dict[str, Any]:
    """Return how many documents could not be read and were moved aside, and the newest ones."""
    rows = sorted(journal.rows(QUARANTINE).all(), key=lambda row: row.stored.created_id, reverse=True)
    newest = [
        {"row": row.key, "at": iso_time(row.at_ms), "path": row.value.path, "reason": row.value.reason}
        for row in rows[:_QUARANTINED]
    ]
    return {"count": len(rows), "newest": newest}


def _demotion_facts(journal: Journal, snapshot: Snapshot) -> list[dict[str, Any]]:
    """Return the demoted brokers, and how many partitions each of them leads all the same."""
    led = Counter(partition.leader for partition in snapshot.partitions.values())
    return [
        {
            "broker": broker,
            "plan": demotion.plans[0],
            "since": iso_time(demotion.since_ms),
            "leads": led[broker],
            "sentence": f"Broker {broker} is demoted since {iso_time(demotion.since_ms)}, by plan "
            f"{demotion.plans[0][:12]}, and leads {counted(led[broker], 'partition')}.",
        }
        for broker, demotion in sorted(demotions_in_effect(journal).items())
    ]


def _cordon_facts(journal: Journal) -> list[dict[str, Any]]:
    """Return the brokers that drains have cordoned; a person may have lifted that since."""
    return [
        {
            "broker": broker,
            "plan": cordon.plan,
            "since": iso_time(cordon.since_ms),
            "sentence": f"Broker {broker} was cordoned {iso_time(cordon.since_ms)} by plan {cordon.plan[:12]}, which "
            "empties it; to use it again, roll that plan back, or delete its cordoned.log.dirs.",
        }
        for broker, cordon in sorted(cordons_in_effect(journal).items())
    ]


def _held_by(snapshot: Snapshot, dead: AbstractSet[int]) -> list[dict[str, int]]:
    """Return how many partitions have a replica on each dead broker, and how many of these have no leader."""
    held = [
        (broker, partition.leader)
        for partition in snapshot.partitions.values()
        for broker in dead & {*partition.replicas}
    ]
    every, leaderless = Counter(broker for broker, _ in held), Counter(broker for broker, led in held if led is None)
    return [
        {"broker": broker, "partitions": count, "without_a_leader": leaderless[broker]}
        for broker, count in sorted(every.items())
    ]


def _rates_for_all(cluster: ClusterPort, snapshot: Snapshot) -> dict[str, int]:
    """Return the rates that are set for all brokers (KIP-73), as one of them has them; none without the right."""
    keys = [side.rate_key for side in ThrottleSide]
    with suppress(ClusterError):
        rates = cluster.broker_rates(sorted(snapshot.live)[:1], keys)
        return {key: int(rate.inherited) for key in keys for rate in rates[key].values() if rate.inherited is not None}
    return {}


def _lines_of_others(facts: Mapping[str, Any]) -> list[str]:
    """Return a line about the rates for all brokers, and one about what dead brokers hold, where there are any."""
    rates = [f"{key} {rate_text(rate)}" for key, rate in facts["rates_for_all_brokers"].items()]
    held = [
        f"broker {holder['broker']}: {counted(holder['partitions'], 'partition')}"
        f"{f', {lost} of them without a leader' if (lost := holder['without_a_leader']) else ''}"
        for holder in facts["dead_brokers_hold"]
    ]
    aside: Mapping[str, Any] = facts.get("documents_in_quarantine", {"count": 0, "newest": ()})
    more = f" (and {aside['count'] - 1} before it)" if aside["count"] > 1 else ""
    return [
        *([f"set for all brokers: {', '.join(rates)}"] if rates else []),
        *([f"dead brokers hold replicas: {'; '.join(held)}"] if held else []),
        *(
            f"in quarantine: {newest['path']}, in row {newest['row']} of {QUARANTINE.name} in the journal's table "
            f"steward_state{more}: {newest['reason']} It has no effect: correct what wrote it, and write it again."
            for newest in aside["newest"][:1]
        ),
    ]


def show_health(call: CommandContext) -> Exit:
    """Print the measures of the cluster (KIP-352), and the partitions that are not well."""
    with call.open() as opened:
        patterns = opened.settings.service_topic_patterns
        health, _ = check_health(opened.cluster, opened.journal, thorough=True, sized=True, service_topics=patterns)
    measures, above = health.measures, violated_limits(health, DEFAULT_LIMITS)
    # Those by broker, `reassigning_partitions.1`, are for programs.
    lines = [f"{name.replace('_', ' ')}: {value:g}" for name, value in sorted(measures.items()) if "." not in name]
    facts = {**measures, "named": partition_names(health), "sentence": health_message(health), "above_limit": above}
    call.out.print_facts(facts, [health_message(health), *partition_lines(health), *lines])
    if call.direct is not None:
        print_error(NO_JOURNAL)
    if above:
        print_error(f"A healthy cluster has none of these: {', '.join(above).replace('_', ' ')}.")
    return Exit.FAILED if above else Exit.DONE


_CONDITION_WORDS = {
    PartitionCondition.UNDER_REPLICATED: "under-replicated",
    PartitionCondition.UNDER_MIN_ISR: "under min ISR",
    PartitionCondition.AT_MIN_ISR: "at min ISR",
    PartitionCondition.OFFLINE: "offline",
    PartitionCondition.REASSIGNING: "being reassigned",
}


def list_partitions(call: CommandContext) -> Exit:
    """Print the partitions that meet any of the requested conditions, or all (KIP-352)."""
    wanted = [condition for condition in PartitionCondition if getattr(call.arguments, condition.value)]
    with call.open_cluster() as cluster:
        snapshot = _describe_partitions(cluster, call.arguments.topic)
        min_isr, unreadable = readable_min_isr(cluster, sorted(snapshot.topics))
    rows = [
        _partition_facts(partition, min_isr.get(partition.topic))
        for _, partition in sorted(snapshot.partitions.items())
    ]
    # Of what the brokers do not show any more, nothing else is known.
    unshown = [_partition_facts(partition, None) for _, partition in sorted(snapshot.unshown.items())]
    rows += [{**row, "conditions": [PartitionCondition.REASSIGNING.value]} for row in unshown]
    chosen = [row for row in rows if not wanted or not {*wanted}.isdisjoint(row["conditions"])]
    call.out.print_rows(chosen, _partitions_table(chosen))
    if wanted:
        conditions = " or ".join(_CONDITION_WORDS[condition] for condition in wanted)
        print_error(
            f"{len(chosen)} of {counted(len(rows), 'partition')} {'is' if len(chosen) == 1 else 'are'} {conditions}."
        )
    if unreadable:
        print_error(_unreadable_topics_message(sorted(unreadable)))
    return Exit.FAILED if unreadable else Exit.DONE


def _describe_partitions(cluster: KafkaCluster, topic: str | None) -> Snapshot:
    if topic is None:
        return cluster.snapshot()
    snapshot = describe_topic(cluster, topic)
    if not snapshot.partitions:
        raise RequestError(
            f"Cluster {snapshot.cluster_id} has no topic {topic}; leave out --topic to list those of all topics."
        )
    return snapshot


def _unreadable_topics_message(topics: Sequence[str]) -> str:
    return (
        f"Kafka does not let us read min.insync.replicas of {len(topics)} topics ({name_some(topics, _NAMED)}), whose "
        "partitions may be under or at min ISR: grant our principal DESCRIBE_CONFIGS on every topic, as "
        "docs/permissions.md says."
    )


def _partition_facts(partition: Partition, min_isr: int | None) -> dict[str, Any]:
    return {
        "topic": partition.topic,
        "topic_id": partition.topic_id,
        "partition": partition.partition,
        "leader": partition.leader,
        "replicas": list(partition.replicas),
        "isr": sorted(partition.isr),
        "adding": list(partition.adding),
        "removing": list(partition.removing),
        "min_isr": min_isr,
        "conditions": [condition.value for condition in partition_conditions(partition, min_isr)],
    }


def _partitions_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    brokers = ("replicas", "isr", "adding", "removing")
    cells: list[tuple[str, ...]] = [
        (
            row["topic"],
            str(row["partition"]),
            "none" if row["leader"] is None else str(row["leader"]),
            *(",".join(map(str, row[name])) for name in brokers),
            ", ".join(_CONDITION_WORDS[PartitionCondition(condition)] for condition in row["conditions"]),
        )
        for row in rows
    ]
    return Table(("topic", "partition", "leader", *brokers, "conditions"), cells)


def list_plans(call: CommandContext) -> None:
    """Print the newest plans."""
    with call.journal() as journal:
        records = journal.plans.latest(_limit(call) or _ALL_PLANS)
    call.out.print_rows([plan_facts(record) for record in records], plans_table(records))
    _print_extent(call, len(records), "plan")


def _limit(call: CommandContext) -> int | None:
    """Return how many of the newest are asked for; None for all: programs get whole answers."""
    given: int | None = call.arguments.limit
    return given if given is not None or call.out.form != "table" else _NEWEST


def _print_extent(call: CommandContext, count: int, what: str, hint: str = "") -> None:
    """Say on standard error that nothing was found, or that there may be more than a table shows by itself.

    `hint` says how to see only some.
    """
    if not count:
        print_error(f"There is no {what}, or none that fits.")
    elif call.arguments.limit is None and count == _limit(call):
        print_error(f"These are the newest {count}; {hint}more with --limit, all of them with --output json.")


def show_plan(call: CommandContext) -> None:
    """Print one plan with its moves, and the partitions that it leaves as they are; or the reassignment of a file."""
    if call.arguments.shows_file:
        _show_file(call)
        return
    with call.journal() as journal:
        record = _find_shown(journal, call.arguments.plan)
        rows = mark_taken_back(journal, record, journal.plans.rows(record.digest))
        external = list_external_rates(journal, record)
        proof = None if journal.plan_reports is None else journal.plan_reports.proof(record.digest)
        alone = find_left_alone(journal, record.digest if record.rolls_back else record.rolled_back_by)
    moves = [move_facts(row) for row in rows]
    if call.out.form == "csv":
        call.out.print_rows(moves, moves_table(rows))
    else:
        lines = _plan_lines(record, rows, external, call.connection())
        lines += ["", *moves_table(rows).lines()] if rows else []
        if alone:
            lines += ["", "left alone by the rollback:", *(f"  {partition.sentence}" for partition in alone)]
        facts = {**plan_facts(record, external), "moves": moves, "not_planned": _not_planned(proof)}
        facts["left_alone"] = [asdict(partition) for partition in alone]
        call.out.print_facts(facts, [*lines, *_not_planned_lines(proof)])


def _show_file(call: CommandContext) -> None:
    targets = parse_reassignment(read_assignment(call.arguments.plan, "reassignment"))
    now: Mapping[TopicPartition, Partition] | None = None
    if call.arguments.cluster or call.direct:
        with call.open_cluster() as cluster:
            now = cluster.snapshot(sorted({name.topic for name in targets})).partitions
    rows = [_target_facts(name, target, now) for name, target in sorted(targets.items())]
    columns = tuple(rows[0]) if rows else ()
    call.out.print_rows(rows, Table(columns, [tuple(_cell_text(row[name]) for name in columns) for row in rows]))
    if now is None:
        print_error(f"{counted(len(rows), 'partition')}; with --bootstrap-server or --cluster, what they have now.")
    else:
        changed, gone = sum(row["change"] in _CHANGES for row in rows), sum(row["change"] == _GONE for row in rows)
        missing = f"; {gone} {'does' if gone == 1 else 'do'} not exist" if gone else ""
        print_error(f"{changed} of {counted(len(rows), 'partition')} would change{missing}.")


#: What a file changes of a partition, and what is said of one that does not exist.
_CHANGES, _GONE = ("replicas", "order"), "there is no such partition"


def _target_facts(
    name: TopicPartition, target: Assignment, now: Mapping[TopicPartition, Partition] | None
) -> dict[str, Any]:
    facts = {"topic": name.topic, "partition": name.partition, "replicas": list(target)}
    if now is None:
        return facts
    current = now.get(name)
    has = () if current is None else current.target
    change = _CHANGES[0] if {*has} != {*target} else _CHANGES[1] if has != target else ""
    return {**facts, "now": list(has), "change": _GONE if current is None else change}


def _cell_text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _find_shown(journal: Journal, named: str | None) -> PlanRecord:
    """Return the plan that is named, else the newest that has not ended, else the newest; say which."""
    if named:
        return find_plan_by_prefix(journal, named)
    for plans, which in (journal.plans.unfinished(), " that has not ended"), (journal.plans.latest(1), ""):
        if plans:
            newest = max(plans, key=lambda record: record.published_ms)
            print_error(f"No plan is named; {newest.digest[:12]} is the newest{which}.")
            return newest
    raise PlanError(f"The journal of cluster {journal.cluster_id} holds no plan, so there is nothing to show.")


def _not_planned(proof: ProofSummary | None) -> list[dict[str, Any]]:
    """Return the partitions that a plan leaves as they are, as plain values: why, and what a person can do."""
    left = () if proof is None else proof.left
    return [{**partition._asdict(), "sentence": reason_to_leave(*partition[2:])} for partition in left]


def _not_planned_lines(proof: ProofSummary | None) -> list[str]:
    """Return a line for each partition that a plan leaves as it is, and one for those that are only counted.

    The last line has the partitions that break the rack rule after it.
    """
    racks = "" if proof is None else rack_left_sentence(proof.rack_left, proof.rack_left_counts)
    of_racks = ["", racks] if racks else []
    if proof is None or not proof.left:
        return of_racks
    more = sum(proof.left_counts.values()) - len(proof.left)
    lines = [f"  {TopicPartition(*partition[:2])}: {reason_to_leave(*partition[2:])}" for partition in proof.left]
    return ["", "left as they are:", *lines, *([f"  ... and {more} more"] if more > 0 else []), *of_racks]


def _plan_lines(
    record: PlanRecord, rows: Sequence[MoveRow], external: Sequence[ExternalRate], connection: str
) -> list[str]:
    """Return a summary of a plan; the rates of others that apply instead of its own are in it once.

    Its reason may name them.
    """
    lines = plan_lines(record, rows)
    if external and not names_rates(record.reason, external):
        lines.append(f"  {external_rates_message(external, record.throttle or 0, connection=connection)}")
    return lines


def list_audit_rows(call: CommandContext) -> None:
    """Print rows of the audit trail."""
    given = call.arguments
    with call.journal() as journal:
        plan = find_plan_by_prefix(journal, given.plan).digest if given.plan else None
        since_ms = None if given.since is None else time_argument_ms(given.since, journal.now_ms())
        # The trail is not searched by person: the rows of others must not use up the limit.
        limit = _limit(call) if given.person is None else None
        rows = journal.audit.rows(plan=plan, action=given.action, topic=given.topic, since_ms=since_ms, limit=limit)
    if given.person is not None:
        rows = _newest([row for row in rows if row.entry.who.person == given.person], _limit(call))
    call.out.print_rows([audit_facts(row) for row in rows], audit_table(rows))
    _print_extent(call, len(rows), "row of the audit trail", "only some with --action or --person, ")


def _newest(rows: list[StoredAuditRecord], limit: int | None) -> list[StoredAuditRecord]:
    return rows if limit is None else rows[-limit:]


def _value_text(value: Any) -> str:
    return (", ".join(str(item) for item in value) or "none") if isinstance(value, list) else str(value)
