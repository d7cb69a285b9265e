"""What a watch does in a tick for failed brokers and for plans, without its loop."""

from __future__ import annotations

from typing import Any

from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.watch.failure_detector import DetectionResult, FailureDetector
from kafka_steward.execution.watch.upkeep import run_chores
from kafka_steward.journal.store import Journal
from kafka_steward.settings import Settings
from tests.simulated_plan import WHO


def tick_of(cluster: Any, journal: Journal, settings: Settings) -> tuple[DetectionResult, list[str]]:
    """Detect failures, then do the chores; returns the messages about plans that became idle, too."""
    found = FailureDetector(cluster, journal, settings, WHO).poll()
    return found, run_chores(ClusterContext(cluster, journal, settings, WHO))
