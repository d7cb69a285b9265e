"""Maintenance windows: the times at which deferrable work may begin. Pure: the time is passed in.

A window is written as `22:00-06:00`, with days as `mon-fri 22:00-06:00` (the days on which it opens), and several of
them as `mon-fri 22:00-06:00; sat,sun 00:00-24:00`. Its times are wall-clock times of a time zone, so they follow
daylight saving time; a span that falls completely into the skipped hour does not open on that day.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from kafka_steward.errors import SettingError

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_SPAN = r"(?:[a-z,-]+ )?\d{1,2}:\d\d-\d{1,2}:\d\d"
#: Pattern for a form, checked before the detailed errors of this module; empty: always open.
PATTERN = rf"^\s*(?:{_SPAN}(?:\s*;\s*{_SPAN})*)?\s*$"
_PARTS = re.compile(r"(?:(?P<days>[a-z,-]+) )?(?P<begin>\d{1,2}:\d\d)-(?P<end>\d{1,2}:\d\d)")
_A_DAY = 24 * 60
#: Days to search for the next opening: a week, and more for a span that daylight saving time skips.
_AHEAD = 16


@dataclass(frozen=True, slots=True)
class _Span:
    """Minutes of the day at which a span opens and closes, and the weekdays (0: Monday) on which it opens."""

    days: frozenset[int]
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class MaintenanceWindow:
    """A window in its written form, with its time zone. Construct through `parse_window`, which validates."""

    text: str
    zone: ZoneInfo
    spans: Sequence[_Span]

    def closed_until_ms(self, now_ms: int) -> int | None:
        """Return the next opening time, in milliseconds since 1970; None while the window is open."""
        openings = list(self._openings_around(now_ms))
        if any(opens <= now_ms < closes for opens, closes in openings):
            return None
        return min(opens for opens, _ in openings if opens > now_ms)

    def sentence(self, opens_ms: int) -> str:
        """Return the message that the window is closed, with its next opening time."""
        opens = datetime.fromtimestamp(opens_ms / 1000, self.zone).strftime("%Y-%m-%d %H:%M")
        return (
            f"Nothing new is submitted outside the maintenance window {self.text}; it opens {opens} ({self.zone.key})."
        )

    def _openings_around(self, now_ms: int) -> Iterator[tuple[int, int]]:
        today = datetime.fromtimestamp(now_ms / 1000, self.zone).date()
        for ahead in range(-2, _AHEAD):
            day = today + timedelta(days=ahead)
            for span in self.spans:
                opens, closes = (_local_time_ms(day, minutes, self.zone) for minutes in (span.begin, span.end))
                if day.weekday() in span.days and opens < closes:
                    yield opens, closes


def parse_window(text: str, zone: str) -> MaintenanceWindow | None:
    """Return the window that `text` describes in the named time zone; None for an empty text: always open.

    Raises SettingError for a time, a day or a zone that does not exist, and for a window that never opens.
    """
    if not text.strip():
        return None
    try:
        named = ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise SettingError(f"There is no time zone {zone!r}; write one such as Europe/Berlin, or UTC.") from error
    return MaintenanceWindow(text.strip(), named, tuple(_parse_span(part.strip()) for part in text.split(";")))


def _parse_span(text: str) -> _Span:
    parts = _PARTS.fullmatch(text)
    if parts is None:
        raise SettingError(
            f"The maintenance window {text!r} cannot be read; write it as 22:00-06:00 or mon-fri 22:00-06:00, and "
            "several with ; between them."
        )
    begin, end = _parse_minutes(parts["begin"]), _parse_minutes(parts["end"])
    if begin in (end, _A_DAY):
        raise SettingError(
            f"The maintenance window {text} never opens: it ends when it begins; for the whole day write 00:00-24:00."
        )
    return _Span(_parse_weekdays(parts["days"]), begin, end if end > begin else end + _A_DAY)


def _parse_minutes(text: str) -> int:
    hours, minutes = map(int, text.split(":"))
    if minutes > 59 or hours * 60 + minutes > _A_DAY:
        raise SettingError(f"The maintenance window names {text}, which is not a time of day; write 00:00 to 24:00.")
    return hours * 60 + minutes


def _parse_weekdays(text: str | None) -> frozenset[int]:
    if text is None:
        return frozenset(range(7))
    days: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        begin, end = _weekday_index(first), _weekday_index(last if dash else first)
        days |= {day % 7 for day in range(begin, (end if end >= begin else end + 7) + 1)}
    return frozenset(days)


def _weekday_index(name: str) -> int:
    if name not in _DAYS:
        raise SettingError(f"The maintenance window names the day {name!r}; there are {', '.join(_DAYS)}.")
    return _DAYS.index(name)


def _local_time_ms(day: date, minutes: int, zone: ZoneInfo) -> int:
    days, rest = divmod(minutes, _A_DAY)
    local = datetime.combine(day + timedelta(days=days), time(rest // 60, rest % 60), zone)
    # Through UTC: the difference of two local times in one zone ignores daylight saving time.
    return int(local.astimezone(UTC).timestamp() * 1000)
