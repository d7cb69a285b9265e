"""Planning: a Spark job turns a snapshot into a plan."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowException

from kafka_steward.errors import PlanError, PlanningFailed, SettingError
from kafka_steward.escaping import printable
from kafka_steward.hooks.context import hook_of
from kafka_steward.operators.folders import write_page
from kafka_steward.operators.spark import (
    LOCAL_CONF,
    LOCAL_CONN_ID,
    QUIET_CONF,
    Master,
    local_environment,
    master_of,
    offer_local_connection,
)

if TYPE_CHECKING:
    from airflow.sdk import Context

    from kafka_steward.planning.files.formats import PlanFolder, SnapshotFolder
    from kafka_steward.settings import Settings

__all__ = ["PlanReassignmentOperator"]

#: `26/11/21 09:02:37 INFO SparkContext: ...`
_LOG_LINE = re.compile(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d (TRACE|DEBUG|INFO|WARN) ")


class PlanReassignmentOperator(SparkSubmitOperator):
    """Plans `operation` for a snapshot with Spark; changes nothing on the cluster, and never connects to it.

    `snapshot` is the result of SnapshotClusterOperator. Without `spark_conn_id` the job runs on the worker (local[*]).
    Other arguments of SparkSubmitOperator (`conf`, `driver_memory`, `py_files`, ...) are passed on. `options` are the
    planner's. A Spark cluster whose Python lacks `kafka_steward` and OR-tools gets them from `archive`: the address of
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
        return self._plan_from(self._taken_snapshot(), context)

    def _taken_snapshot(self) -> SnapshotFolder:
        """Read the snapshot. Raises PlanError if it is missing, edited, or another one than the task took."""
        from kafka_steward.planning.files.formats import read_snapshot

        snapshot = read_snapshot(self.snapshot["uri"])
        if snapshot.digest != self.snapshot["digest"]:
            raise PlanError(f"The snapshot at {self.snapshot['uri']} is not the one that was taken; take a new one.")
        return snapshot

    def _plan_from(self, snapshot: SnapshotFolder, context: Context) -> dict[str, Any]:
        """Run the job on the snapshot that was read, and return the plan that it wrote."""
        from kafka_steward.planning.files.formats import read_plan

        uri = f"{self.snapshot['uri'].rsplit('/', 1)[0]}/{self.task_id}-plan-{context['ti'].try_number}"
        self._prepare(uri)
        self._submit(uri, hook_of(self, context).settings, context)
        plan = read_plan(uri)
        _check(snapshot, plan)
        return {**self._result(uri, plan), "page_digest": write_page(uri, plan, snapshot)}

    def _prepare(self, uri: str) -> None:
        master = master_of(self.spark_conn_id)
        _refuse_unreachable(master, uri)
        given = self.conf or {}
        # The Python of this machine already has the contents of the archive.
        archived = {} if master.is_local else _archived(self.archive, given)
        self.conf = {**QUIET_CONF, **(LOCAL_CONF if master.is_local else {}), **given, **archived}
        if master.is_local:
            self.env_vars = {**local_environment(), **(self.env_vars or {})}
        if self.spark_conn_id is None:
            offer_local_connection()
        self.application = self.application or _job()

    def _submit(self, uri: str, settings: Settings, context: Context) -> None:
        with TemporaryDirectory(prefix="kafka-steward-") as folder:
            options = Path(folder) / "options.json"
            options.write_text(json.dumps({**_options(settings), **self.options}))
            self.application_args = ["--snapshot", self.snapshot["uri"], "--out", uri]
            self.application_args += ["--operation", self.operation, "--options", str(options)]
            try:
                super().execute(context)
            except AirflowException as error:
                raise PlanningFailed(f"The Spark job ended without a plan: {_last_words(error)}") from error

    def _result(self, uri: str, plan: PlanFolder) -> dict[str, Any]:
        proof = plan.proof
        numbers = {name: proof.get(name) for name in ("replicas_moved", "bytes_moved", "lower_bound")}
        unplaced = len(proof.get("unplaced") or ())
        self.log.info(
            "Plan %s moves %s replicas of %d partitions (no plan can move fewer than %s); %d cannot be healed whole.",
            plan.digest[:12], printable(str(numbers["replicas_moved"])), len(plan.moves),
            printable(str(numbers["lower_bound"])), unplaced,
        )  # fmt: skip
        return {"uri": uri, "digest": plan.digest, **numbers, "partitions": len(plan.moves), "unplaced": unplaced}


def _archived(archive: str | None, conf: Mapping[str, str]) -> dict[str, str]:
    """Return the configuration that adds the archive to the executors' path, merged with the task's own values."""
    from kafka_steward.planning.spark.archive import archive_conf

    if archive is None:
        return {}
    joints = {"spark.archives": ",", "spark.executorEnv.PYTHONPATH": ":"}
    return {
        name: joints[name].join(part for part in (value, conf.get(name)) if part)
        for name, value in archive_conf(archive).items()
    }


def _job() -> str:
    # Located, not imported: the worker itself needs no Spark session.
    spec = find_spec("kafka_steward.planning.spark.job")
    if spec is None or spec.origin is None:
        raise PlanningFailed("The planner is missing: install airflow-provider-kafka-steward anew on the worker.")
    return spec.origin


def _options(settings: Settings) -> dict[str, Any]:
    caps = {"max_in_per_broker": settings.max_in_per_broker, "max_out_per_broker": settings.max_out_per_broker}
    return {"chunk_size": settings.heal_chunk_size, **caps, "throttle": settings.throttle}


def _refuse_unreachable(master: Master, uri: str) -> None:
    from kafka_steward.planning.files.storage import is_local

    if is_local(uri) and not master.is_local:
        raise SettingError(
            f"Spark runs on {master.url}, whose machines cannot read {uri}; set `workspace` in the connection's extra "
            "to storage that they share, such as s3://bucket/folder."
        )


def _check(snapshot: SnapshotFolder, plan: PlanFolder) -> None:
    from kafka_steward.planning.checker.check import check

    verdict = check(snapshot, plan, proven=False)
    if not verdict.ok:
        raise PlanError(f"The plan {plan.digest[:12]} does not check, and will not be used: {verdict.problems[0]}")


def _last_words(error: Exception) -> str:
    """Return the last line that is not from Spark's own log: the job's message, or the exception that ended it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = [line for line in lines if not _LOG_LINE.match(line)]
    return (said or lines or [type(error).__name__])[-1]
