"""Every setting, defined once: its name, unit, default and range, and the precedence of its sources.

A DAG's parameter overrides the connection's extra, which overrides the `[kafka_steward]` section, which overrides the
default here. The connection's extra also accepts the KIPs' dotted names (`kafka.heal.chunk.size`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from kafka_steward.errors import SettingError
from kafka_steward.maintenance import PATTERN, window_of
from kafka_steward.values import finite_number, shown, switch, whole_number

__all__ = ["Settings"]

#: Seconds: ten years; days: a hundred years. Their milliseconds still fit every field that stores a time.
_LONGEST_S, _LONGEST_DAYS = 315_360_000, 36_500
#: Kafka's types of rates and of counts.
_LONG, _INT = 2**63 - 1, 2**31 - 1
#: KIP-46: this heal_failure_interval disables healing.
_NEVER = -1


def _knob(
    default: Any,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    pattern: str | None = None,
) -> Any:
    return field(default=default, metadata={"low": low, "high": high, "choices": choices, "pattern": pattern})


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one cluster. Construct through `Settings.of`, which validates."""

    #: Seconds a broker must be gone before it counts as failed (KIP-46's kafka.heal.failure.interval); -1: never.
    heal_failure_interval: float = _knob(1800.0, low=-1, high=_LONGEST_S)
    #: Partitions in one chunk (KIP-46's kafka.heal.chunk.size).
    heal_chunk_size: int = _knob(50, low=1, high=5000)
    #: A broker that disappears without an announcement is due at once (KIP-46, fast detection).
    heal_fast_detection: bool = _knob(False)
    #: Replicas in a failed log directory of a live broker are moved to other brokers, as those of a dead broker are.
    heal_failed_disks: bool = _knob(False)
    #: Seconds after which an unhandled failure is announced again.
    heal_retry_interval: float = _knob(600.0, low=1, high=_LONGEST_S)
    #: More failed brokers than this is an outage: reported, not healed.
    max_failed_brokers: int = _knob(10, low=1, high=_INT)
    #: The same as a fraction of the known brokers.
    max_failed_fraction: float = _knob(0.4, low=0, high=1)
    #: Bytes per second that reassignment may bring into one broker; 0: no throttle.
    throttle: int = _knob(50_000_000, low=0, high=_LONG)
    #: Bytes per second of a broker's network, for `throttle_fraction`; 0: not stated.
    network_bandwidth: int = _knob(0, low=0, high=_LONG)
    #: The throttle as a fraction of `network_bandwidth`; 0: use `throttle`. The source with higher precedence wins.
    throttle_fraction: float = _knob(0.0, low=0, high=1)
    #: Throttle the leaders' side too, as comparable tools do; this slows ordinary catch-up.
    throttle_leaders: bool = _knob(False)
    #: Fraction of the volume of each log directory that must stay free.
    min_free: float = _knob(0.15, low=0, high=1)
    #: Replicas that one broker may be receiving at once.
    max_in_per_broker: int = _knob(5, low=1, high=_INT)
    #: Replicas that one broker may be sending at once.
    max_out_per_broker: int = _knob(5, low=1, high=_INT)
    #: Partitions in flight at once, in the whole cluster.
    max_in_flight: int = _knob(100, low=1, high=_INT)
    #: A move that adds several replicas adds one after the other (KIP-236's staggering).
    one_replica_at_a_time: bool = _knob(False)
    #: The next move starts when one ends ("sliding"), or when its whole chunk has ended ("chunk", KIP-46).
    window: str = _knob("sliding", choices=("sliding", "chunk"))
    #: Seconds to wait between chunks.
    chunk_pause: float = _knob(0.0, low=0, high=_LONGEST_S)
    #: Times at which deferrable plans may begin moves, such as "mon-fri 22:00-06:00"; empty: always.
    maintenance_window: str = _knob("", pattern=PATTERN)
    #: The time zone of that window.
    maintenance_timezone: str = _knob("UTC")
    #: Seconds without progress after which a move counts as stalled.
    stall_after: float = _knob(600.0, low=1, high=_LONGEST_S)
    #: Action for a stalled move: keep waiting, cancel only this move, or fail the run, which a retry resumes.
    when_stalled: str = _knob("fail", choices=("wait", "cancel", "fail"))
    #: Seconds without a step after which a plan is idle; its throttle leases are released once no move is in flight.
    abandoned_after: float = _knob(600.0, low=1, high=_LONGEST_S)
    #: Consecutive failed steps after which a plan is blocked and needs operator action.
    max_attempts: int = _knob(100, low=1, high=_INT)
    #: Seconds between two steps of a plan.
    step_interval: float = _knob(2.0, low=0.1, high=_LONGEST_S)
    #: Seconds between two polls of the watch.
    watch_interval: float = _knob(2.0, low=0.1, high=_LONGEST_S)
    #: Seconds between two health checks of the watch (KIP-352); 0: none.
    health_interval: float = _knob(60.0, low=0, high=_LONGEST_S)
    #: Days for which the watch keeps its health measurements, for plots.
    health_retention: float = _knob(7.0, low=0, high=_LONGEST_DAYS)
    #: Submission path: the Admin API, or the legacy znode /admin/reassign_partitions ("legacy", ZooKeeper only).
    submission: str = _knob("admin", choices=("admin", "legacy"))
    #: Action for an external reassignment that starts while reassignments are disabled (KIP-236).
    foreign_while_disabled: str = _knob("report", choices=("report", "cancel"))
    #: Topics are created while fewer brokers than replicas are live (KIP-409); the missing replicas are pending.
    enable_under_replicated_topic_creation: bool = _knob(False)
    #: Days for which the rows of a finished plan are kept.
    plan_retention: float = _knob(30.0, low=0, high=_LONGEST_DAYS)

    @classmethod
    def of(cls, *sources: Mapping[str, Any]) -> Settings:
        """Return settings from the given sources, the first of which has precedence. Other names are ignored.

        Raises SettingError, naming the setting, when a value is of the wrong type or out of range, when two settings
        contradict each other, and for a maintenance window that never opens.
        """
        merged: dict[str, Any] = {}
        for source in map(_known, reversed(sources)):
            if "throttle" in source:
                merged.pop("throttle_fraction", None)  # the source with higher precedence wins
            merged.update(source)
        settings = cls(**{name: _checked(name, value) for name, value in merged.items()})
        window_of(settings.maintenance_window, settings.maintenance_timezone)
        _refuse_contradictions(settings, {knob.name for knob in fields(cls)})
        return _throttled(settings)

    @classmethod
    def refuse_wrong(cls, source: Mapping[str, Any]) -> None:
        """Raise SettingError for a fault in `source` that no other source can correct.

        A setting that depends on another one is checked only if `source` has both.
        """
        given = _known(source)
        settings = cls(**{name: _checked(name, value) for name, value in given.items()})
        window_of(settings.maintenance_window, settings.maintenance_timezone)
        _refuse_contradictions(settings, set(given))


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two settings that depend on each other: the check of `given`, and the message when it fails."""

    names: frozenset[str]
    fit: Callable[[Settings], bool]
    sentence: str


#: A plan is observed only at its steps, so a period that is measured between steps must span at least two of them.
_PAIRS = (
    _Pair(
        frozenset({"abandoned_after", "step_interval"}),
        lambda given: given.abandoned_after >= 2 * given.step_interval,
        "The setting abandoned_after is {given.abandoned_after:g} s and step_interval {given.step_interval:g} s: a "
        "plan would count as abandoned between two steps; set abandoned_after to at least twice step_interval.",
    ),
    _Pair(
        frozenset({"stall_after", "step_interval"}),
        lambda given: given.stall_after >= 2 * given.step_interval,
        "The setting stall_after is {given.stall_after:g} s and step_interval {given.step_interval:g} s: a move would "
        "count as stalled between two steps; set stall_after to at least twice step_interval.",
    ),
    _Pair(
        frozenset({"chunk_pause", "window"}),
        lambda given: not given.chunk_pause or given.window == "chunk",
        "The setting chunk_pause is {given.chunk_pause:g} s and window {given.window}, in which chunks do not wait for "
        "each other; set window to chunk, or chunk_pause to 0.",
    ),
    _Pair(
        frozenset({"health_retention", "health_interval"}),
        lambda given: not given.health_retention or given.health_retention * 86_400 >= given.health_interval,
        "The setting health_retention is {given.health_retention:g} days and health_interval {given.health_interval:g} "
        "s: each row would be deleted before the next is written; raise health_retention.",
    ),
)


def _refuse_contradictions(settings: Settings, given: set[str]) -> None:
    for pair in _PAIRS:
        if pair.names <= given and not pair.fit(settings):
            raise SettingError(pair.sentence.format(given=settings))


def _throttled(settings: Settings) -> Settings:
    """Return the settings with the fraction of the network converted to bytes per second."""
    if not settings.throttle_fraction:
        return settings
    if not settings.network_bandwidth:
        raise SettingError(
            "The setting throttle_fraction is a fraction of network_bandwidth, which is not set; set it to the bytes "
            "per second of a broker's network."
        )
    return replace(settings, throttle=max(1, int(settings.throttle_fraction * settings.network_bandwidth)))


def _known(source: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings in `source`, by canonical name.

    Raises SettingError when `source` sets one by two names, to two values.
    """
    names = {knob.name for knob in fields(Settings)}
    known: dict[str, Any] = {}
    for key, value in source.items():
        name = key.removeprefix("kafka.").replace(".", "_")
        if name not in names or value is None:
            continue
        if name in known and known[name] != value:
            raise SettingError(f"The setting {name} is given twice, as {shown(known[name])} and as {shown(value)}.")
        known[name] = value
    return known


def _checked(name: str, value: Any) -> Any:
    knob = next(knob for knob in fields(Settings) if knob.name == name)
    converted = _converted(name, value, type(knob.default))
    low, high, choices = knob.metadata["low"], knob.metadata["high"], knob.metadata["choices"]
    if choices and converted not in choices:
        raise SettingError(f"The setting {name} is {shown(value)}; it takes one of {', '.join(choices)}.")
    if low is not None and converted < low:
        raise SettingError(f"The setting {name} is {shown(value)}; it must be at least {low}.")
    if high is not None and converted > high:
        raise SettingError(f"The setting {name} is {shown(value)}; it must be at most {high}.")
    if name == "heal_failure_interval" and _NEVER < converted < 0:
        raise SettingError(f"The setting {name} is {shown(value)}; it must be at least 0, or -1 for never.")
    return converted


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("not a text")  # noqa: TRY004 - as all readers do
    return value


#: By the type of a setting's default: the reader of its value, and a description of the accepted values.
_READERS: Mapping[type, tuple[Callable[[object], Any], str]] = {
    bool: (switch, "true or false"),
    int: (whole_number, "a whole number"),
    float: (finite_number, "a number"),
    str: (_text, "a text"),
}


def _converted(name: str, value: Any, kind: type) -> Any:
    read, words = _READERS[kind]
    try:
        return read(value)
    except ValueError as error:
        raise SettingError(f"The setting {name} is {shown(value)}; it takes {words}.") from error
