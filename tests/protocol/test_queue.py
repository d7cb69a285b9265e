"""KIP-236's queue, and KIP-46's chunks that a person wrote, simulated: carried out in their turn, or refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.document_api.document_status import read_document_status
from kafka_steward.document_api.manual_chunks import ManualChunks
from kafka_steward.document_api.request_documents import (
    parse_reassignment_text,
    queue_add,
    queue_list,
    queue_remove,
    remove_started_from_queue,
)
from kafka_steward.document_api.request_status import RequestState, read_request_statuses
from kafka_steward.errors import RequestError
from kafka_steward.execution.announcements import disable_reassignment, enable_reassignment
from kafka_steward.execution.plans.lifecycle import request_cancel
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action, Outcome
from kafka_steward.journal.kip_documents import Chunk
from kafka_steward.journal.mailbox import Node, read_one
from kafka_steward.journal.records import MoveState, PlanStatus
from tests.crash import Died, Faults
from tests.documents import change_document, create_document, delete_document
from tests.memory_mailbox import MemoryMailbox
from tests.present import present
from tests.protocol.simulated_watch import WATCH, Yard, document
from tests.protocol.test_failover import wrapped
from tests.rings import one_in
from tests.simulated_plan import WHO, move

THREE = document(["t-0 23", "t-1 234", "t-2 345"])


def queued(yard: Yard) -> list[str]:
    return [str(each.topic_partition) for each in queue_list(yard.journal)]


def test_each_partition_leaves_the_queue_when_it_starts_and_the_last_takes_the_node_with_it() -> None:
    yard = Yard(max_in_flight=1)
    assert queue_add(yard.journal, THREE, who=WHO) == 3
    yard.look()
    assert (queued(yard), yard.in_flight()) == (["t-1", "t-2"], ["t-0"])
    seen = [queued(yard)]
    for _ in range(30):
        yard.simulator.tick()
        yard.look()
        seen += [] if queued(yard) == seen[-1] else [queued(yard)]
    assert seen == [["t-1", "t-2"], ["t-2"], []]
    assert read_one(yard.journal.mailbox, paths.REASSIGN_QUEUE) is None
    assert [yard.replicas(f"t-{n}") for n in range(3)] == [(2, 3), (2, 3, 4), (3, 4, 5)]


def test_a_second_writer_is_refused_because_a_queue_exists(yard: Yard) -> None:
    queue_add(yard.journal, THREE, who=WHO)
    with pytest.raises(
        RequestError, match="/admin/reassign_partitions_queue exists: not all partitions that were queued before"
    ):
        queue_add(yard.journal, THREE, who=WHO)


def test_conflicting_partitions_are_cancelled_first(yard: Yard) -> None:
    yard.ask("t-0 23")
    yard.look()
    queue_add(yard.journal, document(["t-0 24", "t-1 234"]), who=WHO)
    yard.look()
    assert 3 not in yard.replicas("t-0")
    yard.run()
    assert (yard.replicas("t-0"), yard.replicas("t-1")) == ((2, 4), (2, 3, 4))


def test_what_is_removed_before_it_begins_does_not_start() -> None:
    yard = Yard(max_in_flight=1)
    queue_add(yard.journal, THREE, who=WHO)
    yard.look()
    assert queue_remove(yard.journal, who=WHO)
    assert not queue_remove(yard.journal, who=WHO)
    yard.run()
    assert [yard.replicas(f"t-{n}") for n in range(3)] == [(2, 3), (2, 3, 1), (3, 1, 2)]
    assert yard.journal.plans.latest(1)[0].status is PlanStatus.COMPLETED


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
    node = present(read_one(yard.journal.mailbox, paths.REASSIGN_QUEUE))
    change_document(yard.journal.mailbox, node.path, document(["t-1 234", "t-2 345"]))
    yard.look()
    assert (queued(yard), yard.in_flight()) == (["t-1", "t-2"], ["t-0"])
    assert queue_remove(yard.journal, who=WHO)
    yard.run()
    assert [yard.replicas(f"t-{n}") for n in range(3)] == [(2, 3), (2, 3, 1), (3, 1, 2)]


def test_what_is_added_to_it_by_hand_is_done_too() -> None:
    yard = Yard(max_in_flight=1)
    queue_add(yard.journal, document(["t-0 23", "t-1 234"]), who=WHO)
    yard.look()
    node = present(read_one(yard.journal.mailbox, paths.REASSIGN_QUEUE))
    change_document(yard.journal.mailbox, node.path, document(["t-1 235", "t-2 345"]))
    yard.look()
    assert queued(yard) == ["t-1", "t-2"]
    yard.run()
    assert [yard.replicas(f"t-{n}") for n in range(3)] == [(2, 3), (2, 3, 5), (3, 4, 5)]
    assert read_one(yard.journal.mailbox, paths.REASSIGN_QUEUE) is None


def test_what_was_cancelled_does_not_begin_again_when_a_watch_died_before_it_emptied_the_queue(
    yard: Yard,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queue_add(yard.journal, THREE, who=WHO)
    with monkeypatch.context() as dying:
        dying.setattr("kafka_steward.document_api.controller.remove_started_from_queue", die)
        with pytest.raises(Died):
            yard.look()
    assert (yard.in_flight(), queued(yard)) == (["t-0", "t-1", "t-2"], ["t-0", "t-1", "t-2"])
    (plan,) = yard.journal.plans.unfinished()
    request_cancel(yard.journal, plan.digest, who=WHO, reason="not now")
    runner = yard.runner(plan.digest)  # as the command line carries it out
    while not runner.step().ended:
        yard.simulator.tick()
    yard.protocol = yard.new_watch()
    assert yard.run() == []
    assert [yard.replicas(f"t-{n}") for n in range(3)] == [(1, 2), (2, 3, 1), (3, 1, 2)]
    assert [record.status for record in yard.journal.plans.latest(5)] == [PlanStatus.CANCELLED]
    assert read_one(yard.journal.mailbox, paths.REASSIGN_QUEUE) is None


def die(*_: object) -> None:
    raise Died


@pytest.mark.parametrize("text", ["", "{", '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 1]}]}'])
def test_a_queue_that_cannot_be_read_is_reported_and_deleted(yard: Yard, text: str) -> None:
    create_document(yard.journal.mailbox, paths.REASSIGN_QUEUE, text)
    assert yard.run()[0].startswith("/admin/reassign_partitions_queue was not executed: ")
    assert read_one(yard.journal.mailbox, paths.REASSIGN_QUEUE) is None
    assert yard.quarantined() == [(paths.REASSIGN_QUEUE, text)]


QUEUE = document(["t-0 23", "t-1 2"], by="ada")


def test_what_has_not_started_stays_in_the_queue_as_it_was_written() -> None:
    mailbox = MemoryMailbox(lambda: 5)
    node = create_document(mailbox, paths.REASSIGN_QUEUE, QUEUE)
    remove_started_from_queue(mailbox, node, {TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("t", 2)})
    assert read_one(mailbox, node.path) == node  # nothing is written
    remove_started_from_queue(mailbox, node, {TopicPartition("t", 1)})
    left = present(read_one(mailbox, node.path))
    assert json.loads(left.data) == {
        "version": 1,
        "partitions": [{"topic": "t", "partition": 1, "replicas": [2]}],
        "by": "ada",
    }
    remove_started_from_queue(mailbox, left, set())
    assert read_one(mailbox, node.path) is None


@pytest.mark.parametrize("keep", [set(), {TopicPartition("t", 1)}])
def test_a_queue_that_someone_changes_meanwhile_is_left_to_the_next_look(keep: set[TopicPartition]) -> None:
    mailbox = MemoryMailbox(lambda: 5)
    node = create_document(mailbox, paths.REASSIGN_QUEUE, QUEUE)
    changed = change_document(mailbox, node.path, QUEUE.replace("ada", "bob"))
    remove_started_from_queue(mailbox, node, keep)
    assert read_one(mailbox, node.path) == changed
    delete_document(mailbox, node.path)
    remove_started_from_queue(mailbox, node, keep)
    assert read_one(mailbox, node.path) is None


def write(yard: Yard, *wanted: str, generated: bool = False) -> Node:
    """A chunk as KIP-46 has it: `write(yard, "t-0 23")`."""
    kip: dict[str, Any] = {"partitions": json.loads(document(wanted))["partitions"], "isAutoGenerated": generated}
    return yard.journal.mailbox.append(paths.CHUNK_PREFIX, json.dumps(kip))


def chunks(yard: Yard) -> list[str]:
    return yard.journal.mailbox.children(paths.REASSIGN_CHUNKS)


def test_a_chunk_that_a_person_wrote_is_carried_out_and_deleted(yard: Yard) -> None:
    written = write(yard, "t-0 23")
    assert yard.look().events == {"request"}
    assert read_one(yard.journal.mailbox, written.path) is None
    (name,) = chunks(yard)
    node = present(read_one(yard.journal.mailbox, paths.chunk(name)))
    assert not Chunk.from_node(node).is_auto_generated
    assert Chunk.from_node(node).plan is not None
    said = yard.run()
    assert said[-1].endswith("is complete: 1 of 1 partition moved.")
    assert yard.replicas("t-0") == (2, 3)
    assert chunks(yard) == []
    assert yard.journal.slot.holders() == ()


def test_it_is_not_skipped_because_the_partition_is_whole() -> None:
    """KIP-46: only tasks with isAutoGenerated are cancelled when the partitions have all replicas again."""
    yard = Yard("t: 123")
    write(yard, "t-0 423")
    yard.run()
    (plan,) = yard.journal.plans.latest(5)
    assert [row.state for row in yard.journal.plans.rows(plan.digest)] == [MoveState.COMPLETED]
    assert yard.replicas("t-0") == (4, 2, 3)


def test_the_next_chunk_begins_when_the_one_before_has_ended(yard: Yard) -> None:
    write(yard, "t-0 23")
    second = write(yard, "t-1 234")
    yard.look()
    said = yard.look().sentences
    assert yard.in_flight() == ["t-0"]
    assert f"{second.path} waits: the chunk before it is in progress." in said
    assert read_one(yard.journal.mailbox, second.path) is not None
    seen: set[tuple[str, ...]] = set()
    for _ in range(60):
        seen.add(tuple(yard.in_flight()))
        yard.look()
        yard.simulator.tick()
    assert seen == {("t-0",), (), ("t-1",)}
    assert (yard.replicas("t-0"), yard.replicas("t-1")) == ((2, 3), (2, 3, 4))
    assert chunks(yard) == []


def test_chunks_are_taken_by_their_numbers_and_other_names_last(yard: Yard) -> None:
    mailbox, read = yard.journal.mailbox, ManualChunks(yard.journal.mailbox)
    text = json.dumps({"partitions": [], "isAutoGenerated": False})
    for name in ("by-hand", "another", "chunk_10", "chunk_9"):
        create_document(mailbox, paths.chunk(name), text)
    order = []
    while (found := read.read_next(())) is not None:
        order.append(found.node.path.rpartition("/")[2])
        delete_document(mailbox, found.node.path)
    assert order == ["chunk_9", "chunk_10", "by-hand", "another"]


def test_of_chunks_that_were_created_by_one_statement_the_name_decides(yard: Yard) -> None:
    mailbox: Any = yard.journal.mailbox
    text = json.dumps({"partitions": [], "isAutoGenerated": False})
    for name in ("by-hand", "chunk_07", "another", "chunk_7"):
        mailbox._nodes[paths.chunk(name)] = Node(paths.chunk(name), text, 0, 7, 7, 7, 7)
    waiting = ManualChunks(mailbox).read_waiting(())
    assert [each.node.path.rpartition("/")[2] for each in waiting] == ["chunk_07", "chunk_7", "another", "by-hand"]


def why(yard: Yard) -> list[str]:
    """What each waits for, as `status` says it."""
    return [each.why for each in read_document_status(yard.journal).chunks]


def test_status_says_what_each_waits_for(yard: Yard) -> None:
    first, second, third = (write(yard, each) for each in ("t-0 23", "t-1 234", "t-2 314"))
    after = [f"for {first.path}, the chunk before it", f"for {second.path}, the chunk before it"]
    assert why(yard) == ["for the next poll of a watch", *after]
    disable_reassignment(yard.journal, who=WATCH, reason="an audit")
    assert why(yard) == ["until reassignments are enabled", *after]
    enable_reassignment(yard.journal, who=WATCH)
    yard.look()
    (running,) = yard.journal.plans.unfinished()
    assert why(yard) == [f"for plan {running.digest[:12]}, which executes the chunk before it", after[1]]
    assert [each.path for each in read_document_status(yard.journal).chunks] == [second.path, third.path]
    yard.run()
    assert why(yard) == []


def test_status_says_that_one_waits_for_the_plan_that_moves_its_partition_or_to_be_refused() -> None:
    yard = Yard("t: 123 231")
    plan = yard.publish([move("t-0", "123", "423")], operation="apply")
    write(yard, "t-0 243")
    yard.journal.mailbox.append(paths.CHUNK_PREFIX, "{")
    assert why(yard) == [
        f"because t-0 is moved by plan {plan.digest[:12]} (apply) until it ends",
        "to be refused, because it cannot be read",
    ]
    asked = parse_reassignment_text(document(["t-0 243"]))
    (status,) = read_request_statuses(yard.simulator, yard.journal, asked)
    assert (status.state, why(yard)[0] in status.sentence) == (RequestState.WAITING, True)


def test_status_says_that_a_chunk_whose_plan_is_there_is_executed_by_it() -> None:
    quiet = Faults()
    first = Yard()
    write(first, "t-0 23")
    wrapped(first, quiet).poll()
    yard = Yard()
    written = write(yard, "t-0 23")
    deleted = next(at for at in range(len(quiet.calls) - 1, 0, -1) if quiet.calls[at] == "mailbox.delete")
    with pytest.raises(Died):
        wrapped(yard, Faults(deleted, "dies before")).poll()
    assert read_one(yard.journal.mailbox, written.path) is not None
    (running,) = yard.journal.plans.unfinished()
    assert why(yard) == [f"for plan {running.digest[:12]}, which executes it"]


def test_a_plans_own_chunks_are_left_to_that_plan() -> None:
    yard = Yard("t: 123 231")
    plan = yard.publish([move("t-0", "123", "423")], operation="apply")
    own = chunks(yard)
    written = write(yard, "t-0 243")
    said = yard.look().sentences
    assert chunks(yard) == [*own, written.path.rpartition("/")[2]]
    assert f"{written.path} waits: t-0 is moved by plan {plan.digest[:12]} (apply) until it ends." in said
    assert yard.in_flight() == []
    runner = yard.runner(plan.digest)
    while not runner.step().ended:
        yard.simulator.tick()
    yard.run()
    assert yard.replicas("t-0") == (2, 4, 3)


def test_what_a_publication_that_died_left_behind_is_not_carried_out(yard: Yard) -> None:
    yard.journal.mailbox.append(
        paths.CHUNK_PREFIX,
        json.dumps({"partitions": json.loads(document(["t-0 23"]))["partitions"], "plan": "a" * 64, "chunk": 0}),
    )
    assert yard.look().events == set()
    assert yard.run() == []
    assert yard.replicas("t-0") == (1, 2)
    assert len(chunks(yard)) == 1
    write(yard, "t-1 234")
    yard.run()
    assert yard.replicas("t-1") == (2, 3, 4)


@pytest.mark.parametrize("path", [paths.REQUEST_PREFIX, paths.CHUNK_PREFIX, paths.REASSIGN_QUEUE])
def test_while_reassignments_are_disabled_every_document_waits(yard: Yard, path: str) -> None:
    node = create_document(yard.journal.mailbox, path, document(["t-0 23"]))
    disable_reassignment(yard.journal, who=WATCH, reason="an audit")
    (said,) = yard.look().sentences
    assert said.startswith(f"{node.path} waits: reassignments are disabled")
    assert (read_one(yard.journal.mailbox, node.path), yard.in_flight()) == (node, [])
    enable_reassignment(yard.journal, who=WATCH)
    yard.run()
    assert yard.replicas("t-0") == (2, 3)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "does not contain JSON"),
        ('{"isAutoGenerated": false}', "partitions"),
        ('{"partitions": [{"topic": "t", "partition": 0}], "isAutoGenerated": false}', "replicas"),
        (document(["t-0 23", "t-0 24"]), "names t-0 twice; correct it."),
        (
            '{"partitions": [], "isAutoGenerated": true}',
            "has isAutoGenerated true and names no plan, and only a plan writes such chunks; write",
        ),
    ],
)
def test_one_that_cannot_be_carried_out_is_refused_with_the_reason_and_quarantined(
    yard: Yard, text: str, why: str
) -> None:
    written = yard.journal.mailbox.append(paths.CHUNK_PREFIX, text)
    (said,) = [line for line in yard.look().sentences if written.path in line]
    assert said.startswith(f"{written.path} was not executed: {written.path}")
    assert why in said
    assert chunks(yard) == []
    assert yard.quarantined() == [(written.path, text)]
    (row,) = yard.journal.audit.rows(action=Action.REQUEST)
    assert row.outcome is Outcome.REFUSED
    write(yard, "t-0 23")
    yard.run()
    assert yard.replicas("t-0") == (2, 3), "it holds up none after it"


@pytest.mark.parametrize("path", [paths.CHUNK_PREFIX, paths.REASSIGN_QUEUE])
def test_a_partition_that_cannot_be_moved_is_refused_and_the_others_move(yard: Yard, path: str) -> None:
    node = create_document(yard.journal.mailbox, path, document(["x-0 12", "t-0 29", "t-1 234"]))
    refused = [line for line in yard.run() if "refused" in line]
    assert refused == [
        f"{node.path} asks to move x-0 to [1, 2]: refused, there is no such partition.",
        f"{node.path} asks to move t-0 to [2, 9]: refused, the cluster has no broker 9.",
    ]
    assert (yard.replicas("t-0"), yard.replicas("t-1")) == ((1, 2), (2, 3, 4))
    assert read_one(yard.journal.mailbox, node.path) is None


@pytest.mark.parametrize("kind", ["dies before", "dies after"])
def test_a_watch_that_dies_at_any_call_carries_it_out_once(kind: str) -> None:
    quiet, first = Faults(), Yard()
    write(first, "t-0 23")
    wrapped(first, quiet).poll()
    for at in range(0, len(quiet.calls), one_in(15)):
        yard = Yard()
        write(yard, "t-0 23")
        try:
            wrapped(yard, Faults(at, kind)).poll()
        except Died:
            yard.simulator.tick(61)  # the step lock runs out
        yard.protocol = yard.new_watch()
        yard.run()
        assert yard.replicas("t-0") == (2, 3), (at, quiet.calls[at])
        assert chunks(yard) == []
        assert len(yard.journal.plans.latest(5)) == 1, (at, quiet.calls[at])


def test_a_chunk_of_other_partitions_starts_beside_a_plan() -> None:
    yard = Yard("t: 123 231")
    yard.publish([move("t-0", "123", "423")], operation="apply")
    write(yard, "t-1 243")
    assert yard.look().events == {"request"}
    assert len(yard.journal.slot.holders()) == 2
