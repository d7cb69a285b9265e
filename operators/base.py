"""What every operator here shares: which cluster, with which settings, on whose behalf."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from kafka_steward.settings import Settings

if TYPE_CHECKING:
    from airflow.sdk import Context

    from kafka_steward.hooks.steward import Opened, StewardHook
    from kafka_steward.journal.audit import Who

__all__ = ["StewardOperator", "folder_of", "hook_of", "overrides_of", "who_fields", "who_of"]

_SETTINGS = tuple(knob.name for knob in fields(Settings))
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


class StewardOperator(BaseOperator):
    """An operator of the cluster behind `conn_id`.

    `settings` overrides settings of the connection by name; a DAG parameter of the same name overrides both.
    """

    template_fields: Sequence[str] = ("conn_id", "settings")

    def __init__(
        self,
        *,
        conn_id: str = "kafka_steward_default",
        settings: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.conn_id = conn_id
        self.settings = dict(settings or {})

    def open(self, context: Context) -> Opened:
        """The cluster and its journal, connected: a context manager. Raises a StewardError, which is one sentence."""
        return hook_of(self, context).open()


def hook_of(operator: Any, context: Context) -> StewardHook:
    """The hook of an operator with `conn_id` and `settings`, for one run."""
    # Imported when a task runs: DAG files are parsed without Kafka, SQL or Spark.
    from kafka_steward.hooks.steward import StewardHook  # noqa: PLC0415

    return StewardHook(operator.conn_id, overrides_of(operator.settings, context))


def overrides_of(settings: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """The settings that this run overrides: its parameters, which win over the operator's own."""
    params = context.get("params") or {}
    by_run = {name: params[name] for name in _SETTINGS if name in params and params[name] is not None}
    return {**settings, **by_run}


def who_of(context: Context) -> Who:
    """On whose behalf this task acts, for the audit trail: its try, and the person who started the run, if one did."""
    from kafka_steward.journal.audit import Who  # noqa: PLC0415 - DAG files are parsed without SQL

    task = context["ti"]
    person = getattr(context.get("dag_run"), "triggering_user_name", None)
    return Who(task.dag_id, task.run_id, task.task_id, task.try_number, person)


def who_fields(context: Context) -> dict[str, Any]:
    """The same as JSON, for a trigger to carry."""
    return asdict(who_of(context))


def folder_of(opened: Opened, context: Context, what: str) -> str:
    """Where this try of this run puts its snapshot or plan: no other try writes there."""
    task = context["ti"]
    run = "/".join(_UNSAFE.sub("_", part) for part in (opened.cluster.cluster_id, task.dag_id, task.run_id))
    return f"{opened.access.workspace}/{run}/{_UNSAFE.sub('_', task.task_id)}-{what}-{task.try_number}"
