"""What `kafka-reassign-partitions` of Kafka 3.9 and of 4.3 prints, as recorded from both; the folders are shortened."""

from __future__ import annotations

import json
from typing import Any

DISKS = ("/broker-1/disk-1", "/broker-2/disk-2")


def assignment(replicas: list[int], log_dirs: tuple[str, ...]) -> dict[str, Any]:
    entry = {"topic": "t", "partition": 0, "replicas": replicas, "log_dirs": list(log_dirs)}
    return {"version": 1, "partitions": [entry]}


#: Kafka 4.2 and later print the directories, those before "any".
CURRENT = {"3.9": assignment([1, 2], ("any", "any")), "4.3": assignment([1, 2], DISKS)}
PROPOSED = assignment([2, 3], ("any", "any"))


def generate_output(version: str) -> str:
    return (
        f"Current partition replica assignment\n{one_line(CURRENT[version])}\n\n"
        f"Proposed partition reassignment configuration\n{one_line(PROPOSED)}\n"
    )


def execute_output(version: str) -> str:
    return (
        f"Current partition replica assignment\n\n{one_line(CURRENT[version])}\n\n"
        "Save this to use as the --reassignment-json-file option during rollback\n"
        "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is "
        "removed.\nThe inter-broker throttle limit was set to 1000000 B/s\n"
        "Successfully started partition reassignments for t-0\n"
    )


def one_line(document: dict[str, Any]) -> str:
    return json.dumps(document, separators=(",", ":"))
