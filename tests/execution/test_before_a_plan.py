"""Before a plan: the gate, the drain, what people ask for, the snapshot with its capacities, and the briefing."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kafka_steward.assignment import Assignment, TopicPartition
from kafka_steward.cluster.state import BrokerLogDirs
from kafka_steward.errors import PlanError, RequestError, SettingError
from kafka_steward.execution.announcements import disable_reassignment
from kafka_steward.execution.moves.directories import check_directories, held_directories
from kafka_steward.execution.moves.states import HoldReason
from kafka_steward.execution.plans.publishing import publish_plan
from kafka_steward.execution.plans.readiness import KnownState, LeftOut, check_readiness, evaluate_readiness
from kafka_steward.execution.plans.report import REASONS_TO_LEAVE, DrainStatus, drain_status, refuse_invalid_drain
from kafka_steward.execution.plans.requests import (
    no_op_reason,
    parse_assignments,
    planner_options,
    validate_against_cluster,
)
from kafka_steward.execution.plans.runner import PlanRunner
from kafka_steward.execution.plans.snapshot import take_snapshot
from kafka_steward.execution.plans.summary import constraint_regressions, plan_summary, plan_tables
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.journal.records import UNSETTLED, UnsettledPartitions
from kafka_steward.journal.state import ONLY
from kafka_steward.planning.checker.check import check
from kafka_steward.planning.files.formats import read_snapshot
from kafka_steward.planning.shards import SHARD_ROWS
from kafka_steward.rebalance_request import RebalanceRequest
from kafka_steward.settings import SETTINGS, Settings, parse_capacities
from tests.builders import EVEN, cluster, planned, snapshot_of
from tests.execution.looks import look, part
from tests.present import present
from tests.simulated_plan import WHO, memory_journal, move, plan_of, simulated
from tests.simulator import Simulator
from tests.tool_output import CURRENT, DISKS, execute_output, generate_output

WHOLE = cluster("1a 2b 3c 4a", "orders: 123 231 312", "__consumer_offsets: 123", "pay_out: 412 123")


def test_the_gate_of_a_whole_quiet_cluster_is_open() -> None:
    simulator = Simulator.of("1a 2b 3c", "t: 123 231")
    found = check_readiness(simulator, memory_journal(simulator), Settings())
    assert (found.is_ready, found.sentence) == (True, "The cluster is fully replicated, and nothing is in flight.")


def test_the_gate_says_everything_that_closes_it() -> None:
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123 231", size=1000)
    simulator.alter({TopicPartition("t", 1): (2, 3, 4)})
    simulator.kill(1)
    found = evaluate_readiness(simulator.snapshot(), KnownState(disabled="by ada since noon"))
    assert found.sentence == (
        "The cluster is not ready: broker 1 is not live (heal or restart it); t-0 and 1 more under-replicated; "
        "1 partition is being reassigned; reassignments are disabled by ada since noon."
    )


def test_the_gate_is_closed_while_a_plan_has_the_cluster_or_the_switch_is_off() -> None:
    simulator, journal = simulated("1a 2b 3c 4a", "t: 123 231")
    plan = plan_of(simulator, [move("t-0", "123", "423")], operation="rebalance")
    publish_plan(ClusterContext(simulator, journal, Settings(), WHO), plan)
    assert check_readiness(simulator, journal, Settings()).reasons == (f"plan {plan.digest[:12]} holds the plan slot",)
    beside = plan_of(simulator, [move("t-1", "231", "234")], operation="apply")
    publish_plan(ClusterContext(simulator, journal, Settings(), WHO), beside)
    both = f"plans {plan.digest[:12]}, {beside.digest[:12]} hold the plan slot"
    assert check_readiness(simulator, journal, Settings()).reasons == (both,)
    for each in (plan, beside):
        journal.slot.release(each.digest)
    disable_reassignment(journal, who=WHO, reason="racks")
    assert "disabled by ada since" in check_readiness(simulator, journal, Settings()).sentence


def test_a_reassignment_of_somebody_else_past_stuck_after_is_named_beside_a_plan_of_ours() -> None:
    simulator, journal = simulated("1a 2b 3c 4a", "t: 123 231", "u: 123", bandwidth=0)
    plan = plan_of(simulator, [move("t-0", "123", "423")], operation="rebalance")
    context = ClusterContext(simulator, journal, Settings(throttle=0), WHO)
    publish_plan(context, plan)
    PlanRunner(context, plan.digest).step()
    simulator.alter({TopicPartition("u", 0): (1, 2, 4)})
    settings = Settings(stuck_after=60)
    check_readiness(simulator, journal, settings)
    simulator.tick(61)
    found = check_readiness(simulator, journal, settings)
    assert found.left_out == {TopicPartition("u", 0): LeftOut.IN_FLIGHT}
    assert found.reasons == (f"plan {plan.digest[:12]} holds the plan slot",)


def lag(simulator: Simulator) -> None:
    """A follower leaves the ISR."""
    simulator.topics[TopicPartition("t", 1)].isr.discard(3)


def lose(*replicas: str) -> Callable[[Simulator], None]:
    """Broker 4 dies, which hosts partitions with these replicas."""

    def arrange(simulator: Simulator) -> None:
        simulator.create("old", [tuple(map(int, each)) for each in replicas])
        simulator.kill(4)

    return arrange


def leave_in_flight(simulator: Simulator) -> None:
    """Somebody begins a reassignment that never completes."""
    simulator.bandwidth = 0
    simulator.alter({TopicPartition("t", 1): (2, 3, 4)})


@pytest.mark.parametrize(
    ("arrange", "waited_s", "closed", "left_out"),
    [
        (lag, 3_599, "t-1 under-replicated, which counts until", ""),
        (lag, 3_600, "", "1 partition (t-1) with a replica on a live broker that has been out of sync for longer than"),
        (leave_in_flight, 3_599, "1 partition is being reassigned", ""),
        (leave_in_flight, 3_600, "", "1 partition (t-1) that somebody else has been reassigning for longer than"),
        (lose("4", "4"), 0, "", "2 partitions (old-0 and 1 more) without a live replica: bring back a broker or"),
        (lose("1234"), 1_799, "broker 4 is not live (heal or restart it); old-0 under", ""),
        (lose("1234"), 1_800, "", "1 partition (old-0) with more replicas than there are live brokers"),
        (lose("14"), 90_000, "broker 4 is not live (heal or restart it); old-0 under-repl", ""),
    ],
)
def test_the_gate_leaves_out_what_no_plan_can_mend_and_names_it(
    arrange: Callable[[Simulator], None], waited_s: int, closed: str, left_out: str
) -> None:
    simulator, journal = simulated("1a 2b 3c 4a", "t: 123 231", size=1000)
    arrange(simulator)
    rules = Settings(stuck_after=3_600)
    check_readiness(simulator, journal, rules)
    simulator.now_ms += waited_s * 1000
    found = check_readiness(simulator, journal, rules)
    assert (found.is_ready, "; ".join(found.reasons)[: len(closed)]) == (not closed, closed)
    assert (f"Left out: {left_out}" in found.sentence) if left_out else ("Left out" not in found.sentence)
    simulator.bandwidth = 1_000_000
    simulator.restart(4)
    simulator.tick(3)
    assert check_readiness(simulator, journal, rules).sentence.startswith(
        "The cluster is fully replicated, and nothing"
    )
    assert present(journal.rows(UNSETTLED).get(ONLY)).value == UnsettledPartitions()


@pytest.mark.parametrize(
    ("happens", "ready"),
    [
        # Hours at which the gate is asked, and what happens before: the replica lags (-), is repaired (+), a move
        # begins (>) or ends (|).
        ("0- 24", True),
        ("0- 24> 25", False),
        ("0- 24> 48", True),
        ("0> 30|- 31", False),
        ("0> 30|- 54", True),
        ("0- 24+ 25- 26", False),
        ("0- 47 71", True),
        ("0- 49", False),
        ("0- 49 73", True),
        ("0- 24 48 72 96", True),
    ],
)
def test_the_time_of_a_partition_restarts_with_another_kind_and_after_days_without_a_poll(
    happens: str, *, ready: bool
) -> None:
    simulator, journal = simulated("1a 2b 3c 4a", "t: 123 231", size=1000)
    simulator.bandwidth, partition = 0, simulator.topics[TopicPartition("t", 1)]
    acts: dict[str, Callable[[], object]] = {
        "-": lambda: partition.isr.discard(3),
        "+": lambda: partition.isr.add(3),
        ">": lambda: simulator.alter({TopicPartition("t", 1): (2, 3, 4)}),
        "|": lambda: simulator.cancel([TopicPartition("t", 1)]),
    }
    start_ms = simulator.now_ms
    for each in happens.split():
        hours = each.rstrip("-+>|")
        simulator.now_ms = start_ms + int(hours) * 3_600_000
        for act in each[len(hours) :]:
            acts[act]()
        found = check_readiness(simulator, journal, Settings(stuck_after=86_400))
    assert found.is_ready is ready


def test_a_broker_that_lags_in_thousands_of_partitions_closes_the_gate_for_no_longer() -> None:
    simulator, journal = simulated("1a 2b 3c", "t: 12", size=1000)
    simulator.bandwidth = 0
    simulator.create("lagging", [(1, 2)] * 3_000, size=1000)
    for name, partition in simulator.topics.items():
        partition.isr = {1} if name.topic == "lagging" else partition.isr
    assert not check_readiness(simulator, journal, Settings()).is_ready
    simulator.now_ms += 86_400_000
    found = check_readiness(simulator, journal, Settings())
    assert (found.is_ready, len(found.left_out)) == (True, 3_000)


def test_the_page_of_the_gates_has_each_reason_to_hold_to_leave_and_to_leave_out() -> None:
    page = (Path(__file__).parents[2] / "docs" / "gates.md").read_text()
    reasons = [each.value for each in HoldReason] + [each.name.lower() for each in LeftOut] + list(REASONS_TO_LEAVE)
    assert [reason for reason in reasons if f"`{reason}`" not in page] == []


def test_draining_all_brokers_and_brokers_that_are_not_there_is_refused() -> None:
    snapshot = Simulator.of("1a 2b 3c", "t: 123").snapshot()
    refuse_invalid_drain(snapshot, [3])
    with pytest.raises(RequestError, match="All live brokers would be drained, and none would be left"):
        refuse_invalid_drain(snapshot, [1, 2, 3])
    with pytest.raises(RequestError, match="Broker 9 cannot be drained: the cluster has no broker 9; the live brokers"):
        refuse_invalid_drain(snapshot, [3, 9])
    simulator = Simulator.of("1a 2b 3c", "t: 123")
    simulator.kill(3)
    with pytest.raises(RequestError, match=r"3 cannot be drained: it is not live; .* A dead broker is emptied by heal"):
        refuse_invalid_drain(simulator.snapshot(), [3])


def test_a_drained_broker_is_empty_in_the_metadata_and_on_its_disk() -> None:
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123 231 312 124", "u: 123")

    def status(brokers: list[int]) -> DrainStatus:
        return drain_status(simulator.snapshot(), simulator.log_dirs(brokers), brokers)

    assert status([4]).sentence == (
        "Broker 4 is not empty yet: t-3 is still assigned there; drain again once nothing keeps it there, and do not "
        "stop it before."
    )
    assert status([3]).sentence.startswith("Broker 3 is not empty yet: t-0, t-1, t-2 and 1 more")
    simulator.alter({TopicPartition("t", 3): (1, 2, 3)})
    simulator.run()
    simulator.topics[TopicPartition("t", 3)].held.pop(4, None)
    assert (status([4]).is_empty, status([4]).sentence.split(". ")[0]) == (True, "Broker 4 is empty in Kafka")
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


def request_of(operation: str, **fields: Any) -> RebalanceRequest:
    return RebalanceRequest.of({"operation": operation, **fields})


@pytest.mark.parametrize(
    ("wishes", "expected"),
    [
        (request_of("rebalance"), {}),
        (
            request_of(
                "rebalance", topics=["o.*"], balance="bytes", tolerance=0.1, rack_aware=False, internal_topics=True
            ),
            {"include": ["o.*"], "balance": "bytes", "tolerance": 0.1, "rack_aware": False, "internal_topics": True},
        ),
        (request_of("drain", brokers=[4], internal_topics=False, max_moves=3), {"max_moves": 3}),
        (request_of("relieve", max_used=0.7, max_bytes=9, balance="bytes"), {"max_used": 0.7, "max_bytes": 9}),
        (
            request_of("expand", exclude=["pay_.*"], exclude_brokers=[2]),
            {"exclude": ["pay_.*"], "exclude_brokers": [2]},
        ),
        (
            request_of(
                "set-replication-factor", topics=[".*"], exclude=["pay.*"], replication_factor=2, balance="bytes"
            ),
            {"replication_factor": 2, "topics": ["orders"]},
        ),
        # A full name means its topic, internal or not.
        (
            request_of("set-replication-factor", topics=["__consumer_offsets"], replication_factor=2),
            {"replication_factor": 2, "topics": ["__consumer_offsets"]},
        ),
    ],
)
def test_wishes_become_the_planners_options(wishes: RebalanceRequest, expected: dict[str, Any]) -> None:
    options = planner_options(wishes, WHOLE, scheduled=False)
    assert options == expected
    planned(WHOLE, wishes.operation, options)


def test_a_scheduled_run_moves_at_most_a_tenth_of_the_bytes_unless_it_has_a_budget() -> None:
    # 6 partitions of 1000 bytes with 3 replicas each.
    assert planner_options(request_of("rebalance"), WHOLE, scheduled=True) == {"max_bytes": 1800}
    for budget in ({"max_moves": 7}, {"max_bytes": 5}, {"max_bytes": 5, "max_moves": 7}):
        assert (
            planner_options(RebalanceRequest.of({"operation": "rebalance", **budget}), WHOLE, scheduled=True) == budget
        )
    factor = request_of("set-replication-factor", topics=["orders"], replication_factor=2)
    assert "max_bytes" not in planner_options(factor, WHOLE, scheduled=True)


@pytest.mark.parametrize(
    ("sizes", "most"), [([1000] + [None] * 7, 300), ([None], 1), ([3], 1), ([11], 3), ([2**40], 2**40 * 3 // 10)]
)
def test_a_tenth_counts_unknown_sizes_as_nothing_and_is_at_least_one_byte(sizes: list[int | None], most: int) -> None:
    rows = [{"topic": "t", "partition": n, "replicas": [1, 2, 3], "bytes": size} for n, size in enumerate(sizes)]
    snapshot = snapshot_of([], rows)
    assert planner_options(request_of("rebalance"), snapshot, scheduled=True) == {"max_bytes": most}


FACTOR = "set-replication-factor"
MISFIT = (
    "The field {} is only for {}, and the operation is {}; leave the field empty, or change the operation."
).format
NO_BUDGET = MISFIT("max_moves or max_bytes", "rebalance, expand, drain, relieve", FACTOR)
OPERATIONS = (
    "There is no operation 'shrink'; there are rebalance, expand, drain, relieve, set-replication-factor, leaders, "
    "demote, promote."
)
NO_TOPICS = "Name the topics whose replication factor is to be set; .* is all of them."
UNKNOWN_TOPICS = "No topic has a full name that matches x, y; correct topics."
OWN = "__consumer_offsets is one of Kafka's own topics; switch internal_topics on."
UNCLOSED = (
    "'(' is not a regular expression: missing ), unterminated subpattern at position 0; correct topics or exclude."
)
NO_LIST = 'topics or exclude is {}; it takes a list of texts, such as ["orders", "logs-.*"].'
NO_PATTERN = "'*' is not a regular expression: nothing to repeat at position 0; correct topics or exclude."


@pytest.mark.parametrize(
    ("wishes", "sentence"),
    [
        (request_of("shrink"), OPERATIONS),
        (request_of("drain"), "Name the brokers to drain."),
        (request_of("rebalance", brokers=[4]), MISFIT("brokers", "drain, promote, demote", "rebalance")),
        (request_of("expand", replication_factor=3), MISFIT("replication_factor", FACTOR, "expand")),
        (request_of(FACTOR, topics=["t"]), "Give the replication_factor to set."),
        (request_of(FACTOR, replication_factor=3), NO_TOPICS),
        (request_of(FACTOR, topics=["x", "y"], replication_factor=3), UNKNOWN_TOPICS),
        (request_of(FACTOR, topics=["__.*"], replication_factor=3), OWN),
        *((request_of(each, topics=["__.*"]), OWN) for each in ("rebalance", "expand")),
        *((request_of(each, topics=["x", "y"]), UNKNOWN_TOPICS) for each in ("rebalance", "expand")),
        (request_of(FACTOR, topics=["("], replication_factor=3), UNCLOSED),
        (request_of("rebalance", topics=["o.*"], exclude=["*"]), NO_PATTERN),
        (request_of("rebalance", topics="orders"), NO_LIST.format("'orders'")),
        (request_of("rebalance", exclude=[5]), NO_LIST.format("[5]")),
        (request_of(FACTOR, topics=["t"], replication_factor=3, max_moves=1), NO_BUDGET),
        (request_of(FACTOR, topics=["t"], replication_factor=3, max_bytes=1), NO_BUDGET),
    ],
)
def test_wishes_that_do_not_go_together_are_refused_with_a_sentence(wishes: RebalanceRequest, sentence: str) -> None:
    with pytest.raises(RequestError) as refused:
        planner_options(wishes, WHOLE, scheduled=False)
    assert str(refused.value) == sentence


def test_an_expand_finds_new_brokers_by_itself_and_says_when_there_is_none() -> None:
    assert no_op_reason(request_of("expand"), WHOLE) == "No broker is live and empty: there is nothing to expand to."
    assert no_op_reason(request_of("expand"), cluster("1a 2b 3c 4a+", "t: 123")) == ""
    closed = cluster("1a 2b 3c 4a+", "t: 123")
    rows = [row | {"cordoned": row["broker"] == 4} for row in closed.brokers.to_pylist()]
    closed = snapshot_of(rows, closed.partitions.to_pylist())
    sentence = "Broker 4 is empty and cordoned (cordoned.log.dirs): there is nothing to expand to."
    assert no_op_reason(request_of("expand"), closed) == sentence
    for several in (cluster("1a 2b 3c 4a-", "t: 123"), cluster("1a 2b 3c 4a- 5b-", "t: 123", "dead: 5/1")):
        assert no_op_reason(request_of("drain", brokers=[4]), several) == "Broker 4 already holds no replica."
    assert no_op_reason(request_of("drain", brokers=[4]), cluster("1a 2b 3c 4a-", "t: 124")) == ""


def test_a_relief_needs_a_volume_above_its_threshold_and_names_the_fullest() -> None:
    unknown = "Kafka reports the size of no log directory's volume, which it does from version 3.3 on."
    assert no_op_reason(request_of("relieve"), WHOLE) == unknown
    rows = [
        {"broker": 1, "state": "live", "disk_total": [100, 100], "disk_used": [70, 86]},
        {"broker": 2, "state": "live", "disk_total": [0], "disk_used": [0]},
    ]
    snapshot = snapshot_of(rows, [])
    assert no_op_reason(request_of("relieve"), snapshot) == ""
    fullest = "No volume is used above 90%: the fullest one, of broker 1, to 86%."
    assert no_op_reason(request_of("relieve", max_used=0.9), snapshot) == fullest


def test_a_snapshot_says_which_log_directory_a_replica_is_in_where_a_broker_has_several(tmp_path: Path) -> None:
    simulator = Simulator.of("1a 2b 3a", "t: 12 31 23", size=40)
    simulator.disks[1] = {"/disk-1": 100, "/disk-2": 100}
    simulator.located[T1, 1] = "/disk-2"
    take_snapshot(simulator, str(tmp_path), failed=(), now_ms=1)
    snapshot = read_snapshot(str(tmp_path))
    assert snapshot.partitions["log_dirs"].to_pylist() == [[0, 0], [0, 1], None]
    assert snapshot.brokers["disk_used"].to_pylist()[0] == [40, 40]
    plan = planned(snapshot, "relieve", {"max_used": 0.3, "max_moves": 1})
    assert check(snapshot, plan).problems == []
    assert [row["after"] for row in plan.rows.to_pylist()] == [[3, 2]]


def test_what_a_plan_breaks_is_named() -> None:
    rows = cluster("1a 2b 3c 4a", "t: 123 12")
    with_min_isr = rows.partitions.set_column(rows.partitions.schema.get_field_index("min_isr"), "min_isr", [[2, 2]])
    snapshot = type(rows)(rows.cluster_id, rows.taken_ms, rows.digest, rows.brokers, with_min_isr)
    moves = [move("t-0", "123", "143"), move("t-1", "12", "1"), move("t-0", "123", "321"), move("t-1", "14", "41")]
    assert constraint_regressions(moves, snapshot) == [
        "t-0 will be on 2 racks instead of 3.",
        "t-1 will have 1 replica instead of 2.",
        "t-1 will have fewer replicas than min.insync.replicas, 2: producers with acks=all will fail.",
    ]
    assert constraint_regressions(moves[1:2], rows) == ["t-1 will have 1 replica instead of 2."], (
        "min.insync.replicas is unknown"
    )
    emptied = cluster("1a 2b 3c- 4a", "t: 123")
    (sentence,) = constraint_regressions([move("t-0", "123", "124")], emptied)
    assert sentence == "t-0 will be on 2 racks instead of 3: 2 racks have a broker for it.", (
        "the rack rule is not broken"
    )


def test_what_a_plan_does_to_one_broker_is_named_before_what_it_does_to_partitions() -> None:
    wide = cluster("1a 2a 3b 4b", "t: 12 21 31 41", "few: 12 21 31", "same: 12 12 12 12")
    brokers = pa.Table.from_pylist(
        [row | {"room": [10**9], "disk_total": [10**4], "disk_used": [4000]} for row in wide.brokers.to_pylist()],
        wide.brokers.schema,
    )
    targets = {"t": "42 42 43 41", "few": "42 42 43", "same": "12 12 12 12"}
    document = {
        "version": 1,
        "partitions": [
            {"topic": topic, "partition": number, "replicas": [int(digit) for digit in word]}
            for topic, words in targets.items()
            for number, word in enumerate(words.split())
        ],
    }
    snapshot = replace(wide, brokers=brokers)
    plan = planned(snapshot, "apply", {"reassignment": document})
    assert constraint_regressions(plan.moves, snapshot)[:3] == [
        "Broker 4 will be the preferred leader of all 4 partitions of t.",
        "Broker 4 will hold 7 replicas: the mean of rack b is 4.",
        "A disk of broker 4 may become 100 % full: it has 10.0 kB.",
    ]
    assert not [line for line in constraint_regressions(plan.moves, snapshot)[1:] if "preferred leader" in line]


def test_a_broker_far_above_the_mean_of_its_rack_is_named() -> None:
    snapshot = cluster("1a 2a 3b 4b", "t: 1 1 2 2 3 4 3 4")
    document = {
        "version": 1,
        "partitions": [{"topic": "t", "partition": number, "replicas": [1]} for number in (2, 3)],
    }
    plan = planned(snapshot, "apply", {"reassignment": document})
    assert constraint_regressions(plan.moves, snapshot) == ["Broker 1 will hold 4 replicas: the mean of rack a is 2."]


def test_the_review_of_a_drain_tells_what_is_on_its_brokers_from_what_evens_out() -> None:
    snapshot = cluster("1 2 3 4-", "t: " + "12 " * 11 + "41")
    plan = planned(snapshot, "drain", EVEN)
    row = ("of these", "1 replica is on broker 4; 7 more even out")
    assert row in plan_tables(plan, snapshot).costs
    assert "| of these | 1 replica is on broker 4; 7 more even out |" in plan_summary(plan, snapshot)
    assert row[0] not in dict(plan_tables(planned(snapshot, "rebalance"), snapshot).costs)


def test_notes_name_a_lost_rack_and_the_first_broker_of_a_rack() -> None:
    zone = "All brokers of rack a are down: each of 9 partitions will have two copies in one rack."
    parts = " ".join(f"{1 + n % 3}{4 + n % 3}{7 + n % 3}" for n in range(9))
    lost = "1a! 2a! 3a! 4b 5b 6b 7c 8c 9c"
    alone = "Broker 5 will hold a replica of all 8 partitions: it is alone in rack c."
    pairs = "t: " + "123 234 341 412 " * 2
    for brokers, topics, operation, options, notes in (
        (lost, f"t: {parts}", "heal", {}, [zone]),
        (lost.replace("3a!", "3a"), f"t: {parts}", "heal", {}, [alone.replace("5", "3").replace("8", "9")[:-2] + "a."]),
        (lost, "t: 14 15", "heal", {}, []),
        (lost, f"t: {parts}", "heal", {"rack_aware": False}, []),
        ("1a 2b 3a 4b 5c+", pairs, "expand", {}, [alone]),
        ("1a 2b 3a 4b 5c+", "t: 12 23 34 41", "expand", {}, []),
        ("1a 2b 3c", "t: 12 23 31", "set-replication-factor", {"topics": ["t"], "replication_factor": 3}, []),
    ):
        for rows in (SHARD_ROWS, 3):
            assert planned(cluster(brokers, topics), operation, options, rows).proof["notes"] == notes


DOCUMENT = {
    "version": 1,
    "partitions": [
        {"topic": "t", "partition": 1, "replicas": [3, 1]},
        {"topic": "t", "partition": 0, "replicas": [1, 2]},
    ],
}
SNAPSHOT = look("12", part("t-0", "17"), part("t-1", "12"), fenced="3")


@pytest.mark.parametrize("document", [DOCUMENT, json.dumps(DOCUMENT)], ids=["parsed", "text"])
def test_a_document_is_read_parsed_or_as_text(document: Any) -> None:
    assert parse_assignments(document)[0] == {TopicPartition("t", 1): (3, 1), TopicPartition("t", 0): (1, 2)}


def test_a_document_is_read_with_the_directories_that_it_names_and_as_kafkas_tool_printed_it() -> None:
    named = {(TopicPartition("t", 0), 1): DISKS[0], (TopicPartition("t", 0), 2): DISKS[1]}
    for document in (CURRENT["4.3"], execute_output("4.3")):
        assert parse_assignments(document) == ({TopicPartition("t", 0): (1, 2)}, named)
    with pytest.raises(PlanError, match=r"^The reassignment has two assignments, in the lines 2 and 5; keep one"):
        parse_assignments(generate_output("4.3"))


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        ("[", "is not JSON: Expecting value: line 1 column 2 (char 1); paste a file of kafka-reassign-partitions."),
        ("{}", 'lists no partition; it should be {"version": 1, "partitions": [...]}.'),
        ({}, 'lists no partition; it should be {"version": 1, "partitions": [...]}.'),
    ],
)
def test_what_cannot_be_read_is_refused_with_a_sentence(document: Any, sentence: str) -> None:
    with pytest.raises(PlanError) as refused:
        parse_assignments(document)
    assert str(refused.value) == f"The reassignment {sentence}"


LIVE = "; live are 1, 2."


@pytest.mark.parametrize(
    ("given", "faults"),
    [
        ({TopicPartition("u", 0): (1, 2)}, "The reassignment names the topic u, which the cluster does not have."),
        ({TopicPartition("t", 0): (1, 3, 2)}, f"The reassignment of t-0 is refused: broker 3 is not live{LIVE}"),
        ({TopicPartition("t", 0): (7, 2)}, f"The reassignment of t-0 is refused: broker 7 is not live{LIVE}"),
        ({TopicPartition("t", 0): (1, 9)}, f"The reassignment of t-0 is refused: the cluster has no broker 9{LIVE}"),
        (
            {TopicPartition("u", 0): (3, 9), TopicPartition("t", 9): (1,), TopicPartition("t", 1): (3,)},
            (
                f"The reassignment of t-1 is refused: broker 3 is not live{LIVE} The reassignment names the partition "
                "t-9, which the cluster does not have. The reassignment names the topic u, which the cluster does not "
                "have."
            ),
        ),
        (
            {TopicPartition(topic, n): (1,) for topic in "uvwxyza" for n in range(2)},
            " ".join(f"The reassignment names the topic {topic}, which the cluster does not have." for topic in "auvwx")
            + " And 2 more.",
        ),
    ],
)
def test_what_the_cluster_cannot_do_is_refused_by_fault(given: dict[TopicPartition, Assignment], faults: str) -> None:
    with pytest.raises(PlanError) as refused:
        validate_against_cluster(given, SNAPSHOT, {})
    assert str(refused.value) == faults


def test_a_dead_broker_is_no_fault_where_the_plan_leaves_the_partition_as_it_is() -> None:
    name = TopicPartition("t", 0)
    validate_against_cluster({name: (2, 1), TopicPartition("t", 1): (1,)}, SNAPSHOT, {"t": 1})
    lost = look("12", part("t-0", "3", isr=""), part("t-1", "12"), fenced="3")
    validate_against_cluster({name: (3, 1), TopicPartition("t", 1): (1,)}, lost, {})
    validate_against_cluster({name: (1, 7)}, SNAPSHOT, {})
    validate_against_cluster({name: (7, 1)}, SNAPSHOT, {})  # Kafka changes an order at once
    with pytest.raises(PlanError, match="t-0 is refused: broker 7 is not live"):
        validate_against_cluster({name: (7,)}, SNAPSHOT, {})


def test_fewer_replicas_than_min_insync_replicas_are_refused_unless_there_are_as_few_already() -> None:
    name, least = TopicPartition("t", 1), {"t": 3}
    validate_against_cluster({name: (1, 2)}, SNAPSHOT, least)  # as it is
    validate_against_cluster({name: (2, 1)}, SNAPSHOT, least)
    with pytest.raises(PlanError) as refused:
        validate_against_cluster({name: (1,)}, SNAPSHOT, least)
    assert str(refused.value) == (
        "The reassignment of t-1 is refused: it would go from 2 to 1 replica, and min.insync.replicas is 3; ask for "
        "more replicas, or lower min.insync.replicas of its topic."
    )


def test_a_cordoned_broker_receives_nothing_and_what_moves_already_is_not_moved_again() -> None:
    name = TopicPartition("t", 1)
    validate_against_cluster({name: (2, 1)}, SNAPSHOT, {}, cordoned=[1, 2])
    with pytest.raises(PlanError, match="t-0 is refused: broker 2 is cordoned and receives no replicas; remove its"):
        validate_against_cluster({TopicPartition("t", 0): (2,)}, SNAPSHOT, {}, cordoned=[2])
    moving = look("123", part("t-1", "123", adding="3", removing="1"))
    with pytest.raises(PlanError, match=r"^The partition t-1 is already being reassigned; wait until that has"):
        validate_against_cluster({name: (2, 1)}, moving, {})


def test_given_values_are_kept_and_the_others_are_unset() -> None:
    given = {"operation": "drain", "brokers": [4, 5], "exclude": ("pay_.*",), "rack_aware": False, "max_moves": 3}
    assert RebalanceRequest.of(given) == request_of(
        "drain", brokers=[4, 5], exclude=("pay_.*",), rack_aware=False, max_moves=3
    )


@pytest.mark.parametrize("empty", [None, [], ()])
def test_a_list_may_be_none_or_empty_and_another_field_none(empty: list[str] | None) -> None:
    lists = dict.fromkeys(("brokers", "topics", "exclude", "exclude_brokers"), empty)
    others = dict.fromkeys(("replication_factor", "rack_aware", "balance", "tolerance", "max_bytes"))
    assert RebalanceRequest.of({"operation": "expand", **lists, **others}) == request_of("expand")


def test_an_unknown_field_is_refused_with_all_valid_ones() -> None:
    with pytest.raises(SettingError) as refused:
        RebalanceRequest.of({"operation": "rebalance", "broker": [4]})
    assert str(refused.value) == (
        "Unknown rebalance option 'broker'. Valid options: operation, brokers, replication_factor, topics, exclude, "
        "exclude_brokers, rack_aware, rackless, balance, topic_spread, compare_spreads, max_used, tolerance, prefer, "
        "internal_topics, "
        "max_moves, max_bytes."
    )


T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Asked(Simulator):
    """A cluster that counts the questions for log directories; every replica is in /disk-1."""

    asked: tuple[tuple[int, ...], ...] = ()

    def log_dirs(self, brokers: Collection[int]) -> dict[int, BrokerLogDirs]:
        self.asked += (tuple(brokers),)
        return super().log_dirs(brokers)


@pytest.fixture
def asked() -> Asked:
    return Asked(dict(zip((1, 2, 3, 4), "abca", strict=True)), {"t": [(1, 2, 3), (2, 3, 1)]})


def checked(asked: Simulator, named: dict[tuple[TopicPartition, int], str]) -> str:
    return check_directories(asked, asked.snapshot(), named)


def test_the_directory_in_which_a_broker_holds_the_replica_asks_for_nothing(asked: Asked) -> None:
    assert checked(asked, {(T0, 1): "/disk-1", (T1, 3): "/disk-1"}) == ""
    assert asked.asked == ((1, 3),)


def test_the_directory_of_an_added_replica_is_the_brokers_choice(asked: Asked) -> None:
    assert checked(asked, {(T0, 4): "/disk-2", (T0, 1): "/disk-1"}) == (
        'The reassignment names a log directory (KIP-113) for t-0 on broker 4; it is taken as "any": the broker '
        "chooses the directory of a replica that it does not hold."
    )
    many = {(TopicPartition("t", number), 4): "/disk-1" for number in range(5)}
    assert "for t-0 on broker 4, t-1 on broker 4, t-2 on broker 4 and 2 more; it is" in checked(asked, many)


def test_brokers_are_asked_only_for_replicas_that_they_hold(asked: Asked) -> None:
    assert held_directories(asked, asked.snapshot(), ()) == {}
    assert held_directories(asked, asked.snapshot(), [(T0, 4), (TopicPartition("u", 0), 1)]) == {}
    assert asked.asked == ()


def test_a_move_between_the_directories_of_a_broker_is_refused(asked: Asked) -> None:
    with pytest.raises(PlanError) as refused:
        checked(asked, {(T0, 4): "/disk-2", (T0, 1): "/disk-1", (T1, 2): "/disk-2"})
    assert str(refused.value) == (
        'The reassignment is refused: it names the log directory "/disk-2" (KIP-113) for t-1 on broker 2, which has it '
        'in "/disk-1", and Kafka Steward moves nothing between the directories of one broker; write "any", or use '
        "kafka-reassign-partitions."
    )


def test_a_replica_that_is_being_added_or_that_nobody_reports_has_no_other_directory(asked: Asked) -> None:
    asked.alter({T0: (1, 2, 4)})
    asked.mute.add(2)
    asked.kill(3)
    assert held_directories(asked, asked.snapshot(), [(T0, 4), (T1, 2), (T1, 3), (T1, 1)]) == {(T1, 1): "/disk-1"}


@pytest.mark.parametrize(
    ("text", "found"), [("", {}), ("  ", {}), ("4=2", {4: 2.0}), ("4=2, 5 = 0.5,10=1", {4: 2.0, 5: 0.5, 10: 1.0})]
)
def test_a_capacity_belongs_to_each_broker_that_is_named(text: str, found: dict[int, float]) -> None:
    assert parse_capacities(text) == found


NUMBERS = "The setting capacity gives broker 4 '{}'; it takes numbers from 0.001 to 1000000, such as 2 for a "


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("4", "The setting capacity has '4'; it takes 4=2, 5=0.5."),
        ("4=2,", "The setting capacity has ''; it takes 4=2, 5=0.5."),
        ("b4=2", "The setting capacity has 'b4=2'; it takes 4=2, 5=0.5."),
        ("4=2, 4=3", "The setting capacity names broker 4 twice; keep one."),
        ("4=0", NUMBERS.format("0")),
        ("4=nan", NUMBERS.format("nan")),
        ({"4": "x"}, NUMBERS.format("x")),
        ({"four": 2}, "The setting capacity has 'four=2'; it takes 4=2, 5=0.5."),
    ],
)
def test_what_is_no_capacity_is_refused(given: Any, problem: str) -> None:
    for read in (Settings.of, Settings.refuse_wrong):
        with pytest.raises(SettingError) as refused:
            read({"capacity": given})
        assert str(refused.value).startswith(problem)


def test_a_connection_may_have_a_map() -> None:
    assert parse_capacities(Settings.of({"capacity": {"4": 2, "5": 0.5}}).capacity) == {4: 2.0, 5: 0.5}
    assert Settings.of({"capacity": "4=2"}, {"capacity": {"4": 9}}).capacity == "4=2"


def test_the_form_takes_what_the_setting_takes() -> None:
    import re

    taken = ["", "4=2", "4=2, 5=0.5"]
    pattern = str(SETTINGS["capacity"].pattern)
    assert all(re.fullmatch(pattern, text) for text in taken)
    assert not any(re.fullmatch(pattern, text) for text in ("4", "4=-2", "4=2,"))


def test_a_broker_of_twice_the_capacity_gets_twice_the_replicas(tmp_path: Path) -> None:
    simulator = Simulator.of("1a 2b 3c", "orders: " + " ".join("12312312"))
    take_snapshot(simulator, str(tmp_path / "plain"), failed=(), now_ms=1)
    take_snapshot(simulator, str(tmp_path / "weighted"), failed=(), now_ms=1, capacities={3: 2.0, 99: 5.0})
    plain, weighted = (read_snapshot(str(tmp_path / name)) for name in ("plain", "weighted"))
    assert plain.brokers["capacity"].to_pylist() == [None, None, None]
    assert weighted.brokers["capacity"].to_pylist() == [1.0, 1.0, 2.0]
    plan = planned(weighted, "rebalance")
    assert plan.proof["spread"]["replicas"]["after"]["by_broker"] == {"1": 2, "2": 2, "3": 4}
    assert plan.proof["leader_evenness"] == "proportional"
    assert (check(weighted, plan).problems, check(weighted, plan).unproven) == ([], ())


def test_a_snapshot_has_states_sizes_and_what_moves(tmp_path: Path) -> None:
    simulator = Simulator.of("1a 2b 3c 4a 5b 6c", "t: 123 234", "u: 35", size=70)
    simulator.topic_settings["t"]["min.insync.replicas"] = "2"
    for broker in (1, 5):
        simulator.kill(broker)
    simulator.alter({TopicPartition("t", 1): (2, 3, 6)})
    digest = take_snapshot(simulator, str(tmp_path / "s"), failed=[1, 4], now_ms=7)
    snapshot = read_snapshot(str(tmp_path / "s"))
    assert (snapshot.digest, snapshot.cluster_id, snapshot.taken_ms) == (digest, "simulated", 7)
    states = {row["broker"]: (row["rack"], row["state"]) for row in snapshot.brokers.to_pylist()}
    assert states == {
        1: ("a", "failed"),
        2: ("b", "live"),
        3: ("c", "live"),
        4: ("a", "live"),  # said to have failed, and back again
        5: ("b", "down"),  # gone, and not failed yet
        6: ("c", "live"),
    }
    rows = {(row["topic"], row["partition"]): row for row in snapshot.partitions.to_pylist()}
    assert (rows["t", 0]["bytes"], rows["t", 0]["min_isr"], rows["t", 0]["target_rf"]) == (70, 2, 3)
    moving = rows["t", 1]
    assert (moving["adding"], moving["removing"], moving["target_rf"]) == ([6], [4], 3)
    assert (rows["u", 0]["replicas"], rows["u", 0]["isr"], rows["u", 0]["leader"]) == ([3, 5], [3], 3)


def test_a_partition_whose_brokers_are_all_gone_has_no_leader_and_no_size(tmp_path: Path) -> None:
    simulator = Simulator.of("1a 2b 3c", "t: 12")
    simulator.kill(1)
    simulator.kill(2)
    take_snapshot(simulator, str(tmp_path / "s"), failed=[1, 2], now_ms=7)
    row = read_snapshot(str(tmp_path / "s")).partitions.to_pylist()[0]
    assert (row["leader"], row["bytes"], row["all_offline"]) == (-1, None, True)


@pytest.mark.parametrize("failed", [[], [2]])
def test_a_partition_has_no_live_replica_if_all_are_on_dead_brokers_or_failed_disks_whatever_is_to_be_healed(
    tmp_path: Path, failed: list[int]
) -> None:
    simulator = Simulator.of("1a 2b 3c", "t: 12 2 3 23 13", "u: 3")
    simulator.fail_disk(3, TopicPartition("t", 2), TopicPartition("t", 3))
    simulator.kill(2)
    take_snapshot(simulator, str(tmp_path / "s"), failed=failed, now_ms=7)
    rows = read_snapshot(str(tmp_path / "s")).partitions.to_pylist()
    found = {f"{row['topic']}-{row['partition']}" for row in rows if row["all_offline"]}
    assert found == {"t-1", "t-2", "t-3"}
    assert {row["all_offline"] for row in rows} == {None, True}
