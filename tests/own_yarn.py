"""A YARN of one's own on this machine: a ResourceManager and a NodeManager of Hadoop, each in a process of its own.

Their jars are Hadoop's shaded ones for tests, pinned in `hadoop-3.5.0.lock`; what those leave to the class path is in
PySpark's jars. Servers listen on 127.0.0.1.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.request import urlopen
from xml.sax.saxutils import escape

import pytest

from kafka_steward.planning.spark.installed import QUICK_JAVA
from kafka_steward.sandbox.artifacts import find_or_install_java, locked_jars, parse_lock
from kafka_steward.sandbox.processes import Process
from tests.eventually import eventually
from tests.own_spark import SPARK, free_port

_LOCK = Path(__file__).parent / "hadoop-3.5.0.lock"
_RESOURCE_MANAGER = "org.apache.hadoop.yarn.server.resourcemanager.ResourceManager"
_NODE_MANAGER = "org.apache.hadoop.yarn.server.nodemanager.NodeManager"
#: The addresses of both servers, each with a port of its own.
_ADDRESSES = (
    *(f"yarn.resourcemanager.{each}address" for each in ("", "scheduler.", "resource-tracker.", "admin.", "webapp.")),
    *(f"yarn.nodemanager.{each}address" for each in ("", "localizer.", "webapp.")),
)


@pytest.fixture(scope="session")
def yarn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A YARN with one node, which has room for two executors; the folder of its clients' configuration."""
    folder = tmp_path_factory.mktemp("yarn")
    conf = folder / "conf"
    conf.mkdir()
    addresses = {name: f"127.0.0.1:{free_port()}" for name in _ADDRESSES}
    _write_site(conf / "yarn-site.xml", {**_yarn_site(folder), **addresses})
    _write_site(conf / "core-site.xml", {"hadoop.tmp.dir": str(folder / "tmp")})
    java = [str(find_or_install_java().executable), *QUICK_JAVA.split(), "-Xmx256m"]
    java += ["-cp", os.pathsep.join(map(str, (conf, *locked_jars(parse_lock(_LOCK.read_text())), SPARK / "jars/*")))]
    running = [
        Process(name, [*java, name], log=folder / f"{name}.log", environment=os.environ)
        for name in (_RESOURCE_MANAGER, _NODE_MANAGER)
    ]
    try:
        metrics = f"http://{addresses['yarn.resourcemanager.webapp.address']}/ws/v1/cluster/metrics"
        eventually(lambda: _assert_one_node(metrics, running), within=240, errors=(OSError,))
        yield conf
    finally:
        for process in running:
            process.terminate(within_s=5)


def _yarn_site(folder: Path) -> dict[str, object]:
    return {
        "yarn.resourcemanager.hostname": "127.0.0.1",
        "yarn.resourcemanager.bind-host": "127.0.0.1",
        "yarn.resourcemanager.scheduler.class": f"{_RESOURCE_MANAGER.rpartition('.')[0]}.scheduler.fifo.FifoScheduler",
        "yarn.nodemanager.hostname": "127.0.0.1",
        "yarn.nodemanager.bind-host": "127.0.0.1",
        "yarn.nodemanager.local-dirs": folder / "local",
        "yarn.nodemanager.log-dirs": folder / "containers",
        # The memory is of this machine, and so is the disk: containers are few and small.
        "yarn.nodemanager.resource.memory-mb": 3072,
        "yarn.nodemanager.resource.cpu-vcores": 4,
        "yarn.nodemanager.vmem-check-enabled": "false",
        "yarn.nodemanager.disk-health-checker.enable": "false",
        "yarn.scheduler.minimum-allocation-mb": 128,
    }


def _write_site(path: Path, properties: Mapping[str, object]) -> None:
    lines = (
        f"<property><name>{name}</name><value>{escape(str(value))}</value></property>"
        for name, value in properties.items()
    )
    path.write_text(f"<configuration>{''.join(lines)}</configuration>")


def _assert_one_node(metrics: str, running: list[Process]) -> None:
    for process in running:
        process.require_alive()
    with urlopen(metrics, timeout=10) as answer:  # noqa: S310 - an address of this test's own
        assert json.load(answer)["clusterMetrics"]["activeNodes"] == 1
