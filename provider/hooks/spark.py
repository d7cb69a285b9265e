"""Find the Spark that makes plans: this machine's, or that of an Airflow connection, with all that a job needs.

A connection of type `spark` is used by spark-submit, one of type `spark_connect` by a Spark Connect server. Their extra
may hold, beside what Airflow's provider reads, what a job needs there. What is wrong is said before anything starts.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import util
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from airflow.sdk import BaseHook, Connection
from airflow.sdk.log import mask_secret

from kafka_steward.airflow_versions import AirflowNotFoundException
from kafka_steward.errors import PlanningFailed, SettingError
from kafka_steward.value_parsing import parse_boolean, parse_extra, shorten_value

#: The connection that represents this machine. SparkSubmitHook would use YARN for a missing connection.
LOCAL_CONN_ID = "kafka_steward_local_spark"
_CONNECT = "spark_connect"
#: Keys without an effect on a Spark Connect server: it is configured already.
_SUBMIT_ONLY = ("spark_conf", "packages", "repositories", "jars", "env_vars", "properties_file")
#: Seconds for a TCP connection to a master, a Spark Connect server or a Kubernetes API.
_REACHED_WITHIN = 10.0
#: Credentials whose names Airflow does not know: fs.azure.account.key.<account>, fs.s3a.encryption.key.
_KEY_OF_STORE = re.compile(r"\b(access|account|encryption)\.key\b")
_PORTS = {"spark": 7077, "sc": 15002, "https": 443, "http": 80}
#: By which spark-submit finds YARN.
_HADOOP_FOLDERS = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
#: By which the client of Kubernetes goes through a proxy.
_PROXIES = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy")


@dataclass(frozen=True)
class SparkCluster:
    """A Spark: its address, and what a job needs there. The repr shows neither configuration nor environment."""

    #: A master URL, or `sc://host:port` of a Spark Connect server.
    url: str
    conn_id: str = LOCAL_CONN_ID
    deploy_mode: str | None = None
    binary: str = "spark-submit"
    #: The address of what `airflow kafka-steward make-archive` wrote, readable from this worker and by Spark.
    archive: str | None = None
    #: Spark's own configuration, the key `spark_conf`: {"spark.executor.memory": "2g"}.
    conf: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: Maven coordinates and repositories, and addresses of jars, with commas between them.
    packages: str | None = None
    repositories: str | None = None
    jars: str | None = None
    #: Environment variables of spark-submit, and a file that it reads instead of spark-defaults.conf on this worker.
    env_vars: Mapping[str, str] = field(default_factory=dict, repr=False)
    properties_file: str | None = None
    #: Whether all machines of Spark mount a workspace that is a path; each job verifies it.
    shared_workspace: bool = False

    @property
    def is_local(self) -> bool:
        """Return whether the whole job runs in one process of this machine."""
        return self.url.startswith("local")

    @property
    def is_connect(self) -> bool:
        """Return whether it is a Spark Connect server."""
        return self.url.startswith("sc://")

    @property
    def is_kubernetes(self) -> bool:
        """Return whether its executors are pods of Kubernetes."""
        return self.url.startswith("k8s://")

    def refuse_what_cannot_work(self, workspace: str, env: Mapping[str, str], *, deploy_mode: str | None) -> None:
        """Raise one message if no job can work there. `deploy_mode` is the task's own; `env` is spark-submit's.

        Raises SettingError, and PlanningFailed for what may be repaired without a setting.
        """
        if self.is_local:
            return
        _refuse_local_workspace(self, workspace)
        if not self.is_connect:
            mode = deploy_mode or self.deploy_mode
            if mode not in (None, "", "client"):
                raise SettingError(
                    f"The connection {self.conn_id} has the deploy mode {mode}, in which the driver would run on "
                    "another machine, without this task's options and result; set deploy-mode to client."
                )
            if self.is_kubernetes:
                _require_kubernetes_provider(self)
            _require_binary(self, env)
            _require_driver_python(self, env)
            if self.url.startswith("yarn"):
                _require_yarn_configuration(self, env)
        _require_answer(self, env)


def find_spark_cluster(spark_conn_id: str | None) -> SparkCluster:
    """Return the Spark of a connection, or this machine for None. Raises SettingError for what is wrong in it."""
    if spark_conn_id is None:
        return SparkCluster("local[*]")
    try:
        connection = BaseHook.get_connection(spark_conn_id)
    except AirflowNotFoundException as error:
        raise SettingError(
            f"There is no Airflow connection {spark_conn_id}; create it (type spark or spark_connect), or leave out "
            "spark_conn_id to plan on the worker itself."
        ) from error
    extra = parse_extra(spark_conn_id, connection.extra)
    mask_secret(extra)
    url = _connect_url(connection) if connection.conn_type == _CONNECT else _master_url(connection)
    _refuse_vain_keys(spark_conn_id, url, extra)
    return SparkCluster(
        url,
        spark_conn_id,
        deploy_mode=extra.get("deploy-mode"),
        binary=str(extra.get("spark-binary") or "spark-submit"),
        conf=_read_conf(spark_conn_id, "spark_conf", extra.get("spark_conf") or {}),
        **{key: read(spark_conn_id, key, extra[key]) for key, read in _READERS.items() if extra.get(key) is not None},
    )


def mask_credentials(*given: Mapping[str, Any] | None) -> None:
    """Let Airflow mask the credentials among configurations or environments in logs, known by the names of their keys.

    The hook of spark-submit logs its command line, and masks there what is named a secret or a password: no token.
    """
    for values in given:
        mask_secret(dict(values or {}))
        for name, value in (values or {}).items():
            if _KEY_OF_STORE.search(name):
                mask_secret(value)


def offer_local_connection() -> None:
    """Define LOCAL_CONN_ID for this process, through the environment variable that Airflow reads connections from."""
    os.environ[f"AIRFLOW_CONN_{LOCAL_CONN_ID.upper()}"] = json.dumps({"conn_type": "spark", "host": "local[*]"})


def local_environment() -> dict[str, str]:
    """Return the environment variables that spark-submit needs to run here, with this Python and its PySpark.

    Raises PlanningFailed, with the command that repairs it, when PySpark is missing or cannot be used.
    """
    # Imported when a task runs: DAG files are parsed without Spark's parts.
    from kafka_steward.planning.spark.installed import find_spark  # noqa: PLC0415

    home = find_spark()
    binaries = os.pathsep.join((f"{home}/bin", str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    return {
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PATH": binaries,
    }


def _master_url(connection: Connection) -> str:
    """Return the master as Airflow's hook does: the host with its scheme, or the connection's type as the scheme."""
    host, port = connection.host or "", connection.port
    if not host:
        raise SettingError(
            f"The connection {connection.conn_id} names no master; enter it as the host, such as spark://host:7077, "
            "yarn or k8s://https://host:6443."
        )
    whole = connection.conn_type == "spark" and ("://" in host or not port)
    url = host if whole else f"{connection.conn_type}://{host}"
    return f"{url}:{port}" if port else url


def _connect_url(connection: Connection) -> str:
    host = (connection.host or "").removeprefix("sc://").rstrip("/")
    if not host or "/" in host or ";" in host:
        raise SettingError(
            f"The connection {connection.conn_id} names no Spark Connect server; enter its host, without a path, and "
            "its port."
        )
    return f"sc://{host}:{connection.port}" if connection.port else f"sc://{host}"


def _refuse_vain_keys(conn_id: str, url: str, extra: Mapping[str, Any]) -> None:
    vain = [key for key in _SUBMIT_ONLY if extra.get(key)] if url.startswith("sc://") else []
    if vain:
        raise SettingError(
            f"The connection {conn_id} has {vain[0]}, which has no effect on a Spark Connect server; configure the "
            f"server with it, and remove {vain[0]} from the extra."
        )


def _read_text(conn_id: str, key: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise SettingError(f"The {key} of the connection {conn_id} is {shorten_value(value)}; it takes a text.")
    return value.strip()


def _read_list(conn_id: str, key: str, value: Any) -> str:
    parts = value if isinstance(value, list) else [value]
    if not all(isinstance(part, str) and part.strip() for part in parts) or not parts:
        raise SettingError(
            f"The {key} of the connection {conn_id} is {shorten_value(value)}; it takes a text with commas, or a list "
            "of texts."
        )
    return ",".join(part.strip() for part in parts)


def _read_object(conn_id: str, key: str, value: Any) -> dict[str, str]:
    if isinstance(value, str):
        with suppress(ValueError):
            value = json.loads(value)
    entries = value.items() if isinstance(value, dict) else [("", value)]
    wrong = [name for name, text in entries if not name or not isinstance(text, str | int | float)]
    if wrong:
        # Without the value: it may be a credential, or hold one.
        raise SettingError(
            f"The {key} of the connection {conn_id} cannot be used{f' because of {wrong[0]}' if wrong[0] else ''}; it "
            "takes a JSON object of texts, numbers, true and false."
        )
    return {str(name): str(text).lower() if isinstance(text, bool) else str(text) for name, text in entries}


def _read_conf(conn_id: str, key: str, value: Any) -> dict[str, str]:
    conf = _read_object(conn_id, key, value)
    wrong = [name for name in conf if not name.startswith("spark.")]
    if wrong:
        raise SettingError(
            f"The {key} of the connection {conn_id} has {wrong[0]!r}; names of Spark's configuration begin with spark."
        )
    return conf


def _read_switch(conn_id: str, key: str, value: Any) -> bool:
    try:
        return parse_boolean(value)
    except ValueError as error:
        raise SettingError(
            f"The {key} of the connection {conn_id} is {shorten_value(value)}; it takes true or false."
        ) from error


_READERS: Mapping[str, Callable[[str, str, Any], Any]] = {
    "archive": _read_text,
    "packages": _read_list,
    "repositories": _read_list,
    "jars": _read_list,
    "env_vars": _read_object,
    "properties_file": _read_text,
    "shared_workspace": _read_switch,
}


def _refuse_local_workspace(spark: SparkCluster, uri: str) -> None:
    from kafka_steward.planning.files.storage import is_local_uri  # noqa: PLC0415 - it imports Arrow

    if is_local_uri(uri) and not spark.shared_workspace:
        raise SettingError(
            f"Spark runs on {spark.url}, whose machines cannot read {uri}; set `workspace` in the connection's extra "
            "to storage that they share, such as s3://bucket/folder, or, if all of them mount that path, "
            f"`shared_workspace` in the extra of {spark.conn_id} to true."
        )


def _require_kubernetes_provider(spark: SparkCluster) -> None:
    try:
        installed = util.find_spec("airflow.providers.cncf.kubernetes.kube_client")
    except ModuleNotFoundError:
        installed = None
    if installed is None:
        raise SettingError(
            f"Spark runs on {spark.url}, for which Airflow's Spark provider needs its Kubernetes provider; install "
            "apache-airflow-providers-cncf-kubernetes on the workers."
        )


def _require_binary(spark: SparkCluster, env: Mapping[str, str]) -> None:
    path = env.get("PATH") or os.environ.get("PATH")
    if shutil.which(spark.binary, path=path) is None:
        raise PlanningFailed(
            f"The program {spark.binary} was not found on the worker's PATH; install Spark there, of the cluster's "
            "version, and add its folder bin to PATH: in the worker's environment, or as env_vars in the extra of "
            f"{spark.conn_id}."
        )


def _require_driver_python(spark: SparkCluster, env: Mapping[str, str]) -> None:
    """Refuse a driver's Python that is not on this machine, such as one in an archive of the executors."""
    named = spark.conf.get("spark.pyspark.driver.python")
    path = env.get("PATH") or os.environ.get("PATH")
    if named and shutil.which(named, path=path) is None:
        raise SettingError(
            f"The spark.pyspark.driver.python of the connection {spark.conn_id} is {named}, which is no program on "
            "this worker, where the driver runs; remove it, and the driver gets the worker's own Python."
        )


def _require_yarn_configuration(spark: SparkCluster, env: Mapping[str, str]) -> None:
    """Refuse YARN without the configuration of Hadoop's clients, for which spark-submit has a Java trace."""
    given = {name: value for name in _HADOOP_FOLDERS if (value := env.get(name) or os.environ.get(name))}
    if not given and not _has_environment_script(spark, env):
        raise SettingError(
            f"The connection {spark.conn_id} is of YARN, and neither HADOOP_CONF_DIR nor YARN_CONF_DIR is set; set one "
            "to the folder of Hadoop's configuration, in env_vars in the connection's extra or in the worker's "
            "environment."
        )
    for name, value in given.items():
        if not any(Path(part).is_dir() for part in value.split(os.pathsep)):
            raise SettingError(
                f"The {name} for YARN, {shorten_value(value)}, is no folder on this worker; correct it in env_vars in "
                f"the extra of {spark.conn_id}, or in the worker's environment."
            )


def _has_environment_script(spark: SparkCluster, env: Mapping[str, str]) -> bool:
    """Return whether spark-submit reads a spark-env.sh, which may set what the environment lacks."""
    conf, home, path = (env.get(name) or os.environ.get(name) for name in ("SPARK_CONF_DIR", "SPARK_HOME", "PATH"))
    program = shutil.which(spark.binary, path=path)
    folders = [conf or (home and f"{home}/conf"), program and Path(program).resolve().parent.parent / "conf"]
    return any((Path(folder) / "spark-env.sh").is_file() for folder in folders if folder)


def _require_answer(spark: SparkCluster, env: Mapping[str, str]) -> None:
    """Raise PlanningFailed if no server of the address takes a TCP connection."""
    if spark.is_kubernetes and any(env.get(name) or os.environ.get(name) for name in _PROXIES):
        # Only Spark's client knows which way it takes.
        return
    addresses = _listening_addresses(spark)
    errors = [error for error in map(_connection_error, addresses) if error]
    if addresses and len(errors) == len(addresses):
        server = "Spark Connect server" if spark.is_connect else "Spark master"
        raise PlanningFailed(
            f"The {'Kubernetes API' if spark.is_kubernetes else server} at {spark.url} does not answer ({errors[-1]}); "
            f"check that it runs, and host and port of the connection {spark.conn_id}."
        )


def _listening_addresses(spark: SparkCluster) -> Sequence[tuple[str, int]]:
    scheme, _, rest = spark.url.partition("://")
    if spark.is_kubernetes:
        api = urlsplit(rest if "://" in rest else f"https://{rest}")
        return [(api.hostname or "", api.port or _PORTS[api.scheme])]
    if scheme not in _PORTS:
        return ()
    servers = [urlsplit(f"//{server.strip()}") for server in rest.split(",")]
    return [(server.hostname or "", server.port or _PORTS[scheme]) for server in servers]


def _connection_error(address: tuple[str, int]) -> str | None:
    try:
        socket.create_connection(address, timeout=_REACHED_WITHIN).close()
    except OSError as error:
        return (error.strerror or str(error)).rstrip(".")
    return None
