"""What a journal holds that the page shows: three clusters, plans in many states, and names that try to break out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from hashlib import sha256
from itertools import islice
from typing import Any

import sqlalchemy as sa

from kafka_steward.assignment import MoveReason
from kafka_steward.journal.audit import Action, Actor, Outcome
from kafka_steward.journal.hosts import POLLS, Poll
from kafka_steward.journal.kip_documents import CancelRequest
from kafka_steward.journal.observed import (
    ApprovalState,
    BrokerChange,
    BrokerReport,
    CheckReport,
    CheckState,
    HeldGroup,
    LeftPartition,
    PartitionRate,
    PlanReport,
    ProgressReport,
    ProofSummary,
)
from kafka_steward.journal.records import MoveState, PlanRecord, PlanStatus
from kafka_steward.journal.schema import tables
from kafka_steward.journal.state import encode
from kafka_steward.journal.store import open_journal

__all__ = ["CONN_IDS", "HOSTILE", "Scene", "digest_of", "fill_scene"]

#: The connections of the clusters, in this order: a broker has failed, a drain runs, nothing is wrong.
CONN_IDS = ("kafka_failed", "kafka_moving", "kafka_quiet")
#: What a topic, a reason or a person's name may hold.
HOSTILE = "<img src=x onerror=alert(1)>\"'&{{7*7}}\u202egnp.exe\x1b[31m"
_MINUTE = 60_000
_AT_ONCE = 5_000


def digest_of(name: str) -> str:
    return sha256(name.encode()).hexdigest()


def cluster_id(conn_id: str) -> str:
    return f"id-of-{conn_id}"


@dataclass(frozen=True)
class Scene:
    """The size of what is written: of the running plan's moves, and of its cluster's audit trail."""

    url: str
    now_ms: int
    brokers: int = 6
    moves: int = 300
    audit_rows: int = 200
    health_rows: int = 200


def fill_scene(scene: Scene) -> None:
    """Write all of it into a new journal, as the watch and the runs would."""
    for conn_id in CONN_IDS:
        open_journal(scene.url, cluster_id(conn_id)).close()
    engine = sa.create_engine(scene.url)
    try:
        with engine.begin() as connection:
            for table, rows in _rows(scene):
                _insert(connection, table, rows)
            if engine.dialect.name == "postgresql":
                connection.execute(sa.text("ANALYZE"))
    finally:
        engine.dispose()


def _insert(connection: sa.Connection, table: sa.Table, rows: Iterable[Mapping[str, Any]]) -> None:
    left = iter(rows)
    while some := list(islice(left, _AT_ONCE)):
        connection.execute(sa.insert(table), some)


def _rows(scene: Scene) -> Iterator[tuple[sa.Table, Iterable[Mapping[str, Any]]]]:
    yield tables.watch_check, list(_checks(scene))
    yield (
        tables.state,
        [
            {
                "cluster_id": cluster_id(each),
                "noun": POLLS.name,
                "key": "failures/triggerer",
                "value": encode(Poll("failures", "triggerer")),
                "created_id": 0,
                "revision": 0,
                "at_ms": scene.now_ms,
            }
            for each in CONN_IDS
        ],
    )
    for conn_id in CONN_IDS:
        yield tables.broker, list(_brokers(scene, conn_id))
        yield tables.rate, list(_rates(scene, conn_id))
        yield tables.health, list(_health(scene, conn_id))
        yield tables.plan, list(_plans(scene, conn_id))
    yield tables.progress, list(_progress(scene))
    yield tables.document, list(_documents(scene))
    yield tables.plan_move, _moves(scene)
    yield tables.audit, _audit(scene)


def _checks(scene: Scene) -> Iterator[Mapping[str, Any]]:
    failed = CheckReport(
        CONN_IDS[0],
        "failures",
        "triggerer",
        "0.1.0",
        scene.now_ms,
        CheckState.GRACE_PERIOD,
        "Broker 3 is down; its grace period ends in 12 min.",
        (3,),
        scene.now_ms + 12 * _MINUTE,
    )
    fine = [CheckReport(each, "failures", "triggerer", "0.1.0", scene.now_ms) for each in CONN_IDS[1:]]
    for report in (failed, *fine):
        yield {"cluster_id": cluster_id(report.conn_id), **_values(report)}


def _brokers(scene: Scene, conn_id: str) -> Iterator[Mapping[str, Any]]:
    for broker in range(1, scene.brokers + 1):
        failed = conn_id == CONN_IDS[0] and broker == 3
        report = BrokerReport(
            broker,
            "abc"[broker % 3] if broker != scene.brokers else None,
            live=not failed,
            cordoned=conn_id == CONN_IDS[1] and broker == 2,
            replicas=30_000 + 17 * broker,
            leaders=0 if failed else 10_000 + broker,
            under_replicated=12 if conn_id == CONN_IDS[0] else 0,
            failed_log_dirs=("/data/2",) if conn_id == CONN_IDS[0] and broker == 1 else (),
            replica_bytes=410_000_000_000 + 9_000_000_000 * broker,
            disk_total=1_000_000_000_000,
            disk_usable=400_000_000_000,
            bytes_in=48_000_000 if conn_id == CONN_IDS[1] else 0,
            bytes_out=31_000_000 if conn_id == CONN_IDS[1] else 0,
            leader_bytes_in=7_000_000 + 100_000 * broker,
            follower_bytes_in=14_000_000,
            at_ms=scene.now_ms,
        )
        yield {"cluster_id": cluster_id(conn_id), **_values(report)}


def _rates(scene: Scene, conn_id: str) -> Iterator[Mapping[str, Any]]:
    for number in range(7):
        rate = PartitionRate("orders", number, None, 2_000_000 - 250_000 * number, at_ms=scene.now_ms)
        yield {"cluster_id": cluster_id(conn_id), **_values(rate)}


def _health(scene: Scene, conn_id: str) -> Iterator[Mapping[str, Any]]:
    for number in range(scene.health_rows):
        left = scene.health_rows - number
        measures = {
            "under_replicated_partitions": 12 if conn_id == CONN_IDS[0] and left < scene.health_rows // 3 else 0,
            "under_min_isr_partitions": 0,
            "offline_partitions": 0,
            "reassigning_partitions": number % 40 if conn_id == CONN_IDS[1] else 0,
            "failed_brokers": 1 if conn_id == CONN_IDS[0] and left < scene.health_rows // 3 else 0,
            "replica_imbalance": 0.02 + (number % 30) / 1000,
            "leader_imbalance": 0.05 + (number % 20) / 1000,
        }
        at_ms = scene.now_ms - left * 5 * _MINUTE
        yield {"cluster_id": cluster_id(conn_id), "at_ms": at_ms, "measures": json.dumps(measures)}


def _proof(scene: Scene) -> ProofSummary:
    return ProofSummary(
        replicas_moved=scene.moves,
        lower_bound=scene.moves,
        bytes_moved=scene.moves * 3_000_000,
        leader_changes=17,
        predicted_s=scene.moves * 3_000_000 / 50_000_000,
        throttle=50_000_000,
        rack_violations_before=4,
        bytes_in_before=1.72,
        bytes_in_after=1.34,
        rack_violations_after=0,
        rack_left=(LeftPartition("canary", 0, "service_topic"),),
        rack_left_counts={"service_topic": 2},
    )


def _changes(scene: Scene) -> tuple[BrokerChange, ...]:
    return tuple(
        BrokerChange(
            *(each, 900 + 40 * each, 0 if each == 4 else 1000, 300 + each, 0 if each == 4 else 330),
            *(410_000_000_000 + 9_000_000_000 * each, 0 if each == 4 else 530_000_000_000),
        )
        for each in range(1, scene.brokers + 1)
    )


def _plans(scene: Scene, conn_id: str) -> Iterator[Mapping[str, Any]]:
    ada = Actor("rebalance_it", "manual__1", "submit", 1, "ada")
    hour = 60 * _MINUTE
    ended = PlanReport(
        digest_of(f"ended {conn_id}"),
        "heal",
        PlanStatus.COMPLETED,
        "every replica is back",
        scene.now_ms - 20 * hour,
        scene.now_ms - 20 * hour,
        scene.now_ms - 20 * hour,
        scene.now_ms - 19 * hour,
        partitions=72,
        failed_brokers=(2,),
        throttle=50_000_000,
        who=ada,
    )
    undone = PlanReport(
        digest_of(f"undone {conn_id}"),
        "rebalance",
        PlanStatus.ROLLED_BACK,
        HOSTILE,
        scene.now_ms - 50 * hour,
        scene.now_ms - 50 * hour,
        partitions=9,
        who=Actor(person=HOSTILE),
        cancel=CancelRequest(None, "plan", HOSTILE, HOSTILE),
        not_rolled_back=2,
    )
    yield from (_plan_row(scene, conn_id, each) for each in (ended, undone))
    if conn_id == CONN_IDS[1]:
        running = PlanReport(
            digest_of("running"),
            "drain",
            PlanStatus.RUNNING,
            "rack b is rewired",
            scene.now_ms - hour,
            scene.now_ms - hour,
            scene.now_ms - hour,
            partitions=scene.moves,
            throttle=50_000_000,
            needs_approval=True,
            who=ada,
        )
        yield _plan_row(scene, conn_id, running) | {
            "approval": ApprovalState.APPROVED,
            "answered_by": "bob",
            "answer": "looks right",
            "answered_ms": scene.now_ms - hour,
        }


def _plan_row(scene: Scene, conn_id: str, plan: PlanReport) -> dict[str, Any]:
    approval = dict.fromkeys(("approval", "asked_ms", "expires_ms", "asked_by", "answered_ms", "answered_by", "answer"))
    return {
        **vars(PlanRecord("", "", "")),
        **{name: value for name, value in _values(plan).items() if name not in {"approval", "proof"}},
        "cluster_id": cluster_id(conn_id),
        "modified_ms": plan.listed_ms,
        **approval,
        "conn_id": conn_id,
        "proof": _proof(scene),
        "brokers": _changes(scene),
    }


def _progress(scene: Scene) -> Iterator[Mapping[str, Any]]:
    settled, total = scene.moves // 4, scene.moves * 3_000_000
    ended_ms = scene.now_ms - 19 * 60 * _MINUTE
    ended = ProgressReport(
        digest_of(f"ended {CONN_IDS[2]}"),
        ended_ms,
        PlanStatus.COMPLETED,
        partitions_total=72,
        partitions_settled=72,
        completed=72,
        bytes_total=total,
        bytes_done=total + 12_000_000,
    )
    yield {"cluster_id": cluster_id(CONN_IDS[2]), **_values(ended)}
    series = tuple((scene.now_ms - (60 - each) * _MINUTE, total * each // 240, each) for each in range(60))
    report = ProgressReport(
        digest_of("running"),
        scene.now_ms,
        PlanStatus.RUNNING,
        partitions_total=scene.moves,
        partitions_settled=settled,
        in_flight=20,
        waiting=scene.moves - settled - 20,
        completed=settled,
        held_count=3,
        held=(HeldGroup("broker 5 announced a restart", 3, HOSTILE),),
        stalled_count=1,
        stalled=("orders-7",),
        bytes_total=total,
        bytes_done=total // 4,
        bytes_per_s=47_000_000,
        eta_s=3 * total // 4 // 47_000_000,
        throttle=50_000_000,
        chunk=2,
        chunks=6,
        sentence="25% of the partitions are settled.",
        series=series,
    )
    yield {"cluster_id": cluster_id(CONN_IDS[1]), **_values(report)}


def _requested(scene: Scene, partitions: int, *first: tuple[str, int, list[int]], error: str = "") -> dict[str, Any]:
    return {
        "name": f"document_{partitions}",
        "created_ms": scene.now_ms,
        "partitions": partitions,
        "first": [dict(zip(("topic", "partition", "replicas"), each, strict=True)) for each in first],
        "waits": "for the next poll of a watch",
        "plan": None,
        "error": error,
    }


def _documents(scene: Scene) -> Iterator[Mapping[str, Any]]:
    queued: Mapping[str, Any] = {
        "queue": [_requested(scene, 4, *(("q", number, [2, 3]) for number in range(3)))],
        "requests": [
            _requested(scene, 1, ("r", 7, [3, 1])),
            _requested(scene, 1, (HOSTILE, 0, [1])),
            _requested(scene, 0, error=HOSTILE),
        ],
    }
    announced: Mapping[str, Any] = {
        "restarts": [{"broker": 5, "announced_ms": scene.now_ms, "until_ms": scene.now_ms + 20 * _MINUTE}],
        "pending_replicas": [{"topic": HOSTILE, "partition": 3, "brokers": [1, 2], "missing": 1}],
    }
    for conn_id, kind, documents in (
        *((CONN_IDS[1], *each) for each in announced.items()),
        *((CONN_IDS[2], *each) for each in queued.items()),
    ):
        yield {
            "cluster_id": cluster_id(conn_id),
            "kind": kind,
            "at_ms": scene.now_ms,
            "count": len(documents),
            "documents": documents,
        }


def _moves(scene: Scene) -> Iterator[Mapping[str, Any]]:
    states = (MoveState.COMPLETED, MoveState.WAITING, MoveState.WAITING, MoveState.WAITING)
    for number in range(scene.moves):
        topic = HOSTILE if number == 0 else f"orders.{number // 50:05}"
        yield {
            "cluster_id": cluster_id(CONN_IDS[1]),
            "plan": digest_of("running"),
            "topic": topic.replace("\x1b", ""),
            "partition": number % 50,
            "topic_id": None,
            "before": (1, 2, 4),
            "after": (1, 2, 5),
            "chunk": number // 50,
            "position": number % 50,
            "purpose": MoveReason.BROKER_DRAINING.value,
            "size_bytes": 3_000_000,
            "state": states[number % 4],
            "detail": "",
            "attempt": 1,
            "submitted_ms": scene.now_ms,
            "settled_ms": scene.now_ms if number % 4 == 0 else None,
            "isr_seen": number % 4 == 0,
            "phase": None,
            "stage": 0,
            "cause": None,
            "unacknowledged": False,
            "refused": 0,
        }


def _audit(scene: Scene) -> Iterator[Mapping[str, Any]]:
    actions = (Action.SUBMIT, Action.SETTLE, Action.THROTTLE, Action.UNTHROTTLE)
    for number in range(scene.audit_rows):
        yield {
            "cluster_id": cluster_id(CONN_IDS[1]),
            "when_ms": scene.now_ms - number * 1_000,
            "completed_ms": scene.now_ms - number * 1_000 + 40,
            "outcome": Outcome.DONE,
            "detail": "",
            "action": actions[number % 4],
            "reason": HOSTILE if number == 1 else "drain of broker 4",
            "plan": digest_of("running"),
            "chunk": number // 200,
            "topic": f"orders.{number // 200:05}",
            "partition": number % 200,
            "broker": number % scene.brokers,
            "attempt": number,
            "before": [1, 2, 4],
            "after": [1, 2, 5],
            "dag_id": "rebalance_it",
            "run_id": "manual__1",
            "task_id": "submit",
            "try_number": 1,
            "person": "ada" if number % 2 else "bob",
            "code": None,
        }


def _values(record: Any) -> dict[str, Any]:
    return {each.name: getattr(record, each.name) for each in fields(record)}
