"""What people are notified of at the end of a plan, and that they are notified once."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException, DownstreamTasksSkipped

from kafka_steward.assignment import Move, MoveReason, TopicPartition
from kafka_steward.cluster.state import Broker, Partition, Snapshot
from kafka_steward.execution.plans.lifecycle import abandon_plan, request_cancel
from kafka_steward.execution.plans.progress_rows import report_publication
from kafka_steward.execution.plans.runner import PlanRunner
from kafka_steward.execution.plans.snapshot import take_snapshot
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.hooks.steward import StewardHook
from kafka_steward.journal.kip_documents import CancelRequest
from kafka_steward.journal.records import MoveRow, MoveState, PlanRecord, PlanStatus
from kafka_steward.journal.sql.database import open_database
from kafka_steward.journal.sql.plan_reports import PlanReports
from kafka_steward.journal.sql.plans import PlanTable
from kafka_steward.journal.state import Rows
from kafka_steward.operators.report import ReportPlanOperator
from kafka_steward.operators.review import ReviewPlanOperator
from kafka_steward.planning.files.formats import PlanFolder, read_snapshot
from kafka_steward.settings import Settings
from tests.airflow_home import context
from tests.local_plan import planned
from tests.memory_mailbox import MemoryMailbox
from tests.memory_state import MemoryState
from tests.operators.simulated import CONN_ID, Cluster, MakeCluster
from tests.present import present
from tests.simulated_plan import WHO, heal_moves, move, plan_of

PLAN = {"uri": "/plan", "digest": "3f2a91c0" * 8, "replicas_moved": 6, "lower_bound": 6, "partitions": 5, "unplaced": 0}


class People:
    """Remembers what they were notified of."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.sentences: list[str] = []

    def __call__(self, notification: Any) -> None:
        self.events.append(notification["kafka_steward"]["event"])
        self.sentences.append(notification["kafka_steward"]["sentence"])


def reviewing(plan: dict[str, Any], **more: Any) -> ReviewPlanOperator:
    return ReviewPlanOperator(task_id="review", plan=plan, dag=DAG("heal", schedule=None), **more)


def notified(mode: str, unplaced: int) -> People:
    people = People()
    plan = {**PLAN, "unplaced": unplaced}
    operator = reviewing(plan, mode=mode, on_not_healable=people)
    try:
        operator.execute(context())
    except DownstreamTasksSkipped:
        assert mode == "report"
    else:
        assert mode == "heal"
    return people


def test_a_report_names_what_cannot_be_healed_and_a_heal_leaves_it_to_its_end() -> None:
    assert notified("heal", unplaced=2).events == []
    assert notified("report", unplaced=0).events == []
    people = notified("report", unplaced=2)
    assert people.events == ["not_healable"]
    assert "moves 6 replicas of 5 partitions; no plan can move fewer than 6." in people.sentences[0]
    assert people.sentences[0].endswith(
        "2 partitions cannot be placed; review.md says why, and what to do. It is at /plan."
    )


def test_a_heal_goes_on_with_an_empty_plan() -> None:
    empty = {**PLAN, "replicas_moved": 0, "lower_bound": 0, "partitions": 0}
    facts = reviewing(empty, mode="heal").execute(context())
    assert (facts["stop"], facts["sentence"].endswith(" has nothing to move.")) == ("", True)
    with pytest.raises(DownstreamTasksSkipped):
        reviewing(empty).execute(context())


@pytest.mark.parametrize(
    ("isr", "status", "event", "sentence"),
    [
        (
            {1, 2},
            PlanStatus.COMPLETED,
            "healed",
            "Healed broker 3: 1 replica of 1 partition moved. Every partition of the cluster is fully replicated.",
        ),
        (
            {1},
            PlanStatus.COMPLETED,
            "not_healable",
            (
                "Healed broker 3: 1 replica of 1 partition moved. 1 partition is still under-replicated. Dead "
                "brokers: 2."
            ),
        ),
        (
            {1, 2},
            PlanStatus.CANCELLED,
            "not_healable",
            (
                "Not all of broker 3 was healed. Plan 3f2a was cancelled by ann (not now); 1 of 1 move had completed, "
                "and stays. No partition of the cluster is under-replicated. Dead brokers: none."
            ),
        ),
    ],
    ids=["healed", "others are behind", "cancelled"],
)
def test_the_report_at_the_end(
    monkeypatch: pytest.MonkeyPatch, isr: set[int], status: PlanStatus, event: str, sentence: str
) -> None:
    record = PlanRecord("3f2a", "c", "heal", status=status, cancel=CancelRequest(person="ann", reason="not now"))
    rows = [MoveRow(Move("orders", 0, (1, 3), (1, 2), 0, 0, MoveReason.BROKER_FAILED), MoveState.COMPLETED)]
    people = People()
    facts = heal_reported(monkeypatch, people, snapshot_of(1, isr), record, rows=rows)
    assert facts["sentence"] == sentence
    assert (facts["partitions"], facts["replicas_moved"], facts["lower_bound"]) == (1, 1, 6)
    assert people.events == [event]


def test_a_heal_whose_replacement_leads_nothing_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    record = PlanRecord("3f2a", "c", "heal", status=PlanStatus.COMPLETED)
    rows = [MoveRow(Move("orders", 0, (1, 3), (1, 2), 0, 0, MoveReason.BROKER_FAILED), MoveState.COMPLETED)]
    facts = heal_reported(monkeypatch, People(), snapshot_of(4, {1, 2}), record, rows=rows)
    assert "fully replicated. Leaders are uneven: broker 2 leads 0 of its share of 2, because" in facts["sentence"]


BACK = {"status": PlanStatus.CANCELLED, "rolled_back_by": "77ab"}


@pytest.mark.parametrize(
    ("reverted", "sentence"),
    [
        (
            {**BACK, "status": PlanStatus.ROLLED_BACK, "reason": "rolled back by plan 77ab", "not_rolled_back": 0},
            ", and rolled back by plan 77ab: what it had begun to move has its original replicas.",
        ),
        (
            {**BACK, "reason": "reverted in part by plan 77ab", "not_rolled_back": 1},
            ", and reverted in part by plan 77ab.",
        ),
        (
            {"status": PlanStatus.CANCELLED},
            "; 1 of 1 move had completed, and is still to be reverted. 1 partition was moved.",
        ),
    ],
    ids=["rolled back", "reverted in part", "not reverted yet"],
)
def test_what_a_rollback_reverted_is_not_reported_as_moved(
    monkeypatch: pytest.MonkeyPatch, reverted: dict[str, Any], sentence: str
) -> None:
    cancel = CancelRequest(scope="plan", person="ann", reason="not now")
    record = PlanRecord("3f2a", "c", "rebalance", cancel=cancel, **reverted)
    rows = [MoveRow(Move("orders", 0, (1, 3), (1, 2), 0, 0, MoveReason.BALANCE), MoveState.COMPLETED)]
    journal_of(monkeypatch, snapshot_of(1, {1, 2}), record, rows)
    people = People()
    report = ReportPlanOperator(
        task_id="report", plan=PLAN, submitted={"digest": "3f2a", "status": record.status.value}, on_done=people
    )
    facts = report.execute(context())
    assert facts["sentence"] == f"Plan 3f2a was cancelled by ann (not now){sentence}"
    moved = None if record.rolled_back_by else 1
    assert (facts["partitions"], facts["replicas_moved"]) == (moved, moved)
    assert (people.events, people.sentences) == (["done"], [facts["sentence"]])


def snapshot_of(partitions: int, isr: set[int]) -> Snapshot:
    brokers = {number: Broker(number, "h", 1, fenced=number not in isr) for number in (1, 2)}
    found = [Partition("orders", number, (1, 2), frozenset(isr), 1) for number in range(partitions)]
    return Snapshot("c", 1, brokers, {each.topic_partition: each for each in found})


def heal_reported(
    monkeypatch: pytest.MonkeyPatch,
    people: People,
    snapshot: Snapshot,
    record: PlanRecord,
    *,
    rows: Sequence[MoveRow] = (),
) -> dict[str, Any]:
    journal_of(monkeypatch, snapshot, record, rows)
    report = ReportPlanOperator(
        task_id="report", verify="heal", brokers=[3], plan=PLAN, submitted={"partitions": 5, "left": 0},
        on_done=people, on_not_healable=people,
    )  # fmt: skip
    return report.execute(context())


def journal_of(
    monkeypatch: pytest.MonkeyPatch, snapshot: Snapshot, record: PlanRecord, rows: Sequence[MoveRow]
) -> None:
    """Let the hook open a journal with one plan, and a cluster in the state of `snapshot`."""
    opened = SimpleNamespace(
        cluster=SimpleNamespace(snapshot=lambda: snapshot),
        settings=Settings(),
        journal=SimpleNamespace(
            mailbox=MemoryMailbox(lambda: 1),
            rows=partial(Rows, MemoryState(lambda: 1)),
            now_ms=lambda: 1,
            slot=SimpleNamespace(holders=lambda: ()),
            audit=SimpleNamespace(rows=lambda **_: []),
            plan_reports=None,
            plans=SimpleNamespace(
                get=lambda digest: None if digest == record.rolled_back_by else record,
                rows=lambda *_: rows,
                latest=lambda _: [],
            ),
        ),
    )
    monkeypatch.setattr(StewardHook, "open", lambda _: nullcontext(opened))


class Ran:
    """A plan on a simulated cluster, and its report; what is planned is never what is counted."""

    def __init__(self, cluster: Cluster, moves: Sequence[Move], operation: str = "heal", *, left: int = 0) -> None:
        self.cluster, self.people, self.operation, self.digest = cluster, People(), operation, "3f2a91c0" * 8
        self.settings = Settings(throttle=0, max_attempts=2)
        auto = operation == "heal"
        record = PlanRecord(self.digest, cluster.cluster_id, operation, auto_generated=auto, left=left)
        cluster.journal.plans.publish(record, moves)
        self.runner = PlanRunner(ClusterContext(cluster, cluster.journal, self.settings, WHO), self.digest)

    def run(self) -> Ran:
        for _ in range(60):
            progress = self.runner.step()
            if progress.ended:
                self.submitted = {"digest": self.digest, "status": progress.status.value, "left": progress.left}
                return self
            self.cluster.tick()
        raise AssertionError(progress)

    def report(self, **more: Any) -> dict[str, Any]:
        made = {**PLAN, "digest": self.digest, **more}
        verify = self.operation if self.operation in {"heal", "fill"} else "outcome"
        brokers = [1] if verify == "heal" else ()
        report = ReportPlanOperator(
            task_id="report",
            conn_id=CONN_ID,
            verify=verify,
            plan=made,
            submitted={**self.submitted, "partitions": 5},
            brokers=brokers,
            on_done=self.people,
            on_not_healable=self.people,
        )
        self.context = context(task_id="report")
        return report.execute(self.context)

    def fail(self, **more: Any) -> dict[str, Any]:
        """Return the facts of a report that fails for good, with the sentence that people get."""
        with pytest.raises(AirflowFailException) as failed:
            self.report(**more)
        facts: dict[str, Any] = self.context["ti"].xcoms["return_value"]
        assert self.people.sentences == [str(failed.value)] == [facts["sentence"]]
        return facts


def test_a_heal_of_which_nothing_moved_fails_and_people_are_notified_once(make_cluster: MakeCluster) -> None:
    cluster = make_cluster("1a 2b 3c 4a", "t: 123 231")
    moves = heal_moves(cluster, 1, 4)
    cluster.lose(1, 4)
    ran = Ran(cluster, moves).run()
    facts = ran.fail()
    assert facts["sentence"] == (
        "Not all of broker 1 was healed: of 2 partitions due, 0 were repaired and 2 were not moved: t-0, deferred to "
        "the next plan after 2 attempts: t-0 was not moved: target broker 4 is not live; and 1 more. 2 partitions are "
        "still under-replicated. Dead brokers: 1."
    )
    assert (facts["status"], facts["partitions"], facts["replicas_moved"], facts["left"]) == ("failed", 0, 0, 2)
    assert ran.people.events == ["not_healable"]


def test_a_heal_that_leaves_some_of_its_own_fails(make_cluster: MakeCluster) -> None:
    cluster = make_cluster("1a 2b 3c 4a 5a", "t: 123 231")
    cluster.lose(1, 5)
    moves = [move("t-0", "123", "423"), move("t-1", "231", "235", position=1)]
    ran = Ran(cluster, moves, left=3).run()
    facts = ran.fail(unplaced=3)
    assert facts["sentence"].startswith(
        "Not all of broker 1 was healed: of 5 partitions due, 1 was repaired, 3 were left by the plan and 1 was not "
        "moved: t-1, deferred"
    )
    assert (
        "is not live. 3 partitions could not be placed; review.md at /plan says why, and what to do. 1 partition"
        in (facts["sentence"])
    )
    assert facts["sentence"].endswith("1 partition is still under-replicated. Dead brokers: 1.")
    assert (facts["status"], facts["partitions"], facts["replicas_moved"]) == ("completed", 1, 1)


def test_a_heal_that_found_no_place_for_anything_fails_unless_that_is_off(make_cluster: MakeCluster) -> None:
    cluster = make_cluster("1a 2b 3c", "t: 123", fail_incomplete_heal=False)
    cluster.lose(1)
    ran = Ran(cluster, [], left=1).run()
    assert ran.report(unplaced=1)["sentence"].startswith("Not all of broker 1 was healed")
    assert ran.people.events == ["not_healable"]
    cluster = make_cluster("1a 2b 3c", "t: 123")
    cluster.lose(1)
    assert Ran(cluster, [], left=1).run().fail(unplaced=1)["sentence"] == (
        "Not all of broker 1 was healed: of 1 partition due, 0 were repaired and 1 was left by the plan. 1 partition "
        "could not be placed; review.md at /plan says why, and what to do. 1 partition is still under-replicated. Dead "
        "brokers: 1."
    )


def reported(cluster: Cluster, folder: Path, plan: PlanFolder, operation: str = "heal", *, left: int = 0) -> Ran:
    """A published plan, with its proof in the journal."""
    database = open_database(f"sqlite:///{folder}/journal.db", cluster.cluster_id, "here")
    cluster.journal.plan_reports = PlanReports(database)
    ran = Ran(cluster, plan.moves, operation, left=left)
    PlanTable(database).insert(present(cluster.journal.plans.get(ran.digest)))
    it: Any = SimpleNamespace(journal=cluster.journal)
    report_publication(it, replace(plan, digest=ran.digest))
    return ran


def test_a_rebalance_names_what_still_breaks_the_rack_rule_and_why(make_cluster: MakeCluster, tmp_path: Path) -> None:
    cluster = make_cluster("1a 2b 3c 4a", "t: 14 14", "u: 14", "canary: 14")
    take_snapshot(cluster, str(tmp_path), failed=(), now_ms=1, service_topics=["canary"])
    options = {"balance": "racks", "max_moves": 2, "exclude": ["u"], "service_topics": ["canary"]}
    ran = reported(cluster, tmp_path, planned(read_snapshot(str(tmp_path)), "rebalance", options), "rebalance")
    assert ran.run().report()["sentence"] == (
        f"Plan {ran.digest[:12]}, completed: 2 partitions were moved. Not spread over the racks as well as can be, and "
        "left: u-0 (its topic is left out by include, exclude or internal_topics); not counted, because no rebalance "
        "moves such: canary-0 (service topic, which a rebalance moves with internal_topics or by its full name)."
    )


def test_what_a_plan_left_is_named_with_its_reason_and_the_numbers_add_up(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    """Four have no live replica, one is wider than the cluster, somebody moves one; u-0 is behind by itself."""
    cluster = make_cluster("1a 2b 3c 4a", "t: 123", "lost: 1 1 1 1", "wide: 1234", "foreign: 12", "u: 23")
    cluster.lose(1)
    left = [{"topic": "lost", "partition": number, "reason": "all_replicas_lost"} for number in range(4)]
    left += [{"topic": "wide", "partition": 0, "reason": "too_few_brokers"}]
    moving = {"topic": "foreign", "partition": 0, "reason": "in_flight"}
    plan = plan_of(cluster, [move("t-0", "123", "423")], failed=(1,), unplaced=left, pinned=[moving])
    ran = reported(cluster, tmp_path, plan, left=6)
    ran.run()
    cluster.topics[TopicPartition("u", 0)].isr.discard(3)
    sentence = ran.fail(unplaced=5)["sentence"]
    assert sentence == (
        "Not all of broker 1 was healed: of 7 partitions due, 1 was repaired and 6 were left by the plan. Its plan "
        "left 6 partitions: lost-0, lost-1, lost-2 and 1 more (no replica of it is live, and moving it would lose its "
        "data); wide-0 (too few brokers may hold its replicas); foreign-0 (a reassignment of it is in flight). "
        f"`airflow kafka-steward show 3f2a91c03f2a --cluster {CONN_ID}` lists them with what to do. 7 partitions are "
        "still under-replicated or without a leader: 6 of those due, and 1 other (u-0). Dead brokers: 1."
    )


def test_what_a_rebalance_had_no_need_to_change_is_named_and_not_counted_as_undone(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    cluster = make_cluster("1a 2b 3c 4a", "t: 123", "lost: 1 1")
    cluster.lose(1)
    left = [{"topic": "lost", "partition": number, "reason": "all_replicas_lost"} for number in range(2)]
    plan = plan_of(cluster, [move("t-0", "123", "423")], operation="rebalance", unplaced=left)
    database = open_database(f"sqlite:///{tmp_path}/journal.db", cluster.cluster_id, "here")
    cluster.journal.plan_reports = PlanReports(database)
    ran = Ran(cluster, plan.moves, "rebalance")
    PlanTable(database).insert(present(cluster.journal.plans.get(ran.digest)))
    context: Any = SimpleNamespace(journal=cluster.journal)
    report_publication(context, replace(plan, digest=ran.digest))
    assert ran.run().report(unplaced=0)["sentence"] == (
        "Plan 3f2a91c03f2a, completed: 1 partition was moved. Its plan left 2 partitions, which it had no need to "
        "change: lost-0, lost-1 (no replica of it is live, and moving it would lose its data). "
        f"`airflow kafka-steward show 3f2a91c03f2a --cluster {CONN_ID}` lists them with what to do."
    )
    assert "2 partitions, 1 of which it had no need" in ran.report(unplaced=1)["sentence"]


def test_a_heal_whose_own_work_is_done_does_not_fail_for_others(make_cluster: MakeCluster) -> None:
    cluster = make_cluster("1a 2b 3c 4a", "t: 123", "other: 23")
    cluster.lose(1)
    ran = Ran(cluster, [move("t-0", "123", "423")]).run()
    cluster.topics[TopicPartition("other", 0)].isr.discard(3)
    assert ran.report()["sentence"] == (
        "Healed broker 1: 1 replica of 1 partition moved. 1 partition is still under-replicated. Dead brokers: none."
    )
    assert ran.people.events == ["not_healable"]


def test_a_broker_that_came_back_needed_no_heal(make_cluster: MakeCluster) -> None:
    cluster = make_cluster("1a 2b 3c 4a", "t: 123")
    ran = Ran(cluster, [move("t-0", "123", "423")]).run()
    assert ran.report()["sentence"] == (
        "Healed broker 1: 1 partition no longer needed to move. Broker 1 is live again. Every partition of the cluster "
        "is fully replicated."
    )
    assert ran.people.events == ["healed"]


def test_a_broker_that_was_healed_for_its_disk_is_not_live_again(make_cluster: MakeCluster) -> None:
    ran = Ran(make_cluster("1a 2b 3c 4a", "t: 123"), [move("t-0", "123", "423")]).run()
    assert "live again" not in ran.report(log_dirs_failed=[1])["sentence"]  # also once the disk was replaced


def test_a_cancelled_heal_of_a_broker_that_came_back_left_nothing_undone(make_cluster: MakeCluster) -> None:
    cluster = make_cluster("1a 2b 3c 4a", "t: 123 231")
    moves = heal_moves(cluster, 1, 4)
    cluster.lose(1)
    ran = Ran(cluster, moves)
    request_cancel(cluster.journal, ran.digest, who=WHO, reason="it is back")
    ran = ran.run()
    cluster.restart(1)
    cluster.tick()
    assert ran.report()["sentence"].startswith(
        f"Broker 1 is live again. Plan {ran.digest[:12]} was cancelled by ada (it is back); none of its 2 moves"
    )


@pytest.mark.parametrize("how", ["cancelled", "abandoned"])
def test_a_heal_that_a_person_ended_does_not_fail(make_cluster: MakeCluster, how: str) -> None:
    cluster = make_cluster("1a 2b 3c 4a", "t: 123 231")
    moves = heal_moves(cluster, 1, 4)
    cluster.lose(1)
    ran = Ran(cluster, moves)
    if how == "cancelled":
        request_cancel(cluster.journal, ran.digest, who=WHO, reason="not now")
    else:
        abandon_plan(cluster.journal, ran.digest, WHO, "it will be back")
    facts = ran.run().report()
    assert facts["sentence"].startswith(
        f"Not all of broker 1 was healed. Plan {ran.digest[:12]} was cancelled by ada (not now); none of its 2 moves "
        if how == "cancelled"
        else "Not all of broker 1 was healed: of 2 partitions due, 0 were repaired and 2 were not moved: t-0, waiting; "
        f"and 1 more. Plan {ran.digest[:12]} was abandoned: it will be back. 2 partitions are still under-replicated"
    )
    assert (facts["status"], ran.people.events) == (how, ["not_healable"])


def test_what_a_plan_moved_is_not_invented_once_it_is_gone(make_cluster: MakeCluster) -> None:
    cluster = make_cluster("1a 2b 3c 4a", "t: 123")
    cluster.lose(1)
    ran = Ran(cluster, [move("t-0", "123", "423")]).run()
    cluster.tick()
    cluster.journal.plans.purge(cluster.now_ms)
    facts = ran.report()
    assert facts["sentence"].startswith("Healed broker 1. The journal no longer has the moves of the plan, so what it")
    assert (facts["partitions"], facts["replicas_moved"], facts["lower_bound"]) == (None, None, 6)


def test_a_fill_that_added_nothing_fails_and_is_not_notified_as_filled(make_cluster: MakeCluster) -> None:
    cluster = make_cluster("1a 2b 3c 4a", "t: 12")
    ran = Ran(cluster, [move("t-0", "12", "124")], "fill")
    cluster.delete("t")
    facts = ran.run().fail()
    assert facts["sentence"].startswith(
        "Not all was filled: of 1 partition due, 0 were filled and 1 was not moved: t-0"
    )
    assert (facts["status"], facts["replicas_moved"], ran.people.events) == ("failed", 0, ["done"])


def test_a_plan_that_failed_fails_its_report(make_cluster: MakeCluster) -> None:
    cluster = make_cluster("1a 2b 3c 4a", "t: 123", "doomed: 123")
    moves = [move("doomed-0", "123", "423"), move("t-0", "123", "423", position=1)]
    ran = Ran(cluster, moves[:1], "apply")
    cluster.delete("doomed")
    facts = ran.run().fail()
    assert facts["sentence"].startswith(f"Plan {ran.digest[:12]}, failed: 0 partitions were moved. 1 partition was not")
    assert (facts["partitions"], facts["replicas_moved"], ran.people.events) == (0, 0, ["done"])
