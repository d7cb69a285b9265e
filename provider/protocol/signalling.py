"""KIP-236's `/admin/cancel_reassignment_in_progress`: whoever creates it wants what is pending cancelled.

An empty node, the KIP's own form, means all that is under way: every plan, and what came by the old route as far as its
originals are known. The wish is written into the record of each plan, and then the node goes: it is a signal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.state import Snapshot
from kafka_steward.errors import DocumentError, PlanError
from kafka_steward.execution.altering import alter_from
from kafka_steward.execution.cancelling import Scope, request_cancel
from kafka_steward.execution.decisions.reverse import why_not_cancelled
from kafka_steward.execution.deeds import Deeds
from kafka_steward.execution.inflight import flights, forget_in_flight
from kafka_steward.execution.owner import new_owner
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action, Code, Entry, Who
from kafka_steward.journal.documents import InFlight
from kafka_steward.journal.open import Journal
from kafka_steward.journal.requests import CancelRequest
from kafka_steward.journal.tree import Node

__all__ = ["CANCEL_SIGNAL", "heed_signal", "signalled"]

#: In the audit trail, the `after` of the row that says that the signal was heard.
CANCEL_SIGNAL = "cancel signal"
_ROUNDS = 5


def signalled(journal: Journal) -> tuple[Node, CancelRequest] | None:
    """The signal, if there is one; one that cannot be read is as good as the KIP's own, which is empty."""
    node = journal.tree.get(paths.CANCEL_IN_PROGRESS)
    if node is None:
        return None
    try:
        return node, CancelRequest.from_node(node)
    except DocumentError:
        return node, CancelRequest()


def heed_signal(
    cluster: ClusterPort, journal: Journal, request: CancelRequest, plans: Sequence[str], *, who: Who
) -> list[str]:
    """Ask each plan that is meant for its cancel, and cancel what no plan has; returns sentences.

    The caller deletes the signal. Raises ClusterError, JournalError, LockLost: then it is done again.
    """
    meant = [request.plan] if request.plan else list(plans)
    reason = request.reason or f"{paths.CANCEL_IN_PROGRESS} was created"
    asker = Who(dag_id=who.dag_id, task_id=who.task_id, person=request.person)
    scope: Scope = "plan" if request.scope == "plan" else "pending"
    told = [
        _ask(journal, digest, who=asker, reason=reason, scope=scope, even_if_disabled=request.even_if_disabled)
        for digest in meant
    ]
    if not request.plan:
        told += _Foreign(cluster, journal, who).cancel(reason)
    if not told:
        told = [f"{paths.CANCEL_IN_PROGRESS} was created, and there was nothing to cancel."]
    journal.audit.note(Entry(Action.REQUEST, " ".join(told)[:2000], after=CANCEL_SIGNAL, who=asker))
    return told


def _ask(journal: Journal, digest: str, *, reason: str, **how: Any) -> str:
    try:
        request_cancel(journal, digest, reason=reason, **how)
    except PlanError as error:
        return str(error)
    return f"Plan {digest[:12]} is cancelled: {reason}."


class _Foreign:
    """What others have in flight, as far as it was written down: cancelled by KIP-236's rules."""

    def __init__(self, cluster: ClusterPort, journal: Journal, who: Who) -> None:
        self._cluster, self._journal, self._who = cluster, journal, who

    def cancel(self, reason: str) -> list[str]:
        noted = {name: each for name, each in flights(self._journal.tree).items() if each.plan is None}
        if not noted:
            return []
        told: dict[TopicPartition, str] = {}
        with self._journal.step_lock(new_owner()) as fence:
            deeds = Deeds(self._journal.audit, fence)
            for _ in range(_ROUNDS):
                snapshot = self._cluster.snapshot()
                open_ones = {name: each for name, each in noted.items() if name not in told}
                self._settle(open_ones, snapshot, told)
                self._act(deeds, {name: each for name, each in open_ones.items() if name not in told}, snapshot, reason)
        return list(told.values())

    def _settle(
        self, noted: Mapping[TopicPartition, InFlight], snapshot: Snapshot, told: dict[TopicPartition, str]
    ) -> None:
        for name, each in noted.items():
            partition = snapshot.partitions.get(name)
            if partition is None or (not partition.reassigning and _is_back(partition.replicas, each)):
                forget_in_flight(self._journal.tree, None, [name])
                told[name] = f"{name} is as it was before."
                continue
            rule = why_not_cancelled(each.original_replicas, partition, snapshot.live)
            if partition.reassigning and rule:
                entry = Entry(
                    Action.SKIP, rule, topic=name.topic, partition=name.partition, who=self._who, code=Code.FORBIDDEN
                )
                self._journal.audit.note(entry)
                told[name] = f"{name} was not cancelled: {rule}."
            elif not partition.reassigning and set(partition.replicas) != set(each.original_replicas or ()):
                told[name] = f"{name} had arrived."

    def _act(self, deeds: Deeds, noted: Mapping[TopicPartition, InFlight], snapshot: Snapshot, reason: str) -> None:
        flying = [name for name in noted if snapshot.partitions[name].reassigning]
        mixed = {name: each.original_replicas or () for name, each in noted.items() if name not in flying}
        deeds.do({name: [self._entry(Action.CANCEL, name, reason)] for name in flying}, self._cluster.cancel)
        lost = "the cancel lost the order of the replicas"
        deeds.do(
            {name: [self._entry(Action.REORDER, name, lost)] for name in mixed},
            lambda batch: alter_from(
                self._cluster,
                {name: mixed[name] for name in batch},
                {name: snapshot.partitions[name].replicas for name in batch},
            ),
        )

    def _entry(self, action: Action, name: TopicPartition, reason: str) -> Entry:
        return Entry(action, reason, topic=name.topic, partition=name.partition, who=self._who)


def _is_back(replicas: tuple[int, ...], noted: InFlight) -> bool:
    return replicas == noted.original_replicas
