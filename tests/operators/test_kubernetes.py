"""The recipe for Kubernetes, by the operator, with Spark's own driver and executors, and an API server that is played.

No cluster can be had here: `tests.kubernetes_api` stands for the API and for the nodes.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from time import monotonic
from typing import Any

import airflow.providers as airflow_providers
import pytest
from airflow.providers.apache.spark.hooks import spark_submit

from kafka_steward.errors import PlanningFailed, SettingError
from tests.airflow_home import Connect
from tests.kubernetes_api import container_environment, run_kubernetes_api
from tests.operators.test_own_spark import SNAPSHOTS, archive, extra_of, local_digest, plan_of
from tests.own_spark import bare_python

__all__ = ["archive", "bare_python"]

PROVIDER = "apache-airflow-providers-cncf-kubernetes==10.25.0"
IMAGE = "registry.example/spark-python:1"

pytestmark = [pytest.mark.spark, pytest.mark.slow]


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
@pytest.mark.parametrize(
    "operation",
    [
        pytest.param("heal", marks=pytest.mark.ci),
        *(pytest.param(each, marks=pytest.mark.slow) for each in ("rebalance", "expand")),
    ],
)
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
