"""What the demo's tables and its bar say."""

from __future__ import annotations

from kafka_steward.assignment import Move, TopicPartition
from kafka_steward.cluster.state import Broker, Partition, Snapshot
from kafka_steward.demo.screen import broker_table, cluster_table, merged_audit_table
from kafka_steward.demo.story import DemoResult, count_moves
from kafka_steward.journal.audit import Action, Actor, AuditRecord, Outcome, StoredAuditRecord
from kafka_steward.journal.records import MoveRow, MoveState

WHO = Actor(dag_id="heal", task_id="submit")


def snapshot(replicas: tuple[int, ...], isr: set[int], leader: int | None, dead: int | None = None) -> Snapshot:
    brokers = {id_: Broker(id_, "127.0.0.1", 9092, rack=f"r{id_}", fenced=id_ == dead) for id_ in (1, 2, 3)}
    return Snapshot("c", 0, brokers, {TopicPartition("t", 0): Partition("t", 0, replicas, frozenset(isr), leader)})


def row(number: int, action: Action, partition: int) -> StoredAuditRecord:
    entry = AuditRecord(action, "because", "p", 0, "t", partition, before=[1, 2], after=[1, 3], who=WHO)
    return StoredAuditRecord(number, 1_000 * number, 1_000 * number, "c", entry, Outcome.DONE, "")


def test_a_broker_is_shown_with_what_it_held_then_and_holds_now() -> None:
    rows = broker_table(snapshot((1, 2), {1, 2}, 2), snapshot((1, 3), {1, 3}, 1, dead=2)).rows
    assert rows == [
        ("1", "r1", "1", "1", "0", "1", "live"),
        ("2", "r2", "1", "0", "1", "0", "dead"),
        ("3", "r3", "0", "1", "0", "0", "live"),
    ]


def test_the_cluster_is_shown_at_each_moment() -> None:
    moments = [("before", snapshot((1, 2), {1, 2}, 1)), ("broker dead", snapshot((1, 2), set(), None, dead=2))]
    assert cluster_table(moments).rows == [("before", "0", "0", "2"), ("broker dead", "1", "1", "2")]


def test_what_was_done_in_one_go_is_one_line_of_the_trail() -> None:
    trail = [row(1, Action.SUBMIT, 0), row(2, Action.SUBMIT, 1), row(3, Action.SETTLE, 0)]
    assert [cells[1:4] for cells in merged_audit_table(trail).rows] == [
        ("submit", "t-0 and 1 more", "[1,2] -> [1,3]"),
        ("settle", "t-0", "[1,2] -> [1,3]"),
    ]


def test_the_bar_counts_what_is_settled_and_names_the_first_chunk_that_is_not() -> None:
    moves = [Move("t", number, (1, 2), (1, 3), number // 2, 0, "broker_failed", size_bytes=10) for number in range(4)]
    states = (MoveState.COMPLETED, MoveState.COMPLETED, MoveState.SUBMITTED, MoveState.WAITING)
    now = count_moves([MoveRow(move, state) for move, state in zip(moves, states, strict=True)])
    assert (now.settled, now.partitions, now.settled_bytes, now.bytes) == (2, 4, 20, 40)
    assert (now.in_flight, now.chunk, now.chunks) == (1, 2, 2)


def test_the_last_line_is_what_scripts_read() -> None:
    line = "healed broker=2 partitions=72 replicas_moved=72 lower_bound=72 under_replicated=0 seconds=61.3"
    assert str(DemoResult(2, 72, 72, 72, 0, 61.25001)) == line
