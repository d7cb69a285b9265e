"""Liveness probe: live, failed and expected brokers. It reads all partitions only when necessary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from kafka_steward.cluster.health import failed_brokers
from kafka_steward.cluster.state import LogDir, Snapshot
from kafka_steward.execution.decisions.failures import LivenessView
from kafka_steward.execution.ports import ClusterPort

__all__ = ["CALM_MS", "LOST_MS", "LivenessProbe"]

#: How long the last result is reused while the set of live brokers is unchanged, in milliseconds.
CALM_MS = 60_000
#: The same while a broker is down, in milliseconds: shorter, because its replicas are being moved to other brokers.
LOST_MS = 10_000


class LivenessProbe:
    """Detects failed brokers. Keep one for a loop.

    Reading every partition accounts for nearly all the cost of a watch on a large cluster. So while the set of live
    brokers is unchanged, the last result is reused: for up to `CALM_MS` if all brokers are up, `LOST_MS` if one is
    down. While a broker is missing that not enough live brokers report as down, the result is not reused.

    The reuse delays the detection of three changes. Replicas that someone assigns to a broker that was already dead,
    and failed log directories, are detected up to `CALM_MS` late. A decrease of the replicas on a failed broker is
    detected up to `LOST_MS` late. Callers that act on a failure pass `anew=True`.
    """

    def __init__(self, cluster: ClusterPort) -> None:
        self._cluster = cluster
        self._last: tuple[LivenessView, int] | None = None

    def probe(self, now_ms: int, *, anew: bool = False) -> LivenessView:
        """Return the current state of the brokers. Raises ClusterError.

        `now_ms` may be of any clock that advances. With `anew`, only a result of the same `now_ms` is reused.
        """
        if self._last is not None:
            sight, since_ms = self._last
            lasts_ms = 1 if anew else _lasts_ms(sight)
            if now_ms - since_ms < lasts_ms and self._cluster.live_brokers().keys() == sight.live:
                return sight
        snapshot = self._cluster.snapshot()
        views = self._cluster.live_views(sorted(snapshot.live))
        disks = self._cluster.directories(sorted(snapshot.live))
        sight = _view(snapshot, failed_brokers(snapshot, views), disks)
        self._last = (sight, now_ms)
        return sight


def _lasts_ms(sight: LivenessView) -> int:
    missing = sight.known - sight.live
    if missing != sight.failed:
        return 0  # not enough live brokers report the missing broker as down yet
    return LOST_MS if missing else CALM_MS


def _view(snapshot: Snapshot, failed: frozenset[int], disks: Mapping[int, LogDir]) -> LivenessView:
    known = frozenset(broker for broker in snapshot.live | snapshot.hosting if broker >= 0)
    holding = Counter(broker for each in snapshot.partitions.values() for broker in failed.intersection(each.replicas))
    lost = {broker: len(names) for broker, names in snapshot.lost_on_live.items()}
    paths = {broker: dirs.failed_paths for broker, dirs in disks.items() if dirs.failed_paths}
    return LivenessView(failed, snapshot.live, known, holding, {**dict.fromkeys(lost, ()), **paths}, lost)
