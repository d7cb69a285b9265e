"""Which brokers there are, and which there should be: one look, that asks for all partitions only when it has to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from kafka_steward.cluster.health import failed_brokers
from kafka_steward.cluster.state import LogDir, Snapshot
from kafka_steward.execution.decisions.failures import Sight
from kafka_steward.execution.ports import ClusterPort

__all__ = ["CALM_MS", "LOST_MS", "Sighting"]

#: How long who holds replicas is taken for granted while the same brokers live, in milliseconds.
CALM_MS = 60_000
#: The same while a broker has failed: what it holds is being given to others.
LOST_MS = 10_000


class Sighting:
    """Sees who has failed. Keep one for a loop.

    Going through every partition costs a large cluster's watch nearly all that it costs. Whoever held replicas and
    lived when all of them were gone through still does while the same brokers live; only replicas that someone has
    assigned to a broker that was dead before are seen up to `CALM_MS` late. Whoever had failed by enough words still
    has while the same brokers live; only that it holds less by now is seen up to `LOST_MS` late, and by whoever acts on
    a failure, and looks `anew`, at once. A log directory that fails is seen up to `CALM_MS` late.
    """

    def __init__(self, cluster: ClusterPort) -> None:
        self._cluster = cluster
        self._last: tuple[Sight, int] | None = None

    def see(self, now_ms: int, *, anew: bool = False) -> Sight:
        """Look. `now_ms` only has to move on; `anew` takes nothing for granted but what that moment's look has seen.

        Raises ClusterError.
        """
        if self._last is not None:
            sight, since_ms = self._last
            lasts_ms = 1 if anew else _lasts_ms(sight)
            if now_ms - since_ms < lasts_ms and self._cluster.live_brokers().keys() == sight.live:
                return sight
        snapshot = self._cluster.snapshot()
        views = self._cluster.live_views(sorted(snapshot.live))
        disks = self._cluster.directories(sorted(snapshot.live))
        sight = _sight(snapshot, failed_brokers(snapshot, views), disks)
        self._last = (sight, now_ms)
        return sight


def _lasts_ms(sight: Sight) -> int:
    missing = sight.known - sight.live
    if missing != sight.failed:
        return 0  # not enough brokers have said so, yet
    return LOST_MS if missing else CALM_MS


def _sight(snapshot: Snapshot, failed: frozenset[int], disks: Mapping[int, LogDir]) -> Sight:
    known = frozenset(broker for broker in snapshot.live | snapshot.hosting if broker >= 0)
    holding = Counter(broker for each in snapshot.partitions.values() for broker in failed.intersection(each.replicas))
    lost = {broker: len(names) for broker, names in snapshot.lost_on_live.items()}
    paths = {broker: dirs.failed_paths for broker, dirs in disks.items() if dirs.failed_paths}
    return Sight(failed, snapshot.live, known, holding, {**dict.fromkeys(lost, ()), **paths}, lost)
