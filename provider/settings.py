"""Every setting, defined once: its name, default, description and range, and the precedence of its sources.

The connection form, the `[kafka_steward]` section and the forms of the DAGs are made from it.

A DAG's parameter overrides the connection's extra, which overrides the `[kafka_steward]` section, which overrides the
default here. The settings of the watch are those of the connection: no DAG overrides them. The connection's extra also
accepts the KIPs' dotted names (`kafka.heal.chunk.size`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from kafka_steward.capacities import PATTERN as CAPACITY_PATTERN
from kafka_steward.capacities import capacities_as_text, parse_capacities
from kafka_steward.errors import SettingError
from kafka_steward.maintenance import PATTERN, parse_window
from kafka_steward.option import Option
from kafka_steward.service_topics import SERVICE_TOPICS, parse_service_topics, service_topics_as_text
from kafka_steward.value_parsing import parse_boolean, parse_finite_number, parse_whole_number, shorten_value

__all__ = ["SETTINGS", "Setting", "Settings"]

#: Seconds: ten years; days: a hundred years. Their milliseconds still fit every field that stores a time.
_LONGEST_S, _LONGEST_DAYS = 315_360_000, 36_500
#: Kafka's types of rates and of counts.
_LONG, _INT = 2**63 - 1, 2**31 - 1
#: KIP-46: this heal_failure_interval disables healing.
_NEVER = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting(Option):
    """A setting. With `per_run`, a DAG and its run can override it; the watch reads the others of the connection."""

    per_run: bool = True


def _setting_field(default: Any, description: str, **facts: Any) -> Any:
    return field(default=default, metadata={"setting": Setting(default=default, description=description, **facts)})


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one cluster. Construct through `Settings.of`, which validates."""

    heal_failure_interval: float = _setting_field(
        1800.0,
        "Seconds a broker must be down to count as failed. -1: no failure is recorded, and nothing is healed.",
        low=-1,
        high=_LONGEST_S,
        per_run=False,
    )
    heal_chunk_size: int = _setting_field(
        50,
        "Partitions in one chunk of a plan. With window chunk, only these move at once; sliding ignores it.",
        low=1,
        high=5000,
    )
    heal_fast_detection: bool = _setting_field(
        False, "Whether a broker that went down without an announced restart is healed at once.", per_run=False
    )
    heal_failed_disks: bool = _setting_field(False, "Whether replicas in failed log directories are healed too.")
    heal_retry_interval: float = _setting_field(
        600.0,
        "Seconds after which a failure that no plan handles is announced again.",
        low=1,
        high=_LONGEST_S,
        per_run=False,
    )
    max_failed_brokers: int = _setting_field(
        10, "More failed brokers than this is an outage: reported, not healed.", low=1, high=_INT
    )
    max_failed_fraction: float = _setting_field(
        0.4, "More than this fraction of the brokers failed is an outage, too.", low=0, high=1
    )
    fail_incomplete_heal: bool = _setting_field(
        True, "Whether the run of a heal fails, after people are notified, if it leaves partitions of its own."
    )
    stuck_after: float = _setting_field(
        86_400.0,
        (
            "Seconds after which a partition that is out of sync on live brokers, or a reassignment of somebody else, "
            "keeps no plan from starting, and a partition under min ISR, or such a reassignment, no move."
        ),
        low=0,
        high=_LONGEST_S,
    )
    capacity: str = _setting_field(
        "",
        "Capacities of brokers that are to hold more or less than others, such as 4=2, 5=0.5; any other broker has 1.",
        pattern=CAPACITY_PATTERN,
    )
    service_topics: str = _setting_field(
        "; ".join(SERVICE_TOPICS),
        (
            "Regular expressions, with semicolons between them, of topics that take no part in an even plan, like "
            "Kafka's own: canaries, for example."
        ),
        per_run=False,
    )
    throttle: int = _setting_field(
        50_000_000, "Bytes per second that reassignment may bring into a broker. 0: no throttle.", low=0, high=_LONG
    )
    network_bandwidth: int = _setting_field(
        0, "Bytes per second of a broker's network, for throttle_fraction. 0: not set.", low=0, high=_LONG
    )
    throttle_fraction: float = _setting_field(
        0.0, "The throttle as a fraction of network_bandwidth, such as 0.1. 0: use throttle.", low=0, high=1
    )
    throttle_leaders: bool = _setting_field(
        False, "Whether the leaders are throttled too, which slows ordinary catch-up."
    )
    min_free: float = _setting_field(
        0.15, "Fraction of each log directory's volume that must stay free.", low=0, high=1
    )
    max_in_per_broker: int = _setting_field(
        1000, "Replicas that one broker may be receiving at once, however small.", low=1, high=_INT
    )
    max_out_per_broker: int = _setting_field(
        1000, "Replicas that one broker may be sending at once, however small.", low=1, high=_INT
    )
    max_in_flight: int = _setting_field(
        3000, "Partitions in flight at once, in the whole cluster, however small.", low=1, high=_INT
    )
    one_replica_at_a_time: bool = _setting_field(
        False, "Whether a move that adds several replicas to a partition adds them one at a time."
    )
    window: str = _setting_field(
        "sliding",
        "When the next move starts. sliding: when a move ends. chunk: when all moves of the chunk have ended.",
        choices=("sliding", "chunk"),
    )
    chunk_pause: float = _setting_field(
        0.0, "Seconds to wait between chunks, with window chunk.", low=0, high=_LONGEST_S
    )
    maintenance_window: str = _setting_field(
        "",
        "When plans that can wait submit moves, such as mon-fri 22:00-06:00; several with ; between. Empty: always.",
        pattern=PATTERN,
    )
    maintenance_timezone: str = _setting_field("UTC", "The time zone of the maintenance window, such as Europe/Berlin.")
    stall_after: float = _setting_field(
        600.0, "Seconds without progress after which a move counts as stalled.", low=1, high=_LONGEST_S
    )
    when_stalled: str = _setting_field(
        "fail",
        "How a stalled move is handled. wait: wait for it. cancel: cancel this move only. fail: fail the run.",
        choices=("wait", "cancel", "fail"),
    )
    abandoned_after: float = _setting_field(
        600.0,
        (
            "Seconds without a step after which a plan is idle; its throttles are released once none of its "
            "moves is in flight."
        ),
        low=1,
        high=_LONGEST_S,
        per_run=False,
    )
    max_attempts: int = _setting_field(
        100, "Consecutive failed steps after which a plan is stuck and needs operator action.", low=1, high=_INT
    )
    step_interval: float = _setting_field(2.0, "Seconds between two steps of a plan.", low=0.1, high=_LONGEST_S)
    watch_interval: float = _setting_field(
        2.0,
        "Seconds between two polls of the watch: at most a quarter of Kafka's session timeout.",
        low=0.1,
        high=_LONGEST_S,
        per_run=False,
    )
    health_interval: float = _setting_field(
        60.0,
        "Seconds between two health checks of the watch. 0: none.",
        low=0,
        high=_LONGEST_S,
        per_run=False,
    )
    health_retention: float = _setting_field(
        7.0,
        "Days for which the watch's health measurements are kept, for plots.",
        low=0,
        high=_LONGEST_DAYS,
        per_run=False,
    )
    submission: str = _setting_field(
        "admin",
        "How moves are submitted: admin, or for old brokers on ZooKeeper legacy, by /admin/reassign_partitions.",
        choices=("admin", "legacy"),
        per_run=False,
    )
    foreign_while_disabled: str = _setting_field(
        "report",
        "How an external reassignment is handled while reassignments are disabled: report or cancel.",
        choices=("report", "cancel"),
        per_run=False,
    )
    enable_under_replicated_topic_creation: bool = _setting_field(
        False,
        "Whether a topic that Kafka cannot place is created on fewer live brokers than replicas (KIP-409).",
        per_run=False,
    )
    plan_retention: float = _setting_field(
        30.0, "Days for which the rows of a finished plan are kept.", low=0, high=_LONGEST_DAYS, per_run=False
    )

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
        settings = cls(**{name: _validate_setting(name, value) for name, value in merged.items()})
        parse_window(settings.maintenance_window, settings.maintenance_timezone)
        parse_capacities(settings.capacity)
        parse_service_topics(settings.service_topics)
        _refuse_contradictions(settings, set(SETTINGS))
        return _with_throttle_fraction(settings)

    @classmethod
    def refuse_wrong(cls, source: Mapping[str, Any]) -> None:
        """Raise SettingError for a fault in `source` that no other source can correct.

        A setting that depends on another one is checked only if `source` has both.
        """
        given = _canonical_settings(source)
        settings = cls(**{name: _validate_setting(name, value) for name, value in given.items()})
        parse_window(settings.maintenance_window, settings.maintenance_timezone)
        parse_capacities(settings.capacity)
        parse_service_topics(settings.service_topics)
        _refuse_contradictions(settings, set(given))

    @property
    def service_topic_patterns(self) -> tuple[str, ...]:
        """The regular expressions of `service_topics`."""
        return parse_service_topics(self.service_topics)

    def planner_options(self, *, balances: bool = False) -> dict[str, Any]:
        """Return the planner's options that the settings give for every operation; `balances` for one that balances."""
        caps = {"max_in_per_broker": self.max_in_per_broker, "max_out_per_broker": self.max_out_per_broker}
        topics = {"service_topics": list(self.service_topic_patterns)} if balances else {}
        return {"chunk_size": self.heal_chunk_size, **caps, "throttle": self.throttle, **topics}


#: Every setting by its name, in the order of the forms.
SETTINGS: Mapping[str, Setting] = {each.name: each.metadata["setting"] for each in fields(Settings)}


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


def _refuse_contradictions(settings: Settings, given: set[str]) -> None:
    for pair in _PAIRS:
        if pair.names <= given and not pair.fit(settings):
            raise SettingError(pair.sentence.format(given=settings))


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


#: Settings whose value may be JSON in a connection's extra.
_AS_TEXT: Mapping[str, Callable[[Any], Any]] = {
    "capacity": capacities_as_text,
    "service_topics": service_topics_as_text,
}


def _validate_setting(name: str, value: Any) -> Any:
    setting = SETTINGS[name]
    converted = _convert_setting(name, value, setting.kind)
    refusal = setting.explain_refusal(converted)
    if name == "heal_failure_interval" and _NEVER < converted < 0:
        refusal = "it must be at least 0, or -1 for never"
    if refusal:
        raise SettingError(f"The setting {name} is {shorten_value(value)}; {refusal}.")
    return converted


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


def _convert_setting(name: str, value: Any, kind: type) -> Any:
    read, words = _READERS[kind]
    try:
        return read(value)
    except ValueError as error:
        raise SettingError(f"The setting {name} is {shorten_value(value)}; it takes {words}.") from error
