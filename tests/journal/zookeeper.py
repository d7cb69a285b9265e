"""A real ZooKeeper server for tests, from the jars that PySpark holds; gone with its parent."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyspark
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from kafka_steward.journal.listing import quarantine_document
from kafka_steward.journal.zookeeper.mailbox import ZkMailbox
from kafka_steward.journal.zookeeper.options import ZooKeeperOptions
from kafka_steward.sandbox.artifacts import find_or_install_java
from kafka_steward.sandbox.cluster_layout import pick_ports
from tests.journal.certificate import Certificate
from tests.memory_state import MemoryState
from tests.postgres import _die_with_parent

_STEADY_S = 90.0
# A server that was killed has lost nothing that it wrote; only a machine would.
_FLAGS = ("-Dzookeeper.forceSync=no", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xss512k")


def _secure(port: int, certificate: Certificate) -> dict[str, object]:
    return {
        "secureClientPort": port,
        "secureClientPortAddress": "127.0.0.1",
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.keyStore.location": certificate.key_and_certificate,
        "ssl.keyStore.type": "PEM",
        "ssl.trustStore.location": certificate.certificate,
        "ssl.trustStore.type": "PEM",
        "ssl.clientAuth": "none",
    }


@contextmanager
def connected(hosts: str, **more: Any) -> Iterator[KazooClient]:
    """A session of someone else; with the `client_id` of another session, its end ends that one."""
    client = KazooClient(hosts=hosts, **more)
    client.start(timeout=_STEADY_S)
    try:
        yield client
    finally:
        client.stop()
        client.close()


class ClockedZkMailbox(ZkMailbox):
    """The documents in ZooKeeper, with a clock, and a quarantine of their own in memory."""

    def __init__(self, options: ZooKeeperOptions) -> None:
        self.state = MemoryState(self.now_ms)
        super().__init__(options, lambda node, reason: quarantine_document(self, self.state, node, reason, None))

    def now_ms(self) -> int:
        """Return the time of this machine."""
        return time.time_ns() // 1_000_000


class ZooKeeperServer:
    """One standalone server on 127.0.0.1."""

    def __init__(self, certificate: Certificate | None = None) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="steward-zk-"))
        port, secure_port = pick_ports(2)
        self.hosts = f"127.0.0.1:{port}"
        self.secure_hosts = f"127.0.0.1:{secure_port}"
        settings = {
            "dataDir": self._folder / "data",
            "clientPort": port,
            "clientPortAddress": "127.0.0.1",
            "tickTime": 1000,
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            **(_secure(secure_port, certificate) if certificate else {}),
        }
        (self._folder / "zoo.cfg").write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        self._process = self._start()

    def at(self, chroot: str) -> str:
        """The connect string of a chroot, which is created."""
        with connected(self.hosts) as client:
            client.ensure_path(f"/{chroot}")
        return f"{self.hosts}/{chroot}"

    def restart(self) -> None:
        """As after a crash."""
        self.stop()
        self.start()

    def stop(self) -> None:
        self._process.kill()
        self._process.wait(timeout=_STEADY_S)

    def start(self) -> None:
        self._process = self._start()

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start(self) -> subprocess.Popen[bytes]:
        jars = Path(pyspark.__file__).parent / "jars"
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        with (self._folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [find_or_install_java().executable, *_FLAGS, "-cp", f"{jars}/*", main, self._folder / "zoo.cfg"],
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - it only asks the kernel for a signal
            )
        deadline = time.monotonic() + _STEADY_S
        while not self._answers():
            if process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError((self._folder / "log").read_text()[-2000:])
        return process

    def _answers(self) -> bool:
        client = KazooClient(hosts=self.hosts, timeout=5)
        try:
            client.start(timeout=2)
            client.exists("/")
        except (KazooTimeoutError, KazooException):
            return False
        else:
            return True
        finally:
            client.stop()
            client.close()


def forget_journal(servers: str) -> None:
    """Take our documents out of a ZooKeeper that the next test's journal shares: they carry this one's id."""
    with connected(servers) as client:
        client.delete("/steward", recursive=True)
