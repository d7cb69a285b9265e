"""What is asked again when the connection breaks, what is said of a server that fails, and who reads at a time."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import Any

import kafka.errors
import pytest
from kafka.errors import KafkaConnectionError, KafkaTimeoutError

from kafka_steward.cluster import transport as module
from kafka_steward.cluster.client import KafkaCluster, limit_concurrent_decoding
from kafka_steward.cluster.session import Session, _ConnectionManager
from kafka_steward.cluster.transport import KafkaTransport
from kafka_steward.errors import ClusterUnreachable, KafkaTimeout


class Breaking(KafkaTransport):
    """A way to a controller that answers with these errors, one after the other, and then with success."""

    def __init__(self, *errors: Exception) -> None:
        self.servers, self.timeout_ms, self.cluster_id = "b:9092", 5000, "c"
        self._controller: int | None = 9
        self._session = None
        self.errors, self.asked, self.looked = list(errors), 0, 0

    def _find_controller(self, _tried: set[int]) -> int:
        self.looked += self._controller is None
        self._controller = 1
        return 1

    def _send_to_broker(self, request: Any, node: int, attempt_ms: int) -> Any:
        del request, node, attempt_ms
        self.asked += 1
        if self.errors:
            raise self.errors.pop(0)
        return Answer()


class Answer:
    """Of each kind of request."""

    error_code, error_message = 0, None

    @property
    def topics(self) -> list[Answer]:
        return [self]

    results = topics


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PAUSE_S", 0)


def broken() -> kafka.errors.KafkaConnectionError:
    return kafka.errors.KafkaConnectionError("the socket was closed")


def over(calls: KafkaTransport) -> KafkaCluster:
    cluster = KafkaCluster.__new__(KafkaCluster)
    cluster._transport = calls
    return cluster


def created(calls: KafkaTransport) -> Any:
    return over(calls).create_topic("t", 1, 1)


def added(calls: KafkaTransport) -> Any:
    return over(calls).create_partitions("t", 2)


@pytest.mark.parametrize("ask", [created, added])
def test_a_creation_that_may_have_been_applied_is_not_asked_again(ask: Any) -> None:
    calls = Breaking(broken())
    with pytest.raises(KafkaTimeout, match="it may have been applied nevertheless"):
        ask(calls)
    assert calls.asked == 1


@pytest.mark.parametrize("ask", [created, added])
def test_a_creation_that_was_surely_not_carried_out_is_asked_again(ask: Any) -> None:
    calls = Breaking(kafka.errors.NotControllerError())
    assert ask(calls) is None
    assert calls.asked == 2


def test_a_creation_is_asked_of_a_controller_that_was_just_looked_up() -> None:
    calls = Breaking()
    created(calls)
    assert calls.looked == 1


def test_any_other_change_is_asked_again_when_the_connection_broke_and_not_after_a_time_out() -> None:
    calls = Breaking(broken())
    calls.send_to_controller(lambda: None, change=True)
    assert calls.asked == 2
    calls = Breaking(kafka.errors.RequestTimedOutError("late"))
    with pytest.raises(KafkaTimeout):
        calls.send_to_controller(lambda: None, change=True)
    assert calls.asked == 1


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


def test_what_a_server_answered_last_counts_and_one_that_never_answered_has_timed_out() -> None:
    assert last_of(REFUSED, cut_short()) is REFUSED, "an attempt without time hides no answer"
    assert last_of(KafkaConnectionError("110 ETIMEDOUT"), cut_short(), REFUSED) is REFUSED
    assert last_of(cut_short(), late := cut_short()).args == late.args


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


def test_one_is_within_at_a_time() -> None:
    within, most = 0, 0
    counting = threading.Lock()

    def read() -> None:
        nonlocal within, most
        with limit_concurrent_decoding(20):
            with counting:
                within += 1
                most = max(most, within)
            time.sleep(0.01)
            with counting:
                within -= 1

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (within, most) == (0, 1)


def test_one_that_hangs_holds_up_the_next_for_a_moment_only_and_keeps_its_own_turn() -> None:
    hanging, release = threading.Event(), threading.Event()

    def hang() -> None:
        with limit_concurrent_decoding():
            hanging.set()
            release.wait(20)

    thread = threading.Thread(target=hang)
    thread.start()
    assert hanging.wait(20)
    with limit_concurrent_decoding(0.01):
        pass
    third = limit_concurrent_decoding(0.01)
    began = time.monotonic()
    with third:
        waited_s = time.monotonic() - began
    assert waited_s >= 0.01  # who went ahead has not given back a turn that was never its own
    release.set()
    thread.join()


def test_a_turn_is_given_back_when_the_reading_fails() -> None:
    def fail() -> None:
        with limit_concurrent_decoding(20):
            raise ValueError("no answer")

    with pytest.raises(ValueError, match="no answer"):
        fail()
    began = time.monotonic()
    with limit_concurrent_decoding(20):
        assert time.monotonic() - began < 10
