"""docs/reference/journal.md: its schemas hold for what is written and for the KIPs' own examples."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest

from kafka_steward.journal.kip_documents import (
    AnnouncedRestartDocument,
    CancelRequest,
    Chunk,
    ChunkPartition,
    FailedBroker,
    InFlight,
    ReassignmentsDisabled,
    Request,
)
from kafka_steward.journal.plans import Approval
from kafka_steward.journal.records import DeferredPartitions, PendingReplicas, WatchLease

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/journal.md").read_text()
KIPS = ROOT / "tests/journal/kips"
SCHEMAS = {name: json.loads(text) for name, text in re.findall(r'```json title="(\w+)"\n(.*?)```', PAGE, re.DOTALL)}
MOVED = (ChunkPartition("t", 0, (1, 2), (2, 3), "id"),)
DOCUMENTS = [
    ("failed_brokers", FailedBroker(5).to_json()),
    ("rolling_bounce", AnnouncedRestartDocument(5, 7).to_json()),
    ("reassign_cancel", ReassignmentsDisabled("ada", "racks").to_json()),
    ("cancel_reassignment_in_progress", CancelRequest("d", "plan", "ada", "why").to_json()),
    ("reassignment_requests", Request(MOVED, legacy=True).to_json()),
    ("reassignment_requests", (KIPS / "236_request.json").read_text()),
    ("reassignment_requests", (KIPS / "236_submitted.json").read_text()),
    ("reassign_partitions_queue", (KIPS / "236_queue.json").read_text()),
    ("reassign_chunks", Chunk(MOVED, True, "d", 0).to_json()),
    ("reassignments", InFlight((1, 2), (2, 3), True, 2, "d").to_json()),
    ("pending_replicas", PendingReplicas.from_brokers((2, 1), 3, "id").to_json()),
    ("deferred_partitions", DeferredPartitions(12, "id", "ada").to_json()),
    ("watch_leases", WatchLease("airflow-1:4711:0a1b", 17_000, polled=True).to_json()),
    ("approvals", Approval("3f2a91c0" * 8, "ann", "looks right", 5).to_json()),
]


@pytest.mark.parametrize(("name", "text"), DOCUMENTS)
def test_what_is_written_and_the_kips_examples_fit_the_schema(name: str, text: str) -> None:
    jsonschema.validate(json.loads(text), SCHEMAS[name])


def test_every_path_has_a_schema_and_every_schema_a_document() -> None:
    paths = set(re.findall(r"^\| \[`/(?:admin|steward)/(\w+)", PAGE, re.MULTILINE)) - {"reassign_partitions"}
    assert paths == set(SCHEMAS) == {name for name, _ in DOCUMENTS}
