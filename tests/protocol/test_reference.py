"""docs/reference/journal.md: its schemas hold for what is written and for the KIPs' own examples; its tests exist."""

from __future__ import annotations

import ast
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
from kafka_steward.journal.records import DeferredPartitions, PendingReplicas

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/journal.md").read_text()
KIPS = ROOT / "tests/journal/kips"
SCHEMAS = {name: json.loads(text) for name, text in re.findall(r"```json schema=(\w+)\n(.*?)```", PAGE, re.DOTALL)}
SENTENCES = re.findall(r"^\| (?:236|46) \|.*$", PAGE, re.MULTILINE)
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
    ("approvals", Approval("3f2a91c0" * 8, "ann", "looks right", 5).to_json()),
]


@pytest.mark.parametrize(("name", "text"), DOCUMENTS)
def test_what_is_written_and_the_kips_examples_fit_the_schema(name: str, text: str) -> None:
    jsonschema.validate(json.loads(text), SCHEMAS[name])


def test_every_path_has_a_schema_and_every_schema_a_document() -> None:
    paths = set(re.findall(r"^\| \[`/(?:admin|steward)/(\w+)", PAGE, re.MULTILINE)) - {"reassign_partitions"}
    assert paths == set(SCHEMAS) == {name for name, _ in DOCUMENTS}


@pytest.mark.parametrize("row", SENTENCES)
def test_each_sentence_names_tests_that_exist(row: str) -> None:
    _, sentence, named = row.strip("| ").split(" | ")
    quoted = re.findall(r"`([^`]+)`", named)
    assert quoted, sentence
    assert [name for name in quoted if not exists(name)] == []


def exists(name: str) -> bool:
    """Whether there is the test `test_a`, `test_file.py::test_a` or `tests/folder/test_file.py::test_a`, id or not."""
    file, _, test = name.rpartition("::")
    path = ROOT / file if "/" in file else ROOT / "tests/protocol" / (file or "test_on_kafka.py")
    return path.exists() and test.partition("[")[0] in functions(path)


def functions(path: Path) -> set[str]:
    return {each.name for each in ast.parse(path.read_text()).body if isinstance(each, ast.FunctionDef)}


@pytest.mark.parametrize("name", ["test_236_the_queue", "test_queue.py", "test_queue.py::test_", "gone"])
def test_a_name_that_is_no_whole_name_of_a_test_is_none(name: str) -> None:
    assert not exists(name)
