"""What a Spark connection gives a job, and what is said about one that cannot work, before anything starts."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_steward.errors import PlanningFailed, SettingError
from kafka_steward.hooks import spark as spark_module
from kafka_steward.hooks.spark import SparkCluster, find_spark_cluster
from tests.airflow_home import Connect

STORE = "s3://bucket/plan"


def spark_of(connect: Connect, extra: dict[str, Any], conn_type: str = "spark", **given: Any) -> SparkCluster:
    connect("spark_test", conn_type=conn_type, **{"host": "spark://master:7077", **given}, extra=extra)
    return find_spark_cluster("spark_test")


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    """Every server answers, and spark-submit is on the PATH that is returned."""
    monkeypatch.setattr(spark_module, "_connection_error", lambda _: None)
    program = tmp_path / "bin" / "spark-submit"
    program.parent.mkdir()
    program.touch(mode=0o755)
    return {"PATH": str(program.parent)}


def refused(spark: SparkCluster, env: dict[str, str], workspace: str = STORE, deploy_mode: str | None = None) -> None:
    spark.refuse_what_cannot_work(workspace, env, deploy_mode=deploy_mode)


def test_the_extra_gives_a_job_all_that_it_needs(connect: Connect) -> None:
    spark = spark_of(
        connect,
        {
            "archive": "s3://bucket/a.tar.gz",
            "spark_conf": {"spark.executor.memory": "2g", "spark.dynamicAllocation.enabled": False, "spark.cores": 4},
            "packages": ["org.apache.hadoop:hadoop-aws:3.5.0", "a:b:1"],
            "repositories": "https://artifacts.example",
            "jars": "s3a://bucket/x.jar",
            "env_vars": {"HADOOP_CONF_DIR": "/etc/hadoop"},
            "properties_file": "/etc/spark.conf",
            "shared_workspace": "true",
            "deploy-mode": "client",
            "spark-binary": "spark3-submit",
            "queue": "what Airflow reads is left to it",
        },
    )
    assert spark == SparkCluster(
        "spark://master:7077",
        "spark_test",
        deploy_mode="client",
        binary="spark3-submit",
        archive="s3://bucket/a.tar.gz",
        conf={"spark.executor.memory": "2g", "spark.dynamicAllocation.enabled": "false", "spark.cores": "4"},
        packages="org.apache.hadoop:hadoop-aws:3.5.0,a:b:1",
        repositories="https://artifacts.example",
        jars="s3a://bucket/x.jar",
        env_vars={"HADOOP_CONF_DIR": "/etc/hadoop"},
        properties_file="/etc/spark.conf",
        shared_workspace=True,
    )
    assert "/etc/hadoop" not in repr(spark)


@pytest.mark.parametrize(
    ("extra", "sentence"),
    [
        ({"archive": 3}, "The archive of the connection spark_test is 3; it takes a text."),
        ({"spark_conf": ["a"]}, "The spark_conf of the connection spark_test cannot be used; it takes a JSON object"),
        ({"spark_conf": {"spark.a": {}}}, "The spark_conf of the .* spark_test cannot be used because of spark.a; it"),
        ({"spark_conf": {"executor.memory": "1g"}}, "has 'executor.memory'; names of Spark's .* begin with spark\\."),
        ({"packages": [1]}, "The packages of the connection spark_test is .*; it takes a text with commas, or a list"),
        ({"env_vars": "HOME"}, "The env_vars of the connection spark_test cannot be used; it takes a JSON object"),
        ({"shared_workspace": "perhaps"}, "The shared_workspace of .* is 'perhaps'; it takes true or false."),
    ],
)
def test_a_wrong_value_is_one_sentence(connect: Connect, extra: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        spark_of(connect, extra)


@pytest.mark.parametrize("key", ["spark_conf", "env_vars"])
def test_a_wrong_value_beside_a_credential_shows_no_credential(connect: Connect, key: str) -> None:
    for given in ({"spark.hadoop.fs.s3a.secret.key": "s3cret-key", "spark.cores": None}, "{'secret': 's3cret-key'}"):
        with pytest.raises(SettingError) as caught:
            spark_of(connect, {key: given})
        assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ({"host": "spark://master:7077"}, "spark://master:7077"),
        ({"host": "spark://master", "port": 7077}, "spark://master:7077"),
        # A URI: AIRFLOW_CONN_SPARK=spark://master:7077.
        ({"host": "master", "port": 7077}, "spark://master:7077"),
        ({"host": "yarn"}, "yarn"),
        ({"host": "k8s://https://host", "port": 6443}, "k8s://https://host:6443"),
        ({"conn_type": "spark_connect", "host": "server", "port": 15002}, "sc://server:15002"),
        ({"conn_type": "spark_connect", "host": "sc://server"}, "sc://server"),
    ],
)
def test_the_address_is_the_one_that_airflows_hooks_use(connect: Connect, given: dict[str, Any], url: str) -> None:
    found = spark_of(connect, {}, **given)
    assert found.url == url
    if not found.is_connect:
        from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

        unopened: Any = _Unopened()
        assert SparkSubmitHook._resolve_connection(unopened)["master"] == url


class _Unopened:
    """As much of SparkSubmitHook as its method asks for: its constructor needs Kubernetes' client for one of them."""

    spark_binary = _principal = _keytab = _yarn_queue = _deploy_mode = None
    _conn_id = "spark_test"

    def __init__(self) -> None:
        self._conf: dict[str, str] = {}

    def get_connection(self, conn_id: str) -> Any:
        from airflow.sdk import BaseHook

        return BaseHook.get_connection(conn_id)


def test_no_master_and_no_server_is_one_sentence(connect: Connect) -> None:
    with pytest.raises(SettingError, match="The connection spark_test names no master; enter it as the host"):
        spark_of(connect, {}, host="")
    with pytest.raises(SettingError, match="The connection spark_test names no Spark Connect server; enter its host"):
        spark_of(connect, {}, "spark_connect", host="server/;token=x")


@pytest.mark.parametrize("key", ["spark_conf", "packages", "repositories", "jars", "env_vars", "properties_file"])
def test_what_has_no_effect_on_a_spark_connect_server_is_refused(connect: Connect, key: str) -> None:
    with pytest.raises(SettingError, match=f"has {key}, which has no effect on a Spark Connect server; configure"):
        spark_of(connect, {key: "x"}, "spark_connect", host="server")


def test_what_works_is_not_refused(connect: Connect, answering: dict[str, str]) -> None:
    refused(spark_of(connect, {}), answering)
    refused(spark_of(connect, {"shared_workspace": True, "deploy-mode": "client"}), answering, "/mnt/workspace")
    refused(SparkCluster("local[*]"), {"PATH": "/nowhere"}, "/tmp/workspace")  # noqa: S108
    refused(spark_of(connect, {}, "spark_connect", host="server"), {"PATH": "/nowhere"})


def test_a_workspace_on_this_machine_is_refused_unless_all_machines_mount_it(
    connect: Connect, answering: dict[str, str]
) -> None:
    sentence = (
        r"whose machines cannot read /mnt/w; set `workspace` .*or, if all .*`shared_workspace`.* spark_test to true"
    )
    for conn_type in ("spark", "spark_connect"):
        with pytest.raises(SettingError, match=sentence):
            refused(spark_of(connect, {}, conn_type, host="server"), answering, "/mnt/w")


def test_the_deploy_mode_cluster_is_refused_wherever_it_is_given(connect: Connect, answering: dict[str, str]) -> None:
    for host in ("spark://master:7077", "yarn"):
        with pytest.raises(SettingError, match=r"has the deploy mode cluster, in which .*; set deploy-mode to client"):
            refused(spark_of(connect, {"deploy-mode": "cluster"}, host=host), answering)
    with pytest.raises(SettingError, match="has the deploy mode cluster"):
        refused(spark_of(connect, {"deploy-mode": "client"}), answering, deploy_mode="cluster")


def test_kubernetes_without_airflows_provider_names_the_package(
    connect: Connect, answering: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    spark = spark_of(connect, {}, host="k8s://https://host:6443")
    for found in (None, ModuleNotFoundError("airflow.providers.cncf")):
        monkeypatch.setattr("kafka_steward.hooks.spark.util.find_spec", lambda _, found=found: _raise_or_return(found))
        with pytest.raises(SettingError, match="install apache-airflow-providers-cncf-kubernetes on the workers"):
            refused(spark, answering)
    monkeypatch.setattr("kafka_steward.hooks.spark.util.find_spec", lambda _: object())
    refused(spark, answering)


def _raise_or_return(found: object) -> object:
    if isinstance(found, Exception):
        raise found
    return found


def test_no_spark_submit_is_one_sentence(connect: Connect, answering: dict[str, str]) -> None:
    with pytest.raises(PlanningFailed, match=r"The program spark-submit was not found on the worker's PATH; install"):
        refused(spark_of(connect, {}), {"PATH": "/nowhere"})
    with pytest.raises(PlanningFailed, match="The program spark3-submit was not found"):
        refused(spark_of(connect, {"spark-binary": "spark3-submit"}), answering)


def test_a_drivers_python_that_only_executors_have_is_refused(connect: Connect, answering: dict[str, str]) -> None:
    spark = spark_of(connect, {"spark_conf": {"spark.pyspark.python": "./environment/bin/python"}})
    refused(spark, answering)
    there = replace(spark, conf={"spark.pyspark.driver.python": "./environment/bin/python"})
    with pytest.raises(SettingError, match=r"is ./environment/bin/python, which is no program on this worker"):
        refused(there, answering)


@pytest.fixture
def without_hadoop(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_HOME", "SPARK_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("without_hadoop")
def test_yarn_without_hadoops_configuration_is_one_sentence(
    connect: Connect, answering: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark = spark_of(connect, {}, host="yarn")
    with pytest.raises(
        SettingError, match=r"spark_test is of YARN, and neither HADOOP_CONF_DIR nor YARN_CONF_DIR is set; set one to"
    ):
        refused(spark, answering)
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        with pytest.raises(
            SettingError, match=f"The {name} for YARN, '/nowhere', is no folder on this worker; correct"
        ):
            refused(spark, {**answering, name: "/nowhere"})
        refused(spark, {**answering, name: str(tmp_path)})
    monkeypatch.setenv("HADOOP_CONF_DIR", f"/nowhere:{tmp_path}")
    refused(spark, answering)


@pytest.mark.usefixtures("without_hadoop")
def test_hadoops_configuration_may_be_named_in_sparks_own_environment_script(
    connect: Connect, answering: dict[str, str], tmp_path: Path
) -> None:
    spark = spark_of(connect, {}, host="yarn")
    for name, folder in {"SPARK_CONF_DIR": "given", "SPARK_HOME": "home/conf", "LANG": "conf"}.items():
        script = tmp_path / folder / "spark-env.sh"
        script.parent.mkdir(parents=True)
        env = {**answering, name: str(tmp_path / folder.removesuffix("/conf"))}
        with pytest.raises(SettingError, match="neither HADOOP_CONF_DIR nor YARN_CONF_DIR"):
            refused(spark, env)
        script.touch()
        refused(spark, env)
        script.unlink()


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("k8s://https://api.example:6443", ("api.example", 6443)),
        ("k8s://https://api.example", ("api.example", 443)),
        ("k8s://http://api.example", ("api.example", 80)),
        ("k8s://api.example:6443/path", ("api.example", 6443)),
        ("spark://one,two:7078", ("one", 7077)),
    ],
)
def test_the_address_that_must_take_a_connection_is_the_one_that_spark_uses(
    connect: Connect, answering: dict[str, str], monkeypatch: pytest.MonkeyPatch, host: str, address: tuple[str, int]
) -> None:
    asked: list[tuple[str, int]] = []
    monkeypatch.setattr(spark_module, "_connection_error", asked.append)
    monkeypatch.setattr("kafka_steward.hooks.spark.util.find_spec", lambda _: object())
    refused(spark_of(connect, {}, host=host), answering)
    assert asked[0] == address


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "https_proxy"])
def test_a_kubernetes_api_behind_a_proxy_is_left_to_sparks_client(
    connect: Connect, answering: dict[str, str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(spark_module, "_connection_error", lambda _: "refused")
    monkeypatch.setattr("kafka_steward.hooks.spark.util.find_spec", lambda _: object())
    spark = spark_of(connect, {}, host="k8s://https://api.example")
    with pytest.raises(PlanningFailed, match=r"The Kubernetes API at k8s://https://api.example does not answer"):
        refused(spark, answering)
    refused(spark, {**answering, name: "http://proxy.example:3128"})


@pytest.fixture
def open_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.process
def test_servers_that_do_not_answer_are_named(connect: Connect, tmp_path: Path, open_port: int) -> None:
    (tmp_path / "spark-submit").touch(mode=0o755)
    env = {"PATH": str(tmp_path)}
    connect_server = {"conn_type": "spark_connect", "host": "127.0.0.1"}
    with pytest.raises(PlanningFailed, match=r"The Spark Connect server at sc://127.0.0.1:1 does not answer \(Conn"):
        refused(spark_of(connect, {}, **connect_server, port=1), env)
    refused(spark_of(connect, {}, **connect_server, port=open_port), env)
    with pytest.raises(PlanningFailed, match=r"The Spark master at spark://127.0.0.1:1 does not answer \(Conn"):
        refused(spark_of(connect, {}, host="spark://127.0.0.1:1"), env)
    # Of several masters one may be down.
    refused(spark_of(connect, {}, host=f"spark://127.0.0.1:1,127.0.0.1:{open_port}"), env)
