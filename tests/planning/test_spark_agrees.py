"""The job on Spark and its kernels in this process make the same plan: every operation, every option, any shards.

What holds of `tests.local_plan` holds of the job because of this, so that other tests need no Spark for a plan.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from kafka_steward.assignment import (
    BALANCING_OPERATIONS,
    EVEN_OPERATIONS,
    OPERATIONS,
    REORDERING_OPERATIONS,
    Move,
    Operation,
)
from kafka_steward.errors import PlanError
from kafka_steward.planning.checker.check import check
from kafka_steward.planning.files.formats import (
    PlanFolder,
    SnapshotFolder,
    plan_table,
    read_plan,
    read_snapshot,
    write_plan,
)
from kafka_steward.planning.files.storage import Folder
from kafka_steward.planning.options import Options
from kafka_steward.planning.shards import SHARD_ROWS
from kafka_steward.planning.solver.sharded.plan import Movement, ShardedQuotas, is_shardable
from kafka_steward.planning.spark import session
from kafka_steward.planning.spark.pipeline import check_with_spark, run
from tests.builders import cluster, snapshot_of, written
from tests.local_plan import plan_folder, planned
from tests.planning.test_job import TOPICS

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

#: Partitions in a shard, so that the cluster below is cut into three.
FEW = 20
#: A rollback is no plan of the planner: its rows are those of the plan that it undoes.
PLANNED = [operation for operation in Operation if OPERATIONS[operation].rule]
#: What broker 4 of the cluster below is, where it is not live.
STATES = {"heal": "failed", "fill": "failed", "drain": "draining", "expand": "new"}
GIVEN = {
    "version": 1,
    "partitions": [
        {"topic": topic, "partition": number, "replicas": [1 + (number + step) % 7 for step in (0, 2, 3)]}
        for topic in "tuv"
        for number in range(12)
    ],
}
NEEDED: dict[Operation, dict[str, Any]] = {
    Operation.SET_REPLICATION_FACTOR: {"replication_factor": 3, "topics": ["t", "u", "w"]},
    Operation.APPLY: {"reassignment": GIVEN},
    Operation.DEMOTE: {"demote": [1, 2, 3]},
    Operation.PROMOTE: {"promote": [1]},
    # Without it, a drain moves nothing else.
    Operation.DRAIN: {"balance": "replicas"},
}
#: Options that an operation takes and that change nothing: a reassignment is applied as it was given, an order is
#: changed without a copy, and no relief makes the spread of a partition over the racks worse, whatever a broker without
#: a rack counts as.
IDLE = {("apply", option) for option in ("include", "named_topics", "exclude", "pin", "rackless", "rack_aware")}
IDLE |= {("relieve", "rackless")}
#: Of few partitions, the spreads are compared in any case.
IDLE |= {(operation, "compare_spreads") for operation in EVEN_OPERATIONS}
IDLE |= {
    (operation.value, option)
    for operation in (Operation.LEADERS, Operation.DEMOTE, Operation.PROMOTE)
    for option in ("max_in_per_broker", "max_out_per_broker", "throttle")
}


@dataclass(frozen=True)
class Case:
    """An operation with some of its options."""

    operation: Operation
    options: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.operation.value}-{'+'.join(self.options)}"

    @property
    def snapshot(self) -> SnapshotFolder:
        """Five topics of twelve partitions on seven brokers, two of which have no rack."""
        dice = random.Random(3)
        brokers: list[dict[str, Any]] = [
            {"broker": number, "rack": rack, "state": "live"}
            for number, rack in enumerate(["a", "b", "a", "b", "a", None, None], 1)
        ]
        brokers[3]["state"] = STATES.get(self.operation.value, "live")
        if self.operation is Operation.RELIEVE:
            disks = [{"room": [5 << 30], "disk_used": [used << 30]} for used in (15, 1, 15, 15, 0, 1, 15)]
            brokers = [row | {"disk_total": [15 << 30]} | disk for row, disk in zip(brokers, disks, strict=True)]
        rows: list[dict[str, Any]] = []
        for topic in ("__consumer_offsets", "t", "u", "v", "w"):
            for number in range(12):
                held = dice.sample(range(1, 8), dice.choice((2, 3, 3)))
                size = dice.randrange(1 << 20, 1 << 30)
                row = {"topic": topic, "partition": number, "replicas": held, "target_rf": 3, "bytes": size}
                rows.append({**row, "isr": held[: dice.choice((2, 3))]})
                if self.options.get("balance") == "load":
                    rows[-1]["bytes_per_s"] = float(number**2)
                if self.operation is Operation.PROMOTE:
                    rows[-1]["order_before"] = sorted(held)
        return snapshot_of(brokers, rows)


def cases() -> Iterator[Case]:
    for operation in PLANNED:
        needed = NEEDED.get(operation, {})
        order = {"chunk_size": 7, "max_in_per_broker": 1, "throttle": 1000}
        # The fair shares of an even plan are out of reach with brokers excluded, and so it has a case of its own.
        barred: dict[str, Any] = {"exclude_brokers": [2]}
        service = {} if operation in BALANCING_OPERATIONS else {"service_topics": ["[tu]"]}
        others = service if operation in EVEN_OPERATIONS else {**barred, **service}
        others |= {"max_used": 0.5} if operation is Operation.RELIEVE else {}
        others, racks = {**others, "rackless": "own-rack"}, {"rack_aware": False}
        if operation in REORDERING_OPERATIONS:
            others, racks = service, {}
        yield Case(operation, {**needed, **order, **others, "exclude": ["w"]})
        some = {"max_out_per_broker": 1, **racks, "include": ["t", "[uv]", "__.*"], "named_topics": ["w"]}
        some["pin"] = [f"{topic}-{number}" for topic in "tu" for number in range(1, 9, 2)]
        yield Case(
            operation, {**needed, **some, **({"internal_topics": True} if operation in BALANCING_OPERATIONS else {})}
        )
        if operation in BALANCING_OPERATIONS:
            yield Case(operation, {"service_topics": ["[tu]"]})
        if operation is Operation.RELIEVE:
            yield Case(operation, {"max_used": 0.5, "max_moves": 3})
            yield Case(operation, {"max_bytes": 3 << 30})
        if operation is Operation.DRAIN:
            yield Case(operation, {})
            yield Case(operation, {"max_moves": 3})
        if operation is Operation.REBALANCE:
            yield Case(operation, {"balance": "racks", "max_moves": 9})
        if operation in EVEN_OPERATIONS:
            yield Case(operation, {**needed, "prefer": "isr-order", "rack_aware": False})
            yield Case(operation, {**needed, **barred, "max_moves": 5})
            yield Case(operation, {**needed, **barred, "rack_aware": False})
            yield Case(operation, {**needed, "max_moves": 9})
            yield Case(operation, {"topic_spread": "2", "compare_spreads": True})
            yield Case(operation, {**barred, "topic_spread": "any"})
            yield Case(operation, {"balance": "bytes", "tolerance": 0.3, "max_bytes": 3 << 30})
            yield Case(operation, {"balance": "load", "network_bandwidth": 1_100})


CASES = list(cases())
#: Those that are cut into shards where there are many partitions.
CUT = [
    case
    for case in CASES
    if case.operation not in EVEN_OPERATIONS | REORDERING_OPERATIONS
    or is_shardable(case.operation, Options.of(case.operation, case.options), partitions=60)
]
#: What Spark may be told of tasks and batches, which a plan must not depend on.
ONE_TASK = {"spark.sql.shuffle.partitions": "1", "spark.sql.adaptive.enabled": "false"}
MANY_TASKS = {
    "spark.sql.shuffle.partitions": "5",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.files.maxPartitionBytes": "2048",
    "spark.sql.files.openCostInBytes": "0",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "3",
}


#: The partitions are sent to the tasks, or read by them.
SENT, READ = 1000, 0
both_ways = pytest.mark.parametrize("most_sent", [SENT, READ], ids=["sent", "read"])


def assert_alike(
    spark: SparkSession, uri: str, folder: Path, case: Case, *, shard_rows: int = SHARD_ROWS, most_sent: int = SENT
) -> None:
    operation, options = case.operation.value, case.options
    proof = run(spark, uri, f"{folder}/plan", operation, options, shard_rows=shard_rows, most_sent=most_sent)
    found = read_plan(f"{folder}/plan")
    expected = planned(read_snapshot(uri), operation, options, shard_rows)
    assert found.moves == expected.moves
    assert proof == found.proof == expected.proof
    assert found.digest == expected.digest


def facts(plan: PlanFolder) -> tuple[list[Move], dict[str, Any]]:
    """The plan without the words of its request."""
    return plan.moves, {name: value for name, value in plan.proof.items() if name not in ("options", "digest")}


def test_every_option_of_every_operation_has_a_case() -> None:
    known = {
        (operation, option.name)
        for option in fields(Options)
        for operation in PLANNED
        if operation in option.metadata["option"].of
    }
    assert {(case.operation, name) for case in CASES for name in case.options} == known


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_option_of_a_case_changes_its_plan(case: Case) -> None:
    operation = case.operation.value
    plan = facts(planned(case.snapshot, operation, case.options))
    assert plan[0]
    idle = set()
    for name in set(case.options) - set(NEEDED.get(case.operation, {})):
        without = {other: value for other, value in case.options.items() if other != name}
        if facts(planned(case.snapshot, operation, without)) == plan:
            idle.add((operation, name))
    assert idle == IDLE & {(operation, name) for name in case.options}


def test_some_cases_are_planned_in_shards_and_others_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    as_one = []
    needs_one_flow = ShardedQuotas.needs_one_flow

    def seen(parts: ShardedQuotas, movement: Movement) -> bool:
        as_one.append(needs_one_flow(parts, movement))
        return as_one[-1]

    monkeypatch.setattr(ShardedQuotas, "needs_one_flow", seen)
    for case in CUT:
        planned(case.snapshot, case.operation.value, case.options, FEW)
    assert set(as_one) == {True, False}


@pytest.mark.spark
@pytest.mark.parametrize("case", CASES, ids=str)
def test_one_shard_is_planned_alike(spark: SparkSession, tmp_path: Path, case: Case) -> None:
    assert_alike(spark, written(case.snapshot, tmp_path / "snapshot"), tmp_path, case)


@contextmanager
def configured(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    before = {name: spark.conf.get(name) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            spark.conf.set(name, str(old))


def in_small_groups(case: Case, folder: Path) -> str:
    """A snapshot folder whose partitions several tasks can read, in another order than that of the shards."""
    uri = written(case.snapshot, folder)
    file = f"{uri}/partitions.parquet"
    pq.write_table(pq.read_table(file).sort_by([("partition", "descending")]), file, row_group_size=10)
    return uri


@pytest.mark.spark
@pytest.mark.ci
@both_ways
@pytest.mark.parametrize("case", CUT, ids=str)
def test_several_shards_are_planned_alike(spark: SparkSession, tmp_path: Path, case: Case, most_sent: int) -> None:
    uri = in_small_groups(case, tmp_path / "snapshot")
    assert_alike(spark, uri, tmp_path, case, shard_rows=FEW, most_sent=most_sent)


@pytest.mark.spark
@both_ways
@pytest.mark.parametrize("settings", [ONE_TASK, MANY_TASKS], ids=["one task", "many tasks"])
@pytest.mark.parametrize(
    "named", [(Operation.HEAL, "pin"), (Operation.DRAIN, "max_moves"), (Operation.DRAIN, "exclude_brokers")]
)
def test_several_shards_are_planned_alike_by_any_number_of_tasks(
    spark: SparkSession, tmp_path: Path, named: tuple[Operation, str], settings: Mapping[str, str], most_sent: int
) -> None:
    # Those of a drain are put together, and those of a heal know of each other.
    case = [case for case in CUT if case.operation is named[0] and named[1] in case.options][-1]
    with configured(spark, settings):
        uri = in_small_groups(case, tmp_path / "snapshot")
        assert_alike(spark, uri, tmp_path, case, shard_rows=FEW, most_sent=most_sent)


@pytest.mark.spark
@both_ways
def test_what_has_to_be_seen_as_a_whole_is_planned_alike_in_one_piece(
    spark: SparkSession, tmp_path: Path, most_sent: int
) -> None:
    # Cut into shards, this drain would be put together, and know of no budget.
    case = Case(
        Operation.DRAIN, {**NEEDED[Operation.DRAIN], "rack_aware": False, "include": ["t", "u", "__.*"], "max_moves": 5}
    )
    uri = written(case.snapshot, tmp_path / "snapshot")
    assert_alike(spark, uri, tmp_path, case, shard_rows=FEW, most_sent=most_sent)


@pytest.mark.spark
@pytest.mark.parametrize("operation", [Operation.HEAL, Operation.REBALANCE])
def test_failed_log_directories_and_cordoned_brokers_are_planned_alike(
    spark: SparkSession, tmp_path: Path, operation: Operation
) -> None:
    whole = Case(operation, {}).snapshot
    brokers = [row | {"cordoned": row["broker"] == 2 or None} for row in whole.brokers.to_pylist()]
    rows = whole.partitions.to_pylist()
    lost = [row | {"offline": row["replicas"][:1] if row["partition"] % 3 == 0 else None} for row in rows]
    uri = written(snapshot_of(brokers, lost if operation is Operation.HEAL else rows), tmp_path / "snapshot")
    assert_alike(spark, uri, tmp_path, Case(operation, {}), shard_rows=FEW)
    plan = read_plan(f"{tmp_path}/plan")
    assert plan.moves
    assert 2 not in {broker for move in plan.moves for broker in move.adding}


@pytest.mark.spark
@both_ways
@pytest.mark.parametrize("operation", [Operation.HEAL, Operation.DRAIN, Operation.APPLY])
def test_partitions_without_a_leader_are_planned_and_checked_alike(
    spark: SparkSession, tmp_path: Path, operation: Operation, most_sent: int
) -> None:
    case = Case(operation, NEEDED.get(operation, {}))
    rows = [
        row | ({"leader": -1, "all_offline": row["partition"] == 2 or None} if row["partition"] % 5 == 2 else {})
        for row in case.snapshot.partitions.to_pylist()
    ]
    uri = written(snapshot_of(case.snapshot.brokers.to_pylist(), rows), tmp_path / "snapshot")
    assert_alike(spark, uri, tmp_path, case, shard_rows=FEW, most_sent=most_sent)
    plan = read_plan(f"{tmp_path}/plan")
    assert {one["reason"] for one in plan.proof["unplaced"]} == {"all_replicas_lost", "no_leader"}
    here, there = check(read_snapshot(uri), plan), check_with_spark(spark, read_snapshot(uri), f"{tmp_path}/plan")
    assert (there.problems, there.unproven) == (here.problems, here.unproven) == ([], ())


@pytest.mark.spark
def test_replicas_out_of_sync_are_dropped_alike_and_noted_alike(spark: SparkSession, tmp_path: Path) -> None:
    case = Case(Operation.SET_REPLICATION_FACTOR, {"replication_factor": 2, "topics": ["t", "u"]})
    whole = cluster("1 2 3 4 5", f"t: {'12345 ' * 25}", f"u: {'12345 ' * 25}")
    rows = [row | {"isr": [4, 5] if row["partition"] % 2 else [5], "leader": 5} for row in whole.partitions.to_pylist()]
    uri = written(snapshot_of(whole.brokers.to_pylist(), rows), tmp_path / "snapshot")
    assert_alike(spark, uri, tmp_path, case, shard_rows=FEW)
    plan = read_plan(f"{tmp_path}/plan")
    assert {frozenset(move.after) for move in plan.moves if move.partition % 2} == {frozenset({4, 5})}
    assert "t-0 keeps broker 1, which is not in sync: Kafka completes the move once it is." in plan.proof["notes"]


@pytest.mark.spark
@both_ways
@pytest.mark.parametrize("topics", [["t: 12 13"], []], ids=["nothing lost", "no partition"])
def test_a_plan_with_nothing_in_it_is_made_alike(
    spark: SparkSession, tmp_path: Path, topics: list[str], most_sent: int
) -> None:
    uri = written(cluster("1 2 3 4!", *topics), tmp_path / "snapshot")
    assert_alike(spark, uri, tmp_path, Case(Operation.HEAL, {}), most_sent=most_sent)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("asked", "shards"),
    [
        (("heal", {}), (1, ["t: 12", "u: 22 19", "v: 17"])),
        (("rebalance", {}), (1, ["t: 12", "u: 22 19", "v: 17"])),
        (("set-replication-factor", {"replication_factor": 4, "topics": ["t", "v"]}), (9, ["t: 12", "u: 12", "v: 21"])),
        (("set-replication-factor", {"replication_factor": 2, "topics": ["t", "x"]}), (9, ["t: 12", "u: 12"])),
    ],
    ids=["by the first shard that cannot", "before any is planned", "by the only shard", "before Spark is asked"],
)
@both_ways
def test_what_is_refused_is_refused_alike(
    spark: SparkSession,
    tmp_path: Path,
    asked: tuple[str, dict[str, Any]],
    shards: tuple[int, list[str]],
    most_sent: int,
) -> None:
    shard_rows, topics = shards
    uri = written(cluster("1 2 3", *topics), tmp_path / "snapshot")
    with pytest.raises(PlanError) as here:
        plan_folder(uri, tmp_path / "here", *asked, shard_rows=shard_rows)
    with pytest.raises(PlanError) as there:
        run(spark, uri, str(tmp_path / "there"), *asked, shard_rows=shard_rows, most_sent=most_sent)
    assert str(here.value) == str(there.value)
    assert not (tmp_path / "here").exists()
    assert not (tmp_path / "there").exists()


REVIEWED = cluster("1a 2b 3c 4a- 5b 6c+", *TOPICS)


def saved(plan: PlanFolder, path: Path, **changes: Any) -> str:
    """A plan on disk, with rows or proof changed."""
    moves = changes.pop("moves", plan.moves)
    proof = {name: value for name, value in plan.proof.items() if name != "digest"}
    write_plan(str(path), plan_table(moves), {**proof, **changes})
    return str(path)


@pytest.mark.spark
@pytest.mark.parametrize("shard_rows", [20, 10_000])
def test_a_good_plan_is_valid_and_proven(spark: SparkSession, tmp_path: Path, shard_rows: int) -> None:
    snapshot = read_snapshot(written(REVIEWED, tmp_path / "snapshot"))
    plan = saved(planned(REVIEWED, "drain"), tmp_path / "plan")
    verdict = check_with_spark(spark, snapshot, plan, shard_rows=shard_rows)
    assert (verdict.ok, verdict.problems, verdict.unproven) == (True, [], ())


@pytest.mark.spark
def test_whatever_is_wrong_is_found_by_either(spark: SparkSession, tmp_path: Path) -> None:
    snapshot = read_snapshot(written(REVIEWED, tmp_path / "snapshot"))
    plan = planned(REVIEWED, "drain")
    first, *others = plan.moves
    broken: dict[str, dict[str, Any]] = {
        "dropped": {"moves": [replace(move, chunk=0, position=at) for at, move in enumerate(others)]},
        "twice and nowhere": {"moves": [*plan.moves, first, replace(first, topic="nowhere")]},
        "bound": {"lower_bound": 10_000},
    }
    for name, changes in broken.items():
        saved(plan, tmp_path / name, **changes)
        plain = check(REVIEWED, read_plan(str(tmp_path / name)))
        on_spark = check_with_spark(spark, snapshot, str(tmp_path / name), shard_rows=20)
        assert plain.problems or plain.unproven, name
        assert sorted(on_spark.problems) == sorted(plain.problems), name
        assert on_spark.unproven == plain.unproven, name


SMALL = cluster("1a 2b 3c 4a!", "t: 124 234 341 412", "u: 413 124")


@pytest.mark.spark
@pytest.mark.parametrize("operation", ["heal", "rebalance"])
def test_a_plan_of_one_shard_is_one_job_of_one_task_and_reads_its_snapshot_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    read: Counter[str] = Counter()
    read_table = Folder.read_table

    def count(folder: Folder, name: str) -> pa.Table:
        read[name] += 1
        return read_table(folder, name)

    monkeypatch.setattr(Folder, "read_table", count)
    snapshot, plan = written(SMALL, tmp_path / "snapshot"), str(tmp_path / "plan")
    context = spark.sparkContext
    context.setJobGroup(operation, "a plan of one shard")
    try:
        run(spark, snapshot, plan, operation)
    finally:
        context._jsc.clearJobGroup()
    assert read == {"brokers.parquet": 1, "partitions.parquet": 1}
    assert read_plan(plan).moves

    tracker = context.statusTracker()
    (job,) = map(tracker.getJobInfo, tracker.getJobIdsForGroup(operation))
    assert job is not None
    (stage,) = map(tracker.getStageInfo, job.stageIds)  # a second one would be a shuffle
    assert stage is not None
    assert stage.numTasks == 1


@pytest.mark.spark
def test_the_settings_of_a_session_are_for_small_jobs_unless_its_user_has_others(spark: SparkSession) -> None:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    system = jvm.java.lang.System
    name = "spark.sql.files.openCostInBytes"
    # The session itself would be that of all tests, and has other settings.
    assert session._spark_conf().get(name) == "65536"
    system.setProperty(name, "7")
    try:
        assert session._spark_conf().get(name) == "7"
    finally:
        system.clearProperty(name)
