"""`airflow kafka-steward ...` as a process of its own, and Kafka's own tools to see what it did."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from kafka_steward.assignment import Assignment
from kafka_steward.sandbox import Sandbox

_TOPICS = "org.apache.kafka.tools.TopicCommand"
_CONFIGS = "kafka.admin.ConfigCommand"


def begin(
    *words: str, to: tuple[IO[str] | int, IO[str] | int] = (subprocess.PIPE, subprocess.PIPE), **more: str
) -> subprocess.Popen[str]:
    """Start a verb; AIRFLOW_HOME and AIRFLOW_CONN_... come from this process' environment. It prints to `to`."""
    command = [str(Path(sys.executable).parent / "airflow"), "kafka-steward", *words]
    return subprocess.Popen(command, stdout=to[0], stderr=to[1], text=True, env={**os.environ, **more})


def call(*words: str, within_s: float = 300) -> subprocess.CompletedProcess[str]:
    """Run a verb to its end."""
    process = begin(*words)
    try:
        out, err = process.communicate(timeout=within_s)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"{words} did not end within {within_s} s: {out} {err}") from None
    return subprocess.CompletedProcess(words, process.returncode, out, err)


def written(path: Path, targets: Mapping[str, Mapping[int, Assignment]]) -> str:
    """A file as `kafka-reassign-partitions` takes it; returns its path."""
    entries = [
        {"topic": topic, "partition": number, "replicas": list(replicas)}
        for topic, numbered in targets.items()
        for number, replicas in numbered.items()
    ]
    path.write_text(json.dumps({"version": 1, "partitions": entries}))
    return str(path)


def assignments(sandbox: Sandbox, beginning: str) -> dict[str, dict[int, Assignment]]:
    """Replicas in their order, by partition, of the topics that begin so, as Kafka's own tool prints them."""
    where = ("--bootstrap-server", sandbox.bootstrap, "--describe", "--topic", f"{beginning}.*")
    found: dict[str, dict[int, Assignment]] = {}
    for line in sandbox.kafka_tool(_TOPICS, *where).splitlines():
        words = dict(word.split(": ", 1) for word in line.strip().split("\t") if ": " in word)
        if "Partition" in words:
            replicas = tuple(int(broker) for broker in words["Replicas"].split(","))
            found.setdefault(words["Topic"], {})[int(words["Partition"])] = replicas
    return found


def throttles(sandbox: Sandbox) -> dict[str, dict[str, str]]:
    """The throttles in force, by `topic t`, `broker 4` or `brokers in the cluster`, as Kafka's own tool prints them."""
    where = ("--bootstrap-server", sandbox.live_bootstrap, "--describe", "--entity-type")
    text = "\n".join(sandbox.kafka_tool(_CONFIGS, *where, kind) for kind in ("topics", "brokers"))
    whose = ""
    found: dict[str, dict[str, str]] = {}
    for line in text.splitlines():
        if entity := re.match(r"D\w+ configs for (.+) are:", line):
            whose = entity[1]
        elif setting := re.match(r"\s+(\S+\.throttled\.\w+)=(\S*)", line):
            found.setdefault(whose, {})[setting[1]] = setting[2]
    # An empty list throttles nothing. One stays behind if the broker that was asked had not yet heard that other
    # entries were taken out of it: then the last one is taken out too, instead of the list being deleted.
    in_force = {whose: {key: value for key, value in several.items() if value} for whose, several in found.items()}
    return {whose: several for whose, several in in_force.items() if several}
