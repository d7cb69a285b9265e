"""The partitions that a plan may touch, those of them that need a change, and those that cannot get it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from kafka_steward.assignment import Operation
from kafka_steward.planning.files.options import BALANCING, INTERNAL_TOPICS, Options
from kafka_steward.planning.solver.arrays import Bools, Brokers, Ints, Rows

__all__ = ["Case", "Fate", "chosen", "fates"]


@dataclass(frozen=True)
class Case:
    """The planning problem of one shard."""

    rows: Rows
    brokers: Brokers
    operation: Operation
    options: Options

    @property
    def own_rack(self) -> bool:
        """True if a broker without a rack is a rack of its own."""
        return self.options.rackless == "own-rack"


class Fate(IntEnum):
    """The disposition of a partition. Values after PLANNED mean that it needs a change and does not get it."""

    UNTOUCHED = 0
    PLANNED = 1
    #: Moving it would lose its data permanently.
    ALL_REPLICAS_LOST = 2
    #: Fewer brokers are left than the partition has replicas. A move that keeps a dead broker would stall.
    TOO_FEW_BROKERS = 3
    #: A reassignment of it is in flight.
    IN_FLIGHT = 4
    PINNED = 5
    EXCLUDED = 6

    @property
    def word(self) -> str:
        """The reason, as `unplaced` and `pinned` of a proof contain it."""
        return self.name.lower()


def chosen(case: Case) -> Ints:
    """Return the dispositions that the options alone decide: EXCLUDED, PINNED or IN_FLIGHT.

    The others are UNTOUCHED.
    """
    rows, options = case.rows, case.options
    barred = set() if case.operation not in BALANCING or options.internal_topics else INTERNAL_TOPICS
    topic = np.array([name in barred or not _selected(name, options) for name in rows.topics], bool)
    fate = np.where(rows.moving, Fate.IN_FLIGHT, Fate.UNTOUCHED)
    fate[topic[rows.topic]] = Fate.EXCLUDED
    fate[_pinned(rows, options.pin)] = Fate.PINNED
    return fate


def fates(case: Case, kept: Bools, missing: Ints, room: Ints, changes: Bools) -> Ints:
    """Return each row's disposition when `missing` replicas are to join the slots it keeps, on at most `room` brokers.

    `changes` marks rows that change even if nothing is missing.
    """
    rows, brokers = case.rows, case.brokers
    decided = chosen(case)
    keeps = np.bincount(rows.row[kept], minlength=len(rows))
    on_target = (kept | rows.lost) & brokers.target[rows.broker]
    free = int(brokers.target.sum()) - np.bincount(rows.row[on_target], minlength=len(rows))
    fate = np.where(decided != Fate.UNTOUCHED, decided, Fate.PLANNED)
    fate[missing > np.minimum(free, room)] = Fate.TOO_FEW_BROKERS
    fate[(keeps == 0) & (rows.degree > 0)] = Fate.ALL_REPLICAS_LOST
    fate[(missing == 0) & ~changes] = Fate.UNTOUCHED
    return fate


def _selected(topic: str, options: Options) -> bool:
    included = not options.include or any(re.fullmatch(pattern, topic) for pattern in options.include)
    return included and not any(re.fullmatch(pattern, topic) for pattern in options.exclude)


def _pinned(rows: Rows, names: Sequence[str]) -> Ints:
    if not names:
        return np.zeros(0, np.int64)
    wanted = set(names)
    topics = {name.rsplit("-", 1)[0] for name in wanted}
    near = np.array([topic in topics for topic in rows.topics], bool)
    return np.array([row for row in np.flatnonzero(near[rows.topic]) if rows.name(int(row)) in wanted], np.int64)
