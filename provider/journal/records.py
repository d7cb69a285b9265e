"""Our own documents, each with its `version`.

Plan records, the plan slot, the step lock and throttle leases; deferred work: pending replicas (KIP-409), partitions
that wait for brokers, and empty brokers that an expand is to fill.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kafka_steward.assignment import Assignment
from kafka_steward.errors import DocumentError
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Actor
from kafka_steward.journal.codec import MAX_ID, shown
from kafka_steward.journal.document import Document, Fields
from kafka_steward.journal.kip_documents import CancelRequest
from kafka_steward.journal.tree import Node

if TYPE_CHECKING:
    from typing_extensions import Self


#: The key, in the record of a plan that documents requested, of those documents and their submission route.
ASKED = "asked"

#: The key, in the record of a rollback, of the plan that is rolled back.
ROLLS_BACK = "rolls_back"

#: The revision of a record that is stored in the table of ended plans and has no node.
ENDED = -1


class PlanStatus(str, Enum):
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
    def waits(self) -> bool:
        """True if it is preempted or idle: it goes on without a decision of a person."""
        return self in {PlanStatus.PREEMPTED, PlanStatus.IDLE}


#: What earlier releases wrote for PREEMPTED and for IDLE; read as IDLE, because any next step resumes such a plan.
_PAUSED = "paused"

#: An entry of `follower.replication.throttled.replicas` or a rate, as a plan leases them.
_ENTRY = re.compile(r"[0-9]{1,10}:[0-9]{1,10}|[0-9]{1,19}")

_RATE = re.compile(r"-?[0-9]{1,19}")

#: The limit of a step lock's time to live: a lock of more than an hour was not written by Kafka Steward.
_LONGEST_LIFE_MS = 3_600_000

#: Characters that are kept of a plan's reason: our messages, which quote messages of others.
_SENTENCES = 10_000

_FINISHED = {PlanStatus.COMPLETED, PlanStatus.CANCELLED, PlanStatus.ROLLED_BACK, PlanStatus.ABANDONED}


@dataclass(frozen=True)
class PlanRecord(Document):
    """One plan, `/steward/plans/<digest>`. Times are by the journal's clock, in milliseconds since 1970.

    `reason` is a one-line message: the reason for the current status. `attempts` counts steps without progress.
    `live_brokers` lists the brokers that were live when the plan ended. `left` counts the partitions that the plan
    could not make fully replicated. `chunks` names the chunk documents, in order. `revision` is the node's version,
    which an update compares.

    `cancel` is the request to cancel the plan, from the time of the request on. If its scope is "plan",
    `rolled_back_by` is the rollback that was published for it, and `earlier_rollback` the one that had ended before the
    rollback was requested again. `even_if_disabled` is set for a rollback that continues
    although reassignments are disabled. With `needs_approval`, moves are submitted only while the journal contains the
    approval of the plan's digest.

    `throttle` is the rate that a user requested for this plan, in bytes per second into one broker, 0 for no throttle.
    None means that the settings of the process that steps the plan decide. `not_taken_back` counts the partitions that
    the rollback `rolled_back_by` skipped, once the rollback has ended; None before.
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
    who: Actor = field(default_factory=Actor)
    partitions: int = 0
    live_brokers: tuple[int, ...] = ()
    left: int = 0
    chunks: tuple[str, ...] = ()
    cancel: CancelRequest | None = None
    rolled_back_by: str | None = None
    even_if_disabled: bool = False
    needs_approval: bool = False
    throttle: int | None = None
    not_taken_back: int | None = None
    earlier_rollback: str | None = None
    revision: int = field(default=0, compare=False)
    #: Unknown fields of `who`, added by others: written back.
    who_extra: Mapping[str, Any] = field(default_factory=dict, hash=False, repr=False)

    @property
    def sources(self) -> frozenset[str]:
        """The documents that requested the plan: path, `@`, and the `created_id` of the node."""
        asked = self.extra.get(ASKED)
        sources = asked.get("sources") if isinstance(asked, Mapping) else None
        return frozenset(map(str, sources)) if isinstance(sources, list | tuple) else frozenset()

    @classmethod
    def read(cls, fields: Fields, source: str | None) -> Self:
        """Read our own format, version 1."""
        fields.integer("version", low=1)
        who = fields.object("who")
        return cls(
            fields.digest("digest"),
            fields.text("cluster_id"),
            fields.text("operation"),
            _status(fields),
            failed_brokers=fields.brokers("failed_brokers"),
            auto_generated=fields.flag("auto_generated"),
            reason=fields.words("reason", _SENTENCES),
            attempts=fields.integer("attempts"),
            published_ms=fields.integer("published_ms"),
            stepped_ms=fields.integer("stepped_ms"),
            who=_read_who(who),
            who_extra=who.rest(),
            partitions=fields.integer("partitions"),
            live_brokers=fields.brokers("live_brokers"),
            left=fields.integer("left"),
            chunks=fields.texts("chunks"),
            cancel=_read_cancel(fields),
            rolled_back_by=fields.maybe("rolled_back_by", fields.digest),
            even_if_disabled=fields.maybe("even_if_disabled", fields.flag) or False,
            needs_approval=fields.maybe("needs_approval", fields.flag) or False,
            throttle=fields.maybe("throttle", fields.integer),
            not_taken_back=fields.maybe("not_taken_back", fields.integer),
            earlier_rollback=fields.maybe("earlier_rollback", fields.digest),
            extra=fields.rest(),
            source=source,
        )

    @classmethod
    def from_node(cls, node: Node) -> Self:
        """Read the record in `node`. Raises DocumentError, also if the node's name is not the record's digest."""
        record = super().from_node(node)
        if not node.path.endswith(f"/{record.digest}"):
            raise DocumentError(
                f"{node.path} holds the record of another plan, {record.digest[:12]}; mend or delete it."
            )
        return record

    @classmethod
    @lru_cache(maxsize=1024)
    def from_json(cls, text: str, path: str = "the document") -> Self:
        """Read the record found at `path`. Raises DocumentError, naming the path and the fault."""
        # Cached, because each step and each poll reads the same records again, most of them unchanged.
        return super().from_json(text, path)

    def values(self) -> dict[str, Any]:
        """Return all fields except `revision`, which is the node's version."""
        names = ("digest", "cluster_id", "operation", "status", "failed_brokers", "auto_generated", "reason")
        more = ("attempts", "published_ms", "stepped_ms", "partitions", "live_brokers", "left", "chunks")
        return {
            "version": self.VERSION,
            **{name: getattr(self, name) for name in (*names, *more)},
            "who": {**_present(asdict(self.who)), **self.who_extra},
            "cancel": None if self.cancel is None else _present({**self.cancel.values(), **self.cancel.extra}),
            "rolled_back_by": self.rolled_back_by,
            "even_if_disabled": self.even_if_disabled or None,
            "needs_approval": self.needs_approval or None,
            "throttle": self.throttle,
            "not_taken_back": self.not_taken_back,
            "earlier_rollback": self.earlier_rollback,
        }


def _present(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _status(fields: Fields) -> PlanStatus:
    word = fields.text("status")
    if word == _PAUSED:
        return PlanStatus.IDLE
    if word not in {status.value for status in PlanStatus}:
        fields.refuse(f"has the status {word[:20]!r}, which no plan can have")
    return PlanStatus(word)


def _read_cancel(fields: Fields) -> CancelRequest | None:
    request = fields.maybe("cancel", fields.object)
    return None if request is None else CancelRequest.read(request, source=None)


def _read_who(fields: Fields) -> Actor:
    texts = {key: fields.maybe(key, fields.words) for key in ("dag_id", "run_id", "task_id", "person")}
    return Actor(try_number=fields.maybe("try_number", fields.integer), **texts)


@dataclass(frozen=True)
class Ownership(Document):
    """`/steward/slot`: the plan that holds the plan slot, and the preempted plans, the most recently preempted last.

    If `plan` is None, the slot is free.
    """

    plan: str | None = None
    paused: tuple[str, ...] = ()

    @classmethod
    def read(cls, fields: Fields, source: str | None) -> Self:
        """Read our own format, version 1."""
        fields.integer("version", low=1)
        plan, paused = fields.maybe("plan", fields.digest), fields.texts("paused")
        if not all(map(paths.is_digest, paused)):
            fields.refuse(f"has 'paused' = {shown(list(paused))} where plans belong")
        return cls(plan, paused, extra=fields.rest(), source=source)

    def values(self) -> dict[str, Any]:
        """Return the fields in the order in which they are written."""
        return {"version": self.VERSION, "plan": self.plan, "paused": self.paused}


@dataclass(frozen=True)
class Lock(Document):
    """`/steward/step_lock`: the process that steps a plan, and the lock's time to live after each renewal.

    `claim` counts the acquisitions of the lock. If `owner` is None, the lock was released.
    """

    owner: str | None
    ttl_ms: int
    fencing_token: int = 1

    @classmethod
    def read(cls, fields: Fields, source: str | None) -> Self:
        """Read our own format, version 1."""
        fields.integer("version", low=1)
        owner, life_ms = fields.maybe("owner", fields.text), fields.integer("life_ms", low=1, high=_LONGEST_LIFE_MS)
        return cls(owner, life_ms, fields.integer("claim", low=1), extra=fields.rest(), source=source)

    def values(self) -> dict[str, Any]:
        """Return the fields in the order in which they are written."""
        return {"version": self.VERSION, "owner": self.owner, "life_ms": self.ttl_ms, "claim": self.fencing_token}


@dataclass(frozen=True)
class ThrottleLease(Document):
    """`/steward/borrowed/...`: a throttle lease, a setting of Kafka that we changed temporarily.

    `before` is the previous value (None: it was not set). `entries` maps each plan to the entries that it added to a
    list setting, or to the one rate that it requests. `ours` is the rate that we set, None while another client's
    stricter rate is left in place; `earlier` lists the rates that we had set before it. The lease is released when no
    plan is left in `entries`, and the setting is restored only if its current value is still ours.
    """

    before: str | None
    ours: str | None
    entries: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    earlier: tuple[str, ...] = ()

    @classmethod
    def read(cls, fields: Fields, source: str | None) -> Self:
        """Read our own format, version 1."""
        fields.integer("version", low=1)
        before, ours = fields.maybe("before", fields.text), fields.maybe("ours", fields.text)
        if ours is not None and not all(each is None or _RATE.fullmatch(each) for each in (before, ours)):
            fields.refuse(f"has the rates {shown([before, ours])} where whole numbers of bytes per second belong")
        by_plan = fields.object("entries")
        strange = next((plan for plan in by_plan.rest() if not paths.is_digest(plan)), None)
        if strange is not None:
            by_plan.refuse(f"names the plan {shown(strange)}, which can be none")
        entries = {plan: by_plan.texts(plan) for plan in sorted(by_plan.rest())}
        if not all(_ENTRY.fullmatch(each) for several in entries.values() for each in several):
            fields.refuse("has entries other than <partition>:<broker>, or a rate")
        earlier = fields.maybe("earlier", fields.texts) or ()
        return cls(before, ours, entries, earlier, extra=fields.rest(), source=source)

    def values(self) -> dict[str, Any]:
        """Return all fields; `earlier` is omitted if it is empty."""
        values = {"version": self.VERSION, "before": self.before, "ours": self.ours, "entries": self.entries}
        return {**values, "earlier": self.earlier or None}


@dataclass(frozen=True)
class PendingReplicas(Document):
    """`/steward/owed/<topic>/<partition>`: a partition's replicas, with a placeholder -1, -2, … per pending replica.

    The placeholders are those of KIP-409, which proposes that Kafka itself keeps them in the assignment. Without a
    `topic_id`, the topic was about to be created, or Kafka is too old to have topic ids.
    """

    #: Brokers that had a replica when the document was written, then the placeholders.
    replicas: Assignment
    topic_id: str | None = None

    @classmethod
    def of(cls, brokers: Assignment, target_rf: int, topic_id: str | None = None) -> Self:
        """Make the document for a partition that has replicas on `brokers` and a target of `target_rf` replicas."""
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

    @classmethod
    def read(cls, fields: Fields, source: str | None) -> Self:
        """Read `{"version": 1, "replicas": [2, 1, -1], "topic_id": "…"}`."""
        fields.integer("version", 1)
        replicas = fields.replicas("replicas")
        return cls(replicas, fields.maybe("topic_id", fields.text), extra=fields.rest(), source=source)

    def values(self) -> dict[str, Any]:
        """Return the fields in the order in which they are written."""
        return {"version": self.VERSION, "replicas": list(self.replicas), "topic_id": self.topic_id}


@dataclass(frozen=True)
class DeferredPartitions(Document):
    """`/steward/partitions_asked/<topic>`: a deferred request for partitions, until there are brokers for them.

    `count` is the total number of partitions that the topic will then have.
    """

    count: int
    topic_id: str | None = None
    asked_by: str = ""

    @classmethod
    def read(cls, fields: Fields, source: str | None) -> Self:
        """Read `{"version": 1, "count": 12, "topic_id": "…", "asked_by": "ada"}`."""
        fields.integer("version", 1)
        count, topic_id = fields.integer("count", 1, MAX_ID), fields.maybe("topic_id", fields.text)
        asked_by = fields.maybe("asked_by", fields.words) or ""
        return cls(count, topic_id, asked_by, extra=fields.rest(), source=source)

    def values(self) -> dict[str, Any]:
        """Return the fields in the order in which they are written."""
        asked_by = self.asked_by or None
        return {"version": self.VERSION, "count": self.count, "topic_id": self.topic_id, "asked_by": asked_by}


@dataclass(frozen=True)
class FillEvent(Document):
    """`/steward/fill_announced`: the watch's last event for pending replicas, and the brokers eligible for them then.

    `announced_ms` is the time of the event in milliseconds, by the journal's clock.
    """

    announced_ms: int
    brokers: Assignment = ()

    @classmethod
    def read(cls, fields: Fields, source: str | None) -> Self:
        """Read `{"version": 1, "announced_ms": ms, "brokers": [4]}`."""
        fields.integer("version", 1)
        announced_ms, brokers = fields.integer("announced_ms"), fields.brokers("brokers")
        return cls(announced_ms, brokers, extra=fields.rest(), source=source)

    def values(self) -> dict[str, Any]:
        """Return the fields in the order in which they are written."""
        return {"version": self.VERSION, "announced_ms": self.announced_ms, "brokers": list(self.brokers)}


@dataclass(frozen=True)
class EmptyBrokersDocument(Document):
    """`/steward/joined_brokers`: brokers that were observed to be live and empty, and the state of their claims.

    `waiting` lists the brokers that no run has claimed, even if a fill has placed replicas on them since. `old` lists
    the brokers that a run claimed or that held replicas, as long as they are live. `announced_ms` is the time of the
    watch's last event for the waiting brokers, by the journal's clock, 0 if no event has included all of them yet.
    `run` is the last run that claimed brokers, and `told` lists the brokers that it claimed.
    """

    waiting: Assignment = ()
    old: Assignment = ()
    announced_ms: int = 0
    run: str = ""
    told: Assignment = ()

    @classmethod
    def read(cls, fields: Fields, source: str | None) -> Self:
        """Read our own format, version 1."""
        fields.integer("version", 1)
        return cls(
            fields.brokers("waiting"),
            fields.brokers("old"),
            fields.integer("announced_ms"),
            fields.text("run"),
            fields.brokers("told"),
            extra=fields.rest(),
            source=source,
        )

    def values(self) -> dict[str, Any]:
        """Return the fields in the order in which they are written."""
        lists = {"waiting": list(self.waiting), "old": list(self.old)}
        last = {"run": self.run, "told": list(self.told)}
        return {"version": self.VERSION, **lists, "announced_ms": self.announced_ms, **last}
