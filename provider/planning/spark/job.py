"""The command line of the Spark job, which reads a snapshot and writes a plan with its proof, or checks a plan.

`python -m kafka_steward.planning --snapshot URI --out URI --operation heal` runs it on this machine; spark-submit
starts this file. The proof is the last line on standard output; the plan is in the workspace.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kafka_steward.assignment import OPERATIONS, Operation
from kafka_steward.errors import PlanError, StewardError
from kafka_steward.planning.checker.check import PlanVerdict, check
from kafka_steward.planning.files.formats import read_plan, read_snapshot, write_snapshot
from kafka_steward.planning.files.reassignment import (
    parse_directories,
    read_assignment,
    read_json,
    reassignment_json,
    snapshot_tables,
)
from kafka_steward.planning.options import Options, find_operation
from kafka_steward.planning.spark.archive import check_archive, make_archive, read_archive_facts
from kafka_steward.planning.spark.pipeline import check_with_spark, run
from kafka_steward.planning.spark.probe import probe_executors, probe_store
from kafka_steward.planning.spark.session import is_remote_session, planning_session, translate_worker_errors

#: Partitions up to which a plan is checked without Spark, which takes some seconds.
_PLAIN_ROWS = 30_000

_DIRECTORIES_NOTE = (
    'The log directories that the reassignment names (KIP-113) are taken as "any": a plan has none, and the broker '
    "chooses the directory of a replica that it does not hold."
)

_DESCRIPTION = """\
Plans which replicas of a Kafka cluster should move where: the fewest moves, then the fewest bytes, and a proof of it.
Neither a cluster nor Airflow is needed, only Java 17 or newer. The last line printed is the proof, as JSON."""

_EXAMPLES = """\
examples:
  # what would adding broker 4 move? current.json is what kafka-reassign-partitions --generate prints;
  # brokers.json is [{"id": 1, "rack": "a"}, ..., {"id": 4, "rack": "a", "state": "new"}]
  python -m kafka_steward.planning --current current.json --brokers brokers.json \\
      --operation expand --out /tmp/plan --json /tmp/plan.json

  # is that plan valid, and is it proven that no plan moves less?
  python -m kafka_steward.planning --check --snapshot /tmp/plan/snapshot --out /tmp/plan

a broker's state is live, failed, draining, down or new."""


#: Each argument with the form of its value, if it takes one, and its help.
_ARGUMENTS = (
    ("--snapshot", "URI", "folder of a snapshot"),
    ("--current", "FILE.json", "current assignment, instead of a snapshot"),
    ("--brokers", "FILE.json", "the brokers that go with --current"),
    ("--out", "URI", "folder for the plan and its proof"),
    ("--operation", "OP", "why a plan is made; see below"),
    ("--options", "FILE.json", "options of the operation, a JSON object"),
    ("--json", "FILE.json", "also write plan and rollback for kafka-reassign-partitions"),
    ("--check", None, "check the plan at --out, without a solver, instead of making one"),
    ("--archive", "URI", "archive of the executors; a Spark Connect server (SPARK_REMOTE) gets it from here"),
    ("--failure-file", "FILE", "also write the message of a failure there: Spark may print more after it"),
    ("--make-archive", "FILE.tar.gz", "only write the archive of packages for remote executors, for spark.archives"),
)
#: The fields of `CommandLine` that have another name than their arguments.
_FILES = {"--options": "options_file", "--json": "json_file"}


@dataclass
class CommandLine:
    """The arguments on the command line, as argparse sets them; `options` are read from their file."""

    snapshot: str = ""
    current: str = ""
    brokers: str = ""
    out: str = ""
    operation: str = ""
    options_file: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    json_file: str | None = None
    check: bool = False
    archive: str | None = None
    make_archive: str | None = None
    failure_file: str | None = None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Returns the exit code: 0, or 1 after a message on standard error."""
    failure_file = None
    try:
        request = parse_command_line(arguments)
        failure_file = request.failure_file
        if request.make_archive:
            make_archive(request.make_archive)
            return 0
        if request.check:
            return print_verdict(request)
        chosen = Options.of(find_operation(request.operation), request.options)
        if chosen.reassignment and parse_directories(chosen.reassignment):
            print(_DIRECTORIES_NOTE, file=sys.stderr)
        proof = _plan_with_spark(request)
        write_reassignments(request)
    except StewardError as error:
        print(error, file=sys.stderr)
        if failure_file is not None:
            Path(failure_file).write_text(str(error), encoding="utf-8")
        return 1
    # A caller that names a failure file reads the plan itself, and its log would have some KB in one line.
    if failure_file is None:
        print(json.dumps(proof, sort_keys=True))
    return 0


def _plan_with_spark(request: CommandLine) -> dict[str, Any]:
    facts = None if request.archive is None else read_archive_facts(request.archive)
    if request.archive is not None and facts is not None:
        check_archive(request.archive, facts)
    with planning_session(request.archive) as spark, translate_worker_errors(request.out):
        probe_store(spark, request.snapshot)
        if is_remote_session(spark):
            probe_executors(spark, request.snapshot, request.out, facts)
        return run(spark, request.snapshot, request.out, request.operation, request.options)


def parse_command_line(arguments: Sequence[str] | None) -> CommandLine:
    """Parse the arguments, and write the snapshot if it is given as files. Raises PlanError."""
    parser = _build_parser()
    request = parser.parse_args(arguments, CommandLine())
    if request.make_archive:
        return request
    if not request.out:
        parser.error("--out is missing")
    if bool(request.snapshot) == bool(request.current) or bool(request.current) != bool(request.brokers):
        parser.error("give either --snapshot, or both --current and --brokers")
    if not request.operation and not request.check:
        parser.error("--operation is missing")
    if request.options_file:
        request.options = read_json(request.options_file, "options")
        if not isinstance(request.options, dict):
            raise PlanError(f"The options file {request.options_file} does not contain JSON object.")
    request.snapshot = request.snapshot or _write_snapshot(request)
    return request


def _build_parser() -> argparse.ArgumentParser:
    operations = "\n".join(f"  {name.value:24}{OPERATIONS[name].help}" for name in Operation if OPERATIONS[name].rule)
    parser = argparse.ArgumentParser(
        prog="python -m kafka_steward.planning",
        description=_DESCRIPTION,
        epilog=f"operations:\n{operations}\n\n{_EXAMPLES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for flag, metavar, words in _ARGUMENTS:
        kind: dict[str, Any] = {"metavar": metavar} if metavar else {"action": "store_true"}
        parser.add_argument(flag, dest=_FILES.get(flag), help=words, **kind)
    return parser


def _write_snapshot(request: CommandLine) -> str:
    current = read_assignment(request.current, "current assignment", current=True)
    brokers, partitions = snapshot_tables(current, read_json(request.brokers, "brokers"))
    uri = f"{request.out.rstrip('/')}/snapshot"
    # A user-written file has neither a cluster id nor a time. With these constants the same file is the same snapshot.
    write_snapshot(uri, cluster_id="", taken_ms=0, brokers=brokers, partitions=partitions)
    return uri


def write_reassignments(request: CommandLine) -> None:
    """Write plan and rollback as `kafka-reassign-partitions` takes them, if requested. Raises PlanError."""
    if request.json_file is None:
        return
    path, moves = Path(request.json_file), read_plan(request.out).moves
    try:
        path.write_text(reassignment_json(moves))
        path.with_suffix(f".rollback{path.suffix}").write_text(reassignment_json(moves, rollback=True))
    except OSError as error:
        raise PlanError(f"The file {path} cannot be written: {error.strerror}.") from error


def print_verdict(request: CommandLine) -> int:
    """Check a plan and print the verdict. Returns 0 if the plan is valid and proven, 1 if not."""
    verdict = _check_requested_plan(request)
    for message in (*verdict.problems, *verdict.unproven):
        print(message, file=sys.stderr)
    printed: dict[str, object] = {"valid": verdict.ok, "proven": verdict.ok and not verdict.unproven}
    left = None if verdict.left is None else asdict(verdict.left)
    printed |= {"problems": verdict.problems, "unproven": list(verdict.unproven), "left": left}
    print(json.dumps(printed, sort_keys=True))
    return 0 if printed["proven"] else 1


def _check_requested_plan(request: CommandLine) -> PlanVerdict:
    """Check the plan with Spark if spark-submit started this process, or if plain Python would take long."""
    snapshot = read_snapshot(request.snapshot)
    if "PYSPARK_GATEWAY_PORT" not in os.environ and len(snapshot.partitions) <= _PLAIN_ROWS:
        return check(snapshot, read_plan(request.out))
    with planning_session(request.archive) as spark, translate_worker_errors(request.out):
        return check_with_spark(spark, snapshot, request.out)


if __name__ == "__main__":
    sys.exit(main())
