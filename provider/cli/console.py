"""`kafka-steward`: the verbs of `airflow kafka-steward`, without the seconds that Airflow takes to start."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from kafka_steward import __version__
from kafka_steward.cli import declare_commands
from kafka_steward.cli.declarations import add_to_parser, as_console

#: Set by the shell that asks for completions of a command line.
_COMPLETING = "_ARGCOMPLETE"


def build_parser(words: Sequence[str] | None) -> argparse.ArgumentParser:
    """Return the parser for a command line that begins with `words`; None for all command lines."""
    group = declare_commands()
    parser = argparse.ArgumentParser(
        prog="kafka-steward",
        description=as_console(group.description or ""),
        epilog=as_console(group.epilog or ""),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"kafka-steward {__version__}")
    add_to_parser(parser, group.subcommands, words)
    return parser


def main() -> None:
    """Run the command line of this process. Raises SystemExit with one of the codes of `Exit`."""
    if _COMPLETING in os.environ:
        from argcomplete import autocomplete  # noqa: PLC0415 - only the shell asks for it

        autocomplete(build_parser(None))
    words = sys.argv[1:]
    arguments = build_parser(words).parse_args(words)
    arguments.func(arguments)
