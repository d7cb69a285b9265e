"""Escaping of external text for its output: logs and terminals, CSV, Markdown. One function for each target. Pure.

Topics, reasons, user names, plan names, host names and Kafka's own messages come from outside. None of them may move a
cursor, forge a log line, reverse the reading direction, or become a formula or a heading.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

#: Characters that no readable text needs: control characters (C0, C1), line and paragraph separators, marks and
#: overrides of the reading direction, invisible marks and tags, and halves of surrogate pairs.
UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)
#: A spreadsheet reads a cell with such a prefix as a formula; full-width forms count in locales that use them.
_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20", "\t", "\r")
_MARKDOWN = re.compile(r"([\\`*_\[\]<>|~&])")
#: At the start of a line these begin a list, a rule or a heading.
_MARKDOWN_BEGINS = re.compile(r"^(\s*[0-9]*)([-+=#.)])(?=[\s#=-]|$)")
_LAST_MS = 253_402_300_799_999


def printable(text: str) -> str:
    r"""Return `text` for one line of a log or terminal: unprintable characters are escaped as in Python, `\x1b`."""
    return UNPRINTABLE.sub(_escape_character, text)


def printable_lines(text: str) -> str:
    """Return `text` of several lines for a log: as `printable`, except that its line feeds stay."""
    return "\n".join(map(printable, text.split("\n")))


def escape_csv_cell(text: str) -> str:
    r"""Return `text` for a cell of a CSV file: as `printable`, with an apostrophe before a formula prefix."""
    line = printable(text)
    return f"'{line}" if text.lstrip(" ").startswith(_FORMULA) else line


def escape_markdown(text: str) -> str:
    """Return `text` for a line or table cell of Markdown: as `printable`, with every Markdown mark escaped."""
    line = _MARKDOWN.sub(r"\\\1", printable(text))
    return _MARKDOWN_BEGINS.sub(r"\1\\\2", line)


def utc_text(ms: int) -> str:
    """Return `ms`, milliseconds since 1970, as `2026-11-22 08:00:00`; a value outside the calendar as `<ms> ms`."""
    time = utc_datetime(ms)
    return f"{ms} ms" if time is None else time.strftime("%Y-%m-%d %H:%M:%S")


def iso_time(ms: int | None) -> str | None:
    """Return a time in ISO 8601 (UTC); None for an unknown one."""
    time = utc_datetime(ms) if ms else None
    return None if time is None else time.isoformat(timespec="milliseconds")


def utc_datetime(ms: int) -> datetime | None:
    """Return `ms`, milliseconds since 1970, as a datetime in UTC; None for a value outside the calendar."""
    return datetime.fromtimestamp(ms / 1000, UTC) if 0 <= ms <= _LAST_MS else None


def _escape_character(character: re.Match[str]) -> str:
    code = ord(character[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
