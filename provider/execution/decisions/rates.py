"""Which rate a broker gets while replicas move (KIP-73), and what is to be put back in the end. Pure.

While plans move something, a broker has the strictest of their rates, and of the one that someone else had set before
them. What someone else sets later is left alone for as long as it is there; when it is cleared, ours is set again, and
the rate that was there at first counts as withdrawn: what is cleared is not put back. A rate that we have set before,
and that shows again, is ours: a broker may tell of a change a moment late, and another tool may put back what it found.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kafka_steward.journal.records import Borrowed

__all__ = ["returned", "set_late", "to_set"]

#: Rates of ours that are remembered for one broker.
_REMEMBERED = 20


def to_set(known: Borrowed | None, plan: str, rate: str | None, now: str | None) -> tuple[Borrowed | None, str | None]:
    """Return what is to be written down of a broker's rate, and the rate to set; None to leave what is there.

    `known` is what is written down, `rate` what `plan` asks for, None for what it asked for before; `now` is what the
    broker has, None for no rate of its own. All in bytes per second.
    """
    noted = known or Borrowed(now, None)
    if rate is None and plan not in noted.entries:
        return known, None
    entries = dict(noted.entries) if rate is None else {**noted.entries, plan: (rate,)}
    noted = replace(noted, entries=entries)
    asked = _strictest(entries, noted.ours)
    if asked is None:
        return noted, None
    if noted.ours is None:
        noted = replace(noted, before=now)
    elif now is None:
        noted = replace(noted, before=None)
    elif now not in _known_rates(noted):
        if int(now) <= asked or str(asked) == noted.ours:
            return noted, None
        noted = replace(noted, before=now)  # we were asked for a stricter one after they had set theirs
    return _set(noted, asked, now)


def returned(borrowed: Borrowed, now: str | None) -> str | None:
    """Return the rate that counts as there: an earlier one of ours, which still shows, is as good as the last."""
    return borrowed.ours if now in borrowed.earlier else now


def set_late(known: Borrowed | None, plan: str, rate: str, before: str | None) -> Borrowed:
    """Return what is to be written down when `rate` was set for a plan that had given its own back meanwhile."""
    if known is None:
        return Borrowed(before, rate, {plan: (rate,)})
    earlier = _unique((*known.earlier, rate), known.ours)
    return replace(known, entries={**known.entries, plan: known.entries.get(plan, (rate,))}, earlier=earlier)


def _set(noted: Borrowed, asked: int, now: str | None) -> tuple[Borrowed, str | None]:
    if noted.before is not None and int(noted.before) <= asked:
        if noted.ours is None:
            return noted, None  # theirs is as strict, and is left alone
        asked = int(noted.before)
    wanted = str(asked)
    earlier = _unique((*noted.earlier, *filter(None, (noted.ours,))), wanted)
    return replace(noted, ours=wanted, earlier=earlier), None if now == wanted else wanted


def _strictest(entries: Mapping[str, tuple[str, ...]], ours: str | None) -> int | None:
    """The strictest rate that a plan asks for; one that was written down without a rate asks for what was set."""
    rates = [of[0] if of else ours for of in entries.values()]
    return min((int(rate) for rate in rates if rate is not None), default=None)


def _known_rates(noted: Borrowed) -> set[str | None]:
    return {noted.ours, noted.before, *noted.earlier}


def _unique(rates: tuple[str, ...], but: str | None) -> tuple[str, ...]:
    return tuple(dict.fromkeys(rate for rate in rates if rate != but))[-_REMEMBERED:]
