"""Execution of a verb: one cluster's hook, the result on standard output, one message on failure, an exit code.

Results are printed in the requested format; all other messages go to standard error.
"""

from __future__ import annotations

import argparse
import csv
import getpass
import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow.cli.cli_config import ARG_VERBOSE, ActionCommand, Arg

from kafka_steward.errors import StewardError
from kafka_steward.escaping import csv_cell, printable

if TYPE_CHECKING:
    from argparse import Namespace

    from kafka_steward.hooks.steward import StewardHook
    from kafka_steward.journal.audit import Actor


class Exit(IntEnum):
    """The exit codes. Every code except DONE comes with a message on standard error."""

    #: The request was completed.
    DONE = 0
    #: The request failed, or was completed only in part.
    FAILED = 1
    #: The command line is invalid; argparse uses the same code.
    USAGE = 2
    #: The plan is in progress, or needs operator action: nothing is lost, and `resume` continues it.
    UNFINISHED = 3
    #: Ctrl-C or SIGTERM: the plan, if one was published, can be resumed or cancelled.
    INTERRUPTED = 130


EXIT_CODES = """exit codes:
  0    done
  1    failed, or not all of it could be done; a sentence on standard error says why
  2    the command line is wrong
  3    still in progress, or it waits for a person
  130  interrupted by Ctrl-C or SIGTERM: the plan can be resumed or cancelled"""


def print_error(*lines: str) -> None:
    """Print messages that are not part of the result to standard error."""
    print(*map(printable, lines), sep="\n", file=sys.stderr, flush=True)


#: The maximum width of a cell: longer texts are truncated, except in the last column.
_WIDEST = 70


class Table(NamedTuple):
    """Column headings, and rows with one cell per column. Each cell is one printable line."""

    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]

    @classmethod
    def of(cls, columns: tuple[str, ...], rows: Iterable[Sequence[str]]) -> Table:
        """Make a table of any texts: line breaks and terminal escape codes are replaced."""
        return cls(columns, [tuple(map(printable, row)) for row in rows])

    def lines(self) -> list[str]:
        """Return the table as aligned lines; long cells are truncated, except in the last column."""
        cut = [self.columns, *((*(_cut(cell) for cell in row[:-1]), row[-1]) for row in self.rows)]
        widths = [max(len(row[column]) for row in cut) for column in range(len(self.columns))]
        lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cut)
        return [line.rstrip() for line in lines]


def _cut(line: str) -> str:
    return line if len(line) <= _WIDEST else f"{line[: _WIDEST - 3]}..."


@dataclass(frozen=True)
class Output:
    """Prints results in the format `form`: table, json or csv."""

    form: str

    def rows(self, rows: Sequence[Mapping[str, Any]], table: Table) -> None:
        """Print several items: `table` as text; `rows` as a JSON list, or as CSV with a header line."""
        if self.form == "json":
            print(json.dumps(rows))
        elif self.form == "csv":
            _print_csv(rows)
        else:
            _print_lines(table.lines())

    def facts(self, facts: Mapping[str, Any], lines: Iterable[str]) -> None:
        """Print one item: `lines` as text; `facts` as a JSON object, or as CSV with a header and one line."""
        if self.form == "json":
            print(json.dumps(facts))
        elif self.form == "csv":
            _print_csv([facts])
        else:
            _print_lines(lines)


def _print_lines(lines: Iterable[str]) -> None:
    print(*map(printable, lines), sep="\n")


def _print_csv(rows: Sequence[Mapping[str, Any]]) -> None:
    if not rows:
        return
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(rows[0])
    writer.writerows([_cell(value) for value in row.values()] for row in rows)


def _cell(value: Any) -> Any:
    """Return the CSV cell for a value: lists and objects become JSON; None stays None, which is an empty cell."""
    text = json.dumps(value) if isinstance(value, list | dict | tuple) else value
    return csv_cell(text) if isinstance(text, str) else text


_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}

_FACTORS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}


def _bytes(text: str) -> int:
    found = re.fullmatch(r"(\d+)([kMG]?)", text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of bytes per second, such as 50000000 or 50M")
    return int(found[1]) * _FACTORS[found[2]]


def time_ago(text: str) -> int | datetime:
    """Parse a duration, as milliseconds ago, or a point in time; a time without a time zone is UTC."""
    ago = re.fullmatch(r"(\d+)([smhd])", text)
    if ago:
        return int(ago[1]) * _SECONDS[ago[2]] * 1000
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither like 2h (s, m, h, d) nor like 2026-11-21T08:00"
        ) from error
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)


def moment_ms(time: int | datetime, now_ms: int) -> int:
    """Return a value of `time_ago` as milliseconds since 1970."""
    return now_ms - time if isinstance(time, int) else int(time.timestamp() * 1000)


PLAN = Arg(("plan",), help="Its digest, or the beginning of it", metavar="PLAN")

PLAN_UNDER_WAY = Arg(
    ("plan",), help="Its digest, or the beginning of it; without: the plan under way", nargs="?", metavar="PLAN"
)

REASON = Arg(("--reason",), help="Why, for those who read the audit trail", default="")

RATE = Arg(("rate",), help="Bytes per second into one broker: 50000000 or 50M; 0: none", type=_bytes, metavar="RATE")

THROTTLE = Arg(
    ("--throttle",), help="Bytes per second into one broker: 50000000 or 50M; 0: none", type=_bytes, metavar="BYTES"
)


_PROCESS_CONTEXT = "_AIRFLOW_PROCESS_CONTEXT"

_CLUSTER = Arg(
    ("--cluster", "--conn-id"),
    help="Airflow connection of the cluster, of type kafka_steward (default: kafka_steward_default)",
    default="kafka_steward_default",
    metavar="CONN_ID",
    dest="cluster",
)

_OUTPUT = Arg(
    ("-o", "--output"),
    help="table for people (the default), json or csv for programs",
    choices=("table", "json", "csv"),
    default="table",
)


@dataclass
class CommandContext:
    """One call of a verb: its arguments, the cluster's hook, the actor, and the output."""

    arguments: Namespace

    @cached_property
    def hook(self) -> StewardHook:
        """The hook of the cluster's connection; `--throttle` overrides its setting."""
        from kafka_steward.hooks.steward import StewardHook

        throttle = getattr(self.arguments, "throttle", None)
        return StewardHook(self.arguments.cluster, {} if throttle is None else {"throttle": throttle})

    @cached_property
    def out(self) -> Output:
        """The output for the result, in the requested format."""
        from kafka_steward.cli.verb import Output

        return Output(self.arguments.output)

    @property
    def who(self) -> Actor:
        """The operating-system user at the terminal, as the actor for the audit trail."""
        from kafka_steward.journal.audit import Actor

        try:
            return Actor(person=getpass.getuser())
        except (KeyError, OSError):
            # A container may run under a user id without a name.
            return Actor(person=f"uid {os.getuid()}")

    def command(self, words: str) -> str:
        """Return a command line for the same cluster, which the user may run next."""
        return f"airflow kafka-steward {words} --cluster {shlex.quote(self.arguments.cluster)}"


#: The function of a verb. Raises StewardError, whose text is one message; None means that the request was completed.
Act = Callable[[CommandContext], Exit | None]


def verb(
    name: str, about: str, act: Act, args: Sequence[Any] = (), *, examples: Sequence[str] = (), details: str = ""
) -> ActionCommand:
    """Create a verb as an Airflow command. `args` precede the arguments that every verb has.

    `examples` omit `airflow kafka-steward`. `about` is the verb's line in the list of verbs; `details` follow it in the
    help of the verb.
    """
    message = f"{about}.\n\n{details}" if details else None
    shown = "".join(f"\n  airflow kafka-steward {example}" for example in examples)
    epilog = f"examples:{shown}" if shown else None
    return ActionCommand(name, about, _Command(act), (*args, _CLUSTER, _OUTPUT, ARG_VERBOSE), message, epilog)


@dataclass(frozen=True)
class _Command:
    act: Act

    def __call__(self, arguments: Namespace) -> None:
        # Airflow logs to standard output, which would mix log lines into the result.
        from airflow.utils.cli import suppress_logs_and_warning

        suppress_logs_and_warning(lambda given: _act(self.act, CommandContext(given)))(arguments)


def _act(act: Act, call: CommandContext) -> None:
    try:
        with _metadata_database():
            code = act(call)
            sys.stdout.flush()
    except StewardError as error:
        print(printable(str(error)), file=sys.stderr)
        raise SystemExit(Exit.FAILED) from error
    except KeyboardInterrupt as error:
        raise SystemExit(Exit.INTERRUPTED) from error
    except BrokenPipeError as error:
        # The reader, such as `head`, closed the pipe. Python would report the error again when it closes the stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(Exit.FAILED) from error
    if code:
        raise SystemExit(code)


@contextmanager
def _metadata_database() -> Iterator[None]:
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
