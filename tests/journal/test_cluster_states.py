"""The state of a cluster in one word: each by what makes it, and which of several is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa

from kafka_steward.assignment import Move
from kafka_steward.journal.observed import CheckReport, CheckState
from kafka_steward.journal.records import PlanRecord, PlanStatus
from kafka_steward.journal.schema import tables
from kafka_steward.journal.sql.watch_reports import WatchReports
from kafka_steward.journal.store import Journal, open_journal
from kafka_steward.page_data.clusters import FAILURES, UNWATCHED_MS, ClusterState, cluster
from kafka_steward.page_data.reader import open_reader
from tests.present import present

CLUSTER, CONN_ID = "cluster-s", "kafka_s"
Arrange = Callable[[Journal], None]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/journal.db"


@pytest.fixture
def journal(url: str) -> Iterator[Journal]:
    with open_journal(url, CLUSTER, host="h") as opened:
        yield opened


def reports(journal: Journal) -> WatchReports:
    return present(journal.watch_reports)


def state(url: str) -> ClusterState:
    with open_reader(url, host="h") as reader:
        found = cluster(reader, CLUSTER)
    assert found is not None
    return found.state


def check(journal: Journal, found: CheckState) -> None:
    """The watch has polled, and the check for failed brokers has this result."""
    reports(journal).put_check(CheckReport(CONN_ID, FAILURES, state=found))
    journal.record_poll(FAILURES)


def measure(journal: Journal, **counts: float) -> None:
    """The last health check has these counts."""
    assert journal.health is not None
    with reports(journal).database.write_transaction() as connection:
        connection.execute(sa.delete(tables.health))
    journal.health.add_measures(counts, every_ms=1, retention_ms=60_000)


def put_plan(journal: Journal, operation: str, status: PlanStatus) -> None:
    digest = (operation[0] if status is PlanStatus.RUNNING else "0").encode().hex().ljust(64, "0")
    move = Move("t", 0, (1, 2), (2, 3), 0, 0, "broker_draining", None, 100)
    published = journal.plans.publish(PlanRecord(digest, CLUSTER, operation), [move])
    journal.plans.update(published, status=status)


def disable(journal: Journal) -> None:
    reports(journal).put_documents({"switch": [{"since_ms": 1, "person": "ada", "reason": "night"}]})


def age(journal: Journal, ms: int) -> None:
    """All that the watch has reported is this much older."""
    with reports(journal).database.write_transaction() as connection:
        for table in (tables.watch_check, tables.look):
            connection.execute(sa.update(table).values(at_ms=table.c.at_ms - ms))


#: What makes each state. Each leaves the conditions of the states below it as they are, but for the check's own.
MADE_BY: dict[ClusterState, Arrange] = {
    ClusterState.UNWATCHED: partial(age, ms=UNWATCHED_MS + 1),
    ClusterState.FAILING: lambda journal: reports(journal).put_failure(CONN_ID, "documents", "No answer.", failures=1),
    ClusterState.OUTAGE: partial(check, found=CheckState.OUTAGE),
    ClusterState.OFFLINE: partial(measure, offline_partitions=1, under_replicated_partitions=2),
    ClusterState.STUCK: partial(put_plan, operation="rebalance", status=PlanStatus.STUCK),
    ClusterState.FAILED: partial(check, found=CheckState.NOT_HEALED),
    ClusterState.WAITING: partial(check, found=CheckState.GRACE_PERIOD),
    ClusterState.HEALING: partial(put_plan, operation="heal", status=PlanStatus.RUNNING),
    ClusterState.MOVING: partial(put_plan, operation="drain", status=PlanStatus.RUNNING),
    ClusterState.DEGRADED: partial(measure, under_replicated_partitions=2),
    ClusterState.DISABLED: disable,
    ClusterState.HEALTHY: partial(check, found=CheckState.FINE),
}


@pytest.mark.parametrize("expected", ClusterState)
def test_of_several_states_the_one_that_needs_a_person_most_is_shown(
    journal: Journal, url: str, expected: ClusterState
) -> None:
    states = list(ClusterState)
    for below in reversed(states[states.index(expected) :]):
        MADE_BY[below](journal)
    assert state(url) is expected


@pytest.mark.parametrize(
    ("arrange", "expected"),
    [
        (partial(check, found=CheckState.CALLED_OFF), ClusterState.FAILED),
        (partial(check, found=CheckState.DUE), ClusterState.WAITING),
        (partial(check, found=CheckState.HANDLED), ClusterState.HEALING),
        (partial(check, found=CheckState.PENDING), ClusterState.HEALTHY),
        (partial(measure, pending_replicas=1), ClusterState.DEGRADED),
        (partial(measure, reassigning_partitions=1), ClusterState.HEALTHY),
        (partial(put_plan, operation="heal", status=PlanStatus.COMPLETED), ClusterState.HEALTHY),
        (partial(age, ms=UNWATCHED_MS - 60_000), ClusterState.HEALTHY),
    ],
)
def test_what_else_makes_a_state_and_what_makes_none(
    journal: Journal, url: str, arrange: Arrange, expected: ClusterState
) -> None:
    check(journal, CheckState.FINE)
    arrange(journal)
    assert state(url) is expected


def test_a_cluster_that_no_watch_has_reported_is_unwatched(journal: Journal, url: str) -> None:
    assert journal.cluster_id == CLUSTER
    assert state(url) is ClusterState.UNWATCHED


def test_a_check_that_has_been_made_since_it_failed_is_not_failing(journal: Journal, url: str) -> None:
    reports(journal).put_failure(CONN_ID, FAILURES, "Kafka does not answer.", failures=1)
    assert state(url) is ClusterState.FAILING
    table = tables.watch_check
    with reports(journal).database.write_transaction() as connection:
        connection.execute(sa.update(table).values(failing_ms=table.c.failing_ms - 1_000))
    journal.record_poll(FAILURES)
    assert state(url) is ClusterState.HEALTHY
