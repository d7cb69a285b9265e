"""KIP-236's queue, simulated."""

from __future__ import annotations

import json

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.document_api.request_documents import queue_add, queue_list, queue_remove, remove_started_from_queue
from kafka_steward.errors import DocumentError, RequestError
from kafka_steward.execution.lifecycle import request_cancel
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.runner import PlanRunner
from kafka_steward.journal import paths
from kafka_steward.journal.records import PlanStatus
from tests.crash import Died
from tests.memory_tree import MemoryTree
from tests.protocol.simulated_watch import Yard, document
from tests.simulated_plan import WHO

THREE = document(["t-0 23", "t-1 234", "t-2 345"])


def queued(yard: Yard) -> list[str]:
    return [str(each.topic_partition) for each in queue_list(yard.journal)]


def test_each_partition_leaves_the_queue_when_it_starts_and_the_last_takes_the_node_with_it() -> None:
    yard = Yard(max_in_flight=1)
    assert queue_add(yard.journal, THREE, who=WHO) == 3
    yard.look()
    assert (queued(yard), yard.flying()) == (["t-1", "t-2"], ["t-0"])
    seen = [queued(yard)]
    for _ in range(30):
        yard.simulator.tick()
        yard.look()
        seen += [] if queued(yard) == seen[-1] else [queued(yard)]
    assert seen == [["t-1", "t-2"], ["t-2"], []]
    assert yard.journal.tree.get(paths.REASSIGN_QUEUE) is None
    assert [yard.replicas(f"t-{n}") for n in range(3)] == [(2, 3), (2, 3, 4), (3, 4, 5)]


def test_a_second_writer_is_told_that_a_queue_exists() -> None:
    yard = Yard()
    queue_add(yard.journal, THREE, who=WHO)
    with pytest.raises(
        RequestError, match="/admin/reassign_partitions_queue exists: not all partitions that were queued before"
    ):
        queue_add(yard.journal, THREE, who=WHO)


def test_conflicting_partitions_are_cancelled_first() -> None:
    yard = Yard()
    yard.ask("t-0 23")
    yard.look()
    queue_add(yard.journal, document(["t-0 24", "t-1 234"]), who=WHO)
    yard.look()
    assert 3 not in yard.replicas("t-0")
    yard.run()
    assert (yard.replicas("t-0"), yard.replicas("t-1")) == ((2, 4), (2, 3, 4))


def test_what_is_refused_leaves_the_queue_too() -> None:
    yard = Yard()
    yard.journal.tree.create(paths.REASSIGN_QUEUE, document(["x-0 12", "t-0 19", "t-1 234"]))
    said = yard.run()
    refused = [line.partition(" asks ")[2] for line in said if "refused" in line]
    assert [line.partition(":")[0] for line in refused] == ["to move x-0 to [1, 2]", "to move t-0 to [1, 9]"]
    assert yard.replicas("t-1") == (2, 3, 4)
    assert yard.journal.tree.get(paths.REASSIGN_QUEUE) is None


def test_what_is_removed_before_it_begins_does_not_start() -> None:
    yard = Yard(max_in_flight=1)
    queue_add(yard.journal, THREE, who=WHO)
    yard.look()
    assert queue_remove(yard.journal, who=WHO)
    assert not queue_remove(yard.journal, who=WHO)
    yard.run()
    assert [yard.replicas(f"t-{n}") for n in range(3)] == [(2, 3), (2, 3, 1), (3, 1, 2)]
    assert yard.journal.plans.latest(1)[0].status is PlanStatus.COMPLETED


def test_what_waits_is_done_as_the_queue_has_it_when_someone_changes_it() -> None:
    yard = Yard(max_in_flight=1)
    queue_add(yard.journal, THREE, who=WHO)
    yard.look()
    node = yard.journal.tree.get(paths.REASSIGN_QUEUE)
    assert node is not None
    yard.journal.tree.set(node.path, document(["t-1 235", "t-2 345"]), version=node.version)
    yard.look()
    assert queued(yard) == ["t-1", "t-2"]
    yard.run()
    assert [yard.replicas(f"t-{n}") for n in range(3)] == [(2, 3), (2, 3, 5), (3, 4, 5)]
    assert yard.journal.tree.get(paths.REASSIGN_QUEUE) is None


def test_what_a_second_queue_names_again_is_not_lost_with_the_first() -> None:
    yard = Yard(max_in_flight=1)
    queue_add(yard.journal, THREE, who=WHO)
    yard.look()
    queue_remove(yard.journal, who=WHO)
    queue_add(yard.journal, document(["t-1 234"]), who=WHO)
    yard.look()
    assert queued(yard) == ["t-1"]
    yard.run()
    assert [yard.replicas(f"t-{n}") for n in range(3)] == [(2, 3), (2, 3, 4), (3, 1, 2)]


def test_what_waits_of_several_plans_stays_in_the_queue() -> None:
    yard = Yard(max_in_flight=1)
    yard.ask("t-0 23")
    yard.look()  # what is in flight is not the queue's
    queue_add(yard.journal, document(["t-1 234"]), who=WHO)
    assert yard.look().events == {"request"}
    node = yard.journal.tree.get(paths.REASSIGN_QUEUE)
    assert node is not None
    yard.journal.tree.set(node.path, document(["t-1 234", "t-2 345"]), version=node.version)
    yard.look()
    assert (queued(yard), yard.flying()) == (["t-1", "t-2"], ["t-0"])
    assert queue_remove(yard.journal, who=WHO)
    yard.run()
    assert [yard.replicas(f"t-{n}") for n in range(3)] == [(2, 3), (2, 3, 1), (3, 1, 2)]


def test_what_is_added_to_it_by_hand_is_done_too() -> None:
    yard = Yard(max_in_flight=1)
    queue_add(yard.journal, document(["t-0 23", "t-1 234"]), who=WHO)
    yard.look()
    node = yard.journal.tree.get(paths.REASSIGN_QUEUE)
    assert node is not None
    yard.journal.tree.set(node.path, document(["t-1 234", "t-2 345"]), version=node.version)
    yard.run()
    assert [yard.replicas(f"t-{n}") for n in range(3)] == [(2, 3), (2, 3, 4), (3, 4, 5)]


def test_what_was_cancelled_does_not_begin_again_when_a_watch_died_before_it_emptied_the_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    yard = Yard()
    queue_add(yard.journal, THREE, who=WHO)
    with monkeypatch.context() as dying:
        dying.setattr("kafka_steward.document_api.controller.remove_started_from_queue", die)
        with pytest.raises(Died):
            yard.look()
    assert (yard.flying(), queued(yard)) == (["t-0", "t-1", "t-2"], ["t-0", "t-1", "t-2"])
    (plan,) = yard.journal.plans.unfinished()
    request_cancel(yard.journal, plan.digest, who=WHO, reason="not now")
    runner = PlanRunner(
        ClusterContext(yard.simulator, yard.journal, yard.settings, WHO), plan.digest
    )  # as the command line carries it out
    while not runner.step().ended:
        yard.simulator.tick()
    yard.protocol = yard.new_watch()
    assert yard.run() == []
    assert [yard.replicas(f"t-{n}") for n in range(3)] == [(1, 2), (2, 3, 1), (3, 1, 2)]
    assert [record.status for record in yard.journal.plans.latest(5)] == [PlanStatus.CANCELLED]
    assert yard.journal.tree.get(paths.REASSIGN_QUEUE) is None


def die(*_: object) -> None:
    raise Died


@pytest.mark.parametrize("text", ["", "{", '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 1]}]}'])
def test_a_queue_that_cannot_be_read_is_told_and_goes(text: str) -> None:
    yard = Yard()
    yard.journal.tree.create(paths.REASSIGN_QUEUE, text)
    assert yard.run()[0].startswith("/admin/reassign_partitions_queue was not executed: ")
    assert yard.journal.tree.get(paths.REASSIGN_QUEUE) is None
    assert yard.quarantined() == [(paths.REASSIGN_QUEUE, text)]


QUEUE = document(["t-0 23", "t-1 2"], by="ada")


def test_what_has_not_started_stays_in_the_queue_as_it_was_written() -> None:
    tree = MemoryTree(lambda: 5)
    node = tree.create(paths.REASSIGN_QUEUE, QUEUE)
    remove_started_from_queue(tree, node, {TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("t", 2)})
    assert tree.get(node.path) == node  # nothing is written
    remove_started_from_queue(tree, node, {TopicPartition("t", 1)})
    left = tree.get(node.path)
    assert left is not None
    assert json.loads(left.data) == {
        "version": 1,
        "partitions": [{"topic": "t", "partition": 1, "replicas": [2]}],
        "by": "ada",
    }
    remove_started_from_queue(tree, left, set())
    assert tree.get(node.path) is None


@pytest.mark.parametrize("keep", [set(), {TopicPartition("t", 1)}])
def test_a_queue_that_someone_changes_meanwhile_is_left_to_the_next_look(keep: set[TopicPartition]) -> None:
    tree = MemoryTree(lambda: 5)
    node = tree.create(paths.REASSIGN_QUEUE, QUEUE)
    changed = tree.set(node.path, QUEUE.replace("ada", "bob"), version=0)
    remove_started_from_queue(tree, node, keep)
    assert tree.get(node.path) == changed
    tree.delete(node.path, version=1)
    remove_started_from_queue(tree, node, keep)
    assert tree.get(node.path) is None


def test_what_is_wrong_with_it_is_told_whoever_queues_it() -> None:
    for text, words in (
        ("[]", "The reassignment holds a list where an object is expected; correct or delete it."),
        (
            document([]),
            'The reassignment lists no partition; it should be {"version": 1, "partitions": [...]}.',
        ),
    ):
        with pytest.raises((DocumentError, RequestError)) as refused:
            queue_add(Yard().journal, text, who=WHO)
        assert str(refused.value) == words


@pytest.mark.parametrize("text", ["", "[]", '{"partitions": []}', '{"version": 1}'])
def test_what_is_no_reassignment_is_not_queued(text: str) -> None:
    with pytest.raises((DocumentError, RequestError)):
        queue_add(Yard().journal, text, who=WHO)


def test_while_switched_off_the_queue_waits() -> None:
    yard = Yard()
    yard.journal.tree.create(paths.REASSIGN_CANCEL, "")
    queue_add(yard.journal, THREE, who=WHO)
    assert "waits: reassignments are disabled" in yard.look().sentences[0]
    assert len(queued(yard)) == 3
