"""The workspace: whether this process can write and read it, and what a task wrote last."""

from __future__ import annotations

import secrets
import time

from kafka_steward.doctor.findings import Finding, Level
from kafka_steward.errors import PlanError
from kafka_steward.planning.files.storage import Folder, is_object_store

#: From the workspace to what a task writes: cluster id, DAG, run, attempt, file.
_DEPTH = 5


def inspect_workspace(uri: str) -> list[Finding]:
    """Write, read and delete a small file in the workspace. Raises PlanError where that fails."""
    folder = Folder(uri, "workspace")
    name, text = f"doctor-{secrets.token_hex(8)}.txt", "airflow kafka-steward doctor\n"
    folder.write_text(name, text)
    try:
        found = folder.read_text(name)
    finally:
        folder.delete(name)
    if found != text:
        raise PlanError(f"The workspace {uri} returns other bytes than were written; use storage that is consistent.")
    return [Finding("workspace", Level.OK, f"{uri} can be written and read from here; {_last_written(folder)}.")]


def _last_written(folder: Folder) -> str:
    # Listing a store of some years would take long.
    if is_object_store(folder.uri):
        return "what tasks wrote last is not looked for in a store"
    newest = folder.newest_entry("/".join(["*"] * _DEPTH))
    if newest is None:
        return "no task has written there yet"
    minutes = (time.time() - newest[1]) / 60
    return f"last written, {minutes:.0f} min ago: {newest[0]}"
