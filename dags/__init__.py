"""Workflows: one function each, which returns a DAG.

All take a `conn_id`, the id of an Airflow connection; the default one adds nothing to the DAG's id. `settings` override
the connection's, and a run's own parameters override both. With `deferrable=False` the worker waits, else the triggerer
does. Plans are made by the Spark of the connection `spark_conn_id`, or without this argument of the setting of this
name, or without either on the worker. Notifiers (`on_failed`, `on_done`, ...) are functions, or Airflow's notifiers,
called with the task's context, to which `kafka_steward` is added. Those in `notify` are called at every event: also
when a plan begins, stalls or is stuck, and when a run fails. StewardNotifier of kafka_steward.notifications is one.

The other `options` are `dag_id`; `retries` (5) and `retry_delay` (30 s, with exponential backoff), which cover an
outage of Airflow's API server; `on_failed`; and every option of airflow.sdk.DAG. All raise SettingError, when the DAG
file is parsed, for a wrong setting.
"""

from __future__ import annotations

from kafka_steward.dags.alert import alert, alert_due
from kafka_steward.dags.apply import apply
from kafka_steward.dags.cancel import cancel
from kafka_steward.dags.controls import controls
from kafka_steward.dags.fill import broker_joined, fill
from kafka_steward.dags.heal import broker_failed, heal
from kafka_steward.dags.health import health
from kafka_steward.dags.probe import probe
from kafka_steward.dags.rebalance import broker_imbalanced, demoted_leads, disk_full, empty_broker_joined, rebalance
from kafka_steward.dags.throttle import throttle

__all__ = [
    "alert",
    "alert_due",
    "apply",
    "broker_failed",
    "broker_imbalanced",
    "broker_joined",
    "cancel",
    "controls",
    "demoted_leads",
    "disk_full",
    "empty_broker_joined",
    "fill",
    "heal",
    "health",
    "probe",
    "rebalance",
    "throttle",
]
