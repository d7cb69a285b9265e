"""Maintenance windows of plans: the operations that wait for one, and the message in the meantime. Pure."""

from __future__ import annotations

from kafka_steward.assignment import Operation
from kafka_steward.journal.records import PlanRecord
from kafka_steward.maintenance import window_of
from kafka_steward.settings import Settings

__all__ = ["outside_window_reason"]

#: Operations that repair or roll back do not wait for a maintenance window.
_URGENT = frozenset(each.value for each in (Operation.HEAL, Operation.FILL, Operation.ROLLBACK))


def outside_window_reason(record: PlanRecord, settings: Settings, now_ms: int) -> str:
    """Return why the plan submits no move now, and when it resumes; empty while its maintenance window is open.

    Heals, fills and rollbacks are urgent, and never wait for a window.
    """
    if record.operation in _URGENT:
        return ""
    window = window_of(settings.maintenance_window, settings.maintenance_timezone)
    opens_ms = None if window is None else window.closed_until_ms(now_ms)
    return "" if window is None or opens_ms is None else window.sentence(opens_ms)
