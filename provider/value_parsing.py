"""Readers for numbers, booleans and choices as they are written in JSON, a form, a configuration file or Python."""

from __future__ import annotations

import math
from decimal import Decimal, InvalidOperation
from typing import Any

from kafka_steward.errors import SettingError

_SWITCHES = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
#: The most digits of a whole number: the exponent is checked before the number is expanded.
_MOST_DIGITS = 40
_LONGEST = 80


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
        found = [parse_whole_number(each) for each in listed or ()]
    except (TypeError, ValueError):
        found = [-1]
    if min(found, default=0) < 0:
        raise SettingError(f"{shorten_value(value)} names no brokers; give their ids, such as 3, 4.")
    return list(dict.fromkeys(found))


def require_choice(name: str, value: object, *choices: str) -> str:
    """Return `value`, which is one of `choices`. Raises SettingError for everything else; `name` opens its message."""
    if value in choices:
        return str(value)
    *others, last = choices
    raise SettingError(f"{name} is {value!r}; it takes {', '.join(others)} or {last}.")


def shorten_value(value: object) -> str:
    """Return `value` as text for an error message, cut after 80 characters."""
    try:
        text = repr(value)
    except ValueError:
        return "a number of thousands of digits"  # Python refuses to convert it
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
