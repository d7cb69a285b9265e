"""Progress, proofs, health checks and documents as the page shows them: what is stored, how often, and by whom."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import sqlalchemy as sa

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.health import BrokerLoad, Health
from kafka_steward.document_api.document_reports import DocumentReporter, document_values
from kafka_steward.errors import JournalError, JournalUnreachable, LockLost
from kafka_steward.execution.announcements import enable_reassignment
from kafka_steward.execution.moves.concurrency import Pressure
from kafka_steward.execution.moves.states import Held, HoldReason
from kafka_steward.execution.plans.progress_rows import (
    EVERY_S,
    ProgressRecorder,
    progress_report,
    proof_summary,
    report_publication,
    report_request,
)
from kafka_steward.execution.watch.observation import broker_reports
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Actor
from kafka_steward.journal.mailbox import read_one
from kafka_steward.journal.observed import ApprovalState, BrokerChange, BrokerReport, HeldGroup, PlanReport
from kafka_steward.journal.records import Approval, PlanStatus
from kafka_steward.journal.store import Journal, open_journal
from kafka_steward.page_data import plans as plan_data
from kafka_steward.page_data import reports
from kafka_steward.page_data.reader import JournalReader, open_reader
from tests.documents import delete_document
from tests.local_plan import plan_with
from tests.present import present
from tests.protocol.written_documents import CANCELLED, WAITING, write_documents
from tests.simulated_plan import move
from tests.triggers.progress_values import progress

CLUSTER, CONN_ID = "cluster-p", "kafka_p"
DIGEST = "d" * 64
ADA = Actor("rebalance", "manual", "approve", 1, "ada")
PROGRESS = progress(10, 28, digest=DIGEST, bytes_total=1900, bytes_per_s=10.9, eta_s=167.2)
PROOF: dict[str, Any] = {
    "operation": "drain",
    "replicas_moved": 3,
    "lower_bound": 2,
    "bytes_moved": 300,
    "leader_changes": 1,
    "predicted_seconds": 1.5,
    "options": {"throttle": 200},
    "rack_violations": {"before": 4, "after": 0},
    "spread": {
        "replicas": {"before": {"by_broker": {"10": 5, "9": 6}}, "after": {"by_broker": {"9": 0, "10": 11}}},
        "leaders": {"before": {"by_broker": {"9": 2}}},
    },
}


class LiveFence:
    """Of a process that holds the step lock."""

    def check(self) -> None:
        """Do nothing: it is held."""


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/journal.db"


@pytest.fixture
def journal(url: str) -> Iterator[Journal]:
    with open_journal(url, CLUSTER, host="h") as opened:
        yield opened


@pytest.fixture
def reader(journal: Journal, url: str) -> Iterator[JournalReader]:
    with open_reader(url, host="h") as opened:
        yield opened


def listed(reader: JournalReader) -> PlanReport:
    detail = present(plan_data.plan(reader, CLUSTER, DIGEST))
    return detail.plan


def plan(proof: dict[str, Any] | None = None) -> Any:
    return plan_with(DIGEST, PROOF if proof is None else proof, [move("t-0", "123", "423")])


def context(journal: Journal) -> Any:
    journal.conn_id = CONN_ID
    return SimpleNamespace(journal=journal, actor=ADA)


def held(*reasons: tuple[int, HoldReason]) -> tuple[Held, ...]:
    return tuple(Held.of(TopicPartition("t", number), reason, 4) for number, reason in reasons)


def test_held_moves_are_grouped_by_reason_the_most_frequent_first_each_with_its_first_partition() -> None:
    dead, disabled = HoldReason.TARGET_DEAD, HoldReason.SIZE_UNKNOWN
    several = held((7, disabled), (1, dead), (3, dead))
    report = progress_report(replace(PROGRESS, held=several), None)
    assert report.held_count == 3
    assert report.held == (HeldGroup(several[1].sentence, 2, "t-1"), HeldGroup(several[0].sentence, 1, "t-7"))


def test_of_many_stalled_partitions_all_are_counted_and_the_first_are_named() -> None:
    stalled = tuple(TopicPartition("t", number) for number in range(25))
    report = progress_report(replace(PROGRESS, stalled=stalled), None)
    assert (report.stalled_count, len(report.stalled), report.stalled[0]) == (25, 20, "t-0")


def test_rates_are_whole_numbers_and_what_is_unknown_stays_so() -> None:
    report = progress_report(replace(PROGRESS, pressure=next(iter(Pressure))), 50)
    assert (report.bytes_per_s, report.eta_s, report.throttle) == (10, 167, 50)
    assert report.pressure == next(iter(Pressure)).value
    unknown = progress_report(replace(PROGRESS, bytes_per_s=None, eta_s=None), 0)
    assert (unknown.bytes_per_s, unknown.eta_s, unknown.throttle, unknown.pressure) == (None, None, None, None)


def test_progress_is_written_each_ten_seconds_and_when_the_status_changes_and_not_by_a_busy_step(
    journal: Journal, reader: JournalReader
) -> None:
    now_s = [0.0]
    recorder = ProgressRecorder(journal, lambda: now_s[0])

    def settled(number: int, **changed: Any) -> int | None:
        found: Any = replace(PROGRESS, partitions_settled=number, **changed)
        fence: Any = LiveFence()
        recorder.record(found, fence, throttle=None)
        known = plan_data.progress(reader, CLUSTER, DIGEST)
        return None if known is None else known.partitions_settled

    assert settled(1, busy=True) is None
    assert settled(2) == 2
    now_s[0] = EVERY_S - 1
    assert settled(3) == 2
    assert settled(4, status=PlanStatus.STUCK) == 4
    # After the pause this process asks the journal, whose clock says that less time has passed.
    now_s[0] = 3 * EVERY_S
    assert settled(5, status=PlanStatus.STUCK) == 4


@pytest.mark.parametrize(
    "strange", [{"eta_s": float("inf")}, {"eta_s": 1e27}, {"bytes_total": 2**70}, {"bytes_per_s": float("nan")}]
)
def test_a_number_that_cannot_be_stored_ends_no_step(
    journal: Journal, reader: JournalReader, strange: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    now_s, fence = [0.0], cast("Any", LiveFence())
    recorder = ProgressRecorder(journal, lambda: now_s[0])
    recorder.record(replace(PROGRESS, **strange), fence, throttle=None)
    assert "could not be recorded" in caplog.text
    now_s[0] = EVERY_S
    recorder.record(PROGRESS, fence, throttle=None)
    known = present(plan_data.progress(reader, CLUSTER, DIGEST))
    assert known.bytes_total == PROGRESS.bytes_total


def test_a_process_that_has_lost_the_step_lock_writes_no_progress(journal: Journal, reader: JournalReader) -> None:
    class LostFence:
        def check(self) -> None:
            raise LockLost("Another process has acquired the step lock.")

    fence: Any = LostFence()
    ProgressRecorder(journal).record(PROGRESS, fence, throttle=None)
    assert plan_data.progress(reader, CLUSTER, DIGEST) is None


def test_a_proof_is_summed_up_with_its_brokers_in_the_order_of_their_ids() -> None:
    found = proof_summary(plan())
    assert (found.replicas_moved, found.lower_bound, found.bytes_moved, found.leader_changes) == (3, 2, 300, 1)
    assert (found.predicted_s, found.throttle) == (1.5, 200)
    assert (found.rack_violations_before, found.rack_violations_after) == (4, 0)
    assert found.brokers == (
        BrokerChange(9, replicas_before=6, replicas_after=0, leaders_before=2),
        BrokerChange(10, replicas_before=5, replicas_after=11),
    )


@pytest.mark.parametrize(
    "proof",
    [
        {},
        {"replicas_moved": "3", "lower_bound": True, "options": [], "rack_violations": 7, "spread": "wide"},
        {"spread": {"replicas": {"before": {"by_broker": {"<script>": 1, "-1": 2, "007": 3, "9" * 30: 4}}}}},
    ],
)
def test_what_a_foreign_proof_states_wrongly_is_unknown(proof: dict[str, Any]) -> None:
    found = proof_summary(plan(proof))
    assert (found.replicas_moved, found.lower_bound, found.throttle, found.brokers) == (None, None, None, ())


@pytest.mark.parametrize(("expires_in", "expires_ms"), [(None, None), (timedelta(minutes=2), 120_000)])
def test_a_request_for_approval_is_shown_with_its_proof_until_it_is_answered(
    journal: Journal, reader: JournalReader, expires_in: timedelta | None, expires_ms: int | None
) -> None:
    report_request(context(journal), plan(), expires_in=expires_in)
    shown = listed(reader)
    assert (shown.status, shown.operation, shown.partitions, shown.conn_id) == (None, "drain", 1, CONN_ID)
    assert shown.proof is not None
    assert (shown.proof.replicas_moved, len(shown.proof.brokers)) == (3, 2)
    approval = present(shown.approval)
    assert (approval.state, approval.asked_by) == (ApprovalState.ASKED, ADA)
    assert approval.expires_ms == (None if expires_ms is None else (approval.asked_ms or 0) + expires_ms)
    journal.plans.reject(DIGEST, person="bob", reason="not today")
    answered = present(listed(reader).approval)
    assert (answered.state, answered.person, answered.reason) == (ApprovalState.REJECTED, "bob", "not today")


def test_a_published_plan_keeps_its_approval_and_its_proof(journal: Journal, reader: JournalReader) -> None:
    report_request(context(journal), plan(), expires_in=None)
    journal.plans.approve(Approval(DIGEST, "bob"))
    report_publication(context(journal), plan({**PROOF, "lower_bound": 3}))
    shown = listed(reader)
    assert shown.approval is not None
    assert (shown.approval.state, shown.approval.person) == (ApprovalState.APPROVED, "bob")
    assert shown.proof is not None
    assert shown.proof.gap == 0


def test_each_broker_is_reported_with_all_that_the_health_check_knows_of_it() -> None:
    health = Health(
        partitions=9,
        live=(1, 2),
        gone=(3,),
        under_replicated=(),
        under_min_isr=(),
        offline=(),
        reassigning=(),
        max_lag=None,
        replica_imbalance=0,
        leader_imbalance=0,
        under_replicated_by_leader={1: 4},
        bytes_in={1: 10.9, 2: 0},
        bytes_out={2: 20.2},
        failed_log_dirs={1: ("/data/1", "/data/2")},
        cordoned=(2,),
        loads={
            1: BrokerLoad("a", 5, 2, replica_bytes=100, total_bytes=1_000, usable_bytes=400),
            2: BrokerLoad(None, 6, 3, replica_bytes=200, total_bytes=2_000, usable_bytes=700),
            3: BrokerLoad("b", 7),
        },
    )
    assert broker_reports(health) == (
        BrokerReport(
            1,
            rack="a",
            live=True,
            replicas=5,
            leaders=2,
            under_replicated=4,
            failed_log_dirs=("/data/1", "/data/2"),
            replica_bytes=100,
            disk_total=1_000,
            disk_usable=400,
            bytes_in=10,
        ),
        BrokerReport(
            2,
            live=True,
            cordoned=True,
            replicas=6,
            leaders=3,
            replica_bytes=200,
            disk_total=2_000,
            disk_usable=700,
            bytes_in=0,
            bytes_out=20,
        ),
        BrokerReport(3, rack="b", live=False, replicas=7),
    )


# Documents: every kind with its fields, written when they change, and never a failure


def shown(reader: JournalReader) -> dict[str, tuple[Any, ...]]:
    """The documents by kind, as the page reads them."""
    return {kind: each.documents for kind, each in reports.documents(reader, CLUSTER).by_kind.items()}


def test_every_kind_is_reported_with_its_fields(journal: Journal, reader: JournalReader) -> None:
    name = write_documents(journal)
    DocumentReporter(journal).report()
    found = shown(reader)
    assert {kind: len(several) for kind, several in found.items()} == dict.fromkeys(reports.KINDS, 1)
    (switch,), (signal,), (cancel,) = found["disabled"], found["signal"], found["cancels"]
    assert (switch["person"], switch["reason"]) == ("ada", "the racks are being rewired")
    assert (signal["plan"], signal["scope"], signal["person"]) == (CANCELLED, "pending", "ada")
    assert (cancel["plan"], cancel["status"], cancel["scope"]) == (CANCELLED, PlanStatus.RUNNING.value, "plan")
    (request,), (queue,), (chunk,) = found["requests"], found["queue"], found["chunks"]
    assert (request["name"], request["partitions"], request["error"]) == (name, 1, "")
    assert request["first"] == [{"topic": "r", "partition": 7, "replicas": [3, 1]}]
    assert (queue["partitions"], [each["partition"] for each in queue["first"]]) == (4, [0, 1, 2])
    assert chunk["first"][0]["topic"] == "c"
    (waiting,), (restart,) = found["waiting_plans"], found["restarts"]
    assert (waiting["plan"], waiting["operation"]) == (WAITING, "drain")
    assert (restart["broker"], restart["until_ms"] - restart["announced_ms"]) == (5, 60_000)
    assert found["pending_replicas"] == ({"topic": "p", "partition": 3, "brokers": [1, 2], "missing": 1},)
    assert found["deferred_partitions"] == ({"topic": "d", "count": 12, "asked_by": "ada"},)


def test_a_journal_without_documents_has_every_kind_and_none_of_it(journal: Journal) -> None:
    assert document_values(journal) == {kind: [] for kind in reports.KINDS}


def test_what_is_gone_is_no_longer_shown(journal: Journal, reader: JournalReader) -> None:
    reporter = DocumentReporter(journal)
    write_documents(journal)
    reporter.report()
    enable_reassignment(journal, who=ADA)
    (node,) = [each for each in [read_one(journal.mailbox, paths.rolling_bounce(5))] if each]
    delete_document(journal.mailbox, node.path)
    reporter.report()
    assert (shown(reader)["disabled"], shown(reader)["restarts"]) == ((), ())


def test_a_request_that_cannot_be_read_is_shown_with_its_error(journal: Journal, reader: JournalReader) -> None:
    journal.mailbox.append(paths.REQUEST_PREFIX, "no json")
    DocumentReporter(journal).report()
    (request,) = shown(reader)["requests"]
    assert (request["partitions"], request["first"]) == (0, [])
    assert request["error"]


def test_an_unchanged_poll_writes_nothing(journal: Journal) -> None:
    reporter = DocumentReporter(journal)
    write_documents(journal)
    reporter.report()
    assert journal.watch_reports is not None
    statements: list[str] = []
    engine = journal.watch_reports.database.engine
    sa.event.listen(engine, "before_cursor_execute", lambda *sent: statements.append(sent[2]))
    reporter.report()
    assert [each for each in statements if each.startswith(("INSERT", "UPDATE", "DELETE"))] == []


def test_a_document_that_cannot_be_recorded_never_stops_the_watch(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(error: Exception) -> Any:
        def read(_journal: Journal) -> Any:
            raise error

        return read

    module = "kafka_steward.document_api.document_reports.read_document_status"
    monkeypatch.setattr(module, fail(JournalError("The tree is\x1b[31m broken.")))
    DocumentReporter(journal).report()
    assert "could not be recorded for the page" in caplog.text
    assert "\x1b" not in caplog.text
    # A journal that does not answer is what the watch itself reports, and waits for.
    monkeypatch.setattr(module, fail(JournalUnreachable("It does not answer.")))
    with pytest.raises(JournalUnreachable):
        DocumentReporter(journal).report()
