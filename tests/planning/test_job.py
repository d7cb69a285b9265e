"""What the job reads, refuses and writes, and the command line. That its plans are right is shown elsewhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from kafka_steward.errors import PlanError
from kafka_steward.planning.files.formats import SnapshotFolder, read_plan, read_snapshot
from kafka_steward.planning.spark import job
from kafka_steward.planning.spark.installed import QUICK_JAVA
from kafka_steward.planning.spark.job import main, parse_command_line
from kafka_steward.planning.spark.pipeline import run
from tests.builders import cluster, planned, written
from tests.local_plan import plan_folder
from tests.tool_output import CURRENT, PROPOSED, execute_output, generate_output, one_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPICS = [f"{name}: " + " ".join(["124", "341/3", "213", "432"] * 5) for name in "tuvw"]
SNAPSHOT = cluster("1a 2b 3c 4a! 5b 6c", *TOPICS)

ENTRY = {"topic": "u", "partition": 0, "replicas": [1, 2]}
TWICE = {"partitions": [ENTRY, ENTRY]}
STRANGE = {"partitions": [{**ENTRY, "replicas": [1, 9]}]}


@pytest.mark.spark
@pytest.mark.ci
def test_the_types_and_the_optional_columns_of_the_file_change_no_plan(spark: SparkSession, tmp_path: Path) -> None:
    snapshot = written(SNAPSHOT, tmp_path / "snapshot")
    file = tmp_path / "snapshot" / "partitions.parquet"
    table = pq.read_table(file)
    bare = table.select([name for name in table.column_names if table.column(name).null_count < len(table)])
    at = bare.column_names.index("partition")
    for number, other in enumerate((bare, bare.set_column(at, "partition", bare.column(at).cast("int64")))):
        pq.write_table(other, file)
        run(spark, snapshot, str(tmp_path / str(number)), "heal")
        assert read_plan(str(tmp_path / str(number))) == planned(SNAPSHOT)
    assert len(bare.column_names) < len(table.column_names)


@pytest.mark.spark
def test_a_second_run_replaces_the_first(spark: SparkSession, tmp_path: Path) -> None:
    for line in ("t: 12 14", "t: 14 14 14"):
        snapshot = written(cluster("1 2 3 4!", line), tmp_path / line[-2:])
        run(spark, snapshot, str(tmp_path / "plan"), "heal")
    assert len(read_plan(str(tmp_path / "plan")).moves) == 3


@pytest.mark.parametrize(
    ("snapshot", "asked", "sentence"),
    [
        (cluster("", "t: 12"), ("heal", {}), "The cluster is empty: the snapshot names no broker."),
        (SNAPSHOT, ("heal", {"chunksize": 1}), "has no option 'chunksize'; did you mean chunk_size?"),
        (SNAPSHOT, ("heal", {"chunk_size": 0}), "The option chunk_size is 0; it must be at least 1."),
        (SNAPSHOT, ("heal", {"include": ["("]}), "The option include holds '(', which is not a regular expression"),
        (SNAPSHOT, ("heal", {"exclude_brokers": [77]}), "names broker 77, which the snapshot does not have."),
        (SNAPSHOT, ("set-replication-factor", {"replication_factor": 2, "topics": ["x"]}), "names the topic x, which"),
        (SNAPSHOT, ("heel", {}), "There is no operation 'heel'; did you mean heal?"),
        (SNAPSHOT, ("rollback", {}), "There is no operation 'rollback'; there are heal, rebalance"),
        (SNAPSHOT, ("rebalance", {"max_moves": 0}), "The option max_moves is 0; it must be at least 1."),
        (SNAPSHOT, ("rebalance", {"max_bytes": 0}), "The option max_bytes is 0; it must be at least 1."),
        (cluster("1! 2!", "t: 12"), ("heal", {}), "Every broker of the snapshot has failed"),
    ],
)
def test_a_bad_request_is_refused_before_spark_starts(
    tmp_path: Path, snapshot: SnapshotFolder, asked: tuple[str, dict[str, Any]], sentence: str
) -> None:
    uri = written(snapshot, tmp_path / "snapshot")
    with pytest.raises(PlanError) as caught:
        run(None, uri, str(tmp_path / "plan"), *asked)  # type: ignore[arg-type]  # no Spark is there
    assert_one_sentence(caught.value, sentence, tmp_path / "plan")


# By the kernels: that Spark brings their sentences back is shown in test_spark_agrees.py.
@pytest.mark.parametrize(
    ("snapshot", "asked", "sentence"),
    [
        (cluster("1 2", "t: 19"), ("heal", {}), "The partition t-0 is on broker 9, which the snapshot does not have."),
        (cluster("1 2", "t: 11"), ("heal", {}), "The partition t-0 lists broker 1 twice; correct its assignment."),
        (cluster("1 2", "t: 12", "t: 12"), ("heal", {}), "The partition t-0 is in the snapshot twice"),
        (SNAPSHOT, ("apply", {"reassignment": TWICE}), "The reassignment lists u-0 twice."),
        (SNAPSHOT, ("apply", {"reassignment": STRANGE}), "The reassignment of u-0 names broker 9, which the snapshot"),
        (
            cluster("1 2 3", "t: 123"),
            ("set-replication-factor", {"replication_factor": 4, "topics": ["t"]}),
            "The partition t-0 is to have 4 replicas, and only 3 brokers may hold one.",
        ),
    ],
)
def test_bad_input_is_one_sentence_and_no_plan(
    tmp_path: Path, snapshot: SnapshotFolder, asked: tuple[str, dict[str, Any]], sentence: str
) -> None:
    uri = written(snapshot, tmp_path / "snapshot")
    with pytest.raises(PlanError) as caught:
        plan_folder(uri, tmp_path / "plan", *asked)
    assert_one_sentence(caught.value, sentence, tmp_path / "plan")


def assert_one_sentence(error: Exception, sentence: str, plan: Path) -> None:
    assert sentence in str(error)
    assert "\n" not in str(error)
    assert not plan.exists()


@pytest.mark.spark
@pytest.mark.ci
def test_a_plan_from_the_files_of_kafkas_own_tool_and_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entries = [{"topic": "t", "partition": number, "replicas": [1 + number % 2, 3]} for number in range(8)]
    (tmp_path / "current.json").write_text(json.dumps({"version": 1, "partitions": entries}))
    brokers = [{"id": number} for number in (1, 2, 3)] + [{"id": 4, "state": "new"}]
    (tmp_path / "brokers.json").write_text(json.dumps(brokers))
    (tmp_path / "options.json").write_text('{"chunk_size": 7}')
    command = [sys.executable, "-m", "kafka_steward.planning", "--operation", "expand", "--out", str(tmp_path / "plan")]
    for name in ("current", "brokers", "options"):
        command += [f"--{name}", str(tmp_path / f"{name}.json")]
    command += ["--json", str(tmp_path / "plan.json")]
    env = {**os.environ, "JAVA_TOOL_OPTIONS": QUICK_JAVA}
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300, env=env)
    proof = json.loads(done.stdout.splitlines()[-1])
    assert proof == read_plan(str(tmp_path / "plan")).proof
    assert (proof["replicas_moved"], proof["gap"], proof["options"]["chunk_size"]) == (4, 0, 7)
    moves = read_plan(str(tmp_path / "plan")).moves
    targets = json.loads((tmp_path / "plan.json").read_text())["partitions"]
    assert [one["replicas"] for one in targets] == [list(move.after) for move in moves]
    back = json.loads((tmp_path / "plan.rollback.json").read_text())["partitions"]
    assert all(one in entries for one in back)
    assert main(["--check", "--snapshot", str(tmp_path / "plan" / "snapshot"), "--out", str(tmp_path / "plan")]) == 0
    printed = json.loads(capsys.readouterr().out)
    left = printed.pop("left")
    assert printed == {"problems": [], "proven": True, "unproven": [], "valid": True}
    assert left in (None, {"leaders": 0, "order": 0})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--operation", "heel"], "did you mean heal?"),
        (["--operation", "heal", "--options", "none.json"], "The options file none.json cannot be read"),
        (["--check"], "The snapshot at a cannot be read: snapshot.json: no such file."),
    ],
)
def test_the_command_line_reports_an_error_in_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert main(["--snapshot", "a", "--out", "b", *arguments]) == 1
    printed = capsys.readouterr()
    assert words in printed.err
    assert printed.err.count("\n") == 1
    assert printed.out == ""


@pytest.mark.parametrize("version", ["3.9", "4.3"])
def test_what_kafkas_tool_prints_is_the_current_assignment(tmp_path: Path, version: str) -> None:
    (tmp_path / "brokers.json").write_text('[{"id": 1}, {"id": 2}, {"id": 3}]')
    for printed in (generate_output(version), execute_output(version), one_line(CURRENT[version])):
        (tmp_path / "current.json").write_text(printed)
        files = ["--current", str(tmp_path / "current.json"), "--brokers", str(tmp_path / "brokers.json")]
        request = parse_command_line([*files, "--operation", "rebalance", "--out", str(tmp_path / "plan")])
        assert read_snapshot(request.snapshot).partitions["replicas"].to_pylist() == [[1, 2]]


def test_a_plan_of_a_reassignment_that_names_directories_takes_them_as_any_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(job, "_plan_with_spark", lambda _: {"moves": 1})
    for given, noted in ((PROPOSED, False), (CURRENT["4.3"], True)):
        (tmp_path / "options.json").write_text(json.dumps({"reassignment": given}))
        options = ["--operation", "apply", "--options", str(tmp_path / "options.json")]
        assert main(["--snapshot", "a", "--out", "b", *options]) == 0
        printed = capsys.readouterr()
        assert ('names (KIP-113) are taken as "any"' in printed.err, printed.err.count("\n")) == (noted, int(noted))
        assert printed.out == '{"moves": 1}\n'


def test_the_message_of_a_failure_is_also_written_into_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failure = tmp_path / "failure.txt"
    assert main(["--snapshot", "a", "--out", "b", "--operation", "heel", "--failure-file", str(failure)]) == 1
    assert failure.read_text(encoding="utf-8") == capsys.readouterr().err.rstrip("\n")


@pytest.mark.parametrize(("more", "printed"), [([], '{"moves": 3}\n'), (["--failure-file", "failure.txt"], "")])
def test_the_proof_is_printed_for_people_and_not_into_the_log_of_a_task(
    more: list[str], printed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(job, "_plan_with_spark", lambda _: {"moves": 3})
    assert main(["--snapshot", "a", "--out", "b", "--operation", "heal", *more]) == 0
    assert capsys.readouterr().out == printed
