"""What the checker says of a plan as a whole: its head, order, sums and completeness, and what is not proven."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kafka_steward.assignment import Move, Operation
from kafka_steward.planning.checker.check import (
    DiskLoads,
    EvennessFindings,
    Findings,
    PlanVerdict,
    broker_state_problems,
    check,
    check_topics,
    combine_findings,
    header_problems,
    order_problems,
    verdict,
)
from kafka_steward.planning.checker.leaders import LeaderCounts
from kafka_steward.planning.files.formats import SnapshotFolder, plan_table
from tests.builders import cluster, plan_with, planned, snapshot_of
from tests.planning.manual_plans import move, plan_of

TWO = cluster("1 2", "t: 1 1")
BUDGET = "A plan within a budget leaves the cluster uneven; that no other leaves less to do is not proven."
NO_PRICE = "The proof has no price for every broker, and none were found: nothing was proven."
BOUND = "The proof's lower bound 1 is above the 0 replicas that the plan moves."
UNEVEN = ["The topic t is not even.", "The cluster is uneven: a broker is beyond its fair share."]


def judged(
    snapshot: SnapshotFolder, operation: str, options: dict[str, Any], *moves: str | Move, **proof: Any
) -> tuple[list[str], tuple[str, ...]]:
    """Problems, and what is not proven."""
    found = check(snapshot, plan_of(snapshot, operation, options, *moves, **proof))
    assert found.ok == (not found.problems)
    return found.problems, found.unproven


@pytest.mark.parametrize("operation", [operation.value for operation in Operation])
def test_a_head_fits_its_snapshot(operation: str) -> None:
    head = {"cluster_id": "c", "snapshot_digest": "d", "operation": operation}
    assert header_problems("c", "d", head) == []
    assert header_problems("e", "d", head) == ["The plan is for cluster c, not for e."]
    assert header_problems("c", "e", head) == ["The plan was made from another snapshot."]
    assert header_problems("c", "d", {**head, "operation": f"{operation}s"}) == [
        f"There is no operation '{operation}s'."
    ]


@pytest.mark.parametrize(
    ("proof", "problems"),
    [
        ({}, []),
        ({"brokers_failed": [1, 4]}, ["The proof says brokers_failed = [1, 4]; the snapshot says [4]."]),
        ({"brokers_failed": None}, ["The proof says brokers_failed = []; the snapshot says [4]."]),
        (
            {"brokers_failed": [3], "brokers_draining": [4, 3]},
            [
                "The proof says brokers_failed = [3]; the snapshot says [4].",
                "The proof says brokers_draining = [4, 3]; the snapshot says [3].",
            ],
        ),
    ],
)
def test_a_plan_is_for_the_brokers_that_failed_and_those_that_are_drained(
    proof: dict[str, Any], problems: list[str]
) -> None:
    snapshot = cluster("1 2 3- 4!", "t: 14")
    assert judged(snapshot, "heal", {}, move(snapshot, "t-0 12", purpose="broker_failed"), **proof)[0] == problems
    said = {"brokers_failed": [4], "brokers_draining": [3], **proof}
    assert broker_state_problems(snapshot.brokers, said) == problems


def test_validity_is_checked_without_minimality(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = cluster("1 2 3+", "t: 12 21 12", "u: 21 12 21")
    plan = planned(snapshot, "expand")
    assert check(snapshot, plan) == PlanVerdict(ok=True, problems=[])
    assert check(snapshot, plan, proven=False) == PlanVerdict(ok=True, problems=[], unproven=(NO_PRICE,))
    for dear in ("add_prices", "unproven_topics"):
        monkeypatch.setattr(f"kafka_steward.planning.checker.check.{dear}", None)
    for changes in ({"bytes_moved": 0}, {"leader_changes": 9}, {"lower_bound": 99}, {"brokers_failed": [1]}):
        found = check(snapshot, replace(plan, proof={**plan.proof, **changes}), proven=False)
        assert (found.ok, len(found.problems)) == (False, 1)
    with pytest.raises(TypeError, match="not callable"):
        check(snapshot, plan)
    nothing = dict.fromkeys(("replicas_moved", "bytes_moved", "leader_changes", "lower_bound"), 0)
    uneven = plan_with(plan.digest, {**plan.proof, **nothing}, [])
    assert UNEVEN[1] in check(snapshot, uneven, proven=False).problems


def test_a_head_without_anything_fits_nothing() -> None:
    problems = [
        "The plan is for cluster None, not for c.",
        "The plan was made from another snapshot.",
        "There is no operation None.",
    ]
    assert header_problems("c", "d", {}) == problems
    assert judged(TWO, "none", {}, "t-0 2", cluster_id="x", snapshot_digest="x") == (
        ["The plan is for cluster x, not for c.", *problems[1:2], "There is no operation 'none'."],
        (),
    )


COUNT = "Chunks and positions do not count through the plan in chunks of {}."


@pytest.mark.parametrize(
    ("options", "places", "problems"),
    [
        ({"chunk_size": 2}, [(0, 0), (0, 1), (1, 0)], []),
        ({"chunk_size": 1}, [(0, 0), (1, 0), (2, 0)], []),
        ({"chunk_size": 50}, [(0, 0), (0, 1), (0, 2)], []),
        ({}, [(0, 0), (0, 1), (0, 2)], []),
        (None, [(0, 0), (0, 1), (0, 2)], []),
        (None, [], []),
        ({"chunk_size": 2}, [(0, 0), (0, 1), (0, 2)], [COUNT.format(2)]),
        ({"chunk_size": 2}, [(0, 0), (0, 1), (1, 1)], [COUNT.format(2)]),
        ({"chunk_size": 2}, [(0, 0), (0, 1), (2, 0)], [COUNT.format(2)]),
        ({}, [(0, 0), (0, 1), (1, 0)], [COUNT.format(3)]),
    ],
)
def test_chunks_count_through_a_plan(
    options: dict[str, Any] | None, places: list[tuple[int, int]], problems: list[str]
) -> None:
    snapshot = cluster("1 2", "t: 1 1 1")
    rows = [move(snapshot, f"t-{at} 2", chunk=chunk, position=place) for at, (chunk, place) in enumerate(places)]
    assert order_problems(snapshot.partitions, plan_table(rows), {"options": options}) == problems


LATE = "{} has fewer in-sync replicas than {} and comes after it."


@pytest.mark.parametrize(
    ("order", "problems"),
    [
        (["t-0", "u-0", "t-1", "t-2", "u-1"], []),
        (["u-0", "t-0", "t-2", "t-1", "u-1"], []),
        (["t-2", "t-0"], [LATE.format("t-0", "t-2")]),
        (["t-0", "t-1", "u-0"], [LATE.format("u-0", "t-1")]),
        # The first is enough; what is no row of the snapshot is named elsewhere.
        (["u-1", "t-1", "t-0"], [LATE.format("t-1", "u-1")]),
        (["t-2", "v-0", "t-0"], [LATE.format("t-0", "t-2")]),
        (["v-0"], []),
    ],
)
def test_those_nearest_to_losing_data_come_first(order: list[str], problems: list[str]) -> None:
    snapshot = cluster("1 2 3 4", "t: 123/1 123/12 123/12", "u: 123/1 123")
    other = move(snapshot, "t-0 4", topic="v")
    rows = [
        replace(other if name == "v-0" else move(snapshot, f"{name} 4"), position=at) for at, name in enumerate(order)
    ]
    assert order_problems(snapshot.partitions, plan_table(rows), {}) == problems


def checked(snapshot: SnapshotFolder, moves: list[Move], proof: dict[str, Any]) -> Findings:
    return check_topics(snapshot.brokers, snapshot.partitions, moves, plan_table(moves), proof)


def test_some_topics_are_checked_for_problems_and_sums_of_moves() -> None:
    brokers = cluster("1 2 3 4", "t: 1").brokers.to_pylist()
    rows = [
        {"topic": "t", "partition": 0, "replicas": [1, 2], "bytes": 10},
        {"topic": "t", "partition": 1, "replicas": [1, 2], "bytes": None},
        {"topic": "t", "partition": 2, "replicas": [1, 2], "bytes": 100},
    ]
    snapshot = snapshot_of(brokers, rows)
    moves = [move(snapshot, text) for text in ("t-0 34", "t-1 13", "t-2 12")]
    loads = DiskLoads({1: 110, 2: 110}, {1: 100, 2: 100, 3: 10, 4: 10}, 0)
    counts = LeaderCounts({"3": 1, "1": 2}, {"3": 1, "1": 2}, {"3 4": 1, "1 3": 1, "1 2": 1})
    found = Findings(["t-2: it changes nothing."], 3, 20, 1, loads, None, counts)
    assert checked(snapshot, moves, {"operation": "rollback"}) == found
    held, placed = {1: 3, 2: 3, 3: 0, 4: 0}, {1: 2, 2: 1, 3: 2, 4: 1}
    even = EvennessFindings([], [], held, placed, factors={2: 3}, unproven_topics=[])
    proof = {"operation": "rebalance"}
    assert checked(snapshot, moves, proof) == replace(found, evenness=even)


def test_evenness_is_not_checked_for_rows_without_an_outcome() -> None:
    proof = {"operation": "rebalance", "options": {}}
    once = move(TWO, "t-1 2")
    twice = checked(TWO, [once, once], proof)
    assert (twice.problems, twice.evenness) == (["t-1 is in the plan twice."], None)
    nowhere = checked(TWO, [once, replace(once, topic="v")], proof)
    assert (nowhere.problems, nowhere.evenness) == (["v-1: it is not in the snapshot."], None)
    other = move(TWO, "t-0 2")
    both = checked(TWO, [once, other, once, other], proof)
    assert both.problems == ["t-1 is in the plan twice."]


def test_within_a_budget_wrongly_moved_partitions_are_reported() -> None:
    snapshot = cluster("1a 2a 3b", "t: 13")
    found = checked(snapshot, [move(snapshot, "t-0 12")], {"operation": "drain", "options": {"max_moves": 1}})
    assert found.problems == ["A partition of t moves, and ends up on the wrong racks or number of brokers."]


def test_the_findings_of_all_topics_are_the_sums_of_theirs() -> None:
    one = Findings(["a"], 1, 10, 100, DiskLoads({1: 1}, {}, 2), None, LeaderCounts({"1": 1}, {}, {"1 2": 1}))
    even = EvennessFindings(["x"], [], {1: 1}, {1: 2, 2: 0}, {1: 1}, ["t"])
    counts = LeaderCounts({"1": 2, "3": 1}, {"3": 1}, {"1 2": 1, "2 1": 3})
    other = Findings(["b", "c"], 2, 20, 200, DiskLoads({1: 5}, {2: 1}, 3), even, counts)
    loads = DiskLoads({1: 6}, {2: 1}, 5)
    summed = LeaderCounts({"1": 3, "3": 1}, {"3": 1}, {"1 2": 2, "2 1": 3})
    assert combine_findings([one, other]) == Findings(["a", "b", "c"], 3, 30, 300, loads, None, summed)
    doubled = EvennessFindings(["x", "x"], [], {1: 2}, {1: 4, 2: 0}, {1: 2}, ["t", "t"])
    assert combine_findings([other, other]).evenness == doubled


@pytest.mark.parametrize(
    ("wrong", "problems"),
    [
        ({}, []),
        ({"replicas_moved": 2}, ["The proof says replicas_moved = 2; the rows say 1."]),
        ({"bytes_moved": None}, ["The proof says bytes_moved = None; the rows say 1000."]),
        ({"leader_changes": 0}, ["The proof says leader_changes = 0; the rows say 1."]),
        ({"lower_bound": 0}, ["A heal moves lost replicas only; this one moves 1 for 0."]),
        (
            {"lower_bound": 2},
            [
                "The proof's lower bound 2 is above the 1 replicas that the plan moves.",
                "A heal moves lost replicas only; this one moves 1 for 2.",
            ],
        ),
        (
            {"lower_bound": None},
            [
                "The proof's lower bound None is above the 1 replicas that the plan moves.",
                "A heal moves lost replicas only; this one moves 1 for None.",
            ],
        ),
    ],
)
def test_a_proof_says_what_its_rows_add_up_to(wrong: dict[str, Any], problems: list[str]) -> None:
    assert judged(cluster("1! 2 3", "t: 12"), "heal", {}, "t-0 23", **wrong) == (problems, ())


def test_a_bound_below_the_moves_is_no_mistake_of_a_plan_that_is_no_heal() -> None:
    assert judged(TWO, "rebalance", {}, "t-1 2", lower_bound=0) == ([], ())
    assert judged(TWO, "rebalance", {}, "t-1 2", lower_bound=2) == (
        ["The proof's lower bound 2 is above the 1 replicas that the plan moves."],
        (),
    )


@pytest.mark.parametrize(
    ("options", "problems"),
    [
        ({"max_moves": 2, "max_bytes": 2000}, []),
        ({"max_moves": 1}, ["The plan moves 2, beyond max_moves = 1."]),
        ({"max_bytes": 1999}, ["The plan moves 2000, beyond max_bytes = 1999."]),
        ({"max_moves": None, "max_bytes": None}, []),
    ],
)
def test_a_budget_is_kept(options: dict[str, Any], problems: list[str]) -> None:
    snapshot = cluster("1 2", "t: 1 1 1 1")
    assert judged(snapshot, "rebalance", options, "t-1 2", "t-2 2")[0] == problems


def given(*replicas: int) -> dict[str, Any]:
    return {"reassignment": {"partitions": [{"topic": "t", "partition": 0, "replicas": list(replicas)}]}}


def factor(value: int, topic: str = "t") -> dict[str, Any]:
    return {"topics": [topic], "replication_factor": value}


def missing(name: str, replicas: int) -> str:
    return f"{name} has {replicas} replicas, not its target number, and is neither in the plan nor listed."


@pytest.mark.parametrize(
    ("operation", "options", "brokers", "reason", "problems"),
    [
        ("heal", {}, "1! 2 3", None, [missing("t-0", 1)]),
        ("heal", {}, "1 2 3", None, []),
        ("heal", {}, "1! 2", "too_few_brokers", []),
        ("heal", {}, "1! 2 3-", "too_few_brokers", []),
        ("heal", {}, "1! 2 3", "too_few_brokers", ["t-0 is listed as too_few_brokers, and is not."]),
        ("heal", {}, "1! 2! 3 4", "all_replicas_lost", []),
        ("heal", {}, "1! 2 3", "all_replicas_lost", ["t-0 is listed as all_replicas_lost, and is not."]),
        ("heal", {}, "1! 2 3", "in_flight", ["t-0 is listed as in_flight, and is not."]),
        ("heal", {}, "1! 2 3", "pinned", ["t-0 is listed as pinned, and is not."]),
        ("heal", {"pin": ["t-0"]}, "1! 2 3", "pinned", []),
        ("heal", {}, "1! 2 3", "excluded", ["t-0 is listed as excluded, and is not."]),
        ("heal", {"exclude": ["t"]}, "1! 2 3", "excluded", []),
        ("heal", {}, "1! 2 3", "because", ["t-0 is listed as because, and is not."]),
        ("fill", {}, "1! 2 3", None, [missing("t-0", 1)]),
        ("set-replication-factor", factor(3), "1 2 3", None, [missing("t-0", 2)]),
        ("set-replication-factor", factor(1), "1 2 3", None, [missing("t-0", 2)]),
        ("set-replication-factor", factor(2), "1 2 3", None, []),
        ("set-replication-factor", factor(3, "u"), "1 2 3", None, []),
        ("set-replication-factor", factor(1), "1- 2-", "too_few_brokers", []),
        ("apply", given(1, 3), "1 2 3", None, [missing("t-0", 2)]),
        ("apply", given(1, 2), "1 2 3", None, []),
    ],
)
def test_requested_changes_are_in_the_plan_or_listed_with_a_true_reason(
    operation: str, options: dict[str, Any], brokers: str, reason: str | None, problems: list[str]
) -> None:
    listed = [] if reason is None else [{"topic": "t", "partition": 0, "reason": reason}]
    snapshot = cluster(brokers, "t: 12")
    assert judged(snapshot, operation, options, unplaced=listed) == (problems, ())
    assert judged(snapshot, operation, options, pinned=listed) == (problems, ())


def test_of_several_each_that_is_missing_is_named() -> None:
    snapshot = cluster("1! 2 3", "t: 12 13 12 23", "u: 12")
    listed = [{"topic": "t", "partition": 2, "reason": "pinned"}]
    proof = {"operation": "heal", "unplaced": [], "pinned": listed, "options": {"pin": ["t-2"]}}
    found = checked(snapshot, [move(snapshot, "t-0 23")], proof)
    assert found.problems == [missing("t-1", 1), missing("u-0", 1)]
    nothing = checked(snapshot, [], {"operation": "heal"}).problems
    assert nothing == [missing(name, 1) for name in ("t-0", "t-1", "t-2", "u-0")]


@pytest.mark.parametrize(
    ("options", "moves", "proof", "problems", "unproven"),
    [
        ({}, ["t-1 2"], {}, [], ()),
        ({}, ["t-1 2"], {"prices": {"1": 5, "2": 1}}, [], ()),
        ({}, [], {}, UNEVEN, ()),
        ({}, [], {"prices": {"1": 0, "2": 0}}, UNEVEN, ()),
        ({"max_moves": 1}, [], {}, [], (BUDGET,)),
        ({"max_bytes": 1}, [], {}, [], (BUDGET,)),
        ({"max_moves": 1}, [], {"lower_bound": 1}, [BOUND], (BUDGET,)),
        ({"max_moves": 1}, ["t-1 2"], {}, [], ()),
        # No prices are sought for a plan of something else.
        ({}, ["t-1 2"], {"cluster_id": "x"}, ["The plan is for cluster x, not for c."], (NO_PRICE,)),
    ],
)
def test_an_even_plan_is_even_and_proven_unless_a_budget_explains_it(
    options: dict[str, Any], moves: list[str], proof: dict[str, Any], problems: list[str], unproven: tuple[str, ...]
) -> None:
    for operation in ("rebalance", "expand", "drain"):
        assert judged(TWO, operation, options, *moves, **proof) == (problems, unproven)


FULL = "A broker that is not full has a positive price."
FLOOR = "A broker that is above its floor has a negative price."
FEWER = "The topic t may do with fewer moves."


@pytest.mark.parametrize(
    ("prices", "unproven"),
    [
        (None, (NO_PRICE,)),
        ({"1": 0, "2": 0}, (NO_PRICE,)),
        ({"1": 0, "2": 0, "3": 0}, (FEWER,)),
        ({"1": 0, "2": 0, "3": 9}, (FULL, FEWER)),
        ({"1": -9, "2": 0, "3": 0}, (FLOOR, FEWER)),
        ({"1": -9, "2": 0, "3": 9}, (FULL, FLOOR, FEWER)),
    ],
)
def test_a_plan_that_moves_more_than_it_must_is_not_proven(
    prices: dict[str, int] | None, unproven: tuple[str, ...]
) -> None:
    snapshot = cluster("1 2 3", "t: 1 2")
    assert judged(snapshot, "rebalance", {}, "t-0 2", "t-1 1", prices=prices) == ([], unproven)


def test_where_there_is_nothing_to_place_nothing_lacks_a_price() -> None:
    empty = snapshot_of(TWO.brokers.to_pylist(), [])
    assert judged(empty, "rebalance", {}, cluster_id="x") == (["The plan is for cluster x, not for c."], ())


def test_a_drain_leaves_no_replica_beside_those_that_are_due() -> None:
    brokers = [{"broker": one, "state": "draining" if one == 1 else "live"} for one in (1, 2, 3)]
    row = {"topic": "t", "partition": 0, "replicas": [1, 2, 3], "target_rf": 2}
    snapshot = snapshot_of(brokers, [row])
    assert judged(snapshot, "drain", {}) == (["A partition of t keeps a replica on a broker that is to hold none."], ())
    assert judged(snapshot, "drain", {"max_moves": 1}) == ([], (BUDGET,))
    assert judged(snapshot, "drain", {}, "t-0 23") == ([], ())


def test_a_plan_of_bytes_is_judged_by_its_bytes_alone() -> None:
    snapshot = cluster("1 2", "t: 1 1 2", "u: 2")
    assert judged(snapshot, "rebalance", {"balance": "bytes"}) == ([], ())
    assert judged(snapshot, "rebalance", {"balance": "bytes"}, "t-0 2", "t-2 1") == (
        [],
        ("The plan moves 2000 bytes; the fewest that could do are only known to be at least 0.",),
    )
    assert judged(snapshot, "rebalance", {"balance": "bytes"}, "t-0 2")[1] == (
        "The disks of these brokers stay out of the tolerance, and it is not proven that they must: 1, 2.",
        "The plan moves 1000 bytes; the fewest that could do are only known to be at least 0.",
    )


def test_what_promises_no_evenness_is_not_asked_for_it() -> None:
    loads = DiskLoads({}, {}, 0)
    sums = {"replicas_moved": 1, "bytes_moved": 2, "leader_changes": 3, "lower_bound": 1}
    even = EvennessFindings([], ["uneven"], {1: 9, 2: 0}, {1: 9, 2: 0}, {1: 9}, ["t"])
    brokers = snapshot_of([{"broker": one, "state": "live"} for one in (1, 2)], []).brokers
    for operation in ("heal", "fill", "set-replication-factor", "apply", "rollback"):
        found = Findings([], 1, 2, 3, loads, even)
        assert verdict(
            brokers, {**sums, "operation": operation, "options": {"balance": "bytes"}}, found
        ) == PlanVerdict(True, [])
    # Where rows lead nowhere, what is wrong was said, and evenness was not judged.
    wrong = Findings(["wrong"], 1, 2, 3, loads, None)
    assert verdict(brokers, {**sums, "operation": "drain"}, wrong) == PlanVerdict(False, ["wrong"])


def test_an_excluded_broker_makes_fair_shares_a_soft_constraint() -> None:
    snapshot = cluster("1 2 3", "t: 1 1 2")
    asked = {"exclude_brokers": [3]}
    assert judged(snapshot, "rebalance", asked) == ([], ())
    assert judged(snapshot, "rebalance", asked, "t-2 1", prices={"1": 0, "2": 0, "3": 0})[0] == []
    assert judged(snapshot, "rebalance", asked, "t-2 1", prices={"1": 0, "2": 0, "3": 0})[1] != ()
