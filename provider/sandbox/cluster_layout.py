"""The static layout of a cluster: its folder, brokers, racks and ports, and its brokers' configuration.

The configuration is for both modes: small, local, with fast failure detection and without background activity.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import socket
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from kafka_steward.errors import SandboxFailed

HOST = "127.0.0.1"

_LOWEST = 10_000

_ATTEMPTS = 1000


def pick_ports(count: int) -> list[int]:
    """Return `count` different free ports, which no other process that calls this is given while this one lives.

    They lie below the kernel's ephemeral port range, so that a broker that is down for a while finds its port free when
    it returns.
    """
    highest = _first_ephemeral_port()
    picked: list[int] = []
    for _ in range(_ATTEMPTS):
        if len(picked) == count:
            return picked
        port = _LOWEST + secrets.randbelow(highest - _LOWEST)
        if _reserve_port(port) and _is_port_free(port):
            picked.append(port)
    raise OSError(f"found only {len(picked)} of {count} free ports between {_LOWEST} and {highest} on {HOST}")


def _is_port_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


#: The ports that this process has reserved: its own locks do not stop it.
_reserved: set[int] = set()


def _reserve_port(port: int) -> bool:
    """Reserve a port for the life of this process; return False if it is reserved.

    A server binds its port only seconds after the port was picked: until then, others see only the reservation.
    """
    if port in _reserved:
        return False
    try:
        fcntl.lockf(_open_reservation_file(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    _reserved.add(port)
    return True


@cache
def _open_reservation_file() -> int:
    """Return the file in which each byte stands for a port. It is never closed, which would release all locks."""
    path = Path(tempfile.gettempdir()) / f"kafka-steward-ports-{os.getuid()}"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _first_ephemeral_port() -> int:
    known = Path("/proc/sys/net/ipv4/ip_local_port_range")
    start = int(known.read_text().split()[0]) if known.exists() else 32_768
    return max(start, _LOWEST + 10_000)


@dataclass(frozen=True, slots=True)
class BrokerLayout:
    """The location of a broker, which stays the same over all its restarts."""

    id: int
    rack: str | None
    port: int

    @property
    def address(self) -> str:
        """The address `host:port`."""
        return f"{HOST}:{self.port}"


@dataclass(frozen=True, slots=True)
class ClusterLayout:
    """The locations of a cluster. `service_port` is the controller's (KRaft) or ZooKeeper's."""

    folder: Path
    brokers: Mapping[int, BrokerLayout]
    service_port: int
    session_timeout_ms: int
    #: Broker properties that override the sandbox's own.
    overrides: Mapping[str, str] = field(default_factory=dict)
    #: Those of single brokers, by id, which override these.
    overrides_of: Mapping[int, Mapping[str, str]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        folder: Path,
        *,
        brokers: int,
        racks: int | Sequence[str | None],
        session_timeout_ms: int,
        overrides: Mapping[str, str],
        overrides_of: Mapping[int, Mapping[str, str]] | None = None,
    ) -> ClusterLayout:
        """Pick ports for brokers 1 to `brokers`, in so many racks a, b, … or in these, one for each broker.

        Raises SandboxFailed for counts out of range.
        """
        count = racks if isinstance(racks, int) else len(racks)
        if not (1 <= brokers <= 64 and (1 <= count <= 26 if isinstance(racks, int) else count == brokers)):
            raise SandboxFailed(f"A sandbox has 1 to 64 brokers in 1 to 26 racks, not {brokers} in {count}.")
        service, *ports = pick_ports(brokers + 1)
        names = [rack_of(id_, racks) for id_ in range(1, brokers + 1)] if isinstance(racks, int) else racks
        places = {id_: BrokerLayout(id_, names[id_ - 1], port) for id_, port in enumerate(ports, start=1)}
        return cls(folder, places, service, session_timeout_ms, overrides, overrides_of or {})

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


def properties_text(values: Mapping[str, object]) -> str:
    """Return the text of a Java properties file."""
    return "".join(f"{key}={value}\n" for key, value in values.items())


# The defaults of these properties reserve memory and threads for larger machines.
_SMALL: dict[str, object] = {
    "background.threads": 2,
    "log.cleaner.dedupe.buffer.size": 2 * 1024**2,
    "log.cleaner.threads": 1,
    "log.index.size.max.bytes": 1024**2,
    "log.segment.delete.delay.ms": 1000,
    "log.segment.bytes": 16 * 1024**2,
    "num.io.threads": 2,
    "num.network.threads": 2,
    "num.recovery.threads.per.data.dir": 1,
}

# A test must observe only its own changes, not those that the cluster makes by itself.
_DETERMINISTIC: dict[str, object] = {
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "group.initial.rebalance.delay.ms": 0,
    "replica.lag.time.max.ms": 5000,
}


def broker_properties(place: BrokerLayout, layout: ClusterLayout) -> dict[str, object]:
    """Return the properties that do not depend on the mode; the layout's overrides are not included."""
    copies = min(3, len(layout.brokers))
    return {
        **({"broker.rack": place.rack} if place.rack else {}),
        "log.dirs": ",".join(map(str, layout.log_dirs(f"broker-{place.id}"))),
        "offsets.topic.replication.factor": copies,
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": 1,
        **_SMALL,
        **_DETERMINISTIC,
    }
