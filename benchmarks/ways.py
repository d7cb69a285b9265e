"""Two ways to move partitions, with the same face: Kafka Steward, and Kafka's own tool."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from threading import Event
from typing import Protocol

from benchmarks.given import WHO, journal_of, publish_given, reassignment_of
from benchmarks.stages import ask_until
from kafka_steward.assignment import Move
from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.execution.announcements import announce_restart
from kafka_steward.execution.plans.drive import DrivePolicy, run_to_end
from kafka_steward.execution.plans.runner import PlanRunner
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.journal import paths
from kafka_steward.journal.mailbox import delete_one, read_one
from kafka_steward.journal.records import PlanStatus
from kafka_steward.journal.store import Journal
from kafka_steward.sandbox import Sandbox
from kafka_steward.settings import Settings
from tests.cancelling import CancelRunner

__all__ = ["KafkasTool", "Steward", "Way", "bounded", "run_tool"]

_TOOL = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
_LONGEST_S = 600.0
_BOUNCE_MS = 120_000


class Way(Protocol):
    """How partitions are moved."""

    name: str

    def move(self, moves: Sequence[Move], throttle: int) -> None:
        """Carry them out; returns when all have arrived. `throttle` in bytes per second into a broker; 0: none."""

    def holding(self, moves: Sequence[Move], throttle: int, *, restarting: int) -> AbstractContextManager[None]:
        """Inside, all of them are in flight, and `restarting` may be restarted; at the end the rest is cancelled."""


class Steward:
    """Kafka Steward's `PlanRunner` in a loop, with its plans in `folder`, the sandbox's journal, on any disk."""

    name = "Kafka Steward"

    def __init__(self, sandbox: Sandbox, cluster: KafkaCluster, folder: Path) -> None:
        self._sandbox = sandbox
        self._cluster = cluster
        self._folder = folder

    def move(self, moves: Sequence[Move], throttle: int) -> None:
        settings = Settings.of({"min_free": 0, "throttle": throttle})
        with self._journal(self._cluster) as journal:
            digest = publish_given(self._cluster, journal, self._folder / "move", moves, settings)
            runner = PlanRunner(ClusterContext(self._cluster, journal, settings, WHO), digest)
            progress = run_to_end(runner.step, bounded(), DrivePolicy(interval_s=lambda: settings.step_interval))
        if progress.status is not PlanStatus.COMPLETED:
            raise RuntimeError(progress.sentence)

    @contextmanager
    def holding(self, moves: Sequence[Move], throttle: int, *, restarting: int) -> Iterator[None]:
        caps = dict.fromkeys(("max_in_flight", "max_in_per_broker", "max_out_per_broker"), len(moves))
        settings = Settings.of({"min_free": 0, "throttle": throttle, **caps})
        with self._journal(self._cluster) as journal:
            digest = publish_given(self._cluster, journal, self._folder / "holding", moves, settings)
            runner = PlanRunner(ClusterContext(self._cluster, journal, settings, WHO), digest)
            # Not all: what may be in flight is what the throttle can copy until the next step.
            ask_until(lambda: runner.step().in_flight or None, within_s=60, every_s=settings.step_interval)
            announce_restart(journal, restarting, who=WHO, lasts_ms=_BOUNCE_MS)
            with self._stepping(digest, settings):
                yield
            # No watch sees that the broker is back, and the next plan would wait for the announced restart.
            if announced := read_one(journal.mailbox, paths.rolling_bounce(restarting)):
                delete_one(journal.mailbox, announced)
            if not runner.step().ended:
                undo = CancelRunner(self._cluster, journal, digest, settings, WHO, reason="a benchmark")
                run_to_end(undo.step, bounded(), DrivePolicy(interval_s=lambda: settings.step_interval))

    @contextmanager
    def _stepping(self, digest: str, settings: Settings) -> Iterator[None]:
        """The plan goes on meanwhile, in a thread with a client of its own."""
        over = Event()

        def step_on() -> None:
            with (
                KafkaCluster({"bootstrap_servers": self._sandbox.bootstrap.split(",")}) as cluster,
                self._journal(cluster) as journal,
            ):
                runner = PlanRunner(ClusterContext(cluster, journal, settings, WHO), digest)
                while not over.wait(settings.step_interval):
                    runner.step()

        with ThreadPoolExecutor(1) as pool:
            stepping = pool.submit(step_on)
            try:
                yield
            finally:
                over.set()
            stepping.result(timeout=60)

    def _journal(self, cluster: KafkaCluster) -> Journal:
        return journal_of(self._sandbox, cluster)


class KafkasTool:
    """`kafka-reassign-partitions`: --execute, then --verify, which takes the throttle away."""

    name = "kafka-reassign-partitions"

    def __init__(self, sandbox: Sandbox, cluster: KafkaCluster, folder: Path) -> None:
        self._sandbox = sandbox
        self._cluster = cluster
        self._folder = folder

    def move(self, moves: Sequence[Move], throttle: int) -> None:
        self._run(moves, "--execute", *(["--throttle", str(throttle)] if throttle else []))
        self._wait_until_still()
        self._run(moves, "--verify")

    @contextmanager
    def holding(
        self,
        moves: Sequence[Move],
        throttle: int,
        *,
        restarting: int,  # noqa: ARG002 - nobody can tell it
    ) -> Iterator[None]:
        self._run(moves, "--execute", "--throttle", str(throttle))
        yield
        self._run(moves, "--cancel")
        self._wait_until_still()

    def _run(self, moves: Sequence[Move], *arguments: str) -> None:
        run_tool(self._sandbox, self._folder, moves, *arguments)

    def _wait_until_still(self) -> None:
        ask_until(lambda: not self._cluster.reassignments() or None, within_s=_LONGEST_S, every_s=0.2)


def run_tool(
    sandbox: Sandbox, folder: Path, moves: Sequence[Move], *arguments: str, within_s: float = _LONGEST_S
) -> None:
    """Run `kafka-reassign-partitions` for these moves. Raises SandboxFailed, also when it is ended after `within_s`."""
    file = folder / "reassignment.json"
    file.write_text(reassignment_of(moves))
    common = ["--bootstrap-server", sandbox.bootstrap, "--reassignment-json-file", str(file)]
    sandbox.kafka_tool(_TOOL, *common, *arguments, within_s=within_s)


def bounded(within_s: float = _LONGEST_S) -> Callable[[float], None]:
    """A wait for `run_to_end`, that raises TimeoutError when all waits together took longer than `within_s`."""
    deadline_s = time.monotonic() + within_s

    def wait(seconds: float) -> None:
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"the plan did not end within {within_s:.0f} s")
        time.sleep(seconds)

    return wait
