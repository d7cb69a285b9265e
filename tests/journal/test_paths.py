from __future__ import annotations

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.errors import RequestError
from kafka_steward.journal import paths


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (paths.failed_broker(3), "/admin/failed_brokers/3"),
        (paths.rolling_bounce(0), "/admin/rolling_bounce/0"),
        (paths.REASSIGN_CANCEL, "/admin/reassign_cancel"),
        (paths.CANCEL_IN_PROGRESS, "/admin/cancel_reassignment_in_progress"),
        (paths.REQUEST_PREFIX, "/admin/reassignment_requests/request_"),
        (paths.REASSIGN_QUEUE, "/admin/reassign_partitions_queue"),
        (paths.CHUNK_PREFIX, "/admin/reassign_chunks/chunk_"),
        (paths.chunk("chunk_0000000001"), "/admin/reassign_chunks/chunk_0000000001"),
        (paths.reassignment(TopicPartition("a.b_C-d", 7)), "/admin/reassignments/a.b_C-d/7"),
        (paths.reassignments_of("t"), "/admin/reassignments/t"),
        (paths.SLOT, "/steward/slot"),
        (paths.STEP_LOCK, "/steward/step_lock"),
        (paths.plan("ab12"), "/steward/plans/ab12"),
        (paths.borrowed("broker", "3", "a.rate"), "/steward/borrowed/broker/3/a.rate"),
        (paths.borrowed_below("topic"), "/steward/borrowed/topic"),
    ],
)
def test_paths_are_the_designs(path: str, expected: str) -> None:
    assert path == expected
    assert paths.checked_path(path) == path


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "../steward/slot", "a b", "ü", "a\n", "a" * 250, "a\x00"])
def test_no_topic_reaches_another_node(topic: str) -> None:
    with pytest.raises(RequestError, match="is no topic"):
        paths.reassignment(TopicPartition(topic, 0))


@pytest.mark.parametrize("digest", ["", "..", "a/b"])
def test_no_digest_reaches_another_node(digest: str) -> None:
    with pytest.raises(RequestError, match="is no plan digest"):
        paths.plan(digest)


@pytest.mark.parametrize("number", [-1, 2**31, True])
def test_numbers_are_kafkas(number: int) -> None:
    with pytest.raises(RequestError, match="is no broker"):
        paths.failed_broker(number)
    with pytest.raises(RequestError, match="is no partition"):
        paths.reassignment(TopicPartition("t", number))


@pytest.mark.parametrize(("name", "broker"), [("3", 3), ("0", 0), ("x", None), ("-1", None), ("٣", None), ("", None)])
def test_a_child_that_names_no_broker_is_left_out(name: str, broker: int | None) -> None:
    assert paths.broker_of(name) == broker
