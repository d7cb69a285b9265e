"""A real Kafka cluster on this machine, for deliberate failures and their repair; it ends with its owner."""

from __future__ import annotations

import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Self

from kafka_steward.errors import SandboxFailed
from kafka_steward.sandbox import client
from kafka_steward.sandbox.artifacts import find_or_install_java, kafka_jars
from kafka_steward.sandbox.cluster_layout import HOST, ClusterLayout
from kafka_steward.sandbox.jvm import TOOL_S, Jvm, class_archive
from kafka_steward.sandbox.modes import MODES
from kafka_steward.sandbox.processes import Process, run_to_end

_READY_S = 120.0

# In a mount namespace of its own, so that nothing stays mounted, however the broker ends.
_IN_OWN_NAMESPACE = ("unshare", "--mount", "--propagation", "private", "sh", "-c")
# KRaft's brokers refuse a directory without the file meta.properties.
_MOUNT = """\
set -e
mkdir -p "$0"
meta=$(cat "$0"/meta.properties 2> /dev/null || true)
mount -t tmpfs -o size={bytes} tmpfs "$0"
head -c {used} /dev/zero > "$0"/not-kafkas
test -z "$meta" || echo "$meta" > "$0"/meta.properties
exec "$@"
"""
_TRY_S = 10.0


@dataclass(frozen=True, slots=True)
class SmallDisk:
    """A log directory on a small file system in memory, which only its broker sees and which ends with it.

    Of its `bytes`, `used` are taken by something that is not Kafka's.
    """

    bytes: int
    used: int = 0

    def mount_command(self, folder: Path) -> tuple[str, ...]:
        """Return a command that mounts it on `folder`, and then runs the command that follows."""
        return (*_IN_OWN_NAMESPACE, _MOUNT.format(bytes=self.bytes, used=self.used), str(folder))


@cache
def can_mount() -> bool:
    """Return whether this process may mount a file system, for which Linux asks for CAP_SYS_ADMIN."""
    command = [*SmallDisk(4096).mount_command(Path("/tmp")), "true"]  # noqa: S108 - nobody else sees it there
    try:
        return run_to_end(command, within_s=_TRY_S).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


@dataclass(frozen=True, slots=True)
class SandboxBroker:
    """A broker: `pid` is the id of its current or last process."""

    id: int
    rack: str | None
    port: int
    pid: int


class Sandbox:
    """A running cluster, created by `start()`. As a context manager it stops the cluster at the end."""

    def __init__(
        self,
        mode: str,
        layout: ClusterLayout,
        *,
        temporary: bool,
        heap_mb: int = 256,
        small_disks: Mapping[int, SmallDisk] | None = None,
        version: str | None = None,
        more_jars: Sequence[Path] = (),
    ) -> None:
        runtime = find_or_install_java()
        self.mode = mode
        self.version = version or MODES[mode].version
        self.folder = layout.folder
        self._layout = layout
        self._temporary = temporary
        jars = [*kafka_jars(self.version), *more_jars]
        self._jvm = Jvm(runtime.executable, jars, layout.folder, class_archive(runtime.executable, jars), heap_mb)
        self._kind = MODES[mode](layout, self._jvm)
        self._service: Process | None = None
        self._running: dict[int, Process] = {}
        self._configs: dict[int, Path] = {}
        self._paused: set[int] = set()
        self._small_disks = small_disks or {}

    @property
    def bootstrap(self) -> str:
        """Every broker's `host:port`, comma separated."""
        return self._layout.bootstrap

    @property
    def live_bootstrap(self) -> str:
        """The `host:port` of the brokers that answer: a client may wait long for one that is dead or paused."""
        away = self.dead | self.paused
        return ",".join(place.address for id_, place in self._layout.brokers.items() if id_ not in away)

    @property
    def controllers(self) -> str:
        """The controller's `host:port`, for requests by KIP-919; empty with ZooKeeper."""
        return f"{HOST}:{self._layout.service_port}" if self.zookeeper is None else ""

    @property
    def zookeeper(self) -> str | None:
        """ZooKeeper's `host:port`; None in KRaft mode."""
        return self._kind.zookeeper

    @property
    def brokers(self) -> dict[int, SandboxBroker]:
        """The brokers by id, dead ones included."""
        return {
            id_: SandboxBroker(id_, place.rack, place.port, self._running[id_].pid)
            for id_, place in self._layout.brokers.items()
        }

    @property
    def dead(self) -> frozenset[int]:
        """Brokers whose process has ended."""
        return frozenset(id_ for id_, process in self._running.items() if not process.alive)

    @property
    def paused(self) -> frozenset[int]:
        """Brokers that were paused and are not resumed or dead."""
        return frozenset(self._paused) - self.dead

    def start(self) -> None:
        """Start every process; return when all brokers are ready. The function `start` calls it."""
        self._service = self._kind.start_service()
        for id_, place in self._layout.brokers.items():
            self._configs[id_] = self._kind.prepare_broker(place)
            self._start_broker(id_)
        self.wait_ready()

    def kill(self, broker: int) -> None:
        """End a broker with SIGKILL, as in a crash; return when the process is gone."""
        self._broker_process(broker).kill()

    def shut_down(self, broker: int) -> None:
        """End a broker with a controlled shutdown, as an administrator does."""
        self._broker_process(broker).terminate(within_s=30)

    def restart(self, broker: int) -> None:
        """Start a dead broker, or shut down and start a live one; return when it serves and is listed as live."""
        if self._broker_process(broker).alive:
            self.shut_down(broker)
        self._kind.wait_until_restartable(broker, within_s=_READY_S)
        self._start_broker(broker)
        self.wait_ready()

    def pause(self, broker: int) -> None:
        """Suspend a broker (SIGSTOP): its connections stay open, but nothing answers."""
        self._broker_process(broker).signal(signal.SIGSTOP)
        self._paused.add(broker)

    def resume(self, broker: int) -> None:
        """Resume a paused broker."""
        self._broker_process(broker).signal(signal.SIGCONT)
        self._paused.discard(broker)

    def pause_service(self) -> None:
        """Suspend the controller (KRaft) or ZooKeeper: requests that need it wait, or time out."""
        if self._service is not None:
            self._service.signal(signal.SIGSTOP)

    def resume_service(self) -> None:
        """Resume the controller or ZooKeeper; does nothing if it is not paused."""
        if self._service is not None:
            self._service.signal(signal.SIGCONT)

    def restore(self) -> None:
        """Resume paused processes and restart dead brokers; return when all are listed as live."""
        self.resume_service()
        for broker in self.paused:
            self.resume(broker)
        for broker in self.dead:
            self.restart(broker)
        self.wait_ready()

    def wait_ready(self, *, within_s: float = _READY_S) -> None:
        """Wait until every broker that is neither dead nor paused answers and is listed as live."""
        away = self.dead | self.paused
        expected = {id_: place.address for id_, place in self._layout.brokers.items() if id_ not in away}

        def require_alive() -> None:
            self.require_service()
            for broker in expected:
                self._running[broker].require_alive()

        client.wait_until_none(lambda: client.unready_brokers(expected), within_s=within_s, while_waiting=require_alive)

    def wait_replicated(self, topics: Collection[str] | None = None, *, within_s: float = _READY_S) -> None:
        """Wait until each partition of these topics (None: of all) has a leader, a full ISR and its logs."""
        client.wait_until_none(lambda: client.unready_partitions(self.bootstrap, topics), within_s=within_s)

    def create_topics(
        self,
        topics: str | Collection[str],
        partitions: int = 1,
        replication_factor: int = 3,
        *,
        assignments: Mapping[int, Collection[int]] | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create topics and wait until they are fully replicated.

        `assignments` (broker ids by partition) replaces the counts.
        """
        names = [topics] if isinstance(topics, str) else list(topics)
        client.create_topics(
            self.bootstrap, names, partitions, replication_factor, assignments=assignments, configs=configs
        )
        self.wait_replicated(names)

    def delete_topics(self, prefix: str) -> None:
        """Delete every topic whose name begins with `prefix`; cancel its reassignments in flight first."""
        client.delete_topics(self.bootstrap, prefix)

    def fill(self, topic: str, bytes_: int) -> int:
        """Produce `bytes_` of data, spread evenly over the topic's partitions and acknowledged by the whole ISR."""
        return client.fill_topic(self.bootstrap, topic, bytes_)

    def forget_config_changes(self) -> None:
        """Delete old configuration changes, whose number slows down a long-lived cluster with ZooKeeper."""
        self._kind.forget_config_changes()

    def kafka_tool(self, main_class: str, *arguments: str, within_s: float = TOOL_S) -> str:
        """Run one of Kafka's own command-line classes; return its output. Raises SandboxFailed with it on failure.

        It is ended after `within_s` seconds, which is a failure too.
        """
        return self._jvm.run(main_class, *arguments, within_s=within_s)

    def stop(self) -> None:
        """End every process at once, and remove the folder if `start` created it. May be called again."""
        processes = [*self._running.values(), *filter(None, [self._service])]
        for process in processes:
            process.signal(signal.SIGKILL)
        for process in processes:
            process.kill()
        if self._temporary:
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def require_service(self) -> None:
        """Raise SandboxFailed if the controller, or ZooKeeper, has ended."""
        if self._service is not None:
            self._service.require_alive()

    def _broker_process(self, broker: int) -> Process:
        if broker not in self._running:
            known = ", ".join(map(str, self._layout.brokers))
            raise SandboxFailed(f"There is no broker {broker} in this sandbox; there are {known}.")
        return self._running[broker]

    def _start_broker(self, broker: int) -> None:
        config, disk = self._configs[broker], self._small_disks.get(broker)
        mount = disk.mount_command(self._layout.log_dirs(f"broker-{broker}")[1]) if disk else ()
        self._running[broker] = self._jvm.start(f"broker-{broker}", "kafka.Kafka", str(config), prefix=mount)
        self._paused.discard(broker)


def start(
    mode: str = "kraft",
    *,
    brokers: int = 4,
    racks: int | Sequence[str | None] = 3,
    folder: Path | None = None,
    session_timeout_ms: int | None = None,
    properties: Mapping[str, str] | None = None,
    properties_of: Mapping[int, Mapping[str, str]] | None = None,
    small_disks: Mapping[int, SmallDisk] | None = None,
    heap_mb: int = 256,
    version: str | None = None,
    more_jars: Sequence[Path] = (),
) -> Sandbox:
    """Start a cluster and return it when it is ready. If it raises SandboxFailed, nothing is left running.

    `mode` is kraft (Kafka 4.3) or zookeeper (Kafka 3.9); `version` is another Kafka that has the mode and whose jars
    are locked here, and `more_jars` are for plugins of brokers. Brokers 1 to `brokers` are spread over so many racks a,
    b, … or are in these racks, one for each broker, None where it has none. `folder` keeps logs and data; without it
    they are removed with the cluster. `session_timeout_ms` is the time after which an unresponsive broker counts as
    dead: short by default (3 s with KRaft, 4 s with ZooKeeper). `properties` override the brokers' own, and
    `properties_of` a single broker's. `small_disks` gives brokers a second disk of that size, for which `can_mount` has
    to be true.
    """
    if mode not in MODES:
        raise SandboxFailed(f"A sandbox runs in mode {' or '.join(MODES)}, not {mode!r}.")
    with ExitStack() as undo:
        place = _prepare_empty_folder(folder, undo)
        layout = ClusterLayout.of(
            place,
            brokers=brokers,
            racks=racks,
            session_timeout_ms=session_timeout_ms or MODES[mode].session_timeout_ms,
            overrides=properties or {},
            overrides_of=properties_of,
        )
        sandbox = Sandbox(
            mode,
            layout,
            temporary=folder is None,
            heap_mb=heap_mb,
            small_disks=small_disks,
            version=version,
            more_jars=more_jars,
        )
        undo.callback(sandbox.stop)
        sandbox.start()
        undo.pop_all()
    return sandbox


def _prepare_empty_folder(folder: Path | None, undo: ExitStack) -> Path:
    if folder is None:
        # Named before it is made: a Ctrl-C at any point finds a folder that is to be removed.
        temporary = Path(tempfile.gettempdir()).resolve() / f"kafka-steward-{secrets.token_hex(8)}"
        undo.callback(shutil.rmtree, temporary, ignore_errors=True)
        temporary.mkdir(mode=0o700)
        return temporary
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise SandboxFailed(
            f"The folder {folder} is not empty, and a sandbox needs an empty folder: choose another one."
        )
    return folder.resolve()
