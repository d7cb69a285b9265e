"""Numbers, times and states as the page writes them, and the numbers of its pictures for SVG. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from kafka_steward.escaping import printable, utc_datetime, utc_text
from kafka_steward.execution.plans.report import format_bytes, format_duration
from kafka_steward.journal.observed import BrokerChange, PlanReport, ProofSummary
from kafka_steward.journal.records import PlanStatus, status_text
from kafka_steward.page_data.clusters import ClusterState, ClusterSummary
from kafka_steward.rack_rule import rack_left_sentence

#: What stands for an unknown value.
UNKNOWN = "\u2013"

#: The colour of a state (bad needs a person now, warn soon, busy and ok do not), and what to do about it where the
#: watch's own sentence does not say it.
_STATES: Mapping[ClusterState, tuple[str, str]] = {
    ClusterState.UNWATCHED: (
        "bad",
        (
            "No watch has reported for 3 minutes, so what is shown may be old; check that the DAG heal is not paused "
            "and that Airflow's triggerer runs."
        ),
    ),
    ClusterState.FAILING: ("bad", "The watch cannot poll the cluster."),
    ClusterState.OUTAGE: ("bad", "More brokers have failed than may be healed at once; bring them back."),
    ClusterState.OFFLINE: ("bad", "Partitions have no leader: bring their brokers back."),
    ClusterState.STUCK: ("bad", "A plan makes no progress and needs a person."),
    ClusterState.FAILED: ("bad", "A broker has failed and is not healed by itself."),
    ClusterState.WAITING: ("warn", "A broker has failed; it is healed when its grace period ends."),
    ClusterState.HEALING: ("busy", "A plan restores the replicas of the failed brokers."),
    ClusterState.MOVING: ("busy", "A plan moves replicas."),
    ClusterState.DEGRADED: ("warn", "Some partitions have fewer in-sync replicas than they should."),
    ClusterState.DISABLED: ("warn", "Reassignments are disabled: no move starts."),
    ClusterState.HEALTHY: ("ok", "Every partition is fully replicated."),
}
#: The colour of a plan's status; a status without one is idle, not current.
_PLAN_TONES = {
    PlanStatus.STUCK: "bad",
    PlanStatus.FAILED: "bad",
    PlanStatus.RUNNING: "busy",
    PlanStatus.PUBLISHED: "busy",
    PlanStatus.PREEMPTED: "warn",
    PlanStatus.IDLE: "warn",
    PlanStatus.COMPLETED: "ok",
}


def tone_of_cluster(state: ClusterState) -> str:
    """Return the colour of a cluster's state."""
    return _STATES[state][0]


def tone_of_plan(status: PlanStatus | None) -> str:
    """Return the colour of a plan's status; a plan that waits for approval has none."""
    return "warn" if status is None else _PLAN_TONES.get(status, "idle")


def word_of_plan(plan: PlanReport) -> str:
    """Return the status of a plan in a word or two."""
    if plan.status is not None:
        return status_text(plan.status.value.replace("_", " "), plan.reason)
    return "awaiting approval" if plan.approval and plan.approval.state.value == "asked" else "not submitted"


def sentences_of_cluster(cluster: ClusterSummary) -> list[str]:
    """Return what the watch says of a cluster, and what is to be done about its state."""
    _, advice = _STATES[cluster.state]
    return [advice, cluster.sentence] if cluster.sentence else [advice]


def whole(number: float | None) -> str:
    """Return a count with groups of digits: `200,000`."""
    return UNKNOWN if number is None else f"{number:,.0f}"


def size(count: float | None) -> str:
    """Return a number of bytes: `1.2 GB`."""
    return UNKNOWN if count is None else format_bytes(count)


def rate(bytes_per_s: float | None) -> str:
    """Return bytes per second: `50.0 MB/s`."""
    return UNKNOWN if bytes_per_s is None else f"{format_bytes(bytes_per_s)}/s"


def throttle(bytes_per_s: float | None) -> str:
    """Return a throttle: none, or bytes per second."""
    return f"{format_bytes(bytes_per_s)}/s" if bytes_per_s else "none"


def span(ms: float | None) -> str:
    """Return a duration in milliseconds: `12 min`."""
    return UNKNOWN if ms is None else format_duration(max(0.0, ms) / 1000)


def until(due_ms: int | None, now_ms: int) -> str:
    """Return the time left: `12 min`, or `now` once it is over."""
    if due_ms is None:
        return UNKNOWN
    return "now" if due_ms <= now_ms else span(due_ms - now_ms)


def percent(fraction: float | None) -> str:
    """Return a fraction: `25 %`, rounded down, so that 100 % is all of it."""
    return UNKNOWN if fraction is None else f"{int(fraction * 100)} %"


def moment(ms: int | None) -> Markup:
    """Return a time in UTC as a `<time>` element."""
    time = None if ms is None else utc_datetime(ms)
    if time is None or ms is None:
        return escape(UNKNOWN)
    return Markup('<time datetime="{}Z">{}</time>').format(time.strftime("%Y-%m-%dT%H:%M:%S"), utc_text(ms))


def replicas(brokers: object) -> str:
    """Return the replicas of an assignment: `1, 2, 3`."""
    return ", ".join(map(str, brokers)) if isinstance(brokers, list | tuple) else UNKNOWN


#: After these a long name may break.
_BREAKS = {".": Markup(".<wbr>"), "_": Markup("_<wbr>"), "-": Markup("-<wbr>"), "/": Markup("/<wbr>")}


def breakable(text: str) -> Markup:
    """Return a long name that may break after its separators, so that a phone can show it."""
    safe = escape(printable(text))
    for separator, breaking in _BREAKS.items():
        safe = safe.replace(separator, breaking)
    return safe


#: The width of a bar that is as long as the longest one, and the size of a line chart.
BAR, LINE_WIDTH, LINE_HEIGHT = 120, 240, 40


@dataclass(frozen=True)
class Bars:
    """The lengths of two bars, at most `BAR`; None where a value is unknown."""

    before: float | None
    after: float | None


def bars_of_plan(changes: Sequence[BrokerChange], measure: str) -> list[Bars]:
    """Return the bars of each broker for `replicas`, `leaders` or `bytes`, on one scale."""
    pairs = [(getattr(broker, f"{measure}_before"), getattr(broker, f"{measure}_after")) for broker in changes]
    longest = max((value for pair in pairs for value in pair if value is not None), default=0)
    return [Bars(*(scaled(value, longest) for value in pair)) for pair in pairs]


def scaled(value: float | None, longest: float | None) -> float | None:
    """Return the length of a bar."""
    if value is None:
        return None
    return round(BAR * value / longest, 1) if longest else 0.0


def polylines(at_ms: Sequence[int], values: Sequence[float | None]) -> list[str]:
    """Return the points of a line for SVG, from 0 to its largest value; several where values are missing between."""
    known = [value for value in values if value is not None]
    if not known:
        return []
    top, first, span = max(*known, 1e-9), at_ms[0], max(1, at_ms[-1] - at_ms[0])
    lines: list[list[str]] = [[]]
    for at, value in zip(at_ms, values, strict=True):
        if value is None:
            lines.append([])
        else:
            x, y = LINE_WIDTH * (at - first) / span, LINE_HEIGHT * (1 - value / top)
            lines[-1].append(f"{x:.1f},{y:.1f}")
    return [" ".join(line) for line in lines if line]


def racks_left(proof: ProofSummary) -> str:
    """Return which partitions break the rack rule after a plan, and why it leaves them; empty without any."""
    return rack_left_sentence(proof.rack_left, proof.rack_left_counts)
