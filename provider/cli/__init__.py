"""`airflow kafka-steward`: the command line for the operator on call, without a scheduler and without the UI.

::

    verb.py        the execution of a verb: one cluster, one message on failure, an exit code
    foreground.py  steps of a plan to its end, with a bar, and Ctrl-C
    show.py        status, plans, show, audit           manage.py    verify, throttle, abandon
    execute.py     apply, resume                        cancel.py    cancel
    protocol.py    the KIPs' documents, and watch       pending.py   owed
    journal.py     journal copy, pair, archive
"""

from __future__ import annotations

from airflow.cli.cli_config import ActionCommand, GroupCommand

from kafka_steward.cli import cancel, execute, journal, manage, pending, protocol, show
from kafka_steward.cli.verb import EXIT_CODES

__all__ = ["get_kafka_steward_commands"]

_ABOUT = """Reassign the partitions of a Kafka cluster, watch it, stop it, and take it back.

Works without a scheduler and without the UI, beside the DAGs and in step with them: the same plans, the same journal,
the same locks, the same audit trail, in which your user name stands. Each verb takes the Airflow connection of one
cluster; give it in the environment (AIRFLOW_CONN_KAFKA_PRODUCTION) where Airflow's own database does not answer."""

_EPILOG = f"""examples:
  airflow kafka-steward status --cluster kafka_production
  airflow kafka-steward apply reassignment.json --throttle 20M --cluster kafka_production
  airflow kafka-steward cancel --scope plan --reason 'wrong racks' --cluster kafka_production
  airflow kafka-steward audit --plan 3f2a91c0 --output json

{EXIT_CODES}"""


def get_kafka_steward_commands() -> list[GroupCommand]:
    """Return the command groups that `airflow` adds to its command line."""
    return [GroupCommand("kafka-steward", "Keep Kafka clusters whole", _verbs(), _ABOUT, _EPILOG)]


def _verbs() -> tuple[ActionCommand | GroupCommand, ...]:
    """Return the verbs of all modules. Register a new module of verbs here."""
    modules = (show, pending, execute, cancel, manage, journal, protocol)
    return tuple(verb for module in modules for verb in module.verbs())
