"""Calls of the configured notifiers, with the task's context and the facts of the event."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import structlog

if TYPE_CHECKING:
    from airflow.sdk import Context

__all__ = ["Notifiers", "as_notifiers", "notify"]

log = structlog.get_logger(__name__)

#: One or several of Airflow's notifiers, or functions of the context.
Notifiers: TypeAlias = "Callable[[Any], Any] | Sequence[Callable[[Any], Any]] | None"


def as_notifiers(given: Notifiers) -> list[Callable[[Any], Any]]:
    """Return the notifiers as a list, whether none, one or several are given."""
    if given is None:
        return []
    return [given] if callable(given) else list(given)


def notify(notifiers: Sequence[Callable[[Any], Any]], context: Context, event: str, facts: Mapping[str, Any]) -> None:
    """Call each notifier with the context plus the key `kafka_steward`: `{"event", "sentence", ...}`.

    A notifier that fails is only logged: an undelivered notification must not stop the repair of a cluster.
    """
    payload = {**context, "kafka_steward": {"event": event, **facts}}
    for notifier in notifiers:
        _call(notifier, payload)


def _call(notifier: Callable[[Any], Any], payload: Mapping[str, Any]) -> None:
    try:
        notifier(payload)
    except Exception as error:  # noqa: BLE001 - user code may raise anything
        log.warning("A notifier failed", notifier=repr(notifier), error=repr(error))
