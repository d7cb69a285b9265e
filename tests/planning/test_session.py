"""The session of a job, as far as it can be judged without a Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyspark
import pytest

from kafka_steward.errors import SettingError
from kafka_steward.planning.spark import session


@pytest.mark.parametrize("server", ["4.3.0", "4.3.1", "4.3.0-SNAPSHOT", "4.3.2.vendor1"])
def test_a_server_of_the_same_minor_version_is_taken(server: str) -> None:
    session.refuse_other_version(server, "4.3.0")


@pytest.mark.parametrize("server", ["4.2.0", "4.30.0", "3.3.0", "5.3"])
def test_a_server_of_another_minor_version_is_one_sentence(server: str) -> None:
    sentence = (
        f"The Spark Connect server runs Spark {server}, and the worker's pyspark is of version 4.3.0; install pyspark "
        f"{server[:-2] if server.count('.') == 2 else server} on the worker, or start a server of Spark 4.3."
    )
    with pytest.raises(SettingError) as caught:
        session.refuse_other_version(server, "4.3.0")
    assert str(caught.value) == sentence


STOPPED = """An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.
: java.lang.IllegalStateException: Spark context stopped while waiting for backend
\tat org.apache.spark.SparkContext.<init>(SparkContext.scala:1)
"""
FORBIDDEN = """An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.
: org.apache.spark.SparkException: External scheduler cannot be instantiated
\tat org.apache.spark.SparkContext.<init>(SparkContext.scala:1)
Caused by: a.KubernetesClientException: Message: pods is forbidden. Received status: Status(code=403).
\t... 1 more
"""


@pytest.mark.parametrize(
    ("trace", "cause"),
    [
        (STOPPED, "java.lang.IllegalStateException: Spark context stopped while waiting for backend"),
        (FORBIDDEN, "a.KubernetesClientException: Message: pods is forbidden"),
        ("A sentence.\nAnother.", "A sentence"),
    ],
)
def test_the_last_cause_of_a_trace_is_the_reason(trace: str, cause: str) -> None:
    assert session.root_cause(trace) == cause


class FakeSession:
    """A session of a Spark Connect server of a given version: nothing can be had but its end."""

    def __init__(self, version: str) -> None:
        self.version, self.ended = version, False
        self.conf = SimpleNamespace(set=lambda *_: None)

    def stop(self) -> None:
        self.ended = True


@pytest.mark.parametrize("server", ["4.0.1", pyspark.__version__])
def test_the_version_of_the_server_is_compared_before_anything_is_uploaded(
    monkeypatch: pytest.MonkeyPatch, server: str
) -> None:
    found = FakeSession(server)
    builder: Any = SimpleNamespace(getOrCreate=lambda: found)
    monkeypatch.setattr(session, "SparkSession", SimpleNamespace(builder=builder))
    monkeypatch.setenv(session.REMOTE, "sc://server")
    monkeypatch.setattr(pyspark, "__version__", "4.3.0" if server == "4.0.1" else server)
    if server == "4.0.1":
        with pytest.raises(SettingError, match=r"runs Spark 4\.0\.1, and the worker's pyspark is of version 4\.3\.0"):
            _enter("/an/archive")
    else:
        _enter(None)
    assert found.ended


def _enter(archive: str | None) -> None:
    with session.planning_session(archive):
        pass
