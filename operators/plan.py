"""Planning: a Spark job, on this machine or on the master of an Airflow connection, turns a snapshot into a plan."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import util
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowException, AirflowNotFoundException

from kafka_steward.errors import PlanError, PlanningFailed, SettingError
from kafka_steward.escaping import printable
from kafka_steward.hooks.context import hook_of
from kafka_steward.operators.plan_folders import write_plan_page

if TYPE_CHECKING:
    from airflow.sdk import Context

    from kafka_steward.planning.files.formats import PlanFolder, SnapshotFolder
    from kafka_steward.settings import Settings

__all__ = ["PlanReassignmentOperator"]

#: The connection that represents this machine. SparkSubmitHook would use YARN for a missing connection.
LOCAL_CONN_ID = "kafka_steward_local_spark"
#: At Spark's default level its own messages would hide those of the job.
QUIET_CONF: Mapping[str, str] = {"spark.log.level": "WARN"}
#: A local job listens on the loopback interface only, and has no web UI. Its JVM lives for seconds, so the C2
#: compiler and a parallel garbage collector would not pay off.
LOCAL_CONF: Mapping[str, str] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
#: `26/11/21 09:02:37 INFO SparkContext: ...`
_LOG_LINE = re.compile(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d (TRACE|DEBUG|INFO|WARN) ")


class PlanReassignmentOperator(SparkSubmitOperator):
    """Plans `operation` for a snapshot with Spark; changes nothing on the cluster, and never connects to it.

    `snapshot` is the result of SnapshotClusterOperator. Without `spark_conn_id` the job runs on the worker (local[*]).
    Other arguments of SparkSubmitOperator (`conf`, `driver_memory`, `py_files`, ...) are passed on. `options` are the
    planner's. A Spark cluster whose Python lacks `kafka_steward` and pylmcf gets them from `archive`: the address of
    the output of `python -m kafka_steward.planning --make-archive`, readable from the submitting machine.

    The plan is written beside the snapshot and read back from there. Its digest is verified, and a checker that does
    not trust the solver checks it against the snapshot. Returns `{"uri", "digest", "replicas_moved", "bytes_moved",
    "lower_bound", "partitions", "unplaced", "page_digest"}`; the last is of the page about the plan, `review.md` in its
    folder. Raises PlanningFailed when the job ends without a plan, and SettingError
    for a configuration that cannot work.

    >>> PlanReassignmentOperator(task_id="plan", snapshot={"uri": "/snapshot"}, operation="heal")
    <Task(PlanReassignmentOperator): plan>
    """

    template_fields: Sequence[str] = (
        *SparkSubmitOperator.template_fields,
        "conn_id",
        "settings",
        "snapshot",
        "options",
        "archive",
    )

    def __init__(
        self,
        *,
        snapshot: Mapping[str, Any] | Any,
        operation: str = "heal",
        options: Mapping[str, Any] | None = None,
        conn_id: str = "kafka_steward_default",
        spark_conn_id: str | None = None,
        settings: Mapping[str, Any] | None = None,
        archive: str | None = None,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("name", "kafka-steward-plan")
        super().__init__(conn_id=spark_conn_id or LOCAL_CONN_ID, **kwargs)
        self.snapshot = snapshot
        self.operation = operation
        self.options = dict(options or {})
        self.conn_id = conn_id
        self.spark_conn_id = spark_conn_id
        self.settings = dict(settings or {})
        self.archive = archive

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]  # theirs returns nothing
        """Run the job, and return the plan that it wrote."""
        return self._plan_snapshot(self._read_snapshot(), context)

    def _read_snapshot(self) -> SnapshotFolder:
        """Read the snapshot. Raises PlanError if it is missing, edited, or another one than the task took."""
        from kafka_steward.planning.files.formats import read_snapshot

        snapshot = read_snapshot(self.snapshot["uri"])
        if snapshot.digest != self.snapshot["digest"]:
            raise PlanError(f"The snapshot at {self.snapshot['uri']} is not the one that was taken; take a new one.")
        return snapshot

    def _plan_snapshot(self, snapshot: SnapshotFolder, context: Context) -> dict[str, Any]:
        """Run the job on the snapshot that was read, and return the plan that it wrote."""
        from kafka_steward.planning.files.formats import read_plan

        uri = f"{self.snapshot['uri'].rsplit('/', 1)[0]}/{self.task_id}-plan-{context['ti'].try_number}"
        self._configure_spark(uri)
        self._run_spark_job(uri, hook_of(self, context).settings, context)
        plan = read_plan(uri)
        _check_plan(snapshot, plan)
        return {**self._plan_result(uri, plan), "page_digest": write_plan_page(uri, plan, snapshot)}

    def _configure_spark(self, uri: str) -> None:
        master = find_spark_master(self.spark_conn_id)
        _refuse_unreachable_uri(master, uri)
        given = self.conf or {}
        # The Python of this machine already has the contents of the archive.
        archived = {} if master.is_local else _archive_conf(self.archive, given)
        self.conf = {**QUIET_CONF, **(LOCAL_CONF if master.is_local else {}), **given, **archived}
        if master.is_local:
            self.env_vars = {**local_environment(), **(self.env_vars or {})}
        if self.spark_conn_id is None:
            offer_local_connection()
        self.application = self.application or _job_path()

    def _run_spark_job(self, uri: str, settings: Settings, context: Context) -> None:
        with TemporaryDirectory(prefix="kafka-steward-") as folder:
            options = Path(folder) / "options.json"
            options.write_text(json.dumps({**_planner_options(settings), **self.options}))
            self.application_args = ["--snapshot", self.snapshot["uri"], "--out", uri]
            self.application_args += ["--operation", self.operation, "--options", str(options)]
            try:
                super().execute(context)
            except AirflowException as error:
                raise PlanningFailed(f"The Spark job ended without a plan: {_last_job_message(error)}") from error

    def _plan_result(self, uri: str, plan: PlanFolder) -> dict[str, Any]:
        proof = plan.proof
        numbers = {name: proof.get(name) for name in ("replicas_moved", "bytes_moved", "lower_bound")}
        unplaced = len(proof.get("unplaced") or ())
        self.log.info(
            "Plan %s moves %s replicas of %d partitions (no plan can move fewer than %s); %d cannot be fully healed.",
            plan.digest[:12], printable(str(numbers["replicas_moved"])), len(plan.moves),
            printable(str(numbers["lower_bound"])), unplaced,
        )  # fmt: skip
        return {"uri": uri, "digest": plan.digest, **numbers, "partitions": len(plan.moves), "unplaced": unplaced}


def _archive_conf(archive: str | None, conf: Mapping[str, str]) -> dict[str, str]:
    """Return the configuration that adds the archive to the executors' path, merged with the task's own values."""
    from kafka_steward.planning.spark.archive import archive_conf

    if archive is None:
        return {}
    joints = {"spark.archives": ",", "spark.executorEnv.PYTHONPATH": ":"}
    return {
        name: joints[name].join(part for part in (value, conf.get(name)) if part)
        for name, value in archive_conf(archive).items()
    }


def _job_path() -> str:
    # Located, not imported: the worker itself needs no Spark session.
    spec = util.find_spec("kafka_steward.planning.spark.job")
    if spec is None or spec.origin is None:
        raise PlanningFailed("The planner is missing: reinstall airflow-provider-kafka-steward on the worker.")
    return spec.origin


def _planner_options(settings: Settings) -> dict[str, Any]:
    caps = {"max_in_per_broker": settings.max_in_per_broker, "max_out_per_broker": settings.max_out_per_broker}
    return {"chunk_size": settings.heal_chunk_size, **caps, "throttle": settings.throttle}


def _refuse_unreachable_uri(master: Master, uri: str) -> None:
    from kafka_steward.planning.files.storage import is_local_uri

    if is_local_uri(uri) and not master.is_local:
        raise SettingError(
            f"Spark runs on {master.url}, whose machines cannot read {uri}; set `workspace` in the connection's extra "
            "to storage that they share, such as s3://bucket/folder."
        )


def _check_plan(snapshot: SnapshotFolder, plan: PlanFolder) -> None:
    from kafka_steward.planning.checker.check import check

    verdict = check(snapshot, plan, proven=False)
    if not verdict.ok:
        raise PlanError(f"The plan {plan.digest[:12]} failed its check, and is not used: {verdict.problems[0]}")


def _last_job_message(error: Exception) -> str:
    """Return the last line that is not from Spark's own log: the job's message, or the exception that ended it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = [line for line in lines if not _LOG_LINE.match(line)]
    return (said or lines or [type(error).__name__])[-1]


@dataclass(frozen=True)
class Master:
    """A Spark master URL."""

    url: str

    @property
    def is_local(self) -> bool:
        """Return whether the whole job runs in one process of this machine."""
        return self.url.startswith("local")


def find_spark_master(spark_conn_id: str | None) -> Master:
    """Return the master that the connection names; this machine without a connection. Raises SettingError."""
    if spark_conn_id is None:
        return Master("local[*]")
    try:
        connection = BaseHook.get_connection(spark_conn_id)
    except AirflowNotFoundException as error:
        raise SettingError(
            f"There is no Airflow connection {spark_conn_id}; create it (type spark), or leave out spark_conn_id to "
            "plan on the worker itself."
        ) from error
    return Master(connection.host or "yarn")


def offer_local_connection() -> None:
    """Define LOCAL_CONN_ID for this process, through the environment variable that Airflow reads connections from."""
    os.environ[f"AIRFLOW_CONN_{LOCAL_CONN_ID.upper()}"] = json.dumps({"conn_type": "spark", "host": "local[*]"})


def local_environment() -> dict[str, str]:
    """Return the environment variables that spark-submit needs to run here, with this Python and its PySpark.

    Raises PlanningFailed, with the command that repairs it, when PySpark is missing or cannot be used.
    """
    from kafka_steward.planning.spark.installed import find_spark

    home = find_spark()
    binaries = os.pathsep.join((f"{home}/bin", str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    return {
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PATH": binaries,
    }
