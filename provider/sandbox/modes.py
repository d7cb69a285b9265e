"""The two kinds of cluster, by where the metadata lives: with KRaft's controller, or with ZooKeeper."""

from __future__ import annotations

import base64
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from kazoo.client import KazooClient

from kafka_steward.errors import SandboxFailed
from kafka_steward.sandbox.artifacts import KAFKA_KRAFT, KAFKA_ZOOKEEPER
from kafka_steward.sandbox.cluster_layout import HOST, BrokerLayout, ClusterLayout, broker_properties, properties_text
from kafka_steward.sandbox.jvm import Jvm
from kafka_steward.sandbox.processes import Process

_CONTROLLER = 100
#: Overrides that the controller needs too, because it authorizes and validates the changes of clients.
_SHARED = frozenset({"authorizer.class.name", "super.users", "remote.log.storage.system.enable"})


class KRaft:
    """Layout and start of a KRaft cluster: one dedicated controller, and brokers."""

    version = KAFKA_KRAFT
    #: Time until an unresponsive broker is fenced. Kafka's own default is 9 s.
    session_timeout_ms = 3000
    zookeeper: str | None = None

    def __init__(self, layout: ClusterLayout, jvm: Jvm) -> None:
        self._layout = layout
        self._jvm = jvm
        self._cluster_id = _new_kafka_uuid()

    def start_service(self) -> Process:
        """Format and start the controller."""
        config = self._layout.folder / "controller.properties"
        own = {
            "process.roles": "controller",
            "node.id": _CONTROLLER,
            "listeners": f"CONTROLLER://{HOST}:{self._layout.service_port}",
            "log.dirs": self._layout.log_dirs("controller")[0],
            **{name: value for name, value in self._layout.overrides.items() if name in _SHARED},
        }
        config.write_text(properties_text({**self._common_properties(), **own}))
        # Kafka's own tool finalizes all features, which a manually written file would not.
        self._jvm.run("kafka.tools.StorageTool", "format", "-t", self._cluster_id, "-c", str(config))
        return self._jvm.start("controller", "kafka.Kafka", str(config))

    def prepare_broker(self, place: BrokerLayout) -> Path:
        """Write a broker's files; return its properties file."""
        for disk in self._layout.log_dirs(f"broker-{place.id}"):
            disk.mkdir(parents=True)
            meta = {"version": 1, "cluster.id": self._cluster_id, "node.id": place.id}
            meta["directory.id"] = _new_kafka_uuid()
            (disk / "meta.properties").write_text(properties_text(meta))
        own = {
            **self._common_properties(),
            "process.roles": "broker",
            "node.id": place.id,
            "listeners": f"PLAINTEXT://{place.address}",
            "inter.broker.listener.name": "PLAINTEXT",
        }
        return _write_broker_properties(self._layout, place, own)

    def wait_until_restartable(self, broker: int, *, within_s: float) -> None:
        """Return at once: a KRaft broker itself waits until its earlier registration has expired."""

    def forget_config_changes(self) -> None:
        """Do nothing: brokers read each change once."""

    def _common_properties(self) -> dict[str, object]:
        return {
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"{_CONTROLLER}@{HOST}:{self._layout.service_port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "broker.session.timeout.ms": self._layout.session_timeout_ms,
            "broker.heartbeat.interval.ms": max(100, min(2000, self._layout.session_timeout_ms // 6)),
        }


_TICK_MS = 1000
_CHANGES = "/config/changes"
#: The number of latest changes that some brokers may not have read yet.
_UNREAD = 20
_TIDY_S = 30.0


class ZooKeeper:
    """Layout and start of a cluster with ZooKeeper: Kafka 3.9, and the ZooKeeper that its jars contain."""

    version = KAFKA_ZOOKEEPER
    #: Time until an unresponsive broker's registration expires. Kafka's own default is 18 s.
    session_timeout_ms = 4000

    def __init__(self, layout: ClusterLayout, jvm: Jvm) -> None:
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
        config.write_text(properties_text(settings))
        main_class = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        # The data of a sandbox need not survive a crash of the machine, and each write would wait for the disk.
        return self._jvm.start("zookeeper", main_class, str(config), options=["-Dzookeeper.forceSync=no"])

    def prepare_broker(self, place: BrokerLayout) -> Path:
        """Write a broker's properties file."""
        own: dict[str, object] = {
            "broker.id": place.id,
            "listeners": f"PLAINTEXT://{place.address}",
            "zookeeper.connect": self.zookeeper,
            "zookeeper.session.timeout.ms": self._layout.session_timeout_ms,
            "zookeeper.connection.timeout.ms": 30_000,
        }
        return _write_broker_properties(self._layout, place, own)

    def wait_until_restartable(self, broker: int, *, within_s: float) -> None:
        """Wait until the broker's earlier registration has expired: it would refuse to start beside it."""
        deadline = time.monotonic() + within_s
        with self._open_client(within_s) as client:
            while client.exists(f"/brokers/ids/{broker}"):
                if time.monotonic() > deadline:
                    raise SandboxFailed(f"ZooKeeper still lists broker {broker} after {within_s:.0f} s.")
                time.sleep(0.05)

    def forget_config_changes(self) -> None:
        """Delete the notifications of configuration changes, except the latest, which some brokers may not have read.

        With each change, every broker re-reads all changes of the last quarter of an hour: hundreds of tests make
        thousands.
        """
        with self._open_client(_TIDY_S) as client:
            for name in sorted(client.get_children(_CHANGES))[:-_UNREAD]:
                client.delete(f"{_CHANGES}/{name}")

    @contextmanager
    def _open_client(self, within_s: float) -> Iterator[KazooClient]:
        client = KazooClient(hosts=self.zookeeper, timeout=10)
        client.start(timeout=within_s)
        try:
            yield client
        finally:
            client.stop()
            client.close()


#: The kinds of cluster by name.
MODES: Mapping[str, type[KRaft | ZooKeeper]] = {"kraft": KRaft, "zookeeper": ZooKeeper}


def _write_broker_properties(layout: ClusterLayout, place: BrokerLayout, own: Mapping[str, object]) -> Path:
    config = layout.folder / f"broker-{place.id}.properties"
    overrides = {**layout.overrides, **layout.overrides_of.get(place.id, {})}
    config.write_text(properties_text({**broker_properties(place, layout), **own, **overrides}))
    return config


def _new_kafka_uuid() -> str:
    while True:
        id_ = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # On a command line, an id that begins with a dash would be parsed as an option.
        if not id_.startswith("-"):
            return id_
