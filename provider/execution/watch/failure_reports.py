"""Failures that an operator reports (KIP-46, fast detection): their heal is due at once, without the grace period.

A report states that a broker will not return, never that it is down: Kafka has to see that too. Likewise only a log
directory that Kafka reports as failed can be reported, because replicas in another one are in service; it is then
healed even if `heal_failed_disks` is off. Kafka does not say which of several failed directories a replica was in, so
the report of one covers all failed directories of its broker.

A report is withdrawn by deleting the broker's entry, which calls the heal off (see `failure_records`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from kafka_steward.assignment import counted
from kafka_steward.cluster.health import failed_paths_text
from kafka_steward.errors import RequestError
from kafka_steward.execution.failures.records import (
    FAILED_LOG_DIRS,
    FAILURES,
    find_healed_brokers,
    read_failures,
    read_log_dir_failures,
)
from kafka_steward.execution.failures.rules import Failure, LivenessView, outage_text
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.watch.failure_detector import LivenessProbe, decide_failures
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action, Actor, AuditRecord
from kafka_steward.journal.document import sanitize_text
from kafka_steward.journal.kip_documents import FailedBroker
from kafka_steward.journal.listing import DocumentCollection, ListedDocument
from kafka_steward.journal.store import Journal
from kafka_steward.journal.tree import Tree, put, remove


def report_broker(context: ClusterContext, broker: int, *, reason: str = "") -> str:
    """Report that `broker` has failed and will not return, so that its heal is due at once; return the message.

    A repeated report replaces the earlier one, and a heal that was called off is resumed. Raises RequestError for a
    broker that is live, that not enough live brokers see as down yet, or that the cluster does not have, for one that a
    plan heals already, and while healing is disabled. Raises ClusterError, JournalError.
    """
    journal, now_ms = context.journal, context.journal.now_ms()
    view = _probe(context, now_ms)
    refusal = _refuse_broker(broker, view)
    if refusal:
        raise RequestError(f"Broker {broker} was not reported as failed: {refusal}.")
    read = read_failures(journal.tree, now_ms)
    newly = {broker: now_ms + 1}
    healed = find_healed_brokers(journal, view, read, now_ms=now_ms, settings=context.settings, newly_reported_ms=newly)
    if broker in healed.handled:
        raise RequestError(f"Broker {broker} was not reported as failed: a plan heals it already.")
    since_ms = read.first_seen_ms.get(broker, now_ms)
    entry = FailedBroker(since_ms, reported=True, person=context.actor.person, reason=sanitize_text(reason) or None)
    known = read.failures.get(broker)
    failure = Failure(
        since_ms, entered=True, reported=True, reported_ms=now_ms, healed=None if known is None else known.healed
    )
    path = paths.failed_broker(broker)
    written = put(journal.tree, path, journal.tree.get(path), entry.to_json()) is not None
    # The entry first: `failure_records` says why. Without a time of announcement, the next poll announces the failure.
    if not (written and _replace_failure(journal.tree, FAILURES, broker, read.records.get(broker), failure)):
        raise RequestError(f"Broker {broker} was not reported: {path} was changed concurrently; report it again.")
    sentence = f"Broker {broker} is reported as failed: its heal is due at once, without the grace period."
    _record_request(journal, broker, sentence, reason, context.actor)
    return f"{sentence}{_outage_clause(broker, view, context)}"


def report_log_dirs(context: ClusterContext, broker: int, log_dirs: Collection[str], *, reason: str = "") -> str:
    """Report the failed log directories of a live broker, so that their heal is due at once; return the message.

    Raises RequestError if Kafka does not report one of `log_dirs` as failed, if no replica is left in it, if the broker
    is not live, and while healing is disabled. Raises ClusterError, JournalError.
    """
    journal, now_ms = context.journal, context.journal.now_ms()
    view = _probe(context, now_ms)
    refusal = _refuse_log_dirs(broker, log_dirs, view)
    if refusal:
        raise RequestError(f"{', '.join(log_dirs)} of broker {broker} was not reported as failed: {refusal}.")
    known = read_log_dir_failures(journal.tree).records.get(broker)
    before = Failure(now_ms) if known is None else known.document
    failure = Failure(before.first_seen_ms, reported=True, reported_ms=now_ms, healed=before.healed)
    if not _replace_failure(journal.tree, FAILED_LOG_DIRS, broker, known, failure):
        raise RequestError(f"The report of broker {broker} was changed concurrently; report it again.")
    sentence = (
        f"The log directory {failed_paths_text(view.disks[broker])} of broker {broker} is reported as failed: the heal "
        f"of its {counted(view.lost[broker], 'replica')} is due at once, without the grace period."
    )
    _record_request(journal, broker, sentence, reason, context.actor)
    return f"{sentence}{_outage_clause(broker, view, context)}"


def withdraw_report(journal: Journal, broker: int, *, who: Actor, reason: str = "") -> str:
    """Delete the entry of a failed broker: its heal is called off until it is live again. Return the message.

    The cluster is not needed. Raises RequestError if there is no entry.
    """
    now_ms = journal.now_ms()
    read = read_failures(journal.tree, now_ms)
    path = paths.failed_broker(broker)
    node = journal.tree.get(path)
    if node is None or not remove(journal.tree, node):
        raise RequestError(
            f"There is no entry {path} to withdraw: the broker is not down, its heal was called off, or a plan heals "
            "it, which is cancelled with `airflow kafka-steward cancel`."
        )
    failure = Failure(read.first_seen_ms.get(broker, now_ms), called_off_ms=now_ms)
    # If another process changes the record meanwhile, the next poll finds the entry deleted, and records that.
    _replace_failure(journal.tree, FAILURES, broker, read.records.get(broker), failure)
    sentence = f"The heal of broker {broker} is called off until the broker is live again."
    _record_request(journal, broker, sentence, reason, who)
    return sentence


def withdraw_log_dirs(journal: Journal, broker: int, *, who: Actor, reason: str = "") -> str:
    """Withdraw the report of a broker's log directories: the settings decide about their heal. Return the message.

    The cluster is not needed. Raises RequestError if none is reported.
    """
    node = journal.tree.get(FAILED_LOG_DIRS.path(broker))
    if node is None or broker not in read_log_dir_failures(journal.tree).reported:
        raise RequestError(
            f"No log directory of broker {broker} is reported as failed, so there is nothing to withdraw."
        )
    failure = replace(Failure.from_node(node), reported=False)
    if put(journal.tree, node.path, node, failure.to_json()) is None:
        raise RequestError(f"The report of broker {broker} was changed concurrently; withdraw it again.")
    sentence = (
        f"The report of broker {broker}'s log directories is withdrawn: heal_failed_disks decides about their heal."
    )
    _record_request(journal, broker, sentence, reason, who)
    return sentence


def _replace_failure(
    tree: Tree,
    kind: DocumentCollection[Failure],
    broker: int,
    known: ListedDocument[Failure] | None,
    failure: Failure,
) -> bool:
    """Write the record of a failure; return False if another process changed it since it was read as `known`."""
    return put(tree, kind.path(broker), None if known is None else known.node, failure.to_json()) is not None


def _probe(context: ClusterContext, now_ms: int) -> LivenessView:
    if context.settings.heal_failure_interval < 0:
        raise RequestError(
            "Nothing was reported: healing is disabled (heal_failure_interval is -1); set that to 0 or more first."
        )
    return LivenessProbe(context.cluster).probe(now_ms)


def _refuse_broker(broker: int, view: LivenessView) -> str:
    """Return why a broker is not reported, as a clause; empty if it may be."""
    if broker in view.live:
        return "it is live; to move its replicas to other brokers, drain it (operation drain of the DAG rebalance)"
    if broker not in view.known:
        return "the cluster has no live broker and no replica of that id"
    if broker not in view.failed:
        return "too few live brokers see it as down yet; report it again in some seconds"
    return ""


def _refuse_log_dirs(broker: int, log_dirs: Collection[str], view: LivenessView) -> str:
    """Return why log directories are not reported, as a clause; empty if they may be."""
    if broker not in view.live:
        return "the broker is not live; report the broker, without a log directory"
    failed = view.disks.get(broker, ())
    sound = sorted(set(log_dirs) - set(failed))
    if sound:
        return f"Kafka reports {failed_paths_text(failed) if failed else 'no log directory'} of it as failed"
    return "" if view.lost.get(broker) else "no replica is left in it"


def _outage_clause(broker: int, view: LivenessView, context: ClusterContext) -> str:
    """Return what holds for the brokers that were not reported if so many are down that it is an outage."""
    journal, now_ms, settings = context.journal, context.journal.now_ms(), context.settings
    decision = decide_failures(journal, view, read_failures(journal.tree, now_ms), now_ms=now_ms, settings=settings)
    down = view.failed | view.lost.keys()
    why = outage_text(down, view.known, decision.not_counted, settings, healing=(broker,))
    return why and f" It is healed all the same, although others are down: {why}"


def _record_request(journal: Journal, broker: int, sentence: str, reason: str, who: Actor) -> None:
    why = f"{sentence[:-1]}: {reason}" if reason else sentence
    journal.audit.record(AuditRecord(Action.REQUEST, why, broker=broker, who=who))
