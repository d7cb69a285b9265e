"""KIP-236's requests, simulated: written by anyone, carried out, and to be followed in the tree."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_steward.assignment import Move, TopicPartition
from kafka_steward.document_api import request_documents
from kafka_steward.document_api.document_plans import PollResult
from kafka_steward.errors import KafkaRefused
from kafka_steward.execution.plans.lifecycle import abandon_plan
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action, Outcome
from kafka_steward.journal.kip_documents import Chunk, Request
from kafka_steward.journal.mailbox import Node, read_one
from kafka_steward.journal.records import PlanStatus
from tests.documents import create_document
from tests.present import present
from tests.protocol.simulated_watch import Yard, document
from tests.rings import tried
from tests.simulated_plan import WHO, heal_moves, move

T0 = TopicPartition("t", 0)


def test_a_request_is_carried_out_and_can_be_followed_in_the_tree(yard: Yard) -> None:
    yard.ask("t-0 23")
    assert yard.look().events == {"request"}
    record = present(yard.record("t-0"))
    assert (record.original_replicas, record.replicas, record.top, record.legacy) == ((1, 2), (2, 3), 2, False)
    (chunk,) = yard.journal.mailbox.children(paths.REASSIGN_CHUNKS)
    assert not Chunk.from_node(present(read_one(yard.journal.mailbox, paths.chunk(chunk)))).is_auto_generated
    assert yard.requests() == []
    assert yard.in_flight() == ["t-0"]
    yard.run()
    assert yard.replicas("t-0") == (2, 3)
    assert yard.record("t-0") is None
    assert yard.journal.mailbox.children(paths.REASSIGN_CHUNKS) == []
    assert yard.journal.slot.holders() == ()


@pytest.mark.parametrize("path", [paths.REQUEST_PREFIX, paths.REASSIGN_QUEUE])
def test_what_a_plan_wants_and_has_not_submitted_is_not_called_in_progress(yard: Yard, path: str) -> None:
    yard.simulator.mute.add(4)
    yard.ask("t-0 24")
    yard.look()
    (digest,) = [plan.digest for plan in yard.journal.plans.unfinished()]
    document_text = json.dumps({"partitions": [{"topic": "t", "partition": 0, "replicas": [2, 4]}]})
    begins = f"plan {digest[:12]} has the same target, and has not submitted it: "
    for stuck in (False, True):
        while stuck and present(yard.journal.plans.get(digest)).status is not PlanStatus.STUCK:
            yard.look()
        yard.write(path, document_text)
        (said,) = [sentence for sentence in yard.look().sentences if "asks to move" in sentence]
        assert f": {'refused' if stuck else 'nothing to do'}, {begins}" in said
        assert "the free space of its target is unknown" in said
        assert ("it is stuck, and is to be resumed or cancelled; " in said) == stuck


def test_both_of_the_kips_formats_are_understood(yard: Yard) -> None:
    yard.ask("t-0 23")
    yard.journal.mailbox.append(paths.REQUEST_PREFIX, '{"version":1,"assignments":{"t":{"1":[2,3,4]}}}')
    yard.run()
    assert (yard.replicas("t-0"), yard.replicas("t-1")) == ((2, 3), (2, 3, 4))


@pytest.mark.parametrize("path", [paths.REQUEST_PREFIX, paths.CHUNK_PREFIX, paths.REASSIGN_QUEUE])
def test_directories_that_a_document_names_are_judged_by_those_of_the_brokers(yard: Yard, path: str) -> None:
    entries = [
        {"topic": "t", "partition": 0, "replicas": [1, 3], "log_dirs": ["/disk-1", "/disk-2"]},
        {"topic": "t", "partition": 1, "replicas": [2, 3, 4], "log_dirs": ["any", "/disk-2", "any"]},
    ]
    text = json.dumps({"partitions": entries})
    node = yard.write(path, text)
    said = yard.look().sentences
    note = (
        f'{node.path} names a log directory (KIP-113) for t-0 on broker 3; it is taken as "any": the broker chooses '
        "the directory of a replica that it does not hold."
    )
    (plan,) = [sentence for sentence in said if sentence.startswith("Plan ")]
    assert said.index(note) < said.index(plan)
    assert (
        f'{node.path} asks to move t-1 to [2, 3, 4]: refused, it names the log directory "/disk-2" (KIP-113) for t-1 '
        'on broker 3, which has it in "/disk-1", and Kafka Steward moves nothing between the directories of one '
        'broker; write "any", or use kafka-reassign-partitions.' in said
    )
    yard.run()
    assert (yard.replicas("t-0"), yard.replicas("t-1")) == ((1, 3), (2, 3, 1))


def test_the_legacy_key_is_kept_in_the_record(yard: Yard) -> None:
    yard.ask("t-0 23", legacy=True)
    yard.look()
    yard.look()
    assert present(yard.record("t-0")).legacy


def test_requests_for_the_same_partition_by_two_routes_the_later_is_refused_with_a_warning(yard: Yard) -> None:
    yard.ask("t-0 23", legacy=True)
    yard.look()
    yard.ask("t-0 24", "t-1 234")
    said = yard.look().sentences
    assert (
        "/admin/reassignment_requests/request_0000000001 asks to move t-0 to [2, 4]: refused, it is already being "
        "reassigned by another API, /admin/reassign_partitions." in said
    )
    yard.run()
    assert (yard.replicas("t-0"), yard.replicas("t-1")) == ((2, 3), (2, 3, 4))
    (row,) = [row for row in yard.journal.audit.rows(action=Action.REQUEST) if row.outcome is Outcome.REFUSED]
    assert (row.entry.topic, row.entry.partition, row.entry.after) == ("t", 0, [2, 4])


def test_12_to_23_to_24_leaves_3_at_once(yard: Yard) -> None:
    yard.ask("t-0 23")
    yard.look()
    first = read_one(yard.journal.mailbox, paths.reassignment(T0))
    dropped = kip_drop(assigned=(1, 2, 3), isr=(1, 2), leader=1, top=2)
    assert dropped == {3}
    yard.ask("t-0 24")
    yard.look()
    assert not dropped & set(yard.replicas("t-0"))
    again = read_one(yard.journal.mailbox, paths.reassignment(T0))
    assert first is not None
    assert again is not None
    assert again.created_id == first.created_id  # the same reassignment
    assert again.modified_id != first.modified_id  # which has changed since
    record = present(yard.record("t-0"))
    assert (record.original_replicas, record.replicas) == ((1, 2), (2, 4))
    yard.run()
    assert yard.replicas("t-0") == (2, 4)
    assert yard.record("t-0") is None


def kip_drop(*, assigned: tuple[int, ...], isr: tuple[int, ...], leader: int, top: int) -> set[int]:
    """KIP-236's formula; its range includes both ends."""
    osr = tuple(broker for broker in assigned if broker not in isr)
    existing = list(dict.fromkeys((leader, *isr, *osr)))
    return set(assigned) - set(existing[0 : top - 1 + 1])


TARGETS = st.lists(st.sampled_from([1, 2, 3, 4, 5]), min_size=2, max_size=3, unique=True).map(tuple)


@settings(max_examples=tried(40), deadline=None)
@given(st.lists(st.tuples(TARGETS, st.integers(0, 2)), min_size=2, max_size=4), st.sampled_from(["kraft", "zookeeper"]))
def test_no_intermediate_replica_is_left_whatever_is_asked_for(
    wanted: list[tuple[tuple[int, ...], int]], mode: str
) -> None:
    yard = Yard("t: 12", mode=mode)
    for target, ticks in wanted:
        before = yard.simulator.topics[T0]
        isr = tuple(broker for broker in before.original if broker in before.isr)
        dropped = kip_drop(assigned=before.replicas, isr=isr, leader=before.leader or 0, top=len(before.original))
        yard.ask(f"t-0 {''.join(map(str, target))}")
        yard.look()
        after = yard.simulator.topics[T0]
        assert set(after.replicas) <= set(before.original) | set(target)
        assert not dropped & set(after.replicas) - set(target)
        yard.simulator.tick(ticks)
    yard.run()
    assert yard.replicas("t-0") == wanted[-1][0]
    assert yard.journal.mailbox.children(paths.REASSIGNMENTS) == []


def test_asking_for_the_old_replicas_is_how_one_partition_is_cancelled(yard: Yard) -> None:
    yard.ask("t-0 23", "t-1 234")
    yard.look()
    yard.ask("t-0 12")
    yard.run()
    assert (yard.replicas("t-0"), yard.replicas("t-1")) == ((1, 2), (2, 3, 4))
    assert yard.journal.mailbox.children(paths.REASSIGNMENTS) == []


def test_top_below_min_insync_replicas_is_ignored_with_a_warning(yard: Yard) -> None:
    yard.simulator.topic_settings["t"]["min.insync.replicas"] = "3"
    yard.ask("t-0 23")
    said = yard.run()
    assert "refused, its 2 original replicas are fewer than min.insync.replicas, 3; ask for more" in said[0]
    assert yard.replicas("t-0") == (1, 2)
    yard.ask("t-0 123")
    yard.run()
    assert yard.replicas("t-0") == (1, 2, 3), "more replicas are the way out"


@pytest.mark.parametrize("path", [paths.REQUEST_PREFIX, paths.CHUNK_PREFIX, paths.REASSIGN_QUEUE])
def test_a_partition_without_a_leader_is_refused_with_what_brings_one_back_and_keeps_no_plan_open(path: str) -> None:
    yard = Yard("t: 12 53")
    yard.simulator.topic_settings["t"]["min.insync.replicas"] = "3"  # a higher one is no advice here
    for broker in (3, 5):
        yard.simulator.kill(broker)
    yard.write(path, document(["t-0 124", "t-1 14"]))
    said = yard.run()
    why = "asks to move t-1 to [1, 4]: refused, it has no leader to copy from; bring back its broker 5 with its data."
    assert any(line.endswith(why) for line in said), said
    assert (yard.replicas("t-0"), yard.replicas("t-1")) == ((1, 2, 4), (5, 3))
    assert yard.journal.plans.unfinished() == []
    assert not yard.requests()


@pytest.mark.parametrize("mode", ["kraft", "zookeeper"])
def test_the_replicas_of_a_partition_without_a_leader_are_reordered_and_none_is_removed(mode: str) -> None:
    yard = Yard("t: 53 53", mode=mode)
    yard.simulator.topics[TopicPartition("t", 0)].isr.discard(3)
    yard.simulator.kill(5)
    yard.simulator.kill(3)
    yard.ask("t-0 35", "t-1 3")
    said = yard.run()
    assert (yard.replicas("t-0"), yard.replicas("t-1")) == ((3, 5), (5, 3))
    assert any(
        "t-1 to [3]: refused, it has no leader, without which Kafka removes no replica;" in line for line in said
    )
    assert (yard.journal.plans.unfinished(), yard.requests()) == ([], [])


def test_what_a_document_asks_for_in_vain_is_recorded_in_one_transaction(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    insert = yard.journal.audit._table.insert

    def count(records: Sequence[Any]) -> None:
        written.append(len(records))
        insert(records)

    monkeypatch.setattr(yard.journal.audit._table, "insert", count)
    yard.ask(*(f"unknown-{number} 23" for number in range(300)))
    yard.look()
    assert (max(written), len(written) < 10) == (300, True)
    assert yard.requests() == []


@pytest.mark.parametrize("path", [paths.REQUEST_PREFIX, paths.REASSIGN_QUEUE])
@pytest.mark.parametrize(
    ("wanted", "why"),
    [("t-1 1", "it would go from 2 to 1 replica"), ("t-1 14", "broker 4 is cordoned and receives no replicas")],
)
def test_a_target_that_apply_refuses_is_refused_and_holds_up_nothing(path: str, wanted: str, why: str) -> None:
    yard = Yard("t: 12 13")
    yard.simulator.topic_settings["t"]["min.insync.replicas"] = "2"
    yard.simulator.cordoned.add(4)
    yard.write(path, document(["t-0 15", wanted]))
    said = yard.run()
    assert any(f": refused, {why}" in line for line in said), said
    assert (yard.replicas("t-0"), yard.replicas("t-1")) == ((1, 5), (1, 3))
    assert not yard.requests()


def test_a_slow_partition_holds_up_no_later_request() -> None:
    yard = Yard("slow: 12", "t: 12 23")
    yard.simulator.topics[next(name for name in yard.simulator.topics if name.topic == "slow")].size = 10_000
    yard.ask("slow-0 13")
    yard.look()
    yard.ask("t-0 14", "t-1 24")
    for _ in range(12):
        yard.look()
        yard.simulator.tick()
    assert (yard.replicas("t-0"), yard.replicas("t-1")) == ((1, 4), (2, 4))
    assert yard.in_flight() == ["slow-0"]


def test_a_ninth_plan_waits_until_one_of_eight_has_ended() -> None:
    yard = Yard(f"t: {' '.join(['12'] * 9)}", max_in_per_broker=9, max_out_per_broker=9)
    for number in range(8):
        yard.ask(f"t-{number} 13")
        yard.look()
    node = yard.ask("t-8 13")
    assert f"{node.path} waits: 8 plans that documents requested are in progress." in yard.look().sentences
    assert yard.in_flight() == [f"t-{number}" for number in range(8)]
    yard.simulator.bandwidth = 100  # one of them arrives
    yard.simulator.tick()
    yard.look()  # and is found to have ended
    yard.look()
    assert yard.in_flight() == [f"t-{number}" for number in range(1, 9)]
    assert yard.requests() == []


def test_what_would_go_offline_without_its_new_replica_is_superseded_when_an_original_is_back() -> None:
    yard = Yard("t: 1", mode="zookeeper")
    yard.ask("t-0 34")
    yard.look()
    yard.simulator.topics[T0].isr = {3}
    yard.simulator.kill(1)
    node = yard.ask("t-0 25")
    waits = "t-0 waits: KIP-236: none of the original replicas is in sync, so a cancel would take it offline."
    assert waits in yard.look().sentences
    assert (yard.replicas("t-0"), yard.requests()) == ((3, 4, 1), [node.path.rpartition("/")[2]])
    assert yard.journal.audit.rows(action=Action.CANCEL) == []
    yard.simulator.restart(1)
    yard.simulator.topics[T0].isr |= {1}
    yard.run()
    assert yard.replicas("t-0") == (2, 5)


def test_what_holds_up_one_plan_and_another_is_reported_of_both() -> None:
    yard = Yard("t: 1 1", mode="zookeeper")
    for number in (0, 1):
        yard.ask(f"t-{number} 34")
        yard.look()
        yard.simulator.topics[TopicPartition("t", number)].isr = {3}
    yard.simulator.kill(1)
    invalid = yard.journal.mailbox.append(paths.REQUEST_PREFIX, "[]")
    yard.ask("t-0 25", "t-1 25")
    why = "KIP-236: none of the original replicas is in sync, so a cancel would take it offline"
    said = yard.look().sentences
    assert {f"t-0 waits: {why}.", f"t-1 waits: {why}."} <= set(said)
    assert [line for line in said if line.startswith(f"{invalid.path} was not executed: ")]


def test_while_another_process_steps_what_is_left_to_do_waits_for_the_next_look(yard: Yard) -> None:
    yard.ask("t-0 23")
    yard.look()
    node = yard.ask("t-0 24")
    with yard.journal.step_lock("someone"):
        looked = yard.look()
    assert any(line.startswith("The plan is being stepped by someone; ") for line in looked.sentences)
    assert looked.pause_s == 0.5
    assert yard.requests() == [node.path.rpartition("/")[2]]
    yard.run()
    assert yard.replicas("t-0") == (2, 4)


def test_the_soonest_of_all_that_is_awaited_is_when_to_look_again() -> None:
    looked = PollResult()
    for seconds in (5.0, 0.5, 3.0):
        looked.schedule_within(seconds)
    assert looked.pause_s == 0.5


def test_what_has_arrived_is_superseded_when_its_replicas_are_in_sync() -> None:
    yard = Yard("t: 12")
    yard.ask("t-0 23")
    yard.look()
    yard.simulator.run()
    yard.simulator.topics[T0].isr = {2}  # 3 arrived and fell behind, and no look saw it in sync
    yard.simulator.topics[T0].held[3] = 0
    node = yard.ask("t-0 24")
    assert "t-0 waits: it has completed, and not all its replicas are in sync yet." in yard.look().sentences
    assert yard.requests() == [node.path.rpartition("/")[2]]
    assert yard.journal.audit.rows(action=Action.CANCEL) == []
    yard.simulator.tick(4)
    yard.run()
    assert yard.replicas("t-0") == (2, 4)
    assert [record.status for record in yard.journal.plans.latest(5)] == [PlanStatus.COMPLETED] * 2


def published(yard: Yard, *moves: Move, operation: str = "rebalance") -> str:
    """Publish the plan of a DAG."""
    plan = yard.publish(list(moves), operation=operation)
    return plan.digest


def test_a_request_for_what_a_dags_plan_moves_waits_and_others_start_beside_it(yard: Yard) -> None:
    rebalance = published(yard, move("t-1", "231", "234"))
    node = yard.ask("t-1 235")
    yard.ask("t-0 14")
    sentences = yard.look().sentences
    assert sentences[0] == f"{node.path} waits: t-1 is moved by plan {rebalance[:12]} (rebalance) until it ends."
    assert yard.requests() == ["request_0000000000"]
    assert yard.in_flight() == ["t-0"]
    assert yard.journal.slot.holders()[0] == rebalance


def test_a_request_does_not_overtake_an_earlier_one_that_waits(yard: Yard) -> None:
    """Else the earlier one would supersede it, once it starts."""
    published(yard, move("t-1", "231", "234"))
    first = yard.ask("t-1 235", "t-0 14")
    later = yard.ask("t-0 24")
    sentences = yard.look().sentences
    assert sentences[1] == f"{later.path} waits: t-0 is requested by {first.path}, which waits."
    assert yard.in_flight() == []


def test_of_a_queue_what_a_dags_plan_moves_stays_in_it_until_that_has_ended(yard: Yard) -> None:
    rebalance = published(yard, move("t-1", "231", "234"))
    create_document(yard.journal.mailbox, paths.REASSIGN_QUEUE, document(["t-0 14", "t-1 235"]))
    sentences = yard.look().sentences
    why = f"t-1 is moved by plan {rebalance[:12]} (rebalance) until it ends"
    assert f"/admin/reassign_partitions_queue: 1 of 2 partitions wait: {why}." in sentences
    assert yard.in_flight() == ["t-0"]
    queue = present(read_one(yard.journal.mailbox, paths.REASSIGN_QUEUE))
    assert [str(each.topic_partition) for each in Request.from_node(queue).partitions] == ["t-1"]
    for _ in range(30):
        yard.simulator.tick()
        yard.look()
    assert yard.replicas("t-0") == (1, 4)
    assert yard.journal.slot.holders() == (rebalance,), "the plan of the queue's first partition has ended"
    assert read_one(yard.journal.mailbox, paths.REASSIGN_QUEUE) == queue
    abandon_plan(yard.journal, rebalance, WHO, "for the test")
    yard.run()
    assert (yard.replicas("t-0"), yard.replicas("t-1")) == ((1, 4), (2, 3, 5))
    assert read_one(yard.journal.mailbox, paths.REASSIGN_QUEUE) is None


def test_a_heal_goes_before_what_was_asked_for_which_goes_on_after_it() -> None:
    yard = Yard(max_in_flight=1)
    yard.ask("t-0 14", "t-1 235")
    yard.look()
    yard.simulator.kill(3)
    yard.publish(heal_moves(yard.simulator, 3, 4), failed=[3])
    asked = next(record for record in yard.journal.plans.unfinished() if record.operation == "apply")
    assert asked.status is PlanStatus.PREEMPTED


INVALID = {
    "": "does not contain JSON",
    "{": "does not contain JSON",
    "[]": "holds a list where an object is expected",
    "{}": "has no 'partitions'",
    '{"partitions": 7}': "where a list is expected",
    '{"partitions": [{"topic": "t", "partition": -1, "replicas": [1]}]}': "whole number of at least 0",
    '{"partitions": [{"topic": "t", "partition": 0, "replicas": [-1]}]}': "where a list of broker ids is expected",
    '{"partitions": [{"topic": "t", "partition": 0, "replicas": [2, 2]}]}': "names a broker twice",
    '{"partitions": [{"topic": "t", "partition": 0, "replicas": "all"}]}': "where a list is expected",
    '{"version": 99, "partitions": []}': "newer Kafka Steward",
    '{"partitions": [{"topic": "../steward/slot", "partition": 0, "replicas": [1]}]}': "where a topic",
    document(["t-0 23", "t-0 24"]): "names t-0 twice",
    '{"assignments": {"t": {"x": [1]}}}': "which is not a partition number",
}


@pytest.mark.parametrize("text", INVALID)
def test_a_request_that_cannot_be_read_is_deleted_and_reported_and_holds_up_nobody(yard: Yard, text: str) -> None:
    bad = yard.journal.mailbox.append(paths.REQUEST_PREFIX, text)
    yard.ask("t-0 23")
    said = yard.run()
    assert said[0].startswith(f"{bad.path} was not executed: ")
    assert INVALID[text] in said[0]
    assert yard.requests() == []
    assert yard.replicas("t-0") == (2, 3)
    told = yard.journal.audit.rows(action=Action.REQUEST)[0]
    assert (told.outcome, told.entry.before) == (Outcome.REFUSED, text)
    assert yard.quarantined() == [(bad.path, text)]


def test_more_requests_than_are_read_at_once_are_one_plan_per_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_documents, "BATCH", 100)
    yard = Yard(f"t: {' '.join(['12'] * 60)}", max_in_flight=1000, max_in_per_broker=1000, max_out_per_broker=1000)
    yard.simulator.bandwidth = 1_000_000
    for number in range(250):
        yard.ask(f"t-{number % 60} {'13' if number < 190 else '14'}")
    yard.run()
    assert yard.requests() == []
    assert {yard.replicas(f"t-{number}") for number in range(60)} == {(1, 4)}
    assert len(yard.journal.plans.latest(100)) <= 4


def test_a_document_of_a_megabyte_is_read(yard: Yard) -> None:
    padding = "x" * 900_000
    yard.ask("t-0 23", padding=padding)
    yard.run()
    assert yard.replicas("t-0") == (2, 3)


def test_one_larger_than_a_document_is_refused_and_its_beginning_kept(yard: Yard) -> None:
    text = document(["t-0 24"], padding="ö" * 300_000)  # escaped: 1.8 MB
    path = f"{paths.REASSIGNMENT_REQUESTS}/by-hand"
    mailbox: Any = yard.journal.mailbox
    mailbox._nodes[path] = Node(path, text, 0, 7, 7, 7, 7)  # as one SQL insert may
    yard.ask("t-0 23")
    said = yard.run()
    assert "has more than the 1000000 bytes of a document; split it into several." in said[0]
    assert yard.replicas("t-0") == (2, 3)
    assert yard.quarantined() == [(path, text[:1_000_000])]


def test_who_looks_at_the_same_time_changes_nothing(yard: Yard) -> None:
    other = yard.new_watch()
    for number in range(6):
        yard.ask(f"t-0 {'23' if number % 2 else '24'}", "t-1 234")
        yard.look()
        other.poll()
        yard.simulator.tick()
    yard.run()
    assert (yard.replicas("t-0"), yard.replicas("t-1")) == ((2, 3), (2, 3, 4))
    assert yard.journal.slot.holders() == ()


def test_what_kafka_refuses_of_one_topic_concerns_that_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    yard = Yard("t: 12", "secret: 12")
    ask = yard.simulator.topic_configs

    def refusing(topics: Any, *args: Any, **more: Any) -> Any:
        if "secret" in topics:
            raise KafkaRefused(29, "Topic authorization failed.", "Kafka refused reading the settings of secret.")
        return ask(topics, *args, **more)

    monkeypatch.setattr(yard.simulator, "topic_configs", refusing)
    yard.ask("secret-0 23")
    yard.ask("t-0 23")
    said = yard.run()
    assert any("secret-0 to [2, 3]: refused, Kafka said: Topic authorization failed." in each for each in said)
    assert yard.replicas("t-0") == (2, 3)
    assert yard.requests() == []
