"""Calls a verb as Airflow's own command line does, in this process."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence

from airflow.cli.cli_config import ActionCommand, GroupCommand

from kafka_steward.cli import get_kafka_steward_commands


def run(*words: str) -> int:
    """Run `airflow kafka-steward WORDS`; returns the exit code."""
    parser = argparse.ArgumentParser(prog="airflow kafka-steward")
    add_verbs(parser, get_kafka_steward_commands()[0].subcommands, words)
    try:
        arguments = parser.parse_args(words)
        arguments.func(arguments)
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def add_verbs(
    parser: argparse.ArgumentParser,
    commands: Iterable[ActionCommand | GroupCommand],
    words: Sequence[str] | None = None,
) -> None:
    """Add the verbs, and arguments to the one that `words` begin with: those of all take longer than most tests."""
    below = parser.add_subparsers(required=True)
    for command in commands:
        added = below.add_parser(command.name, help=command.help, epilog=command.epilog)
        if words is not None and command.name != words[0]:
            continue
        if isinstance(command, GroupCommand):
            add_verbs(added, command.subcommands, words and words[1:])
            continue
        for argument in command.args:
            argument.add_to_parser(added)
        added.set_defaults(func=command.func)
