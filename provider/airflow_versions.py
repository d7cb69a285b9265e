"""What Airflow 3.2 lacks or has otherwise than 3.3. All of it may go with `apache-airflow>=3.3`."""

# ruff: noqa: F401, PLC0414 - other modules import these names from here

from __future__ import annotations

from kafka_steward.provider_info import refuse_old_airflow

# Before what an older Airflow lacks: a DAG file and a command then end with that sentence, not with an ImportError.
refuse_old_airflow()

from airflow.sdk.configuration import conf as conf  # noqa: E402
from airflow.sdk.exceptions import AirflowNotFoundException as AirflowNotFoundException  # noqa: E402

try:
    from airflow.sdk.exceptions import TaskAwaitingInput as TaskAwaitingInput
    from airflow.sdk.observability import stats as stats

    _BY_OPERATOR: tuple[str, ...] = ("operator_triggered",)
except ImportError:
    from airflow.sdk.exceptions import TaskDeferred as TaskAwaitingInput  # type: ignore[assignment]
    from airflow.sdk.observability.stats import Stats as stats  # type: ignore[no-redef]  # noqa: N813 - a module in 3.3

    _BY_OPERATOR = ()  # a run that another DAG started is manual

#: The states of a task that waits for a person's answer. In 3.2 it is deferred, to a trigger of Airflow's own.
AWAITING_APPROVAL = ("awaiting_input", "deferred")

#: How a run of our DAGs may be started: each way except by a backfill.
RUN_TYPES_BUT_BACKFILL = ("manual", "scheduled", "asset_triggered", "asset_materialization", *_BY_OPERATOR)
