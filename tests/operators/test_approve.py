"""What a person is asked and shown, who may answer, and that the answer is for what they saw."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import get_ident
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.standard.operators import hitl
from airflow.sdk.api.datamodels._generated import HITLUser
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from airflow.sdk.execution_time import task_runner

from kafka_steward.airflow_versions import TaskAwaitingInput
from kafka_steward.errors import ClusterUnreachable, JournalUnreachable, PlanError, SettingError
from kafka_steward.execution.plans import summary
from kafka_steward.execution.plans.summary import plan_summary
from kafka_steward.hooks.steward import StewardHook
from kafka_steward.operators import approve as approve_module
from kafka_steward.operators.approve import parse_approvers, request_input, validate_approve_above
from kafka_steward.operators.plan import PlanReassignmentOperator
from kafka_steward.operators.plan_folders import (
    PAGE,
    read_plan_page,
    read_task_plan,
    read_task_snapshot,
    write_plan_page,
)
from kafka_steward.operators.rebalance import PlanRebalanceOperator
from kafka_steward.operators.review import ReviewPlanOperator
from kafka_steward.planning.files.formats import PLAN, conform_to_schema, digest_with_proof, read_plan
from kafka_steward.planning.files.storage import Folder
from kafka_steward.planning.spark import job
from kafka_steward.settings import Settings
from tests.airflow_home import context
from tests.operators.test_workflow import Desk, asking, desk, responded, run_of, submit
from tests.simulated_plan import RATE

__all__ = ["desk"]

#: What the page says that is made where nobody asks the cluster.
UNKNOWN = " (without the rates that others have set)"


class Page:
    """The request that Airflow keeps for a task: the first one stays, whatever a later try asks."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}
        self.asked = 0

    def put(self, operator: Any, _: Any) -> Any:
        self.kept = self.kept or {"page": (operator.subject, operator.body, operator.assigned_users or [])}
        return self.kept["page"]

    @property
    def body(self) -> str:
        return str(self.kept["page"][1])

    @property
    def users(self) -> list[str]:
        return [user["id"] for user in self.kept["page"][2]]


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Page:
    page = Page()
    monkeypatch.setattr(approve_module, "request_input", page.put)

    def upsert(**_: Any) -> None:
        page.asked += 1

    monkeypatch.setattr(hitl, "upsert_hitl_detail", upsert)
    return page


def drained(desk: Desk) -> tuple[dict[str, Any], dict[str, str]]:
    snapshot = desk.snapshot(4)
    return desk.plan(snapshot, operation="drain", brokers=[4]), snapshot


def run(run_type: str = "manual", person: str | None = None, **more: Any) -> Any:
    found = run_of(run_type, person)
    found["task_instance"] = SimpleNamespace(id="id")
    for name, value in more.items():
        setattr(found["dag_run"], name, value)
    return found


def asked(operator: Any, where: Any = None) -> str:
    """The digest that the answer will be for, once a person is asked."""
    with pytest.raises(TaskAwaitingInput) as parked:
        operator.execute(where or run())
    return str((parked.value.kwargs or {})["digest"])


# what is asked


def test_a_person_is_shown_the_plan_and_the_answer_is_for_its_digest(desk: Desk, page: Page) -> None:
    made, snapshot = drained(desk)
    ask = asking(made, snapshot, approve_above=10**12)
    assert asked(ask) == made["digest"]
    assert (ask.defaults, ask.options, page.asked) == (["Reject"], ["Approve", "Reject"], 1)
    assert made["digest"] in page.body
    assert "predicted duration" in page.body
    assert re.fullmatch(r"kafka_test: drain broker 4: move \d+ replicas, [\d.]+ [kM]?B\?", ask.subject)
    assert page.body.startswith("Cluster: connection **kafka\\_test**. Requested by a user without a name.\n\nPlan **")


@pytest.mark.parametrize("address", ["https://airflow.example", None])
def test_the_approvers_are_notified_of_the_plan_with_the_link_to_its_page(
    desk: Desk, page: Page, monkeypatch: pytest.MonkeyPatch, address: str | None
) -> None:
    if address is not None:
        monkeypatch.setenv("AIRFLOW__API__BASE_URL", address)
    made, snapshot = drained(desk)
    where, told = run(person="ann"), list[Any]()
    where["ti"].map_index = -1
    ask = asking(made, snapshot, notifiers=told.append)
    asked(ask, where)
    (facts,) = [each["kafka_steward"] for each in told]
    link = facts.pop("link", None)
    assert facts == {
        "event": "approval_asked",
        "sentence": ask.subject,
        "digest": made["digest"],
        "replicas_moved": made["replicas_moved"],
        "asked_by": "ann",
    }
    wanted = f"{address}/dags/heal/runs/{where['ti'].run_id}/tasks/task/required_actions"
    assert link == (None if address is None else f"{wanted}?map_index=-1")


def test_a_run_that_somebody_started_or_gave_parameters_asks_a_person(desk: Desk, page: Page) -> None:
    made, snapshot = drained(desk)
    runs: list[tuple[str, dict[str, Any]]] = [
        ("manual", {}),
        ("backfill", {}),
        ("backfill", {"conf": {"approve_above": 10**18}}),
        ("operator_triggered", {}),
        ("asset_materialization", {}),
        ("scheduled", {"conf": {"operation": "drain"}}),
        ("scheduled", {"triggering_user_name": "ann"}),
    ]
    for run_type, more in runs:
        page.kept.clear()
        assert asked(asking(made, snapshot, approve_above=10**12), run(run_type, **more)) == made["digest"]


@pytest.mark.parametrize("run_type", ["scheduled", "asset_triggered"])
def test_a_run_that_nobody_started_goes_on_when_its_moves_are_small(desk: Desk, page: Page, run_type: str) -> None:
    made, snapshot = drained(desk)
    copied = made["bytes_moved"]
    assert asked(asking(made, snapshot, approve_above=copied - 1), run(run_type)) == made["digest"]
    assert asking(made, snapshot, approve_above=copied).execute(run(run_type))["asked"] is False
    assert page.asked == 1


def test_a_plan_that_is_approved_already_is_not_asked_for_again(desk: Desk, page: Page) -> None:
    made, snapshot = drained(desk)
    asking(made, snapshot).execute_complete(run(), responded("Approve"), digest=made["digest"])
    answer = asking(made, snapshot).execute(run())
    assert (answer["approved"], answer["asked"], answer["person"], page.asked) == (True, True, "ann", 0)


# what was edited, and what is not valid


def edited(made: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The plan's folder with another proof, whose digest is made to fit. Returns the proof."""
    path, rows = Path(made["uri"]) / "proof.json", Path(made["uri"]) / "plan.parquet"
    proof = {**json.loads(path.read_text()), **changes}
    proof["digest"] = digest_with_proof(proof, conform_to_schema(pq.read_table(rows), PLAN, "rows"))
    path.write_text(json.dumps(proof))
    return proof


def test_a_proof_that_was_edited_is_refused_before_anybody_is_asked(desk: Desk, page: Page) -> None:
    made, snapshot = drained(desk)
    path = Path(made["uri"]) / "proof.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "bytes_moved": 0, "replicas_moved": 0}))
    for run_type in ("manual", "scheduled"):
        with pytest.raises(AirflowFailException, match="was edited after it was made: its digest differs"):
            asking(made, snapshot, approve_above=10**12).execute(run(run_type))
    with pytest.raises(PlanError, match="was edited after it was made"):
        read_plan(made["uri"])
    assert (page.asked, desk.journal.plans.approval(made["digest"])) == (0, None)


def test_another_plan_than_the_task_made_is_refused(desk: Desk, page: Page) -> None:
    made, snapshot = drained(desk)
    edited(made, spread={})
    with pytest.raises(AirflowFailException, match="is not the one that was made: its digest differs"):
        asking(made, snapshot).execute(run())
    assert page.asked == 0


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"bytes_moved": 0}, "The proof says bytes_moved = 0; the rows say"),
        ({"replicas_moved": 0}, "The proof says replicas_moved = 0; the rows say"),
        ({"leader_changes": 99}, "The proof says leader_changes = 99; the rows say"),
        ({"brokers_failed": [2]}, r"The proof says brokers_failed = \[2\]; the snapshot says \[\]"),
        ({"brokers_draining": []}, r"The proof says brokers_draining = \[\]; the snapshot says \[4\]"),
        ({"snapshot_digest": "0" * 64}, "The plan was made from another snapshot"),
    ],
)
def test_a_plan_that_says_of_itself_what_its_moves_do_not_is_neither_shown_nor_submitted(
    desk: Desk, page: Page, changes: dict[str, Any], problem: str
) -> None:
    made, snapshot = drained(desk)
    proof = edited(made, **changes)
    forged = {**made, "digest": proof["digest"]}
    with pytest.raises(AirflowFailException, match=f"does not match its snapshot: {problem}"):
        asking(forged, snapshot).execute(run())
    # Even with an approval of that very digest.
    asking(forged, snapshot).execute_complete(run(), responded("Approve"), digest=proof["digest"])
    with pytest.raises(AirflowFailException, match=f"does not match its snapshot: {problem}"):
        submit(desk, forged, snapshot)
    assert (page.asked, desk.journal.plans.latest(1)) == (0, [])


def test_a_task_that_was_cleared_asks_for_the_same_plan_again_and_for_no_other(desk: Desk, page: Page) -> None:
    made, snapshot = drained(desk)
    asked(asking(made, snapshot))
    assert asked(asking(made, snapshot)) == made["digest"]
    with pytest.raises(AirflowFailException, match="Airflow still shows the request from before approve was cleared"):
        asking(made, snapshot, approvers=["bob"]).execute(run())
    desk.simulator.tick()
    anew, again = drained(desk)
    assert anew["digest"] != made["digest"]
    with pytest.raises(AirflowFailException, match="would accept an answer to it; trigger a new run"):
        asking(anew, again).execute(run())
    assert page.asked == 2


def test_the_duration_is_predicted_with_the_rates_of_others_which_may_change_while_a_person_is_asked(
    desk: Desk, page: Page
) -> None:
    desk.settings = Settings(throttle=50_000_000)
    for broker in (1, 2, 3):
        desk.simulator.broker_settings[broker] = {RATE: "1000000"}
    made, snapshot = drained(desk)
    asked(asking(made, snapshot))
    assert ", with 1.0 MB/s into broker " in page.body
    for broker in (1, 2, 3):
        desk.simulator.broker_settings[broker] = {}
    assert asked(asking(made, snapshot)) == made["digest"]
    page.kept = {}
    asked(asking(made, snapshot))
    assert " at 50.0 MB/s into each broker " in page.body


def test_the_rates_of_others_are_named_where_a_plan_is_shown_and_where_it_is_approved(
    desk: Desk, page: Page, capsys: pytest.CaptureFixture[str]
) -> None:
    desk.settings = Settings(throttle=50_000_000)
    desk.simulator.broker_defaults = {RATE: "2000000"}
    desk.simulator.broker_settings[1] = {RATE: "1000000"}
    made, snapshot = drained(desk)
    show(made, snapshot)
    asked(asking(made, snapshot))
    begin = "\n\n### Rates that others have set\n\n- Broker 1 has"
    for text in (path_of(made).read_text(), capsys.readouterr().out, page.body):
        said = text.replace("\\", "")
        assert f"{begin} {RATE} 1,000,000 bytes/s, set by someone else: this plan's 50,000,000 bytes/s do not" in said
        assert f"\n- Broker 3 has {RATE} 2,000,000 bytes/s, set for all brokers by someone else: this plan's" in said
        assert f" --alter --entity-type brokers --entity-default --delete-config {RATE}.\n\n### Brokers" in said
        assert UNKNOWN not in said
    desk.simulator.broker_settings[1] = {RATE: "1000"}
    assert asked(asking(made, snapshot)) == made["digest"], "others may change their rates meanwhile"


def test_a_plan_is_made_and_shown_also_while_nobody_can_ask_for_the_rates_of_others(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.settings, snapshot = Settings(throttle=50_000_000), desk.snapshot(4)

    def unreachable(_: Any) -> Any:
        raise ClusterUnreachable("No broker answers.")

    monkeypatch.setattr(StewardHook, "open", unreachable)
    made = desk.plan(snapshot, operation="drain", brokers=[4])
    assert (made["partitions"] > 0, UNKNOWN in (read_plan_page(made) or "")) == (True, True)


def test_what_airflow_shows_is_what_it_kept_and_not_what_was_asked(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    made, snapshot = drained(desk)
    ask = asking(made, snapshot, approvers=["ann"])
    ask.subject, ask.body = "Move them?", "a page"
    sent: list[Any] = []
    kept = SimpleNamespace(subject="Move others?", body="another page", assigned_users=[HITLUser(id="7", name="bob")])

    def send(*, msg: Any) -> Any:
        sent.append(msg)
        return kept

    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", SimpleNamespace(send=send), raising=False)
    where = run()
    where["task_instance"].id = uuid4()
    assert request_input(ask, where) == ("Move others?", "another page", [{"id": "7", "name": "bob"}])
    (message,) = sent
    assert (message.ti_id, message.subject, message.body) == (where["task_instance"].id, "Move them?", "a page")
    assert (message.options, message.defaults) == (["Approve", "Reject"], ["Reject"])
    assert [(user.id, user.name) for user in message.assigned_users] == [("ann", "ann")]
    kept.assigned_users = None
    assert request_input(ask, where)[2] == []


# the answer


def test_the_answer_goes_into_the_journal_and_by_no_xcom(desk: Desk) -> None:
    made, snapshot = drained(desk)
    answer = asking(made, snapshot).execute_complete(run(), responded("Approve", reason="why"), digest=made["digest"])
    approval = desk.journal.plans.approval(made["digest"])
    assert approval is not None
    assert (approval.person, approval.reason, approval.answered_ms) == ("ann", "why", answer["answered_ms"])
    assert submit(desk, made, snapshot)["status"] == "completed"


def test_what_the_task_returned_approves_nothing(desk: Desk) -> None:
    """Whoever may write XComs writes an answer there: what submits asks the journal."""
    made, snapshot = drained(desk)
    where = run()
    with suppress(AirflowSkipException):
        asking(made, snapshot).execute_complete(where, responded("Reject"), digest=made["digest"])
    where["ti"].xcom_push("return_value", {**where["ti"].xcoms["return_value"], "approved": True})
    with pytest.raises(AirflowFailException, match="it is not approved"):
        submit(desk, made, snapshot)


def test_an_answer_is_written_again_while_the_journal_is_away(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    made, snapshot = drained(desk)
    away = [JournalUnreachable("The journal does not answer.")] * 2
    opened, paused = StewardHook.open, list[float]()

    def opening(hook: StewardHook) -> Any:
        if away:
            raise away.pop()
        return opened(hook)

    monkeypatch.setattr(StewardHook, "open", opening)
    monkeypatch.setattr("time.sleep", paused.append)
    asking(made, snapshot).execute_complete(run(), responded("Approve"), digest=made["digest"])
    assert paused == [5.0, 10.0]
    assert desk.journal.plans.approval(made["digest"]) is not None
    away += [JournalUnreachable("The journal does not answer.")] * 100
    paused.clear()
    with pytest.raises(JournalUnreachable):
        asking(made, snapshot).execute_complete(run(), responded("Approve"), digest=made["digest"])
    assert sum(paused) == 315


# who may answer


def test_only_the_approvers_are_asked_and_whoever_started_the_run_is_none_of_them(desk: Desk, page: Page) -> None:
    made, snapshot = drained(desk)
    approvers: Any = ["ann", {"id": "7", "name": "bob"}, "ann"]
    asked(asking(made, snapshot, approvers=approvers, self_approval=False), run(person="bob"))
    assert page.users == ["ann"]
    page.kept.clear()
    asked(asking(made, snapshot, approvers=approvers))
    assert page.users == ["ann", "7"]
    alone = asking(made, snapshot, approvers=["bob"], self_approval=False)
    with pytest.raises(AirflowFailException, match="Nobody may approve the plan: bob started this run"):
        alone.execute(run(person="bob"))


def test_the_approval_of_whoever_started_the_run_is_none_and_others_are_asked(desk: Desk, page: Page) -> None:
    made, snapshot = drained(desk)
    ask = asking(made, snapshot, self_approval=False)
    with pytest.raises(TaskAwaitingInput) as parked:
        ask.execute_complete(run(person="ann"), responded("Approve", "ann"), digest=made["digest"])
    assert parked.value.kwargs == {"digest": made["digest"]}
    assert desk.journal.plans.approval(made["digest"]) is None
    ask.execute_complete(run(person="ann"), responded("Approve", "bob"), digest=made["digest"])
    approval = desk.journal.plans.approval(made["digest"])
    assert approval is not None
    assert approval.person == "bob"


def test_whoever_started_the_run_may_reject_its_plan_and_approve_it_where_that_is_allowed(desk: Desk) -> None:
    made, snapshot = drained(desk)
    with pytest.raises(AirflowSkipException, match="was rejected by ann"):
        asking(made, snapshot, self_approval=False).execute_complete(
            run(person="ann"), responded("Reject", "ann"), digest=made["digest"]
        )
    asking(made, snapshot).execute_complete(run(person="ann"), responded("Approve", "ann"), digest=made["digest"])
    assert desk.journal.plans.approval(made["digest"]) is not None


def test_approvers_are_ids_or_users() -> None:
    assert parse_approvers(None) is None
    assert parse_approvers(("ann",)) == [{"id": "ann", "name": "ann"}]
    assert parse_approvers([{"id": "7", "name": "bob", "more": "x"}]) == [{"id": "7", "name": "bob"}]


@pytest.mark.parametrize("given", ["ann", {"id": "7", "name": "bob"}, [], [7], [{"id": "7"}], [{"id": 7, "name": "b"}]])
def test_approvers_of_another_shape_are_refused(given: Any) -> None:
    with pytest.raises(SettingError, match="approver"):
        parse_approvers(given)


@pytest.mark.parametrize("given", [-1, True, 1.0, "5"])
def test_a_number_of_bytes_of_another_shape_is_refused(given: Any) -> None:
    assert (validate_approve_above(None), validate_approve_above(0), validate_approve_above(5)) == (None, 0, 5)
    with pytest.raises(SettingError, match="approve_above is"):
        validate_approve_above(given)


def show(made: dict[str, Any], snapshot: dict[str, str]) -> None:
    ReviewPlanOperator(task_id="show", plan=made, snapshot=snapshot, conn_id="kafka_test").execute(context())


def path_of(made: dict[str, Any]) -> Path:
    return Path(made["uri"]) / PAGE


def test_the_task_that_plans_writes_the_page_that_is_reviewed_and_approved(
    desk: Desk, page: Page, capsys: pytest.CaptureFixture[str]
) -> None:
    made, snapshot = drained(desk)
    text = plan_summary(read_task_plan(made), read_task_snapshot(snapshot), rates=[])
    assert read_plan_page(made) == path_of(made).read_text() == text
    show(made, snapshot)
    assert text in capsys.readouterr().out
    asked(asking(made, snapshot))
    assert page.body.endswith(f"\n\n{text.replace(UNKNOWN, '')}")


@pytest.mark.parametrize("written", [True, False])
def test_a_plan_without_a_page_is_shown_as_before(
    desk: Desk, page: Page, capsys: pytest.CaptureFixture[str], written: bool
) -> None:
    made, snapshot = drained(desk)
    text = plan_summary(read_task_plan(made), read_task_snapshot(snapshot))
    if written:
        del made["page_digest"]
        path_of(made).write_text("of an unknown origin")
    else:
        path_of(made).unlink()
    assert read_plan_page(made) is None
    show(made, snapshot)
    assert text in capsys.readouterr().out
    asked(asking(made, snapshot))
    assert page.body.endswith(f"\n\n{text.replace(UNKNOWN, '')}")


def test_a_page_that_was_edited_is_refused_before_it_is_shown(desk: Desk, page: Page) -> None:
    made, snapshot = drained(desk)
    path_of(made).write_text(path_of(made).read_text().replace("B |", "kB |"))
    sentence = rf"^The page review\.md of the plan at {made['uri']} was edited after it was made; make a new plan\.$"
    with pytest.raises(PlanError, match=sentence):
        show(made, snapshot)
    with pytest.raises(AirflowFailException, match=sentence):
        asking(made, snapshot).execute(context())
    assert page.asked == 0


def test_a_page_that_is_no_text_is_refused(desk: Desk) -> None:
    made, _ = drained(desk)
    path_of(made).write_bytes(b"\xff")
    with pytest.raises(PlanError, match=r"is corrupt: review\.md is not in the expected format"):
        read_plan_page(made)


def test_the_page_of_another_plan_is_refused(desk: Desk) -> None:
    made, snapshot = drained(desk)
    desk.simulator.tick()
    other, _ = drained(desk)
    path_of(made).write_text(path_of(other).read_text())
    for forged in (made, {**made, "page_digest": other["page_digest"]}):
        with pytest.raises(PlanError, match="was edited after it was made"):
            show(forged, snapshot)


def test_a_person_is_asked_about_the_plan_even_when_the_page_was_replaced_with_its_digest(
    desk: Desk, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, snapshot = drained(desk)
    text, plan = path_of(made).read_text(), read_task_plan(made)
    with monkeypatch.context() as forging:
        forging.setattr(summary, "plan_summary", lambda *_, **__: "Moves nothing.")
        forged = {**made, "page_digest": write_plan_page(made["uri"], plan, read_task_snapshot(snapshot))}
    assert read_plan_page(forged) == "Moves nothing."
    asked(asking(forged, snapshot))
    assert page.body.endswith(f"\n\n{text.replace(UNKNOWN, '')}")


SNAPSHOT_FILE, PLAN_FILE = "partitions.parquet", "plan.parquet"


class Reads:
    """The Parquet files that a process reads, by name."""

    def __init__(self) -> None:
        self._read = Counter[str]()
        self._elsewhere: int | None = None

    def note(self, name: str) -> None:
        if get_ident() != self._elsewhere:
            self._read[name] += 1

    @contextmanager
    def of_another_process(self) -> Iterator[None]:
        """Let this thread play another process; the task's other threads go on reading."""
        self._elsewhere = get_ident()
        yield
        self._elsewhere = None

    def of(self, task: Callable[[], Any]) -> dict[str, int]:
        """What this task reads."""
        self._read.clear()
        task()
        return {name: count for name, count in self._read.items() if name != "brokers.parquet"}


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch, desk: Desk) -> Reads:
    found = Reads()
    read_table, submitted = Folder.read_table, SparkSubmitOperator.execute

    def read(self: Folder, name: str) -> pa.Table:
        found.note(name)
        return read_table(self, name)

    def execute(self: SparkSubmitOperator, where: Any) -> None:
        with found.of_another_process():
            submitted(self, where)

    monkeypatch.setattr(Folder, "read_table", read)
    monkeypatch.setattr(SparkSubmitOperator, "execute", execute)
    return found


@pytest.mark.parametrize("kind", [PlanReassignmentOperator, PlanRebalanceOperator])
def test_a_task_that_plans_reads_the_snapshot_and_its_plan_once(desk: Desk, reads: Reads, kind: type[Any]) -> None:
    more = {"request": {"operation": "rebalance"}} if kind is PlanRebalanceOperator else {}
    operator = kind(task_id="plan", snapshot=desk.snapshot(), conn_id="kafka_test", **more)
    assert reads.of(lambda: operator.execute(context())) == {SNAPSHOT_FILE: 1, PLAN_FILE: 1}


def test_a_task_with_nothing_to_plan_reads_the_snapshot_once(desk: Desk, reads: Reads) -> None:
    snapshot = desk.snapshot()
    assert reads.of(lambda: desk.plan(snapshot, operation="expand")) == {SNAPSHOT_FILE: 1}


def test_a_review_reads_neither_and_whoever_approves_submits_or_checks_reads_the_snapshot_and_the_plan_once(
    desk: Desk, reads: Reads, page: Page
) -> None:
    made, snapshot = drained(desk)
    once = {SNAPSHOT_FILE: 1, PLAN_FILE: 1}
    assert reads.of(lambda: show(made, snapshot)) == {}
    assert reads.of(lambda: asked(asking(made, snapshot))) == once
    asking(made, snapshot).execute_complete(context(), responded("Approve"), digest=made["digest"])
    assert reads.of(lambda: submit(desk, made, snapshot)) == once
    request = job.parse_command_line(["--check", "--snapshot", snapshot["uri"], "--out", made["uri"]])
    assert reads.of(lambda: job.print_verdict(request)) == once
