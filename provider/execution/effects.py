"""Changes to Kafka: audited, a batch at a time; reassignments with KIP-860's guard; elections of preferred leaders.

A batch writes its intent, checks the fence, calls Kafka, and writes the outcome. No reassignment changes a replication
factor by accident (KIP-860).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from kafka_steward.assignment import Assignment, TopicPartition, counted
from kafka_steward.cluster.state import Snapshot
from kafka_steward.cluster.transport import batches
from kafka_steward.errors import ClusterError, KafkaRefused, LockLost
from kafka_steward.execution.cluster_queries import HIDDEN
from kafka_steward.execution.demotions import demoted_brokers
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.execution.tiered import find_begun_late
from kafka_steward.journal.audit import Action, Actor, Audit, AuditRecord, Outcome, event_number
from kafka_steward.journal.locks import Fence
from kafka_steward.journal.store import Journal

Key = TypeVar("Key")


class AuditedCalls:
    """The single path by which the steps of a plan change Kafka.

    The rows of all batches are written as `intended` before the first call, and completed after the last one, so that
    what a call costs does not depend on the journal. A crash, or an error, leaves rows in the state `intended`; the
    next step reads from Kafka what became of them. The fence is checked directly before each call, and again directly
    after it. A process that was suspended in between, for longer than the lifetime of its lock, has sent a request that
    the next process did not know of when it resumed the plan. In that case `late` is called with the keys of the batch,
    to undo the request or to record it, before LockLost is raised. `fence` is None for changes that need none, such as
    elections.
    """

    def __init__(self, audit: Audit, fence: Fence | None) -> None:
        self._audit = audit
        self._fence = fence
        #: The longest time between the two checks of the fence around a call, by the journal's clock.
        self.slowest_call_ms = 0

    def execute(
        self,
        entries: Mapping[Key, Sequence[AuditRecord]],
        call: Callable[[list[Key]], Mapping[Key, ClusterError | None]],
        *,
        late: Callable[[list[Key]], None] | None = None,
    ) -> dict[Key, ClusterError | None]:
        """Execute `call` on the keys of `entries`; return None or the error of each key.

        Raises LockLost before a batch if the lock is no longer held, or after a batch during which it was lost. Errors
        of `call` propagate: the outcome of that batch is then unknown, and the batches after it were not submitted.
        """
        results: dict[Key, ClusterError | None] = {}
        self._audit.record_intent([entry for records in entries.values() for entry in records])
        try:
            # One request each: the fence is read between them.
            for number, keys in enumerate(batches(list(entries))):
                if number == 0 or late is None:
                    self.check_fence()  # with `late`, the check after a batch is the one before the next
                began_ms = self._now_ms()
                try:
                    results.update(self._call(entries, list(keys), call, late))
                    self._check_fence_after(list(keys), late)
                finally:
                    # Also of a call without an answer: it is the slowest of all.
                    self.slowest_call_ms = max(self.slowest_call_ms, self._now_ms() - began_ms)
        finally:
            outcomes = {key: _outcome_of(error) for key, error in results.items()}
            self._audit.record_outcomes([(record, *outcomes[key]) for key in results for record in entries[key]])
        return results

    def check_fence(self) -> None:
        """Check the fence. Raises LockLost if the step lock is no longer held."""
        if self._fence is not None:
            self._fence.check()

    def _call(
        self,
        entries: Mapping[Key, Sequence[AuditRecord]],
        keys: list[Key],
        call: Callable[[list[Key]], Mapping[Key, ClusterError | None]],
        late: Callable[[list[Key]], None] | None,
    ) -> Mapping[Key, ClusterError | None]:
        try:
            return call(keys)
        except ClusterError as error:
            together = [entry for key in keys for entry in entries[key]]
            self._audit.record_outcome(together, Outcome.UNKNOWN, str(error))
            self._check_fence_after(keys, late)
            raise

    def _check_fence_after(self, keys: list[Key], late: Callable[[list[Key]], None] | None) -> None:
        if late is None:
            return
        try:
            self.check_fence()
        except LockLost:
            late(keys)
            raise

    def _now_ms(self) -> int:
        return 0 if self._fence is None else self._fence.now_ms


def _outcome_of(refusal: ClusterError | None) -> tuple[Outcome, str]:
    if refusal is None:
        return Outcome.DONE, ""
    return Outcome.REFUSED if isinstance(refusal, KafkaRefused) else Outcome.FAILED, str(refusal)


def alter_keeping_factor(
    cluster: ClusterPort, targets: Mapping[TopicPartition, Assignment], before: Mapping[TopicPartition, Assignment]
) -> dict[TopicPartition, KafkaRefused | None]:
    """Submit `targets`, computed while the partitions had the replicas `before`; return the result of each partition.

    The result is None, or Kafka's refusal. A target with as many replicas as `before` is submitted with `keep_factor`:
    Kafka rejects it if the replication factor has changed since. A target with another number of replicas is meant to
    change the factor. Raises the errors of `ClusterPort.alter`.
    """
    kept = {name: target for name, target in targets.items() if len(target) == len(before[name])}
    changing = {name: target for name, target in targets.items() if name not in kept}
    answers = cluster.alter(kept, keep_factor=True) if kept else {}
    return answers | (cluster.alter(changing) if changing else {})


@dataclass(frozen=True)
class ElectionResult:
    """The result of an election: the partitions now led by their preferred leader, and Kafka's refusals."""

    elected: tuple[TopicPartition, ...]
    refused: Mapping[TopicPartition, str] = field(default_factory=dict)

    @property
    def sentence(self) -> str:
        """The message for the log."""
        elected = f"{counted(len(self.elected), 'preferred leader')} elected"
        if not self.refused:
            return f"{elected}."
        name, words = next(iter(self.refused.items()))
        return f"{elected}, {len(self.refused)} refused; {name}: {words}"


def find_not_led_by_preferred(
    snapshot: Snapshot, partitions: Collection[TopicPartition] | None = None
) -> list[TopicPartition]:
    """Return the partitions whose preferred leader is in sync and does not lead. Pure.

    Partitions that are being reassigned are left out.
    """
    asked = snapshot.partitions.keys() if partitions is None else set(partitions) & snapshot.partitions.keys()
    return [
        name
        for name in sorted(asked)
        if (partition := snapshot.partitions[name]).leader != partition.replicas[0]
        and partition.replicas[0] in partition.isr & snapshot.live
        and not partition.reassigning
    ]


def elect_preferred_leaders(
    cluster: ClusterPort,
    journal: Journal,
    *,
    who: Actor,
    partitions: Collection[TopicPartition] | None = None,
    plan: str = "",
) -> ElectionResult:
    """Elect the preferred leaders of `partitions` where another replica leads, but no demoted brokers.

    Harmless when repeated. If `partitions` is None, all partitions are meant. Raises ClusterError, JournalError.
    Elections move no data and need no lock.
    """
    snapshot = cluster.snapshot({name.topic for name in partitions} if partitions is not None else None)
    demoted = demoted_brokers(journal)
    wanted = [
        name
        for name in find_not_led_by_preferred(snapshot, partitions)
        if snapshot.partitions[name].replicas[0] not in demoted
    ]
    late = find_begun_late(cluster, snapshot, wanted)
    wanted = [name for name in wanted if name not in late]
    entries = {name: [_build_election_record(name, snapshot, plan, who)] for name in wanted}
    answers = AuditedCalls(journal.audit, None).execute(entries, cluster.elect_leaders)
    refused = {name: str(error) for name, error in answers.items() if error is not None}
    refused |= late
    refused |= {name: HIDDEN for name in sorted(partitions or ()) if name.topic in snapshot.hidden}
    return ElectionResult(tuple(name for name in wanted if name not in refused), refused)


def _build_election_record(name: TopicPartition, snapshot: Snapshot, plan: str, who: Actor) -> AuditRecord:
    partition = snapshot.partitions[name]
    return AuditRecord(
        Action.ELECT,
        "its preferred leader is in sync and is not the leader",
        plan=plan,
        topic=name.topic,
        partition=name.partition,
        attempt=event_number(),
        before=partition.leader,
        after=partition.replicas[0],
        who=who,
    )


#: A broker leads too few partitions when it leads less than this part of its share.
_PART = 0.5


def describe_leader_shortfall(snapshot: Snapshot, received: Collection[int]) -> str:
    """Return a message that names the brokers of `received` that lead less than half of their share; else empty.

    A broker's share is one leader for each replication factor's worth of the replicas that it hosts.
    """
    leaders = Counter(partition.leader for partition in snapshot.partitions.values())
    share: dict[int, float] = defaultdict(float)
    for partition in snapshot.partitions.values():
        for broker in partition.replicas:
            share[broker] += 1 / len(partition.replicas)
    short = [
        f"broker {broker} leads {leaders[broker]} of its share of {share[broker]:.0f}"
        for broker in sorted(set(received) & snapshot.live)
        if leaders[broker] < _PART * share[broker] and share[broker] >= 1
    ]
    if not short:
        return ""
    return (
        f"Leaders are uneven: {', '.join(short)}, because a heal moves no leader that is alive; "
        "the operation rebalance makes them even."
    )
