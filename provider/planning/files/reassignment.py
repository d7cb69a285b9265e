"""Read the files of `kafka-reassign-partitions` as a request or a current assignment, and write plans as such files."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafka_steward.assignment import Assignment, Move, TopicPartition
from kafka_steward.errors import PlanError
from kafka_steward.escaping import printable
from kafka_steward.given_targets import refuse

if TYPE_CHECKING:
    import pyarrow as pa

#: A replica: its partition, and its broker.
Replica = tuple[TopicPartition, int]

#: The log directory of a replica whose broker may choose one (KIP-113).
ANY = "any"

#: What `kafka-reassign-partitions` prints above an assignment, which is one line of JSON.
_CURRENT, _PROPOSED = "Current partition replica assignment", "Proposed partition reassignment configuration"


def read_json(path: str, what: str, find: Callable[[str], str] = str) -> Any:
    """Return the JSON that `find` returns of a file's text. Raises PlanError that names the file and its `what`."""
    try:
        return json.loads(find(Path(path).read_text(encoding="utf-8")))
    except PlanError:
        # Of several assignments: it is a ValueError, too.
        raise
    except OSError as error:
        raise PlanError(f"The {what} file {path} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise PlanError(f"The {what} file {path} does not contain JSON: {error}.") from error


def read_assignment(path: str, what: str, *, current: bool = False) -> Any:
    """Return the assignment in a file, as `read_json` does; `find_assignment` says where."""
    return read_json(path, what, partial(find_assignment, where=f"The {what} file {path}", current=current))


def find_assignment(text: str, where: str, *, current: bool = False) -> str:
    """Return the assignment in an output of `kafka-reassign-partitions`; return a text without its headings whole.

    The output of --execute has one assignment, the current one, and that of --generate also a proposed one. With
    `current` only the current one counts. Raises PlanError, which begins with `where`, if there are several.
    """
    headings = {_CURRENT} if current else {_CURRENT, _PROPOSED}
    lines = text.split("\n")
    # The place of an assignment is the first line with a text below its heading, else the heading itself.
    places = [
        next((below for below in range(number + 1, len(lines)) if lines[below].strip()), number)
        for number, line in enumerate(lines)
        if line.strip() in headings
    ]
    if not places:
        return text
    if len(places) > 1:
        numbers = f"{', '.join(str(number + 1) for number in places[:-1])} and {places[-1] + 1}"
        count = "two" if len(places) == 2 else len(places)
        raise PlanError(f"{where} has {count} assignments, in the lines {numbers}; keep one of these lines.")
    # The lines above stay as blanks, so that a fault in the JSON is reported with its place in the text.
    return "\n".join([*(" " * len(line) for line in lines[: places[0]]), lines[places[0]]])


def read_reassignment(document: Any) -> tuple[dict[TopicPartition, Assignment], list[str]]:
    """Return the partitions of a reassignment document, and a sentence for each entry that has a fault instead.

    `parse_directories` returns the log directories that it names; here, these are only checked for their form. Raises
    PlanError for what is no such document.
    """
    return _parse_partitions(document, "The reassignment", _ENTRY)


def parse_reassignment(document: Any) -> dict[TopicPartition, Assignment]:
    """Return the partitions of a reassignment document. Raises PlanError that names the invalid entries."""
    targets, faults = read_reassignment(document)
    refuse(faults)
    return targets


def parse_directories(document: Any) -> dict[Replica, str]:
    """Return the log directories that a reassignment document names, other than "any" (KIP-113).

    Raises PlanError that names the invalid entries.
    """
    entries = zip(parse_reassignment(document).items(), document["partitions"], strict=True)
    named = (directories_by_replica(name, replicas, entry.get("log_dirs")) for (name, replicas), entry in entries)
    return {replica: path for directories in named for replica, path in directories.items()}


def directories_by_replica(
    name: TopicPartition, replicas: Assignment, log_dirs: Sequence[str] | None
) -> dict[Replica, str]:
    """Return the directories that `log_dirs` names, one for each replica, without those that the broker may choose."""
    return {(name, broker): path for broker, path in zip(replicas, log_dirs or (), strict=False) if path != ANY}


def no_partition_message(document: Any, what: str = "The reassignment") -> str:
    """Return the sentence about a document without partitions, which says what kind of file it may be."""
    wanted = 'it should be {"version": 1, "partitions": [...]}'
    if isinstance(document, Mapping) and isinstance(document.get("topics"), list):
        return (
            f"{what} is a file of topics, which kafka-reassign-partitions --topics-to-move-json-file takes; {wanted}, "
            "which --generate prints for these topics."
        )
    if isinstance(document, list):
        return f"{what} is a list; {wanted}."
    return f"{what} lists no partition; {wanted}."


def _parse_partitions(
    document: Any, what: str, known: Mapping[str, _Kind]
) -> tuple[dict[TopicPartition, Assignment], list[str]]:
    entries = document.get("partitions") if isinstance(document, Mapping) else None
    if not isinstance(entries, list) or not entries:
        raise PlanError(no_partition_message(document, what))
    version = document.get("version", 1)
    if type(version) is not int:
        raise PlanError(f"{what} has version {json.dumps(version)}; version should be a number, 1.")
    if version != 1:
        raise PlanError(f"{what} has version {version!r}; only version 1 is known.")
    _refuse_unknown(document, ("version", "partitions"), what)
    targets: dict[TopicPartition, Assignment] = {}
    faults = []
    for entry in entries:
        try:
            name, replicas = _parse_entry(entry, what, known)
        except PlanError as fault:
            faults.append(str(fault))
            continue
        if name in targets:
            faults.append(f"{what} lists {name} twice.")
        targets[name] = replicas
    return targets, faults


@dataclass(frozen=True)
class _Kind:
    """The kind of value that a field takes: a test of the value, and words for it. A `needed` field must be there."""

    fits: Callable[[Any], bool]
    words: str
    needed: bool = False


def _is_count(value: Any, *, least: int = 0, most: int = 2**31 - 1) -> bool:
    return type(value) is int and least <= value <= most


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _is_text(value: Any) -> bool:
    # JSON can write half of a character, which no file can hold.
    return isinstance(value, str) and not any("\ud800" <= character <= "\udfff" for character in value)


def _is_list_of_ids(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_count, value))


def _is_list_of_sizes(value: Any) -> bool:
    return isinstance(value, list) and all(_is_count(size, most=2**63 - 1) for size in value)


_IDS = "a list of broker ids, which are numbers"
_COUNT, _SIZE = "a whole number from 0 to 2147483647", "a whole number from 0"
_ENTRY: Mapping[str, _Kind] = {
    "topic": _Kind(_is_text, "text", needed=True),
    "partition": _Kind(_is_count, _COUNT, needed=True),
    "replicas": _Kind(_is_list_of_ids, _IDS, needed=True),
    # `_refuse_log_dirs` checks them, with a sentence of its own.
    "log_dirs": _Kind(lambda _: True, ""),
}
_CURRENT_ENTRY: Mapping[str, _Kind] = {
    **_ENTRY,
    "target_rf": _Kind(_is_count, _COUNT),
    "isr": _Kind(_is_list_of_ids, _IDS),
    "leader": _Kind(partial(_is_count, least=-1), "the id of a broker, or -1"),
    "bytes": _Kind(partial(_is_count, most=2**63 - 1), _SIZE),
    "bytes_per_s": _Kind(_is_number, "a number"),
    "min_isr": _Kind(_is_count, _COUNT),
}
_BROKER: Mapping[str, _Kind] = {
    "id": _Kind(_is_count, _COUNT, needed=True),
    "rack": _Kind(_is_text, 'text, such as "1"'),
    "state": _Kind(_is_text, "text"),
    "capacity": _Kind(_is_number, "a number"),
    "room": _Kind(_is_list_of_sizes, "a list of bytes, one for each log directory"),
    "cordoned": _Kind(lambda value: isinstance(value, bool), "true or false"),
    "disk_failed": _Kind(lambda value: isinstance(value, bool), "true or false"),
}


def _refuse_unknown(fields: Mapping[str, Any], known: Collection[str], where: str) -> None:
    # An unknown key may be a misspelled key, whose value would be silently ignored.
    for key in fields:
        if key not in known:
            raise PlanError(f"{where} has the key {json.dumps(key)}, which is not known; known are {', '.join(known)}.")


def _check_fields(fields: Mapping[str, Any], known: Mapping[str, _Kind], where: str) -> None:
    """Raise PlanError for the first field that is not known, or that is of the wrong kind."""
    _refuse_unknown(fields, known, where)
    for name, kind in known.items():
        value = fields.get(name)
        if (value is not None or kind.needed) and not kind.fits(value):
            raise PlanError(f"{where} has the {name} {json.dumps(value)}; {name} should be {kind.words}.")


def _parse_entry(entry: Any, what: str, known: Mapping[str, _Kind]) -> tuple[TopicPartition, Assignment]:
    fields = entry if isinstance(entry, Mapping) else {}
    if any(kind.needed and name not in fields for name, kind in known.items()):
        raise PlanError(f"{what} has an entry without topic, partition and replicas: {json.dumps(entry)}.")
    named = printable(f"{what} of {fields['topic']}-{fields['partition']}")
    _check_fields(fields, known, named)
    name, replicas = TopicPartition(fields["topic"], fields["partition"]), fields["replicas"]
    if not replicas:
        raise PlanError(f"{named} names no broker.")
    twice = next((broker for broker in replicas if replicas.count(broker) > 1), None)
    if twice is not None:
        raise PlanError(f"{named} names broker {twice} twice.")
    if known is _ENTRY:
        _refuse_log_dirs(fields.get("log_dirs"), len(replicas), named)
    return name, tuple(replicas)


def _refuse_log_dirs(given: Any, count: int, where: str) -> None:
    paths = isinstance(given, list) and len(given) == count and all(isinstance(path, str) for path in given)
    if given is not None and not paths:
        raise PlanError(
            f"{where} has log_dirs that are not one for each of its {count} replicas; "
            'name a directory or "any" for each, or leave log_dirs out.'
        )


def snapshot_tables(current: Any, brokers: Any) -> tuple[pa.Table, pa.Table]:
    """Return brokers and partitions of a snapshot, from an assignment and a list of brokers in user-written JSON.

    A broker is `{"id": 1, "rack": "a", "state": "live", "capacity": 1.0}`; all fields but the id are optional. A
    partition may have `target_rf`, `isr`, `leader`, `bytes`, `bytes_per_s` and `min_isr`; missing fields get defaults.
    Log directories, which Kafka 4.2 and later print, are ignored. Raises PlanError when either document is invalid.
    """
    # Whoever only parses a reassignment needs no Arrow, which is slow to import.
    import pyarrow as pa  # noqa: PLC0415

    from kafka_steward.planning.files.formats import SNAPSHOT_BROKERS, SNAPSHOT_PARTITIONS  # noqa: PLC0415

    listed = brokers.get("brokers") if isinstance(brokers, Mapping) else brokers
    if not isinstance(listed, list) or not all(isinstance(broker, Mapping) and "id" in broker for broker in listed):
        raise PlanError('The brokers should be a list such as [{"id": 1, "rack": "a"}, {"id": 2, "rack": "b"}].')
    for broker in listed:
        _check_fields(broker, _BROKER, f"Broker {json.dumps(broker['id'])}")
    rows = [{**broker, "broker": broker["id"], "state": broker.get("state", "live")} for broker in listed]
    failed = {row["broker"] for row in rows if row["state"] == "failed"}
    partitions, faults = _parse_partitions(current, "The current assignment", _CURRENT_ENTRY)
    refuse(faults)
    parts = [_partition_row(name, replicas, failed) for name, replicas in partitions.items()]
    for part, entry in zip(parts, current["partitions"], strict=True):
        part.update({key: entry[key] for key in _CURRENT_ENTRY.keys() - _ENTRY.keys() if key in entry})
    return pa.Table.from_pylist(rows, SNAPSHOT_BROKERS), pa.Table.from_pylist(parts, SNAPSHOT_PARTITIONS)


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
