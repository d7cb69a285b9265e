"""The verbs `make-archive` and `prepare-spark`: what Spark needs, on its executors and on this machine."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from kafka_steward.cli.verb import CommandContext, print_error
from kafka_steward.planning.spark.archive import make_archive
from kafka_steward.planning.spark.installed import find_spark, record_class_archive


def make(context: CommandContext) -> None:
    """Write the archive, and print what it is made for. Neither a cluster nor a connection is needed."""
    file = Path(context.arguments.file).absolute()
    facts = make_archive(str(file))
    context.out.print_facts(
        {"archive": str(file), **asdict(facts)},
        (f"{file} is made for Python {facts.python} on {facts.platform}, of version {facts.version}.",),
    )
    print_error(
        f'Next, name it in the extra of the Spark connection, {{"archive": "{file}"}}, or its address in a store that '
        "workers and Spark read."
    )


def prepare(context: CommandContext) -> None:
    """Record the archive of Spark's classes for this machine. Neither a cluster nor a connection is needed."""
    file = record_class_archive(find_spark())
    megabytes = file.stat().st_size // 1_000_000
    context.out.print_facts(
        {"archive": str(file), "megabytes": megabytes},
        (f"Spark starts from {file} ({megabytes} MB) on this machine, until Java or Spark is upgraded.",),
    )
