"""Readiness check: a workflow asks whether work that can wait may begin on this cluster, before it plans anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kafka_steward.cluster.state import Snapshot
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.execution.reassignment_disable import disabled_reason
from kafka_steward.journal.open import Journal

__all__ = ["Readiness", "readiness", "check_readiness"]


@dataclass(frozen=True, slots=True)
class Readiness:
    """The readiness of a cluster. It is open without `reasons`, which are clauses, the most severe first."""

    reasons: Sequence[str]

    @property
    def open(self) -> bool:
        """Return True if work may begin."""
        return not self.reasons

    @property
    def sentence(self) -> str:
        """The message for a person."""
        if self.open:
            return "The cluster is whole, and nothing is in flight."
        return f"The cluster is not ready: {'; '.join(self.reasons)}."


def readiness(snapshot: Snapshot, *, disabled: str, owner: str | None) -> Readiness:
    """Return the readiness of a cluster. Pure.

    `disabled` states by whom reassignments are disabled, and is empty while they are not (KIP-236). `owner` is the
    digest of the plan that holds the plan slot. A broker that hosts replicas and is not live closes the gate, whether
    or not it counts as failed by KIP-46 yet.
    """
    found = (_dead(snapshot), _behind(snapshot), _moving(snapshot, owner), _off(disabled))
    return Readiness(tuple(reason for reason in found if reason))


def check_readiness(cluster: ClusterPort, journal: Journal) -> Readiness:
    """Return the current readiness of the cluster. May raise ClusterError, JournalError."""
    owner = journal.slot.owner()
    record = None if owner is None else journal.plans.get(owner)
    busy = owner if record is not None and not record.status.finished else None
    return readiness(cluster.snapshot(), disabled=disabled_reason(journal.tree), owner=busy)


def _dead(snapshot: Snapshot) -> str:
    dead = sorted(broker for broker in snapshot.hosting - snapshot.live if broker >= 0)
    return f"broker {', '.join(map(str, dead))} is not live" if dead else ""


def _behind(snapshot: Snapshot) -> str:
    behind = sorted(name for name, partition in snapshot.partitions.items() if partition.under_replicated)
    more = f" and {len(behind) - 1} more" if len(behind) > 1 else ""
    return f"{behind[0]}{more} under-replicated" if behind else ""


def _moving(snapshot: Snapshot, owner: str | None) -> str:
    if owner is not None:
        return f"plan {owner[:12]} has the cluster"
    moving = len(snapshot.reassigning)
    return f"{moving} partitions are being reassigned" if moving else ""


def _off(disabled: str) -> str:
    return f"reassignments are switched off {disabled}" if disabled else ""
