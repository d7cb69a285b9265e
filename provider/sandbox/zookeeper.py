"""A cluster with ZooKeeper: Kafka 3.9 and the ZooKeeper that its jars contain."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kazoo.client import KazooClient

from kafka_steward.errors import SandboxFailed
from kafka_steward.sandbox.jars import KAFKA_ZOOKEEPER
from kafka_steward.sandbox.java import Jvm
from kafka_steward.sandbox.layout import HOST, BrokerLayout, Layout, broker_properties, properties
from kafka_steward.sandbox.process import Process

_TICK_MS = 1000
_CHANGES = "/config/changes"
#: The number of latest changes that some brokers may not have read yet.
_UNREAD = 20
_TIDY_S = 30.0


class ZooKeeper:
    """Layout and start of a cluster with ZooKeeper."""

    version = KAFKA_ZOOKEEPER
    #: Time until an unresponsive broker's registration expires. Kafka's own default is 18 s.
    session_timeout_ms = 4000

    def __init__(self, layout: Layout, jvm: Jvm) -> None:
        self._layout = layout
        self._jvm = jvm
        self.zookeeper: str | None = f"{HOST}:{layout.service_port}"

    def start_service(self) -> Process:
        """Start ZooKeeper. Brokers that start before it is ready retry by themselves."""
        config = self._layout.folder / "zookeeper.properties"
        settings: dict[str, object] = {
            "dataDir": self._layout.folder / "zookeeper",
            "clientPort": self._layout.service_port,
            "clientPortAddress": HOST,
            "tickTime": _TICK_MS,
            "minSessionTimeout": 2 * _TICK_MS,
            "maxSessionTimeout": 600_000,
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
        }
        config.write_text(properties(settings))
        main_class = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        # The data of a sandbox need not survive a crash of the machine, and each write would wait for the disk.
        return self._jvm.start("zookeeper", main_class, str(config), options=["-Dzookeeper.forceSync=no"])

    def prepare_broker(self, place: BrokerLayout) -> Path:
        """Write a broker's properties file."""
        config = self._layout.folder / f"broker-{place.id}.properties"
        own: dict[str, object] = {
            "broker.id": place.id,
            "listeners": f"PLAINTEXT://{place.address}",
            "zookeeper.connect": self.zookeeper,
            "zookeeper.session.timeout.ms": self._layout.session_timeout_ms,
            "zookeeper.connection.timeout.ms": 30_000,
        }
        config.write_text(properties({**broker_properties(place, self._layout), **own, **self._layout.overrides}))
        return config

    def wait_until_restartable(self, broker: int, *, within_s: float) -> None:
        """Wait until the broker's earlier registration has expired: it would refuse to start beside it."""
        deadline = time.monotonic() + within_s
        with self._client(within_s) as client:
            while client.exists(f"/brokers/ids/{broker}"):
                if time.monotonic() > deadline:
                    raise SandboxFailed(f"ZooKeeper still lists broker {broker} after {within_s:.0f} s.")
                time.sleep(0.05)

    def forget_config_changes(self) -> None:
        """Delete the notifications of configuration changes, except the latest, which some brokers may not have read.

        With each change, every broker re-reads all changes of the last quarter of an hour: hundreds of tests make
        thousands.
        """
        with self._client(_TIDY_S) as client:
            for name in sorted(client.get_children(_CHANGES))[:-_UNREAD]:
                client.delete(f"{_CHANGES}/{name}")

    @contextmanager
    def _client(self, within_s: float) -> Iterator[KazooClient]:
        client = KazooClient(hosts=self.zookeeper, timeout=10)
        client.start(timeout=within_s)
        try:
            yield client
        finally:
            client.stop()
            client.close()
