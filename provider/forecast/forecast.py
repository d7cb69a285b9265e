"""The forecast of a plan: how long it takes, which broker it waits for, and how full the disks get.

The plan is carried out by a `PlanRunner`, as it will be, on a simulated cluster with simulated time, and with a journal
in a temporary file. What it takes is therefore what submitting in batches, throttling and polling take, and not only
bytes divided by a rate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import count
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kafka_steward.assignment import Move, Operation, TopicPartition, counted
from kafka_steward.execution.moves.concurrency import LONGEST_GAP_S
from kafka_steward.execution.moves.progress import Progress
from kafka_steward.execution.plans.drive import DrivePolicy, run_to_end
from kafka_steward.execution.plans.lifecycle import request_cancel
from kafka_steward.execution.plans.report import format_duration
from kafka_steward.execution.plans.runner import PlanRunner
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.forecast.copying import Phase, TimedCluster
from kafka_steward.journal.audit import Actor
from kafka_steward.journal.records import PlanRecord
from kafka_steward.journal.store import open_journal
from kafka_steward.planning.files.formats import PlanFolder, SnapshotFolder
from kafka_steward.settings import Settings

#: The steps after which a simulation is ended before its plan, so that a forecast takes a minute at most, and is the
#: same on any machine; and the simulated seconds.
_MOST_STEPS, _LONGEST_S = 1500, 90 * 86_400.0

#: A tick, of the least time that a plan takes, and its bounds in ms.
_TICK_SHARE, _LEAST_MS, _MOST_MS = 1 / 2000, 50, 1000

#: Seconds before the end of what a broker receives from which on steps are as frequent as in reality.
_LEAD_S = 10.0

#: The phases that lines for people name.
_PHASES_SHOWN = 3


@dataclass(frozen=True)
class Forecast:
    """What a plan will take.

    `seconds` is how long, from its first step to its end, and None if it does not end, for `reason`. `cancel_seconds`
    is how long a cancel at half of that time would take, with the rollback of what was completed. `phases` say which
    broker has most left to receive, and when. `disks` has the share of each broker's volumes that is used at most.
    `unknown_sizes` counts the partitions that copy bytes of which nobody knows how many: they count as none. `partial`
    is set if the simulation took too long, and the rest is by the rate that it had until then.
    """

    seconds: float | None
    cancel_seconds: float | None = None
    phases: tuple[Phase, ...] = ()
    disks: Mapping[int, float] = field(default_factory=dict)
    unknown_sizes: int = 0
    partial: bool = False
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {**asdict(self), "disks": {str(broker): round(share, 3) for broker, share in self.disks.items()}}

    def lines(self) -> list[tuple[str, str]]:
        """Return it as lines for people, each with its name."""
        if self.seconds is None:
            return [("forecast", self.reason)]
        by_rate = ", of which the simulation covers the begin" if self.partial else ""
        unknown = f", without {counted(self.unknown_sizes, 'partition')} of unknown size" if self.unknown_sizes else ""
        lines = [("forecast", f"about {format_duration(self.seconds)}{by_rate}{unknown}")]
        if self.cancel_seconds is not None:
            lines.append(
                ("cancel at half-time", f"all is as before after about {format_duration(self.cancel_seconds)}")
            )
        if self.phases:
            waits = [
                f"broker {phase.broker} until {format_duration(phase.to_s)}" for phase in self.phases[:_PHASES_SHOWN]
            ]
            lines.append(("waits for", f"{', '.join(waits)}{', ...' if len(self.phases) > _PHASES_SHOWN else ''}"))
        if self.disks:
            fullest = max(self.disks, key=lambda broker: (self.disks[broker], -broker))
            lines.append(("fullest disk", f"broker {fullest}, {self.disks[fullest]:.0%} at most"))
        return lines


def forecast_plan(
    plan: PlanFolder,
    snapshot: SnapshotFolder,
    settings: Settings,
    *,
    zookeeper_mode: bool,
    now_ms: int,
    most_steps: int = _MOST_STEPS,
) -> Forecast:
    """Simulate a plan, and its cancel at half-time, from `now_ms` on, in milliseconds since 1970.

    A broker copies at most `network_bandwidth` of the settings. Without that and without a throttle nothing says how
    fast it copies: `seconds` is None then. Each of the two simulations takes at most `most_steps` steps.
    """
    world = _World(plan, snapshot, settings, zookeeper_mode, now_ms)
    if not world.bandwidth:
        return Forecast(None, reason=_NO_RATE)
    whole = _simulate(world, most_steps)
    volumes = sorted(whole.cluster.volumes.items())
    forecast = Forecast(
        whole.seconds,
        phases=tuple(whole.cluster.phases),
        disks={broker: volume.peak / volume.total for broker, volume in volumes if volume.total},
        unknown_sizes=world.unknown_sizes,
        partial=whole.partial,
        reason=whole.reason,
    )
    if whole.seconds is None or whole.partial:
        return forecast
    cancelled = _simulate(world, most_steps, cancel_after_s=whole.seconds / 2)
    if cancelled.seconds is None or cancelled.partial:
        return forecast
    return replace(forecast, cancel_seconds=cancelled.seconds - whole.seconds / 2)


_NO_RATE = (
    "Nothing says how fast a broker copies: set a throttle, or network_bandwidth, to have the plan's duration forecast."
)


@dataclass(frozen=True)
class _Run:
    """One simulation: its seconds, None if it did not end, for `reason`; and the cluster as it is then."""

    cluster: TimedCluster
    seconds: float | None
    partial: bool = False
    reason: str = ""


class _World:
    """What all simulations of a plan begin with."""

    def __init__(
        self, plan: PlanFolder, snapshot: SnapshotFolder, settings: Settings, zookeeper_mode: bool, now_ms: int
    ) -> None:
        self.plan = plan
        self.settings = settings
        self.bandwidth = float(settings.network_bandwidth or settings.throttle * _UNTHROTTLED)
        self.unknown_sizes = sum(move.size_bytes is None and bool(move.adding) for move in plan.moves)
        self._mode = "zookeeper" if zookeeper_mode else "kraft"
        self._now_ms = now_ms
        self._brokers = snapshot.brokers.to_pylist()
        self._rows = _rows_of(plan.moves, snapshot)
        self._left: dict[int, int] = {}
        for move in plan.moves:
            for broker in move.adding:
                self._left[broker] = self._left.get(broker, 0) + (move.size_bytes or 0)

    def new_record(self) -> PlanRecord:
        """Return the plan's record as it is published."""
        operation = str(self.plan.proof["operation"])
        return PlanRecord(
            self.plan.digest,
            self.plan.proof["cluster_id"],
            operation,
            failed_brokers=tuple(self.plan.proof.get("brokers_failed", ())),
            auto_generated=operation == Operation.HEAL.value,
            live_brokers=tuple(row["broker"] for row in self._brokers if row["state"] not in _DEAD),
        )

    def new_cluster(self) -> TimedCluster:
        """Return the cluster of the snapshot, with the partitions that move."""
        # What the busiest broker receives takes so long at least.
        least_s = max(self._left.values(), default=0) / (self.settings.throttle or self.bandwidth)
        cluster = TimedCluster(
            self.plan.proof["cluster_id"],
            {row["broker"]: row["rack"] for row in self._brokers},
            mode=self._mode,
            now_ms=self._now_ms,
            bandwidth=self.bandwidth,
            disks={row["broker"]: _sum_volumes(row) for row in self._brokers},
            growth={name: row["bytes_per_s"] for name, row in self._rows.items() if row["bytes_per_s"]},
            left=self._left,
            tick_ms=int(min(_MOST_MS, max(_LEAST_MS, least_s * 1000 * _TICK_SHARE))),
        )
        cluster.alive -= {row["broker"] for row in self._brokers if row["state"] in _DEAD}
        for name, row in self._rows.items():
            cluster.add(name, tuple(row["replicas"]), row["topic_id"], row["bytes"] or 0, row["isr"])
            if row["min_isr"] is not None:
                cluster.topic_settings[name.topic]["min.insync.replicas"] = str(row["min_isr"])
        return cluster


#: The states of brokers in a snapshot that are not live.
_DEAD = frozenset({"failed", "down"})

#: How many times its throttle a broker is taken to copy without one, if nothing says what its network carries.
_UNTHROTTLED = 10


def _simulate(world: _World, most_steps: int, *, cancel_after_s: float | None = None) -> _Run:
    """Carry a plan out, and cancel it with its completed moves at `cancel_after_s`, if given."""
    cluster, steps_left = world.new_cluster(), count(most_steps, -1)
    with (
        TemporaryDirectory(prefix="kafka-steward-forecast-") as folder,
        open_journal(f"sqlite:///{folder}/journal.db", cluster.cluster_id, clock=lambda: cluster.now_ms) as journal,
    ):
        who, digest = Actor(task_id="forecast"), world.plan.digest
        journal.plans.publish(world.new_record(), world.plan.moves)
        runner = PlanRunner(ClusterContext(cluster, journal, world.settings, who), digest)
        cancels_s = [] if cancel_after_s is None else [cancel_after_s]

        def step() -> Progress:
            if cancels_s and cluster.elapsed_s >= cancels_s[0]:
                cancels_s.clear()
                request_cancel(journal, digest, who=who, reason="the forecast", scope="plan")
            cluster.ended = 0
            return runner.step()

        def goes_on(_: Progress, pause_s: float) -> bool:
            return next(steps_left) > 0 and cluster.elapsed_s + pause_s < _LONGEST_S

        policy = DrivePolicy(lambda: world.settings.step_interval, goes_on=goes_on)
        last = run_to_end(step, partial(_wait, cluster), policy)
    return _judge(cluster, last)


def _wait(cluster: TimedCluster, pause_s: float) -> None:
    cluster.advance(pause_s)
    # Steps in which nothing ends and no broker runs out of bytes are left out: they would change nothing.
    until_s = cluster.elapsed_s + LONGEST_GAP_S
    while cluster.elapsed_s < until_s and cluster.is_busy(_LEAD_S):
        cluster.advance(cluster.tick_ms / 1000)


def _judge(cluster: TimedCluster, last: Progress) -> _Run:
    """Return what a simulation shows whose last step was this; the rest of a long one is by its rates so far."""
    if last.ended:
        return _Run(cluster, cluster.elapsed_s)
    if last.run_is_over:
        return _Run(cluster, None, reason=last.sentence)
    rest_s = cluster.seconds_left()
    if rest_s is None:
        return _Run(cluster, None, reason=f"Nothing more is copied in the simulation. {last.sentence}")
    return _Run(cluster, cluster.elapsed_s + rest_s, partial=True)


def _rows_of(moves: Sequence[Move], snapshot: SnapshotFolder) -> dict[TopicPartition, dict[str, Any]]:
    """Return the snapshot's rows of the partitions that move."""
    topics = pa.array(sorted({move.topic for move in moves}), pa.string())
    rows = snapshot.partitions.filter(pc.is_in(snapshot.partitions["topic"], topics)).to_pylist()
    moving = {move.topic_partition for move in moves}
    named = ((TopicPartition(row["topic"], row["partition"]), row) for row in rows)
    return {name: row for name, row in named if name in moving}


def _sum_volumes(row: Mapping[str, Any]) -> tuple[int | None, int]:
    """Return the total and the used bytes of all volumes of a broker; an unknown total is None."""
    total, used = row["disk_total"], row["disk_used"]
    return (sum(total), sum(used)) if total and used else (None, 0)
