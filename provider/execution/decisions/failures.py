"""Which brokers failed, which of them are due, and which are being seen to (KIP-46, part 1). Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kafka_steward.assignment import Operation
from kafka_steward.journal.document import Document
from kafka_steward.journal.fields import Fields
from kafka_steward.journal.records import PlanRecord, PlanStatus
from kafka_steward.settings import Settings

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Failure", "Judgement", "Sight", "handled_brokers", "is_abandoned", "is_idle", "is_outage", "judge"]


@dataclass(frozen=True)
class Failure(Document):
    """`/steward/failures/<id>`: when the broker was first seen to be gone, and when that was last announced."""

    first_seen_ms: int
    announced_ms: int | None = None

    @classmethod
    def read(cls, fields: Fields, source: str | None) -> Self:
        """From our own form, version 1."""
        fields.integer("version", low=1)
        first_seen_ms, announced_ms = fields.integer("first_seen_ms"), fields.maybe("announced_ms", fields.integer)
        return cls(first_seen_ms, announced_ms, extra=fields.rest(), source=source)

    def values(self) -> dict[str, Any]:
        """Both fields."""
        return {"version": self.VERSION, "first_seen_ms": self.first_seen_ms, "announced_ms": self.announced_ms}


@dataclass(frozen=True)
class Sight:
    """One look: brokers that failed by the cluster's word, those that live, and all that there should be.

    `holding` counts the partitions of each failed broker. `disks` are the log directories that have failed on live
    brokers, as far as those tell their paths, and `lost` counts the replicas that Kafka calls offline there.
    """

    failed: frozenset[int]
    live: frozenset[int]
    known: frozenset[int]
    holding: Mapping[int, int] = field(default_factory=dict)
    disks: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    lost: Mapping[int, int] = field(default_factory=dict)

    def over(self, broker: int) -> bool:
        """Whether a failure is over: the broker lives, or has no replicas any more. Lacking witnesses is not that."""
        return broker in self.live or broker not in self.known


@dataclass(frozen=True)
class Judgement:
    """What is to be written down after a look, and what it means.

    `write` are failures seen for the first time or lacking their entry, `clear` entries of brokers that are back or
    have nothing left to heal, `announce` those of the `due` whose turn it is. `waiting` maps brokers within their
    grace period to the moment at which it ends.
    """

    write: tuple[int, ...]
    clear: tuple[int, ...]
    announce: tuple[int, ...]
    due: tuple[int, ...]
    waiting: Mapping[int, int]
    handled: tuple[int, ...]
    outage: bool


def judge(
    sight: Sight,
    *,
    first_seen_ms: Mapping[int, int],
    entries: Collection[int],
    noted: Collection[int],
    announced_ms: Mapping[int, int],
    handled: frozenset[int],
    bouncing: frozenset[int],
    now_ms: int,
    settings: Settings,
    stated_ms: Mapping[int, int] | None = None,
) -> Judgement:
    """Judge a look. `first_seen_ms` is when each failure was first seen, `announced_ms` when it was last announced.

    `stated_ms` is until when brokers said that they would be away.
    `entries` are brokers that KIP-46's entry names, `noted` those of which ours is written beside it.

    With a `heal_failure_interval` of -1 nothing is written and nothing is ever due.
    """
    if settings.heal_failure_interval < 0:
        return Judgement((), (), (), (), {}, (), outage=is_outage(len(sight.failed), len(sight.known), settings))
    down = sorted(sight.failed)
    unhandled = [broker for broker in down if broker not in handled]
    due_at = {
        broker: _due_ms(broker, first_seen_ms.get(broker, now_ms), bouncing, stated_ms or {}, settings)
        for broker in unhandled
    }
    outage = is_outage(len(down), len(sight.known), settings)
    due = tuple(broker for broker in unhandled if due_at[broker] <= now_ms and not outage)
    retry_ms = settings.heal_retry_interval * 1000
    return Judgement(
        write=tuple(broker for broker in unhandled if broker not in entries or broker not in noted),
        clear=tuple(sorted(broker for broker in entries if sight.over(broker) or broker in handled)),
        announce=tuple(each for each in due if now_ms - announced_ms.get(each, -retry_ms) >= retry_ms),
        due=due,
        waiting={broker: at_ms for broker, at_ms in due_at.items() if at_ms > now_ms},
        handled=tuple(broker for broker in down if broker in handled),
        outage=outage,
    )


def is_idle(plan: PlanRecord, now_ms: int, settings: Settings) -> bool:
    """Whether nobody has stepped an unfinished plan for `abandoned_after`."""
    return not plan.status.finished and now_ms - plan.stepped_ms > settings.abandoned_after * 1000


def is_abandoned(plan: PlanRecord, now_ms: int, settings: Settings) -> bool:
    """Whether nobody steps a plan that could be stepped: its task failed for good. A stuck plan waits for a person."""
    return plan.status is not PlanStatus.STUCK and is_idle(plan, now_ms, settings)


def handled_brokers(
    plans: Sequence[PlanRecord],
    sight: Sight,
    now_ms: int,
    settings: Settings,
    *,
    first_seen_ms: Mapping[int, int],
) -> frozenset[int]:
    """Brokers for which nothing more need be planned; `plans` is in order of publication, the newest first.

    A heal plan that names the broker is unfinished and not abandoned; or the newest one left what could not be healed,
    the live brokers are still those with which it could not, and the broker has not been back since.
    """
    newest: dict[int, PlanRecord] = {}
    for plan in plans:
        if plan.operation == Operation.HEAL.value:
            for broker in plan.failed_brokers:
                newest.setdefault(broker, plan)
    return frozenset(
        broker
        for broker, plan in newest.items()
        if (_is_done(plan, sight) and not _was_back(broker, plan, sight, first_seen_ms.get(broker, now_ms)))
        or not (plan.status.finished or is_abandoned(plan, now_ms, settings))
    )


def _is_done(plan: PlanRecord, sight: Sight) -> bool:
    return plan.status.finished and plan.left > 0 and frozenset(plan.live_brokers) == sight.live


def _was_back(broker: int, plan: PlanRecord, sight: Sight, seen_ms: int) -> bool:
    """Whether the broker has lived since the plan's end. If nobody saw that, it may hold more than was left."""
    return seen_ms > plan.stepped_ms or (broker in sight.holding and sight.holding[broker] > plan.left)


def _due_ms(
    broker: int, seen_ms: int, bouncing: frozenset[int], stated_ms: Mapping[int, int], settings: Settings
) -> int:
    """When a failure is due. A time that was over before the broker went says nothing about this going."""
    stated = stated_ms.get(broker)
    if stated is not None and stated >= seen_ms:
        return stated
    return seen_ms + _grace_ms(broker, bouncing, settings)


def _grace_ms(broker: int, bouncing: frozenset[int], settings: Settings) -> int:
    """KIP-46, fast detection: a broker that did not announce its shutdown has failed, and is due at once."""
    if settings.heal_fast_detection and broker not in bouncing:
        return 0
    return int(settings.heal_failure_interval * 1000)


def is_outage(down: int, known: int, settings: Settings) -> bool:
    """Whether so many brokers of `known` at once are too many to be healed: then nothing is."""
    return down > settings.max_failed_brokers or down > settings.max_failed_fraction * known
