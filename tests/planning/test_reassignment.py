"""Set-replication-factor and apply, and the files of kafka-reassign-partitions."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafka_steward.assignment import TopicPartition
from kafka_steward.errors import PlanError
from kafka_steward.planning.checker.check import check
from kafka_steward.planning.files.formats import PlanFolder, SnapshotFolder
from kafka_steward.planning.files.reassignment import (
    find_assignment,
    parse_directories,
    parse_reassignment,
    read_assignment,
    reassignment_json,
    snapshot_tables,
)
from tests.builders import cluster, plan_with, planned, snapshot_of
from tests.planning.manual_plans import move
from tests.rings import tried
from tests.strategies import clusters
from tests.tool_output import CURRENT, PROPOSED, execute_output, generate_output

SLOW = settings(deadline=None, max_examples=tried(40), suppress_health_check=[HealthCheck.too_slow])


def after(plan: PlanFolder) -> dict[str, list[int]]:
    return {str(move.topic_partition): list(move.after) for move in plan.moves}


def document(**partitions: list[int]) -> dict[str, Any]:
    entries = [{"topic": name[0], "partition": int(name[1:2]), "replicas": ids} for name, ids in partitions.items()]
    return {"version": 1, "partitions": entries}


def test_more_replicas_go_where_racks_and_load_want_them() -> None:
    snapshot = cluster("1a 2b 3c 4a", "t: 12 42", "other: 12")
    plan = planned(snapshot, "set-replication-factor", {"replication_factor": 3, "topics": ["t"]})
    assert after(plan) == {"t-0": [1, 2, 3], "t-1": [4, 2, 3]}
    assert {move.purpose for move in plan.moves} == {"replication_factor"}


def test_a_replica_on_a_broker_that_is_down_counts_as_none_and_leaves() -> None:
    snapshot = cluster("1 2 3 4 8?", "t: 18/1 812/12 12")
    plan = planned(snapshot, "set-replication-factor", {"replication_factor": 3, "topics": ["t"]})
    assert all(len(replicas) == 3 and 8 not in replicas for replicas in after(plan).values())
    assert plan.proof["replicas_moved"] == plan.proof["lower_bound"] == 2 + 1 + 1
    assert check(snapshot, plan).problems == []


def test_fewer_replicas_keep_the_leader_the_racks_and_the_balance() -> None:
    snapshot = cluster("1a 2b 3a", "t: 123 123 213 213")
    plan = planned(snapshot, "set-replication-factor", {"replication_factor": 2, "topics": ["t"]})
    targets = after(plan)
    assert [targets[f"t-{number}"][0] for number in range(4)] == [1, 1, 2, 2]
    assert all({1, 3} != set(replicas) for replicas in targets.values())
    assert plan.proof["replicas_moved"] == plan.proof["lower_bound"] == 0
    assert check(snapshot, plan).problems == []


@SLOW
@given(clusters(), st.integers(1, 4))
def test_any_replication_factor_is_reached_with_the_fewest_moves(snapshot: SnapshotFolder, factor: int) -> None:
    asked = {
        "replication_factor": factor,
        "topics": sorted({"t0", "t1"} & set(snapshot.partitions["topic"].to_pylist())),
    }
    try:
        plan = planned(snapshot, "set-replication-factor", asked)
    except PlanError as refused:
        assert f"is to have {factor} replicas, and only" in str(refused)  # noqa: PT017 - either way is fine, by chance
        return
    assert check(snapshot, plan).problems == []
    assert plan.proof["gap"] == 0
    assert {len(move.after) for move in plan.moves} <= {factor}


def test_a_given_reassignment_becomes_a_plan() -> None:
    snapshot = cluster("1 2 3", "t: 12 23 31")
    plan = planned(snapshot, "apply", {"reassignment": document(t0=[1, 3], t2=[1, 3])})
    assert after(plan) == {"t-0": [1, 3], "t-2": [1, 3]}
    assert {move.purpose for move in plan.moves} == {"given"}
    assert check(snapshot, plan).problems == []
    assert (plan.proof["replicas_moved"], plan.proof["gap"]) == (1, 0)


@SLOW
@given(clusters(states=("live", "new", "draining")))
def test_a_plan_and_then_its_rollback_is_the_identity(snapshot: SnapshotFolder) -> None:
    usable = sum(state in ("live", "new") for state in snapshot.brokers["state"].to_pylist())
    if max(snapshot.partitions["target_rf"].to_pylist()) > usable:
        return
    plan = planned(snapshot, "rebalance")
    if not plan.moves:
        return
    rollback = parse_reassignment(json.loads(reassignment_json(plan.moves, rollback=True)))
    names = zip(*(snapshot.partitions[name].to_pylist() for name in ("topic", "partition", "replicas")), strict=True)
    was = {(topic, number): tuple(replicas) for topic, number, replicas in names}
    assert all(was[name] == replicas for name, replicas in rollback.items())
    assert set(rollback) == {move.topic_partition for move in plan.moves}


def entry(**fields: object) -> dict[str, Any]:
    return {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1], **fields}]}


@pytest.mark.parametrize(
    ("reassignment", "sentence"),
    [
        ({"partitions": []}, "The reassignment lists no partition"),
        ({"version": 2, "partitions": [1]}, "The reassignment has version 2; only version 1 is known."),
        ({"partitions": [{"topic": "t"}]}, "an entry without topic, partition and replicas"),
        (document(t0=[]), "The reassignment of t-0 names no broker"),
        # What people take for it: the wrong file, numbers for text and text for numbers, keys that are misspelled.
        ({"version": 1, "topics": [{"topic": "t"}]}, "The reassignment is a file of topics, which kafka-reassign-"),
        ({**document(t0=[1]), "version": "1"}, 'The reassignment has version "1"; version should be a number, 1.'),
        ({**document(t0=[1]), "throttle": 5}, 'The reassignment has the key "throttle", which is not known; known are'),
        (
            entry(partition="0"),
            'The reassignment of t-0 has the partition "0"; partition should be a whole number from',
        ),
        (entry(topic="a\ud800"), r'of a\ud800-0 has the topic "a\ud800"; topic should be text'),
        (entry(topic=5), "The reassignment of 5-0 has the topic 5; topic should be text."),
        (entry(replicas=["1"]), 'has the replicas ["1"]; replicas should be a list of broker ids, which are numbers.'),
        (
            entry(logDirs=["any"]),
            'has the key "logDirs", which is not known; known are topic, partition, replicas, log_dirs.',
        ),
        (document(t0=[1, 1]), "The reassignment of t-0 names broker 1 twice."),
        (document(t0=[1], t00=[1]), "The reassignment lists t-0 twice."),
        (document(t9=[1]), "The reassignment names t-9, which the snapshot does not have."),
        (document(t0=[7]), "names broker 7, which the snapshot does not have."),
        (document(t0=[3]), "The reassignment of t-0 names broker 3, which has failed."),
    ],
)
def test_a_wrong_reassignment_is_refused_with_one_message(reassignment: dict[str, Any], sentence: str) -> None:
    with pytest.raises(PlanError) as caught:
        planned(cluster("1 2 3!", "t: 12 23"), "apply", {"reassignment": reassignment})
    assert sentence in str(caught.value)


def test_what_is_as_given_is_no_change_even_on_a_failed_broker() -> None:
    snapshot = cluster("1 2 3!", "t: 12 23")
    plan = planned(snapshot, "apply", {"reassignment": document(t0=[2, 1], t1=[2, 3])})
    assert [each.partition for each in plan.moves] == [0]
    assert (plan.proof["unplaced"], check(snapshot, plan).problems) == ([], [])


def test_a_plan_that_is_not_what_was_given_is_caught() -> None:
    snapshot = cluster("1 2 3 4", "t: 12 23 31", "u: 12")
    for operation, options in (
        ("apply", {"reassignment": document(t0=[1, 3])}),
        ("set-replication-factor", {"replication_factor": 3, "topics": ["t"]}),
    ):
        plan = planned(snapshot, operation, options)
        move = plan.moves[0]
        for changed in ({"after": (*move.after[:-1], 4)}, {"after": move.after[:1]}, {"topic": "u"}):
            broken = plan_with(plan.digest, plan.proof, [replace(move, **changed), *plan.moves[1:]])
            if operation == "apply" or "after" not in changed or len(changed["after"]) == 1:
                assert check(snapshot, broken).problems


def test_required_options_are_named() -> None:
    with pytest.raises(PlanError, match=r"The operation apply needs the option reassignment\."):
        planned(cluster("1", "t: 1"), "apply", {})


def test_user_written_files_become_a_snapshot() -> None:
    brokers, parts = snapshot_tables(document(t0=[1, 2]), [{"id": 1, "rack": "a"}, {"id": 2, "state": "failed"}])
    assert brokers["state"].to_pylist() == ["live", "failed"]
    assert parts.select(["isr", "leader", "target_rf"]).to_pylist() == [{"isr": [1], "leader": 1, "target_rf": 2}]


@pytest.mark.parametrize(
    ("brokers", "sentence"),
    [
        ({"nothing": 1}, "The brokers should be a list"),
        ([{"rack": "a"}], "The brokers should be a list"),
        ([{"id": 1, "capacity": "big"}], 'Broker 1 has the capacity "big"; capacity should be a number.'),
        ([{"id": "1"}], 'Broker "1" has the id "1"; id should be a whole number from 0 to 2147483647.'),
        ([{"id": 1, "rack": 1}], 'Broker 1 has the rack 1; rack should be text, such as "1".'),
        ([{"id": 1, "state": 0}], "Broker 1 has the state 0; state should be text."),
        ([{"id": 1, "racks": "a"}], 'Broker 1 has the key "racks", which is not known; known are id, rack, state,'),
    ],
)
def test_wrong_brokers_are_refused_with_one_message(brokers: object, sentence: str) -> None:
    with pytest.raises(PlanError, match=sentence):
        snapshot_tables(document(t0=[1]), brokers)


@pytest.mark.parametrize(
    ("current", "sentence"),
    [
        ([], "The current assignment is a list; it should be "),
        (entry(bytes="5"), 'The current assignment of t-0 has the bytes "5"; bytes should be a whole number from 0.'),
        (entry(isr=1), "has the isr 1; isr should be a list of broker ids"),
        (entry(logDirs=[]), 'has the key "logDirs", which is not known'),
        (entry(bytes=2**70), "; bytes should be a whole number from 0"),
        (entry(replicas=[-1]), "has the replicas [-1]; replicas should be a list of broker ids"),
        (entry(partition=2**31), "has the partition 2147483648; partition should be a whole number"),
    ],
)
def test_a_wrong_current_assignment_is_refused_with_one_message(current: object, sentence: str) -> None:
    with pytest.raises(PlanError) as refused:
        snapshot_tables(current, [{"id": 1}])
    assert sentence in str(refused.value)


@pytest.mark.parametrize("log_dirs", [["any", "any"], ["/d1", "any"], ["any"], "any", [1, "any"], None])
def test_log_directories_of_the_current_assignment_are_ignored(log_dirs: object) -> None:
    given = document(t0=[1, 2])
    given["partitions"][0]["log_dirs"] = log_dirs
    _, parts = snapshot_tables(given, [{"id": 1}, {"id": 2}])
    assert parts["replicas"].to_pylist() == [[1, 2]]


@pytest.mark.parametrize(
    ("log_dirs", "named"),
    [
        (None, {}),
        (["any", "any"], {}),
        (["any", "/d2"], {(TopicPartition("t", 0), 2): "/d2"}),
        (["/d1", "/d2"], {(TopicPartition("t", 0), 1): "/d1", (TopicPartition("t", 0), 2): "/d2"}),
    ],
)
def test_log_directories_that_a_reassignment_names_are_read(log_dirs: object, named: object) -> None:
    given = document(t0=[1, 2])
    given["partitions"][0]["log_dirs"] = log_dirs
    assert parse_reassignment(given) == {TopicPartition("t", 0): (1, 2)}
    assert parse_directories(given) == named


@pytest.mark.parametrize("log_dirs", [["any"], "any", [1, "any"], [], ["any", "/d2", "any"]])
def test_log_directories_that_are_not_one_for_each_replica_are_refused(log_dirs: object) -> None:
    given = document(t0=[1, 2])
    given["partitions"][0]["log_dirs"] = log_dirs
    for read in (parse_reassignment, parse_directories):
        with pytest.raises(PlanError) as refused:
            read(given)
        assert str(refused.value) == (
            "The reassignment of t-0 has log_dirs that are not one for each of its 2 replicas; name a directory or "
            '"any" for each, or leave log_dirs out.'
        )


@pytest.mark.parametrize("version", ["3.9", "4.3"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_current_assignment_is_found_in_what_kafkas_tool_printed(version: str, end: str) -> None:
    for printed in (generate_output(version), execute_output(version)):
        found = find_assignment(printed.replace("\n", end), "G", current=True)
        assert json.loads(found) == CURRENT[version]
    assert json.loads(find_assignment(execute_output(version).replace("\n", end), "G")) == CURRENT[version]


def test_a_text_without_the_headings_of_kafkas_tool_is_left_as_it_is() -> None:
    for text in ("", "{", json.dumps(PROPOSED, indent=2), "Current partition replica assignment: none"):
        assert find_assignment(text, "G") == text


def test_one_of_several_assignments_is_not_chosen() -> None:
    both = generate_output("4.3")
    with pytest.raises(PlanError) as refused:
        find_assignment(both, "The file G")
    assert str(refused.value) == "The file G has two assignments, in the lines 2 and 5; keep one of these lines."
    with pytest.raises(PlanError, match=r"^The file G has two assignments, in the lines 2 and 9; keep one"):
        find_assignment(both + "\n" + execute_output("4.3"), "The file G", current=True)
    with pytest.raises(PlanError, match=r"^The file G has 3 assignments, in the lines 2, 5 and 9; keep one"):
        find_assignment(both + "\n" + execute_output("4.3"), "The file G")


def test_a_fault_in_what_kafkas_tool_printed_is_reported_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "G"
    for text, place in (
        (execute_output("4.3")[:90], "line 3 column"),
        ("Current partition replica assignment\n", "line 1 column 1"),
        ("x\nCurrent partition replica assignment\n\nnone", "line 4 column 1"),
        (f"{json.dumps(PROPOSED)}\n{json.dumps(PROPOSED)}", "Extra data: line 2 column 1"),
    ):
        file.write_text(text)
        for current in (True, False):
            with pytest.raises(PlanError, match=f"^The assignment file {file} does not contain JSON: .*{place}"):
                read_assignment(str(file), "assignment", current=current)


SIX = "1 2 3 4 5 6"


def lagging(brokers: str, *replicas: str, isr: list[int], leader: int) -> SnapshotFolder:
    """Partitions of `t`, all with the same ISR and leader."""
    whole = cluster(brokers, f"t: {' '.join(replicas)}")
    rows = [row | {"isr": isr, "leader": leader} for row in whole.partitions.to_pylist()]
    return snapshot_of(whole.brokers.to_pylist(), rows)


def lowered(snapshot: SnapshotFolder, factor: int, **options: Any) -> PlanFolder:
    plan = planned(snapshot, "set-replication-factor", {"replication_factor": factor, "topics": ["t"], **options})
    found = check(snapshot, plan)
    assert (found.problems, found.unproven) == ([], ())
    assert plan.proof["replicas_moved"] == plan.proof["lower_bound"] == 0
    return plan


LOWER = ("set-replication-factor", {"replication_factor": 2, "topics": ["t"]})


def kept(plan: PlanFolder) -> list[set[int]]:
    return [set(each.after) for each in plan.moves]


def test_what_is_in_sync_is_kept() -> None:
    plan = lowered(lagging(SIX, *["456123"] * 3, isr=[1, 2, 3], leader=1), 3)
    assert [each.after for each in plan.moves] == [(1, 2, 3)] * 3, "nobody has asked for even leaders"
    assert plan.proof["notes"] == []
    other = lowered(lagging(SIX, *["456123"] * 3, isr=[1, 2, 3], leader=2), 3)
    assert [each.after for each in other.moves] == [(2, 1, 3)] * 3
    wrong = plan_with(plan.digest, plan.proof, [replace(each, after=(3, 2, 1)) for each in plan.moves])
    problems = check(lagging(SIX, *["456123"] * 3, isr=[1, 2, 3], leader=1), wrong).problems
    assert any("it keeps [1, 2, 3] in another order, [3, 2, 1]." in each for each in problems)
    assert kept(lowered(lagging("1 2 3", "123", isr=[2, 3], leader=2), 1)) == [{2}]


@pytest.mark.parametrize(
    ("replicas", "isr", "leader", "factor", "held"),
    [
        ("1234", [2, 3, 4], 4, 1, {4}),
        ("1234", [2, 3, 4], 4, 2, {2, 4}),
        # All are in sync, and another than the preferred leader leads.
        ("123", [1, 2, 3], 3, 1, {3}),
        ("123", [1, 2, 3], 3, 2, {1, 3}),
        ("123", [1, 2, 3], 1, 1, {1}),
        # An ISR that is not known is no reason, and neither is a leader outside of it.
        ("123", [], 3, 1, {1}),
        ("123", [2, 3], 1, 1, {2}),
    ],
)
def test_the_leader_is_kept_first_and_the_preferred_leader_if_it_is_in_sync(
    replicas: str, isr: list[int], leader: int, factor: int, held: set[int]
) -> None:
    assert kept(lowered(lagging(SIX, replicas, isr=isr, leader=leader), factor)) == [held]


@pytest.mark.parametrize("how", ["factor", "given"])
def test_one_that_must_stay_out_of_sync_takes_time_and_is_named_and_is_no_byte_that_the_plan_copies(how: str) -> None:
    snapshot = lagging(SIX, "4125", isr=[1, 2], leader=1)
    size = snapshot.partitions.to_pylist()[0]["bytes"]
    if how == "factor":
        plan = lowered(snapshot, 3, throttle=100)
        assert kept(plan) == [{4, 1, 2}]
    else:
        given = {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [4, 1, 2]}]}
        plan = planned(snapshot, "apply", {"reassignment": given, "throttle": 100})
        assert check(snapshot, plan).problems == []
    assert size > 0
    assert (plan.proof["replicas_moved"], plan.proof["bytes_moved"]) == (0, 0)
    assert plan.proof["predicted_seconds"] == round(size / 100, 1)
    assert plan.proof["notes"] == ["t-0 keeps broker 4, which is not in sync: Kafka completes the move once it is."]
    wrong = plan_with(plan.digest, {**plan.proof, "bytes_moved": size}, plan.moves)
    assert f"The proof says bytes_moved = {size}; the rows say 0." in check(snapshot, wrong).problems


def test_what_would_fall_below_min_isr_is_left_and_listed() -> None:
    whole = cluster(SIX, "t: 123 12")
    rows = [row | {"min_isr": 2} for row in whole.partitions.to_pylist()]
    snapshot = snapshot_of(whole.brokers.to_pylist(), rows)
    plan = lowered(snapshot, 1)
    assert plan.moves == []
    left = [(each["partition"], each["reason"]) for each in plan.proof["unplaced"]]
    assert left == [(0, "below_min_isr"), (1, "below_min_isr")]
    assert [each.partition for each in lowered(snapshot, 2).moves] == [0]
    forged = plan_with(plan.digest, {**plan.proof, "unplaced": []}, [move(snapshot, "t-0 1")])
    assert any("fewer replicas than min.insync.replicas" in each for each in check(snapshot, forged).problems)


@pytest.mark.parametrize("brokers", ["1! 2 3 4", "1- 2 3 4", "1 2 3 4"], ids=["failed", "draining", "disk"])
def test_a_lower_factor_takes_the_replica_that_is_not_live_away(brokers: str) -> None:
    whole = cluster(brokers, "t: 123 231 312 23", "u: 123")
    rows = [row | {"isr": [2, 3], "leader": 2, "min_isr": 2} for row in whole.partitions.to_pylist()]
    if brokers.startswith("1 "):
        rows = [row | {"offline": [1] if 1 in row["replicas"] else []} for row in rows]
    snapshot = snapshot_of(whole.brokers.to_pylist(), rows)
    plan = lowered(snapshot, 2)
    assert [(str(each.topic_partition), set(each.after)) for each in plan.moves] == [
        (f"t-{number}", {2, 3}) for number in range(3)
    ]
    assert {each.purpose for each in plan.moves} == {"replication_factor"}, "not: a replica was on a broker that failed"
    assert plan.proof["unplaced"] == []
    silent = plan_with(plan.digest, plan.proof, plan.moves[1:])
    problems = check(snapshot, silent).problems
    assert "t-0 has 3 replicas, not its target number, and is neither in the plan nor listed." in problems
    refused = planned(snapshot_of(whole.brokers.to_pylist(), [row | {"min_isr": 3} for row in rows]), *LOWER)
    assert (refused.moves, {each["reason"] for each in refused.proof["unplaced"]}) == ([], {"below_min_isr"})


def test_notes_name_ten_partitions_and_count_the_others() -> None:
    plan = lowered(lagging(SIX, *["4125"] * 13, isr=[1, 2], leader=1), 3)
    assert len(plan.proof["notes"]) == 11
    assert plan.proof["notes"][-1] == "3 more partitions keep a broker that is not in sync."


def test_among_those_in_sync_the_racks_and_the_load_decide() -> None:
    plan = lowered(lagging("1a 2a 3b 4b", "1234", isr=[1, 2, 3], leader=1), 2)
    assert kept(plan) == [{1, 3}]
    plan = lowered(lagging(SIX, *["61234"] * 6, isr=[1, 2, 3, 4], leader=1), 2)
    assert sorted(sum(broker in one for one in kept(plan)) for broker in (2, 3, 4)) == [2, 2, 2]


@pytest.mark.parametrize("how", ["excluded", "cordoned"])
@pytest.mark.parametrize(
    ("brokers", "replicas", "isr", "held"),
    [
        ("1 2 5", "152", [5, 2], {5}),
        ("1 2 5", "512", [5, 1, 2], {1, 5}),
        ("1 2 5", "512", [1, 5, 2], {1, 5}),
        ("1 2 5", "152", [1, 5], {1, 5}),
        ("1 2 5", "521", [1], {1, 5}),
        # The racks decide, whether a broker receives or not.
        ("1a 2a 5b", "125", [1, 2, 5], {1, 5}),
        ("1a 2b 5a", "152", [1, 2, 5], {1, 2}),
        ("1a 2a 5b", "512", [5, 1, 2], {1, 5}),
        # A broker that is down or draining can neither stay nor lead.
        ("1 2- 5", "125", [1, 5], {1, 5}),
        ("1! 2 5", "125", [2, 5], {2}),
    ],
)
def test_what_may_receive_nothing_keeps_what_it_holds(
    how: str, brokers: str, replicas: str, isr: list[int], held: set[int]
) -> None:
    snapshot, options = lagging(brokers, replicas, isr=isr, leader=isr[0]), {"exclude_brokers": [5]}
    if how == "cordoned":
        rows = [row | {"cordoned": row["broker"] == 5} for row in snapshot.brokers.to_pylist()]
        snapshot, options = replace(snapshot, brokers=pa.Table.from_pylist(rows, snapshot.brokers.schema)), {}
    plan = lowered(snapshot, len(held), **options)
    assert kept(plan) == [held]
    if replicas == "152" and isr[0] == 5:
        wrong = plan_with(plan.digest, plan.proof, [move(snapshot, "t-0 2")])
        assert "t-0: it drops its leader 5, which is in sync." in check(snapshot, wrong).problems


def test_the_load_decides_on_brokers_that_may_receive_nothing_as_on_others() -> None:
    plan = lowered(lagging(SIX, *["61234"] * 6, isr=[1, 2, 3, 4], leader=1), 2, exclude_brokers=[2, 3, 4])
    assert sorted(sum(broker in one for one in kept(plan)) for broker in (2, 3, 4)) == [2, 2, 2]
    plan = lowered(lagging(SIX, *["61234"] * 6, isr=[1, 2, 3, 4], leader=1), 2, exclude_brokers=[1, 2])
    assert sorted(sum(broker in one for one in kept(plan)) for broker in (2, 3, 4)) == [2, 2, 2]


def test_a_draining_broker_goes_first() -> None:
    assert kept(lowered(lagging("1- 2 3", "123", isr=[1, 2], leader=2), 2)) == [{2, 3}]


@pytest.mark.parametrize(
    ("isr", "leader", "after", "problem"),
    [
        ([1, 2, 3], 1, "45", "t-0: it drops broker 1, which is in sync, and keeps broker 4, which is not."),
        ([1, 2, 3], 1, "14", "t-0: it drops broker 2, which is in sync, and keeps broker 4, which is not."),
        ([1, 2, 3], 2, "13", "t-0: it drops its leader 2, which is in sync."),
    ],
)
def test_the_checker_refuses_a_plan_that_drops_what_is_in_sync_for_what_is_not(
    isr: list[int], leader: int, after: str, problem: str
) -> None:
    snapshot = lagging(SIX, "45123", isr=isr, leader=leader)
    plan = lowered(snapshot, 2)
    wrong = plan_with(plan.digest, plan.proof, [move(snapshot, f"t-0 {after}")])
    assert problem in check(snapshot, wrong).problems


@settings(max_examples=tried(150))
@given(
    st.integers(0, 100_000),
    st.integers(1, 4),
    st.sampled_from([{}, {"exclude_brokers": [3]}, {"exclude_brokers": [1, 2]}]),
)
def test_no_plan_drops_what_is_in_sync_for_what_is_not(seed: int, factor: int, options: dict[str, Any]) -> None:
    dice = random.Random(seed)
    brokers = [
        {"broker": one, "rack": dice.choice([None, "a", "b"]), "state": dice.choice(["live", "live", "live", "failed"])}
        for one in range(4, 11)
    ] + [{"broker": one, "rack": dice.choice("ab"), "state": "live"} for one in range(4)]
    rows: list[dict[str, Any]] = []
    for number in range(dice.randint(1, 12)):
        replicas = dice.sample(range(11), dice.randint(1, 6))
        isr = [one for one in replicas if dice.random() < 0.6]
        leader = dice.choice(isr) if isr else replicas[0]
        rows.append(
            {"topic": dice.choice("tu"), "partition": number, "replicas": replicas, "isr": isr, "leader": leader}
        )
    topics = sorted({row["topic"] for row in rows})
    snapshot = snapshot_of(brokers, rows)
    asked = {"replication_factor": factor, "topics": topics, **options}
    plan = planned(snapshot, "set-replication-factor", asked)
    found = check(snapshot, plan)
    assert (found.problems, found.unproven) == ([], ())
    by_name: dict[tuple[str, int], dict[str, Any]] = {(row["topic"], row["partition"]): row for row in rows}
    usable = {each["broker"] for each in brokers if each["state"] == "live"}
    for each in plan.moves:
        row = by_name[each.topic, each.partition]
        lost = (set(each.before) - set(each.after)) & set(row["isr"]) & usable
        late = set(each.after) & set(row["replicas"]) - set(row["isr"])
        assert not (row["isr"] and lost and late)
        if len(each.after) < len(each.before) and row["isr"] and row["leader"] in usable:
            assert row["leader"] in each.after
