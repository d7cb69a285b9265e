"""A manual reassignment: parsed, and validated against the cluster before planning starts. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from kafka_steward.assignment import Assignment, TopicPartition
from kafka_steward.cluster.state import Snapshot
from kafka_steward.errors import PlanError
from kafka_steward.planning.files.reassignment import parse_reassignment

__all__ = ["parse_assignments", "validate_against_cluster"]

#: The number of faults that a message names; the others are only counted.
_TOLD = 5


def parse_assignments(document: Mapping[str, Any] | str) -> dict[TopicPartition, Assignment]:
    """Parse a document, or its text, in the format of kafka-reassign-partitions.

    Returns the replicas by partition. Raises PlanError for invalid JSON and for an invalid document.
    """
    return parse_reassignment(_parsed(document) if isinstance(document, str) else document)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise PlanError(
            f"The reassignment is not JSON: {error}; paste what kafka-reassign-partitions takes."
        ) from error


def validate_against_cluster(given: Mapping[TopicPartition, Assignment], snapshot: Snapshot) -> None:
    """Raise PlanError that names the partitions and brokers that are not in the cluster, and the dead brokers."""
    faults = [fault for name, replicas in sorted(given.items()) for fault in _faults(name, replicas, snapshot)]
    if faults:
        more = f" And {len(faults) - _TOLD} more." if len(faults) > _TOLD else ""
        raise PlanError(f"The reassignment cannot be carried out. {' '.join(faults[:_TOLD])}{more}")


def _faults(name: TopicPartition, replicas: Assignment, snapshot: Snapshot) -> Iterator[str]:
    if name not in snapshot.partitions:
        yield f"{name} does not exist."
    for broker in replicas:
        if broker in snapshot.live:
            continue
        known = broker in snapshot.brokers or broker in snapshot.hosting
        yield f"{name} names broker {broker}, which is {'not live' if known else 'no broker of this cluster'}."
