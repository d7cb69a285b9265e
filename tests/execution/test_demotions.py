"""A demotion from its plan to the promotion: executed without a copy, respected by what follows, and taken back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.errors import RequestError
from kafka_steward.execution.demotions import demoted_brokers, demotions_in_effect
from kafka_steward.execution.effects import elect_preferred_leaders
from kafka_steward.execution.plans.lifecycle import request_cancel
from kafka_steward.execution.plans.publishing import publish_plan
from kafka_steward.execution.watch.health import check_health
from kafka_steward.journal.observed import BrokerReport
from kafka_steward.journal.records import DEMOTIONS, Demotion, PlanRecord
from kafka_steward.journal.store import open_journal
from kafka_steward.page_data.reader import open_reader
from kafka_steward.page_data.reports import Brokers, brokers
from kafka_steward.ui.access import WorkflowDag
from kafka_steward.ui.buttons import ButtonMaker
from tests.execution.desk import Desk
from tests.local_plan import planned
from tests.simulated_plan import WHO


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path, "1a 2b 3c", "t: 123 213 312", "u: 12 13")


BEFORE = {"t-0": (1, 2, 3), "t-1": (2, 1, 3), "t-2": (3, 1, 2), "u-0": (1, 2), "u-1": (1, 3)}


def test_a_demotion_is_executed_without_a_copy_and_named_until_the_promotion(desk: Desk) -> None:
    plan = desk.execute("demote", 1)
    assert plan.proof["replicas_moved"] == 0
    assert all(1 not in order[:-1] for order in desk.orders().values())
    assert 1 not in desk.leaders().values()
    assert demoted_brokers(desk.journal) == {1}
    (demotion,) = demotions_in_effect(desk.journal).values()
    assert (demotion.plans, demotion.who) == ((plan.digest,), "ada")

    desk.execute("promote", 1)
    assert desk.orders() == BEFORE
    assert desk.leaders() == {name: order[0] for name, order in BEFORE.items()}
    assert demoted_brokers(desk.journal) == set()


def test_a_cancel_lifts_the_demotion_that_came_with_the_plan(desk: Desk) -> None:
    plan = desk.publish("demote", 1)
    assert demoted_brokers(desk.journal) == {1}
    request_cancel(desk.journal, plan.digest, who=WHO, reason="no")
    assert demoted_brokers(desk.journal) == set()
    desk.run(plan.digest)
    assert desk.orders() == BEFORE


def test_a_rollback_lifts_it_too_and_one_of_the_promotion_brings_it_back(desk: Desk) -> None:
    desk.take_back(desk.execute("demote", 1).digest)
    assert (desk.orders(), demoted_brokers(desk.journal)) == (BEFORE, frozenset())
    desk.execute("demote", 1)
    demoted = desk.orders()
    desk.take_back(desk.execute("promote", 1).digest)
    assert (desk.orders(), demoted_brokers(desk.journal)) == (demoted, frozenset({1}))
    desk.execute("promote", 1)
    assert desk.orders() == BEFORE


def test_a_promotion_leaves_what_has_changed_since_and_says_so(desk: Desk) -> None:
    desk.execute("demote", 1)
    changed = TopicPartition("t", 0)
    desk.simulator.topics[changed].replicas = (3, 1, 2)
    plan = desk.execute("promote", 1)
    assert plan.proof["notes"][0] == "Changed since the demotion, and left as it is: t-0."
    assert desk.orders() == {**BEFORE, "t-0": (3, 1, 2)}
    assert demoted_brokers(desk.journal) == set()


def test_one_of_two_is_promoted_and_the_other_stays_last(desk: Desk) -> None:
    desk.execute("demote", 1)
    desk.execute("demote", 2)
    desk.execute("promote", 1)
    assert demoted_brokers(desk.journal) == {2}
    assert desk.orders()["t-0"] == (1, 3, 2)
    assert desk.orders()["u-0"] == (1, 2)
    desk.execute("promote", 2)
    assert desk.orders() == BEFORE


def test_later_plans_and_elections_respect_it(desk: Desk) -> None:
    desk.execute("demote", 1)
    desk.simulator.topics[TopicPartition("u", 1)].replicas = (1, 3)
    elected = elect_preferred_leaders(desk.simulator, desk.journal, who=WHO)
    assert elected.elected == ()
    assert desk.leaders()["u-1"] == 3
    # A demotion without brokers is one of those that are demoted: it takes in what came since.
    again = desk.execute("demote")
    assert [str(move.topic_partition) for move in again.moves] == ["u-1"]
    assert desk.orders()["u-1"] == (3, 1)
    plan, snapshot = desk.plan("leaders")
    assert snapshot.brokers["demoted"].to_pylist() == [True, None, None]
    assert all(move.after[0] != 1 for move in plan.moves)


def test_a_broker_that_leads_nothing_is_demoted_by_an_empty_plan(tmp_path: Path) -> None:
    desk = Desk(tmp_path, "1a 2b 3c", "t: 23 32")
    assert not desk.execute("demote", 1).moves
    assert demoted_brokers(desk.journal) == {1}
    assert not desk.execute("promote", 1).moves
    assert demoted_brokers(desk.journal) == set()


@pytest.mark.parametrize(
    ("operation", "brokers", "sentence"),
    [
        ("demote", (9,), "Broker 9 cannot be demoted: the cluster has no broker 9; the live brokers are 1, 3."),
        ("demote", (2,), "Broker 2 cannot be demoted: it is not live; the live brokers are 1, 3."),
        ("demote", (1,), "Broker 1 cannot be demoted: it is demoted already; the live brokers are 1, 3."),
        ("demote", (3,), "All live brokers would be demoted, and none would be left to lead."),
        ("promote", (3,), "Broker 3 cannot be promoted: it is not demoted; demoted are 1."),
        ("promote", (), "Name the brokers to promote."),
    ],
)
def test_a_wrong_request_is_refused_with_a_sentence(
    desk: Desk, operation: str, brokers: tuple[int, ...], sentence: str
) -> None:
    desk.execute("demote", 1)
    desk.simulator.kill(2)
    with pytest.raises(RequestError) as refused:
        desk.plan(operation, *brokers)
    assert str(refused.value) == sentence


def test_without_a_demoted_broker_there_is_none_to_demote_again(desk: Desk) -> None:
    with pytest.raises(RequestError, match=r"Name the brokers to demote: no broker is demoted\."):
        desk.plan("demote")


def test_a_document_with_the_same_replicas_in_another_order_is_executed_and_undone(desk: Desk) -> None:
    entry: Mapping[str, Any] = {"topic": "t", "partition": 0, "replicas": [3, 2, 1]}
    snapshot = desk.snapshot()
    plan = planned(snapshot, "apply", {"reassignment": {"version": 1, "partitions": [entry]}})
    publish_plan(desk.context, plan, snapshot=snapshot)
    desk.run(plan.digest)
    assert plan.proof["replicas_moved"] == 0
    assert desk.orders() == {**BEFORE, "t-0": (3, 2, 1)}
    desk.take_back(plan.digest)
    assert desk.orders() == BEFORE


def test_the_page_reads_the_demotions_that_are_in_effect(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/journal.db"
    with open_journal(url, "c") as journal, open_reader(url) as reader:
        rows = journal.rows(DEMOTIONS)
        assert brokers(reader, "c").demoted == {}
        first = Demotion(("a",), "ada", 1)
        rows.put_all({1: first, 2: Demotion(("b",), "ada", 1, promoted_by="p"), 3: Demotion(("x",), "ada", 1)}, {})
        for digest in "pxy":
            journal.plans.publish(PlanRecord(digest, "c", "demote"), [])
        request_cancel(journal, "x", who=WHO, reason="no")
        assert brokers(reader, "c").demoted == {1: first}
        assert demoted_brokers(journal) == {1}
        request_cancel(journal, "p", who=WHO, reason="no")
        assert brokers(reader, "c").demoted.keys() == demoted_brokers(journal) == {1, 2}


def test_the_health_check_finds_what_a_demoted_broker_is_to_lead_and_a_second_demotion_takes_it(desk: Desk) -> None:
    desk.execute("demote", 1)
    measures = check_health(desk.simulator, desk.journal)[0].measures
    assert (measures["demoted_brokers"], measures["demoted_leaders"]) == (1, 0)
    desk.simulator.create("new", [(1, 2), (2, 1), (1,)])
    health = check_health(desk.simulator, desk.journal)[0]
    assert health.demoted == {1: 1}, "of the third partition there is no other replica"
    desk.execute("demote")
    assert desk.orders()["new-0"] == (2, 1)
    assert check_health(desk.simulator, desk.journal)[0].demoted == {1: 0}
    desk.execute("promote", 1)
    assert desk.orders()["new-0"] == (1, 2), "as it was created"
    assert check_health(desk.simulator, desk.journal)[0].measures["demoted_brokers"] == 0


def test_a_live_broker_has_a_button_that_demotes_it_or_promotes_it() -> None:
    rows = tuple(BrokerReport(broker, live=broker != 3) for broker in (1, 2, 3))
    shown = Brokers(1, rows, (), demoted={2: Demotion(("a" * 64,), "ada", 1_000)})
    dag = WorkflowDag("rebalance_c", "rebalance", paused=False)
    found = ButtonMaker("c", "", [dag], lambda _: True).of_brokers(shown)
    assert {broker: button.id for broker, button in found.items()} == {1: "demote-1", 2: "promote-2"}
    assert found[2].body["conf"] == {"operation": "promote", "brokers": [2]}
    assert found[1].commands == ("airflow kafka-steward plan demote --brokers 1 --cluster c",)
    refused = ButtonMaker("c", "", [dag], lambda _: False).of_brokers(shown)
    assert refused[1].refusal == "You may not start runs of the DAG rebalance_c; ask a person who may."
