"""Maintenance windows: when they are open, when they open next, and what is no window."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from kafka_steward.errors import SettingError
from kafka_steward.maintenance import parse_window
from kafka_steward.settings import Settings


def ms(text: str, zone: str = "UTC") -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)


def opens(window: str, now: str, zone: str = "UTC") -> str | None:
    """When the window opens next, as its own wall clock shows it; None when it is open."""
    found = parse_window(window, zone)
    assert found is not None
    until = found.closed_until_ms(ms(now, zone))
    return None if until is None else f"{datetime.fromtimestamp(until / 1000, ZoneInfo(zone)):%Y-%m-%d %H:%M}"


def test_without_a_window_it_is_always_open() -> None:
    assert parse_window("", "UTC") is parse_window("  ", "nowhere") is None
    assert Settings().maintenance_window == ""


@pytest.mark.parametrize(
    ("window", "now", "expected"),
    [
        ("22:00-06:00", "2026-11-21 21:59", "2026-11-21 22:00"),
        ("22:00-06:00", "2026-11-21 22:00", None),
        ("22:00-06:00", "2026-11-22 05:59", None),
        ("22:00-06:00", "2026-11-22 06:00", "2026-11-22 22:00"),
        ("00:00-24:00", "2026-11-22 23:59", None),
        # 2026-11-20 is a Friday: what opens then is open on Saturday morning, and not again before Monday.
        ("mon-fri 22:00-06:00", "2026-11-21 05:00", None),
        ("mon-fri 22:00-06:00", "2026-11-21 06:00", "2026-11-23 22:00"),
        ("fri-mon 1:00-2:00", "2026-11-24 00:30", "2026-11-27 01:00"),
        ("mon,wed 03:00-04:00; sun 00:00-24:00", "2026-11-25 05:00", "2026-11-29 00:00"),
        ("sat 00:00-24:00", "2026-11-22 00:00", "2026-11-28 00:00"),
    ],
)
def test_it_opens_and_closes_by_the_wall_clock(window: str, now: str, expected: str | None) -> None:
    assert opens(window, now) == expected


def test_it_moves_with_summer_time_and_skips_an_hour_that_does_not_exist() -> None:
    berlin = parse_window("22:00-06:00", "Europe/Berlin")
    assert berlin is not None
    for day, utc in (("2026-07-01", 20), ("2026-12-01", 21)):
        noon = ms(f"{day} 12:00")
        until = berlin.closed_until_ms(noon)
        assert until is not None
        assert datetime.fromtimestamp(until / 1000, UTC).hour == utc
    assert opens("02:00-03:00", "2026-03-29 00:00", "Europe/Berlin") == "2026-03-30 02:00"


def test_it_says_when_it_opens_in_its_own_time_zone() -> None:
    window = parse_window("22:00-06:00", "Europe/Berlin")
    assert window is not None
    assert window.sentence(ms("2026-11-21 21:00")) == (
        "Nothing new is submitted outside the maintenance window 22:00-06:00; it opens 2026-11-21 22:00 "
        "(Europe/Berlin)."
    )


@pytest.mark.parametrize(
    ("window", "zone", "sentence"),
    [
        ("22:00-22:00", "UTC", "never opens: it ends when it begins; for the whole day write 00:00-24:00"),
        ("24:00-06:00", "UTC", "never opens"),
        ("22:00-25:00", "UTC", "names 25:00, which is not a time of day"),
        ("22:61-23:00", "UTC", "names 22:61, which is not a time of day"),
        ("at night", "UTC", "'at night' cannot be read; write it as 22:00-06:00 or mon-fri 22:00-06:00"),
        ("someday 22:00-06:00", "UTC", "names the day 'someday'; there are mon, tue, wed, thu, fri, sat, sun"),
        ("22:00-06:00", "Mars/Phobos", "There is no time zone 'Mars/Phobos'; write one such as Europe/Berlin"),
        ("22:00-06:00", "../etc/passwd", "There is no time zone"),
        ("22:00-06:00", "", "There is no time zone ''"),
    ],
)
def test_what_is_no_window_is_refused_with_a_sentence(window: str, zone: str, sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        Settings.of({"maintenance_window": window, "maintenance_timezone": zone})
