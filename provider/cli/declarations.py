"""The form in which the verbs are declared: as Airflow's command line declares its own, without an import of Airflow.

`kafka-steward` makes its parser of them by itself, `airflow kafka-steward` by Airflow, which takes seconds to import.
"""

from __future__ import annotations

import argparse
from argparse import Namespace
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from airflow.cli import cli_config


class Arg:
    """An argument of a verb: its flags or its name, and the options of `ArgumentParser.add_argument`."""

    def __init__(self, flags: tuple[str, ...], **options: Any) -> None:
        self.flags = flags
        self.options = options


class ActionCommand(NamedTuple):
    """A verb: `help` is its line in the list of verbs, `description` and `epilog` begin and end its own help."""

    name: str
    help: str
    func: Callable[[Namespace], None]
    args: Sequence[Arg]
    description: str | None = None
    epilog: str | None = None


class GroupCommand(NamedTuple):
    """A word under which verbs stand."""

    name: str
    help: str
    subcommands: Sequence[ActionCommand | GroupCommand]
    description: str | None = None
    epilog: str | None = None


def add_to_parser(
    parser: argparse.ArgumentParser,
    commands: Sequence[ActionCommand | GroupCommand],
    words: Sequence[str] | None = None,
) -> None:
    """Add `commands` to `parser`, in the order of their names; with `words`, complete only what they begin with.

    The arguments of all verbs take longer to add than most commands run.
    """
    below = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in sorted(commands, key=lambda command: command.name):
        added = below.add_parser(
            command.name,
            help=command.help,
            description=as_console(command.description or command.help),
            epilog=as_console(command.epilog or ""),
            formatter_class=parser.formatter_class,
        )
        if words is not None and command.name not in words[:1]:
            continue
        if isinstance(command, GroupCommand):
            add_to_parser(added, command.subcommands, words and words[1:])
            continue
        for arg in command.args:
            added.add_argument(*arg.flags, **arg.options)
        added.set_defaults(func=command.func)


def as_console(text: str) -> str:
    """Return a text of the help with its commands as `kafka-steward` takes them."""
    return text.replace("airflow kafka-steward", "kafka-steward")


def to_airflow(command: ActionCommand | GroupCommand) -> cli_config.ActionCommand | cli_config.GroupCommand:
    """Return `command` as Airflow's command line takes it."""
    from airflow.cli import cli_config  # noqa: PLC0415 - only `airflow` itself needs it

    if isinstance(command, GroupCommand):
        below = tuple(to_airflow(subcommand) for subcommand in command.subcommands)
        return cli_config.GroupCommand(command.name, command.help, below, command.description, command.epilog)
    args = [cli_config.Arg(arg.flags, **arg.options) for arg in command.args]
    return cli_config.ActionCommand(command.name, command.help, command.func, args, command.description, command.epilog)
