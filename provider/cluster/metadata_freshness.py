"""Correct stale broker metadata by recent controller responses, so that no move looks ended or external.

No I/O; the clock is the caller's.

The controller lists reassignments, and a broker describes partitions. The broker's metadata is older: by 75 ms, and at
times 240 ms, where it was measured; by many seconds if a ZooKeeper-mode controller has to propagate hundreds of moves.
A move that has just ended is absent from the list, while a broker still shows the target plus the replicas to remove. A
move that was submitted and completed immediately is absent, while a broker still shows the old replicas. After a
cancel, a broker may show the partition as if the move had never started. Without reconciliation, each of these looks
like an external reassignment, or like a completed move.

Therefore the state that a broker shows is compared with the controller's lists and with our own requests. It counts as
in flight

* while it is certainly stale: it equals a state that the list showed in flight, or its leader epoch is no higher than
  before our request (for at most `STALE_LIMIT_S`, in case that reasoning is wrong);
* for `GRACE_S` after the controller's last response, if it may be either stale or current. A reassignment that only
  removes replicas is listed with the same replicas that a cancel leaves.

Kafka increments the leader epoch whenever a replica is removed, so no set of replicas recurs with the same epoch. A
ZooKeeper-mode controller increments it with every change, even a change of the replica order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from kafka_steward.assignment import Assignment, TopicPartition
from kafka_steward.cluster.state import Partition, Reassignment

#: The grace period, in seconds, in which a broker has to learn of a change by the controller.
GRACE_S = 5.0
#: The limit, in seconds, up to which a state that is known to be stale is corrected.
STALE_LIMIT_S = 600.0


@dataclass(frozen=True, slots=True)
class _AcceptedRequest:
    """A request that the controller accepted: `target` is None for a cancel.

    `topic_id` and `epoch` are the values that a broker showed last before the request; `arrived_epoch` is the one with
    which it showed the target at rest, None until then.
    """

    target: Assignment | None
    topic_id: str | None
    epoch: int
    at_s: float
    arrived_epoch: int | None = None


class _TopicMetadata(NamedTuple):
    """The state of a topic that a broker showed last: its id, and the leader epoch by partition.

    The epochs are in one dict per topic, because the garbage collector does not track a dict of numbers. One tuple per
    partition it would traverse, and block all threads meanwhile.
    """

    topic_id: str | None
    epochs: dict[int, int]


_NO_METADATA = _TopicMetadata(None, {})


class MetadataReconciler:
    """The recent responses of the controller to one client, and the client's requests. Times are monotonic seconds.

    `orders_raise_epochs` is True if a change of the replica order increments the leader epoch, as in ZooKeeper mode.
    It may change while a cluster migrates to KRaft.
    """

    def __init__(self, *, orders_raise_epochs: bool = False) -> None:
        self.orders_raise_epochs = orders_raise_epochs
        self._listed: dict[TopicPartition, tuple[Reassignment, float]] = {}
        self._accepted: dict[TopicPartition, _AcceptedRequest] = {}
        self._shown: dict[str, _TopicMetadata] = {}
        self._now_s = 0.0

    def on_listed(self, listed: Mapping[TopicPartition, Reassignment], now_s: float) -> None:
        """Record a list of the controller: exactly these reassignments are in flight."""
        self._now_s = now_s
        self._listed |= {name: (in_flight, now_s) for name, in_flight in listed.items()}
        for name in listed.keys() & self._accepted.keys():
            # The list knows more than our request does. Only a request for this very target still matters: its grace
            # period starts again, and another client's reassignment has replaced any other request.
            request = self._accepted.pop(name)
            if request.target == listed[name].target:
                self._accepted[name] = replace(request, at_s=now_s, arrived_epoch=None)
        self._listed = {name: kept for name, kept in self._listed.items() if now_s - kept[1] < STALE_LIMIT_S}
        self._accepted = {
            name: request for name, request in self._accepted.items() if now_s - request.at_s < STALE_LIMIT_S
        }

    def on_accepted(self, targets: Mapping[TopicPartition, Assignment | None], now_s: float) -> None:
        """Record targets that the controller has accepted; None is a cancel."""
        for name, target in targets.items():
            shown = self._shown.get(name.topic, _NO_METADATA)
            # -1 for a partition that no broker has shown yet: then no state of it counts as older than the request.
            self._accepted[name] = _AcceptedRequest(target, shown.topic_id, shown.epochs.get(name.partition, -1), now_s)

    def reconcile(
        self, partitions: Mapping[TopicPartition, Partition], listed: Mapping[TopicPartition, Reassignment]
    ) -> dict[TopicPartition, Partition]:
        """Return `partitions` with the reassignments that are in flight.

        `partitions` is a broker's metadata; `listed` is the controller's list, which must have been read after it.
        """
        # The next requests record these epochs as those of the state that they change.
        self._shown = _metadata_by_topic(partitions)
        return {name: self._reconcile_partition(name, seen, listed.get(name)) for name, seen in partitions.items()}

    def _reconcile_partition(self, name: TopicPartition, seen: Partition, in_flight: Reassignment | None) -> Partition:
        if in_flight is not None:
            return _with_reassignment(seen, in_flight)
        request = self._accepted.get(name)
        was, listed_s = self._listed.get(name, (None, 0.0))
        if request is not None and (
            seen.is_recreated(request.topic_id)
            # For example another process has moved the partition back since.
            or (request.arrived_epoch is not None and seen.leader_epoch > request.arrived_epoch)
        ):
            return seen
        if request is not None and request.target == seen.replicas:
            # With a higher epoch than this one, other replicas are a later change, not an older state.
            self._accepted[name] = replace(request, arrived_epoch=seen.leader_epoch)
        target = None if request is None else request.target
        if request is not None and target is not None and self._may_be_requested_target(target, request, was, seen):
            # The broker shows the request as the list did, and the list knows which replicas were added.
            if was is not None and target == was.target != seen.replicas == was.replicas:
                return _with_reassignment(seen, was)
            return seen if target == seen.replicas else _reassigning_to(seen, target)
        if was is not None and self._is_still_shown(was, listed_s, request, seen):
            return _with_reassignment(seen, was)
        return seen

    def _may_be_requested_target(
        self, target: Assignment, request: _AcceptedRequest, was: Reassignment | None, seen: Partition
    ) -> bool:
        """Return whether the broker shows the requested target, or a state that may be older than the request."""
        if target == seen.replicas or self._now_s - request.at_s < GRACE_S:
            return True
        if was is not None and was.replicas == seen.replicas and not was.adding:
            return False  # another client may have cancelled it: that leaves these replicas, and the same epoch
        raised = self.orders_raise_epochs or frozenset(target) != frozenset(seen.replicas)
        return raised and _is_older_metadata(seen, request)

    def _is_still_shown(
        self, was: Reassignment, at_s: float, request: _AcceptedRequest | None, seen: Partition
    ) -> bool:
        """Return whether the broker still shows, as in flight or not started, a move that has left the list."""
        cancelled = request is not None and request.target is None
        if was.replicas == seen.replicas:
            if was.adding and was.removing:
                return True
            # Without replicas to remove, this may also be the completed state. Without replicas to add, it is the
            # state after a cancel: certainly after one that Kafka accepted from us, possibly after another client's.
            return bool(was.adding or not cancelled) and self._now_s - at_s < GRACE_S
        older = request is not None and _is_older_metadata(seen, request)
        return cancelled and older and bool(was.adding)  # if no replica was being added, a cancel changes no replicas


def _metadata_by_topic(partitions: Mapping[TopicPartition, Partition]) -> dict[str, _TopicMetadata]:
    shown: dict[str, _TopicMetadata] = {}
    for name, seen in partitions.items():
        if name.topic not in shown:
            shown[name.topic] = _TopicMetadata(seen.topic_id, {})
        shown[name.topic].epochs[name.partition] = seen.leader_epoch
    return shown


def _is_older_metadata(seen: Partition, request: _AcceptedRequest) -> bool:
    # The epochs of a re-created topic start again.
    return seen.topic_id == request.topic_id and 0 <= seen.leader_epoch <= request.epoch


def _with_reassignment(seen: Partition, in_flight: Reassignment) -> Partition:
    return replace(seen, replicas=in_flight.replicas, adding=in_flight.adding, removing=in_flight.removing)


def _reassigning_to(seen: Partition, target: Assignment) -> Partition:
    """Return `seen` as Kafka shows a partition in flight to `target`: the target, then the replicas to remove."""
    adding = tuple(broker for broker in target if broker not in seen.replicas)
    removing = tuple(broker for broker in seen.replicas if broker not in target)
    return replace(seen, replicas=(*target, *removing), adding=adding, removing=removing)
