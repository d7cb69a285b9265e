"""The last reports of the watch, the running plans and the approvals: rows of the database that the page reads.

So a reader needs the database only. Nothing decides by them. Times are by the journal's clock, in milliseconds since
1970, unless said otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from kafka_steward.journal.audit import Actor
from kafka_steward.journal.kip_documents import CancelRequest
from kafka_steward.journal.records import PlanStatus


class CheckState(StrEnum):
    """The result of the last poll of a check of the watch."""

    #: Nothing is wrong, or the check has no result of its own.
    FINE = "fine"
    #: A broker or a log directory has failed, and `heal_failure_interval` is -1, `heal_failed_disks` is off, or the
    #: last heal did what can be done.
    NOT_HEALED = "not_healed"
    #: A broker has failed, and its grace period lasts until `due_ms`.
    GRACE_PERIOD = "grace_period"
    #: The grace period is over, and the event was emitted: a run of `heal` is to make the plan.
    DUE = "due"
    #: A plan heals the failed brokers.
    HANDLED = "handled"
    #: An operator called the heal off.
    CALLED_OFF = "called_off"
    #: Too many brokers have failed at once: nothing is healed.
    OUTAGE = "outage"
    #: There are pending replicas (KIP-409), which wait for a broker.
    PENDING = "pending"


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The last poll of one check of the watch, on one host. A failed poll keeps the state of the last successful one.

    `kind` is the kind of the poll: failures, documents, joined_brokers, empty_brokers or health. `at_ms` is the time
    of the row, which is written when it changes, and once a minute. `brokers` are those that are down, `due_ms` is the
    end of the first grace period. `failures` counts the polls that have failed in a row, `failing_ms` is the time of
    the first of them, and `error` the message of the last one, empty after a successful poll.
    """

    conn_id: str
    kind: str
    host: str = ""
    version: str = ""
    at_ms: int = 0
    state: CheckState = CheckState.FINE
    sentence: str = ""
    brokers: tuple[int, ...] = ()
    due_ms: int | None = None
    failures: int = 0
    failing_ms: int | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class BrokerReport:
    """One broker at the last health check. Bytes are None where they are unknown.

    `replicas` and `leaders` are those that Kafka assigns. `replica_bytes` is the size of its replicas, at `sized_ms`.
    `disk_total` and `disk_usable` are the sums of its log directories that accept replicas. A failed broker has
    replicas and is not live; a snapshot takes its rack from here if Kafka has forgotten it.
    `bytes_in` and `bytes_out` are the bytes per second that reassignments copy to it and from it, `leader_bytes_in` and
    `follower_bytes_in` those that producers bring into the partitions that it leads, and into those that it follows.
    """

    broker: int
    rack: str | None = None
    live: bool = True
    cordoned: bool = False
    replicas: int = 0
    leaders: int = 0
    under_replicated: int = 0
    failed_log_dirs: tuple[str, ...] = ()
    replica_bytes: int | None = None
    sized_ms: int | None = None
    disk_total: int | None = None
    disk_usable: int | None = None
    bytes_in: int | None = None
    bytes_out: int | None = None
    leader_bytes_in: int | None = None
    follower_bytes_in: int | None = None
    at_ms: int = 0

    @property
    def failed(self) -> bool:
        """True if it has replicas, and is not live."""
        return not self.live

    @property
    def disk_used(self) -> int | None:
        """The bytes in use on its disks, whatever uses them."""
        if self.disk_total is None or self.disk_usable is None:
            return None
        return max(0, self.disk_total - self.disk_usable)


@dataclass(frozen=True, slots=True)
class PartitionRate:
    """The bytes per second that producers bring into a partition: the mean of the last hour before `at_ms`.

    It is None if that hour was not measured. `peaks` has the mean of the highest hour of each of the last seven days,
    by day since 1970.
    """

    topic: str
    partition: int
    topic_id: str | None
    bytes_per_s: int | None
    peaks: tuple[tuple[int, int], ...] = ()
    at_ms: int = 0

    @property
    def peak_bytes_per_s(self) -> int:
        """The highest hour."""
        return max([self.bytes_per_s or 0, *(peak for _, peak in self.peaks)])


@dataclass(frozen=True, slots=True)
class HeldGroup:
    """The partitions that are held for one reason: their number, and the first of them."""

    reason: str
    count: int
    first: str


#: A point of a plan's progress: time, bytes copied, partitions settled.
ProgressPoint = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class ProgressReport:
    """The progress of a plan after a step, as it was written last: every 10 s while it runs, and at its end.

    Bytes count each copy once. `bytes_per_s`, `eta_s` and `throttle` (bytes per second into one broker) are None while
    unknown or not set. `held` groups the held partitions by reason, the most frequent first, `stalled` names the first
    of `stalled_count`. `series` are points from the first step to the last, at most 240 of them.
    """

    plan: str
    at_ms: int = 0
    status: PlanStatus = PlanStatus.RUNNING
    partitions_total: int = 0
    partitions_settled: int = 0
    in_flight: int = 0
    waiting: int = 0
    completed: int = 0
    held_count: int = 0
    held: tuple[HeldGroup, ...] = ()
    stalled_count: int = 0
    stalled: tuple[str, ...] = ()
    bytes_total: int = 0
    bytes_done: int = 0
    bytes_per_s: int | None = None
    eta_s: int | None = None
    throttle: int | None = None
    pressure: str | None = None
    chunk: int | None = None
    chunks: int = 0
    sentence: str = ""
    series: tuple[ProgressPoint, ...] = ()

    @property
    def share(self) -> float:
        """The settled partitions as a fraction of all."""
        return self.partitions_settled / self.partitions_total if self.partitions_total else 1.0


@dataclass(frozen=True, slots=True)
class BrokerChange:
    """The load of one broker before a plan and after it. None where the proof of the plan does not state it."""

    broker: int
    replicas_before: int | None = None
    replicas_after: int | None = None
    leaders_before: int | None = None
    leaders_after: int | None = None
    bytes_before: int | None = None
    bytes_after: int | None = None


class LeftPartition(NamedTuple):
    """A partition that a plan leaves as it is, with the reason, a word of its proof.

    If it has no leader, one of `brokers`, the last in sync, has to come back; those of `disks` are live, and have its
    replica in a failed log directory.
    """

    topic: str
    partition: int
    reason: str
    brokers: Sequence[int] = ()
    disks: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class ProofSummary:
    """The statements of a plan's proof. `gap` is what it moves more than `lower_bound`: 0 is proven to be the fewest.

    `predicted_s` is the least duration in seconds, at `throttle` bytes per second into one broker; None without one.
    `bytes_in_before` and `bytes_in_after` are those of the fullest broker over the mean; None if no rate is known.
    `brokers` has at most 1,000 brokers. `left` has the first 100 partitions that need a change and stay as they are,
    `left_counts` the number of them by reason. `rack_left` has the first few that break the rack rule after the plan,
    for each reason why it leaves them, and `rack_left_counts` the number of them.
    """

    replicas_moved: int | None = None
    lower_bound: int | None = None
    bytes_moved: int | None = None
    leader_changes: int | None = None
    predicted_s: float | None = None
    throttle: int | None = None
    rack_violations_before: int | None = None
    rack_violations_after: int | None = None
    bytes_in_before: float | None = None
    bytes_in_after: float | None = None
    brokers: tuple[BrokerChange, ...] = ()
    left: tuple[LeftPartition, ...] = ()
    left_counts: Mapping[str, int] = field(default_factory=dict, hash=False)
    rack_left: tuple[LeftPartition, ...] = ()
    rack_left_counts: Mapping[str, int] = field(default_factory=dict, hash=False)

    @property
    def gap(self) -> int | None:
        """The replicas that it moves more than the lower bound."""
        if self.replicas_moved is None or self.lower_bound is None:
            return None
        return self.replicas_moved - self.lower_bound


class ApprovalState(StrEnum):
    """The state of the approval of a plan."""

    #: A task asked for it, and nobody has answered.
    ASKED = "asked"
    APPROVED = "approved"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True)
class ApprovalReport:
    """The approval of a plan. `asked_by` is the task that asks, whose answer Airflow takes until `expires_ms`.

    `person` answered, None for a rule; `reason` is theirs, or the rule.
    """

    state: ApprovalState
    asked_ms: int | None = None
    expires_ms: int | None = None
    asked_by: Actor = field(default_factory=Actor)
    answered_ms: int | None = None
    person: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PlanReport:
    """One plan, as its row says; a plan that waits for its approval has no `status` yet.

    `began_ms` is the time of the step that first ran it, `ended_ms` that of its end. `took_ms` includes the time for
    which it waited in between. `listed_ms` orders the plans: when it was published, or proposed.
    """

    digest: str
    operation: str
    status: PlanStatus | None = None
    reason: str = ""
    listed_ms: int = 0
    published_ms: int | None = None
    began_ms: int | None = None
    ended_ms: int | None = None
    partitions: int = 0
    left: int = 0
    failed_brokers: tuple[int, ...] = ()
    throttle: int | None = None
    needs_approval: bool = False
    who: Actor = field(default_factory=Actor)
    conn_id: str | None = None
    cancel: CancelRequest | None = None
    rolled_back_by: str | None = None
    rolls_back: str | None = None
    not_rolled_back: int | None = None
    approval: ApprovalReport | None = None
    proof: ProofSummary | None = None

    @property
    def took_ms(self) -> int | None:
        """The milliseconds from its beginning to its end; None before."""
        return None if self.began_ms is None or self.ended_ms is None else self.ended_ms - self.began_ms


@dataclass(frozen=True, slots=True)
class DocumentReport:
    """The documents of one kind as the watch read them last: at most 100 of `count`, as JSON objects."""

    kind: str
    at_ms: int = 0
    count: int = 0
    documents: tuple[Mapping[str, Any], ...] = ()
