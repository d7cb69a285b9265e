"""Our own documents: plan records, the plan slot, the step lock, throttle leases. Each contains its `version`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kafka_steward.errors import DocumentError
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Actor
from kafka_steward.journal.codec import shown
from kafka_steward.journal.document import Document
from kafka_steward.journal.fields import Fields
from kafka_steward.journal.requests import CancelRequest
from kafka_steward.journal.tree import Node

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["ASKED", "ENDED", "ROLLS_BACK", "ThrottleLease", "Lock", "Ownership", "PlanRecord", "PlanStatus"]


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
    #: Preempted by another plan, or idle: no process steps it.
    PAUSED = "paused"
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
    `rolled_back_by` is the rollback that was published for it. `even_if_disabled` is set for a rollback that continues
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
        }


def _present(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _status(fields: Fields) -> PlanStatus:
    word = fields.text("status")
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
