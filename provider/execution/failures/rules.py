"""Failed brokers and log directories: what is due, and what a plan already handles (KIP-46, part 1). Pure.

A broker with a failed log directory continues to serve from its other directories. The replicas in the failed directory
are offline until the disk is back, or until they are moved to other brokers, as for a failed broker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from kafka_steward.assignment import Operation, counted, name_brokers
from kafka_steward.cluster.health import failed_log_dirs, failed_paths_text
from kafka_steward.cluster.state import BrokerLogDirs, Snapshot
from kafka_steward.commands import command_line
from kafka_steward.escaping import utc_text
from kafka_steward.journal.observed import CheckState
from kafka_steward.journal.records import PlanRecord, PlanStatus
from kafka_steward.settings import Settings


@dataclass(frozen=True)
class EndedHeal:
    """The last heal of a broker, which ended and left partitions, as a failure keeps it beyond its plan's retention.

    The fields are those of `PlanRecord`; `cancelled` is True if a person ended it.
    """

    ended_ms: int
    left: int
    live_brokers: tuple[int, ...] = ()
    repeats: int = 0
    lacks_room: bool = False
    cancelled: bool = False

    @classmethod
    def of(cls, plan: PlanRecord) -> EndedHeal:
        """Return what is kept of a plan."""
        cancelled = not plan.status.ended_by_itself
        return cls(plan.stepped_ms, plan.left, plan.live_brokers, plan.repeats, plan.lacks_room, cancelled)

    def as_plan(self, broker: int) -> PlanRecord:
        """Return what is known of the plan."""
        return PlanRecord(
            "",
            "",
            Operation.HEAL.value,
            PlanStatus.CANCELLED if self.cancelled else PlanStatus.COMPLETED,
            failed_brokers=(broker,),
            stepped_ms=self.ended_ms,
            live_brokers=self.live_brokers,
            left=self.left,
            repeats=self.repeats,
            lacks_room=self.lacks_room,
        )


@dataclass(frozen=True)
class Failure:
    """The time of the first detection of a failure, and of its last announcement.

    `entered` is True while KIP-46's entry of the broker exists, as far as our own processes know: before one of them
    deletes the entry, it resets the field. `called_off_ms` is the time at which the deletion of the entry by an
    operator was detected. With `reported`, an operator reported the failure, and it has no grace period.
    """

    first_seen_ms: int
    announced_ms: int | None = None
    entered: bool = False
    called_off_ms: int | None = None
    reported: bool = False
    #: The time of the report: a heal that ended earlier does not count as the last one.
    reported_ms: int | None = None
    healed: EndedHeal | None = None


@dataclass(frozen=True)
class LivenessView:
    """The result of one poll: failed brokers, as the cluster reports them, live brokers, and all expected brokers.

    `replica_counts` counts the partitions of each failed broker. `disks` maps live brokers to the paths of their failed
    log directories, as far as they report the paths. `lost` counts the replicas that Kafka reports as offline there.
    `hopeless` are failed brokers none of whose partitions has a live replica: no plan can move anything off them.
    `in_flight` are failed brokers, and live ones with offline replicas, of which a partition is being reassigned.
    `lost_racks` are the racks all of whose brokers have failed, as far as the cluster still knows their racks.
    """

    failed: frozenset[int]
    live: frozenset[int]
    known: frozenset[int]
    replica_counts: Mapping[int, int] = field(default_factory=dict)
    disks: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    lost: Mapping[int, int] = field(default_factory=dict)
    hopeless: frozenset[int] = frozenset()
    in_flight: frozenset[int] = frozenset()
    lost_racks: tuple[str, ...] = ()

    def is_recovered(self, broker: int) -> bool:
        """Return True if the failure is over: the broker is live, or has no replicas any more.

        A broker that too few live brokers report as down has not recovered.
        """
        return broker in self.live or broker not in self.known


def build_view(
    snapshot: Snapshot,
    failed: frozenset[int],
    disks: Mapping[int, BrokerLogDirs],
    racks: Mapping[int, str] | None = None,
) -> LivenessView:
    """Return the state of the brokers of which `failed` are down, by their votes or by the snapshot.

    `racks` are those that brokers had last: with ZooKeeper, Kafka forgets the racks of dead ones.
    """
    # ZooKeeper mode accepts placeholders such as -1 as replicas: they are no brokers.
    known = frozenset(broker for broker in snapshot.live | snapshot.hosting_brokers if broker >= 0)
    holding = Counter(
        broker for partition in snapshot.partitions.values() for broker in failed.intersection(partition.replicas)
    )
    lost = {broker: len(names) for broker, names in snapshot.offline_on_live_brokers.items()}
    touched = snapshot.partitions.values() if failed else ()
    reachable = {broker for partition in touched if partition.live_replicas(snapshot) for broker in partition.replicas}
    in_flight = {broker for partition in snapshot.reassigning.values() for broker in partition.replicas}
    return LivenessView(
        failed,
        snapshot.live,
        known,
        holding,
        failed_log_dirs(snapshot, disks),
        lost,
        hopeless=failed - reachable,
        in_flight=frozenset(in_flight),
        lost_racks=_lost_racks(snapshot, failed, racks or {}),
    )


def _lost_racks(snapshot: Snapshot, failed: frozenset[int], racks: Mapping[int, str]) -> tuple[str, ...]:
    """Return the racks of which no broker is left, of two or more, as far as their racks are known."""
    known = {**racks, **{broker.id: broker.rack for broker in snapshot.brokers.values() if broker.rack}}
    down = Counter(known[broker] for broker in failed & known.keys())
    up = {broker.rack for broker in snapshot.brokers.values() if broker.id not in failed}
    return tuple(sorted(rack for rack, count in down.items() if count > 1 and rack not in up))


def lost_racks_clause(racks: Sequence[str]) -> str:
    """Return in brackets the racks of which no broker is live; empty without any."""
    if not racks:
        return ""
    return f" (no broker of rack{'s' if len(racks) > 1 else ''} {' and '.join(racks)} is live)"


class NotCounted(StrEnum):
    """Why a broker that is down counts towards no outage, as words in brackets."""

    CALLED_OFF = "the heal was called off"
    HEALED = "the last heal left only partitions that no further one would repair"
    HOPELESS = "no partition has a live replica"


@dataclass(frozen=True)
class FailureDecision:
    """The records to write after a poll, and the classification of the failed brokers or log directories, by broker.

    `write` are failures that are detected for the first time, or whose record is missing. `clear` are records of
    failures that are over or handled. `due` are brokers whose grace period is over. `announce` is the subset of `due`
    that is to be announced now. `waiting` maps brokers within their grace period to the time at which it ends.
    `handled` are brokers that a plan handles, `called_off` those whose heal an operator called off. `not_counted` are
    the brokers that are down and count towards no outage, with the reason. In an `outage`, only brokers that a person
    reported or named are due.
    """

    write: tuple[int, ...] = ()
    clear: tuple[int, ...] = ()
    announce: tuple[int, ...] = ()
    due: tuple[int, ...] = ()
    waiting: Mapping[int, int] = field(default_factory=dict)
    handled: tuple[int, ...] = ()
    called_off: tuple[int, ...] = ()
    outage: bool = False
    not_counted: Mapping[int, NotCounted] = field(default_factory=dict)
    #: The last heals that the records of failures do not have yet.
    ended: Mapping[int, EndedHeal] = field(default_factory=dict)

    @property
    def healing(self) -> frozenset[int]:
        """Return the brokers that are healed all the same while nothing else is."""
        waiting = () if self.outage else self.waiting
        return frozenset({*self.due, *waiting, *(set(self.handled) - self.not_counted.keys())})


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
    named: frozenset[int] = frozenset(),
    finished: frozenset[int] = frozenset(),
) -> FailureDecision:
    """Return the decision about failed brokers for one poll.

    `first_seen_ms` maps brokers to the time at which their failure was first detected, `announced_ms` to the time of
    its last announcement, and `stated_ms` to the end of the absence that they announced. `entries` are the brokers that
    have an entry of KIP-46, `noted` the brokers whose own record says so. The heal of `called_off` brokers was called
    off; those that were `reported` as failed are due at once. A person `named` brokers for this heal. `finished` are
    the brokers of `HealedBrokers.finished`.

    With a negative `heal_failure_interval`, nothing is written and no broker is ever due.
    """
    disabled = settings.heal_failure_interval < 0
    due_ms = {
        broker: first_seen_ms.get(broker, now_ms)
        if broker in reported
        else _failure_due_ms(broker, first_seen_ms.get(broker, now_ms), bouncing, stated_ms or {}, settings)
        for broker in sorted(view.failed - handled - called_off)
    }
    waiting = {broker for broker, at_ms in due_ms.items() if at_ms > now_ms and not disabled}
    not_counted = _brokers_not_counted(view, finished=finished, called_off=called_off, waiting=waiting)
    outage = is_outage(view.failed, view.known, not_counted, settings)
    if disabled:
        return FailureDecision(outage=outage, not_counted=not_counted)
    exempt = reported | named if outage else frozenset(due_ms)
    decision = _classify_failures(due_ms, announced_ms, exempt=exempt, now_ms=now_ms, settings=settings)
    return replace(
        decision,
        outage=outage,
        not_counted=not_counted,
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
    now_ms: int,
    settings: Settings,
    reported: frozenset[int] = frozenset(),
    named: frozenset[int] = frozenset(),
    finished: frozenset[int] = frozenset(),
    not_counted: Mapping[int, NotCounted] | None = None,
) -> FailureDecision:
    """Return the decision about live brokers with offline replicas; `first_seen_ms` has the recorded ones.

    No broker is due if `heal_failed_disks` is off, within the grace period `heal_failure_interval`, or in an outage.
    With that setting, brokers with failed directories count as failed brokers towards an outage: many simultaneous
    failures have another cause. Those of `finished` (see `HealedBrokers`) do not, and neither do the failed brokers of
    `not_counted`. While disk healing is off, every recorded failure is cleared. None of that holds for brokers whose
    failed directories an operator `reported`, unless all healing is disabled. Brokers that a person `named` for this
    heal are due in an outage, too.
    """
    lost = frozenset(view.lost) if settings.heal_failed_disks else reported & view.lost.keys()
    if settings.heal_failure_interval < 0:
        lost = frozenset()
    grace_ms = int(settings.heal_failure_interval * 1000)
    due_ms = {
        broker: first_seen_ms.get(broker, now_ms) + (0 if broker in reported else grace_ms)
        for broker in sorted(lost - handled)
    }
    left_out = {**(not_counted or {}), **dict.fromkeys(sorted(finished & view.lost.keys()), NotCounted.HEALED)}
    counts = bool(view.lost) and settings.heal_failed_disks
    outage = counts and is_outage(view.failed | view.lost.keys(), view.known, left_out, settings)
    exempt = reported | named if outage else frozenset(due_ms)
    decision = _classify_failures(due_ms, announced_ms, exempt=exempt, now_ms=now_ms, settings=settings)
    return replace(
        decision,
        outage=outage,
        not_counted=left_out,
        write=tuple(sorted(lost - first_seen_ms.keys())),
        clear=tuple(sorted(first_seen_ms.keys() - lost)),
        handled=tuple(sorted(lost & handled)),
    )


def _classify_failures(
    due_ms: Mapping[int, int],
    announced_ms: Mapping[int, int],
    *,
    exempt: Collection[int],
    now_ms: int,
    settings: Settings,
) -> FailureDecision:
    """Return the due and the waiting brokers; only `exempt` brokers may be due, all of them without an outage."""
    due = tuple(broker for broker, at_ms in due_ms.items() if at_ms <= now_ms and broker in exempt)
    return FailureDecision(
        announce=brokers_to_announce(due, announced_ms, now_ms, settings),
        due=due,
        waiting={broker: at_ms for broker, at_ms in due_ms.items() if at_ms > now_ms},
    )


def _brokers_not_counted(
    view: LivenessView, *, finished: Collection[int], called_off: Collection[int], waiting: Collection[int]
) -> dict[int, NotCounted]:
    """Return the failed brokers that count towards no outage, with the reason.

    During its grace period a broker without anything to heal counts: several that fail at once have another cause.
    """
    reasons = {
        NotCounted.CALLED_OFF: frozenset(called_off),
        NotCounted.HEALED: frozenset(finished),
        NotCounted.HOPELESS: view.hopeless.difference(waiting),
    }
    by_broker = {
        broker: next((why for why, of in reasons.items() if broker in of), None) for broker in sorted(view.failed)
    }
    return {broker: why for broker, why in by_broker.items() if why is not None}


def brokers_to_announce(
    brokers: Iterable[int], announced_ms: Mapping[int, int], now_ms: int, settings: Settings
) -> tuple[int, ...]:
    """Return those of `brokers` that were not announced yet, or last announced `heal_retry_interval` ago or earlier.

    All events of the watch about brokers follow this rule: they depend on the current state, and are repeated.
    """
    retry_ms = settings.heal_retry_interval * 1000
    return tuple(broker for broker in brokers if now_ms - announced_ms.get(broker, -retry_ms) >= retry_ms)


def is_plan_idle(plan: PlanRecord, now_ms: int, settings: Settings) -> bool:
    """Return True if no process has stepped an unfinished plan for `abandoned_after` seconds."""
    return not plan.status.finished and now_ms - plan.stepped_ms > settings.abandoned_after * 1000


def is_plan_abandoned(plan: PlanRecord, now_ms: int, settings: Settings) -> bool:
    """Return True if a plan is idle although a step could continue it: its task failed for good.

    A STUCK plan is not abandoned: it needs operator action.
    """
    return plan.status is not PlanStatus.STUCK and is_plan_idle(plan, now_ms, settings)


@dataclass(frozen=True)
class HealedBrokers:
    """Brokers by their newest heal: `handled` ones need no further plan.

    The last heal of `finished` ones left only partitions that no plan can make fully replicated, and they were not live
    since: they count towards no outage, also once another plan is due because a broker joined.
    """

    handled: frozenset[int] = frozenset()
    finished: frozenset[int] = frozenset()
    #: Those of both whose heal ended by itself: what it left, no plan can repair with the brokers that are live.
    exhausted: frozenset[int] = frozenset()
    #: The last heal of `finished` ones.
    ended: Mapping[int, EndedHeal] = field(default_factory=dict)


def healed_brokers(
    plans: Sequence[PlanRecord],
    view: LivenessView,
    now_ms: int,
    settings: Settings,
    *,
    first_seen_ms: Mapping[int, int],
    reported_ms: Mapping[int, int] | None = None,
) -> HealedBrokers:
    """Return the brokers that need no further plan, and those that count towards no outage.

    `plans` is in order of publication, the newest first. The newest heal plan that names the broker decides. Either it
    is unfinished and not abandoned. Or it finished with partitions that it could not heal, the broker was not live
    since, nobody has `reported` it since, and no broker that the plan could not use has become live.
    """
    newest: dict[int, PlanRecord] = {}
    for plan in plans:
        if plan.operation == Operation.HEAL.value:
            for broker in plan.failed_brokers:
                newest.setdefault(broker, plan)
    finished = frozenset(
        broker
        for broker, plan in newest.items()
        # Without live brokers in the record, another plan could do more at once.
        if plan.status.finished
        and plan.left > 0
        and plan.live_brokers
        and not _has_recovered(broker, plan, view, first_seen_ms.get(broker, now_ms))
    )
    handled = {
        broker
        for broker, plan in newest.items()
        if (
            (reported_ms or {}).get(broker, -1) < plan.stepped_ms and _can_heal_no_more(broker, plan, view, now_ms)
            if broker in finished
            else not (plan.status.finished or is_plan_abandoned(plan, now_ms, settings))
        )
    }
    # What a heal left because others were moving it is planned again once they have ended.
    waits = frozenset(broker for broker in finished if broker in newest[broker].postponed)
    settled = finished - waits | waits & view.in_flight
    exhausted = frozenset(broker for broker in settled & handled if newest[broker].status.ended_by_itself)
    ended = {broker: EndedHeal.of(newest[broker]) for broker in sorted(finished - waits)}
    return HealedBrokers(frozenset(handled), settled, exhausted, ended)


#: The time after which what two heals have left alike, or one for lack of room, is planned again, in milliseconds.
_REPEATED_AFTER_MS = 86_400_000


def _can_heal_no_more(broker: int, plan: PlanRecord, view: LivenessView, now_ms: int) -> bool:
    """Return True if another plan could not do more than `plan`, which has ended.

    A plan that left partitions of the broker because they were being reassigned is followed by another when none is.
    The failure of a further broker does not make another plan worthwhile, a newly live broker does, except for
    partitions that have no live replica to copy from. One that left the same as the heal before, although its targets
    were live, or partitions for which no broker had room, is followed by another a day later: somebody may have made
    room on a disk.
    """
    if broker in plan.postponed and broker not in view.in_flight:
        return False
    if (plan.repeats or plan.lacks_room) and now_ms - plan.stepped_ms >= _REPEATED_AFTER_MS:
        return False
    return broker in view.hopeless or view.live <= frozenset(plan.live_brokers)


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
    # KIP-46's fast detection: a broker that did not announce its shutdown has no grace period.
    is_fast = settings.heal_fast_detection and broker not in bouncing
    return seen_ms + (0 if is_fast else int(settings.heal_failure_interval * 1000))


def is_outage(down: Collection[int], known: Collection[int], not_counted: Collection[int], settings: Settings) -> bool:
    """Return True if too many brokers of `known` are down at once; then only brokers that a person names are healed."""
    return bool(_exceeded_settings(down, known, not_counted, settings))


def _exceeded_settings(
    down: Collection[int], known: Collection[int], not_counted: Collection[int], settings: Settings
) -> dict[str, float]:
    """Return the settings that say that this is an outage, with their values.

    The brokers of `not_counted` are left out of both numbers.
    """
    counted, of = len(set(down).difference(not_counted)), len(set(known).difference(not_counted))
    bounds = {
        "max_failed_brokers": (settings.max_failed_brokers, settings.max_failed_brokers),
        "max_failed_fraction": (settings.max_failed_fraction, settings.max_failed_fraction * of),
    }
    return {name: value for name, (value, most) in bounds.items() if counted > most}


def outage_text(
    down: Collection[int],
    known: Collection[int],
    not_counted: Collection[int],
    settings: Settings,
    *,
    healing: Collection[int] = (),
    disks: Collection[int] = (),
    conn_id: str | None = None,
) -> str:
    """Return why so many brokers are an outage, and what overrules it; empty if they are none.

    It follows a colon: `3 of 7 brokers, more than …`. The brokers of `healing` are healed all the same. Those of
    `disks` are live, and have failed log directories. `conn_id` is the connection of the cluster, for the command.
    """
    exceeded = _exceeded_settings(down, known, not_counted, settings)
    if not exceeded:
        return ""
    counted = sorted(set(down).difference(not_counted))
    of, names = len(set(known).difference(not_counted)), " and ".join(exceeded)
    allowed = " and ".join(f"{name} ({value:g})" for name, value in exceeded.items())
    nothing = "nothing else" if healing else "nothing"
    first = next((broker for broker in counted if broker not in healing), None)
    report, what = (f"failed {first} --disk DIR", "disks") if first in disks else (f"failed {first}", "a broker")
    overrule = (
        f" To heal all the same, run the DAG heal with a higher {names}, or report {what} that will not return: "
        f"{command_line(report, conn_id)}."
    )
    return (
        f"{len(counted)} of {of} brokers, more than {allowed} {'allow' if len(exceeded) > 1 else 'allows'}; this "
        f"counts as an outage, and {nothing} is healed until some brokers return.{'' if first is None else overrule}"
    )


def overruled_text(
    down: Collection[int], known: Collection[int], not_counted: Collection[int], settings: Settings, usual: Settings
) -> str:
    """Return a sentence about the bounds of a run that let it heal what would be an outage by the `usual` settings."""
    exceeded = _exceeded_settings(down, known, not_counted, usual)
    fields = [f"{name} {getattr(settings, name):g} in place of {value:g}" for name, value in exceeded.items()]
    return f"By the usual settings this would be an outage; this run has {' and '.join(fields)}." if fields else ""


def not_counted_text(
    not_counted: Mapping[int, NotCounted],
    *,
    but: Collection[int] = (),
    disks: Collection[int] = (),
    conn_id: str | None = None,
) -> str:
    """Return a message about the brokers that count towards no outage, without those of `but`; empty if none is left.

    It says what a person can do about them. Those of `disks` are live, and have failed log directories. `conn_id` is as
    in `outage_text`.
    """
    groups = [
        (sorted(broker for broker, reason in not_counted.items() if reason is why and broker not in but), why)
        for why in NotCounted
    ]
    clauses = [f"{name_brokers(brokers)} ({why.value})" for brokers, why in groups if brokers]
    if not clauses:
        return ""
    first = min(broker for brokers, _ in groups for broker in brokers)
    again = f"{first} --disk DIR" if first in disks else str(first)
    return (
        f"Not counted towards an outage: {', '.join(clauses)}. Bring such a broker back with its data, delete or "
        "restore the topics of its partitions, if that is not under way already, or have it healed again: "
        f"{command_line(f'failed {again}', conn_id)}."
    )


def grace_end_text(due_ms: int, now_ms: int | None) -> str:
    """Return the end of a grace period as a clause: the seconds that are left, or the time if `now_ms` is None."""
    left = f"at {utc_text(due_ms)} UTC" if now_ms is None else f"in {max(0, due_ms - now_ms) / 1000:.0f} s"
    return f"the grace period ends {left}"


def first_due_ms(decisions: Iterable[FailureDecision]) -> int | None:
    """Return the time at which the first grace period ends; None if none is running."""
    return min((at_ms for decision in decisions for at_ms in decision.waiting.values()), default=None)


def check_state(view: LivenessView, brokers: FailureDecision, log_dirs: FailureDecision) -> CheckState:
    """Return the state of the check for failures in one word, by its decisions about brokers and log directories."""
    both = (brokers, log_dirs)
    holds = {
        CheckState.FINE: not view.failed and not view.disks,
        CheckState.OUTAGE: any(decision.outage for decision in both),
        CheckState.DUE: any(decision.due for decision in both),
        CheckState.GRACE_PERIOD: any(decision.waiting for decision in both),
        CheckState.CALLED_OFF: bool(brokers.called_off),
        CheckState.HANDLED: any(set(decision.handled).difference(decision.not_counted) for decision in both),
    }
    return next((state for state, applies in holds.items() if applies), CheckState.NOT_HEALED)


def log_dir_message(
    view: LivenessView,
    decision: FailureDecision,
    settings: Settings,
    now_ms: int | None,
    conn_id: str | None = None,
    *,
    healing: Collection[int] = (),
) -> str:
    """Return a message per live broker with replicas in a failed log directory, with their fate; empty if none.

    If `now_ms` is None, it names the time at which a grace period ends, in place of the seconds that are left.
    `conn_id` and `healing` are as in `outage_text`.
    """
    return " ".join(
        f"{_describe_failed_log_dir(broker, view)}"
        f"{_describe_heal_state(broker, view, decision, settings, now_ms, healing=healing, conn_id=conn_id)}."
        for broker in sorted(view.disks.keys() & view.lost.keys())
    )


def _describe_failed_log_dir(broker: int, view: LivenessView) -> str:
    paths, lost = failed_paths_text(view.disks[broker]), view.lost[broker]
    return f"Broker {broker} is live, but its log directory {paths} has failed, with {counted(lost, 'replica')}"


def _describe_heal_state(
    broker: int,
    view: LivenessView,
    decision: FailureDecision,
    settings: Settings,
    now_ms: int | None,
    *,
    healing: Collection[int],
    conn_id: str | None,
) -> str:
    if broker in decision.due:
        return ", which will be healed"
    if broker in decision.handled:
        done = ", of which the last heal left only what no further one would repair"
        return done if broker in decision.not_counted else ", which a plan handles"
    if broker in decision.waiting:
        return f"; {grace_end_text(decision.waiting[broker], now_ms)}"
    if not settings.heal_failed_disks or settings.heal_failure_interval < 0:
        return "; no heal replaces them (heal_failed_disks)"
    down = view.failed | view.lost.keys()
    uncounted = decision.not_counted
    why = outage_text(down, view.known, uncounted, settings, healing=healing, disks=view.lost, conn_id=conn_id)
    return f": {why[:-1]}"
