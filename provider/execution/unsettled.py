"""What keeps a cluster from being fully replicated, and since when."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from kafka_steward.cluster.state import Snapshot
from kafka_steward.journal.records import UNSETTLED, UnsettledPartitions
from kafka_steward.journal.state import ONLY
from kafka_steward.journal.store import Journal
from kafka_steward.settings import Settings

#: The longest time between two polls that find the same, in milliseconds, for it to have lasted in between. Nobody
#: knows whether what was found days ago was repaired since. The watch polls every `health_interval`, a minute, but a
#: cluster may have no watch: what only a daily gate polls, and not to the minute, must be able to last `stuck_after`.
_GAP_MS = 172_800_000


#: How old the recorded time of the last poll becomes, in milliseconds: most polls that find the same write nothing.
_RECORDED_MS = 3_600_000


def record_unsettled(journal: Journal, snapshot: Snapshot) -> UnsettledPartitions:
    """Record since when partitions are unsettled and brokers are down; return the times, in ms.

    What is settled again is forgotten, and so is everything when nothing has polled for two days. The first process
    that finds it records the time: the watch's health check polls every `health_interval`, the gate when it asks, and a
    plan while a partition outside it is under its min ISR.
    """
    rows, now_ms = journal.rows(UNSETTLED), journal.now_ms()
    row = rows.get(ONLY)
    read = UnsettledPartitions() if row is None else row.value
    before, partitions = _forget_after_gap(read, now_ms), snapshot.partitions
    lagging = [str(name) for name, partition in partitions.items() if partition.lagging(snapshot)]
    down = [str(broker) for broker in snapshot.dead_hosting_brokers]
    after = replace(
        before,
        out_of_sync_ms=_update_times(before.out_of_sync_ms, lagging, now_ms),
        reassigning_ms=_update_times(before.reassigning_ms, map(str, snapshot.reassigning), now_ms),
        down_ms=_update_times(before.down_ms, down, now_ms),
    )
    is_recent = 0 <= now_ms - before.polled_ms < _RECORDED_MS
    if not (after.out_of_sync_ms or after.reassigning_ms or after.down_ms):
        after = replace(after, polled_ms=0)  # of a settled cluster, further polls then write nothing
    elif not is_recent:
        after = replace(after, polled_ms=now_ms)
    if after != read:
        # If another process writes it at the same time, the next poll adds what is missing.
        rows.put(ONLY, after, row)
    return after


def _update_times(before: Mapping[str, int], names: Iterable[str], now_ms: int) -> dict[str, int]:
    # The clock may have been set back: nothing has begun in the future.
    return {name: min(before.get(name, now_ms), now_ms) for name in names}


def find_stuck(known: UnsettledPartitions, settings: Settings, now_ms: int) -> frozenset[str]:
    """Return the names of partitions out of sync for `stuck_after` and longer. Pure.

    Of a partition all of whose old replicas are in sync, the time since which it is being reassigned counts.
    """
    times = {**known.reassigning_ms, **known.out_of_sync_ms}
    return frozenset(name for name, at_ms in times.items() if now_ms - at_ms >= settings.stuck_after * 1000)


def _forget_after_gap(known: UnsettledPartitions, now_ms: int) -> UnsettledPartitions:
    """Return `known`, without any time if the last poll was too long ago."""
    # Longer ago, what was unsettled then may have settled since, and become so again.
    if now_ms - known.polled_ms <= _GAP_MS:
        return known
    return replace(known, out_of_sync_ms={}, reassigning_ms={}, down_ms={}, polled_ms=0)
