"""What is said of a server that was asked more than once: what it answered, not that the time then ended."""

from __future__ import annotations

import contextlib
import socket

import pytest
from kafka.errors import KafkaConnectionError, KafkaTimeoutError

from kafka_steward.cluster.session import Session, _ConnectionManager
from kafka_steward.errors import ClusterUnreachable

REFUSED = KafkaConnectionError("111 ECONNREFUSED")


def cut_short() -> KafkaConnectionError:
    """The failure of an attempt that had no time, as kafka-python raises it: see the last test."""
    error = KafkaConnectionError("Connection timed out")
    error.__context__ = KafkaTimeoutError("Connection timed out")
    return error


def last_of(*failures: Exception) -> Exception:
    manager = _ConnectionManager.__new__(_ConnectionManager)
    manager.failures = {}
    for failure in failures:
        manager._keep_failure("bootstrap-0", failure)
    return manager.failures["bootstrap-0"]


def test_an_attempt_without_time_does_not_hide_what_the_server_answered() -> None:
    assert last_of(REFUSED, cut_short()) is REFUSED


def test_a_server_that_never_answered_is_said_to_have_timed_out() -> None:
    assert last_of(cut_short(), late := cut_short()).args == late.args


def test_what_the_server_answered_last_counts() -> None:
    assert last_of(KafkaConnectionError("110 ETIMEDOUT"), cut_short(), REFUSED) is REFUSED


@pytest.mark.process
def test_kafka_python_raises_it_like_this(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Exception] = []
    monkeypatch.setattr(_ConnectionManager, "_keep_failure", lambda _self, _node, failure: kept.append(failure))
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server, contextlib.ExitStack() as queue:
        # Once its queue is full, it neither takes a connection nor refuses one.
        for _ in range(2):
            waiting = queue.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(server.getsockname())
        servers = [f"127.0.0.1:{server.getsockname()[1]}"]
        with pytest.raises(ClusterUnreachable):
            Session.open({"bootstrap_servers": servers, "bootstrap_timeout_ms": 600})
    assert {(type(one), one.args, type(one.__context__)) for one in kept} == {
        (KafkaConnectionError, ("Connection timed out",), KafkaTimeoutError)
    }
