"""The static layout of a cluster: its folder, brokers, racks and ports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kafka_steward.errors import SandboxFailed
from kafka_steward.sandbox.ports import HOST, pick_ports

__all__ = ["BrokerLayout", "Layout", "properties", "rack_of"]


@dataclass(frozen=True, slots=True)
class BrokerLayout:
    """The location of a broker, which stays the same over all its restarts."""

    id: int
    rack: str
    port: int

    @property
    def address(self) -> str:
        """The address `host:port`."""
        return f"{HOST}:{self.port}"


@dataclass(frozen=True, slots=True)
class Layout:
    """The locations of a cluster. `service_port` is the controller's (KRaft) or ZooKeeper's."""

    folder: Path
    brokers: Mapping[int, BrokerLayout]
    service_port: int
    session_timeout_ms: int
    #: Broker properties that override the sandbox's own.
    overrides: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls, folder: Path, *, brokers: int, racks: int, session_timeout_ms: int, overrides: Mapping[str, str]
    ) -> Layout:
        """Pick ports for brokers 1 to `brokers`, in racks a, b, … Raises SandboxFailed for counts out of range."""
        if not (1 <= brokers <= 64 and 1 <= racks <= 26):
            raise SandboxFailed(f"A sandbox has 1 to 64 brokers in 1 to 26 racks, not {brokers} in {racks}.")
        service, *ports = pick_ports(brokers + 1)
        places = {id_: BrokerLayout(id_, rack_of(id_, racks), port) for id_, port in enumerate(ports, start=1)}
        return cls(folder, places, service, session_timeout_ms, overrides)

    @property
    def bootstrap(self) -> str:
        """Every broker's address, for clients."""
        return ",".join(place.address for place in self.brokers.values())

    def log_dirs(self, name: str) -> tuple[Path, Path]:
        """Return the two disks of a node."""
        return self.folder / name / "disk-1", self.folder / name / "disk-2"


def rack_of(broker: int, racks: int) -> str:
    """Return the rack of a broker: a, b, c, a, b, … from broker 1 on."""
    return chr(ord("a") + (broker - 1) % racks)


def properties(values: Mapping[str, object]) -> str:
    """Return the text of a Java properties file."""
    return "".join(f"{key}={value}\n" for key, value in values.items())
