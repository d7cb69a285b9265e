"""Log directories that have failed on live brokers: which are due to be healed, and what a person is told. Pure.

Kafka goes on serving from the other directories of such a broker. What was in the failed one is offline until the disk
is back, or until its replicas are moved to other brokers, as those of a failed broker are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kafka_steward.execution.decisions.failures import Sight
from kafka_steward.settings import Settings

__all__ = ["DiskJudgement", "disk_sentence", "judge_disks"]


@dataclass(frozen=True)
class DiskJudgement:
    """What a look at live brokers with failed log directories means; all by broker.

    `write` were seen for the first time, `clear` have no offline replica any more, `announce` are those of the `due`
    whose turn it is, `waiting` maps those within their grace period to its end, `handled` are seen to by a plan.
    """

    write: tuple[int, ...] = ()
    clear: tuple[int, ...] = ()
    announce: tuple[int, ...] = ()
    due: tuple[int, ...] = ()
    waiting: Mapping[int, int] | None = None
    handled: tuple[int, ...] = ()


def judge_disks(
    sight: Sight,
    *,
    first_seen_ms: Mapping[int, int],
    announced_ms: Mapping[int, int],
    handled: frozenset[int],
    outage: bool,
    now_ms: int,
    settings: Settings,
) -> DiskJudgement:
    """Judge a look. `first_seen_ms` and `announced_ms` are what was written down, by broker.

    Nothing is due unless `heal_failed_disks` is set, within `heal_failure_interval`, or in an outage. Brokers with
    failed directories count as failed ones for that: too many at once are a fault of something else.
    """
    if not settings.heal_failed_disks or settings.heal_failure_interval < 0:
        return DiskJudgement(clear=tuple(sorted(first_seen_ms)))
    lost = sorted(sight.lost)
    grace_ms, retry_ms = (int(each * 1000) for each in (settings.heal_failure_interval, settings.heal_retry_interval))
    ends = {broker: first_seen_ms.get(broker, now_ms) + grace_ms for broker in lost if broker not in handled}
    due = tuple(broker for broker, at_ms in ends.items() if at_ms <= now_ms and not outage)
    return DiskJudgement(
        write=tuple(broker for broker in lost if broker not in first_seen_ms),
        clear=tuple(sorted(first_seen_ms.keys() - sight.lost.keys())),
        announce=tuple(each for each in due if now_ms - announced_ms.get(each, -retry_ms) >= retry_ms),
        due=due,
        waiting={broker: at_ms for broker, at_ms in ends.items() if at_ms > now_ms},
        handled=tuple(broker for broker in lost if broker in handled),
    )


def disk_sentence(sight: Sight, judgement: DiskJudgement, settings: Settings, now_ms: int) -> str:
    """Each live broker with a failed log directory, and what becomes of what was there; empty when there is none."""
    return " ".join(
        f"{_named(broker, sight)}{_fate(broker, sight, judgement, settings, now_ms)}." for broker in sorted(sight.disks)
    )


def _named(broker: int, sight: Sight) -> str:
    # It may not say which: a broker that hangs is counted by the replicas that Kafka calls offline.
    named = " and ".join(sight.disks[broker]) or "of unknown path"
    return (
        f"Broker {broker} is live, but its log directory {named} has failed, with {sight.lost.get(broker, 0)} replicas"
    )


def _fate(broker: int, sight: Sight, judgement: DiskJudgement, settings: Settings, now_ms: int) -> str:
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
