"""How a verb is called: one cluster's hook, an answer on standard output, one sentence on failure, an exit code."""

from __future__ import annotations

import getpass
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.cli.cli_config import ARG_VERBOSE, ActionCommand, Arg

from kafka_steward.cli.exits import Exit
from kafka_steward.errors import StewardError
from kafka_steward.escaping import printable

if TYPE_CHECKING:
    from argparse import Namespace

    from kafka_steward.cli.output import Output
    from kafka_steward.hooks.steward import StewardHook
    from kafka_steward.journal.audit import Who

__all__ = ["Act", "Call", "verb"]

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
class Call:
    """One call of a verb: what was asked for, of which cluster, by whom, and where the answer goes."""

    arguments: Namespace

    @cached_property
    def hook(self) -> StewardHook:
        """The cluster's connection; `--throttle` wins over what it says."""
        from kafka_steward.hooks.steward import StewardHook

        throttle = getattr(self.arguments, "throttle", None)
        return StewardHook(self.arguments.cluster, {} if throttle is None else {"throttle": throttle})

    @cached_property
    def out(self) -> Output:
        """Where the answer goes, in the form that was asked for."""
        from kafka_steward.cli.output import Output

        return Output(self.arguments.output)

    @property
    def who(self) -> Who:
        """The person at the terminal, as the operating system names them, for the audit trail."""
        from kafka_steward.journal.audit import Who

        try:
            return Who(person=getpass.getuser())
        except (KeyError, OSError):
            # A container may run under an id that nobody gave a name.
            return Who(person=f"uid {os.getuid()}")

    def command(self, words: str) -> str:
        """A command line that the person may type next, for the same cluster."""
        return f"airflow kafka-steward {words} --cluster {shlex.quote(self.arguments.cluster)}"


#: What a verb does. Raises a StewardError, which is one sentence; None means that all was done.
Act = Callable[[Call], Exit | None]


def verb(
    name: str, about: str, act: Act, args: Sequence[Any] = (), *, examples: Sequence[str] = (), details: str = ""
) -> ActionCommand:
    """A verb as Airflow takes it. `args` come before those that every verb has; `examples` without `airflow ...`.

    `about` is its line in the list of verbs; `details` go below that in its own help.
    """
    told = f"{about}.\n\n{details}" if details else None
    shown = "".join(f"\n  airflow kafka-steward {example}" for example in examples)
    epilog = f"examples:{shown}" if shown else None
    return ActionCommand(name, about, _Command(act), (*args, _CLUSTER, _OUTPUT, ARG_VERBOSE), told, epilog)


@dataclass(frozen=True)
class _Command:
    act: Act

    def __call__(self, arguments: Namespace) -> None:
        # Airflow logs to standard output, into the middle of what is printed there.
        from airflow.utils.cli import suppress_logs_and_warning

        suppress_logs_and_warning(lambda given: _act(self.act, Call(given)))(arguments)


def _act(act: Act, call: Call) -> None:
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
        # The reader, such as `head`, has seen enough. Python would complain once more when it closes the stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(Exit.FAILED) from error
    if code:
        raise SystemExit(code)


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
