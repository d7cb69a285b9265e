"""What is decided and told before a plan is carried out: the gate, the drain, the wishes, the briefing."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.errors import RequestError
from kafka_steward.execution.plan_report import DrainStatus, constraint_regressions, drain_status, refuse_invalid_drain
from kafka_steward.execution.plan_requests import no_op_reason, planner_options
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.publishing import publish_plan
from kafka_steward.execution.readiness import check_readiness, disable_reassignment, evaluate_readiness
from kafka_steward.rebalance_request import RebalanceRequest as Request
from kafka_steward.settings import Settings
from tests.builders import cluster, planned, snapshot_of
from tests.simulated_plan import WHO, memory_journal, move, plan_of, simulated
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
    simulator, journal = simulated("1a 2b 3c 4a", "t: 123 231")
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
    simulator.kill(4)
    assert drain_status(simulator.snapshot(), {}, [4]).is_empty, "a stopped broker is not asked what is on its disk"


@pytest.mark.parametrize(
    ("wishes", "expected"),
    [
        (Request("rebalance"), {}),
        (
            Request(
                "rebalance", topics=["o.*"], balance="bytes", tolerance=0.1, rack_aware=False, internal_topics=True
            ),
            {"include": ["o.*"], "balance": "bytes", "tolerance": 0.1, "rack_aware": False, "internal_topics": True},
        ),
        (Request("drain", brokers=[4], internal_topics=False, max_moves=3), {"max_moves": 3}),
        (Request("expand", exclude=["pay_.*"], exclude_brokers=[2]), {"exclude": ["pay_.*"], "exclude_brokers": [2]}),
        (
            Request("set-replication-factor", topics=[".*"], exclude=["pay.*"], replication_factor=2, balance="bytes"),
            {"replication_factor": 2, "topics": ["orders"]},
        ),
    ],
)
def test_wishes_become_the_planners_options(wishes: Request, expected: dict[str, Any]) -> None:
    options = planner_options(wishes, WHOLE, scheduled=False)
    assert options == expected
    planned(WHOLE, wishes.operation, options)


def test_a_scheduled_run_moves_at_most_a_tenth_of_the_bytes_unless_it_has_a_budget() -> None:
    # 6 partitions of 1000 bytes with 3 replicas each.
    assert planner_options(Request("rebalance"), WHOLE, scheduled=True) == {"max_bytes": 1800}
    for budget in ({"max_moves": 7}, {"max_bytes": 5}, {"max_bytes": 5, "max_moves": 7}):
        assert planner_options(Request.of({"operation": "rebalance", **budget}), WHOLE, scheduled=True) == budget
    factor = Request("set-replication-factor", topics=["orders"], replication_factor=2)
    assert "max_bytes" not in planner_options(factor, WHOLE, scheduled=True)


@pytest.mark.parametrize(
    ("sizes", "most"), [([1000] + [None] * 7, 300), ([None], 1), ([3], 1), ([11], 3), ([2**40], 2**40 * 3 // 10)]
)
def test_a_tenth_counts_unknown_sizes_as_nothing_and_is_never_less_than_one_byte(
    sizes: list[int | None], most: int
) -> None:
    rows = [{"topic": "t", "partition": n, "replicas": [1, 2, 3], "bytes": size} for n, size in enumerate(sizes)]
    snapshot = snapshot_of([], rows)
    assert planner_options(Request("rebalance"), snapshot, scheduled=True) == {"max_bytes": most}


FACTOR = "set-replication-factor"
MISFIT = (
    "The field {} is only for {}, and the operation is {}; leave the field empty, or change the operation."
).format
NO_BUDGET = MISFIT("max_moves or max_bytes", "rebalance, expand, drain", FACTOR)
OPERATIONS = "There is no operation 'shrink'; there are rebalance, expand, drain, set-replication-factor."
NO_TOPICS = "Name the topics whose replication factor is to be set; .* is all of them."
UNKNOWN_TOPICS = "No topic has a full name that matches x, y; correct topics."
UNCLOSED = (
    "'(' is not a regular expression: missing ), unterminated subpattern at position 0; correct topics or exclude."
)
NO_PATTERN = "'*' is not a regular expression: nothing to repeat at position 0; correct topics or exclude."


@pytest.mark.parametrize(
    ("wishes", "sentence"),
    [
        (Request("shrink"), OPERATIONS),
        (Request("drain"), "Name the brokers to drain."),
        (Request("rebalance", brokers=[4]), MISFIT("brokers", "drain", "rebalance")),
        (Request("expand", replication_factor=3), MISFIT("replication_factor", FACTOR, "expand")),
        (Request(FACTOR, topics=["t"]), "Give the replication_factor to set."),
        (Request(FACTOR, replication_factor=3), NO_TOPICS),
        (Request(FACTOR, topics=["x", "y"], replication_factor=3), UNKNOWN_TOPICS),
        (Request(FACTOR, topics=["("], replication_factor=3), UNCLOSED),
        (Request("rebalance", topics=["o.*"], exclude=["*"]), NO_PATTERN),
        (Request(FACTOR, topics=["t"], replication_factor=3, max_moves=1), NO_BUDGET),
        (Request(FACTOR, topics=["t"], replication_factor=3, max_bytes=1), NO_BUDGET),
    ],
)
def test_wishes_that_do_not_go_together_are_refused_with_a_sentence(wishes: Request, sentence: str) -> None:
    with pytest.raises(RequestError) as refused:
        planner_options(wishes, WHOLE, scheduled=False)
    assert str(refused.value) == sentence


def test_an_expand_finds_new_brokers_by_itself_and_says_when_there_is_none() -> None:
    assert no_op_reason(Request("expand"), WHOLE) == "No broker is live and empty: there is nothing to expand to."
    assert no_op_reason(Request("expand"), cluster("1a 2b 3c 4a+", "t: 123")) == ""
    assert no_op_reason(Request("drain", brokers=[4]), cluster("1a 2b 3c 4a-", "t: 123")) == (
        "Broker 4 already holds no replica."
    )
    assert no_op_reason(Request("drain", brokers=[4]), cluster("1a 2b 3c 4a-", "t: 124")) == ""


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
