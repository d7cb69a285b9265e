"""The Spark job by way of the operator: on a snapshot of files, without a cluster."""

from __future__ import annotations

import json
import os
import sys
from itertools import pairwise
from pathlib import Path
from threading import Event
from typing import Any, Self
from unittest.mock import Mock

import pyarrow as pa
import pytest
import structlog
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowFailException

from kafka_steward.errors import ClusterUnreachable, PlanError, PlanningFailed, SettingError
from kafka_steward.hooks.spark import SparkCluster, find_spark_cluster, local_environment
from kafka_steward.hooks.steward import StewardHook
from kafka_steward.operators.plan import PlanReassignmentOperator
from kafka_steward.operators.plan_folders import read_plan_page
from kafka_steward.planning.checker.check import check
from kafka_steward.planning.files.formats import SnapshotFolder, read_plan, read_snapshot, write_snapshot
from kafka_steward.planning.spark.archive import make_archive
from tests.airflow_home import Connect, context
from tests.builders import cluster, planned, written


@pytest.fixture
def snapshot(tmp_path: Path) -> dict[str, str]:
    """Four brokers in as many racks, of which 4 has failed; twelve partitions of three replicas."""
    brokers = [{"broker": n, "rack": f"r{n}", "state": "failed" if n == 4 else "live"} for n in (1, 2, 3, 4)]
    partitions = [
        {
            "topic": "orders",
            "partition": number,
            "replicas": [first % 4 + 1 for first in (number, number + 1, number + 2)],
            "isr": [broker for broker in (first % 4 + 1 for first in (number, number + 1, number + 2)) if broker != 4],
            "leader": 1,
            "target_rf": 3,
            "bytes": 1000,
        }
        for number in range(12)
    ]
    uri = f"{tmp_path}/workspace/c/heal/run/snapshot-snapshot-1"
    digest = write_snapshot(
        uri,
        cluster_id="cluster-1",
        taken_ms=1,
        brokers=pa.Table.from_pylist(brokers),
        partitions=pa.Table.from_pylist(partitions),
    )
    return {"uri": uri, "digest": digest}


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The hooks that would have submitted something; each job fails."""
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.sdk.exceptions import AirflowException

    hooks: list[Any] = []

    def submit(self: SparkSubmitHook, *_: Any) -> None:
        hooks.append(self)
        raise AirflowException("The job is not run.")

    monkeypatch.setattr(SparkSubmitHook, "submit", submit)
    monkeypatch.setattr("kafka_steward.hooks.spark._connection_error", lambda _: None)
    return hooks


def plan_of(snapshot: Any, **more: Any) -> dict[str, Any]:
    operator = PlanReassignmentOperator(task_id="plan", snapshot=snapshot, conn_id="kafka_test", **more)
    return operator.execute(context(task_id="plan"))


@pytest.mark.spark
@pytest.mark.ci
def test_it_plans_on_the_worker_and_says_what_moves(connect: Connect, snapshot: dict[str, str]) -> None:
    connect(extra={"heal_chunk_size": 4})
    told = plan_of(snapshot)
    plan = read_plan(told["uri"])
    assert told["uri"].endswith("/c/heal/run/plan-plan-1")
    assert told == {
        "uri": told["uri"],
        "digest": plan.digest,
        "replicas_moved": 9,
        "bytes_moved": 9000,
        "lower_bound": 9,
        "partitions": 9,
        "unplaced": 0,
        "log_dirs_failed": [],
        "nothing": "",
        "page_digest": told["page_digest"],
    }
    assert (read_plan_page(told) or "").startswith(f"Plan **{plan.digest[:12]}** for cluster")
    assert {move.chunk for move in plan.moves} == {0, 1, 2}


@pytest.mark.spark
def test_a_job_that_fails_is_one_sentence_with_its_last_words(
    connect: Connect, snapshot: dict[str, str], tmp_path: Path
) -> None:
    connect()
    script = tmp_path / "job.py"
    script.write_text("import sys; sys.exit('The disk is full.')")
    with pytest.raises(PlanningFailed, match=r"^The Spark job ended without a plan: .*The disk is full\."):
        plan_of(snapshot, application=str(script))


def test_a_warning_of_java_is_not_the_reason_of_a_job_that_was_killed(
    connect: Connect, snapshot: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.sdk.exceptions import AirflowException

    connect()
    said = "Cannot execute: spark-submit. Error code is: 137."

    def submit(*_: Any) -> None:
        raise AirflowException(f"{said}\nWARNING: Using incubator modules: jdk.incubator.vector\n")

    monkeypatch.setattr("airflow.providers.apache.spark.hooks.spark_submit.SparkSubmitHook.submit", submit)
    with pytest.raises(PlanningFailed, match=f"without a plan: {said}$"):
        plan_of(snapshot)


def test_a_snapshot_that_was_edited_is_refused(
    connect: Connect, snapshot: dict[str, str], submitted: list[Any]
) -> None:
    connect()
    head = Path(snapshot["uri"]) / "snapshot.json"
    head.write_text(json.dumps({**json.loads(head.read_text()), "taken_ms": 2}))
    with pytest.raises(PlanError, match="edited"):
        plan_of(snapshot)
    assert len(submitted) == 1


@pytest.mark.parametrize("job_fails", [False, True])
def test_a_snapshot_that_is_not_the_one_that_was_taken_is_refused(
    connect: Connect, snapshot: dict[str, str], submitted: list[Any], monkeypatch: pytest.MonkeyPatch, job_fails: bool
) -> None:
    connect()
    if not job_fails:
        monkeypatch.setattr(
            "airflow.providers.apache.spark.hooks.spark_submit.SparkSubmitHook.submit", submitted.append
        )
    with pytest.raises(PlanError, match="is not the one that was taken"):
        plan_of({**snapshot, "digest": "0" * 64})
    assert len(submitted) == 1


def test_the_snapshot_is_read_while_the_job_runs(
    connect: Connect, snapshot: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    connect()
    job_runs, is_read = Event(), Event()

    def read(uri: str) -> SnapshotFolder:
        assert job_runs.wait(10)
        is_read.set()
        return read_snapshot(uri)

    def submit(*_: Any) -> None:
        job_runs.set()
        assert is_read.wait(10)

    monkeypatch.setattr("kafka_steward.planning.files.formats.read_snapshot", read)
    monkeypatch.setattr("airflow.providers.apache.spark.hooks.spark_submit.SparkSubmitHook.submit", submit)
    with pytest.raises(PlanError, match=r"proof\.json: no such file"):
        plan_of(snapshot)


def test_the_result_of_another_task_than_a_snapshot_fails_for_good_with_a_sentence(connect: Connect) -> None:
    connect()
    with pytest.raises(AirflowFailException, match=r"^There is no snapshot: expected its URI"):
        plan_of({"brokers": [3], "sentence": "So it is."})


def test_a_remote_master_cannot_read_this_machines_files(connect: Connect, snapshot: dict[str, str]) -> None:
    connect()
    connect("spark_test", conn_type="spark", host="spark://master:7077")
    with pytest.raises(
        SettingError, match=r"Spark runs on spark://master:7077, whose machines cannot read .*workspace"
    ):
        plan_of(snapshot, spark_conn_id="spark_test")


def own_spark(tmp_path: Path, **extra: Any) -> dict[str, Any]:
    """The extra of a Spark connection whose program is there, and whose machines share the folder."""
    (tmp_path / "bin").mkdir(exist_ok=True)
    (tmp_path / "bin" / "spark-submit").touch(mode=0o755)
    env = {"PATH": str(tmp_path / "bin"), "HADOOP_CONF_DIR": str(tmp_path)}
    return {"shared_workspace": True, "env_vars": env, **extra}


def test_the_connection_alone_gives_a_job_what_it_needs(
    connect: Connect, snapshot: dict[str, str], submitted: list[Any], tmp_path: Path
) -> None:
    archive = str(tmp_path / "archive.tar.gz")
    make_archive(archive)
    connect(extra={"spark_conn_id": "spark_test"})
    given = {"packages": ["a:b:1"], "repositories": "https://artifacts.example", "jars": "/x.jar", "archive": archive}
    conf = {"spark.executor.memory": "2g", "spark.archives": "e#e", "spark.executorEnv.PYTHONPATH": "/opt"}
    extra = own_spark(tmp_path, **given, spark_conf=conf, properties_file="/etc/spark.conf")
    connect("spark_test", conn_type="spark", host="yarn", extra=extra)
    with pytest.raises(PlanningFailed, match=r"The job is not run\."):
        plan_of(snapshot)
    (hook,) = submitted
    command = hook._build_spark_submit_command("job.py")
    pairs = list(pairwise(command))
    for option, value in {
        "--master": "yarn",
        "--packages": "a:b:1",
        "--repositories": "https://artifacts.example",
        "--jars": "/x.jar",
        "--properties-file": "/etc/spark.conf",
        "--archive": archive,
    }.items():
        assert (option, value) in pairs
    assert {value for option, value in pairs if option == "--conf"} >= {
        "spark.log.level=WARN",
        "spark.executor.memory=2g",
        f"spark.pyspark.driver.python={sys.executable}",
        f"spark.archives=file://{archive}#kafka_steward_archive,e#e",
        "spark.executorEnv.PYTHONPATH=./kafka_steward_archive:/opt",
    }


def test_the_tasks_own_arguments_have_precedence_over_the_connection(
    connect: Connect, snapshot: dict[str, str], submitted: list[Any], tmp_path: Path
) -> None:
    connect(extra={"spark_conn_id": "spark_gone"})
    conf = {"spark.executor.memory": "2g", "spark.executor.cores": 2}
    connect("spark_test", conn_type="spark", host="yarn", extra=own_spark(tmp_path, packages="a:b:1", spark_conf=conf))
    with pytest.raises(PlanningFailed):
        plan_of(snapshot, spark_conn_id="spark_test", packages="a:b:2", conf={"spark.executor.memory": "4g"})
    (hook,) = submitted
    assert hook._packages == "a:b:2"
    assert (hook._conf["spark.executor.memory"], hook._conf["spark.executor.cores"]) == ("4g", "2")


CREDENTIALS = {
    "spark.hadoop.fs.s3a.access.key": "AKID-of-the-store",
    "spark.hadoop.fs.s3a.secret.key": "kept/from+logs==",
    "spark.hadoop.fs.s3a.session.token": "IQoJb3Jp-the-token",
    "spark.hadoop.fs.azure.account.key.steward.dfs.core.windows.net": "azure-account-key==",
}


@pytest.mark.parametrize("of_the_task", [False, True])
@pytest.mark.parametrize("as_text", [False, True])
def test_credentials_of_a_store_are_masked_in_the_log_and_in_what_airflow_keeps(
    connect: Connect,
    snapshot: dict[str, str],
    submitted: list[Any],
    tmp_path: Path,
    *,
    of_the_task: bool,
    as_text: bool,
) -> None:
    from airflow.sdk._shared.secrets_masker import redact
    from airflow.sdk.execution_time.task_runner import _serialize_rendered_fields

    connect()
    conf = json.dumps(CREDENTIALS) if as_text else CREDENTIALS
    env = {"AWS_SECRET_ACCESS_KEY": "in-the-environment"}
    extra = own_spark(tmp_path, spark_conf={} if of_the_task else conf)
    extra["env_vars"] |= env
    connect("spark_test", conn_type="spark", host="yarn", extra=extra)
    given: Any = {"conf": dict(CREDENTIALS)} if of_the_task else {}
    operator = PlanReassignmentOperator(
        task_id="plan", snapshot=snapshot, conn_id="kafka_test", spark_conn_id="spark_test", **given
    )
    with pytest.raises(PlanningFailed) as caught:
        operator.execute(context(task_id="plan"))
    (hook,) = submitted
    with structlog.testing.capture_logs() as logs:
        command = hook._build_spark_submit_command("job.py")
    secrets = [*CREDENTIALS.values(), *env.values()]
    assert all(any(secret in part for part in command) for secret in secrets)
    raw = str(logs)
    assert "Spark-Submit cmd" in raw
    assert CREDENTIALS["spark.hadoop.fs.s3a.session.token"] in raw
    # As the log of a task goes through Airflow's masker.
    shown = f"{redact(raw)}{caught.value}{operator!r}{find_spark_cluster('spark_test')!r}"
    kept = json.dumps(_serialize_rendered_fields(operator))
    assert "spark.hadoop.fs.s3a.secret.key" in kept
    assert [secret for secret in secrets if secret in shown + kept] == []


def test_an_archive_that_does_not_fit_is_said_before_anything_is_submitted(
    connect: Connect, snapshot: dict[str, str], submitted: list[Any], tmp_path: Path
) -> None:
    connect(extra={"spark_conn_id": "spark_test"})
    connect("spark_test", conn_type="spark", host="yarn", extra=own_spark(tmp_path, archive=str(tmp_path / "gone")))
    with pytest.raises(SettingError, match=r"The archive .*gone cannot be read here .* make it with"):
        plan_of(snapshot)
    assert submitted == []


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("application", "job.py"),
        ("archives", "a#a"),
        ("conf", {"spark.executor.memory": "2g"}),
        ("deploy_mode", "client"),
        ("driver_memory", "1g"),
        ("env_vars", {"PATH": "/bin"}),
        ("executor_cores", 2),
        ("jars", "/x.jar"),
        ("packages", "a:b:1"),
        ("properties_file", "/etc/spark.conf"),
        ("repositories", "https://artifacts.example"),
        ("use_krb5ccache", True),
    ],
)
def test_an_argument_without_effect_on_a_spark_connect_server_is_refused(
    connect: Connect, snapshot: dict[str, str], argument: str, value: object
) -> None:
    connect(extra={"spark_conn_id": "spark_test"})
    connect("spark_test", conn_type="spark_connect", host="server", extra={"shared_workspace": True})
    sentence = (
        f"^The task plan has {argument}, which has no effect on the Spark Connect server of .* spark_test; config"
    )
    for given in ({argument: value}, {"default_args": {argument: value}}):
        with pytest.raises(SettingError, match=sentence):
            plan_of(snapshot, **given)


def test_what_airflow_takes_from_any_task_is_not_refused_for_a_spark_connect_server(
    connect: Connect, snapshot: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(extra={"spark_conn_id": "spark_test"})
    connect("spark_test", conn_type="spark_connect", host="server", extra={"shared_workspace": True})
    monkeypatch.setattr("kafka_steward.hooks.spark._connection_error", lambda _: "refused")
    with pytest.raises(PlanningFailed, match=r"The Spark Connect server at sc://server does not answer \(refused\)"):
        plan_of(snapshot, name="ours", retries=1, status_poll_interval=3)


def test_the_jobs_own_message_is_shown_whatever_spark_prints_after_it(
    connect: Connect, snapshot: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.sdk.exceptions import AirflowException

    def submit(self: SparkSubmitHook, *_: Any) -> None:
        arguments = dict(pairwise(self._application_args or ()))
        Path(arguments["--failure-file"]).write_text("Brokers are missing: Zürich.", encoding="utf-8")
        raise AirflowException("Brokers are missing\nat java.base/java.lang.Thread.run(Thread.java:840)")

    monkeypatch.setattr(SparkSubmitHook, "submit", submit)
    monkeypatch.setattr("kafka_steward.hooks.spark._connection_error", lambda _: None)
    connect(extra={"spark_conn_id": "spark_test"})
    connect("spark_test", conn_type="spark", host="yarn", extra=own_spark(tmp_path))
    with pytest.raises(PlanningFailed, match=r"^The Spark job ended without a plan: Brokers are missing: Zürich\.$"):
        plan_of(snapshot)


def test_a_java_that_is_too_old_for_spark_is_named_where_the_job_could_not_begin(
    connect: Connect, snapshot: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.sdk.exceptions import AirflowException

    def submit(*_: Any) -> None:
        raise AirflowException("Cannot execute: spark-submit --master local[2]. Error code is: 1.")

    monkeypatch.setattr(SparkSubmitHook, "submit", submit)
    monkeypatch.setattr("kafka_steward.planning.spark.installed.find_java", lambda _: Path("/java"))
    monkeypatch.setattr("kafka_steward.planning.spark.installed.java_version", lambda _: "11.0.22")
    connect(extra={"spark_conn_id": "spark_test"})
    connect("spark_test", conn_type="spark", host="yarn", extra=own_spark(tmp_path))
    with pytest.raises(
        PlanningFailed, match=r"ended without a plan: Java 11\.0\.22 is too old for Spark .*install Java 17"
    ):
        plan_of(snapshot)


def test_a_job_of_spark_connect_writes_its_message_into_a_file_and_so_no_proof_into_the_log(
    connect: Connect, snapshot: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a failure file the job does not print the proof: tests/planning/test_job.py."""

    class Job:
        stdout = ("Brokers are missing", "a warning of Spark's client")
        returncode = 1

        def __init__(self, command: list[str], **_: Any) -> None:
            arguments = dict(pairwise(command))
            Path(arguments["--failure-file"]).write_text("Brokers are missing: Zürich.", encoding="utf-8")

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr("kafka_steward.operators.plan.subprocess.Popen", Job)
    monkeypatch.setattr("kafka_steward.hooks.spark._connection_error", lambda _: None)
    connect(extra={"spark_conn_id": "spark_test"})
    connect("spark_test", conn_type="spark_connect", host="server", extra={"shared_workspace": True})
    with pytest.raises(PlanningFailed, match=r"^The Spark job ended without a plan: Brokers are missing: Zürich\.$"):
        plan_of(snapshot)


def test_spark_submit_gets_the_environment_for_kubernetes_too(
    connect: Connect, snapshot: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow's hook gives it to the driver's pod, which the client mode has not."""
    from airflow.providers.apache.spark.hooks import spark_submit
    from airflow.sdk.exceptions import AirflowException

    seen: list[dict[str, str | None]] = []

    def submit(self: spark_submit.SparkSubmitHook, *_: Any) -> None:
        command = " ".join(self._build_spark_submit_command("job.py"))
        assert "driverEnv" not in command
        seen.append({name: os.environ.get(name) for name in ("PATH", "OUR_OWN")})
        raise AirflowException("The job is not run.")

    monkeypatch.setattr(spark_submit.SparkSubmitHook, "submit", submit)
    monkeypatch.setattr(spark_submit, "kube_client", object(), raising=False)
    monkeypatch.setattr("kafka_steward.hooks.spark._connection_error", lambda _: None)
    monkeypatch.setattr("kafka_steward.hooks.spark._require_kubernetes_provider", lambda _: None)
    connect(extra={"spark_conn_id": "spark_test"})
    extra = own_spark(tmp_path)
    extra["env_vars"]["OUR_OWN"] = "here"
    connect("spark_test", conn_type="spark", host="k8s://https://api.example", extra=extra)
    before = dict(os.environ)
    with pytest.raises(PlanningFailed, match=r"The job is not run\."):
        plan_of(snapshot)
    assert seen == [{"PATH": str(tmp_path / "bin"), "OUR_OWN": "here"}]
    assert dict(os.environ) == before


def test_spark_without_jars_is_said_before_anything_is_run(
    connect: Connect, snapshot: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    connect()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    with pytest.raises(PlanningFailed, match=r"^Spark is missing: "):
        plan_of(snapshot)


def test_no_connection_of_ours_is_one_sentence(snapshot: dict[str, str]) -> None:
    with pytest.raises(SettingError, match="There is no Airflow connection kafka_test"):
        plan_of(snapshot)


def test_no_such_connection_is_one_sentence() -> None:
    with pytest.raises(
        SettingError, match=r"^There is no Airflow connection spark_gone; create it \(type spark or spark_connect\)"
    ):
        find_spark_cluster("spark_gone")


def test_the_local_job_uses_this_python_and_its_pyspark() -> None:
    environment = local_environment()
    assert environment["PYSPARK_PYTHON"] == sys.executable
    assert (Path(environment["SPARK_HOME"]) / "bin" / "spark-submit").is_file()
    assert environment["SPARK_LOCAL_IP"] == "127.0.0.1"


def test_no_spark_at_all_is_one_sentence_with_the_one_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setattr("kafka_steward.planning.spark.installed.util.find_spec", lambda _: None)
    with pytest.raises(PlanningFailed, match=r"the package pyspark is not installed on the worker. Run `.*pip install"):
        local_environment()


LINES = ["t: 124 421 345 512 413 241", "u: 45 24 12 51"]
WHOLE = cluster("1a 2b 3c 4a 5b 6c+", *LINES)
DEAD = cluster("1a 2b 3c 4a! 5b 6c", *LINES)
GIVEN = {"version": 1, "partitions": [{"topic": "u", "partition": 0, "replicas": [5, 6]}]}

OPERATIONS: list[tuple[str, SnapshotFolder, dict[str, Any]]] = [
    ("heal", DEAD, {}),
    ("fill", DEAD, {"exclude": ["u"]}),
    ("rebalance", WHOLE, {}),
    ("rebalance", WHOLE, {"balance": "bytes"}),
    ("rebalance", WHOLE, {"max_moves": 2}),
    ("rebalance", WHOLE, {"max_bytes": 3000}),
    ("expand", WHOLE, {"exclude_brokers": [3]}),
    ("drain", cluster("1a 2b 3c 4a- 5b 6c", *LINES), {"rackless": "own-rack"}),
    ("set-replication-factor", WHOLE, {"replication_factor": 4, "topics": ["t"]}),
    ("set-replication-factor", WHOLE, {"replication_factor": 1, "topics": ["u"]}),
    ("apply", WHOLE, {"reassignment": GIVEN}),
]


def taken(snapshot: SnapshotFolder, folder: Any) -> dict[str, str]:
    """What SnapshotClusterOperator would return."""
    uri = written(snapshot, f"{folder}/run/snapshot")
    return {"uri": uri, "digest": snapshot.digest}


@pytest.mark.usefixtures("plans_in_process")
@pytest.mark.parametrize("asked", OPERATIONS, ids=[f"{one[0]}-{list(one[2])}" for one in OPERATIONS])
def test_every_operation_runs_from_the_operator(
    connect: Connect, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, asked: tuple[str, SnapshotFolder, dict[str, Any]]
) -> None:
    connect()
    monkeypatch.setattr(StewardHook, "open", Mock(side_effect=ClusterUnreachable("There is no cluster.")))
    operation, snapshot, options = asked
    operator = PlanReassignmentOperator(
        task_id="plan", snapshot=taken(snapshot, tmp_path), operation=operation, options=options, conn_id="kafka_test"
    )
    told = operator.execute(context(task_id="plan"))
    plan = read_plan(told["uri"])
    assert plan.moves
    assert plan.moves == planned(snapshot, operation, options).moves
    assert check(snapshot, plan).problems == []
    assert (told["digest"], told["replicas_moved"]) == (plan.digest, plan.proof["replicas_moved"])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"spark.archives": "s3a://b/a.tgz#kafka_steward_archive"}),
        (
            {"spark.archives": "env.tgz#env", "spark.executorEnv.PYTHONPATH": "env/lib"},
            {
                "spark.archives": "s3a://b/a.tgz#kafka_steward_archive,env.tgz#env",
                "spark.executorEnv.PYTHONPATH": "./kafka_steward_archive:env/lib",
            },
        ),
    ],
)
def test_the_archive_reaches_the_executors_beside_what_the_task_brings(
    connect: Connect, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, given: dict[str, str], expected: dict[str, str]
) -> None:
    connect()
    connect("spark_test", conn_type="spark", host="spark://master:7077")
    seen: dict[str, str] = {}

    def execute(self: SparkSubmitOperator, context: Any) -> None:
        seen.update(self.conf or {})

    monkeypatch.setattr(SparkSubmitOperator, "execute", execute)
    # Neither the master nor the archive is there.
    monkeypatch.setattr(SparkCluster, "refuse_what_cannot_work", lambda *_, **__: None)
    monkeypatch.setattr("kafka_steward.operators.plan._check_archive", lambda _: None)
    operator = PlanReassignmentOperator(
        task_id="plan",
        snapshot=taken(WHOLE, tmp_path),
        conn_id="kafka_test",
        spark_conn_id="spark_test",
        archive="s3a://b/a.tgz",
        conf=given,
    )
    with pytest.raises(PlanError, match=r"proof\.json: no such file"):
        operator.execute(context(task_id="plan"))
    assert expected.items() <= seen.items()
    assert "spark.driver.host" not in seen


def test_a_plan_that_was_changed_on_its_way_is_refused(
    connect: Connect, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect()

    def execute(self: SparkSubmitOperator, context: Any) -> None:
        from kafka_steward.planning.files.formats import plan_table, write_plan

        out = (self.application_args or [])[3]
        plan = planned(DEAD)
        write_plan(out, plan_table(plan.moves), plan.proof)
        path = Path(out) / "proof.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "digest": "0" * 64}))

    monkeypatch.setattr(SparkSubmitOperator, "execute", execute)
    operator = PlanReassignmentOperator(task_id="plan", snapshot=taken(DEAD, tmp_path), conn_id="kafka_test")
    with pytest.raises(PlanError, match="was edited after it was made"):
        operator.execute(context(task_id="plan"))
