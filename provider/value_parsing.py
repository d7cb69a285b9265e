"""Values that people give: their description, and readers of them as JSON, a form, a file or Python has them."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from kafka_steward.errors import SettingError

_JSON_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}
_SWITCHES = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
#: The most digits of a whole number: the exponent is checked before the number is expanded.
_MOST_DIGITS = 40
_LONGEST = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A setting of a cluster, or an option of the planner: its default, and the values that it takes.

    Forms, the command line, the section of `airflow.cfg` and the reference are made of it. `pattern` is for forms.
    """

    default: Any
    description: str = ""
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    pattern: str | None = None

    @property
    def kind(self) -> type:
        """The type of its values in Python."""
        return type(self.default)

    @property
    def json_type(self) -> str:
        """The type of its values in JSON."""
        return _JSON_TYPES[self.kind]

    @property
    def json_limits(self) -> dict[str, Any]:
        """The limits of its values, in the words of JSON Schema."""
        limits = {"minimum": self.low, "maximum": self.high, "pattern": self.pattern}
        return {name: limit for name, limit in limits.items() if limit is not None}

    def explain_refusal(self, value: Any) -> str:
        """Return what is required of a value of the right type that is not accepted; empty if it is accepted."""
        if self.choices and value not in self.choices:
            return f"it takes one of {', '.join(self.choices)}"
        if self.low is not None and value < self.low:
            return f"it must be at least {self.low}"
        if self.high is not None and value > self.high:
            return f"it must be at most {self.high}"
        return ""


def parse_whole_number(value: object) -> int:
    """Return the whole number that `value` is or spells: 50, 50.0, "50", 5e7, "5e7".

    Raises ValueError for everything else: true and false, a fraction, NaN, infinity, more than 40 digits.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("not a whole number")  # noqa: TRY004 - one type of error for every input
    try:
        number = Decimal(value)
    except InvalidOperation as error:
        raise ValueError("not a number") from error
    if not number.is_finite() or number.adjusted() > _MOST_DIGITS or number != int(number):
        raise ValueError("not a whole number")
    return int(number)


def parse_finite_number(value: object) -> float:
    """Return the number that `value` is or spells. Raises ValueError for true, false, NaN and infinity."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("not a number")  # noqa: TRY004 - as above
    try:
        number = float(value)
    except OverflowError as error:
        raise ValueError("not a finite number") from error
    if not math.isfinite(number):
        raise ValueError("not a finite number")
    return number


def parse_boolean(value: object) -> bool:
    """Return `value` as a boolean: true or false, or one of the words of configuration files. Raises ValueError."""
    word = str(value).lower() if isinstance(value, bool | int | str) else ""
    if word not in _SWITCHES:
        raise ValueError("neither true nor false")
    return _SWITCHES[word]


def parse_broker_ids(value: Any) -> list[int]:
    """Return the broker ids that a list or a text such as "3, 4" names; empty for None and an empty one.

    Raises SettingError for everything else.
    """
    listed = value.replace(",", " ").split() if isinstance(value, str) else value
    try:
        brokers = [parse_whole_number(broker) for broker in listed or ()]
    except (TypeError, ValueError):
        brokers = [-1]
    if min(brokers, default=0) < 0:
        raise SettingError(f"{shorten_value(value)} names no brokers; give their ids, such as 3, 4.")
    return list(dict.fromkeys(brokers))


def parse_extra(conn_id: str, text: str | None) -> dict[str, Any]:
    """Return the extra of an Airflow connection. Raises SettingError if it is no JSON object.

    `Connection.extra_dejson` returns {} for unreadable JSON: security settings would be dropped silently.
    """
    try:
        extra = json.loads(text or "{}")
    except ValueError as error:
        raise SettingError(f"The extra of the connection {conn_id} is not JSON; correct or empty it.") from error
    if not isinstance(extra, dict):
        raise SettingError(f"The extra of the connection {conn_id} is not a JSON object; correct or empty it.")
    return extra


def require_choice(name: str, value: object, *choices: str) -> str:
    """Return `value`, which is one of `choices`. Raises SettingError for everything else; `name` opens its message."""
    if value in choices:
        return str(value)
    *first, last = choices
    raise SettingError(f"{name} is {value!r}; it takes {', '.join(first)} or {last}.")


def shorten_value(value: object) -> str:
    """Return `value` as text for an error message, cut after 80 characters."""
    try:
        text = repr(value)
    except ValueError:
        return "a number of thousands of digits"  # Python refuses to convert it
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
