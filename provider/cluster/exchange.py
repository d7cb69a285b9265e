"""One round of requests on kafka-python's own event loop, with a time-out."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import kafka.errors

__all__ = ["RETRIABLE", "TIMEOUTS", "Request", "send", "send_all", "is_unknown_broker", "refresh_nodes", "error_text"]

TIMEOUTS = (kafka.errors.KafkaTimeoutError, kafka.errors.RequestTimedOutError)
RETRIABLE = (kafka.errors.RetriableError, kafka.errors.UnknownBrokerIdError)
#: kafka-python's own timer closes a stalled connection; ours, a little later, covers a connection that was never made.
_GRACE_MS = 250
#: A factory of requests: each attempt needs a new one, since brokers may support different versions.
Request = Callable[[], Any]


async def send(manager: Any, request: Any, node: int, timeout_ms: int) -> Any:
    """Send a request to one broker and return its response. Raises kafka-python's errors."""
    sent = manager.send(request, node_id=node, request_timeout_ms=timeout_ms)
    return await manager.wait_for(sent, timeout_ms + _GRACE_MS)


async def send_all(manager: Any, asked: Mapping[int, Request], timeout_ms: int) -> dict[int, Any]:
    """Send requests to all brokers concurrently; return the responses, or kafka-python's errors, by broker."""
    deadline = time.monotonic() + (timeout_ms + _GRACE_MS) / 1000
    pending = {broker: _sent(manager, request, broker, timeout_ms) for broker, request in asked.items()}
    return {broker: await _settled(manager, sent, deadline) for broker, sent in pending.items()}


async def refresh_nodes(manager: Any, timeout_ms: int) -> None:
    """Refresh kafka-python's table of brokers; if that fails, unknown brokers stay unknown."""
    try:
        await manager.wait_for(manager.call_soon(manager.cluster.refresh_metadata), timeout_ms)
    except kafka.errors.KafkaError:
        return


def is_unknown_broker(answer: Any) -> bool:
    """Return whether `answer` is the error for a broker that is missing in kafka-python's table of brokers."""
    return isinstance(answer, kafka.errors.UnknownBrokerIdError)


def error_text(error: Exception) -> str:
    """Return the message of an error, without its class; the class name if it has no message."""
    if is_unknown_broker(error):
        return "the cluster does not list it"
    return str(error.args[0]) if error.args else type(error).__name__


def _sent(manager: Any, request: Request, broker: int, timeout_ms: int) -> Any:
    try:
        return manager.send(request(), node_id=broker, request_timeout_ms=timeout_ms)
    except kafka.errors.KafkaError as error:
        return error


async def _settled(manager: Any, sent: Any, deadline: float) -> Any:
    if isinstance(sent, kafka.errors.KafkaError):
        return sent
    try:
        return await manager.wait_for(sent, max(1, (deadline - time.monotonic()) * 1000))
    except kafka.errors.KafkaError as error:
        return error
