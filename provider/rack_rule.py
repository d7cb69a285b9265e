"""The rack rule: which partitions could be spread better over the racks, and why some of them are left. Pure.

One function judges for all: the health check with its alert, the planner, and what a plan says of before and after.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from kafka_steward.assignment import TopicPartition, name_some

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

#: Partitions that a sentence names for each reason; the others are only counted.
NAMED = 3


class RackRule(IntEnum):
    """Whether a partition keeps the rack rule. All values after BROKEN are reasons to leave one that breaks it.

    Those up to NOT_LIVE hold for every rebalance: such a partition is not counted. The others are of one plan.
    """

    KEPT = 0
    #: It is counted, and a rebalance with balance=racks moves it.
    BROKEN = 1
    IN_FLIGHT = 2
    SERVICE_TOPIC = 3
    NO_LEADER = 4
    NOT_LIVE = 5
    PINNED = 6
    EXCLUDED = 7
    OUT_OF_SYNC = 8
    BUDGET = 9
    EXCLUDED_BROKERS = 10
    OTHER_GOAL = 11
    MOVED = 12

    @property
    def word(self) -> str:
        """The reason, as a proof has it."""
        return self.name.lower()


#: Why a partition is left, and what a person can do, by the word of the reason.
_WHY_LEFT = {
    RackRule.IN_FLIGHT.word: "is being reassigned; look again when that has ended",
    RackRule.SERVICE_TOPIC.word: "service topic, which a rebalance moves with internal_topics or by its full name",
    RackRule.NO_LEADER.word: (
        "has no leader; bring back a broker or log directory that was in sync last, or delete the topic"
    ),
    RackRule.NOT_LIVE.word: "has a replica on a broker that is not live; start that, or heal first",
    RackRule.PINNED.word: "the option pin keeps it",
    RackRule.EXCLUDED.word: "its topic is left out by include, exclude or internal_topics",
    RackRule.OUT_OF_SYNC.word: "a live replica is out of sync; make another plan when it is in sync",
    RackRule.BUDGET.word: "max_moves or max_bytes leaves it to a later plan",
    RackRule.EXCLUDED_BROKERS.word: "only brokers of exclude_brokers could take a replica",
    RackRule.OTHER_GOAL.word: "this plan has another goal; rebalance with balance=racks moves only such",
    RackRule.MOVED.word: "where this plan moves it; rebalance with balance=racks afterwards",
}


_UNCOUNTED = frozenset(reason.word for reason in RackRule if RackRule.BROKEN < reason <= RackRule.NOT_LIVE)


def judge_racks(
    row: Ints, broker: Ints, rows: int, *, rack: Ints, live: Bools, able: Bools, left: Mapping[RackRule, Bools]
) -> Ints:
    """Return for each of `rows` partitions whether it keeps the rack rule, as a value of `RackRule`.

    A replica of the partition `row[i]` is on `broker[i]`. `rack`, `live` and `able` are by broker; the rack is -1 for
    none. A partition breaks the rule if a rack holds more of its replicas than the best spread needs, or fewer. What
    counts:

    - The best spread is over the racks of the live brokers that may receive a replica, `able`, and of those that hold
      one of it. So the loss of a rack breaks no rule, and its return may.
    - A broker without a rack shares a rack with none, and takes replicas that the racks then need not hold.
    - A replica on a broker that is not live is in no rack: what replaces it goes where the racks need it. So such a
      partition breaks the rule only if a rack holds too many of its other replicas.
    - The caller leaves out the replicas that a reassignment removes: the target is judged.

    `left` has masks of the partitions that no rebalance moves, by reason, the first of which is returned instead of
    BROKEN. NOT_LIVE is added here.
    """
    broken, whole = _find_broken(row, broker, rows, rack=rack, live=live, able=able)
    reasons = {**left, RackRule.NOT_LIVE: ~whole}
    verdict = np.select(list(reasons.values()), [reason.value for reason in reasons], RackRule.BROKEN.value)
    return np.where(broken, verdict, RackRule.KEPT.value).astype(np.int64)


def breaks_rack_rule(row: Ints, broker: Ints, rows: int, *, rack: Ints, live: Bools, able: Bools) -> Bools:
    """Return a mask of the partitions that break the rack rule as `judge_racks` has it, also of those that are left."""
    return _find_broken(row, broker, rows, rack=rack, live=live, able=able)[0]


def _find_broken(row: Ints, broker: Ints, rows: int, *, rack: Ints, live: Bools, able: Bools) -> tuple[Bools, Bools]:
    """Return masks of the partitions that break the rule, and of those all of whose replicas are on live brokers."""
    factor, racks = np.bincount(row, minlength=rows), int(rack.max(initial=-1)) + 1
    there = live[broker]
    row, broker = row[there], broker[there]
    whole = np.bincount(row, minlength=rows) == factor
    # Brokers without a rack are in the last column.
    column = np.where(rack < 0, racks, rack)
    held = _count(row, column[broker], rows, racks)
    places = np.bincount(column[live & able], minlength=racks + 1)
    # A broker that receives nothing has a place only for partitions that it holds; most rows are on no such broker.
    keeps = ~able[broker]
    own = _count(row[keeps], column[broker[keeps]], rows, racks)
    # Partitions with as many replicas, and the same such places, have the same bounds.
    kind = factor
    for counts in own[:, own.any(axis=0)].T:
        kind = np.unique(kind * (counts.max() + 1) + counts, return_inverse=True)[1]
    _, example, kind = np.unique(kind, return_index=True, return_inverse=True)
    low, high = np.zeros((2, len(example), racks), np.int64)
    for at, one in enumerate(example.tolist()):
        *sizes, rackless = (places + own[one]).tolist()
        low[at], high[at] = rack_bounds(int(factor[one]), sizes, rackless, own_rack=True)
    held = held[:, :racks]
    crowded, lacking = (held > high[kind]).any(axis=1), (held < low[kind]).any(axis=1)
    return np.asarray(crowded | (whole & lacking), bool), np.asarray(whole, bool)


def _count(row: Ints, column: Ints, rows: int, racks: int) -> Ints:
    return np.bincount(row * (racks + 1) + column, minlength=rows * (racks + 1)).reshape(rows, racks + 1)


def rack_bounds(rf: int, sizes: Sequence[int], rackless: int, *, own_rack: bool) -> tuple[list[int], list[int]]:
    """Return the fewest and the most replicas of one partition on each rack, spread as far as the racks allow.

    `sizes` are the numbers of brokers of each rack. `rackless` is the number of brokers without a rack, which take
    replicas if each of them is a rack of its own, or if the racks alone have too few brokers.
    """
    spare = rackless if own_rack or sum(sizes) < rf else 0
    most = max(sizes, default=0)
    height = next((u for u in range(1, most + 1) if sum(min(u, size) for size in sizes) + spare >= rf), most)
    return [min(height - 1, size) for size in sizes], [min(height, size) for size in sizes]


def rack_left_sentence(left: Collection[Sequence[Any]], counts: Mapping[str, int] | None = None) -> str:
    """Return which partitions break the rack rule and are left, and why; empty without any.

    `left` has topic, number and the word of the reason; `counts`, by that word, how many there are, if more.
    """
    known = Counter(partition[2] for partition in left) if counts is None else counts
    clauses: dict[bool, list[str]] = {True: [], False: []}
    for word in (*(word for word in _WHY_LEFT if word in known), *(word for word in known if word not in _WHY_LEFT)):
        names = [TopicPartition(*partition[:2]) for partition in left if partition[2] == word]
        clause = f"{name_some(names, NAMED, known[word])} ({_WHY_LEFT.get(word, word)})"
        clauses[word not in _UNCOUNTED].append(clause)
    if clauses[True] and clauses[False]:
        clauses[False][0] = f"not counted, because no rebalance moves such: {clauses[False][0]}"
    every = "; ".join(clauses[True] + clauses[False])
    return f"Not spread over the racks as well as can be, and left: {every}." if every else ""
