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
