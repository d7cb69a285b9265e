from __future__ import annotations

from collections.abc import Callable

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.errors import RequestError
from kafka_steward.journal import paths
from kafka_steward.journal.records import DEFERRED_PARTITIONS, PENDING_REPLICAS


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
        (paths.approval("ab12"), "/steward/approvals/ab12"),
        (PENDING_REPLICAS.path("t", 7), "/steward/pending_replicas/t/7"),
        (PENDING_REPLICAS.path("t"), "/steward/pending_replicas/t"),
        (DEFERRED_PARTITIONS.path("t"), "/steward/deferred_partitions/t"),
        (paths.failed_broker(2**31 - 1), "/admin/failed_brokers/2147483647"),
        (paths.reassignments_of("t" * 249), f"/admin/reassignments/{'t' * 249}"),
        (paths.lease("broker", "3", "a.rate"), "/steward/throttle_leases/broker/3/a.rate"),
        (paths.leases_of("topic"), "/steward/throttle_leases/topic"),
    ],
)
def test_paths_are_the_designs(path: str, expected: str) -> None:
    assert path == expected
    assert paths.validate_path(path) == path


OTHERS = ["", ".", "..", "a/b", "../steward/slot", "a b", "ü", "a\n", "a" * 250, "a\x00"]


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize(
    ("what", "path"),
    [
        ("topic", lambda name: paths.reassignment(TopicPartition(name, 0))),
        ("topic", paths.reassignments_of),
        ("topic", PENDING_REPLICAS.path),
        ("topic", DEFERRED_PARTITIONS.path),
        ("topic", lambda name: PENDING_REPLICAS.path(name, 0)),
        ("chunk", paths.chunk),
        ("plan", paths.plan),
        ("plan", paths.approval),
        ("kind or name of what a throttle is on", paths.leases_of),
        ("kind or name of what a throttle is on", lambda name: paths.lease(name, "3", "a.rate")),
        ("kind or name of what a throttle is on", lambda name: paths.lease("broker", name, "a.rate")),
        ("setting of Kafka", lambda name: paths.lease("broker", "3", name)),
    ],
)
def test_no_name_reaches_another_node(what: str, path: Callable[[str], str], name: str) -> None:
    with pytest.raises(RequestError) as refused:
        path(name)
    assert str(refused.value) == (
        f"{name[:80]!r} is no {what}: at most 249 letters, digits, dots, underscores and hyphens."
    )


@pytest.mark.parametrize("number", [-1, 2**31, True])
@pytest.mark.parametrize(
    ("what", "path"),
    [
        ("broker id", paths.failed_broker),
        ("broker id", paths.rolling_bounce),
        ("partition", lambda number: paths.reassignment(TopicPartition("t", number))),
        ("partition", lambda number: PENDING_REPLICAS.path("t", number)),
    ],
)
def test_numbers_are_kafkas(what: str, path: Callable[[int], str], number: int) -> None:
    with pytest.raises(RequestError) as refused:
        path(number)
    assert str(refused.value) == (
        f"'{number}' is no {what}, a whole number from 0 to 2147483647 without leading zeros."
    )


def test_a_path_is_as_long_as_every_backend_takes() -> None:
    longest = "/" + "a" * 1023
    assert paths.validate_path(longest) == longest
    with pytest.raises(RequestError) as refused:
        paths.validate_path(f"{longest}a")
    assert str(refused.value) == (
        f"'/{'a' * 79}' is not a path in the journal; a path looks like /admin/failed_brokers/3."
    )


@pytest.mark.parametrize(("name", "broker"), [("3", 3), ("0", 0), ("x", None), ("-1", None), ("٣", None), ("", None)])
def test_a_child_that_names_no_broker_is_left_out(name: str, broker: int | None) -> None:
    assert paths.broker_from_name(name) == broker


LEASES = "/steward/throttle_leases"


@pytest.mark.parametrize(
    ("path", "parsed"),
    [
        (f"{LEASES}/broker/3/a.rate", ("broker", "3", "a.rate")),
        (f"{LEASES}/topic/broker/a.replicas", ("topic", "broker", "a.replicas")),
        (f"{LEASES}/broker/three/a.rate", None),
        (f"{LEASES}/broker/3/a rate", None),
        (f"{LEASES}/topic/my topic/a.replicas", None),
        (f"{LEASES}/topic/t", None),
        (f"{LEASES}/topic/t/a/b", None),
    ],
)
def test_the_path_of_a_lease_names_what_it_is_on(path: str, parsed: tuple[str, str, str] | None) -> None:
    assert paths.parse_lease_path(path) == parsed


def test_names_and_ids_at_their_limits() -> None:
    longest = "r" * 900
    assert [paths.REQUEST.parse(name) for name in (longest, longest + "r", ".", "..")] == [longest, None, None, None]
    assert [paths.is_broker_or_partition_id(number) for number in (0, 2**31 - 1, 2**31)] == [True, True, False]
