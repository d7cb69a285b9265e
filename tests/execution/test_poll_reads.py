"""A poll decides about what it writes by what the journal says then, not by what it read before it asked Kafka."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from kafka_steward.cluster.state import Snapshot
from kafka_steward.execution.failure_detector import FailureDetector
from kafka_steward.execution.readiness import announce_restart
from kafka_steward.journal.store import open_journal
from kafka_steward.settings import Settings
from tests.simulated_plan import WHO
from tests.simulator import Simulator

AT_ONCE = Settings(heal_failure_interval=0)


class SlowCluster(Simulator):
    """A cluster during whose answer somebody announces the restart of a broker, and stops it."""

    other: Any = None

    def snapshot(self, topics: Collection[str] | None = None) -> Snapshot:
        if self.other is not None:
            announce_restart(self.other, 3, who=WHO, lasts_ms=600_000)
            self.kill(3)
            self.other = None
        return super().snapshot(topics)


def test_a_restart_that_is_announced_during_a_poll_is_no_failure(tmp_path: Path) -> None:
    cluster, url = SlowCluster.of("1a 2b 3c", "t: 123"), f"sqlite:///{tmp_path}/journal.db"
    with open_journal(url, cluster.cluster_id) as journal, open_journal(url, cluster.cluster_id) as other:
        assert isinstance(cluster, SlowCluster)
        cluster.other = other
        found = FailureDetector(cluster, journal, AT_ONCE, WHO).poll()
        assert (found.down, found.due) == ((3,), ())
        assert list(found.waiting) == [3]
