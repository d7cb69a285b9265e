"""The requests of each task of Airflow: a further try of the task repeats them, and means the same plan."""

from __future__ import annotations

from kafka_steward.journal.audit import Action, Actor, AuditRecord, event_number
from kafka_steward.journal.records import TASK_REQUESTS, TaskRequest
from kafka_steward.journal.store import Journal


def record_request(journal: Journal, entry: AuditRecord, *, has_effect: bool) -> None:
    """Record a request, whose `attempt` is the number of an event: one row of the audit trail, completed at once.

    A further try of an Airflow task repeats the request of the try before it, and a run that no person triggered
    the request whose event started it. Without an effect, that is not recorded again.
    """
    if entry.who.run_id is None:
        journal.audit.record(entry)
        return
    rows, key = journal.rows(TASK_REQUESTS), _key(entry.who)
    number = event_number(entry.action.value, entry.plan, entry.who.person, entry.reason, entry.after)
    with journal.transaction():
        row = rows.get(key)
        numbers = () if row is None else row.value.numbers
        if has_effect or not (number in numbers or (entry.who.person is None and entry.action is Action.REQUEST)):
            journal.audit.record(entry)
        if number not in numbers or (row is not None and row.value.plan != entry.plan):
            rows.put(key, TaskRequest(entry.plan, tuple(dict.fromkeys((*numbers, number)))), row)


def last_requested_plan(journal: Journal, who: Actor) -> str | None:
    """Return the digest of the plan of the task's last request in this run; None without one."""
    row = None if who.run_id is None else journal.rows(TASK_REQUESTS).get(_key(who))
    return None if row is None else row.value.plan or None


def _key(who: Actor) -> str:
    return f"{who.dag_id}/{who.run_id}/{who.task_id}"
