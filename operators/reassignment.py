"""Validation of a manually written reassignment before anything is planned."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk import Context

from kafka_steward.escaping import printable
from kafka_steward.operators.base import StewardOperator, fail_without_retry

__all__ = ["CheckReassignmentOperator"]


class CheckReassignmentOperator(StewardOperator):
    """Validates a reassignment in the format of kafka-reassign-partitions against the cluster; changes nothing.

    `reassignment` is the document, or its text. The task fails without a retry, with a message for each fault: a topic,
    partition or broker that does not exist, a broker that is not live, or that is cordoned and would receive a replica,
    a partition or a broker that is listed twice, a partition that is being reassigned already, one that would have
    fewer replicas than it has, and than min.insync.replicas, a replica that would move to another log directory of its
    broker. A directory that is named for an added replica is logged: the broker chooses it.
    Returns `{"reassignment", "partitions"}`: the document in the planner's format, and the number of partitions.

    >>> CheckReassignmentOperator(
    ...     task_id="check",
    ...     reassignment='{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}',
    ... )
    <Task(CheckReassignmentOperator): check>
    """

    template_fields: Sequence[str] = (*StewardOperator.template_fields, "reassignment")

    def __init__(self, *, reassignment: Mapping[str, Any] | str | Any, **kwargs: Any) -> None:
        super().__init__(**{"multiple_outputs": True, **kwargs})
        self.reassignment = reassignment

    def execute(self, context: Context) -> dict[str, Any]:
        """Parse the reassignment and validate it against the cluster."""
        from kafka_steward.execution.cluster_queries import cordoned_brokers, readable_min_isr, with_hidden_topics
        from kafka_steward.execution.moves.directories import check_directories
        from kafka_steward.execution.plans.requests import parse_assignments, validate_against_cluster

        with fail_without_retry():
            given, named = parse_assignments(self.reassignment)
            with self.open(context) as opened:
                snapshot = with_hidden_topics(opened.cluster, opened.cluster.snapshot(), {name.topic for name in given})
                min_isr, _ = readable_min_isr(opened.cluster, sorted({name.topic for name in given} & snapshot.topics))
                named_brokers = {broker for target in given.values() for broker in target}
                cordoned = cordoned_brokers(opened.cluster, snapshot.live & named_brokers)
                validate_against_cluster(given, snapshot, min_isr, cordoned)
                note = check_directories(opened.cluster, snapshot, named)
        if note:
            self.log.info("%s", printable(note))
        self.log.info("The reassignment names %d partitions, all of which exist, on live brokers.", len(given))
        entries = [
            {"topic": name.topic, "partition": name.partition, "replicas": list(to)} for name, to in given.items()
        ]
        return {"reassignment": json.loads(json.dumps({"version": 1, "partitions": entries})), "partitions": len(given)}
