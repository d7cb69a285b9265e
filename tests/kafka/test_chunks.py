"""KIP-46's chunks one after another, with KIP-236's pause between them, on real clusters."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_steward.assignment import Move
from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.publishing import publish_plan
from kafka_steward.execution.runner import PlanRunner
from kafka_steward.journal.audit import Action, Actor
from kafka_steward.journal.store import Journal, open_journal
from kafka_steward.sandbox import Sandbox
from kafka_steward.settings import Settings
from tests.manual_plan import plan_by_hand
from tests.stepping import to_the_end

WHO = Actor(person="ada")
PAUSE_S = 1.5


@pytest.mark.in_ci("kraft")
def test_a_chunk_begins_when_all_of_the_one_before_has_ended_and_the_pause_is_over(
    sandbox: Sandbox, topic: str, tmp_path: Path
) -> None:
    sandbox.create_topics(topic, assignments={number: [1, 2, 3] for number in range(4)})
    moves = [Move(topic, number, (1, 2, 3), (4, 2, 3), number // 2, number % 2, "given") for number in range(4)]
    settings = Settings(min_free=0, throttle=0, window="chunk", chunk_pause=PAUSE_S)
    with (
        KafkaCluster({"bootstrap_servers": sandbox.bootstrap}) as cluster,
        open_journal(f"sqlite:///{tmp_path}/journal.db", cluster.cluster_id) as journal,
    ):
        plan = plan_by_hand(cluster, journal, tmp_path, moves)
        publish_plan(ClusterContext(cluster, journal, settings, WHO), plan)
        assert to_the_end(PlanRunner(ClusterContext(cluster, journal, settings, WHO), plan.digest)).completed == 4
        begun, ended = times(journal, Action.SUBMIT), times(journal, Action.SETTLE)
    assert max(begun[0], begun[1]) < min(ended[0], ended[1])  # together
    assert min(begun[2], begun[3]) - max(ended[0], ended[1]) >= PAUSE_S * 1000


def times(journal: Journal, action: Action) -> dict[int, int]:
    """When that was done, by partition."""
    rows = journal.audit.rows(action=action)
    return {row.entry.partition: row.when_ms for row in rows if row.entry.partition is not None}
