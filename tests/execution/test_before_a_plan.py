"""What is decided and told before a plan is carried out: the gate, the drain, the wishes, the briefing."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.errors import RequestError
from kafka_steward.execution.plan_report import (
    DrainStatus,
    constraint_regressions,
    drain_status,
    format_bytes,
    format_duration,
    plan_summary,
    refuse_invalid_drain,
)
from kafka_steward.execution.plan_requests import no_op_reason, planner_options
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.publishing import publish_plan
from kafka_steward.execution.readiness import check_readiness, disable_reassignment, evaluate_readiness
from kafka_steward.rebalance_request import REBALANCE_OPERATIONS, RebalanceRequest
from kafka_steward.settings import Settings
from tests.builders import cluster, planned, snapshot_of
from tests.simulated_plan import WHO, memory_journal, move, plan_of
from tests.simulator import Simulator

WHOLE = cluster("1a 2b 3c 4a", "orders: 123 231 312", "__consumer_offsets: 123", "pay_out: 412 123")


def test_the_gate_of_a_whole_quiet_cluster_is_open() -> None:
    simulator = Simulator.of("1a 2b 3c", "t: 123 231")
    found = check_readiness(simulator, memory_journal(simulator))
    assert (found.is_ready, found.sentence) == (True, "The cluster is fully replicated, and nothing is in flight.")


def test_the_gate_says_everything_that_closes_it() -> None:
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123 231", size=1000)
    simulator.alter({TopicPartition("t", 1): (2, 3, 4)})
    simulator.kill(1)
    found = evaluate_readiness(simulator.snapshot(), disabled="by ada since noon")
    assert found.sentence == (
        "The cluster is not ready: broker 1 is not live; t-0 and 1 more under-replicated; 1 partitions are being "
        "reassigned; reassignments are disabled by ada since noon."
    )


def test_the_gate_is_closed_while_a_plan_has_the_cluster_or_the_switch_is_off() -> None:
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123 231")
    journal = memory_journal(simulator)
    plan = plan_of(simulator, [move("t-0", "123", "423")], operation="rebalance")
    publish_plan(ClusterContext(simulator, journal, Settings(), WHO), plan)
    assert check_readiness(simulator, journal).reasons == (f"plan {plan.digest[:12]} holds the plan slot",)
    beside = plan_of(simulator, [move("t-1", "231", "234")], operation="apply")
    publish_plan(ClusterContext(simulator, journal, Settings(), WHO), beside)
    both = f"plans {plan.digest[:12]}, {beside.digest[:12]} hold the plan slot"
    assert check_readiness(simulator, journal).reasons == (both,)
    for each in (plan, beside):
        journal.slot.release(each.digest)
    disable_reassignment(journal, who=WHO, reason="racks")
    assert "disabled by ada since" in check_readiness(simulator, journal).sentence


def test_draining_all_brokers_and_brokers_that_are_not_there_is_refused() -> None:
    snapshot = Simulator.of("1a 2b 3c", "t: 123").snapshot()
    refuse_invalid_drain(snapshot, [3])
    with pytest.raises(RequestError, match="All live brokers would be drained, and none would be left"):
        refuse_invalid_drain(snapshot, [1, 2, 3])
    with pytest.raises(RequestError, match="Broker 9 cannot be drained: it is not live; the live brokers are 1, 2, 3"):
        refuse_invalid_drain(snapshot, [3, 9])


def test_a_drained_broker_is_empty_in_the_metadata_and_on_its_disk() -> None:
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123 231 312 124", "u: 123")

    def told(brokers: list[int]) -> DrainStatus:
        return drain_status(simulator.snapshot(), simulator.log_dirs(brokers), brokers)

    assert told([4]).sentence == (
        "Broker 4 is not empty yet: t-3 are still assigned there; drain again before stopping it."
    )
    assert told([3]).sentence.startswith("Broker 3 is not empty yet: t-0, t-1, t-2 and 1 more")
    simulator.alter({TopicPartition("t", 3): (1, 2, 3)})
    simulator.run()
    simulator.topics[TopicPartition("t", 3)].held.pop(4, None)
    assert (told([4]).is_empty, told([4]).sentence.split(". ")[0]) == (True, "Broker 4 is empty in Kafka")
    lying = drain_status(simulator.snapshot(), {4: simulator.log_dirs([1])[1]}, [4])
    assert (lying.is_empty, "no longer has an assigned replica; Kafka has not yet deleted" in lying.sentence) == (
        False, True,
    )  # fmt: skip
    silent = drain_status(simulator.snapshot(), {}, [4])
    assert (silent.is_empty, silent.sentence.split("; ")[1]) == (
        False, "broker 4 did not report which logs are still on disk.",
    )  # fmt: skip


def test_a_drained_broker_that_is_stopped_already_is_not_asked_what_is_on_its_disk() -> None:
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123")
    simulator.kill(4)
    assert drain_status(simulator.snapshot(), {}, [4]).is_empty


@pytest.mark.parametrize(
    ("wishes", "expected"),
    [
        (RebalanceRequest("rebalance"), {}),
        (
            RebalanceRequest(
                "rebalance", topics=["o.*"], balance="bytes", tolerance=0.1, rack_aware=False, internal_topics=True
            ),
            {"include": ["o.*"], "balance": "bytes", "tolerance": 0.1, "rack_aware": False, "internal_topics": True},
        ),
        (RebalanceRequest("drain", brokers=[4], internal_topics=False, max_moves=3), {"max_moves": 3}),
        (
            RebalanceRequest("expand", exclude=["pay_.*"], exclude_brokers=[2]),
            {"exclude": ["pay_.*"], "exclude_brokers": [2]},
        ),
        (
            RebalanceRequest(
                "set-replication-factor", topics=[".*"], exclude=["pay.*"], replication_factor=2, balance="bytes"
            ),
            {"replication_factor": 2, "topics": ["orders"]},
        ),
    ],
)
def test_wishes_become_the_planners_options(wishes: RebalanceRequest, expected: dict[str, Any]) -> None:
    options = planner_options(wishes, WHOLE, scheduled=False)
    assert options == expected
    planned(WHOLE, wishes.operation, options)


def test_a_scheduled_run_moves_at_most_a_tenth_of_the_bytes_unless_it_has_a_budget() -> None:
    # 6 partitions of 1000 bytes with 3 replicas each.
    assert planner_options(RebalanceRequest("rebalance"), WHOLE, scheduled=True) == {"max_bytes": 1800}
    assert planner_options(RebalanceRequest("rebalance", max_moves=7), WHOLE, scheduled=True) == {"max_moves": 7}
    factor = RebalanceRequest("set-replication-factor", topics=["orders"], replication_factor=2)
    assert "max_bytes" not in planner_options(factor, WHOLE, scheduled=True)


@pytest.mark.parametrize("scheduled", [True, False])
@pytest.mark.parametrize(
    ("wishes", "budget"),
    [
        (RebalanceRequest("rebalance", max_bytes=5), {"max_bytes": 5}),
        (RebalanceRequest("rebalance", max_moves=7), {"max_moves": 7}),
        (RebalanceRequest("drain", brokers=[4], max_bytes=5, max_moves=7), {"max_bytes": 5, "max_moves": 7}),
    ],
)
def test_a_budget_that_is_given_is_kept_in_every_run(
    wishes: RebalanceRequest, budget: dict[str, int], *, scheduled: bool
) -> None:
    assert planner_options(wishes, WHOLE, scheduled=scheduled) == budget


@pytest.mark.parametrize(
    ("sizes", "most"), [([1000] + [None] * 7, 300), ([None], 1), ([3], 1), ([11], 3), ([2**40], 2**40 * 3 // 10)]
)
def test_a_tenth_counts_unknown_sizes_as_nothing_and_is_never_less_than_one_byte(
    sizes: list[int | None], most: int
) -> None:
    rows = [{"topic": "t", "partition": n, "replicas": [1, 2, 3], "bytes": size} for n, size in enumerate(sizes)]
    snapshot = snapshot_of([], rows)
    assert planner_options(RebalanceRequest("rebalance"), snapshot, scheduled=True) == {"max_bytes": most}


FACTOR = "set-replication-factor"
NO_BUDGET = (
    "The field max_moves or max_bytes is only for rebalance, expand, drain, and the operation is "
    "set-replication-factor; leave the field empty, or change the operation."
)
NO_FACTOR = (
    "The field replication_factor is only for set-replication-factor, and the operation is expand; leave the "
    "field empty, or change the operation."
)
UNCLOSED = (
    "'(' is not a regular expression: missing ), unterminated subpattern at position 0; correct topics or exclude."
)


@pytest.mark.parametrize(
    ("wishes", "sentence"),
    [
        (
            RebalanceRequest("shrink"),
            "There is no operation 'shrink'; there are rebalance, expand, drain, set-replication-factor.",
        ),
        (RebalanceRequest("drain"), "Name the brokers to drain."),
        (
            RebalanceRequest("rebalance", brokers=[4]),
            (
                "The field brokers is only for drain, and the operation is rebalance; leave the field empty, or "
                "change the operation."
            ),
        ),
        (RebalanceRequest("expand", replication_factor=3), NO_FACTOR),
        (RebalanceRequest(FACTOR, topics=["t"]), "Give the replication_factor to set."),
        (
            RebalanceRequest(FACTOR, replication_factor=3),
            "Name the topics whose replication factor is to be set; .* is all of them.",
        ),
        (
            RebalanceRequest(FACTOR, topics=["x", "y"], replication_factor=3),
            "No topic has a full name that matches x, y; correct topics.",
        ),
        (RebalanceRequest(FACTOR, topics=["("], replication_factor=3), UNCLOSED),
        (
            RebalanceRequest("rebalance", topics=["o.*"], exclude=["*"]),
            "'*' is not a regular expression: nothing to repeat at position 0; correct topics or exclude.",
        ),
        (RebalanceRequest(FACTOR, topics=["t"], replication_factor=3, max_moves=1), NO_BUDGET),
        (RebalanceRequest(FACTOR, topics=["t"], replication_factor=3, max_bytes=1), NO_BUDGET),
    ],
)
def test_wishes_that_do_not_go_together_are_refused_with_a_sentence(wishes: RebalanceRequest, sentence: str) -> None:
    with pytest.raises(RequestError) as refused:
        planner_options(wishes, WHOLE, scheduled=False)
    assert str(refused.value) == sentence


def test_an_expand_finds_new_brokers_by_itself_and_says_when_there_is_none() -> None:
    assert (
        no_op_reason(RebalanceRequest("expand"), WHOLE) == "No broker is live and empty: there is nothing to expand to."
    )
    assert no_op_reason(RebalanceRequest("expand"), cluster("1a 2b 3c 4a+", "t: 123")) == ""
    assert no_op_reason(RebalanceRequest("drain", brokers=[4]), cluster("1a 2b 3c 4a-", "t: 123")) == (
        "Broker 4 already holds no replica."
    )
    assert no_op_reason(RebalanceRequest("drain", brokers=[4]), cluster("1a 2b 3c 4a-", "t: 124")) == ""


@pytest.mark.parametrize("operation", REBALANCE_OPERATIONS)
def test_the_briefing_shows_proof_moves_by_broker_and_duration(operation: str) -> None:
    snapshot = cluster("1a 2b 3c 4a-" if operation == "drain" else "1a 2b 3c 4a+", "or_ders: 123 231 312 124 421")
    options = {"replication_factor": 2, "topics": ["or_ders"]} if operation == "set-replication-factor" else {}
    plan = planned(snapshot, operation, options)
    text = plan_summary(plan, snapshot)
    assert plan.digest in text
    moved, bound = plan.proof["replicas_moved"], plan.proof["lower_bound"]
    assert f"| replicas moved | {moved} (no plan can move fewer than {bound}) |" in text.replace("\\_", "_")
    assert "| predicted duration | at least 0 s at 50.0 MB/s into each broker |" in text
    assert "or\\_ders-" in text
    rows = [line for line in text.splitlines() if line.startswith(("| 1 |", "| 2 |", "| 3 |", "| 4 |"))]
    assert len(rows) == 4
    shrinks = "will have 2 replicas instead of 3." in text
    assert shrinks is (operation == "set-replication-factor")


def test_what_a_plan_breaks_is_named() -> None:
    rows = cluster("1a 2b 3c 4a", "t: 123 12")
    with_min_isr = rows.partitions.set_column(rows.partitions.schema.get_field_index("min_isr"), "min_isr", [[2, 2]])
    snapshot = type(rows)(rows.cluster_id, rows.taken_ms, rows.digest, rows.brokers, with_min_isr)
    moves = [move("t-0", "123", "143"), move("t-1", "12", "1"), move("t-0", "123", "321"), move("t-1", "14", "41")]
    assert constraint_regressions(moves, snapshot) == [
        "t-0 will be on 2 racks instead of 3.",
        "t-1 will have 1 replicas instead of 2.",
        "t-1 will have fewer replicas than min.insync.replicas, 2: producers with acks=all will fail.",
    ]
    assert constraint_regressions(moves[1:2], rows) == ["t-1 will have 1 replicas instead of 2."], (
        "min.insync.replicas is unknown"
    )


def test_sizes_and_times_are_told_in_units_that_people_read() -> None:
    assert [format_bytes(each) for each in (0, 999, 1000, 1_234_000_000, 5e15)] == [
        "0 B", "999 B", "1.0 kB", "1.2 GB", "5000.0 TB",
    ]  # fmt: skip
    assert [format_duration(each) for each in (0, 40, 720, 11_100)] == ["0 s", "40 s", "12 min", "3 h 5 min"]
