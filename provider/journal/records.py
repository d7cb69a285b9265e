"""Our own records: plans, moves and the rest of our state, as the rows of the database hold them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple, TypedDict, Unpack

from kafka_steward.assignment import Assignment, Move, TopicPartition
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Actor
from kafka_steward.journal.kip_documents import AnnouncedRestartDocument, CancelRequest, FailedBroker, InFlight
from kafka_steward.journal.listing import DocumentCollection
from kafka_steward.journal.paths import BROKER, PARTITION, REQUEST, TOPIC
from kafka_steward.journal.state import Noun, parse_partition


class PlanStatus(StrEnum):
    """The state of a plan."""

    #: Published; nothing was submitted yet.
    PUBLISHED = "published"
    #: In execution.
    RUNNING = "running"
    #: Another plan took the plan slot from it, and gives it back at its end.
    PREEMPTED = "preempted"
    #: No process has stepped it for a while; the next step resumes it.
    IDLE = "idle"
    #: Blocked after too many attempts without progress: it needs operator action.
    STUCK = "stuck"
    #: Everything that could be done is done.
    COMPLETED = "completed"
    #: It ended by itself, and none of its moves was made or was no longer needed.
    FAILED = "failed"
    #: The pending reassignments were cancelled (KIP-236).
    CANCELLED = "cancelled"
    #: Every partition is back at its original replicas.
    ROLLED_BACK = "rolled_back"
    #: Abandoned by a user; the partitions that it moved stay as they are.
    ABANDONED = "abandoned"

    @property
    def finished(self) -> bool:
        """True if the state is final."""
        return self in _FINISHED

    @property
    def ended_by_itself(self) -> bool:
        """True if it ended without a decision of a person: as far as it could be executed, it was."""
        return self in {PlanStatus.COMPLETED, PlanStatus.FAILED}

    @property
    def waits(self) -> bool:
        """True if it is preempted or idle: it goes on without a decision of a person."""
        return self in {PlanStatus.PREEMPTED, PlanStatus.IDLE}


_FINISHED = {
    PlanStatus.COMPLETED,
    PlanStatus.FAILED,
    PlanStatus.CANCELLED,
    PlanStatus.ROLLED_BACK,
    PlanStatus.ABANDONED,
}


@dataclass(frozen=True)
class LeaderRate:
    """A rate of others at a broker that leads; with `for_all`, it is the one that is set for all brokers."""

    broker: int
    bytes_per_s: int
    for_all: bool = False


#: How the reason of a plan begins of which a rollback reverted a part; its status stays.
REVERTED_IN_PART = "reverted in part"


def status_text(word: str, reason: str) -> str:
    """Return the status of a plan, a `word`, for people: also that a part of it was reverted."""
    return f"{word}, {REVERTED_IN_PART}" if reason.startswith(REVERTED_IN_PART) else word


@dataclass(frozen=True)
class PlanRecord:
    """One plan, a row of the database. Times are by the journal's clock, in milliseconds since 1970.

    `reason` is a one-line message: the reason for the current status. `attempts` counts steps without progress.
    `live_brokers` lists the brokers that the planner could use, and is empty once a further plan could do more with
    them. `left` counts the partitions that the plan could not make fully replicated, `postponed` lists the failed
    brokers of those among them that another reassignment in flight kept out of it. `repeats` counts the heals in a row
    that left all moves of this one, to the same targets; `lacks_room` is True if it left partitions for which no broker
    has room. `chunks` names the chunk documents, in order. `revision`
    counts the changes of the record; an update compares it.

    `sources` are the documents that requested the plan: path, `@`, and the `created_id` of the node. `legacy` is set if
    they are marked so (legacy znode route).

    `cancel` is the request to cancel the plan, from the time of the request on. If its scope is "plan",
    `rolled_back_by` is the rollback that was published for it, and `earlier_rollback` the one that had ended before the
    rollback was requested again; a rollback names the plan that it `rolls_back`. `even_if_disabled` is set for a
    rollback that continues although reassignments are disabled. With `needs_approval`, moves are submitted only while
    the plan is approved.

    `throttle` is the rate that a user requested for this plan, in bytes per second into one broker, 0 for no throttle.
    None means that the settings of the process that steps the plan decide. `not_rolled_back` counts the partitions that
    the rollback `rolled_back_by` skipped, once the rollback has ended; None before. It is 0 without a rollback if there
    was nothing to revert.

    `leader_rates` are the rates of others that limited what the last step saw copied. `outdone_rates` are the followers
    whose own rate of others limits nothing, because those of their leaders are stricter.
    """

    digest: str
    cluster_id: str
    operation: str
    status: PlanStatus = PlanStatus.PUBLISHED
    failed_brokers: tuple[int, ...] = ()
    auto_generated: bool = False
    reason: str = ""
    attempts: int = 0
    published_ms: int = 0
    stepped_ms: int = 0
    partitions: int = 0
    live_brokers: tuple[int, ...] = ()
    left: int = 0
    chunks: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    legacy: bool = False
    who: Actor = field(default_factory=Actor)
    cancel: CancelRequest | None = None
    rolled_back_by: str | None = None
    rolls_back: str | None = None
    even_if_disabled: bool = False
    needs_approval: bool = False
    throttle: int | None = None
    not_rolled_back: int | None = None
    earlier_rollback: str | None = None
    postponed: tuple[int, ...] = ()
    repeats: int = 0
    lacks_room: bool = False
    leader_rates: tuple[LeaderRate, ...] = ()
    outdone_rates: tuple[int, ...] = ()
    revision: int = field(default=0, compare=False)

    @property
    def rolled_back(self) -> bool:
        """True if a rollback of it has ended: it was reverted as far as that was possible."""
        return self.status is PlanStatus.ROLLED_BACK or self.not_rolled_back is not None


@dataclass(frozen=True)
class Approval:
    """The approval of the plan with this digest, and no other.

    `person` is the user who approved it. It is None if a rule approved the plan; `reason` then names the rule.
    `answered_ms` is the time of the approval by Airflow's clock, in milliseconds since 1970.
    """

    plan: str
    person: str | None = None
    reason: str | None = None
    answered_ms: int | None = None


@dataclass(frozen=True)
class ThrottleLease:
    """A throttle lease: a setting of Kafka that we changed temporarily.

    `before` is the previous value (None: it was not set). `entries` maps each plan to the entries that it added to a
    list setting, or to the one rate that it requests. `ours` is the rate that we set, None while a rate of another
    client, at least as strict, is left in place; `earlier` lists the rates that we had set before it. `external` is the
    rate of another client that applies without ours, None without one; with `external_for_all` it is set for all
    brokers. The lease is released when no plan is left in `entries`, and the setting is restored only if its current
    value is still ours.
    """

    before: str | None
    ours: str | None
    entries: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    earlier: tuple[str, ...] = ()
    external: str | None = None
    external_for_all: bool = False


class LeaseKey(NamedTuple):
    """What a lease is on: a setting of a topic, or of a broker, which is named by its id."""

    name: str
    setting: str

    @classmethod
    def parse(cls, text: str) -> LeaseKey:
        """Return the key of its text."""
        return cls(*text.split("/"))

    def __str__(self) -> str:
        return "/".join(self)


@dataclass(frozen=True)
class PendingReplicas:
    """The replicas of a partition, with a placeholder -1, -2, … per pending replica.

    The placeholders are those of KIP-409, which proposes that Kafka itself keeps them in the assignment. Without a
    `topic_id`, the topic was about to be created, or Kafka is too old to have topic ids. `recorded_ms` is the time at
    which they were recorded first.
    """

    #: Brokers that had a replica when the row was written, then the placeholders.
    replicas: Assignment
    topic_id: str | None = None
    recorded_ms: int = field(default=0, compare=False)

    @classmethod
    def from_brokers(cls, brokers: Assignment, target_rf: int, topic_id: str | None = None) -> PendingReplicas:
        """Return the value for a partition that has replicas on `brokers` and a target of `target_rf` replicas."""
        missing = max(0, target_rf - len(brokers))
        return cls((*brokers, *range(-1, -1 - missing, -1)), topic_id)

    @property
    def brokers(self) -> Assignment:
        """The brokers that had a replica."""
        return tuple(broker for broker in self.replicas if broker >= 0)

    @property
    def target_rf(self) -> int:
        """The target replication factor."""
        return len(self.replicas)


@dataclass(frozen=True)
class SkippedPartitions:
    """The partitions, as `t-0`, that a plan leaves as they are, each with the reason.

    A rule of KIP-236 is why the cancel of the plan skips those in `forbidden`. The plan is a rollback that skips those
    in `left_alone`.
    """

    forbidden: Mapping[str, str] = field(default_factory=dict, hash=False)
    left_alone: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class ReleasedThrottles:
    """What a plan had added to the lists of throttled replicas, and has released: entries by topic."""

    entries: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class TaskRequest:
    """The requests of a task of a run: the plan of the last one, empty without one, and a number for each.

    The number is the same for the same request.
    """

    plan: str
    numbers: tuple[int, ...]


@dataclass(frozen=True)
class AcceptedDocument:
    """The last document of its kind that was executed; `node` names it, `plans` are those that it cancels or makes.

    It is `executed` once everything that it requests is.
    """

    node: str
    plans: tuple[str, ...] = ()
    executed: bool = True


@dataclass(frozen=True)
class DeferredPartitions:
    """A deferred request for partitions of a topic, until there are brokers for them.

    `count` is the total number of partitions that the topic will then have.
    """

    count: int
    topic_id: str | None = None
    asked_by: str = ""


@dataclass(frozen=True)
class FillEvent:
    """The watch's last event for pending replicas, and the brokers eligible for them then.

    `announced_ms` is the time of the event in milliseconds, by the journal's clock.
    """

    announced_ms: int
    brokers: Assignment = ()


@dataclass(frozen=True)
class StandingOut:
    """The watch's last event for brokers that stand out, and these brokers; its time is by the journal's clock."""

    announced_ms: int = 0
    brokers: Assignment = ()


@dataclass(frozen=True)
class UnsettledPartitions:
    """What keeps a cluster from being fully replicated, with the time since which it does.

    `out_of_sync_ms` has partitions, as `t-0`, with a replica out of sync on a live broker, `reassigning_ms` those that
    are being reassigned, `down_ms` has dead brokers. `polled_ms` is the time of the last poll that found any of them.
    Times are by the journal's clock, in milliseconds since 1970.
    """

    out_of_sync_ms: Mapping[str, int] = field(default_factory=dict, hash=False)
    reassigning_ms: Mapping[str, int] = field(default_factory=dict, hash=False)
    down_ms: Mapping[str, int] = field(default_factory=dict, hash=False)
    polled_ms: int = 0


@dataclass(frozen=True)
class BrokerClaims:
    """Brokers that were observed to be live and empty, and the state of their claims.

    `unclaimed` lists the brokers that no run has claimed, even if a fill has placed replicas on them since. `known`
    lists the brokers that a run claimed or that held replicas, as long as they are live. `announced_ms` is the time of
    the watch's last event for the unclaimed brokers, by the journal's clock, 0 if no event has included all of them
    yet. `run` is the last run that claimed brokers, and `claimed` lists the brokers that it claimed.
    """

    unclaimed: Assignment = ()
    known: Assignment = ()
    announced_ms: int = 0
    run: str = ""
    claimed: Assignment = ()


@dataclass(frozen=True)
class WatchLease:
    """The watch that polls the cluster for all, and for how long without renewal.

    `polled` is False from the time at which a watch takes the lease until its first successful poll.
    """

    owner: str
    ttl_ms: int
    polled: bool = False


@dataclass(frozen=True)
class KnownCluster:
    """The cluster that answered at some bootstrap servers, and the Airflow connection that has them."""

    conn_id: str
    bootstrap: str
    cluster_id: str


class MoveState(StrEnum):
    """The state of one partition of a plan."""

    __hash__ = str.__hash__  # that of Enum is written in Python, and a step looks states up by the ten thousand

    #: Not submitted yet.
    WAITING = "waiting"
    #: Preflight held it back; it may be submitted later.
    HELD = "held"
    #: Submitted to Kafka, or about to be: Kafka is the source of truth.
    SUBMITTED = "submitted"
    #: At its target, and the ISR was observed to contain the whole target once (KIP-46).
    COMPLETED = "completed"
    #: No change is needed any more: fully replicated, or already at its target (KIP-46).
    SATISFIED = "satisfied"
    #: It will not be moved; `detail` is the reason.
    DROPPED = "dropped"
    #: It could not be moved; `detail` is the reason.
    FAILED = "failed"

    @property
    def settled(self) -> bool:
        """True if the state is final."""
        return self in _SETTLED


_SETTLED = {MoveState.COMPLETED, MoveState.SATISFIED, MoveState.DROPPED, MoveState.FAILED}


class Phase(StrEnum):
    """The known progress of a SUBMITTED move."""

    #: The request may or may not have been sent to Kafka.
    INTENDED = "intended"
    #: Kafka accepted the request.
    ACCEPTED = "accepted"
    #: The move is being cancelled.
    CANCELLING = "cancelling"

    def message(self, sentence: str = "") -> str:
        """Return the `detail` for users: the phase, and the reason in `sentence`."""
        return f"{self.value}: {sentence}" if sentence else self.value


@dataclass(frozen=True, slots=True)
class Demotion:
    """A broker that is to lead nothing. `plans` put it last in the order of replicas; the first of them began it.

    `who` asked for it at `since_ms`, in milliseconds since 1970. It has ended by the plan `promoted_by`.
    """

    plans: tuple[str, ...]
    who: str
    since_ms: int
    promoted_by: str | None = None

    def is_in_effect(self, cancelled: Collection[str]) -> bool:
        """Return whether it is, if the plans `cancelled` were cancelled or rolled back."""
        return self.plans[0] not in cancelled and (self.promoted_by is None or self.promoted_by in cancelled)


class CordonPhase(StrEnum):
    """How far a cordon of a drained broker is."""

    #: Its drain has been published, and has not begun.
    ASKED = "asked"
    #: The request may or may not have been sent to Kafka: to set it, or to lift it.
    TRIED = "tried"
    SET = "set"


@dataclass(frozen=True, slots=True)
class Cordon:
    """The cordon of a broker that the drain `plan` empties (KIP-1066), as of `since_ms`, in milliseconds since 1970.

    `earlier` is a drain that has ended and had cordoned the broker, while it is not known whether that is still so.
    """

    plan: str
    since_ms: int
    phase: CordonPhase = CordonPhase.ASKED
    earlier: str | None = None


class Cause(StrEnum):
    """The cause of a move's end without its completion; `detail` is the same for users."""

    #: A cancel of its plan was requested (KIP-236).
    REQUESTED = "requested"
    #: It made no progress, and `when_stalled` is cancel.
    STALLED = "stalled"
    #: A broker creates no log of it while its log directory has failed, and it is a move of a rollback.
    NO_LOG = "no_log"
    #: A broker of its target failed.
    BROKER_DIED = "broker_died"
    #: A later request has another target for its partition (KIP-236).
    SUPERSEDED = "superseded"
    #: It was not needed any more: every broker of its assignment was live again (KIP-46).
    BROKERS_RETURNED = "brokers_returned"
    #: It was cancelled, and Kafka refused the original order of its replicas: one of their brokers is not registered.
    ORDER_REFUSED = "order_refused"
    #: An external client cancelled it.
    CANCELLED_ELSEWHERE = "cancelled_elsewhere"
    #: An external client gave the partition another target or assignment.
    REASSIGNED_ELSEWHERE = "reassigned_elsewhere"


@dataclass(frozen=True, slots=True)
class MoveRow:
    """One partition of a plan. Times are by the journal's clock, in milliseconds since 1970.

    `attempt` counts submissions, and `submitted_ms` is the time of the last one. `refused` counts those of them that
    Kafka refused, or that were not sent, since it accepted one. `isr_seen` is True once the ISR was observed to contain
    the whole target. `detail` is for users only; decisions use typed fields: `phase` of a submitted
    move, None otherwise; `stage`, the number of the stage that was submitted last (`moves.staging`), 0 if the whole
    move is one stage; and `cause`. `unacknowledged` is True if Kafka has not answered a submission, which may therefore
    still start.
    """

    move: Move
    state: MoveState = MoveState.WAITING
    detail: str = ""
    attempt: int = 0
    submitted_ms: int | None = None
    settled_ms: int | None = None
    isr_seen: bool = False
    phase: Phase | None = None
    stage: int = 0
    cause: Cause | None = None
    unacknowledged: bool = False
    refused: int = 0

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition that is moved."""
        return self.move.topic_partition

    @property
    def may_have_started(self) -> bool:
        """True if Kafka may have carried out one of its submissions."""
        return self.attempt > self.refused

    def with_state(self, state: MoveState, detail: str, *, now_ms: int, **changes: Unpack[MoveChanges]) -> MoveRow:
        """Return the row after `Plans.set_move_states` with the same values at `now_ms`."""
        return replace(self, detail=detail, **changed_fields(state, changes, now_ms))


class MoveChanges(TypedDict, total=False):
    """What changes with the state of a move. A field that is missing or None stays, but for `phase` and `cause`.

    Only a submission has `attempt`, and sets the time of submission.
    """

    attempt: int | None
    isr_seen: bool | None
    phase: Phase | None
    stage: int | None
    cause: Cause | None
    unacknowledged: bool | None
    refused: int | None


def changed_fields(state: MoveState, changes: MoveChanges, now_ms: Any) -> dict[str, Any]:
    """Return the new fields of a row with a new state at `now_ms`, which may be the expression of a clock."""
    # Phase and cause are those of one state: the next one begins without.
    fields = {"state": state, "phase": None, "cause": None, "settled_ms": now_ms if state.settled else None}
    fields |= {name: value for name, value in changes.items() if value is not None}
    return fields | ({"submitted_ms": now_ms} if state is MoveState.SUBMITTED and "attempt" in fields else {})


FAILED_BROKERS = DocumentCollection(
    paths.FAILED_BROKERS, (BROKER,), FailedBroker.from_node, lambda node: FailedBroker(node.created_ms).to_json()
)
RESTARTS = DocumentCollection(
    paths.ROLLING_BOUNCE,
    (BROKER,),
    AnnouncedRestartDocument.from_node,
    lambda node: AnnouncedRestartDocument(node.modified_ms).to_json(),
)
IN_FLIGHT = DocumentCollection(paths.REASSIGNMENTS, (TOPIC, PARTITION), InFlight.from_node)
REQUESTS: DocumentCollection[None] = DocumentCollection(
    paths.REASSIGNMENT_REQUESTS, (REQUEST,), lambda _: None, names_only=True, looked_below=1_000
)
#: All collections that others may write and that polls sweep.
WRITTEN: tuple[DocumentCollection[Any], ...] = (
    FAILED_BROKERS,
    RESTARTS,
    IN_FLIGHT,
    REQUESTS,
)

THROTTLE_LEASES: Noun[LeaseKey, ThrottleLease] = Noun("throttle_leases", ThrottleLease, LeaseKey.parse)
PENDING_REPLICAS: Noun[TopicPartition, PendingReplicas] = Noun("pending_replicas", PendingReplicas, parse_partition)
#: By the digest of the plan.
SKIPPED_PARTITIONS: Noun[str, SkippedPartitions] = Noun("skipped_partitions", SkippedPartitions)
#: By the digest of the plan, a slash, and a number.
RELEASED_THROTTLES: Noun[str, ReleasedThrottles] = Noun("released_throttles", ReleasedThrottles)
TASK_REQUESTS: Noun[str, TaskRequest] = Noun("task_requests", TaskRequest)
#: By the event that its execution is: "request" or "cancel".
ACCEPTED_DOCUMENTS: Noun[str, AcceptedDocument] = Noun("accepted_documents", AcceptedDocument)
DEFERRED_PARTITIONS: Noun[str, DeferredPartitions] = Noun("deferred_partitions", DeferredPartitions)
FILL_EVENT: Noun[str, FillEvent] = Noun("fill_event", FillEvent)
UNSETTLED: Noun[str, UnsettledPartitions] = Noun("unsettled", UnsettledPartitions)
#: By the event of the watch.
STANDING_OUT: Noun[str, StandingOut] = Noun("standing_out", StandingOut)
EMPTY_BROKERS: Noun[str, BrokerClaims] = Noun("empty_brokers", BrokerClaims)
#: By the id of the broker.
DEMOTIONS: Noun[int, Demotion] = Noun("demotions", Demotion, int)
#: By the id of the broker.
CORDONS: Noun[int, Cordon] = Noun("cordons", Cordon, int)
#: By a hash of the servers. These rows precede the id of a cluster, so that they are of `NO_CLUSTER`.
KNOWN_CLUSTERS: Noun[str, KnownCluster] = Noun("known_clusters", KnownCluster)
#: What stands in place of a cluster's id, and is the id of none.
NO_CLUSTER = "connections"
WATCH_LEASE: Noun[str, WatchLease] = Noun("watch_lease", WatchLease)
