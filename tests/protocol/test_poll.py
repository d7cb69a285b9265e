"""One look of the watch at everything: whatever is told is told, and in the order in which it is looked at."""

from __future__ import annotations

from kafka_steward.assignment import TopicPartition
from kafka_steward.document_api.controller import DocumentController
from kafka_steward.journal import paths
from kafka_steward.journal.listing import SWEEP_MS
from tests.protocol.simulated_watch import WATCH, Yard, document


def test_each_part_of_a_look_is_told() -> None:
    yard = Yard(zookeeper=True, mode="zookeeper")
    tree = yard.journal.tree
    tree.create(paths.CANCEL_IN_PROGRESS, "")
    request = yard.ask("t-0 19")
    tree.create(paths.REASSIGN_QUEUE, document(["t-1 239"]))
    tree.create(paths.REASSIGN_PARTITIONS, "[]")
    looked = yard.look()
    assert looked.sentences == [
        "/admin/cancel_reassignment_in_progress was created, and there was nothing to cancel.",
        f"{request.path} asks to move t-0 to [1, 9]: refused, the cluster has no broker 9.",
        "/admin/reassign_partitions_queue asks to move t-1 to [2, 3, 9]: refused, the cluster has no broker 9.",
        "Left to Kafka: /admin/reassign_partitions holds a list where an object is expected; correct or delete it.",
    ]
    assert looked.events == {"cancel", "request"}
    assert looked.pause_s is None


def test_while_switched_off_what_waits_and_what_others_do_is_told() -> None:
    yard = Yard(zookeeper=True, mode="zookeeper")
    tree = yard.journal.tree
    off = tree.create(paths.REASSIGN_CANCEL, "")
    yard.look()
    request = yard.ask("t-0 23")
    tree.create(paths.REASSIGN_PARTITIONS, "[]")
    yard.simulator.alter({TopicPartition("t", 1): (2, 3, 4)})
    since = "reassignments are disabled by an unnamed user since 1970-01-01 00:16:40 UTC"
    assert yard.look().sentences == [
        f"{request.path} waits: {since}.",
        "Left to Kafka: /admin/reassign_partitions holds a list where an object is expected; correct or delete it.",
        f"Someone reassigns t-1 though {since}; it is left alone.",
    ]
    assert tree.get(off.path) == off


def test_only_where_the_tree_is_the_brokers_own_is_kafkas_node_looked_at() -> None:
    yard = Yard()
    yard.journal.tree.create(paths.REASSIGN_PARTITIONS, "[]")
    watch = DocumentController(yard.simulator, yard.journal, yard.settings, WATCH)
    assert watch.poll().sentences == []


def test_unreadable_documents_are_quarantined_at_most_once_per_interval() -> None:
    yard = Yard()
    yard.look()
    yard.journal.tree.create("/admin/failed_brokers/foo", "{}")
    for passed_ms in (0, SWEEP_MS - 1):
        yard.simulator.now_ms += passed_ms
        yard.look()
        assert yard.quarantined() == []
    yard.simulator.now_ms += 1
    yard.look()
    assert yard.quarantined() == [("/admin/failed_brokers/foo", "{}")]


def test_unreadable_documents_are_quarantined_at_once_after_the_clock_was_set_back() -> None:
    yard = Yard()
    yard.look()
    yard.journal.tree.create("/admin/failed_brokers/foo", "{}")
    yard.simulator.now_ms -= 1
    yard.look()
    assert yard.quarantined() == [("/admin/failed_brokers/foo", "{}")]
