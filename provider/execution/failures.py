"""Failed brokers and log directories: what is due, and what a plan already handles (KIP-46, part 1). Pure.

A broker with a failed log directory continues to serve from its other directories. The replicas in the failed directory
are offline until the disk is back, or until they are moved to other brokers, as for a failed broker.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

from kafka_steward.assignment import Operation
from kafka_steward.cluster.health import failed_paths_text
from kafka_steward.escaping import utc_text
from kafka_steward.journal.document import Document, FieldPresence
from kafka_steward.journal.observed import CheckState
from kafka_steward.journal.records import PlanRecord, PlanStatus
from kafka_steward.journal.tree import Node
from kafka_steward.settings import Settings


@dataclass(frozen=True)
class Failure(Document):
    """The time of the first detection of a failure, and of its last announcement.

    `/steward/failures/<id>` is that of a broker, `/steward/failed_log_dirs/<id>` that of a live broker's disks.

    `entered` is True while KIP-46's entry of the broker exists, as far as our own processes know: before one of them
    deletes the entry, it resets the field. `called_off_ms` is the time at which the deletion of the entry by an
    operator was detected. With `reported`, an operator reported the failure, and it has no grace period.
    """

    first_seen_ms: int
    announced_ms: int | None = None
    entered: Annotated[bool, FieldPresence.OMITTED] = False
    called_off_ms: int | None = None
    reported: Annotated[bool, FieldPresence.OMITTED] = False

    @classmethod
    def rebuild_from_node(cls, node: Node) -> str:
        """Return the document that an unreadable one counts as: a failure since the creation of its node."""
        return cls(node.created_ms).to_json()


@dataclass(frozen=True)
class LivenessView:
    """The result of one poll: failed brokers, as the cluster reports them, live brokers, and all expected brokers.

    `replica_counts` counts the partitions of each failed broker. `disks` maps live brokers to the paths of their failed
    log directories, as far as they report the paths. `lost` counts the replicas that Kafka reports as offline there.
    """

    failed: frozenset[int]
    live: frozenset[int]
    known: frozenset[int]
    replica_counts: Mapping[int, int] = field(default_factory=dict)
    disks: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    lost: Mapping[int, int] = field(default_factory=dict)

    def is_recovered(self, broker: int) -> bool:
        """Return True if the failure is over: the broker is live, or has no replicas any more.

        A broker that too few live brokers report as down has not recovered.
        """
        return broker in self.live or broker not in self.known


@dataclass(frozen=True)
class FailureDecision:
    """The records to write after a poll, and the classification of the failed brokers or log directories, by broker.

    `write` are failures that are detected for the first time, or whose record is missing. `clear` are records of
    failures that are over or handled. `due` are brokers whose grace period is over. `announce` is the subset of `due`
    that is to be announced now. `waiting` maps brokers within their grace period to the time at which it ends.
    `handled` are brokers that a plan handles, `called_off` those whose heal an operator called off.
    """

    write: tuple[int, ...] = ()
    clear: tuple[int, ...] = ()
    announce: tuple[int, ...] = ()
    due: tuple[int, ...] = ()
    waiting: Mapping[int, int] = field(default_factory=dict)
    handled: tuple[int, ...] = ()
    called_off: tuple[int, ...] = ()
    outage: bool = False


def called_off_brokers(recorded: Mapping[int, Failure], entries: Collection[int]) -> frozenset[int]:
    """Return the brokers whose heal an operator called off: they have no entry of KIP-46, and we did not delete it.

    At the time of the heal the entry must exist (KIP-46). An entry that is written again resumes the heal.
    """
    return frozenset(
        broker
        for broker, failure in recorded.items()
        if broker not in entries and (failure.entered or failure.called_off_ms is not None)
    )


def decide_broker_failures(
    view: LivenessView,
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
    called_off: frozenset[int] = frozenset(),
    reported: frozenset[int] = frozenset(),
) -> FailureDecision:
    """Return the decision about failed brokers for one poll.

    `first_seen_ms` maps brokers to the time at which their failure was first detected, `announced_ms` to the time of
    its last announcement, and `stated_ms` to the end of the absence that they announced. `entries` are the brokers that
    have an entry of KIP-46, `noted` the brokers whose own record says so. The heal of `called_off` brokers was called
    off; those that were `reported` as failed are due at once.

    With a negative `heal_failure_interval`, nothing is written and no broker is ever due.
    """
    outage = is_outage(len(view.failed), len(view.known), settings)
    if settings.heal_failure_interval < 0:
        return FailureDecision(outage=outage)
    due_ms = {
        broker: first_seen_ms.get(broker, now_ms)
        if broker in reported
        else _failure_due_ms(broker, first_seen_ms.get(broker, now_ms), bouncing, stated_ms or {}, settings)
        for broker in sorted(view.failed - handled - called_off)
    }
    decision = _classify_failures(due_ms, announced_ms, outage=outage, now_ms=now_ms, settings=settings)
    return replace(
        decision,
        write=tuple(broker for broker in due_ms if broker not in entries or broker not in noted),
        clear=tuple(sorted(broker for broker in entries if view.is_recovered(broker) or broker in handled)),
        handled=tuple(sorted(view.failed & handled)),
        called_off=tuple(sorted((view.failed & called_off) - handled)),
    )


def decide_log_dir_failures(
    view: LivenessView,
    *,
    first_seen_ms: Mapping[int, int],
    announced_ms: Mapping[int, int],
    handled: frozenset[int],
    outage: bool,
    now_ms: int,
    settings: Settings,
    reported: frozenset[int] = frozenset(),
) -> FailureDecision:
    """Return the decision about live brokers with offline replicas; `first_seen_ms` has the recorded ones.

    No broker is due if `heal_failed_disks` is off, within the grace period `heal_failure_interval`, or in an `outage`.
    Brokers with failed directories count as failed brokers towards an outage: many simultaneous failures have another
    cause. While disk healing is off, every recorded failure is cleared. Except for the outage, none of that holds for
    brokers whose failed directories an operator `reported`, unless all healing is disabled.
    """
    lost = frozenset(view.lost) if settings.heal_failed_disks else reported & view.lost.keys()
    if settings.heal_failure_interval < 0:
        lost = frozenset()
    grace_ms = int(settings.heal_failure_interval * 1000)
    due_ms = {
        broker: first_seen_ms.get(broker, now_ms) + (0 if broker in reported else grace_ms)
        for broker in sorted(lost - handled)
    }
    decision = _classify_failures(due_ms, announced_ms, outage=outage, now_ms=now_ms, settings=settings)
    return replace(
        decision,
        write=tuple(sorted(lost - first_seen_ms.keys())),
        clear=tuple(sorted(first_seen_ms.keys() - lost)),
        handled=tuple(sorted(lost & handled)),
    )


def _classify_failures(
    due_ms: Mapping[int, int], announced_ms: Mapping[int, int], *, outage: bool, now_ms: int, settings: Settings
) -> FailureDecision:
    due = tuple(broker for broker, at_ms in due_ms.items() if at_ms <= now_ms and not outage)
    return FailureDecision(
        announce=brokers_to_announce(due, announced_ms, now_ms, settings),
        due=due,
        waiting={broker: at_ms for broker, at_ms in due_ms.items() if at_ms > now_ms},
        outage=outage,
    )


def brokers_to_announce(
    brokers: Iterable[int], announced_ms: Mapping[int, int], now_ms: int, settings: Settings
) -> tuple[int, ...]:
    """Return those of `brokers` that were not announced yet, or last announced `heal_retry_interval` ago or earlier.

    All events of the watch about brokers follow this rule: they depend on the current state, and are repeated.
    """
    retry_ms = settings.heal_retry_interval * 1000
    return tuple(each for each in brokers if now_ms - announced_ms.get(each, -retry_ms) >= retry_ms)


def is_plan_idle(plan: PlanRecord, now_ms: int, settings: Settings) -> bool:
    """Return True if no process has stepped an unfinished plan for `abandoned_after` seconds."""
    return not plan.status.finished and now_ms - plan.stepped_ms > settings.abandoned_after * 1000


def is_plan_abandoned(plan: PlanRecord, now_ms: int, settings: Settings) -> bool:
    """Return True if a plan is idle although a step could continue it: its task failed for good.

    A STUCK plan is not abandoned: it needs operator action.
    """
    return plan.status is not PlanStatus.STUCK and is_plan_idle(plan, now_ms, settings)


def handled_brokers(
    plans: Sequence[PlanRecord],
    view: LivenessView,
    now_ms: int,
    settings: Settings,
    *,
    first_seen_ms: Mapping[int, int],
) -> frozenset[int]:
    """Return the brokers that need no further plan; `plans` is in order of publication, the newest first.

    The newest heal plan that names the broker decides. Either it is unfinished and not abandoned. Or it finished with
    partitions that it could not heal, the set of live brokers is unchanged since, and the broker was not live since.
    """
    newest: dict[int, PlanRecord] = {}
    for plan in plans:
        if plan.operation == Operation.HEAL.value:
            for broker in plan.failed_brokers:
                newest.setdefault(broker, plan)
    return frozenset(
        broker
        for broker, plan in newest.items()
        if (_can_heal_no_more(plan, view) and not _has_recovered(broker, plan, view, first_seen_ms.get(broker, now_ms)))
        or not (plan.status.finished or is_plan_abandoned(plan, now_ms, settings))
    )


def _can_heal_no_more(plan: PlanRecord, view: LivenessView) -> bool:
    return plan.status.finished and plan.left > 0 and frozenset(plan.live_brokers) == view.live


def _has_recovered(broker: int, plan: PlanRecord, view: LivenessView, seen_ms: int) -> bool:
    """Return True if the broker was live after the plan ended.

    No poll may have detected that; but then the broker may hold more partitions than the plan left.
    """
    return seen_ms > plan.stepped_ms or (broker in view.replica_counts and view.replica_counts[broker] > plan.left)


def _failure_due_ms(
    broker: int, seen_ms: int, bouncing: frozenset[int], stated_ms: Mapping[int, int], settings: Settings
) -> int:
    """Return the time at which a failure is due.

    An announced time that ended before the broker failed belongs to an earlier shutdown, and is ignored.
    """
    stated = stated_ms.get(broker)
    if stated is not None and stated >= seen_ms:
        return stated
    return seen_ms + _grace_period_ms(broker, bouncing, settings)


def _grace_period_ms(broker: int, bouncing: frozenset[int], settings: Settings) -> int:
    """Return the grace period: 0 with KIP-46's fast detection for a broker that did not announce its shutdown."""
    if settings.heal_fast_detection and broker not in bouncing:
        return 0
    return int(settings.heal_failure_interval * 1000)


def is_outage(down: int, known: int, settings: Settings) -> bool:
    """Return True if too many brokers of `known` are down at once; then no broker is healed."""
    return down > settings.max_failed_brokers or down > settings.max_failed_fraction * known


def grace_end_text(due_ms: int, now_ms: int | None) -> str:
    """Return the end of a grace period as a clause: the seconds that are left, or the time if `now_ms` is None."""
    left = f"at {utc_text(due_ms)} UTC" if now_ms is None else f"in {max(0, due_ms - now_ms) / 1000:.0f} s"
    return f"the grace period ends {left}"


def first_due_ms(decisions: Iterable[FailureDecision]) -> int | None:
    """Return the time at which the first grace period ends; None if none is running."""
    return min((at_ms for each in decisions for at_ms in each.waiting.values()), default=None)


def check_state(view: LivenessView, brokers: FailureDecision, log_dirs: FailureDecision) -> CheckState:
    """Return the state of the check for failures in one word, by its decisions about brokers and log directories."""
    both = (brokers, log_dirs)
    holds = {
        CheckState.FINE: not view.failed and not view.disks,
        CheckState.OUTAGE: any(each.outage for each in both),
        CheckState.DUE: any(each.due for each in both),
        CheckState.GRACE_PERIOD: any(each.waiting for each in both),
        CheckState.CALLED_OFF: bool(brokers.called_off),
        CheckState.HANDLED: any(each.handled for each in both),
    }
    return next((state for state, found in holds.items() if found), CheckState.NOT_HEALED)


def log_dir_message(view: LivenessView, decision: FailureDecision, settings: Settings, now_ms: int | None) -> str:
    """Return a message per live broker with a failed log directory, with the fate of its replicas; empty if none.

    If `now_ms` is None, it names the time at which a grace period ends, in place of the seconds that are left.
    """
    return " ".join(
        f"{_describe_failed_log_dir(broker, view)}{_describe_heal_state(broker, view, decision, settings, now_ms)}."
        for broker in sorted(view.disks)
    )


def _describe_failed_log_dir(broker: int, view: LivenessView) -> str:
    paths, lost = failed_paths_text(view.disks[broker]), view.lost.get(broker, 0)
    return f"Broker {broker} is live, but its log directory {paths} has failed, with {lost} replicas"


def _describe_heal_state(
    broker: int, view: LivenessView, decision: FailureDecision, settings: Settings, now_ms: int | None
) -> str:
    if broker not in view.lost:
        return ""
    if broker in decision.due:
        return ", which will be healed"
    if broker in decision.handled:
        return ", which a plan handles"
    if broker in decision.waiting:
        return f"; {grace_end_text(decision.waiting[broker], now_ms)}"
    if not settings.heal_failed_disks or settings.heal_failure_interval < 0:
        return "; they are not healed (heal_failed_disks)"
    return "; this counts as an outage, and nothing is healed until some brokers return"
