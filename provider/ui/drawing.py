"""Pictures made on the server, as numbers for SVG: bars before and after, and lines over time. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kafka_steward.journal.observed import BrokerChange

#: The width of a bar that is as long as the longest one, and the size of a line chart.
BAR, LINE_WIDTH, LINE_HEIGHT = 120, 240, 40


@dataclass(frozen=True)
class Bars:
    """The lengths of two bars, at most `BAR`; None where a value is unknown."""

    before: float | None
    after: float | None


def bars_of_plan(changes: Sequence[BrokerChange], measure: str) -> list[Bars]:
    """Return the bars of each broker for `replicas`, `leaders` or `bytes`, on one scale."""
    pairs = [(getattr(each, f"{measure}_before"), getattr(each, f"{measure}_after")) for each in changes]
    longest = max((value for pair in pairs for value in pair if value is not None), default=0)
    return [Bars(*(scaled(value, longest) for value in pair)) for pair in pairs]


def scaled(value: float | None, longest: float | None) -> float | None:
    """Return the length of a bar."""
    if value is None:
        return None
    return round(BAR * value / longest, 1) if longest else 0.0


def polylines(at_ms: Sequence[int], values: Sequence[float | None]) -> list[str]:
    """Return the points of a line for SVG, from 0 to its largest value; several where values are missing between."""
    known = [value for value in values if value is not None]
    if not known:
        return []
    top, first, span = max(*known, 1e-9), at_ms[0], max(1, at_ms[-1] - at_ms[0])
    lines: list[list[str]] = [[]]
    for at, value in zip(at_ms, values, strict=True):
        if value is None:
            lines.append([])
        else:
            x, y = LINE_WIDTH * (at - first) / span, LINE_HEIGHT * (1 - value / top)
            lines[-1].append(f"{x:.1f},{y:.1f}")
    return [" ".join(line) for line in lines if line]
