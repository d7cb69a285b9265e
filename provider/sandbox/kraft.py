"""A KRaft cluster: one dedicated controller, and brokers."""

from __future__ import annotations

import base64
import uuid
from pathlib import Path

from kafka_steward.sandbox.jars import KAFKA_KRAFT
from kafka_steward.sandbox.java import Jvm
from kafka_steward.sandbox.layout import HOST, BrokerLayout, Layout, broker_properties, properties
from kafka_steward.sandbox.process import Process

_CONTROLLER = 100
#: Overrides that the controller needs too, because it authorizes the changes of clients.
_SHARED = frozenset({"authorizer.class.name", "super.users"})


class KRaft:
    """Layout and start of a KRaft cluster."""

    version = KAFKA_KRAFT
    #: Time until an unresponsive broker is fenced. Kafka's own default is 9 s.
    session_timeout_ms = 3000
    zookeeper: str | None = None

    def __init__(self, layout: Layout, jvm: Jvm) -> None:
        self._layout = layout
        self._jvm = jvm
        self._cluster_id = _new_id()

    def start_service(self) -> Process:
        """Format and start the controller."""
        config = self._layout.folder / "controller.properties"
        config.write_text(properties({**self._common(), **self._controller()}))
        # Kafka's own tool finalizes all features, which a manually written file would not.
        self._jvm.run("kafka.tools.StorageTool", "format", "-t", self._cluster_id, "-c", str(config))
        return self._jvm.start("controller", "kafka.Kafka", str(config))

    def prepare_broker(self, place: BrokerLayout) -> Path:
        """Write a broker's files; return its properties file."""
        disks = self._layout.log_dirs(f"broker-{place.id}")
        for disk in disks:
            disk.mkdir(parents=True)
            (disk / "meta.properties").write_text(properties(self._meta(place.id)))
        config = self._layout.folder / f"broker-{place.id}.properties"
        roles = {
            "process.roles": "broker",
            "node.id": place.id,
            "listeners": f"PLAINTEXT://{place.address}",
            "inter.broker.listener.name": "PLAINTEXT",
        }
        common = {**broker_properties(place, self._layout), **self._common(), **roles}
        config.write_text(properties({**common, **self._layout.overrides}))
        return config

    def wait_until_restartable(self, broker: int, *, within_s: float) -> None:
        """Return at once: a KRaft broker itself waits until its earlier registration has expired."""

    def forget_config_changes(self) -> None:
        """Do nothing: brokers read each change once."""

    def _common(self) -> dict[str, object]:
        return {
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"{_CONTROLLER}@{HOST}:{self._layout.service_port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "broker.session.timeout.ms": self._layout.session_timeout_ms,
            "broker.heartbeat.interval.ms": max(100, min(2000, self._layout.session_timeout_ms // 6)),
        }

    def _controller(self) -> dict[str, object]:
        return {
            "process.roles": "controller",
            "node.id": _CONTROLLER,
            "listeners": f"CONTROLLER://{HOST}:{self._layout.service_port}",
            "log.dirs": self._layout.log_dirs("controller")[0],
            **{name: value for name, value in self._layout.overrides.items() if name in _SHARED},
        }

    def _meta(self, node: int) -> dict[str, object]:
        return {"version": 1, "cluster.id": self._cluster_id, "node.id": node, "directory.id": _new_id()}


def _new_id() -> str:
    while True:
        id_ = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # On a command line, an id that begins with a dash would be parsed as an option.
        if not id_.startswith("-"):
            return id_
