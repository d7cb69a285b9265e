"""Partition rules: each requested partition is moved, superseded, skipped or refused. Pure (KIP-236).

Requests are evaluated in the order in which they were created. A partition can be requested by two routes: KIP-236's
requests, and the legacy znode `/admin/reassign_partitions`, whose reassignments carry `legacy`. The route that came
first keeps the partition, and a request by the other route is refused with a warning. Within one route the later
request wins: the reassignment in flight is cancelled first, so that no replica remains on a broker of the obsolete
target, and then the new target is submitted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from kafka_steward.assignment import Assignment, TopicPartition, bring_back, only_reorders
from kafka_steward.cluster.state import Partition, Snapshot
from kafka_steward.execution.cluster_queries import HIDDEN
from kafka_steward.execution.moves.directories import other_directory_reason
from kafka_steward.given_targets import broker_fault, worse_target_reason
from kafka_steward.planning.files.reassignment import Replica, directories_by_replica


@dataclass(frozen=True, slots=True)
class RequestedAssignment:
    """One requested partition; `source` is the document's path, `legacy` the route that the document states.

    `log_dirs` has a log directory for each replica, or "any" (KIP-113).
    """

    partition: TopicPartition
    replicas: Assignment
    source: str
    legacy: bool = False
    log_dirs: tuple[str, ...] | None = None

    @property
    def directories(self) -> dict[Replica, str]:
        """The log directories that are named."""
        return directories_by_replica(self.partition, self.replicas, self.log_dirs)


@dataclass(frozen=True, slots=True)
class ActiveReassignment:
    """A reassignment in flight or waiting. `plan` is the digest of our plan; None for an external reassignment.

    `waits` says why our plan has not submitted it; empty if it has. A `stuck` plan waits for a person.
    """

    target: Assignment
    originals: Assignment | None
    legacy: bool = False
    plan: str | None = None
    waits: str = ""
    stuck: bool = False


@dataclass(frozen=True)
class ClusterView:
    """The input of `decide_requests`: cluster state, reassignments in flight or waiting, and known min.insync.replicas.

    `min_isr` is by topic. `refused` has Kafka's error message for each topic whose settings it does not let us read.
    `directories` are the log directories in which the brokers hold the replicas for which a document names one, and
    `cordoned` the brokers that receive no replicas.
    """

    snapshot: Snapshot
    active: Mapping[TopicPartition, ActiveReassignment] = field(default_factory=dict)
    min_isr: Mapping[str, int] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    directories: Mapping[Replica, str] = field(default_factory=dict)
    cordoned: frozenset[int] = frozenset()


class RequestOutcome(Enum):
    """The outcome of one requested partition."""

    MOVE = "move"
    #: Another reassignment of ours is cancelled first.
    SUPERSEDE = "supersede"
    #: No-op: the partition has the requested replicas already, or is being reassigned to them, or a plan will do that.
    DONE = "done"
    #: A later document of the same batch requests another target.
    OVERTAKEN = "overtaken"
    REFUSE = "refuse"


@dataclass(frozen=True)
class RequestDecision:
    """The decision on one requested partition, and the reason as a clause. `active` is the superseded reassignment."""

    asked: RequestedAssignment
    outcome: RequestOutcome
    why: str = ""
    active: ActiveReassignment | None = None


def decide_requests(asked: Iterable[RequestedAssignment], view: ClusterView) -> list[RequestDecision]:
    """Decide each requested partition, in order; at most one decision per partition is MOVE or SUPERSEDE."""
    decisions: list[RequestDecision] = []
    chosen: dict[TopicPartition, int] = {}
    for one in asked:
        earlier = decisions[chosen[one.partition]] if one.partition in chosen else None
        decision = _decide_request(one, view, earlier)
        if decision.outcome is not RequestOutcome.REFUSE:
            if earlier is not None and decision.outcome is not RequestOutcome.DONE:
                why = f"{one.source} has since requested {list(one.replicas)}"
                decisions[chosen[one.partition]] = RequestDecision(earlier.asked, RequestOutcome.OVERTAKEN, why)
            if decision.outcome is not RequestOutcome.DONE:
                chosen[one.partition] = len(decisions)
        decisions.append(decision)
    return decisions


def _decide_request(asked: RequestedAssignment, view: ClusterView, earlier: RequestDecision | None) -> RequestDecision:
    partition = view.snapshot.partitions.get(asked.partition)
    flight = view.active.get(asked.partition)
    if partition is None:
        topic, snapshot = asked.partition.topic, view.snapshot
        absent = snapshot.deletion_clause(topic) or "there is no such partition"
        return RequestDecision(asked, RequestOutcome.REFUSE, HIDDEN if topic in snapshot.hidden else absent)
    if asked.partition.topic in view.refused:
        return RequestDecision(asked, RequestOutcome.REFUSE, f"Kafka said: {view.refused[asked.partition.topic]}")
    why = (
        _invalid_target_reason(asked, partition, view)
        or _other_api_reason(asked, partition, flight, earlier)
        or _no_leader_reason(asked, partition, flight, view)
        or _too_few_replicas_reason(asked, partition, flight, view)
        or _worse_target_reason(asked, partition, flight, view)
        or other_directory_reason(asked.directories, view.directories)
    )
    if why:
        return RequestDecision(asked, RequestOutcome.REFUSE, why)
    if earlier is not None:
        return _decide_later_request(asked, earlier)
    if flight is not None and flight.target == asked.replicas:
        outcome = RequestOutcome.REFUSE if flight.stuck and flight.waits else RequestOutcome.DONE
        return RequestDecision(
            asked, outcome, flight.waits or f"it is already being reassigned to {list(asked.replicas)}"
        )
    return _decide_first_request(asked, partition, flight)


def _decide_first_request(
    asked: RequestedAssignment, partition: Partition, flight: ActiveReassignment | None
) -> RequestDecision:
    if flight is not None:
        return RequestDecision(asked, RequestOutcome.SUPERSEDE, active=flight)
    if partition.replicas == asked.replicas:
        return RequestDecision(asked, RequestOutcome.DONE, f"it already has the replicas {list(asked.replicas)}")
    return RequestDecision(asked, RequestOutcome.MOVE)


def _decide_later_request(asked: RequestedAssignment, earlier: RequestDecision) -> RequestDecision:
    """Decide a later request for a partition whose earlier request is in the same batch and has not started."""
    if earlier.asked.replicas == asked.replicas:
        return RequestDecision(asked, RequestOutcome.DONE, f"{earlier.asked.source} requests the same")
    return RequestDecision(asked, earlier.outcome, active=earlier.active)


def _invalid_target_reason(asked: RequestedAssignment, partition: Partition, view: ClusterView) -> str:
    if not asked.replicas:
        return "it names no broker"
    known = frozenset(view.snapshot.brokers) | view.snapshot.hosting_brokers
    for broker in asked.replicas:
        # A reassignment that waits for a dead broker would only block the requests after it.
        why = "" if broker in partition.replicas else broker_fault(broker, view.snapshot.live, known)
        if why:
            return f"{why}; submit it again when it is" if broker in known else why
    return ""


def _other_api_reason(
    asked: RequestedAssignment, partition: Partition, flight: ActiveReassignment | None, earlier: RequestDecision | None
) -> str:
    legacy = flight.legacy if flight is not None else earlier.asked.legacy if earlier is not None else asked.legacy
    if legacy != asked.legacy:
        route = "/admin/reassign_partitions" if legacy else "a request"
        return f"it is already being reassigned by another API, {route}"
    if partition.reassigning and (flight is None or flight.plan is None):
        return "an external reassignment is moving it"
    return ""


def _no_leader_reason(
    asked: RequestedAssignment, partition: Partition, flight: ActiveReassignment | None, view: ClusterView
) -> str:
    """Return why Kafka would not complete the request without a leader; empty with one, or if only the order changes.

    A plan of a given file leaves such a partition out. A request would wait, and keep its place, for ever: Kafka
    removes replicas only once those that stay are in sync (4.3 on KRaft and 3.9 with ZooKeeper).
    """
    there = (partition.replicas if flight is None else flight.originals) or ()
    in_flight_there = flight is not None and flight.target == asked.replicas
    if partition.leader is not None or in_flight_there or only_reorders(there, asked.replicas):
        return ""
    what = " to copy from" if set(asked.replicas).difference(there) else ", without which Kafka removes no replica"
    return f"it has no leader{what}; {bring_back(partition.last_in_sync(view.snapshot), view.snapshot.live)}"


def _too_few_replicas_reason(
    asked: RequestedAssignment, partition: Partition, flight: ActiveReassignment | None, view: ClusterView
) -> str:
    """Return why the partition has too few original replicas (`top` in KIP-236); empty when it has enough.

    The KIP keeps at least as many replicas as there were originally while a reassignment is in flight, and writes need
    min.insync.replicas of them. A request for the original replicas cancels the reassignment in flight, and needs no
    more replicas than there were.
    """
    originals = partition.replicas if flight is None or flight.originals is None else flight.originals
    if flight is not None and asked.replicas == originals:
        return ""
    least = view.min_isr.get(asked.partition.topic)
    # A request that adds replicas is exempt: it is the way out.
    if least is None or len(originals) >= least or len(asked.replicas) > len(originals):
        return ""
    return (
        f"its {len(originals)} original replicas are fewer than min.insync.replicas, {least}; ask for more replicas "
        "than it has, or lower min.insync.replicas of its topic"
    )


def _worse_target_reason(
    asked: RequestedAssignment, partition: Partition, flight: ActiveReassignment | None, view: ClusterView
) -> str:
    originals = partition.original if flight is None or flight.originals is None else flight.originals
    if flight is not None and asked.replicas in {originals, flight.target}:
        return ""
    return worse_target_reason(asked.replicas, originals, view.min_isr.get(asked.partition.topic), view.cordoned)
