"""Execution of a verb: one cluster's hook, the result on standard output, one message on failure, an exit code."""

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
    from kafka_steward.journal.audit import Actor

__all__ = ["Act", "CommandContext", "verb"]

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
        from kafka_steward.cli.output import Output

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
    told = f"{about}.\n\n{details}" if details else None
    shown = "".join(f"\n  airflow kafka-steward {example}" for example in examples)
    epilog = f"examples:{shown}" if shown else None
    return ActionCommand(name, about, _Command(act), (*args, _CLUSTER, _OUTPUT, ARG_VERBOSE), told, epilog)


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
