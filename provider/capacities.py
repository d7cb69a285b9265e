"""Capacities of brokers, as a setting has them: `4=2, 5=0.5`. Light, because the forms of the DAGs are made from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka_steward.errors import SettingError
from kafka_steward.value_parsing import parse_finite_number, shorten_value

_PAIR = r"\s*\d+\s*=\s*\d+(\.\d+)?\s*"
#: What forms accept; `parse_capacities` says what is wrong.
PATTERN = rf"^({_PAIR}(,{_PAIR})*)?$"
_LARGEST = 1_000_000


def parse_capacities(text: str) -> dict[int, float]:
    """Return the capacity of each named broker. Raises SettingError that names the wrong part."""
    found: dict[int, float] = {}
    for part in text.split(",") if text.strip() else ():
        broker, _, capacity = (word.strip() for word in part.partition("="))
        if not broker.isdecimal() or not capacity:
            raise SettingError(f"The setting capacity has {shorten_value(part.strip())}; it takes 4=2, 5=0.5.")
        if int(broker) in found:
            raise SettingError(f"The setting capacity names broker {broker} twice; keep one.")
        found[int(broker)] = _parse_one(broker, capacity)
    return found


def _parse_one(broker: str, text: str) -> float:
    try:
        value = parse_finite_number(text)
    except ValueError:
        value = 0.0
    if not 0.001 <= value <= _LARGEST:
        raise SettingError(
            f"The setting capacity gives broker {broker} {shorten_value(text)}; it takes numbers from 0.001 "
            f"to {_LARGEST}, such as 2 for a broker that is to hold twice as much as one that is not named."
        )
    return value


def capacities_as_text(value: Any) -> Any:
    """Return a map of capacities by broker, as a connection may have it, in the setting's words; else the value."""
    return (
        ", ".join(f"{broker}={capacity}" for broker, capacity in value.items()) if isinstance(value, Mapping) else value
    )
