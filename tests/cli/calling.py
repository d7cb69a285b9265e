"""Calls a verb as `airflow kafka-steward` does, in this process."""

from __future__ import annotations

import argparse

from kafka_steward.cli import declare_commands
from kafka_steward.cli.declarations import add_to_parser


def run(*words: str) -> int:
    """Run `airflow kafka-steward WORDS`; returns the exit code."""
    parser = argparse.ArgumentParser(prog="airflow kafka-steward")
    add_to_parser(parser, declare_commands().subcommands, words)
    try:
        arguments = parser.parse_args(words)
        arguments.func(arguments)
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0
