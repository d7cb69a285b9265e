"""`airflow kafka-steward`: what a cluster, its plans and its audit trail look like, from the command line."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow.cli.cli_config import ARG_VERBOSE, ActionCommand, Arg, GroupCommand, positive_int

from kafka_steward.errors import StewardError

if TYPE_CHECKING:
    from argparse import Namespace

    from kafka_steward.hooks.steward import Opened, StewardHook
    from kafka_steward.journal.open import Journal
    from kafka_steward.journal.render import Table

__all__ = ["get_kafka_steward_commands"]

_PROCESS_CONTEXT = "_AIRFLOW_PROCESS_CONTEXT"
_EPILOG = """
Each command takes the Airflow connection of one cluster (type kafka_steward). Examples:

  airflow kafka-steward status --conn-id kafka_production
  airflow kafka-steward plans --limit 5
  airflow kafka-steward audit --plan 3f2a91c0 --json
"""


def get_kafka_steward_commands() -> list[GroupCommand]:
    """What `airflow` adds to its command line."""
    conn_id = Arg(("--conn-id",), help="The cluster's connection", default="kafka_steward_default")
    as_json = Arg(("--json",), help="Print JSON, for programs", action="store_true")
    limit = Arg(("--limit",), help="How many of the newest", type=positive_int(allow_zero=False), default=50)
    plan = Arg(("--plan",), help="Only this plan: its digest, or the beginning of it")
    shared = (conn_id, as_json, ARG_VERBOSE)
    commands = (
        ActionCommand("status", "How the cluster is, and the plan that owns it", _command(_status), shared),
        ActionCommand("plans", "The newest plans", _command(_plans), (limit, *shared)),
        ActionCommand("audit", "What was done, why, and by whom", _command(_audit), (plan, limit, *shared)),
    )
    described = "Look at Kafka clusters that Kafka Steward keeps whole. Nothing here changes a cluster."
    return [GroupCommand("kafka-steward", "Keep Kafka clusters whole", commands, described, _EPILOG)]


def _command(act: Callable[[StewardHook, Namespace], Iterable[str]]) -> Callable[[Namespace], None]:
    def run(arguments: Namespace) -> None:
        # Airflow logs to standard output, into the middle of what is printed there.
        from airflow.utils.cli import suppress_logs_and_warning  # noqa: PLC0415 - `airflow` starts without it

        suppress_logs_and_warning(lambda given: _act(act, given))(arguments)

    return run


def _act(act: Callable[[StewardHook, Namespace], Iterable[str]], arguments: Namespace) -> None:
    from kafka_steward.hooks.steward import StewardHook  # noqa: PLC0415 - `airflow` starts without Kafka

    try:
        with _metadata_database():
            for line in act(StewardHook(arguments.conn_id), arguments):
                print(line)
    except StewardError as error:
        print(error, file=sys.stderr)
        raise SystemExit(1) from error


@contextmanager
def _metadata_database() -> Iterator[None]:
    # A command of `airflow` is no task: unless it says so, as Airflow's own do, connections of the UI are not found.
    before = os.environ.get(_PROCESS_CONTEXT)
    os.environ[_PROCESS_CONTEXT] = "server"
    try:
        yield
    finally:
        del os.environ[_PROCESS_CONTEXT]
        if before is not None:
            os.environ[_PROCESS_CONTEXT] = before


def _status(hook: StewardHook, arguments: Namespace) -> Iterable[str]:
    with hook.open() as opened:
        facts = _facts(opened)
        if arguments.json:
            return [json.dumps(facts)]
        lines = [f"{name.replace('_', ' ')}: {_text(value)}" for name, value in facts.items() if name != "plans"]
        return lines + [line for record in opened.journal.plans.unfinished() for line in _plan_lines(opened, record)]


def _plans(hook: StewardHook, arguments: Namespace) -> Iterable[str]:
    from kafka_steward.journal.render import plans_table  # noqa: PLC0415 - `airflow` starts without SQL

    with hook.journal(hook.cluster_id()) as journal:
        return _printed(plans_table(journal.plans.latest(arguments.limit)), arguments)


def _audit(hook: StewardHook, arguments: Namespace) -> Iterable[str]:
    from kafka_steward.journal.render import audit_table  # noqa: PLC0415 - `airflow` starts without SQL

    with hook.journal(hook.cluster_id()) as journal:
        plan = _digest(journal, arguments.plan) if arguments.plan else None
        return _printed(audit_table(journal.audit.rows(plan=plan, limit=arguments.limit)), arguments)


def _facts(opened: Opened) -> dict[str, Any]:
    from kafka_steward.journal import paths  # noqa: PLC0415 - `airflow` starts without SQL

    snapshot, journal = opened.cluster.snapshot(), opened.journal
    return {
        "cluster_id": snapshot.cluster_id,
        "mode": "ZooKeeper" if opened.cluster.zookeeper_mode else "KRaft",
        "live_brokers": sorted(snapshot.live),
        "dead_brokers": sorted(snapshot.hosting - snapshot.live),
        "failures_written_down": [int(name) for name in journal.tree.children(paths.FAILED_BROKERS)],
        "partitions": len(snapshot.partitions),
        "under_replicated": sum(partition.under_replicated for partition in snapshot.partitions.values()),
        "reassigning": len(snapshot.reassigning),
        "plans": [record.digest for record in journal.plans.unfinished()],
    }


def _plan_lines(opened: Opened, record: Any) -> list[str]:
    from kafka_steward.journal.render import plan_lines  # noqa: PLC0415 - `airflow` starts without SQL

    return plan_lines(record, opened.journal.plans.rows(record.digest))


def _digest(journal: Journal, beginning: str) -> str:
    if journal.plans.get(beginning):
        return beginning
    found = [record.digest for record in journal.plans.latest(1000) if record.digest.startswith(beginning)]
    if len(found) != 1:
        what = f"{len(found)} plans begin" if found else "no plan begins"
        raise StewardError(f"In the journal of cluster {journal.cluster_id}, {what} with {beginning}; see `plans`.")
    return found[0]


def _printed(table: Table, arguments: Namespace) -> list[str]:
    if arguments.json:
        return [json.dumps([dict(zip(table.columns, row, strict=True)) for row in table.rows])]
    return table.lines()


def _text(value: Any) -> str:
    return (", ".join(str(item) for item in value) or "none") if isinstance(value, list) else str(value)
