"""Each rule about one move, and each reason to leave a partition alone, by the moves that break it."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_steward.assignment import OPERATIONS, Move, MoveRule, Operation, TopicPartition
from kafka_steward.planning.checker.rules import (
    RULES,
    CheckContext,
    SnapshotPartition,
    build_context,
    count_available_brokers,
    count_replicas_due,
    hold_reasons,
    move_violations,
)
from tests.builders import cluster, snapshot_of
from tests.planning.manual_plans import context, move

T0 = TopicPartition("t", 0)
EVEN = ["rebalance", "expand", "drain"]


def wrong(brokers: str, replicas: str, after: str, operation: str, options: dict[str, Any] | None = None) -> list[str]:
    """What is wrong with moving a partition with these replicas."""
    snapshot = cluster(brokers, f"t: {replicas}")
    return list(move_violations(move(snapshot, f"t-0 {after}"), context(snapshot, operation, options or {})))


def test_a_snapshot_is_read_as_it_is() -> None:
    rows: list[dict[str, Any]] = [
        {"broker": 1, "rack": "a", "state": "live"},
        {"broker": 2, "rack": None, "state": "failed"},
    ]
    parts: list[dict[str, Any]] = [
        {"topic": "t", "partition": 0, "replicas": [2, 1], "topic_id": "x", "target_rf": 3, "bytes": 0},
        {"topic": "t", "partition": 1, "replicas": [1], "adding": [1], "bytes": -1},
        {"topic": "t", "partition": 2, "replicas": [1], "removing": [1], "bytes": 1},
        {"topic": "t", "partition": 3, "replicas": [1]},
    ]
    snapshot = snapshot_of(rows, parts)
    alone: Any = {"leader": 1, "isr": frozenset({1})}
    read = {
        T0: SnapshotPartition((2, 1), "x", 3, moving=False, size=0, leader=2, isr=frozenset({1, 2})),
        TopicPartition("t", 1): SnapshotPartition((1,), None, 1, moving=True, size=None, **alone),
        TopicPartition("t", 2): SnapshotPartition((1,), None, 1, moving=True, size=1, **alone),
        TopicPartition("t", 3): SnapshotPartition((1,), None, 1, moving=False, size=None, **alone),
    }
    proof = {"operation": "heal"}
    found = build_context(snapshot.brokers, snapshot.partitions, proof)
    assert found == CheckContext(read, {1: "live", 2: "failed"}, {1: "a", 2: None}, proof)


@pytest.mark.parametrize(
    ("changes", "problems"),
    [
        ({}, []),
        ({"partition": 1}, ["it is not in the snapshot."]),
        ({"before": (2, 1)}, ["its replicas in the snapshot are [1, 2], not [2, 1]."]),
        ({"topic_id": "x"}, ["its topic is another one of the same name."]),
        ({"size_bytes": None}, ["its size in the snapshot is 1000, not None."]),
        ({"purpose": "because"}, ["its reason 'because' is unknown."]),
        ({"after": ()}, ["its target [] is empty or names a broker twice."]),
        ({"after": (1, 1)}, ["its target [1, 1] is empty or names a broker twice."]),
        ({"after": (1, 2)}, ["it changes nothing."]),
        ({"after": (1, 3)}, ["broker 3 may not receive a replica: it is draining or excluded."]),
        (
            {"after": (1, 4)},
            [
                "broker 4 may not receive a replica: it is failed or excluded.",
                "its target keeps a replica on a dead broker, and Kafka would never complete it.",
            ],
        ),
        ({"after": (1, 6)}, ["broker 6 may not receive a replica: it is live or excluded."]),
        ({"after": (1, 9)}, ["broker 9 may not receive a replica: it is unknown or excluded."]),
    ],
)
def test_kafka_could_carry_out_each_move_from_what_there_is(changes: dict[str, Any], problems: list[str]) -> None:
    snapshot = cluster("1 2 3- 4! 5+ 6", "t: 12")
    given = context(snapshot, "rollback", {"exclude_brokers": [6]})
    assert list(move_violations(move(snapshot, "t-0 15", **changes), given)) == problems


@pytest.mark.parametrize(
    ("brokers", "replicas", "after", "problems"),
    [
        ("1 2! 3", "12", "13", []),
        ("1! 2 3", "12", "23", []),
        ("1! 2 3 4", "123", "243", []),
        ("1 2! 3", "12", "1", ["its target has 1 replicas; 2 are due."]),
        ("1 2! 3 4", "12", "134", ["its target has 3 replicas; 2 are due."]),
        ("1 2 3! 4 5", "123", "145", ["its replica on broker 2 is in place and must not move."]),
        ("1! 2 3", "12", "32", ["its new preferred leader 3 has no data, while 2 has."]),
        ("1 2 3! 4", "123", "214", ["its preferred leader 1 is in place and must stay."]),
        ("1 2 3 4! 5", "1234", "1325", ["its kept replicas are in another order."]),
        ("1a 2b! 3b 4a", "12", "14", ["rack a holds 2 of its replicas while broker 3 on rack b is free."]),
    ],
)
def test_a_heal_moves_nothing_that_is_in_place(brokers: str, replicas: str, after: str, problems: list[str]) -> None:
    assert wrong(brokers, replicas, after, "heal") == problems


def test_of_a_partition_that_never_had_a_replica_nothing_is_in_place() -> None:
    given = CheckContext(
        {T0: SnapshotPartition((), None, 1, moving=False, size=None)}, {1: "live"}, {1: None}, {"operation": "fill"}
    )
    one = Move("t", 0, before=(), after=(1,), chunk=0, position=0, purpose="replication_factor")
    assert list(move_violations(one, given)) == ["all its replicas are lost: moving it would lose its data."]


@pytest.mark.parametrize(
    ("target", "after", "problems"),
    [
        (3, [1, 2, 4], []),
        (1, [1, 2, 4], ["its target has 3 replicas; 2 are due."]),
        (4, [1, 2, 4], ["its target has 3 replicas; 4 are due."]),
    ],
)
def test_a_fill_reaches_the_target_and_takes_nothing(target: int, after: list[int], problems: list[str]) -> None:
    brokers = [{"broker": one, "state": "failed" if one == 3 else "live"} for one in (1, 2, 3, 4, 5)]
    row = {"topic": "t", "partition": 0, "replicas": [1, 2, 3], "target_rf": target}
    snapshot = snapshot_of(brokers, [row])
    assert (
        list(move_violations(move(snapshot, "t-0 124", after=tuple(after)), context(snapshot, "fill", {}))) == problems
    )


RACKS = "rack a holds 2 of its replicas while broker 4 on rack b is free."
RACKLESS = "rack a holds 2 of its replicas while broker 4 without a rack is free."


@pytest.mark.parametrize(
    ("brokers", "after", "options", "problems"),
    [
        ("1a 2a! 3a 4b", "13", {}, [RACKS]),
        ("1a 2a! 3a 4b", "13", {"rack_aware": True}, [RACKS]),
        ("1a 2a! 3a 4b", "13", {"rack_aware": False}, []),
        ("1a 2a! 3a 4b", "14", {}, []),
        # What cannot be used is not free, and nor is what is taken already.
        ("1a 2a! 3a 4b", "13", {"exclude_brokers": [4]}, []),
        ("1a 2a! 3a 4b-", "13", {}, []),
        # A broker without a rack collides with none, whether or not it is a rack of its own.
        ("1a 2a! 3a 4", "13", {}, [RACKLESS]),
        ("1a 2a! 3a 4", "13", {"rackless": "free"}, [RACKLESS]),
        ("1a 2a! 3a 4", "13", {"rackless": "own-rack"}, [RACKLESS]),
        ("1a 2a! 3a 4", "14", {}, []),
        ("1a 2a! 3a 4", "13", {"exclude_brokers": [4]}, []),
        ("1a 2a! 3a 4b", "13", {"rackless": "own-rack"}, [RACKS]),
        ("1 2! 3 4b", "13", {}, []),
        ("1 2! 3 4b", "13", {"rackless": "own-rack"}, []),
    ],
)
def test_what_is_added_is_spread_as_the_racks_allow(
    brokers: str, after: str, options: dict[str, Any], problems: list[str]
) -> None:
    assert wrong(brokers, "12", after, "heal", options) == problems


def test_racks_are_as_full_as_each_other_or_one_replica_fuller() -> None:
    assert wrong("1a 2b 3a! 4a 5b 6c", "123", "124", "heal") == [
        "rack a holds 2 of its replicas while broker 6 on rack c is free."
    ]
    assert wrong("1a 2b 3a! 4a 5b", "123", "124", "heal") == []
    # What was in place on a rack is no mistake of the plan; one such sentence is enough.
    assert wrong("1a 2a 3c! 4b 5c", "123", "124", "heal") == []
    assert len(wrong("1a 2! 3! 4a 5a 6b 7c", "123", "145", "heal")) == 1


@pytest.mark.parametrize(
    ("brokers", "replicas", "after", "factor", "problems"),
    [
        ("1 2 3 4", "12", "123", 3, []),
        ("1 2 3 4", "123", "12", 2, []),
        ("1 2! 3 4", "12", "134", 3, []),
        ("1! 2 3 4", "12", "234", 3, []),
        ("1 2 3 4", "12", "1234", 3, ["its target has 4 replicas; 3 are due."]),
        ("1 2 3 4", "12", "134", 3, ["it adds 2 replicas, which is not the number that it lacks."]),
        ("1 2 3 4", "123", "14", 2, ["it adds 1 replicas, which is not the number that it lacks."]),
        ("1 2 3 4", "12", "213", 3, ["its preferred leader 1 is in place and must stay."]),
        ("1 2 3 4", "123", "23", 2, ["its preferred leader 1 is in place and must stay."]),
        ("1! 2 3 4", "12", "324", 3, ["its new preferred leader 3 has no data, while 2 has."]),
        # A leader on a broker that is to be emptied may go; where replicas are added, nobody goes.
        ("1- 2 3 4", "123", "23", 2, []),
        ("1- 2 3 4", "12", "213", 3, ["its preferred leader 1 is in place and must stay."]),
        ("1a 2b 3a 4c", "12", "123", 3, ["rack a holds 2 of its replicas while broker 4 on rack c is free."]),
    ],
)
def test_another_replication_factor_moves_nothing_and_keeps_the_leader(
    brokers: str, replicas: str, after: str, factor: int, problems: list[str]
) -> None:
    options = {"topics": ["u", "t"], "replication_factor": factor}
    assert wrong(brokers, replicas, after, "set-replication-factor", options) == problems


@pytest.mark.parametrize("options", [{}, {"topics": ["t-0"], "replication_factor": 3}])
def test_only_named_topics_get_another_replication_factor(options: dict[str, Any]) -> None:
    assert wrong("1 2 3", "12", "123", "set-replication-factor", options) == ["its topic was not named."]


@pytest.mark.parametrize("operation", EVEN)
@pytest.mark.parametrize(
    ("balance", "target", "after", "problems"),
    [
        ("replicas", 2, [4, 5], []),
        ("replicas", 2, [4], ["its target has 1 replicas; 2 are due."]),
        ("replicas", 2, [1, 4, 5], ["its target has 3 replicas; 2 are due."]),
        ("bytes", 2, [4, 5], []),
        ("bytes", 2, [1, 4, 5], []),
        ("bytes", 2, [4], ["its target has 1 replicas; 2 are due."]),
        ("bytes", 2, [1, 2, 4, 5], ["its target has 4 replicas; 2 are due."]),
        ("bytes", 4, [4, 5], ["its target has 2 replicas; 4 are due."]),
        ("bytes", 4, [1, 4, 5], []),
    ],
)
def test_an_even_plan_takes_no_replica_that_is_due(
    operation: str, balance: str, target: int, after: list[int], problems: list[str]
) -> None:
    row = {"topic": "t", "partition": 0, "replicas": [1, 2, 3], "target_rf": target}
    snapshot = snapshot_of([{"broker": one, "state": "live"} for one in (1, 2, 3, 4, 5)], [row])
    given = context(snapshot, operation, {"balance": balance})
    assert list(move_violations(move(snapshot, "t-0 1", after=tuple(after)), given)) == problems


@pytest.mark.parametrize(
    ("options", "problems"),
    [
        ({"reassignment": {"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 3]}]}}, []),
        ({}, ["its target is not the requested one."]),
        ({"reassignment": {"partitions": []}}, ["its target is not the requested one."]),
        (
            {"reassignment": {"partitions": [{"topic": "t", "partition": 0, "replicas": [3, 1]}]}},
            ["its target is not the requested one."],
        ),
        (
            {"reassignment": {"partitions": [{"topic": "t", "partition": 1, "replicas": [1, 3]}]}},
            ["its target is not the requested one."],
        ),
    ],
)
def test_what_was_given_is_applied_to_the_letter(options: dict[str, Any], problems: list[str]) -> None:
    assert wrong("1 2 3", "12", "13", "apply", options) == problems


HOLD_REASONS = [
    ("t", {}, []),
    ("t", {"pin": ["t-1", "t"]}, []),
    ("t", {"pin": ["t-1", "t-0"]}, ["pinned"]),
    ("topic", {"include": ["top", "opic", "t"]}, ["excluded"]),
    ("topic", {"include": ["t.*", "x"]}, []),
    ("topic", {"exclude": ["x", "top"]}, []),
    ("topic", {"exclude": ["x", "t.*"]}, ["excluded"]),
    ("topic", {"include": ["t.*"], "exclude": ["t.*"]}, ["excluded"]),
    ("__consumer_offsets", {"internal_topics": False}, ["excluded"]),
    ("__share_group_state", {"internal_topics": False}, ["excluded"]),
    ("__transaction_state", {"internal_topics": False}, ["excluded"]),
    ("__consumer_offsets", {"internal_topics": True}, []),
    ("__consumer_offsets", {}, []),
    ("topic", {"internal_topics": False}, []),
]


@pytest.mark.parametrize(("topic", "options", "words"), HOLD_REASONS)
def test_the_options_say_which_partitions_stay_as_they_are(
    topic: str, options: dict[str, Any], words: list[str]
) -> None:
    snapshot = cluster("1 2 3", f"{topic}: 12")
    assert hold_reasons(TopicPartition(topic, 0), context(snapshot, "rebalance", options)) == words


@pytest.mark.parametrize(
    ("brokers", "moving", "words"),
    [("1! 2 3", None, []), ("1! 2! 3 4", None, ["all_replicas_lost"]), ("1 2", [1], ["in_flight"])],
)
def test_what_is_lost_or_still_moving_stays_as_it_is(brokers: str, moving: list[int] | None, words: list[str]) -> None:
    table = cluster(brokers, "t: 1").brokers.to_pylist()
    row = {"topic": "t", "partition": 0, "replicas": [1, 2], "adding": moving}
    assert hold_reasons(T0, context(snapshot_of(table, [row]), "drain", {})) == words


PINNED = ["it is pinned, and must not change."]
EXCLUDED = ["its topic is not one that the plan may touch."]
LOST = ["all its replicas are lost: moving it would lose its data."]


@pytest.mark.parametrize("operation", ["heal", "fill", "set-replication-factor", *EVEN])
@pytest.mark.parametrize(
    ("brokers", "options", "problems"),
    [
        ("1 2! 3", {}, []),
        ("1 2! 3", {"pin": ["t-0"]}, PINNED),
        ("1 2! 3", {"exclude": ["t"]}, EXCLUDED),
        ("1! 2! 3 4", {}, LOST),
    ],
)
def test_no_plan_touches_what_is_to_stay(
    operation: str, brokers: str, options: dict[str, Any], problems: list[str]
) -> None:
    asked = {"topics": ["t"], "replication_factor": 2, **options}
    assert wrong(brokers, "12", "34" if problems == LOST else "13", operation, asked) == problems


@pytest.mark.parametrize("operation", ["apply", "rollback"])
def test_what_was_given_may_touch_anything_that_does_not_move(operation: str) -> None:
    snapshot = cluster("1 2! 3", "t: 12")
    (row,) = snapshot.partitions.to_pylist()
    moving = snapshot_of(snapshot.brokers.to_pylist(), [{**row, "removing": [2]}])
    document = {"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 3]}]}
    asked = {"pin": ["t-0"], "exclude": ["t"], "reassignment": document}
    assert list(move_violations(move(snapshot, "t-0 13"), context(snapshot, operation, asked))) == []
    problems = ["a reassignment of it is in flight."]
    assert list(move_violations(move(moving, "t-0 13"), context(moving, operation, asked))) == problems


@pytest.mark.parametrize(
    ("operation", "options", "due", "brokers"),
    [
        ("heal", {}, 3, 5),
        ("heal", {"exclude_brokers": [1, 5]}, 3, 4),
        ("fill", {}, 4, 5),
        ("set-replication-factor", {"topics": ["t"], "replication_factor": 5}, 5, 5),
        # To take replicas away, only those count that may stay.
        ("set-replication-factor", {"topics": ["t"], "replication_factor": 1}, 1, 1),
        ("set-replication-factor", {"topics": ["t"], "replication_factor": 2}, 2, 1),
        ("set-replication-factor", {"topics": ["u"], "replication_factor": 1}, 2, 1),
        ("rebalance", {}, 2, 1),
    ],
)
def test_what_is_due_and_how_many_brokers_could_hold_it(
    operation: str, options: dict[str, Any], due: int, brokers: int
) -> None:
    table = cluster("1 2- 3! 4 5 6+", "t: 1").brokers.to_pylist()
    row = {"topic": "t", "partition": 0, "replicas": [1, 2, 3], "target_rf": 4}
    given = context(snapshot_of(table, [row]), operation, options)
    assert (count_replicas_due(T0, given), count_available_brokers(T0, given)) == (due, brokers)


def test_a_fill_takes_nothing_where_there_is_more_than_the_target() -> None:
    row = {"topic": "t", "partition": 0, "replicas": [1, 2, 3], "target_rf": 1}
    snapshot = snapshot_of(cluster("1 2 3!", "t: 1").brokers.to_pylist(), [row])
    assert count_replicas_due(T0, context(snapshot, "fill", {})) == 2


def test_each_operation_has_its_properties() -> None:
    assert set(OPERATIONS) == set(Operation)
    assert all(spec.help for spec in OPERATIONS.values())


def test_the_checker_has_each_rule() -> None:
    assert set(RULES) == set(MoveRule)


def test_a_lower_factor_below_the_minimum_is_held_where_it_takes_a_replica() -> None:
    brokers = [{"broker": broker, "rack": None, "state": "live"} for broker in (1, 2, 3)]
    for replicas, held in (([1, 2, 3], ["below_min_isr"]), ([1], [])):
        snapshot = snapshot_of(brokers, [{"topic": "t", "partition": 0, "replicas": replicas, "min_isr": 3}])
        options = {"topics": ["t"], "replication_factor": 2}
        assert hold_reasons(T0, context(snapshot, "set-replication-factor", options)) == held
