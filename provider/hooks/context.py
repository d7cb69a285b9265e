"""Settings and actor of a run, read from a task's context. Imports no module that connects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from kafka_steward.settings import SETTINGS

if TYPE_CHECKING:
    from airflow.sdk import Context

    from kafka_steward.hooks.steward import StewardHook
    from kafka_steward.journal.audit import Actor


#: Airflow's run types that no user started. A backfill is not one: a user requests it, with their own parameters.
_UNATTENDED = frozenset({"scheduled", "asset_triggered"})


def hook_of(operator: Any, context: Context) -> StewardHook:
    """Return the hook of an operator with `conn_id` and `settings`, for one run."""
    # Imported when a task runs, so that DAG files are parsed without Kafka, SQL or Spark.
    from kafka_steward.hooks.steward import StewardHook  # noqa: PLC0415

    journal = _event_journal(operator.conn_id, context)
    return StewardHook(operator.conn_id, merge_overrides(operator.settings, context), journal)


def _event_journal(conn_id: str, context: Context) -> Mapping[str, Any] | None:
    """Return the journal of the watch whose event started this run, as the event names it; None without such an event.

    The newest event counts: the first run of a DAG gets all that its asset ever had, in Airflow 3.2.
    """
    journal = next((payload.get("journal") for payload in event_payloads(conn_id, context)[::-1]), None)
    return journal if isinstance(journal, Mapping) else None


def event_payloads(conn_id: str, context: Context) -> list[Mapping[str, Any]]:
    """Return what the watch of `conn_id` said in the events that started this run, the newest last.

    An event may belong to another cluster: any DAG may be scheduled on any watch.
    """
    events = getattr(context.get("dag_run"), "consumed_asset_events", None) or ()
    payloads = [(event.extra or {}).get("payload") for event in sorted(events, key=lambda event: event.timestamp)]
    return [payload for payload in payloads if isinstance(payload, Mapping) and payload.get("conn_id") == conn_id]


def merge_overrides(settings: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """Return the operator's settings with this run's parameters merged in, which have precedence."""
    params = context.get("params") or {}
    by_run = {name: params[name] for name in SETTINGS if name in params and params[name] is not None}
    return {**settings, **by_run}


def is_scheduled(context: Context) -> bool:
    """Return whether a schedule or an event started this run: no user, no other DAG, and no parameters given to it."""
    run = context.get("dag_run")
    kind = getattr(run, "run_type", "manual")
    by_person = getattr(run, "triggering_user_name", None) is not None or bool(getattr(run, "conf", None))
    return str(getattr(kind, "value", kind)) in _UNATTENDED and not by_person


def requester_of(context: Context) -> str:
    """Return who started the run, for a person to read: the user, else the schedule, the event or the other DAG."""
    run = context.get("dag_run")
    person = getattr(run, "triggering_user_name", None)
    kind = getattr(run, "run_type", "manual")
    by = {"scheduled": "the schedule", "asset_triggered": "an event", "operator_triggered": "another DAG"}
    return person or by.get(str(getattr(kind, "value", kind)), "a user without a name")


def actor_of(context: Context) -> Actor:
    """Return the actor of this task for the audit trail: its try, and the user who started the run, if one did."""
    from kafka_steward.journal.audit import Actor  # noqa: PLC0415 - DAG files are parsed without SQL

    task = context["ti"]
    person = getattr(context.get("dag_run"), "triggering_user_name", None)
    return Actor(task.dag_id, task.run_id, task.task_id, task.try_number, person)


def actor_fields(context: Context) -> dict[str, Any]:
    """Return the actor as JSON values, for a trigger to serialize."""
    return asdict(actor_of(context))
