"""`airflow kafka-steward`: the command line for the operator on call, without a scheduler and without the UI.

::

    commands.py    the group that Airflow adds, from the verbs of the modules below
    verb.py        the execution of a verb: one cluster, one message on failure, an exit code
    look.py        status, plans, show, audit            decide.py   verify, abandon
    drive.py       apply, resume                         cancel.py   cancel
    journal.py     journal copy
"""

from __future__ import annotations

from kafka_steward.cli.commands import get_kafka_steward_commands

__all__ = ["get_kafka_steward_commands"]
