"""The rows with the progress and the proof of a plan, for the page: written to the journal, never read by a step."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from kafka_steward.assignment import TopicPartition
from kafka_steward.errors import JournalUnreachable, LockLost
from kafka_steward.execution.moves.progress import Progress
from kafka_steward.execution.moves.states import Held
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.journal.locks import Fence
from kafka_steward.journal.observed import (
    BrokerChange,
    HeldGroup,
    LeftPartition,
    ProgressReport,
    ProofSummary,
)
from kafka_steward.journal.paths import BROKER, PARTITION, TOPIC
from kafka_steward.journal.store import Journal

if TYPE_CHECKING:
    from kafka_steward.planning.files.formats import PlanFolder, SnapshotFolder

_log = logging.getLogger(__name__)

#: Seconds between two writes of a plan's progress.
EVERY_S = 10.0

#: The reasons, and the stalled partitions, that are stored.
_NAMED = 20

#: Reasons of a plan's options, which a person chose: what they leave is listed after all else.
_CHOSEN = {"pinned", "excluded"}

#: Characters that are kept of a reason: it is one word, unless somebody else wrote the proof.
_REASON = 40


@dataclass
class ProgressRecorder:
    """Writes the progress of a plan at most every `EVERY_S` seconds, and whenever its status changes."""

    journal: Journal
    clock: Callable[[], float] = time.monotonic
    _written: dict[str, tuple[float, object]] = field(default_factory=dict, init=False, repr=False)

    def record(self, progress: Progress, fence: Fence, *, throttle: int | None) -> None:
        """Write the progress after a step, under its lock. Raises JournalUnreachable, and no other error.

        What is only shown never ends a step: any other error is logged.
        """
        reports, now_s = self.journal.plan_reports, self.clock()
        last_s, status = self._written.get(progress.digest, (None, None))
        recent = last_s is not None and now_s - last_s < EVERY_S and status is progress.status
        if reports is None or progress.busy or recent:
            return
        try:
            reports.put_progress(progress_report(progress, throttle), fence, every_ms=int(EVERY_S * 1000))
            self._written[progress.digest] = now_s, progress.status
        except LockLost:
            pass  # its successor writes the progress
        except JournalUnreachable:
            raise
        except Exception:  # noqa: BLE001 - what is only shown never ends a step
            _log.exception("The progress of plan %s could not be recorded.", progress.digest[:12])


def progress_report(progress: Progress, throttle: int | None) -> ProgressReport:
    """Return the progress as it is stored."""
    return ProgressReport(
        progress.digest,
        status=progress.status,
        partitions_total=progress.partitions_total,
        partitions_settled=progress.partitions_settled,
        in_flight=progress.in_flight,
        waiting=progress.waiting,
        completed=progress.completed,
        held_count=len(progress.held),
        held=_group(progress.held),
        stalled_count=len(progress.stalled),
        stalled=tuple(map(str, progress.stalled[:_NAMED])),
        bytes_total=progress.bytes_total,
        bytes_done=progress.bytes_done,
        bytes_per_s=_whole(progress.bytes_per_s),
        eta_s=_whole(progress.eta_s),
        throttle=throttle or None,
        pressure=None if progress.pressure is None else progress.pressure.value,
        chunk=progress.chunk,
        chunks=progress.chunks,
        sentence=progress.sentence,
    )


def _group(held: Sequence[Held]) -> tuple[HeldGroup, ...]:
    counts = Counter(hold.code for hold in held)
    first = {hold.code: hold for hold in reversed(held)}
    return tuple(
        HeldGroup(first[code].sentence, count, str(TopicPartition(first[code].topic, first[code].partition)))
        for code, count in counts.most_common(_NAMED)
    )


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)


def proof_summary(plan: PlanFolder, snapshot: SnapshotFolder | None = None) -> ProofSummary:
    """Return what the proof of a plan states; what a proof made elsewhere does not state is None."""
    proof = plan.proof
    racks, rack_left = _mapping(proof.get("rack_violations")), _mapping(proof.get("rack_left"))
    load = _mapping(proof.get("load"))
    left = _left_partitions(entry for name in ("unplaced", "pinned") for entry in _sequence(proof.get(name)))
    if snapshot is not None:
        # A step only reports progress, and needs no Arrow, which is slow to import.
        from kafka_steward.execution.plans.summary import brokers_to_bring_back  # noqa: PLC0415

        back = brokers_to_bring_back({TopicPartition(*partition[:2]): partition.reason for partition in left}, snapshot)
        left = tuple(LeftPartition(*partition[:3], *back.get(TopicPartition(*partition[:2]), ())) for partition in left)
    return ProofSummary(
        replicas_moved=_number(proof.get("replicas_moved")),
        lower_bound=_number(proof.get("lower_bound")),
        bytes_moved=_number(proof.get("bytes_moved")),
        leader_changes=_number(proof.get("leader_changes")),
        predicted_s=_number(proof.get("predicted_seconds")),
        throttle=_number(_mapping(proof.get("options")).get("throttle")),
        rack_violations_before=_number(racks.get("before")),
        rack_violations_after=_number(racks.get("after")),
        bytes_in_before=_number(_mapping(_mapping(load.get("replicas")).get("before")).get("highest_over_mean")),
        bytes_in_after=_number(_mapping(_mapping(load.get("replicas")).get("after")).get("highest_over_mean")),
        brokers=_broker_changes(_mapping(proof.get("spread"))),
        left=left,
        left_counts=dict(Counter(partition.reason for partition in left).most_common(_NAMED)),
        rack_left=_left_partitions(_sequence(rack_left.get("first"))),
        rack_left_counts={
            str(word)[:_REASON]: count for word, count in _mapping(rack_left.get("counts")).items() if _number(count)
        },
    )


def _left_partitions(listed: Iterable[Any]) -> tuple[LeftPartition, ...]:
    partitions = [
        LeftPartition(entry["topic"], int(entry["partition"]), str(entry.get("reason"))[:_REASON])
        for entry in map(_mapping, listed)
        if TOPIC.parse(str(entry.get("topic"))) is not None and PARTITION.parse(str(entry.get("partition"))) is not None
    ]
    return tuple(sorted(partitions, key=lambda partition: partition.reason in _CHOSEN))


def _sequence(value: Any) -> Iterable[Any]:
    return value if isinstance(value, list | tuple) else ()


def _broker_changes(spread: Mapping[str, Any]) -> tuple[BrokerChange, ...]:
    loads: dict[int, dict[str, int | None]] = {}
    for what in ("replicas", "leaders", "bytes"):
        for when in ("before", "after"):
            by_broker = _mapping(_mapping(_mapping(spread.get(what)).get(when)).get("by_broker"))
            for broker, load in by_broker.items():
                if BROKER.parse(str(broker)) is None:
                    continue  # a proof that somebody else wrote
                loads.setdefault(int(broker), {})[f"{what}_{when}"] = _number(load)
    return tuple(BrokerChange(broker, **loads[broker]) for broker in sorted(loads))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _number(value: Any) -> Any:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def report_request(
    context: ClusterContext, plan: PlanFolder, snapshot: SnapshotFolder | None = None, *, expires_in: timedelta | None
) -> None:
    """Record that the actor asks for the approval of a plan, with what its proof states. Raises JournalUnreachable."""
    expires_in_ms = None if expires_in is None else int(expires_in.total_seconds() * 1000)
    operation = str(plan.proof.get("operation"))
    context.journal.plans.ask(
        plan.digest, operation, len(plan.moves), asked_by=context.actor, expires_in_ms=expires_in_ms
    )
    report_publication(context, plan, snapshot)


def report_publication(context: ClusterContext, plan: PlanFolder, snapshot: SnapshotFolder | None = None) -> None:
    """Record what the proof of a published or proposed plan states. Raises JournalUnreachable."""
    if context.journal.plan_reports is not None:
        summary = proof_summary(plan, snapshot)
        context.journal.plan_reports.put_proof(plan.digest, summary, conn_id=context.journal.conn_id)
