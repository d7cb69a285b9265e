"""The Spark and the Java of this machine, by their files; and a Spark elsewhere: nothing is started."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from kafka_steward.doctor.findings import Finding, Level
from kafka_steward.errors import PlanningFailed
from kafka_steward.planning.spark.installed import (
    InstalledSpark,
    describe_spark,
    find_java,
    java_version,
    repair_command,
)

#: Spark 4 needs it.
_OLDEST_JAVA = 17
_INSTALL_JAVA = "apt-get install openjdk-17-jre-headless"


def inspect_local_spark(env: Mapping[str, str]) -> list[Finding]:
    """Return the findings about what a plan on this machine takes."""
    java = find_java(env)
    try:
        spark = spark_finding(describe_spark())
    except PlanningFailed as error:
        spark = Finding("spark", Level.FAULT, str(error), repair_command())
    return [spark, java_finding(java, None if java is None else java_version(java))]


def spark_finding(found: InstalledSpark) -> Finding:
    """Return the version of Spark; a note if pyspark-client put Python code of another version in its place."""
    sentence = f"Plans are made on the worker, here by Spark {found.version or 'of unknown version'} in {found.home}."
    if found.code_in_place in (None, found.version):
        return Finding("spark", Level.OK, sentence)
    sentence += (
        f" `import pyspark` finds {found.code_in_place}, because pyspark-client was installed over pyspark; jobs use "
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
    major = int((version.removeprefix("1.").split(".")[0].split("-")[0].split("+")[0]) or 0)
    if major < _OLDEST_JAVA:
        return Finding("java", Level.FAULT, f"Java {version} is too old for Spark ({java}).", _INSTALL_JAVA)
    return Finding("java", Level.OK, f"Java {version} at {java}.")
