"""Execution of a verb: one cluster's hook, the result on standard output, one message on failure, an exit code.

Results are printed in the requested format; all other messages go to standard error.
"""

from __future__ import annotations

import csv
import getpass
import json
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kafka_steward.cli import Exit
from kafka_steward.cluster.state import Broker
from kafka_steward.commands import command_line
from kafka_steward.doctor.findings import Commands
from kafka_steward.errors import StewardError
from kafka_steward.escaping import escape_csv_cell, printable
from kafka_steward.journal.audit import Actor, event_number
from kafka_steward.journal.render import Table
from kafka_steward.journal.store import Journal

if TYPE_CHECKING:
    from kafka_steward.cli.direct import DirectAccess
    from kafka_steward.cluster.client import KafkaCluster
    from kafka_steward.hooks.cluster_config import ClusterConfig
    from kafka_steward.hooks.session import ClusterSession
    from kafka_steward.hooks.steward import StewardHook


def print_error(*lines: str) -> None:
    """Print messages that are not part of the result to standard error; without any, print nothing."""
    if lines:
        print(*map(printable, lines), sep="\n", file=sys.stderr, flush=True)


#: What a result without a journal lacks.
NO_JOURNAL = (
    "Without an Airflow connection, no journal was read: plans, requests and failures that Kafka Steward keeps there "
    "are not known here, and every setting has its default."
)


@dataclass(frozen=True)
class Output:
    """Prints results in the format `form`: table, json or csv."""

    form: str

    def print_rows(self, rows: Sequence[Mapping[str, Any]], table: Table) -> None:
        """Print several items: `table` as text; `rows` as a JSON list, or as CSV with a header line."""
        self._print_format(rows, rows, table.lines())

    def print_document(self, document: Any, rows: Sequence[Mapping[str, Any]], lines: Iterable[str]) -> None:
        """Print a document that another verb takes: as it stands in JSON; its `rows` in CSV; `lines` as text."""
        self._print_format(document, rows, lines)

    def print_facts(self, facts: Mapping[str, Any], lines: Iterable[str]) -> None:
        """Print one item: `lines` as text; `facts` as a JSON object, or as CSV with a header and one line."""
        self._print_format(facts, [facts], lines)

    def _print_format(self, value: Any, rows: Sequence[Mapping[str, Any]], lines: Iterable[str]) -> None:
        if self.form == "json":
            print(json.dumps(value))
        elif self.form == "csv":
            _print_csv(rows)
        else:
            print(*map(printable, lines), sep="\n")


def _print_csv(rows: Sequence[Mapping[str, Any]]) -> None:
    if not rows:
        return
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(rows[0])
    writer.writerows([_to_csv_cell(value) for value in row.values()] for row in rows)


def _to_csv_cell(value: Any) -> Any:
    """Return the CSV cell for a value: lists and objects become JSON; None stays None, which is an empty cell."""
    text = json.dumps(value) if isinstance(value, list | dict | tuple) else value
    return escape_csv_cell(text) if isinstance(text, str) else text


_PROCESS_CONTEXT = "_AIRFLOW_PROCESS_CONTEXT"


@dataclass
class CommandContext:
    """One call of a verb: its arguments, the cluster's hook, the actor, and the output."""

    arguments: Namespace

    @cached_property
    def hook(self) -> StewardHook:
        """The hook of the cluster's connection; `--throttle` overrides its setting."""
        from kafka_steward.hooks import steward  # noqa: PLC0415 - Airflow takes seconds to import

        throttle = getattr(self.arguments, "throttle", None)
        return steward.StewardHook(self.arguments.cluster, {} if throttle is None else {"throttle": throttle})

    @cached_property
    def direct(self) -> DirectAccess | None:
        """The cluster of `--bootstrap-server`; None for that of a connection."""
        servers = self.arguments.bootstrap_server
        if servers is None:
            return None
        from kafka_steward.cli.direct import DirectAccess  # noqa: PLC0415 - most commands need a connection

        return DirectAccess(servers, self.arguments.command_config)

    @property
    def access(self) -> ClusterConfig:
        """The configuration of the cluster, from its connection or the command line. Raises SettingError."""
        return (self.direct or self.hook).access

    def open(self) -> ClusterSession:
        """Open the cluster, and its journal; with `--bootstrap-server` an empty one, which is deleted at the end."""
        return (self.direct or self.hook).open()

    @contextmanager
    def open_cluster(self) -> Iterator[KafkaCluster]:
        """Open the cluster alone, if no journal is used: an empty one takes most of the time of a look."""
        if self.direct is not None:
            with closing(self.direct.cluster()) as cluster:
                yield cluster
            return
        with self.hook.open() as opened:
            yield opened.cluster

    def journal(self, *, compare: bool = True) -> AbstractContextManager[Journal]:
        """Open the cluster's journal; the cluster itself need not respond."""
        return self.hook.journal(self.hook.cluster_id(), compare=compare)

    def connection(self, live: Mapping[int, Broker] | None = None) -> str:
        """Return the options by which Kafka's own tools connect: to `live` brokers, if the cluster was asked."""
        access = self.access
        return Commands.of(access.conn_id, access.client, access.bootstrap).reaching(live or {}).connection

    @cached_property
    def out(self) -> Output:
        """The output for the result, in the requested format."""
        return Output(self.arguments.output)

    @property
    def who(self) -> Actor:
        """The operating-system user at the terminal, as the actor for the audit trail."""
        try:
            return Actor(person=getpass.getuser())
        except (KeyError, OSError):
            # A container may run under a user id without a name.
            return Actor(person=f"uid {os.getuid()}")

    @cached_property
    def request_number(self) -> int:
        """The number of this call's request in the audit trail, for what is asked repeatedly until it is answered."""
        return event_number()

    @property
    def reason(self) -> str:
        """The given reason, or a text that says that none was given."""
        reason: str = self.arguments.reason.strip()
        return reason or "no reason was given"

    def command_line(self, words: str) -> str:
        """Return a command line for the same cluster, which the user may run next."""
        if self.direct is None:
            return command_line(words, self.arguments.cluster)
        return command_line(words, self.direct.access.conn_id, self.direct.options)


#: The function of a verb. Raises StewardError, whose text is one message; None means that the request was completed.
Verb = Callable[[CommandContext], Exit | None]


def run_verb(verb: Verb, arguments: Namespace) -> None:
    """Call `verb`. Raises SystemExit with its exit code, or with FAILED after printing the message of its error."""
    try:
        with _use_metadata_database():
            code = verb(CommandContext(arguments))
            sys.stdout.flush()
    except StewardError as error:
        print(printable(str(error)), file=sys.stderr)
        raise SystemExit(Exit.FAILED) from error
    except BrokenPipeError as error:
        # The reader, such as `head`, closed the pipe. Python would report the error again when it closes the stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(Exit.FAILED) from error
    if code:
        raise SystemExit(code)


@contextmanager
def _use_metadata_database() -> Iterator[None]:
    # An `airflow` command is not a task. Without this variable, which Airflow's own commands set too, connections from
    # the UI are not found.
    before = os.environ.get(_PROCESS_CONTEXT)
    os.environ[_PROCESS_CONTEXT] = "server"
    try:
        yield
    finally:
        del os.environ[_PROCESS_CONTEXT]
        if before is not None:
            os.environ[_PROCESS_CONTEXT] = before
