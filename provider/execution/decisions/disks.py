"""Failed log directories of live brokers: the decision which to heal, and the message for operators. Pure.

Such a broker continues to serve from its other directories. The replicas in the failed directory are offline until the
disk is back, or until they are moved to other brokers, as for a failed broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kafka_steward.execution.decisions.failures import LivenessView
from kafka_steward.settings import Settings

__all__ = ["DiskDecision", "disk_sentence", "decide_disks"]


@dataclass(frozen=True)
class DiskDecision:
    """The decision about live brokers with failed log directories, as broker ids.

    `write` are brokers with offline replicas that are not recorded yet. `clear` are recorded brokers without offline
    replicas. `due` are brokers whose grace period is over. `announce` is the subset of `due` that is to be announced
    now. `waiting` maps brokers within their grace period to its end. `handled` are brokers that a plan handles.
    """

    write: tuple[int, ...] = ()
    clear: tuple[int, ...] = ()
    announce: tuple[int, ...] = ()
    due: tuple[int, ...] = ()
    waiting: Mapping[int, int] | None = None
    handled: tuple[int, ...] = ()


def decide_disks(
    sight: LivenessView,
    *,
    first_seen_ms: Mapping[int, int],
    announced_ms: Mapping[int, int],
    handled: frozenset[int],
    outage: bool,
    now_ms: int,
    settings: Settings,
) -> DiskDecision:
    """Return the decision for one poll. `first_seen_ms` and `announced_ms` are the recorded times, by broker.

    No broker is due if `heal_failed_disks` is off, within the grace period `heal_failure_interval`, or in an `outage`.
    Brokers with failed directories count as failed brokers towards an outage: many simultaneous failures have another
    cause. While disk healing is off, every recorded failure is cleared.
    """
    if not settings.heal_failed_disks or settings.heal_failure_interval < 0:
        return DiskDecision(clear=tuple(sorted(first_seen_ms)))
    lost = sorted(sight.lost)
    grace_ms, retry_ms = (int(each * 1000) for each in (settings.heal_failure_interval, settings.heal_retry_interval))
    ends = {broker: first_seen_ms.get(broker, now_ms) + grace_ms for broker in lost if broker not in handled}
    due = tuple(broker for broker, at_ms in ends.items() if at_ms <= now_ms and not outage)
    return DiskDecision(
        write=tuple(broker for broker in lost if broker not in first_seen_ms),
        clear=tuple(sorted(first_seen_ms.keys() - sight.lost.keys())),
        announce=tuple(each for each in due if now_ms - announced_ms.get(each, -retry_ms) >= retry_ms),
        due=due,
        waiting={broker: at_ms for broker, at_ms in ends.items() if at_ms > now_ms},
        handled=tuple(broker for broker in lost if broker in handled),
    )


def disk_sentence(sight: LivenessView, judgement: DiskDecision, settings: Settings, now_ms: int) -> str:
    """Return a message per live broker with a failed log directory, with the fate of its replicas; empty if none."""
    return " ".join(
        f"{_named(broker, sight)}{_state(broker, sight, judgement, settings, now_ms)}."
        for broker in sorted(sight.disks)
    )


def _named(broker: int, sight: LivenessView) -> str:
    # The path may be unknown: an unresponsive broker is detected by the replicas that Kafka reports as offline.
    named = " and ".join(sight.disks[broker]) or "of unknown path"
    return (
        f"Broker {broker} is live, but its log directory {named} has failed, with {sight.lost.get(broker, 0)} replicas"
    )


def _state(broker: int, sight: LivenessView, judgement: DiskDecision, settings: Settings, now_ms: int) -> str:
    if broker not in sight.lost:
        return ""
    if not settings.heal_failed_disks or settings.heal_failure_interval < 0:
        return "; they are not healed (heal_failed_disks)"
    if broker in judgement.due:
        return ", which are to be healed"
    if broker in judgement.handled:
        return ", which are seen to"
    waiting = judgement.waiting or {}
    if broker in waiting:
        return f"; the grace period ends in {max(0, waiting[broker] - now_ms) / 1000:.0f} s"
    return "; that is an outage, and nothing is healed until some are back"
