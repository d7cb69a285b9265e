"""The subject and the page of a request for approval."""

from __future__ import annotations

import pytest

from kafka_steward.assignment import Move, MoveReason
from kafka_steward.execution.approval_request import make_approval_request
from kafka_steward.execution.plan_report import plan_summary
from tests.builders import cluster, plan_with, snapshot_of

DIGEST = "3f2a91c0" * 8
SNAPSHOT = cluster("1a 2b 3b 4", "a_b: 123 123")
MOVES = [Move("a_b", n, (1, 2, 3), (1, 2, 4), 0, n, MoveReason.BALANCE, size_bytes=1_500) for n in range(20)]


@pytest.mark.parametrize(
    ("operation", "states", "what"),
    [
        ("drain", {3: "draining"}, "drain broker 3"),
        ("drain", {4: "draining", 3: "draining"}, "drain brokers 3, 4"),
        ("heal", {2: "failed", 3: "draining"}, "heal broker 2"),
        ("expand", {4: "new"}, "expand broker 4"),
        ("rebalance", {4: "new"}, "rebalance"),
    ],
)
def test_the_subject_names_the_cluster_the_brokers_and_the_cost(
    operation: str, states: dict[int, str], what: str
) -> None:
    rows = [{**row, "state": states.get(row["broker"], "live")} for row in SNAPSHOT.brokers.to_pylist()]
    snapshot = snapshot_of(rows, SNAPSHOT.partitions.to_pylist())
    proof = {"operation": operation, "replicas_moved": 20, "bytes_moved": 30_000}
    request = make_approval_request(
        plan_with(DIGEST, proof, MOVES), snapshot, connection="production", requested_by="ann"
    )
    assert request.subject == f"production: {what}: move 20 replicas, 30.0 kB?"


def test_a_single_replica_and_a_proof_without_bytes() -> None:
    plan = plan_with(DIGEST, {"operation": "apply", "replicas_moved": 1, "bytes_moved": None}, MOVES[:1])
    assert make_approval_request(plan, SNAPSHOT, connection="c", requested_by="ann").subject == (
        "c: apply: move 1 replica, 0 B?"
    )


def test_the_page_says_who_asked_and_lists_few_moves_above_the_buttons() -> None:
    plan = plan_with(DIGEST, {"operation": "apply", "replicas_moved": 20, "bytes_moved": 0}, MOVES)
    request = make_approval_request(plan, SNAPSHOT, connection="p_1", requested_by="*ann*")
    head, _, page = request.body.partition("\n\n")
    assert head == "Cluster: connection **p\\_1**. Requested by \\*ann\\*."
    assert page == plan_summary(plan, SNAPSHOT, moves_shown=8)
    assert page.count("| 1, 2, 3 | 1, 2, 4 |") == 8
    assert page.endswith("… and 12 more.")
