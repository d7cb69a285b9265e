"""What is asked again when the connection breaks, what is said of a server that fails, and who reads at a time."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from types import SimpleNamespace
from typing import Any

import kafka.errors
import pytest
from kafka.errors import KafkaConnectionError, KafkaTimeoutError
from kafka.protocol.admin import ElectLeadersRequest

from kafka_steward.cluster import transport as module
from kafka_steward.cluster.client import KafkaCluster, limit_concurrent_decoding
from kafka_steward.cluster.network import Node, _ConnectionManager
from kafka_steward.cluster.requests import log_dirs_request, metadata_request
from kafka_steward.cluster.session import Session
from kafka_steward.cluster.transport import KafkaTransport
from kafka_steward.errors import ClusterUnreachable, KafkaRefused, KafkaTimeout


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
    with pytest.raises(KafkaTimeout, match=r"did not confirm ElectLeaders within 5 s \(request_timeout_ms\); it may"):
        calls.send_to_controller(ElectLeadersRequest, change=True)
    assert calls.asked == 1
    calls = Breaking(*[kafka.errors.KafkaTimeoutError("late")] * 9)
    calls.timeout_ms = 0
    with pytest.raises(KafkaTimeout, match=r"did not answer Metadata within 0 s \(request_timeout_ms\); try again"):
        calls.send_to_controller(lambda: metadata_request(()), change=False)


def test_a_kafka_that_lacks_a_request_is_named_as_too_old_with_the_request() -> None:
    calls = Breaking(kafka.errors.IncompatibleBrokerVersion("no such version"))
    with pytest.raises(KafkaRefused, match=r"b:9092 is too old for our request ElectLeaders: upgrade it to Kafka 3\.3"):
        calls.send_to_controller(ElectLeadersRequest, change=True)


UNRESOLVED, NO_LISTENER = KafkaConnectionError("DNS Resolution failure"), KafkaConnectionError("111 ECONNREFUSED")
SLOW = KafkaConnectionError("Connection timed out")


@pytest.mark.parametrize(
    ("failures", "reached", "sentence"),
    [
        ([UNRESOLVED] * 4, False, "kafka-1:9092, kafka-2:9092, kafka-3:9092 and 1 more, which this machine cannot re"),
        ([NO_LISTENER] * 2, False, "kafka-1:9092, kafka-2:9092, where nothing accepts a connection from this machine"),
        ([UNRESOLVED, NO_LISTENER], False, r"which this machine cannot reach \(DNS Resolution failure\)"),
        ([SLOW], False, r"kafka-1:9092, which this machine cannot reach \(Connection timed out\)"),
        ([NO_LISTENER] * 3, True, "^No broker of b:9092 responded .111 ECONNREFUSED.; check that they run"),
    ],
)
def test_brokers_that_no_address_leads_to_are_named_by_their_advertised_addresses(
    failures: list[KafkaConnectionError], reached: bool, sentence: str
) -> None:
    nodes = [Node(number, f"kafka-{number}", 9092) for number in range(1, len(failures) + 1)]
    by_node = dict(zip(range(1, 9), failures, strict=False))
    network: Any = SimpleNamespace(
        nodes=nodes,
        bootstrap_addresses=frozenset({"b:9092"}),
        failures=by_node,
        reached=reached,
        answering_server="b:9092",
    )
    calls = Breaking(*failures)
    calls._session = Session(network)
    calls.timeout_ms = 0
    named = rf"^b:9092 answered, and names its brokers .*{sentence}.*\(advertised.listeners\): .*\.$"
    whole = sentence if reached else named
    with pytest.raises(ClusterUnreachable, match=whole):
        calls.send_to_controller(lambda: metadata_request(()), change=False)
    answer = calls._response_or_error(calls._session, 1, failures[0], log_dirs_request, "within 45 s (x)")
    own = (
        "is named kafka-1:9092, which this machine cannot resolve" if failures[0] is UNRESOLVED else "cannot be reached"
    )
    assert str(answer).startswith(f"Broker 1 {own}")
    late = calls._response_or_error(calls._session, 1, KafkaTimeoutError("late"), log_dirs_request, "within 45 s (x)")
    assert str(late) == "Broker 1 did not answer DescribeLogDirs within 45 s (x)."


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
    last: Exception = manager.failures["bootstrap-0"]
    return last


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
