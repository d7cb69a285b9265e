"""Every setting, defined once: its name, default, description and range, and the precedence of its sources.

The connection form, the `[kafka_steward]` section and the forms of the DAGs are made from it.

A DAG's parameter overrides the connection's extra, which overrides the `[kafka_steward]` section, which overrides the
default here. The settings of the watch are those of the connection: no DAG overrides them. The connection's extra also
accepts the KIPs' dotted names (`kafka.heal.chunk.size`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

from kafka_steward.errors import SettingError
from kafka_steward.maintenance import PATTERN, parse_window
from kafka_steward.service_topics import SERVICE_TOPICS, parse_service_topics
from kafka_steward.value_parsing import Option, parse_boolean, parse_finite_number, parse_whole_number, shorten_value

__all__ = ["SETTINGS", "Setting", "Settings"]

#: Seconds: ten years; days: a hundred years. Their milliseconds still fit every field that stores a time.
_LONGEST_S, _LONGEST_DAYS = 315_360_000, 36_500
#: Kafka's types of rates and of counts.
_LONG, _INT = 2**63 - 1, 2**31 - 1
#: KIP-46: this heal_failure_interval disables healing.
_NEVER = -1
_CAPACITY = r"\s*\d+\s*=\s*\d+(\.\d+)?\s*"
_LARGEST_CAPACITY = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting(Option):
    """A setting. With `per_run`, a DAG and its run can override it; the watch reads the others of the connection."""

    per_run: bool = True


def _setting(default: Any, description: str, **facts: Any) -> Any:
    return field(default=default, metadata={"setting": Setting(default=default, description=description, **facts)})


_watch_setting = partial(_setting, per_run=False)
#: The ranges of settings that have the same one.
_SECONDS, _PERIOD, _INTERVAL = ({"low": low, "high": _LONGEST_S} for low in (0, 1, 0.1))
_DAYS = {"low": 0, "high": _LONGEST_DAYS}
_COUNT, _RATE, _FRACTION = {"low": 1, "high": _INT}, {"low": 0, "high": _LONG}, {"low": 0, "high": 1}


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one cluster. Construct through `Settings.of`, which validates."""

    heal_failure_interval: float = _watch_setting(
        1800.0,
        "Seconds a broker must be down to count as failed. -1: no failure is recorded, and nothing is healed.",
        low=-1,
        high=_LONGEST_S,
    )
    heal_chunk_size: int = _setting(
        50,
        "Partitions in one chunk of a plan. With window chunk, only these move at once; sliding ignores it.",
        low=1,
        high=5000,
    )
    heal_fast_detection: bool = _watch_setting(
        False, "Whether a broker that went down without an announced restart is healed at once."
    )
    heal_failed_disks: bool = _setting(False, "Whether replicas in failed log directories are healed too.")
    heal_retry_interval: float = _watch_setting(
        600.0, "Seconds after which a failure that no plan handles is announced again.", **_PERIOD
    )
    max_failed_brokers: int = _setting(
        10, "More failed brokers than this is an outage: reported, not healed.", **_COUNT
    )
    max_failed_fraction: float = _setting(
        0.4, "More than this fraction of the brokers failed is an outage, too.", **_FRACTION
    )
    fail_incomplete_heal: bool = _setting(
        True, "Whether the run of a heal fails, after people are notified, if it leaves partitions of its own."
    )
    stuck_after: float = _setting(
        86_400.0,
        (
            "Seconds after which a partition that is out of sync on live brokers, or a reassignment of somebody else, "
            "keeps no plan from starting, and a partition under min ISR, or such a reassignment, no move."
        ),
        **_SECONDS,
    )
    capacity: str = _setting(
        "",
        "Capacities of brokers that are to hold more or less than others, such as 4=2, 5=0.5; any other broker has 1.",
        pattern=rf"^({_CAPACITY}(,{_CAPACITY})*)?$",
    )
    service_topics: str = _watch_setting(
        "; ".join(SERVICE_TOPICS),
        (
            "Regular expressions, with semicolons between them, of topics that take no part in an even plan, like "
            "Kafka's own: canaries, for example."
        ),
    )
    throttle: int = _setting(
        50_000_000, "Bytes per second that reassignment may bring into a broker. 0: no throttle.", **_RATE
    )
    network_bandwidth: int = _setting(
        0, "Bytes per second of a broker's network, for throttle_fraction and balance=load. 0: not set.", **_RATE
    )
    throttle_fraction: float = _setting(
        0.0, "The throttle as a fraction of network_bandwidth, such as 0.1. 0: use throttle.", **_FRACTION
    )
    throttle_leaders: bool = _setting(False, "Whether the leaders are throttled too, which slows ordinary catch-up.")
    min_free: float = _setting(0.15, "Fraction of each log directory's volume that must stay free.", **_FRACTION)
    max_in_per_broker: int = _setting(
        1000, "Replicas that one broker may be receiving at once, however small.", **_COUNT
    )
    max_out_per_broker: int = _setting(
        1000, "Replicas that one broker may be sending at once, however small.", **_COUNT
    )
    max_in_flight: int = _setting(3000, "Partitions in flight at once, in the whole cluster, however small.", **_COUNT)
    one_replica_at_a_time: bool = _setting(
        False, "Whether a move that adds several replicas to a partition adds them one at a time."
    )
    window: str = _setting(
        "sliding",
        "When the next move starts. sliding: when a move ends. chunk: when all moves of the chunk have ended.",
        choices=("sliding", "chunk"),
    )
    chunk_pause: float = _setting(0.0, "Seconds to wait between chunks, with window chunk.", **_SECONDS)
    maintenance_window: str = _setting(
        "",
        "When plans that can wait submit moves, such as mon-fri 22:00-06:00; several with ; between. Empty: always.",
        pattern=PATTERN,
    )
    maintenance_timezone: str = _setting("UTC", "The time zone of the maintenance window, such as Europe/Berlin.")
    stall_after: float = _setting(600.0, "Seconds without progress after which a move counts as stalled.", **_PERIOD)
    when_stalled: str = _setting(
        "fail",
        "How a stalled move is handled. wait: wait for it. cancel: cancel this move only. fail: fail the run.",
        choices=("wait", "cancel", "fail"),
    )
    abandoned_after: float = _watch_setting(
        600.0,
        (
            "Seconds without a step after which a plan is idle; its throttles are released once none of its "
            "moves is in flight."
        ),
        **_PERIOD,
    )
    max_attempts: int = _setting(
        100, "Consecutive failed steps after which a plan is stuck and needs operator action.", **_COUNT
    )
    step_interval: float = _setting(2.0, "Seconds between two steps of a plan.", **_INTERVAL)
    watch_interval: float = _watch_setting(
        2.0, "Seconds between two polls of the watch: at most a quarter of Kafka's session timeout.", **_INTERVAL
    )
    health_interval: float = _watch_setting(
        60.0, "Seconds between two health checks of the watch. 0: none.", **_SECONDS
    )
    imbalance_above: float = _watch_setting(
        1.5,
        "The event broker-imbalanced is for brokers that lead more than this many times the mean of the bytes that "
        "producers bring. 0: none.",
        **_SECONDS,
    )
    disk_above: float = _watch_setting(
        0.85, "The event disk-full is for brokers with a volume that is used above this fraction. 0: none.", **_FRACTION
    )
    health_retention: float = _watch_setting(
        7.0, "Days for which the watch's health measurements are kept, for plots.", **_DAYS
    )
    submission: str = _watch_setting(
        "admin",
        "How moves are submitted: admin, or for old brokers on ZooKeeper legacy, by /admin/reassign_partitions.",
        choices=("admin", "legacy"),
    )
    foreign_while_disabled: str = _watch_setting(
        "report",
        "How an external reassignment is handled while reassignments are disabled: report or cancel.",
        choices=("report", "cancel"),
    )
    enable_under_replicated_topic_creation: bool = _watch_setting(
        False, "Whether a topic that Kafka cannot place is created on fewer live brokers than replicas (KIP-409)."
    )
    plan_retention: float = _watch_setting(30.0, "Days for which the rows of a finished plan are kept.", **_DAYS)

    @classmethod
    def of(cls, *sources: Mapping[str, Any]) -> Settings:
        """Return settings from the given sources, the first of which has precedence. Other names are ignored.

        Raises SettingError, naming the setting, when a value is of the wrong type or out of range, when two settings
        contradict each other, and for a maintenance window that never opens.
        """
        merged: dict[str, Any] = {}
        for source in map(_canonical_settings, reversed(sources)):
            if "throttle" in source:
                merged.pop("throttle_fraction", None)  # the source with higher precedence wins
            merged.update(source)
        return _with_throttle_fraction(cls._checked(merged, set(SETTINGS)))

    @classmethod
    def refuse_wrong(cls, source: Mapping[str, Any]) -> None:
        """Raise SettingError for a fault in `source` that no other source can correct.

        A setting that depends on another one is checked only if `source` has both.
        """
        given = _canonical_settings(source)
        cls._checked(given, set(given))

    @classmethod
    def _checked(cls, given: Mapping[str, Any], known: set[str]) -> Settings:
        """Return the settings with the values `given`; `known` are those that are final, so that pairs must fit."""
        settings = cls(**{name: _validate_setting(name, value) for name, value in given.items()})
        parse_window(settings.maintenance_window, settings.maintenance_timezone)
        parse_capacities(settings.capacity)
        parse_service_topics(settings.service_topics)
        for pair in _PAIRS:
            if pair.names <= known and not pair.fit(settings):
                raise SettingError(pair.sentence.format(given=settings))
        return settings

    @property
    def service_topic_patterns(self) -> tuple[str, ...]:
        """The regular expressions of `service_topics`."""
        return parse_service_topics(self.service_topics)

    def planner_options(self, *, evens_out: bool = False) -> dict[str, Any]:
        """Return the planner's options that the settings give for every operation, or for one that evens out."""
        caps = {"max_in_per_broker": self.max_in_per_broker, "max_out_per_broker": self.max_out_per_broker}
        topics = list(self.service_topic_patterns)
        options = {"chunk_size": self.heal_chunk_size, **caps, "throttle": self.throttle, "service_topics": topics}
        return options | ({"network_bandwidth": self.network_bandwidth} if evens_out else {})


#: Every setting by its name, in the order of the forms.
SETTINGS: Mapping[str, Setting] = {field.name: field.metadata["setting"] for field in fields(Settings)}


@dataclass(frozen=True, slots=True)
class _SettingPair:
    """Two settings that depend on each other: the check of `given`, and the message when it fails."""

    names: frozenset[str]
    fit: Callable[[Settings], bool]
    sentence: str


#: A plan is observed only at its steps, so a period that is measured between steps must span at least two of them.
_PAIRS = (
    _SettingPair(
        frozenset({"abandoned_after", "step_interval"}),
        lambda given: given.abandoned_after >= 2 * given.step_interval,
        "The setting abandoned_after is {given.abandoned_after:g} s and step_interval {given.step_interval:g} s: a "
        "plan would count as idle between two steps; set abandoned_after to at least twice step_interval.",
    ),
    _SettingPair(
        frozenset({"stall_after", "step_interval"}),
        lambda given: given.stall_after >= 2 * given.step_interval,
        "The setting stall_after is {given.stall_after:g} s and step_interval {given.step_interval:g} s: a move would "
        "count as stalled between two steps; set stall_after to at least twice step_interval.",
    ),
    _SettingPair(
        frozenset({"chunk_pause", "window"}),
        lambda given: not given.chunk_pause or given.window == "chunk",
        "The setting chunk_pause is {given.chunk_pause:g} s and window {given.window}, in which chunks do not wait for "
        "each other; set window to chunk, or chunk_pause to 0.",
    ),
    _SettingPair(
        frozenset({"health_retention", "health_interval"}),
        lambda given: not given.health_retention or given.health_retention * 86_400 >= given.health_interval,
        "The setting health_retention is {given.health_retention:g} days and health_interval {given.health_interval:g} "
        "s: each row would be deleted before the next is written; raise health_retention.",
    ),
)


def _with_throttle_fraction(settings: Settings) -> Settings:
    """Return the settings with the fraction of the network converted to bytes per second."""
    if not settings.throttle_fraction:
        return settings
    if not settings.network_bandwidth:
        raise SettingError(
            "The setting throttle_fraction is a fraction of network_bandwidth, which is not set; set it to the bytes "
            "per second of a broker's network."
        )
    return replace(settings, throttle=max(1, int(settings.throttle_fraction * settings.network_bandwidth)))


def _canonical_settings(source: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings in `source`, by canonical name.

    Raises SettingError when `source` sets one by two names, to two values.
    """
    known: dict[str, Any] = {}
    for key, value in source.items():
        name = key.removeprefix("kafka.").replace(".", "_")
        if name not in SETTINGS or value is None:
            continue
        if name in _AS_TEXT:
            value = _AS_TEXT[name](value)  # noqa: PLW2901 - the connection may have a map or a list
        if name in known and known[name] != value:
            raise SettingError(
                f"The setting {name} is given twice, as {shorten_value(known[name])} and as {shorten_value(value)}."
            )
        known[name] = value
    return known


def _require_text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("not a text")  # noqa: TRY004 - as all readers do
    return value


#: By the type of a setting's default: the reader of its value, and a description of the accepted values.
_READERS: Mapping[type, tuple[Callable[[object], Any], str]] = {
    bool: (parse_boolean, "true or false"),
    int: (parse_whole_number, "a whole number"),
    float: (parse_finite_number, "a number"),
    str: (_require_text, "a text"),
}


def _validate_setting(name: str, value: Any) -> Any:
    setting = SETTINGS[name]
    read, words = _READERS[setting.kind]
    try:
        converted = read(value)
    except ValueError as error:
        raise SettingError(f"The setting {name} is {shorten_value(value)}; it takes {words}.") from error
    refusal = setting.explain_refusal(converted)
    if name == "heal_failure_interval" and _NEVER < converted < 0:
        refusal = "it must be at least 0, or -1 for never"
    if refusal:
        raise SettingError(f"The setting {name} is {shorten_value(value)}; {refusal}.")
    return converted


def parse_capacities(text: str) -> dict[int, float]:
    """Return the capacity of each broker that `capacity` names, as in `4=2, 5=0.5`. Raises SettingError."""
    capacities: dict[int, float] = {}
    for part in text.split(",") if text.strip() else ():
        broker, _, capacity = (word.strip() for word in part.partition("="))
        if not broker.isdecimal() or not capacity:
            raise SettingError(f"The setting capacity has {shorten_value(part.strip())}; it takes 4=2, 5=0.5.")
        if int(broker) in capacities:
            raise SettingError(f"The setting capacity names broker {broker} twice; keep one.")
        try:
            value = parse_finite_number(capacity)
        except ValueError:
            value = 0.0
        if not 0.001 <= value <= _LARGEST_CAPACITY:
            raise SettingError(
                f"The setting capacity gives broker {broker} {shorten_value(capacity)}; it takes numbers from 0.001 to "
                f"{_LARGEST_CAPACITY}, such as 2 for a broker that is to hold twice as much as one that is not named."
            )
        capacities[int(broker)] = value
    return capacities


def _capacities_as_text(value: Any) -> Any:
    """Return a map of capacities by broker, as a connection may have it, in the setting's words; else the value."""
    if not isinstance(value, Mapping):
        return value
    return ", ".join(f"{broker}={capacity}" for broker, capacity in value.items())


def _service_topics_as_text(value: Any) -> Any:
    """Return a list of regular expressions, as a connection may have it, in the setting's words; else the value."""
    is_list = isinstance(value, list | tuple) and all(isinstance(pattern, str) for pattern in value)
    return "; ".join(value) if is_list else value


#: Settings whose value may be JSON in a connection's extra.
_AS_TEXT: Mapping[str, Callable[[Any], Any]] = {
    "capacity": _capacities_as_text,
    "service_topics": _service_topics_as_text,
}
