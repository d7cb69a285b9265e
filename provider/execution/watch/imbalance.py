"""Brokers that stand out: by the bytes that producers bring into what they lead, a full volume, or a broken demotion.

A broker that leads far more than the mean is announced once it has done so at three looks in a row; a volume that is
used above its threshold, and a demoted broker that is to lead a new topic, at once. Each is announced again after a
day: a plan may have been refused, or have found nothing better, and asking for it every minute would help nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kafka_steward.assignment import Assignment, begin_with_brokers
from kafka_steward.cluster.state import BrokerLogDirs
from kafka_steward.journal.records import STANDING_OUT, StandingOut
from kafka_steward.journal.store import Journal
from kafka_steward.settings import Settings

#: The events of the watch, which are the keys of the records too.
IMBALANCED, FULL, DEMOTED = "broker-imbalanced", "disk-full", "demoted-leads"
#: Milliseconds after which what lasts is announced again.
AGAIN_MS = 86_400_000
#: The looks in a row at which a broker has to lead far more than the mean.
LOOKS = 3
#: Bytes per second below which a broker does not stand out, whatever the others lead.
_LEAST_BYTES_PER_S = 1_000_000


@dataclass(frozen=True)
class ImbalanceReport:
    """The result of one look: the brokers that stand out by event, those to announce now, and a sentence."""

    brokers: Mapping[str, Assignment]
    due: Mapping[str, Assignment]
    sentence: str
    now_ms: int


def find_imbalanced_brokers(bytes_in: Mapping[int, float], above: float) -> Assignment:
    """Return the brokers that lead more than `above` times the mean of the bytes per second in `bytes_in`. Pure.

    None does with `above` 0.
    """
    mean = sum(bytes_in.values()) / max(len(bytes_in), 1)
    least = max(above * mean, _LEAST_BYTES_PER_S)
    return tuple(sorted(broker for broker, led in bytes_in.items() if above and led > least))


def find_full_brokers(disks: Mapping[int, BrokerLogDirs], above: float) -> Assignment:
    """Return the brokers with a volume that takes replicas and is used above that fraction; none with 0. Pure."""
    return tuple(
        sorted(
            broker for broker, dirs in disks.items() if above and any(used > above for used in _used_fractions(dirs))
        )
    )


def _used_fractions(dirs: BrokerLogDirs) -> list[float]:
    return [
        1 - directory.usable_bytes / directory.total_bytes
        for directory in dirs.directories
        if directory.takes_replicas and directory.total_bytes and directory.usable_bytes is not None
    ]


class ImbalanceWatch:
    """The looks of one watch at the brokers of a cluster."""

    def __init__(self) -> None:
        self._looks = 0

    def look(
        self,
        journal: Journal,
        bytes_in: Mapping[int, float],
        disks: Mapping[int, BrokerLogDirs],
        settings: Settings,
        *,
        demoted: Mapping[int, int],
        listened: frozenset[str],
    ) -> ImbalanceReport:
        """Look once, and record what is announced to those who listen. Raises JournalError.

        `demoted` has how many partitions each demoted broker is to lead that another one could.
        """
        hot = find_imbalanced_brokers(bytes_in, settings.imbalance_above)
        self._looks = self._looks + 1 if hot else 0
        found = {
            IMBALANCED: hot if self._looks >= LOOKS else (),
            FULL: find_full_brokers(disks, settings.disk_above),
            DEMOTED: tuple(sorted(broker for broker, leads in demoted.items() if leads)),
        }
        now_ms = journal.now_ms()
        due = {event: named for event, named in found.items() if _announce(journal, event, named, listened, now_ms)}
        return ImbalanceReport(found, due, _sentence(found, settings), now_ms)


def _sentence(found: Mapping[str, Assignment], settings: Settings) -> str:
    parts = []
    if hot := found[IMBALANCED]:
        more = f"more than {settings.imbalance_above:g} times the mean of the bytes that producers bring"
        parts.append(f"{begin_with_brokers(hot, 'leads', 'lead')} {more}.")
    if full := found[FULL]:
        parts.append(
            f"{begin_with_brokers(full, 'has', 'have')} a volume that is used above {settings.disk_above:.0%}."
        )
    if leading := found[DEMOTED]:
        are = begin_with_brokers(leading, "is demoted and is", "are demoted and are")
        parts.append(f"{are} the preferred leader of partitions that another broker could lead; demote again.")
    return " ".join(parts) or "No broker stands out."


def _announce(journal: Journal, event: str, brokers: Assignment, listened: frozenset[str], now_ms: int) -> bool:
    """Record that the brokers are announced, if they are to be; forget what was announced if there are none."""
    rows = journal.rows(STANDING_OUT)
    row = rows.get(event)
    if not brokers:
        if row is not None:
            rows.delete(row)
        return False
    known = StandingOut() if row is None else row.value
    lasts = frozenset(brokers) <= frozenset(known.brokers) and now_ms - known.announced_ms < AGAIN_MS
    return event in listened and not lasts and rows.put(event, StandingOut(now_ms, brokers), row) is not None
