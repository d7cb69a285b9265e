"""The environment of the demo: a real Kafka cluster, a real Airflow, topics with data, and one DAG file."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kafka_steward.errors import StewardError
from kafka_steward.sandbox import Sandbox
from kafka_steward.sandbox.airflow import LocalAirflow
from kafka_steward.sandbox.airflow_dags import AirflowDag
from kafka_steward.sandbox.java import java

__all__ = ["CONNECTION", "DAG_FILE", "Scene", "airflow_in", "create_topics", "folder"]

CONNECTION = "kafka_steward_default"
#: The complete DAG file that a user writes.
DAG_FILE = """\
# Airflow reads only those DAG files that name it, so this line stays.
from kafka_steward.dags import heal
heal_cluster = heal()
"""
_TOPICS = ("clicks", "orders", "payments")
_PARTITIONS = 24
_BYTES = 40_000_000


@dataclass(frozen=True)
class Scene:
    """The environment of the demo. `grace_s` is the time in seconds until a missing broker counts as failed."""

    sandbox: Sandbox
    airflow: LocalAirflow
    heal: AirflowDag
    journal_url: str
    grace_s: float


@contextmanager
def folder(*, keep: bool) -> Iterator[Path]:
    """Yield a folder for all files of the demo, which is removed at the end; after a failure it keeps the logs."""
    path = Path(tempfile.mkdtemp(prefix="kafka-steward-demo-"))
    try:
        yield path
    except StewardError:
        raise
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise
    if not keep:
        shutil.rmtree(path, ignore_errors=True)


def airflow_in(home: Path, bootstrap: str, *, grace_s: float, throttle: int) -> tuple[LocalAirflow, str]:
    """Return an Airflow that is configured for the cluster, not started yet, and the URL of its journal."""
    journal_url = f"sqlite:///{home}/journal.db"
    extra = {
        "journal": journal_url,
        "workspace": str(home / "workspace"),
        "heal_failure_interval": grace_s,
        "heal_chunk_size": 12,
        "throttle": throttle,
    }
    connection = {"conn_type": "kafka_steward", "host": bootstrap, "extra": extra}
    airflow = LocalAirflow(home, connections={CONNECTION: connection}, environment={"JAVA_HOME": str(java().home)})
    airflow.dags.mkdir(parents=True)
    (airflow.dags / "heal.py").write_text(DAG_FILE)
    return airflow, journal_url


def create_topics(sandbox: Sandbox) -> str:
    """Create the topics and fill them; return a summary."""
    for topic in _TOPICS:
        sandbox.create_topics(topic, partitions=_PARTITIONS, replication_factor=3)
        sandbox.fill(topic, _BYTES)
    sandbox.wait_replicated(_TOPICS)
    return (
        f"{', '.join(_TOPICS)}: {len(_TOPICS) * _PARTITIONS} partitions, replication factor 3, "
        f"{len(_TOPICS) * _BYTES // 1_000_000} MB of data"
    )
