"""Planning: a Spark job, on this machine or on the master of an Airflow connection, turns a snapshot into a plan."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib import util
from inspect import signature
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowException

from kafka_steward.arrow import leave_out_pandas
from kafka_steward.assignment import EVEN_OPERATIONS, counted
from kafka_steward.errors import PlanError, PlanningFailed, SettingError, StewardError
from kafka_steward.escaping import printable
from kafka_steward.hooks.context import hook_of
from kafka_steward.hooks.spark import (
    LOCAL_CONN_ID,
    SparkCluster,
    find_spark_cluster,
    local_environment,
    mask_credentials,
    offer_local_connection,
)
from kafka_steward.operators.base import Notifiers, fail_without_retry, to_notifier_list, tools_connection
from kafka_steward.operators.links import LinkedToPlan
from kafka_steward.operators.plan_folders import parse_uri_and_digest, write_plan_page
from kafka_steward.operators.review import review_plan, stop_or_go_on

if TYPE_CHECKING:
    from airflow.sdk import Context

    from kafka_steward.planning.files.formats import PlanFolder, SnapshotFolder
    from kafka_steward.settings import Settings

__all__ = ["PlanReassignmentOperator"]

#: At Spark's default level its own messages would hide those of the job.
QUIET_CONF: Mapping[str, str] = {"spark.log.level": "WARN"}
#: A local job listens on the loopback interface only, and has no web UI.
LOCAL_CONF: Mapping[str, str] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
}
#: The arguments of SparkSubmitOperator for spark-submit: all whose default is nothing, but for Airflow's own.
_SUBMIT_ARGUMENTS = tuple(
    name
    for name, parameter in signature(SparkSubmitOperator.__init__).parameters.items()
    if parameter.default in (None, "", False) and name not in ("durable", "reconnect_on_retry")
)
#: Notes of a proof that are logged; the page about the plan has all.
_NOTES_LOGGED = 20
#: `26/11/21 09:02:37 INFO SparkContext: ...`
_LOG_LINE = re.compile(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d (TRACE|DEBUG|INFO|WARN) ")


class PlanReassignmentOperator(LinkedToPlan, SparkSubmitOperator):
    """Plans `operation` for a snapshot with Spark; changes nothing on the cluster, and never connects to it.

    `snapshot` is the result of SnapshotClusterOperator, or a snapshot's URI. `spark_conn_id` is a connection of type
    `spark` or `spark_connect`; without it, the setting `spark_conn_id` names one, and without that the job runs on the
    worker (local[*]). What the job needs on a Spark of one's own (`archive`, `spark_conf`, `packages`, ...) is read
    from that connection's extra; arguments of SparkSubmitOperator (`conf`, `packages`, ...) and `archive` have
    precedence. `options` are the planner's.

    `mode` is that of a heal's form. With it, the plan is reviewed as by ReviewPlanOperator: with `report` the task
    succeeds, its downstream tasks with the trigger rule `all_success` are skipped, and `on_not_healable` is notified of
    partitions that the plan cannot place. The result then also has `sentence` and `stop`.

    The plan is written beside the snapshot and read back from there. Its digest is verified, and a checker that does
    not trust the solver checks it against the snapshot. Returns `{"uri", "digest", "replicas_moved", "bytes_moved",
    "lower_bound", "partitions", "unplaced", "log_dirs_failed", "nothing", "page_digest"}`: `log_dirs_failed` are the
    live brokers whose failed log directories it heals, `nothing` names the partitions that a plan without moves leaves
    for now, the last is of the page about the plan, `review.md` in its folder. Raises PlanningFailed when the job ends
    without a plan, and SettingError for a configuration that cannot work.

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
        "mode",
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
        mode: str | Any | None = None,
        on_not_healable: Notifiers = None,
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
        self.mode = mode
        self.on_not_healable = to_notifier_list(on_not_healable)
        self._connect_job: ConnectJob | None = None
        self._kubernetes_environment: dict[str, str] = {}

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]  # theirs returns nothing
        """Run the job, and return the plan that it wrote; with `mode`, review it."""
        self._require_snapshot()
        made = self._plan_snapshot(self._read_snapshot, context)
        if self.mode is None:
            return made
        facts = review_plan(self, made, mode=self.mode)
        return stop_or_go_on(self, facts, context, mode=self.mode, on_not_healable=self.on_not_healable)

    def _require_snapshot(self) -> None:
        """Keep only address and digest of `snapshot`. Raises AirflowFailException if it has none."""
        with fail_without_retry():
            uri, digest = parse_uri_and_digest(self.snapshot, "snapshot")
        self.snapshot = {"uri": uri, "digest": digest}

    def _read_snapshot(self) -> SnapshotFolder:
        """Read the snapshot. Raises PlanError if it is missing, edited, or another one than the task took."""
        leave_out_pandas()
        from kafka_steward.planning.files.formats import read_snapshot

        snapshot = read_snapshot(self.snapshot["uri"])
        if self.snapshot["digest"] not in (None, snapshot.digest):
            raise PlanError(f"The snapshot at {snapshot.uri} is not the one that was taken; take a new one.")
        return snapshot

    def _plan_snapshot(self, read: Callable[[], SnapshotFolder], context: Context) -> dict[str, Any]:
        """Run the job on the snapshot that `read` returns, and return the plan that it wrote."""
        uri = f"{self.snapshot['uri'].rsplit('/', 1)[0]}/{self.task_id}-plan-{context['ti'].try_number}"
        hook = hook_of(self, context)
        spark = self._configure_spark(find_spark_cluster(self.spark_conn_id or hook.spark_conn_id), uri)
        with ThreadPoolExecutor(max_workers=1) as reader:
            # The job starts while Arrow is imported here, and refuses an edited snapshot, too.
            reading = reader.submit(read)
            try:
                self._run_spark_job(spark, uri, hook.settings, context)
            except PlanningFailed:
                reading.result()
                raise
        return self._check_result(uri, reading.result(), context)

    def _check_result(self, uri: str, snapshot: SnapshotFolder, context: Context) -> dict[str, Any]:
        """Return the plan that the job wrote for the snapshot, checked, with its page."""
        from kafka_steward.planning.files.formats import read_plan

        plan = read_plan(uri)
        _check_plan(snapshot, plan)
        facts, page_digest = self._plan_result(uri, plan, snapshot), self._write_page(uri, plan, snapshot, context)
        return {**facts, "page_digest": page_digest}

    def _configure_spark(self, cluster: SparkCluster, uri: str) -> SparkCluster:
        """Return the Spark with this task's own archive, if any, after all that can be known is checked.

        The arguments of the task have precedence over the connection's extra.
        """
        # The Python of this machine already has the contents of the archive.
        spark = replace(cluster, archive=None if cluster.is_local else self.archive or cluster.archive)
        self._conn_id = spark.conn_id
        if spark.is_connect:
            self._refuse_vain_arguments(spark)
        if spark.is_local:
            self.env_vars = {**local_environment(), **(self.env_vars or {})}
            if spark.conn_id == LOCAL_CONN_ID:
                offer_local_connection()
        self.env_vars = {**spark.env_vars, **(self.env_vars or {})} or None
        self.conf = {**_default_conf(spark, self.env_vars or {}), **spark.conf, **(self.conf or {})}
        mask_credentials(self.conf, self.env_vars)
        spark = replace(spark, conf=self.conf)
        spark.refuse_what_cannot_work(uri, self.env_vars or {}, deploy_mode=self._deploy_mode)
        if spark.archive is not None:
            _check_archive(spark.archive)
            self.conf.update(_archive_conf(spark.archive, self.conf))
        self.packages, self.jars = self.packages or spark.packages, self.jars or spark.jars
        self._repositories = self._repositories or spark.repositories
        self.properties_file = self.properties_file or spark.properties_file
        self.application = self.application or _job_path()
        if spark.is_kubernetes:
            # Airflow's hook gives env_vars to the driver's pod, which the client mode has not, and not to spark-submit.
            self._kubernetes_environment, self.env_vars = self.env_vars or {}, None
        return spark

    def _refuse_vain_arguments(self, spark: SparkCluster) -> None:
        """Raise SettingError for an argument of SparkSubmitOperator without effect on a Spark Connect server."""
        # What it stores as private is named `_repositories` for `repositories`.
        given = (name for name in _SUBMIT_ARGUMENTS if getattr(self, name, None) or getattr(self, f"_{name}", None))
        vain = next(given, None)
        if vain is not None:
            raise SettingError(
                f"The task {self.task_id} has {vain}, which has no effect on the Spark Connect server of the "
                f"connection {spark.conn_id}; configure the server with it, and remove {vain} from the task."
            )

    def _run_spark_job(self, spark: SparkCluster, uri: str, settings: Settings, context: Context) -> None:
        with TemporaryDirectory(prefix="kafka-steward-") as folder:
            options, failure = Path(folder) / "options.json", Path(folder) / "failure.txt"
            options.write_text(
                json.dumps({**settings.planner_options(evens_out=self.operation in EVEN_OPERATIONS), **self.options})
            )
            self.application_args = ["--snapshot", self.snapshot["uri"], "--out", uri]
            self.application_args += ["--operation", self.operation, "--options", str(options)]
            if spark.archive is not None:
                self.application_args += ["--archive", spark.archive]
            self.application_args += ["--failure-file", str(failure)]
            if spark.is_connect:
                self._connect_job = ConnectJob(spark.conn_id, self.application_args, failure)
                self._connect_job.run(self.log)
                return
            try:
                with _inherited_environment(self._kubernetes_environment):
                    super().execute(context)
            except AirflowException as error:
                from kafka_steward.planning.spark.installed import find_java, java_version, old_java_sentence

                java = find_java({**os.environ, **(self.env_vars or {})})
                too_old = old_java_sentence(java, None if java is None else java_version(java))
                raise _job_failure(failure, too_old or _last_job_message(error)) from error

    def on_kill(self) -> None:
        """End the job's process on this machine, and with it the job."""
        if self._connect_job is not None:
            self._connect_job.end()
        elif self._hook is not None:
            super().on_kill()

    def _write_page(self, uri: str, plan: PlanFolder, snapshot: SnapshotFolder, context: Context) -> str:
        """Write the page about the plan, with the rates that others have set unless the cluster cannot be asked."""
        from kafka_steward.execution.throttles.leftovers import read_external_rates

        rates, hook = None, hook_of(self, context)
        with suppress(StewardError), hook.open() as opened:
            rates = read_external_rates(opened.cluster, opened.journal, leaders=opened.settings.throttle_leaders)
        return write_plan_page(uri, plan, snapshot, rates=rates, connection=tools_connection(hook))

    def _plan_result(self, uri: str, plan: PlanFolder, snapshot: SnapshotFolder) -> dict[str, Any]:
        from kafka_steward.execution.plans.report import held_sentence, racks_sentence
        from kafka_steward.execution.plans.summary import partitions_in_need

        self.linked_plan, proof = plan.digest, plan.proof
        numbers = {name: proof.get(name) for name in ("replicas_moved", "bytes_moved", "lower_bound")}
        disks = list(proof.get("log_dirs_failed") or ())
        unplaced = len(partitions_in_need(proof.get("unplaced") or (), proof, snapshot))
        moves = (
            f"moves {numbers['replicas_moved']} replicas of {len(plan.moves)} partitions (no plan can move fewer than "
        )
        moves = f"{moves}{numbers['lower_bound']})" if plan.moves else "has nothing to move"
        moves += f"; {counted(unplaced, 'partition')} cannot be fully replicated" if unplaced else ""
        self.log.info("Plan %s %s.", plan.digest[:12], printable(moves))
        for note in (proof.get("notes") or ())[:_NOTES_LOGGED]:
            self.log.info("%s", printable(str(note)))
        counts = {"partitions": len(plan.moves), "unplaced": unplaced, "log_dirs_failed": disks}
        # A plan without moves may not be the whole truth: it may leave partitions that need a change.
        nothing = "" if plan.moves else " ".join(filter(None, [held_sentence(proof), racks_sentence(proof)]))
        return {"uri": uri, "digest": plan.digest, **numbers, **counts, "nothing": nothing}


def _default_conf(spark: SparkCluster, env: Mapping[str, str]) -> dict[str, str]:
    from kafka_steward.planning.spark.installed import local_java_options

    if spark.is_connect:
        return {}
    if spark.is_local:
        java = local_java_options(Path(env["SPARK_HOME"]), {**os.environ, **env})
        return {**QUIET_CONF, **LOCAL_CONF, "spark.driver.extraJavaOptions": java}
    # The driver runs on this worker, whose Python has kafka_steward. Spark would take the executors' Python for it.
    return {**QUIET_CONF, "spark.pyspark.driver.python": sys.executable}


def _check_archive(archive: str) -> None:
    from kafka_steward.planning.spark.archive import check_archive, read_archive_facts

    check_archive(archive, read_archive_facts(archive))


def _archive_conf(archive: str, conf: Mapping[str, str]) -> dict[str, str]:
    """Return the configuration that adds the archive to the executors' path, merged with values that are given."""
    from kafka_steward.planning.files.storage import spark_uri
    from kafka_steward.planning.spark.archive import archive_conf

    joints = {"spark.archives": ",", "spark.executorEnv.PYTHONPATH": ":"}
    return {
        name: joints[name].join(part for part in (value, conf.get(name)) if part)
        for name, value in archive_conf(spark_uri(archive)).items()
    }


@contextmanager
def _inherited_environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables that spark-submit inherits, for the block."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _job_path() -> str:
    # Located, not imported: the worker itself needs no Spark session.
    spec = util.find_spec("kafka_steward.planning.spark.job")
    if spec is None or spec.origin is None:
        raise PlanningFailed("The planner is missing: reinstall airflow-provider-kafka-steward on the worker.")
    return spec.origin


def _check_plan(snapshot: SnapshotFolder, plan: PlanFolder) -> None:
    from kafka_steward.planning.checker.check import check

    verdict = check(snapshot, plan, proven=False)
    if not verdict.ok:
        raise PlanError(f"The plan {plan.digest[:12]} failed its check, and is not used: {verdict.problems[0]}")


class ConnectJob:
    """The job as a process of this worker that is a client of a Spark Connect server: there is nothing to submit.

    `failure` is the file on this worker into which the job writes why it ended without a plan.
    """

    def __init__(self, conn_id: str, arguments: Sequence[str], failure: Path) -> None:
        self._conn_id, self._arguments, self._failure = conn_id, list(arguments), failure
        self._process: subprocess.Popen[str] | None = None

    def run(self, log: Any) -> None:
        """Run the job to its end. Raises PlanningFailed with its message if it ends without a plan."""
        from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook

        # In the environment, because the address may hold a token.
        env = {**os.environ, "SPARK_REMOTE": SparkConnectHook(self._conn_id).get_connection_url()}
        command = [sys.executable, "-m", "kafka_steward.planning", *self._arguments]
        last = ""
        with subprocess.Popen(
            command, env=env, text=True, errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        ) as self._process:
            for line in self._process.stdout or ():
                log.info("%s", printable(line.rstrip()))
                last = line.strip() or last
        if self._process.returncode:
            raise _job_failure(self._failure, last or "it said nothing")

    def end(self) -> None:
        """End the process, if it runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()


def _job_failure(file: Path, last: str) -> PlanningFailed:
    """Return the error with the message that the job wrote into `file`; with `last` if it wrote none."""
    message = file.read_text(encoding="utf-8") if file.exists() else last
    return PlanningFailed(f"The Spark job ended without a plan: {message}")


def _last_job_message(error: Exception) -> str:
    """Return the last line that is not from Spark's own log: the job's message, or the exception that ended it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    messages = [line for line in lines if not (_LOG_LINE.match(line) or line.startswith("WARNING: "))]  # Java's own
    return (messages or lines or [type(error).__name__])[-1]
