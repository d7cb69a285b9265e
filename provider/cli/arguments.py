"""Arguments that several verbs take."""

from __future__ import annotations

import argparse
import re

from airflow.cli.cli_config import Arg

__all__ = ["PLAN", "PLAN_UNDER_WAY", "RATE", "REASON", "THROTTLE"]

_FACTORS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}


def _bytes(text: str) -> int:
    found = re.fullmatch(r"(\d+)([kMG]?)", text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of bytes per second, such as 50000000 or 50M")
    return int(found[1]) * _FACTORS[found[2]]


PLAN = Arg(("plan",), help="Its digest, or the beginning of it", metavar="PLAN")
PLAN_UNDER_WAY = Arg(
    ("plan",), help="Its digest, or the beginning of it; without: the plan under way", nargs="?", metavar="PLAN"
)
REASON = Arg(("--reason",), help="Why, for the audit trail", required=True)
RATE = Arg(("rate",), help="Bytes per second into one broker: 50000000 or 50M; 0: none", type=_bytes, metavar="RATE")
THROTTLE = Arg(
    ("--throttle",), help="Bytes per second into one broker: 50000000 or 50M; 0: none", type=_bytes, metavar="BYTES"
)
