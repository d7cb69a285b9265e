"""Arguments that several verbs take."""

from __future__ import annotations

import argparse
import re
from datetime import datetime, timezone

from airflow.cli.cli_config import Arg

__all__ = ["PLAN", "PLAN_UNDER_WAY", "RATE", "REASON", "THROTTLE", "moment_ms", "time_ago"]

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_FACTORS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}


def _bytes(text: str) -> int:
    found = re.fullmatch(r"(\d+)([kMG]?)", text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of bytes per second, such as 50000000 or 50M")
    return int(found[1]) * _FACTORS[found[2]]


def time_ago(text: str) -> int | datetime:
    """Parse a duration, as milliseconds ago, or a point in time; a time without a time zone is UTC."""
    ago = re.fullmatch(r"(\d+)([smhd])", text)
    if ago:
        return int(ago[1]) * _SECONDS[ago[2]] * 1000
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither like 2h (s, m, h, d) nor like 2026-11-21T08:00"
        ) from error
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)


def moment_ms(time: int | datetime, now_ms: int) -> int:
    """Return a value of `time_ago` as milliseconds since 1970."""
    return now_ms - time if isinstance(time, int) else int(time.timestamp() * 1000)


PLAN = Arg(("plan",), help="Its digest, or the beginning of it", metavar="PLAN")
PLAN_UNDER_WAY = Arg(
    ("plan",), help="Its digest, or the beginning of it; without: the plan under way", nargs="?", metavar="PLAN"
)
REASON = Arg(("--reason",), help="Why, for those who read the audit trail", default="")
RATE = Arg(("rate",), help="Bytes per second into one broker: 50000000 or 50M; 0: none", type=_bytes, metavar="RATE")
THROTTLE = Arg(
    ("--throttle",), help="Bytes per second into one broker: 50000000 or 50M; 0: none", type=_bytes, metavar="BYTES"
)
