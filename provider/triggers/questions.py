"""The checks that sensors wait for, with the same code in the worker and in the triggerer.

A check is a function `(opened, arguments) -> Answer`; arguments are JSON values, because a trigger serializes them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafka_steward.assignment import TopicPartition
from kafka_steward.errors import (
    AuthenticationFailed,
    ClusterError,
    JournalError,
    PlanError,
    RequestError,
    StewardError,
    WrongCluster,
    WrongJournal,
)

if TYPE_CHECKING:
    from kafka_steward.cluster.state import Snapshot
    from kafka_steward.execution.decisions.wholeness import Unwhole
    from kafka_steward.hooks.steward import Opened
    from kafka_steward.journal.plans import MoveRow

__all__ = ["QUESTIONS", "Answer", "ask", "passes"]

#: The most partitions that a message names; the rest is only counted.
_NAMED = 3


@dataclass(frozen=True)
class Answer:
    """The result of a check: whether it is met, a message about the state or what is missing, a small JSON value."""

    done: bool
    sentence: str
    value: Any = None


def ask(question: str, opened: Opened, arguments: Mapping[str, Any]) -> Answer:
    """Return the result of the named check. Raises RequestError for an unknown name, and the check's own errors."""
    if question not in QUESTIONS:
        raise RequestError(f"There is no question {question!r}; there are {', '.join(QUESTIONS)}.")
    return QUESTIONS[question](opened, arguments)


def passes(error: StewardError) -> bool:
    """Return whether waiting may resolve the error: true for an unreachable cluster, false for a wrong password.

    Errors of the cluster and the journal may pass, except AuthenticationFailed, WrongCluster and WrongJournal.
    """
    for_good = AuthenticationFailed | WrongCluster | WrongJournal
    return isinstance(error, ClusterError | JournalError) and not isinstance(error, for_good)


def brokers_failed(opened: Opened, arguments: Mapping[str, Any]) -> Answer:
    """Check for a broker whose grace period has expired and that no plan heals; `brokers` restricts it to some ids."""
    from kafka_steward.execution.watching.detector import Detector
    from kafka_steward.journal.audit import Who

    who = Who(**(arguments.get("who") or {}))
    verdict = Detector(opened.cluster, opened.journal, opened.settings, who).look(announce=False)
    wanted = arguments.get("brokers")
    failed = [broker for broker in verdict.failed if wanted is None or broker in wanted]
    return Answer(bool(failed), verdict.sentence, failed)


def caught_up(opened: Opened, arguments: Mapping[str, Any]) -> Answer:
    """Check that all replicas are in the ISR: of the cluster, of `partitions` ([topic, partition]), or of a `plan`.

    `plan` is a digest. A plan's replicas on brokers that have failed since are not waited for: the heal of that failure
    replaces them. Raises PlanError for an unknown plan, and RequestError for a partition that does not exist.
    """
    from kafka_steward.execution.decisions.wholeness import unwhole

    snapshot = opened.cluster.snapshot()
    if digest := arguments.get("plan"):
        waits = _plan_waits(opened, digest)
        if isinstance(waits, Answer):
            return waits
        return _answer(_catching_up(unwhole(snapshot, _existing(snapshot, waits)), snapshot), len(waits))
    given = arguments.get("partitions")
    partitions = None if given is None else [TopicPartition(str(topic), int(number)) for topic, number in given]
    missing = [] if partitions is None else [name for name in partitions if name not in snapshot.partitions]
    if missing:
        raise RequestError(f"The partition {missing[0]} does not exist on cluster {snapshot.cluster_id}.")
    return _answer(unwhole(snapshot, partitions), len(snapshot.partitions if partitions is None else partitions))


def ready(opened: Opened, arguments: Mapping[str, Any]) -> Answer:  # noqa: ARG001 - all checks take arguments
    """Check that deferrable work may begin: full replication, nothing in flight, reassignments enabled."""
    from kafka_steward.execution.gate import look_at_gate

    gate = look_at_gate(opened.cluster, opened.journal)
    return Answer(gate.open, gate.sentence, list(gate.reasons))


def broker_joined(opened: Opened, arguments: Mapping[str, Any]) -> Answer:
    """Check for a joined broker that can take pending replicas or is empty (KIP-409).

    With `brokers`, check that all of these are live.
    """
    from kafka_steward.execution.filling.joining import look_for_joined
    from kafka_steward.journal.audit import Who

    who = Who(**(arguments.get("who") or {}))
    joined = look_for_joined(opened.cluster, opened.journal, opened.settings, who, announce=False)
    wanted = arguments.get("brokers")
    if joined is None:
        return Answer(False, "No replica is owed.")
    if wanted is None:
        found = sorted({*joined.able, *joined.empty})
        empty = f" Broker {', '.join(map(str, joined.empty))} holds nothing yet." if joined.empty else ""
        return Answer(bool(found), f"{joined.sentence}{empty}", found)
    missing = [broker for broker in wanted if broker not in joined.live]
    told = f"Broker {', '.join(map(str, missing))} is not live." if missing else "All brokers asked for are live."
    return Answer(not missing, told, wanted)


def healthy(opened: Opened, arguments: Mapping[str, Any]) -> Answer:
    """Check that no measure of the cluster exceeds its limit (KIP-352). `limits` are given by measure."""
    from kafka_steward.execution.watching.examining import (
        ailments,
        checked_limits,
        examine,
        health_sentence,
    )

    limits = checked_limits(arguments.get("limits"))
    health, _ = examine(opened.cluster, opened.journal)
    return Answer(not ailments(health, limits), health_sentence(health), health.measures)


def _plan_waits(opened: Opened, digest: str) -> list[TopicPartition] | Answer:
    record = opened.journal.plans.get(digest)
    if record is None:
        raise PlanError(f"The plan {digest[:12]} is not in the journal of cluster {opened.cluster.cluster_id}.")
    if not record.status.finished:
        return Answer(False, f"The plan {digest[:12]} has not ended: it is {record.status.value}.")
    return [row.move.topic_partition for row in opened.journal.plans.rows(digest) if _is_waited_for(row)]


def _is_waited_for(row: MoveRow) -> bool:
    return row.state.value in ("completed", "satisfied", "dropped")


def _existing(snapshot: Snapshot, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
    return [name for name in partitions if name in snapshot.partitions]


def _catching_up(behind: Sequence[Unwhole], snapshot: Snapshot) -> list[Unwhole]:
    return [one for one in behind if one.reassigning or snapshot.live & set(one.missing)]


def _answer(behind: Sequence[Unwhole], of: int) -> Answer:
    if not behind:
        return Answer(True, f"All replicas of {of} partitions are in sync.", {"partitions": of, "missing": 0})
    replicas = sum(len(one.missing) for one in behind)
    named = " ".join(one.sentence for one in behind[:_NAMED])
    more = f" And {len(behind) - _NAMED} more." if len(behind) > _NAMED else ""
    sentence = f"{replicas} replicas of {len(behind)} of {of} partitions are not in sync. {named}{more}"
    return Answer(False, sentence, {"partitions": of, "missing": len(behind)})


QUESTIONS: Mapping[str, Callable[[Opened, Mapping[str, Any]], Answer]] = {
    "broker_joined": broker_joined,
    "brokers_failed": brokers_failed,
    "caught_up": caught_up,
    "healthy": healthy,
    "ready": ready,
}
