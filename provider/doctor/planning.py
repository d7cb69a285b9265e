"""What plans need: a workspace that this process, a worker and the triggerer write, read and share; Spark and Java.

Spark and Java are known by their files, and a Spark elsewhere by its connection: nothing is started.
"""

from __future__ import annotations

import platform
import re
import secrets
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kafka_steward.doctor.findings import Finding, Level, set_for_airflow
from kafka_steward.errors import PlanError, PlanningFailed, StewardError
from kafka_steward.planning.files.storage import Folder, is_object_store
from kafka_steward.planning.spark.installed import (
    InstalledSpark,
    describe_spark,
    find_java,
    java_version,
    old_java_sentence,
    repair_command,
)

#: From the workspace to what a task writes: cluster id, DAG, run, attempt, file.
_DEPTH = 5
_TEXT = "airflow kafka-steward doctor\n"
#: The name of a file that a probe looks for; nothing else of a run's form becomes a path.
MARKER = re.compile(r"doctor-[0-9a-f]{16}\.txt")
#: What helps where a workspace cannot be used.
SHARE_WORKSPACE = set_for_airflow("workspace", "/a/folder/that/all/workers/share")

#: Spark 4 needs it.
_INSTALL_JAVA = "apt-get install openjdk-17-jre-headless"


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


def probe_finding(part: str, probe: Probe, uri: str) -> Finding:
    """Return what `part`, "worker" or "triggerer", found. `uri` is the workspace of this process.

    Tasks read there what other tasks wrote; what runs in the triggerer does not use it, so that this is a note.
    """
    fault = Level.FAULT if part == "worker" else Level.NOTE
    where = f"The {part} on {probe.host}"
    if probe.problem:
        return Finding(part, fault, f"{where} cannot use its workspace: {probe.problem}", SHARE_WORKSPACE)
    if probe.uri != uri:
        sentence = f"{where} uses the workspace {probe.uri}, and this process uses {uri}; set one for all of them."
        return Finding(part, fault, sentence, SHARE_WORKSPACE)
    if probe.marked is False:
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


def inspect_local_spark(env: Mapping[str, str]) -> list[Finding]:
    """Return the findings about what a plan on this machine takes."""
    java = find_java(env)
    try:
        spark = spark_finding(describe_spark())
    except PlanningFailed as error:
        spark = Finding("spark", Level.FAULT, str(error), repair_command())
    return [spark, java_finding(java, None if java is None else java_version(java))]


def spark_finding(spark: InstalledSpark) -> Finding:
    """Return the version of Spark; a note if pyspark-client put Python code of another version in its place."""
    sentence = f"Plans are made on the worker, here by Spark {spark.version or 'of unknown version'} in {spark.home}."
    if spark.code_in_place in (None, spark.version):
        return Finding("spark", Level.OK, sentence)
    sentence += (
        f" `import pyspark` finds {spark.code_in_place}, because pyspark-client was installed over pyspark; jobs use "
        "the code that came with the jars."
    )
    return Finding("spark", Level.NOTE, sentence)


def remote_spark_finding(conn_id: str, url: str, *, submit: str | None) -> Finding:
    """Return the Spark that makes plans elsewhere, and how to see its version, which is not asked here.

    `submit` is the program that submits jobs there; None for a Spark Connect server.
    """
    sentence = f"Plans are made by the Spark of {conn_id}, {url}. Its version was not asked, "
    if submit is None:
        sentence += "because that opens a session; each plan checks that the worker's pyspark is of its minor version."
        script = f"from pyspark.sql import SparkSession as s; print(s.builder.remote({url!r}).getOrCreate().version)"
        return Finding("spark", Level.OK, sentence, f"{sys.executable} -c {shlex.quote(script)}")
    sentence += f"because that starts Spark; on a worker, {submit} names the one that submits the jobs."
    return Finding("spark", Level.OK, sentence, f"{shlex.quote(submit)} --version")


def java_finding(java: Path | None, version: str | None) -> Finding:
    """Return the Java that Spark starts; a fault if it is missing or too old."""
    if java is None:
        sentence = "Spark needs Java 17 or newer, and none is in JAVA_HOME or on the PATH of this user."
        return Finding("java", Level.FAULT, sentence, _INSTALL_JAVA)
    if version is None:
        sentence = f"Java is {java}; no file names its version, which has to be 17 or newer."
        return Finding("java", Level.NOTE, sentence, f"{java} -version")
    if too_old := old_java_sentence(java, version):
        return Finding("java", Level.FAULT, too_old, _INSTALL_JAVA)
    return Finding("java", Level.OK, f"Java {version} at {java}.")
