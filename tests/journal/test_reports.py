"""What the watch and the plans report for the page, and the state of a cluster, read as the page reads them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from kafka_steward.assignment import Move
from kafka_steward.execution.watch.observation import EVERY_S, CheckRecorder
from kafka_steward.journal.audit import Actor
from kafka_steward.journal.hosts import POLLS, HostActivity
from kafka_steward.journal.kip_documents import CancelRequest
from kafka_steward.journal.observed import (
    ApprovalState,
    BrokerReport,
    CheckReport,
    CheckState,
    HeldGroup,
    PartitionRate,
    ProgressReport,
    ProofSummary,
)
from kafka_steward.journal.records import Approval, PlanRecord, PlanStatus
from kafka_steward.journal.schema import tables
from kafka_steward.journal.sql.plan_reports import MOST_POINTS, PlanReports, add_point
from kafka_steward.journal.sql.watch_reports import MOST_DOCUMENTS, WatchReports
from kafka_steward.journal.store import Journal, open_journal
from kafka_steward.page_data import clusters as cluster_data
from kafka_steward.page_data import plans as plan_data
from kafka_steward.page_data import reports as report_data
from kafka_steward.page_data.clusters import FAILURES, UNWATCHED_MS, ClusterState, cluster
from kafka_steward.page_data.reader import JournalReader, open_reader
from tests.present import present

CLUSTER, CONN_ID = "cluster-c", "kafka_c"
HOSTILE = "<script>alert(1)</script>\"'{{7*7}}\u202e"
WHO = Actor("heal", "manual", "submit", 1, HOSTILE)
DIGEST = hashlib.sha256(b"a plan").hexdigest()
PROOF = ProofSummary(replicas_moved=2, lower_bound=2, bytes_moved=200)


@pytest.fixture
def journal(fresh_url: str) -> Iterator[Journal]:
    with open_journal(fresh_url, CLUSTER, host="h") as opened:
        yield opened


@pytest.fixture
def reader(journal: Journal, fresh_url: str) -> Iterator[JournalReader]:
    with open_reader(fresh_url, host="h") as opened:
        yield opened


def watch_reports(journal: Journal) -> WatchReports:
    return present(journal.watch_reports)


def plan_reports(journal: Journal) -> PlanReports:
    return present(journal.plan_reports)


def summary(reader: JournalReader) -> cluster_data.ClusterSummary:
    return present(cluster_data.cluster(reader, CLUSTER))


def listed(reader: JournalReader) -> Any:
    (found,) = plan_data.plans(reader, CLUSTER).rows
    return found


def publish(journal: Journal) -> PlanRecord:
    record = PlanRecord(DIGEST, CLUSTER, "heal", reason=HOSTILE, who=WHO, failed_brokers=(3,))
    return journal.plans.publish(record, [Move("t", 0, (1, 3), (1, 2), 0, 0, "broker_failed", None, 100)])


def test_a_poll_is_shown_with_its_state_and_a_failed_one_keeps_it_beside_the_error(
    journal: Journal, reader: JournalReader
) -> None:
    reports = watch_reports(journal)
    report = CheckReport(CONN_ID, "failures", state=CheckState.GRACE_PERIOD, sentence=HOSTILE, brokers=(3,), due_ms=7)
    reports.put_check(report)
    journal.record_poll("failures")
    (check,) = summary(reader).checks
    assert replace(check, at_ms=0, host="") == replace(report, at_ms=0, host="")
    for failures in (1, 2):
        reports.put_failure(CONN_ID, "failures", "Kafka does not answer.", failures=failures)
    (failed,) = summary(reader).checks
    assert (failed.state, failed.brokers, failed.failures) == (CheckState.GRACE_PERIOD, (3,), 2)
    assert failed.error == "Kafka does not answer."
    assert failed.failing_ms is not None
    assert summary(reader).state is cluster_data.ClusterState.FAILING
    reports.put_check(report)
    (check,) = summary(reader).checks
    assert (check.failures, check.failing_ms, check.error) == (0, None, "")


def test_a_first_poll_that_fails_is_shown(journal: Journal, reader: JournalReader) -> None:
    watch_reports(journal).put_failure(CONN_ID, "failures", "Kafka does not answer.", failures=1)
    assert summary(reader).conn_ids == (CONN_ID,)
    assert summary(reader).checks[0].error == "Kafka does not answer."


def test_an_unchanged_check_is_written_once_a_minute_and_a_changed_one_at_once(journal: Journal) -> None:
    now_s = [0.0]
    statements: list[str] = []
    recorder, quiet = CheckRecorder(lambda: now_s[0]), CheckReport(CONN_ID, "failures")

    def written(report: CheckReport) -> bool:
        statements.clear()
        recorder.record(journal, report)
        return bool(statements)

    engine = watch_reports(journal).database.engine
    sa.event.listen(engine, "before_cursor_execute", lambda *sent: statements.append(sent[2]))
    assert written(quiet)
    now_s[0] = EVERY_S - 1
    assert not written(quiet)
    assert written(replace(quiet, brokers=(3,)))
    assert not written(replace(quiet, brokers=(3,)))
    now_s[0] += EVERY_S
    assert written(replace(quiet, brokers=(3,)))
    recorder.forget()
    assert written(replace(quiet, brokers=(3,)))


def test_the_hottest_partitions_are_shown_and_idle_ones_are_not(journal: Journal, reader: JournalReader) -> None:
    reports = watch_reports(journal)
    rates = [PartitionRate(HOSTILE, number, "id", 100 * number or None, ((19_000, 7),), 5) for number in range(9)]
    reports.put_rates([*rates, PartitionRate("idle", 0, None, 0)], [])
    assert sorted(reports.rates(), key=str) == sorted([*rates, PartitionRate("idle", 0, None, 0)], key=str)
    assert [each.partition for each in report_data.brokers(reader, CLUSTER).hottest] == [8, 7, 6, 5, 4]
    assert reports.hottest(1) == [rates[8]]
    reports.put_rates([replace(rates[1], bytes_per_s=9_000)], [rates[8]])
    assert [(each.partition, each.bytes_per_s) for each in reports.hottest(2)] == [(1, 9_000), (7, 700)]
    reports.replace_brokers([BrokerReport(1, leader_bytes_in=7, follower_bytes_in=8), BrokerReport(2)])
    assert reports.bytes_in() == {1: (7, 8)}


def test_brokers_are_replaced_and_sizes_that_are_unknown_now_stay(journal: Journal, reader: JournalReader) -> None:
    one = BrokerReport(1, rack=HOSTILE, live=True, replicas=5, leaders=2, replica_bytes=100, failed_log_dirs=("/d",))
    watch_reports(journal).replace_brokers([one, replace(one, broker=2)])
    watch_reports(journal).replace_brokers([replace(one, replicas=6, replica_bytes=None)])
    (found,) = report_data.brokers(reader, CLUSTER).rows
    assert (found.broker, found.rack, found.replicas, found.replica_bytes) == (1, HOSTILE, 6, 100)
    assert found.failed_log_dirs == ("/d",)
    assert found.sized_ms is not None
    assert summary(reader).live_brokers == 1


def test_documents_are_written_when_they_change_and_only_so_many_are_stored(
    journal: Journal, reader: JournalReader
) -> None:
    statements: list[str] = []
    requests = [{"name": f"request_{at}"} for at in range(MOST_DOCUMENTS + 30)]
    watch_reports(journal).put_documents({"disabled": [{"person": HOSTILE}], "requests": requests})
    sa.event.listen(
        watch_reports(journal).database.engine, "before_cursor_execute", lambda *sent: statements.append(sent[2])
    )
    watch_reports(journal).put_documents({"disabled": [{"person": HOSTILE}], "requests": requests})
    assert statements == []
    watch_reports(journal).put_documents({"disabled": [], "requests": requests})
    assert statements
    found = report_data.documents(reader, CLUSTER).by_kind
    assert (found["disabled"].count, found["disabled"].documents) == (0, ())
    assert (found["requests"].count, len(found["requests"].documents)) == (MOST_DOCUMENTS + 30, MOST_DOCUMENTS)


def test_a_plan_is_shown_from_its_publication_to_its_end(journal: Journal, reader: JournalReader) -> None:
    record = publish(journal)
    plan_reports(journal).put_proof(DIGEST, PROOF, conn_id=CONN_ID)
    shown = listed(reader)
    assert (shown.status, shown.operation, shown.who, shown.partitions) == (PlanStatus.PUBLISHED, "heal", WHO, 1)
    assert (shown.failed_brokers, shown.conn_id, shown.proof.replicas_moved) == ((3,), CONN_ID, 2)
    assert (shown.began_ms, shown.ended_ms) == (None, None)
    record = journal.plans.update(record, status=PlanStatus.RUNNING, throttle=5)
    assert (listed(reader).status, listed(reader).throttle) == (PlanStatus.RUNNING, 5)
    assert listed(reader).began_ms is not None
    asked = CancelRequest(scope="plan", person="ada", reason=HOSTILE)
    journal.plans.update(record, status=PlanStatus.CANCELLED, cancel=asked, reason="cancelled")
    ended = listed(reader)
    assert (ended.status, ended.cancel.person, ended.cancel.reason[:8]) == (PlanStatus.CANCELLED, "ada", "<script>")
    assert ended.ended_ms >= ended.began_ms
    assert plan_data.plans(reader, CLUSTER, unfinished=True).rows == ()
    assert plan_data.plan(reader, CLUSTER, DIGEST[:8]) is not None
    assert plan_data.plan(reader, "another-cluster", DIGEST) is None


@pytest.mark.parametrize("answer", [ApprovalState.APPROVED, ApprovalState.REJECTED])
def test_an_approval_is_waited_for_until_it_is_answered(
    journal: Journal, reader: JournalReader, answer: ApprovalState
) -> None:
    journal.plans.ask(DIGEST, "drain", 40, asked_by=WHO, expires_in_ms=60_000)
    waiting = listed(reader)
    assert (waiting.status, waiting.operation, waiting.partitions) == (None, "drain", 40)
    assert waiting.approval is not None
    assert waiting.approval.asked_by == WHO
    assert waiting.approval.expires_ms == (waiting.approval.asked_ms or 0) + 60_000
    assert summary(reader).approvals == 1
    if answer is ApprovalState.APPROVED:
        journal.plans.approve(Approval(DIGEST, "bob", HOSTILE))
    else:
        journal.plans.reject(DIGEST, person="bob", reason=HOSTILE)
    assert summary(reader).approvals == 0
    approval = listed(reader).approval
    assert (approval.state, approval.person, approval.reason) == (answer, "bob", HOSTILE)


def test_an_approval_that_has_expired_is_not_waited_for(journal: Journal, reader: JournalReader) -> None:
    journal.plans.ask(DIGEST, "drain", 40, asked_by=WHO, expires_in_ms=-1)
    assert summary(reader).approvals == 0


def test_the_longest_wait_is_that_of_the_oldest_request_that_can_still_be_answered(journal: Journal) -> None:
    reports, database = plan_reports(journal), watch_reports(journal).database
    assert reports.longest_wait_ms() == 0
    for age_s, digest, expires_in_ms in ((9_000, "a" * 64, -1), (5_000, DIGEST, None), (100, "c" * 64, 60_000)):
        journal.plans.ask(digest, "drain", 1, asked_by=WHO, expires_in_ms=expires_in_ms)
        with database.write_transaction() as connection:
            aged = sa.update(tables.plan).where(tables.plan.c.digest == digest)
            connection.execute(aged.values(asked_ms=tables.plan.c.asked_ms - age_s * 1000))
    assert reports.longest_wait_ms() // 1000 in range(5_000, 5_060)
    journal.plans.approve(Approval(DIGEST, "bob"))
    assert reports.longest_wait_ms() // 1000 in range(100, 160)


def progress(**changed: Any) -> ProgressReport:
    made = ProgressReport(
        DIGEST,
        status=PlanStatus.RUNNING,
        partitions_total=4,
        partitions_settled=1,
        held_count=1,
        held=(HeldGroup(HOSTILE, 1, "t-0"),),
        stalled=("t-1",),
        bytes_total=400,
        bytes_done=100,
    )
    return replace(made, **changed)


def test_progress_is_written_at_most_so_often_and_at_once_when_the_status_changes(
    journal: Journal, reader: JournalReader
) -> None:
    reports = plan_reports(journal)
    reports.put_progress(progress(), every_ms=60_000)
    reports.put_progress(progress(partitions_settled=2), every_ms=60_000)
    found = present(plan_data.progress(reader, CLUSTER, DIGEST))
    assert (found.partitions_settled, found.held, found.stalled) == (1, (HeldGroup(HOSTILE, 1, "t-0"),), ("t-1",))
    reports.put_progress(progress(partitions_settled=3, bytes_done=300, status=PlanStatus.STUCK), every_ms=60_000)
    found = present(plan_data.progress(reader, CLUSTER, DIGEST))
    assert [(done, settled) for _, done, settled in found.series] == [(100, 1), (300, 3)]


def test_a_series_of_progress_keeps_its_first_and_its_last_point_and_stays_short() -> None:
    series: tuple[tuple[int, int, int], ...] = ()
    for at in range(3 * MOST_POINTS):
        series = add_point(series, (at, at, at))
        assert len(series) <= MOST_POINTS
        assert (series[0][0], series[-1][0]) == (0, at)


def test_what_is_shown_of_a_plan_is_deleted_with_it(journal: Journal, reader: JournalReader) -> None:
    journal.plans.update(publish(journal), status=PlanStatus.COMPLETED)
    plan_reports(journal).put_progress(progress())
    assert journal.plans.purge(journal.now_ms() + 1) == [DIGEST]
    assert plan_data.plans(reader, CLUSTER).rows == ()
    assert plan_data.progress(reader, CLUSTER, DIGEST) is None


def test_a_report_that_the_database_refuses_is_logged_and_what_was_written_before_it_stays(
    journal: Journal, reader: JournalReader, caplog: pytest.LogCaptureFixture
) -> None:
    reports, database, other = plan_reports(journal), watch_reports(journal).database, "0" * 64
    for digest in (DIGEST, other):
        journal.plans.ask(digest, "drain", 1, asked_by=WHO)
    with database.write_transaction() as connection:
        connection.execute(sa.text("CREATE UNIQUE INDEX only_one ON steward_plan (conn_id)"))
    reports.put_proof(DIGEST, PROOF, conn_id=CONN_ID)
    with database.write_transaction():
        journal.plans.approve(Approval(other, "bob"))
        reports.put_proof(other, PROOF, conn_id=CONN_ID)
    assert "could not be recorded" in caplog.text
    found = {each.digest: each for each in plan_data.plans(reader, CLUSTER).rows}
    assert found[DIGEST].conn_id == CONN_ID
    assert found[other].conn_id is None
    assert present(found[other].approval).state is ApprovalState.APPROVED


def test_a_row_for_plots_is_kept_once_per_interval_and_not_for_ever(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/journal.db"
    day_ms = 86_400_000
    with open_journal(url, "c", host="h") as journal, open_journal(url, "other", host="h") as other:
        assert journal.health is not None
        assert other.health is not None
        for _ in range(2):
            journal.health.add_measures({"offline_partitions": 1}, every_ms=7 * day_ms, retention_ms=30 * day_ms)
        ((at_ms, measures),) = journal.health.rows()
        assert (at_ms % (7 * day_ms), measures) == (0, {"offline_partitions": 1})
        assert journal.health.rows(since_ms=at_ms + 1) == []
        journal.health.add_measures({"offline_partitions": 2}, every_ms=1, retention_ms=0)
        assert [found["offline_partitions"] for _, found in journal.health.rows()] == [2]
        assert other.health.rows() == []


def looks_of(journal: Journal) -> HostActivity:
    return present(journal.hosts)


def kinds_and_hosts(rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return sorted((row["kind"], row["host"]) for row in rows)


def test_each_kind_of_look_and_each_host_has_a_row(fresh_url: str, cluster_id: str) -> None:
    hosts = ["here"] if fresh_url.startswith("sqlite") else ["here", "there"]
    for host in hosts:
        with open_journal(fresh_url, cluster_id, host=host) as journal:
            before_ms = journal.now_ms()
            journal.record_poll("failures")
            journal.record_poll("documents")
            rows = looks_of(journal).polls()
            after_ms = journal.now_ms()
    assert kinds_and_hosts(rows) == sorted((kind, host) for kind in ("documents", "failures") for host in hosts)
    newest = [row for row in rows if row["host"] == hosts[-1]]
    assert all(before_ms <= row["at_ms"] <= after_ms for row in newest)
    assert all(0 <= row["age_ms"] <= after_ms - before_ms for row in newest)
    with open_journal(fresh_url, f"{cluster_id}-b", host=hosts[0]) as another:
        assert looks_of(another).polls() == []


def test_the_newest_look_is_the_first_row(sqlite_url: str, cluster_id: str) -> None:
    with open_journal(sqlite_url, cluster_id) as journal:
        for kind in ("failures", "documents"):
            last_ms = journal.now_ms()
            while journal.now_ms() <= last_ms:
                pass
            journal.record_poll(kind)
        assert [row["kind"] for row in looks_of(journal).polls()] == ["documents", "failures"]
        assert [row["kind"] for row in looks_of(journal).polls()] == ["documents", "failures"]


def test_a_row_moves_on_though_not_with_every_look(sqlite_url: str, cluster_id: str) -> None:
    seconds = 100.0
    with open_journal(sqlite_url, cluster_id) as journal:
        looks = replace(looks_of(journal), clock=lambda: seconds)
        looks.record_polls("failures")
        (first,) = looks.polls()
        while journal.now_ms() <= first["at_ms"]:
            pass
        seconds += 9.9
        looks.record_polls("failures")
        assert [row["at_ms"] for row in looks.polls()] == [first["at_ms"]]
        seconds += 0.2
        looks.record_polls("failures")
        (later,) = looks.polls()
    assert later["at_ms"] > first["at_ms"]


# the state of a cluster in one word

Arrange = Callable[[Journal], None]


@pytest.fixture
def url_of_watched(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/journal.db"


@pytest.fixture
def watched(url_of_watched: str) -> Iterator[Journal]:
    with open_journal(url_of_watched, CLUSTER, host="h") as opened:
        yield opened


def state(url: str) -> ClusterState:
    with open_reader(url, host="h") as reader:
        found = cluster(reader, CLUSTER)
    assert found is not None
    return found.state


def check(journal: Journal, found: CheckState) -> None:
    """The watch has polled, and the check for failed brokers has this result."""
    watch_reports(journal).put_check(CheckReport(CONN_ID, FAILURES, state=found))
    journal.record_poll(FAILURES)


def put_failure(journal: Journal, kind: str) -> None:
    watch_reports(journal).put_failure(CONN_ID, kind, "No answer.", failures=1)


def measure(journal: Journal, **counts: float) -> None:
    """The last health check has these counts."""
    assert journal.health is not None
    with watch_reports(journal).database.write_transaction() as connection:
        connection.execute(sa.delete(tables.health))
    journal.health.add_measures(counts, every_ms=1, retention_ms=60_000)


def put_plan(journal: Journal, operation: str, status: PlanStatus) -> None:
    digest = (operation[0] if status is PlanStatus.RUNNING else "0").encode().hex().ljust(64, "0")
    move = Move("t", 0, (1, 2), (2, 3), 0, 0, "broker_draining", None, 100)
    published = journal.plans.publish(PlanRecord(digest, CLUSTER, operation), [move])
    journal.plans.update(published, status=status)


def disable(journal: Journal) -> None:
    watch_reports(journal).put_documents({"disabled": [{"since_ms": 1, "person": "ada", "reason": "night"}]})


def age(journal: Journal, ms: int) -> None:
    """All that the watch has reported is this much older."""
    with watch_reports(journal).database.write_transaction() as connection:
        connection.execute(sa.update(tables.watch_check).values(at_ms=tables.watch_check.c.at_ms - ms))
        polls = sa.update(tables.state).where(tables.state.c.noun == POLLS.name)
        connection.execute(polls.values(at_ms=tables.state.c.at_ms - ms))


#: What makes each state. Each leaves the conditions of the states below it as they are, but for the check's own.
MADE_BY: dict[ClusterState, Arrange] = {
    ClusterState.UNWATCHED: partial(age, ms=UNWATCHED_MS + 1),
    ClusterState.FAILING: lambda journal: watch_reports(journal).put_failure(
        CONN_ID, "documents", "No answer.", failures=1
    ),
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


def test_of_several_states_the_one_that_needs_a_person_most_is_shown(watched: Journal, url_of_watched: str) -> None:
    assert state(url_of_watched) is ClusterState.UNWATCHED
    for expected in reversed(ClusterState):
        MADE_BY[expected](watched)
        assert state(url_of_watched) is expected


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
    watched: Journal, url_of_watched: str, arrange: Arrange, expected: ClusterState
) -> None:
    check(watched, CheckState.FINE)
    arrange(watched)
    assert state(url_of_watched) is expected


def test_a_check_that_has_been_made_since_it_failed_is_not_failing(watched: Journal, url_of_watched: str) -> None:
    put_failure(watched, FAILURES)
    assert state(url_of_watched) is ClusterState.FAILING
    table = tables.watch_check
    with watch_reports(watched).database.write_transaction() as connection:
        connection.execute(sa.update(table).values(failing_ms=table.c.failing_ms - 1_000))
    watched.record_poll(FAILURES)
    assert state(url_of_watched) is ClusterState.HEALTHY
