"""Every knob, once: its name, unit, default and range, and the order of the sources that may set it.

A DAG's parameter wins over the connection's extra, which wins over the `[kafka_steward]` section, which wins over the
default here. The connection's extra also takes the KIPs' dotted names (`kafka.heal.chunk.size`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from kafka_steward.errors import SettingError
from kafka_steward.maintenance import PATTERN, window_of

__all__ = ["Settings"]


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
    heal_failure_interval: float = _knob(1800.0, low=-1)
    #: Partitions in one chunk (KIP-46's kafka.heal.chunk.size).
    heal_chunk_size: int = _knob(50, low=1, high=5000)
    #: Whether a broker that vanished unannounced is due at once (KIP-46, fast detection).
    heal_fast_detection: bool = _knob(False)
    #: Seconds after which an unhandled failure is announced again.
    heal_retry_interval: float = _knob(600.0, low=1)
    #: More failed brokers than this is an outage: reported, not healed.
    max_failed_brokers: int = _knob(10, low=1)
    #: The same as a fraction of the brokers that there were.
    max_failed_fraction: float = _knob(0.4, low=0, high=1)
    #: Bytes per second that reassignment may bring into one broker; 0: no throttle.
    throttle: int = _knob(50_000_000, low=0)
    #: Bytes per second of a broker's network, for `throttle_fraction`; 0: not stated.
    network_bandwidth: int = _knob(0, low=0)
    #: The throttle as a fraction of `network_bandwidth`; 0: as `throttle` says. What is set nearer to a run wins.
    throttle_fraction: float = _knob(0.0, low=0, high=1)
    #: Whether the leaders' side is throttled too, as the peers do; it slows ordinary catch-up.
    throttle_leaders: bool = _knob(False)
    #: Fraction of a broker's disk that must stay free.
    min_free: float = _knob(0.15, low=0, high=1)
    #: Replicas that one broker may be receiving at once.
    max_in_per_broker: int = _knob(5, low=1)
    #: Replicas that one broker may be sending at once.
    max_out_per_broker: int = _knob(5, low=1)
    #: Partitions in flight at once, in the whole cluster.
    max_in_flight: int = _knob(100, low=1)
    #: Whether a move that adds several replicas adds one after the other (KIP-236's staggering).
    one_replica_at_a_time: bool = _knob(False)
    #: Whether the next move starts when one ends ("sliding"), or when its whole chunk has ended ("chunk", KIP-46).
    window: str = _knob("sliding", choices=("sliding", "chunk"))
    #: Seconds to wait between chunks.
    chunk_pause: float = _knob(0.0, low=0)
    #: When plans that can wait may begin moves, such as "mon-fri 22:00-06:00"; empty: always.
    maintenance_window: str = _knob("", pattern=PATTERN)
    #: The time zone of that window.
    maintenance_timezone: str = _knob("UTC")
    #: Seconds without progress after which a move counts as stalled.
    stall_after: float = _knob(600.0, low=1)
    #: What becomes of a stalled move: it is waited for, it alone is cancelled, or the run fails and a retry goes on.
    when_stalled: str = _knob("fail", choices=("wait", "cancel", "fail"))
    #: Seconds after which a plan that nobody steps is paused, and its throttles given back once nothing of it moves.
    abandoned_after: float = _knob(600.0, low=1)
    #: Steps that failed in a row after which a plan is stuck and waits for a person.
    max_attempts: int = _knob(100, low=1)
    #: Seconds between two steps of a plan.
    step_interval: float = _knob(2.0, low=0.1)
    #: Seconds between two looks of the watch.
    watch_interval: float = _knob(2.0, low=0.1)
    #: Seconds between two looks of the watch at the cluster's health (KIP-352); 0: none.
    health_interval: float = _knob(60.0, low=0)
    #: Days that the watch keeps what it saw of the cluster's health, for plots.
    health_retention: float = _knob(7.0, low=0)
    #: How reassignments are submitted: by the Admin API, or by /admin/reassign_partitions ("legacy", ZooKeeper only).
    submission: str = _knob("admin", choices=("admin", "legacy"))
    #: What becomes of a reassignment that others start while reassignments are switched off (KIP-236).
    foreign_while_disabled: str = _knob("report", choices=("report", "cancel"))
    #: Whether topics are created while fewer brokers than replicas are live (KIP-409); what is missing is owed.
    enable_under_replicated_topic_creation: bool = _knob(False)
    #: Days that a finished plan's rows are kept.
    plan_retention: float = _knob(30.0, low=0)

    @classmethod
    def of(cls, *sources: Mapping[str, Any]) -> Settings:
        """Settings from the given sources, the first of which wins. Names of other things are left alone.

        Raises SettingError, naming the setting, when a value is of the wrong type or out of range, and for a
        maintenance window that never opens.
        """
        merged: dict[str, Any] = {}
        for source in map(_known, reversed(sources)):
            if "throttle" in source:
                merged.pop("throttle_fraction", None)  # the one that is nearer to the run wins
            merged.update(source)
        settings = cls(**{name: _checked(name, value) for name, value in merged.items()})
        window_of(settings.maintenance_window, settings.maintenance_timezone)
        return _throttled(settings)


def _throttled(settings: Settings) -> Settings:
    """With the fraction of the network as bytes per second."""
    if not settings.throttle_fraction:
        return settings
    if not settings.network_bandwidth:
        raise SettingError(
            "The setting throttle_fraction is a fraction of network_bandwidth, which is not set; set it to the bytes "
            "per second of a broker's network."
        )
    return replace(settings, throttle=max(1, int(settings.throttle_fraction * settings.network_bandwidth)))


def _known(source: Mapping[str, Any]) -> dict[str, Any]:
    names = {knob.name for knob in fields(Settings)}
    undotted = {key.removeprefix("kafka.").replace(".", "_"): value for key, value in source.items()}
    return {name: value for name, value in undotted.items() if name in names and value is not None}


def _checked(name: str, value: Any) -> Any:
    knob = next(knob for knob in fields(Settings) if knob.name == name)
    converted = _converted(name, value, type(knob.default))
    low, high, choices = knob.metadata["low"], knob.metadata["high"], knob.metadata["choices"]
    if choices and converted not in choices:
        raise SettingError(f"The setting {name} is {value!r}; it takes one of {', '.join(choices)}.")
    if low is not None and converted < low:
        raise SettingError(f"The setting {name} is {value!r}; it must be at least {low}.")
    if high is not None and converted > high:
        raise SettingError(f"The setting {name} is {value!r}; it must be at most {high}.")
    return converted


def _converted(name: str, value: Any, kind: type) -> Any:
    if kind is bool:
        return _boolean(name, value)
    try:
        return kind(value)
    except (TypeError, ValueError) as error:
        raise SettingError(f"The setting {name} is {value!r}; it takes {kind.__name__} values.") from error


def _boolean(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    words = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
    if str(value).lower() not in words:
        raise SettingError(f"The setting {name} is {value!r}; it takes true or false.")
    return words[str(value).lower()]
