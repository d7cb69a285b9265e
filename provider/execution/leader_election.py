"""Election of preferred leaders."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.state import Snapshot
from kafka_steward.execution.audited_calls import AuditedCalls
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.journal.audit import Action, Actor, AuditRecord
from kafka_steward.journal.open import Journal

__all__ = ["Elected", "elect_preferred", "not_led_by_preferred"]


@dataclass(frozen=True)
class Elected:
    """The result of an election: the partitions now led by their preferred leader, and Kafka's refusals."""

    elected: tuple[TopicPartition, ...]
    refused: Mapping[TopicPartition, str] = field(default_factory=dict)

    @property
    def sentence(self) -> str:
        """The message for the log."""
        if not self.refused:
            return f"{len(self.elected)} preferred leaders elected."
        name, words = next(iter(self.refused.items()))
        return f"{len(self.elected)} preferred leaders elected, {len(self.refused)} refused; {name}: {words}"


def not_led_by_preferred(
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


def elect_preferred(
    cluster: ClusterPort,
    journal: Journal,
    *,
    who: Actor,
    partitions: Collection[TopicPartition] | None = None,
    plan: str = "",
) -> Elected:
    """Elect the preferred leaders of `partitions` where another replica leads. Harmless when repeated.

    If `partitions` is None, all partitions are meant. Raises ClusterError, JournalError. Elections move no data and
    need no lock.
    """
    snapshot = cluster.snapshot({name.topic for name in partitions} if partitions is not None else None)
    wanted = not_led_by_preferred(snapshot, partitions)
    entries = {name: [_entry(name, snapshot, plan, journal.now_ms(), who)] for name in wanted}
    answers = AuditedCalls(journal.audit, None).execute(entries, cluster.elect_leaders)
    refused = {name: str(error) for name, error in answers.items() if error is not None}
    return Elected(tuple(name for name in wanted if name not in refused), refused)


def _entry(name: TopicPartition, snapshot: Snapshot, plan: str, now_ms: int, who: Actor) -> AuditRecord:
    partition = snapshot.partitions[name]
    return AuditRecord(
        Action.ELECT,
        "its preferred leader is in sync and does not lead",
        plan=plan,
        topic=name.topic,
        partition=name.partition,
        attempt=now_ms // 1000,
        before=partition.leader,
        after=partition.replicas[0],
        who=who,
    )
