"""A store of the kind of S3 on this machine: moto's server, a bucket in it, and the jars with which Spark opens it."""

from __future__ import annotations

import logging
import os
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
import requests

from kafka_steward.cache import locked_cache
from kafka_steward.planning.spark.installed import hadoop_version

#: Moto takes any, unless it is told to verify them. The secret has to be found wherever it is shown.
ACCESS_KEY, SECRET_KEY = "AKIDSTEWARD", "kept-from-logs/4711"


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """A server on 127.0.0.1 that ends with the tests; its address."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        yield f"http://127.0.0.1:{server.get_host_and_port()[1]}"
    finally:
        server.stop()


@pytest.fixture
def s3_environment(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The worker's environment, and nothing of this machine's own configuration of AWS."""
    import s3fs

    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    # It keeps its connections with the environment in which they were made.
    s3fs.S3FileSystem.clear_instance_cache()
    yield
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture
def bucket(s3_environment: None) -> str:
    """The address of a new bucket: s3://name."""
    import s3fs

    name = f"steward-{uuid.uuid4().hex[:8]}"
    s3fs.S3FileSystem().mkdir(name)
    return f"s3://{name}"


def objects(address: str) -> list[str]:
    """The names of all objects below an address, relative to it."""
    import s3fs

    system, path = s3fs.S3FileSystem(), address.removeprefix("s3://")
    system.invalidate_cache()
    return [name.removeprefix(f"{path}/") for name in sorted(system.find(path))]


def verify_credentials(server: str, *, after: int) -> None:
    """Let the server refuse credentials that no user of it has, after so many requests more."""
    requests.post(f"{server}/moto-api/reset-auth", data=str(after), timeout=60).raise_for_status()


@pytest.fixture(scope="session")
def hadoop_aws() -> tuple[str, str]:
    """The coordinate of the jar with which Spark opens s3a://, and the folder of Ivy that has it.

    It and the SDK of AWS are 0.7 GB. They are downloaded once, into the cache of Kafka's jars.
    """
    version = hadoop_version()
    coordinate = f"org.apache.hadoop:hadoop-aws:{version}"
    with locked_cache("ivy") as cache:
        ivy = cache / "ivy"
        if not (ivy / "jars" / f"org.apache.hadoop_hadoop-aws-{version}.jar").exists():
            _resolve(coordinate, ivy)
    return coordinate, str(ivy)


def _resolve(coordinate: str, ivy: Path) -> None:
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local[1]"]
    command += ["--packages", coordinate, "--conf", f"spark.jars.ivy={ivy}"]
    # A program that is among Spark's jars, and ends at once.
    command += ["--class", "org.apache.hadoop.util.VersionInfo", "spark-internal"]
    env = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1800, env=env)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"[-3000:]


@pytest.fixture(scope="session")
def s3a(s3_server: str, hadoop_aws: tuple[str, str]) -> dict[str, Any]:
    """What the extra of a Spark connection has for the store: the recipe of docs/spark.md."""
    coordinate, ivy = hadoop_aws
    conf = {
        "spark.hadoop.fs.s3a.endpoint": s3_server,
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.access.key": ACCESS_KEY,
        "spark.hadoop.fs.s3a.secret.key": SECRET_KEY,
    }
    return {"packages": coordinate, "spark_conf": {**conf, "spark.jars.ivy": ivy}}
