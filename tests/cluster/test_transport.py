"""What is asked again when the connection breaks, and what is not."""

from __future__ import annotations

from typing import Any

import kafka.errors
import pytest

from kafka_steward.cluster import transport as module
from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.cluster.transport import KafkaTransport
from kafka_steward.errors import KafkaTimeout


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
def test_a_creation_that_may_have_been_heard_is_not_asked_again(ask: Any) -> None:
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


def test_any_other_change_is_asked_again_when_the_connection_broke() -> None:
    calls = Breaking(broken())
    calls.send_to_controller(lambda: None, change=True)
    assert calls.asked == 2


def test_no_change_is_asked_again_after_a_time_out() -> None:
    calls = Breaking(kafka.errors.RequestTimedOutError("late"))
    with pytest.raises(KafkaTimeout):
        calls.send_to_controller(lambda: None, change=True)
    assert calls.asked == 1
