"""Plans made by the operator on a Spark of one's own: everything that a job needs comes from one connection."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from time import monotonic
from typing import Any

import airflow.providers as airflow_providers
import pytest
from airflow.providers.apache.spark.hooks import spark_submit

from benchmarks.clusters import make_snapshot
from kafka_steward.errors import PlanningFailed, SettingError
from kafka_steward.operators.plan import PlanReassignmentOperator
from kafka_steward.operators.plan_folders import read_plan_page, read_task_plan
from kafka_steward.planning.files.formats import SnapshotFolder, read_plan, read_snapshot
from kafka_steward.planning.files.storage import Folder
from kafka_steward.planning.shards import SHARD_ROWS
from kafka_steward.planning.spark.archive import make_archive
from tests.airflow_home import NOWHERE, Connect, context
from tests.builders import cluster, planned, written
from tests.kubernetes_api import container_environment, run_kubernetes_api
from tests.object_store import bucket, hadoop_aws, objects, s3_environment, s3_server, s3a
from tests.own_spark import SPARK, bare_python, connect_server, running_connect_server, standalone
from tests.own_yarn import yarn
from tests.planning.test_job import TOPICS

__all__ = [
    "archive",
    "bare_python",
    "bucket",
    "connect_server",
    "hadoop_aws",
    "s3_environment",
    "s3_server",
    "s3a",
    "standalone",
    "yarn",
]

#: What the operator adds to the options of a plan: the defaults of the settings.
SETTINGS = {"chunk_size": 50, "max_in_per_broker": 1000, "max_out_per_broker": 1000, "throttle": 50_000_000}
SNAPSHOTS = {
    "heal": cluster("1a 2b 3c 4a! 5b 6c", *TOPICS),
    "rebalance": cluster("1a 2b 3c 4a 5b 6c", *TOPICS),
    "expand": cluster("1a 2b 3c 4a 5b+ 6c+", *TOPICS),
}


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("archive") / "kafka-steward.tar.gz")
    make_archive(path)
    return path


def extra_of(python: Path, archive: str | None, **more: Any) -> dict[str, Any]:
    """The extra of a connection to the standalone master; what is not of the job keeps it small and on 127.0.0.1."""
    conf = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": False,
        "spark.executor.memory": "512m",
        "spark.task.maxFailures": 1,
        "spark.sql.codegen.wholeStage": False,
        "spark.pyspark.python": str(python),
    }
    given = {"archive": archive, "spark_conf": conf, "shared_workspace": True, **more}
    env = {"SPARK_LOCAL_IP": "127.0.0.1", "PATH": f"{SPARK / 'bin'}:{os.environ['PATH']}"}
    return {"env_vars": env, **{key: value for key, value in given.items() if value}}


def plan_of(snapshot: SnapshotFolder, folder: Path | str, operation: str, **more: Any) -> dict[str, Any]:
    uri = written(snapshot, f"{folder}/snapshot")
    given = {"uri": uri, "digest": snapshot_digest(uri)}
    # No argument names a Spark: the setting spark_conn_id does.
    operator = PlanReassignmentOperator(
        task_id="plan", snapshot=given, operation=operation, conn_id="kafka_test", **more
    )
    return operator.execute(context(task_id="plan"))


def snapshot_digest(uri: str) -> str:
    from kafka_steward.planning.files.formats import read_snapshot

    return read_snapshot(uri).digest


def local_digest(operation: str) -> str:
    return planned(SNAPSHOTS[operation], operation, SETTINGS).digest


pytestmark = [pytest.mark.spark, pytest.mark.slow]

OPERATIONS = ("heal", "rebalance", "expand")


@pytest.fixture
def on_standalone(connect: Connect, standalone: str, bare_python: Path, archive: str) -> dict[str, Any]:
    """The two connections: of the cluster, which names that of the Spark. Returns the extra of the latter."""
    connect(extra={"spark_conn_id": "spark_test"})
    extra = extra_of(bare_python, archive)
    connect("spark_test", conn_type="spark", host=standalone, extra=extra)
    return extra


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_standalone_master_makes_the_plan_that_this_machine_makes(
    on_standalone: dict[str, Any], tmp_path: Path, operation: str
) -> None:
    told = plan_of(SNAPSHOTS[operation], tmp_path, operation)
    assert told["digest"] == local_digest(operation)
    assert not (Path(told["uri"]) / "probe").exists()


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory, bare_python: Path) -> Path:
    """An archive with a Python for executors, as `venv-pack` would make it, were it not so large."""
    folder = tmp_path_factory.mktemp("environment")
    program = folder / "python"
    program.write_text(f'#!/bin/sh\nexec {bare_python} "$@"\n')
    program.chmod(0o755)
    with tarfile.open(folder / "environment.tar.gz", "w:gz") as packed:
        packed.add(program, "bin/python")
    return folder / "environment.tar.gz"


@pytest.fixture
def on_yarn(connect: Connect, yarn: Path, environment: Path, archive: str, tmp_path: Path) -> Path:
    """The two connections, as docs/spark.md has them for YARN. Returns the folder with the logs of the containers."""
    connect(extra={"spark_conn_id": "spark_test"})
    extra = extra_of(Path("environment/bin/python"), archive)
    extra["env_vars"]["HADOOP_CONF_DIR"] = str(yarn)
    extra["spark_conf"] |= {
        "spark.archives": f"{environment.as_uri()}#environment",
        "spark.pyspark.python": "./environment/bin/python",
        # Else Spark's jars, half a gigabyte, are copied to the home folder, and from there to the containers.
        "spark.yarn.jars": f"local:{SPARK / 'jars'}/*",
        "spark.yarn.stagingDir": (tmp_path / "staging").as_uri(),
        "spark.yarn.am.memory": "256m",
    }
    connect("spark_test", conn_type="spark", host="yarn", extra=extra)
    return yarn.parent / "containers"


@pytest.mark.parametrize("operation", ["heal", "rebalance", "expand"])
def test_yarn_makes_the_plan_that_this_machine_makes(on_yarn: Path, tmp_path: Path, operation: str) -> None:
    assert plan_of(SNAPSHOTS[operation], tmp_path, operation)["digest"] == local_digest(operation)
    assert any("YarnCoarseGrainedExecutorBackend" in log.read_text() for log in on_yarn.glob("*/*/stderr"))


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_spark_connect_server_makes_the_plan_that_this_machine_makes(
    connect: Connect, tmp_path: Path, connect_server: int, archive: str, operation: str
) -> None:
    connect(extra={"spark_conn_id": "spark_test"})
    extra = {"archive": archive, "shared_workspace": True}
    connect("spark_test", conn_type="spark_connect", host="127.0.0.1", port=connect_server, extra=extra)
    assert plan_of(SNAPSHOTS[operation], tmp_path, operation)["digest"] == local_digest(operation)


def test_executors_that_do_not_share_the_workspace_are_named_before_anything_is_planned(
    on_standalone: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same path is another folder in each process: what a workspace is that only this machine mounts."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        PlanningFailed, match=r"Spark's executor on \S+ does not share .*reading .*snapshot.json: No such file.*mount"
    ):
        plan_of(SNAPSHOTS["heal"], "/proc/self/cwd/workspace", "heal")
    assert {path.name for path in tmp_path.glob("workspace/*")} <= {"snapshot", "plan-plan-1"}
    assert list(tmp_path.glob("workspace/plan-plan-1/*")) == []


def test_executors_without_our_code_are_named_before_anything_is_planned(
    connect: Connect, tmp_path: Path, standalone: str, bare_python: Path
) -> None:
    connect(extra={"spark_conn_id": "spark_test"})
    connect("spark_test", conn_type="spark", host=standalone, extra=extra_of(bare_python, None))
    with pytest.raises(PlanningFailed, match=r"Spark's executor on \S+ has no kafka_steward; make an archive with"):
        plan_of(SNAPSHOTS["heal"], tmp_path, "heal")


PROVIDER = "apache-airflow-providers-cncf-kubernetes==10.25.0"
IMAGE = "registry.example/spark-python:1"


# on Kubernetes


@pytest.fixture(scope="session")
def provider_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Airflow's Kubernetes provider alone: the client mode calls nothing of what it depends on."""
    folder = tmp_path_factory.mktemp("provider")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), PROVIDER]
    subprocess.run(command, check=True, timeout=300)
    return folder / "airflow" / "providers"


@pytest.fixture
def kubernetes_provider(provider_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Airflow's Kubernetes provider, as if it had been installed before this process began."""
    monkeypatch.setattr(airflow_providers, "__path__", [*airflow_providers.__path__, str(provider_folder)])
    client = import_module("airflow.providers.cncf.kubernetes.kube_client")
    monkeypatch.setattr(spark_submit, "kube_client", client, raising=False)
    yield
    delattr(airflow_providers, "cncf")
    for name in [name for name in sys.modules if name.startswith("airflow.providers.cncf")]:
        del sys.modules[name]


@pytest.fixture
def connect_to(connect: Connect, bare_python: Path, archive: str, tmp_path: Path) -> Any:
    """Make the two connections of the recipe, to an API at an address: `connect_to(address, certificate, token)`."""

    def make(address: str, certificate: Path, token: str) -> None:
        (tmp_path / "token").write_text(token)
        connect(extra={"spark_conn_id": "spark_test"})
        extra = extra_of(bare_python, archive, namespace="planning")
        extra["spark_conf"] |= {
            "spark.kubernetes.container.image": IMAGE,
            "spark.kubernetes.authenticate.caCertFile": str(certificate),
            "spark.kubernetes.authenticate.oauthTokenFile": str(tmp_path / "token"),
            "spark.executor.instances": 1,
        }
        connect("spark_test", conn_type="spark", host=f"k8s://{address}", extra=extra)

    return make


@pytest.mark.usefixtures("kubernetes_provider")
@pytest.mark.parametrize("operation", OPERATIONS)
def test_executors_in_pods_make_the_plan_that_this_machine_makes(
    connect_to: Any, tmp_path: Path, operation: str
) -> None:
    with run_kubernetes_api(tmp_path / "api") as api:
        connect_to(api.address, api.certificate.certificate, api.token)
        assert plan_of(SNAPSHOTS[operation], tmp_path, operation)["digest"] == local_digest(operation)
    assert api.strangers == []
    (pod,) = api.pods.values()
    (container,) = pod["spec"]["containers"]
    assert (container["image"], container["args"]) == (IMAGE, ["executor"])
    assert pod["metadata"]["labels"]["spark-app-name"] == "kafka-steward-plan"
    env = container_environment(pod)
    assert env["PYTHONPATH"] == "./kafka_steward_archive"
    assert env["SPARK_DRIVER_URL"].startswith("spark://CoarseGrainedScheduler@127.0.0.1:")
    # Of the submitting process alone: neither its environment nor a credential is in a pod.
    assert "PATH" not in env
    assert api.token not in json.dumps(pod)
    ours = f"pods?labelSelector=spark-app-selector%3D{env['SPARK_APPLICATION_ID']}"
    assert f"DELETE /api/v1/namespaces/planning/{ours}" in (request.partition("%2C")[0] for request in api.requests)


@pytest.mark.usefixtures("kubernetes_provider")
@pytest.mark.parametrize(
    ("refused", "reason"),
    [
        ("configmaps", r".*configmaps is forbidden: User cannot create resource configmaps"),
        # Spark gives up after some attempts, and its log alone has the reason.
        ("pods", r".*Spark context stopped while waiting for backend"),
    ],
)
def test_an_api_that_refuses_ends_the_job_with_one_sentence(
    connect_to: Any, tmp_path: Path, refused: str, reason: str
) -> None:
    with run_kubernetes_api(tmp_path / "api", refused=(refused,)) as api:
        connect_to(api.address, api.certificate.certificate, api.token)
        with pytest.raises(
            PlanningFailed,
            match=rf"^The Spark job ended without a plan: Spark could not start on k8s://{api.address} \({reason}\); "
            r"correct what that names, or what Spark's errors name in the task's log\.$",
        ):
            plan_of(SNAPSHOTS["heal"], tmp_path, "heal")
    assert api.pods == {}


@pytest.mark.usefixtures("kubernetes_provider")
def test_an_api_that_takes_connections_and_says_nothing_ends_the_job_within_minutes(
    connect_to: Any, tmp_path: Path
) -> None:
    begun = monotonic()
    with socket.create_server(("127.0.0.1", 0)) as server, run_kubernetes_api(tmp_path / "api") as other:
        address = f"https://127.0.0.1:{server.getsockname()[1]}"
        connect_to(address, other.certificate.certificate, other.token)
        sentence = rf"^The Spark job ended without a plan: Spark could not start on k8s://{address} \(.*\); correct"
        with pytest.raises(PlanningFailed, match=sentence):
            plan_of(SNAPSHOTS["heal"], tmp_path, "heal")
    assert monotonic() - begun < 600


def test_without_airflows_kubernetes_provider_nothing_is_asked_of_the_api(connect_to: Any, tmp_path: Path) -> None:
    with run_kubernetes_api(tmp_path / "api") as api:
        connect_to(api.address, api.certificate.certificate, api.token)
        with pytest.raises(SettingError, match="install apache-airflow-providers-cncf-kubernetes on the workers"):
            plan_of(SNAPSHOTS["heal"], tmp_path, "heal")
    assert api.requests == []


#: They download 0.7 GB, and each job copies that.


# with the workspace in a store

#: The job as it is for more than a million partitions.
JOB_THAT_SENDS_NOTHING = """
import sys
from functools import partial
from kafka_steward.planning.spark import job
job.run = partial(job.run, most_sent=0)
sys.exit(job.main())
"""


@pytest.fixture
def workspace(connect: Connect, bucket: str) -> str:
    """The workspace of the cluster's connection, which names that of the Spark."""
    connect(extra={"spark_conn_id": "spark_test", "workspace": f"{bucket}/steward"})
    return f"{bucket}/steward/cluster/run"


def leave_half_a_plan(workspace: str) -> None:
    """What an earlier attempt leaves at the same address, if it ends at the wrong moments."""
    folder = Folder(f"{workspace}/plan-plan-1", "plan")
    folder.write_json("proof.json", {"digest": "0" * 64})
    folder.write_text("plan.parquet", "half a file")


def assert_planned_like_here(workspace: str, operation: str) -> None:
    leave_half_a_plan(workspace)
    told = plan_of(SNAPSHOTS[operation], workspace, operation)
    assert told["uri"] == f"{workspace}/plan-plan-1"
    assert told["digest"] == local_digest(operation)
    assert read_task_plan(told) == read_plan(told["uri"])
    assert (read_plan_page(told) or "").startswith(f"Plan **{told['digest'][:12]}**")
    assert set(objects(told["uri"])) == {"plan.parquet", "proof.json", "review.md"}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_worker_itself_makes_the_plan_in_a_store(
    connect: Connect, workspace: str, s3a: dict[str, Any], operation: str
) -> None:
    connect("spark_test", conn_type="spark", host="local[*]", extra=s3a)
    assert_planned_like_here(workspace, operation)


@pytest.fixture
def on_standalone_with_store(
    connect: Connect, standalone: str, bare_python: Path, archive: str, s3a: dict[str, Any]
) -> dict[str, Any]:
    extra = extra_of(bare_python, archive, packages=s3a["packages"], shared_workspace=None)
    extra["spark_conf"] |= s3a["spark_conf"]
    connect("spark_test", conn_type="spark", host=standalone, extra=extra)
    return extra


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_standalone_master_makes_the_plan_in_a_store(
    workspace: str, on_standalone_with_store: dict[str, Any], operation: str
) -> None:
    assert_planned_like_here(workspace, operation)


def test_spark_itself_reads_the_store_where_one_task_is_too_small(
    workspace: str, on_standalone_with_store: dict[str, Any], tmp_path: Path
) -> None:
    make_snapshot(str(tmp_path), "heal", SHARD_ROWS + 2_000, 12)
    snapshot = read_snapshot(str(tmp_path))
    application = tmp_path / "job.py"
    application.write_text(JOB_THAT_SENDS_NOTHING)
    made = plan_of(snapshot, workspace, "heal", application=str(application))
    assert made["digest"] == planned(snapshot, "heal", SETTINGS).digest


@pytest.fixture(scope="module")
def connect_server_with_store(
    tmp_path_factory: pytest.TempPathFactory, bare_python: Path, s3a: dict[str, Any]
) -> Iterator[int]:
    folder = tmp_path_factory.mktemp("connect-store")
    with running_connect_server(folder, bare_python, s3a["spark_conf"], s3a["packages"]) as port:
        yield port


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_spark_connect_server_makes_the_plan_in_a_store(
    connect: Connect, workspace: str, connect_server_with_store: int, archive: str, operation: str
) -> None:
    where = {"host": "127.0.0.1", "port": connect_server_with_store}
    connect("spark_test", conn_type="spark_connect", **where, extra={"archive": archive})
    assert_planned_like_here(workspace, operation)


def test_credentials_and_endpoint_of_the_environment_are_enough(
    connect: Connect, workspace: str, s3a: dict[str, Any]
) -> None:
    conf = {"spark.jars.ivy": s3a["spark_conf"]["spark.jars.ivy"]}
    connect("spark_test", conn_type="spark", host="local[*]", extra={**s3a, "spark_conf": conf})
    assert_planned_like_here(workspace, "heal")


def refused(workspace: str) -> str:
    with pytest.raises(PlanningFailed) as caught:
        plan_of(SNAPSHOTS["heal"], workspace, "heal")
    assert objects(f"{workspace}/plan-plan-1") == []
    return str(caught.value)


def test_a_spark_without_the_jar_is_one_sentence_before_anything_is_planned(connect: Connect, workspace: str) -> None:
    connect("spark_test", conn_type="spark", host="local[*]")
    assert f"Spark has no jar that opens {workspace}/plan-plan-1; name org.apache.hadoop:hadoop-aws:" in refused(
        workspace
    )


def test_a_spark_connect_server_without_the_jar_is_one_sentence_before_anything_is_planned(
    connect: Connect, workspace: str, connect_server: int, archive: str
) -> None:
    where = {"host": "127.0.0.1", "port": connect_server}
    connect("spark_test", conn_type="spark_connect", **where, extra={"archive": archive})
    assert "as packages where the Spark Connect server is started." in refused(workspace)


def test_an_endpoint_that_spark_does_not_reach_is_one_sentence_soon(
    connect: Connect, workspace: str, s3a: dict[str, Any]
) -> None:
    conf = {**s3a["spark_conf"], "spark.hadoop.fs.s3a.endpoint": f"http://{NOWHERE}"}
    connect("spark_test", conn_type="spark", host="local[*]", extra={**s3a, "spark_conf": conf})
    assert f"Spark does not reach the store of {workspace}/plan-plan-1; check" in refused(workspace)
