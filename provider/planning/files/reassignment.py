"""Files of `kafka-reassign-partitions`: read as request or current assignment, written as plan and rollback."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from kafka_steward.assignment import Assignment, Move, TopicPartition
from kafka_steward.errors import PlanError
from kafka_steward.planning.files.formats import SNAPSHOT_BROKERS, SNAPSHOT_PARTITIONS


def read_json(path: str, what: str) -> Any:
    """Return the JSON of a file. Raises PlanError that names the file; `what` describes its expected content."""
    try:
        return json.loads(Path(path).read_text())
    except OSError as error:
        raise PlanError(f"The {what} file {path} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise PlanError(f"The {what} file {path} does not contain JSON: {error}.") from error


def parse_reassignment(document: Any) -> dict[TopicPartition, Assignment]:
    """Return the partitions of a reassignment document. Raises PlanError that names the invalid entry."""
    entries = document.get("partitions") if isinstance(document, Mapping) else None
    if not isinstance(entries, list) or not entries:
        raise PlanError('The reassignment lists no partition; it should be {"version": 1, "partitions": [...]}.')
    if document.get("version", 1) != 1:
        raise PlanError(f"The reassignment has version {document['version']!r}; only version 1 is known.")
    found: dict[TopicPartition, Assignment] = {}
    for entry in entries:
        name, replicas = _parse_entry(entry)
        if name in found:
            raise PlanError(f"The reassignment lists {name} twice.")
        found[name] = replicas
    return found


def _parse_entry(entry: Any) -> tuple[TopicPartition, Assignment]:
    fields = entry if isinstance(entry, Mapping) else {}
    topic, number, replicas = (fields.get(name) for name in ("topic", "partition", "replicas"))
    if not isinstance(topic, str) or type(number) is not int or not isinstance(replicas, list):
        raise PlanError(f"The reassignment has an entry without topic, partition and replicas: {json.dumps(entry)}.")
    name = TopicPartition(topic, number)
    if not replicas or any(type(broker) is not int for broker in replicas):
        raise PlanError(f"The reassignment of {name} names no broker, or something else than broker ids.")
    twice = next((broker for broker in replicas if replicas.count(broker) > 1), None)
    if twice is not None:
        raise PlanError(f"The reassignment of {name} names broker {twice} twice.")
    _refuse_log_dirs(name, fields.get("log_dirs"), len(replicas))
    return name, tuple(replicas)


def _refuse_log_dirs(name: TopicPartition, given: Any, replicas: int) -> None:
    """Raise PlanError unless the brokers may choose the log directories, which is all that a move can ask for."""
    if given is None:
        return
    if not isinstance(given, list) or len(given) != replicas:
        raise PlanError(
            f"The reassignment of {name} has log_dirs that are not one for each of its {replicas} replicas."
        )
    chosen = next((one for one in given if one != "any"), None)
    if chosen is not None:
        raise PlanError(
            f"The reassignment of {name} names the log directory {json.dumps(chosen)} (KIP-113), and Kafka Steward "
            'leaves that choice to the broker; write "any", or use kafka-reassign-partitions for it.'
        )


def snapshot_tables(current: Any, brokers: Any) -> tuple[pa.Table, pa.Table]:
    """Return brokers and partitions of a snapshot, from an assignment and a list of brokers in user-written JSON.

    A broker is `{"id": 1, "rack": "a", "state": "live", "capacity": 1.0}`; all fields but the id are optional. A
    partition may have `target_rf`, `isr`, `leader`, `bytes` and `min_isr`; missing fields get defaults. Raises
    PlanError when either document is invalid.
    """
    listed = brokers.get("brokers") if isinstance(brokers, Mapping) else brokers
    if not isinstance(listed, list) or not all(
        isinstance(one, Mapping) and type(one.get("id")) is int for one in listed
    ):
        raise PlanError('The brokers should be a list such as [{"id": 1, "rack": "a"}, {"id": 2, "rack": "b"}].')
    rows = [{**one, "broker": one["id"], "state": one.get("state", "live")} for one in listed]
    failed = {row["broker"] for row in rows if row["state"] == "failed"}
    parts = [_partition_row(name, replicas, failed) for name, replicas in parse_reassignment(current).items()]
    for part, entry in zip(parts, current["partitions"], strict=True):
        part.update({key: entry[key] for key in ("target_rf", "isr", "leader", "bytes", "min_isr") if key in entry})
    try:
        return pa.Table.from_pylist(rows, SNAPSHOT_BROKERS), pa.Table.from_pylist(parts, SNAPSHOT_PARTITIONS)
    except pa.ArrowException as error:
        raise PlanError(f"The brokers or partitions hold a value of the wrong kind: {error}.") from error


def _partition_row(name: TopicPartition, replicas: Assignment, failed: Iterable[int]) -> dict[str, Any]:
    alive = [broker for broker in replicas if broker not in failed]
    return {
        "topic": name.topic,
        "partition": name.partition,
        "replicas": list(replicas),
        "isr": alive,
        "leader": alive[0] if alive else -1,
        "target_rf": len(replicas),
    }


def reassignment_json(moves: Iterable[Move], *, rollback: bool = False) -> str:
    """Return a plan's targets, or for a rollback its starts, as `kafka-reassign-partitions` takes them."""
    entries = [
        {"topic": move.topic, "partition": move.partition, "replicas": list(move.before if rollback else move.after)}
        for move in moves
    ]
    return json.dumps({"version": 1, "partitions": entries}) + "\n"
