"""Telling people: notifiers are called with the task's context and what happened."""

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
    """As a list, whatever was given."""
    if given is None:
        return []
    return [given] if callable(given) else list(given)


def notify(notifiers: Sequence[Callable[[Any], Any]], context: Context, event: str, facts: Mapping[str, Any]) -> None:
    """Call each with the context, to which `kafka_steward` is added: `{"event", "sentence", ...}`.

    One that fails is logged and costs nothing more: a cluster is not left broken because a message did not go out.
    """
    told = {**context, "kafka_steward": {"event": event, **facts}}
    for notifier in notifiers:
        _call(notifier, told)


def _call(notifier: Callable[[Any], Any], told: Mapping[str, Any]) -> None:
    try:
        notifier(told)
    except Exception as error:  # noqa: BLE001 - it is a user's code, and may raise anything
        log.warning("A notifier failed", notifier=repr(notifier), error=repr(error))
