"""The context of execution: a cluster, its journal, its settings, and the actor of the changes."""

from __future__ import annotations

from dataclasses import dataclass

from kafka_steward.execution.ports import ClusterPort
from kafka_steward.journal.audit import Actor
from kafka_steward.journal.store import Journal
from kafka_steward.settings import Settings


@dataclass(frozen=True)
class ClusterContext:
    """One cluster with its journal and settings, and the actor whom the audit trail names for each change."""

    cluster: ClusterPort
    journal: Journal
    settings: Settings
    actor: Actor
