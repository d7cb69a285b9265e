"""The workspace: whether this process, a worker and the triggerer can write and read it, and see the same one."""

from __future__ import annotations

import platform
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from kafka_steward.doctor.findings import Finding, Level, set_for_airflow
from kafka_steward.errors import PlanError, StewardError
from kafka_steward.planning.files.storage import Folder, is_object_store

#: From the workspace to what a task writes: cluster id, DAG, run, attempt, file.
_DEPTH = 5
_TEXT = "airflow kafka-steward doctor\n"
#: The name of a file that a probe looks for; nothing else of a run's form becomes a path.
MARKER = re.compile(r"doctor-[0-9a-f]{16}\.txt")
#: What helps where a workspace cannot be used.
SHARE_WORKSPACE = set_for_airflow("workspace", "/a/folder/that/all/workers/share")


def inspect_workspace(uri: str) -> list[Finding]:
    """Write, read and delete a small file in the workspace. Raises PlanError where that fails."""
    folder = Folder(uri, "workspace")
    with _written_file(folder):
        pass
    return [Finding("workspace", Level.OK, f"{uri} can be written and read from here; {_last_written(folder)}.")]


@dataclass(frozen=True, slots=True)
class Probe:
    """The result of one process: the workspace that it uses, on which host, and why it cannot be used, if so.

    `marked` says whether the file is there that the process which asks has written; None if it wrote none.
    """

    uri: str
    host: str
    problem: str = ""
    marked: bool | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the probe as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Probe:
        """Return the probe that `to_json` wrote. Raises TypeError for anything else."""
        return cls(**value)


def probe_workspace(find_uri: Callable[[], str], marker: str) -> Probe:
    """Write, read and delete a small file in the workspace, and look for the file `marker`; empty for none.

    `find_uri` looks the workspace up, which may fail as well. Raises nothing that a workspace can cause.
    """
    uri, host = "", platform.node()
    try:
        uri = find_uri()
        folder = Folder(uri, "workspace")
        with _written_file(folder):
            marked = folder.read_text(marker) is not None if MARKER.fullmatch(marker) else None
    except (StewardError, OSError) as error:
        return Probe(uri, host, str(error))
    return Probe(uri, host, marked=marked)


@contextmanager
def marked_workspace(uri: str) -> Iterator[str]:
    """Write a file into the workspace, yield its name, and delete it. Raises PlanError where that fails."""
    with _written_file(Folder(uri, "workspace")) as name:
        yield name


def probe_finding(part: str, found: Probe, uri: str) -> Finding:
    """Return what `part`, "worker" or "triggerer", found. `uri` is the workspace of this process.

    Tasks read there what other tasks wrote; what runs in the triggerer does not use it, so that this is a note.
    """
    fault = Level.FAULT if part == "worker" else Level.NOTE
    where = f"The {part} on {found.host}"
    if found.problem:
        return Finding(part, fault, f"{where} cannot use its workspace: {found.problem}", SHARE_WORKSPACE)
    if found.uri != uri:
        sentence = f"{where} uses the workspace {found.uri}, and this process uses {uri}; set one for all of them."
        return Finding(part, fault, sentence, SHARE_WORKSPACE)
    if found.marked is False:
        sentence = f"{where} does not see in {uri} what this host writes there; set a workspace that all of them share."
        return Finding(part, fault, sentence, SHARE_WORKSPACE)
    return Finding(part, Level.OK, f"{where} writes and reads {uri}, and sees what this host writes there.")


@contextmanager
def _written_file(folder: Folder) -> Iterator[str]:
    name = f"doctor-{secrets.token_hex(8)}.txt"
    folder.write_text(name, _TEXT)
    try:
        if folder.read_text(name) != _TEXT:
            raise PlanError(
                f"The workspace {folder.uri} returns other bytes than were written; use storage that is consistent."
            )
        yield name
    finally:
        folder.delete(name)


def _last_written(folder: Folder) -> str:
    # Listing a store of some years would take long.
    if is_object_store(folder.uri):
        return "what tasks wrote last is not looked for in a store"
    newest = folder.newest_entry("/".join(["*"] * _DEPTH))
    if newest is None:
        return "no task has written there yet"
    minutes = (time.time() - newest[1]) / 60
    return f"last written, {minutes:.0f} min ago: {newest[0]}"
