"""The twelve cases of MinimalMovementReplicaBalancerTest, the test class of KAFKA-19048, and the figures of its plans.

A figure is the replicas moved, the preferred leaders changed, and the sum of squares of the pairs (leader, next).
"""

from __future__ import annotations

from typing import NamedTuple

from kafka_steward.planning.files.formats import PlanFolder, SnapshotFolder
from tests.builders import STATES, snapshot_of

__all__ = ["CASES", "Figures", "PublicCase", "figures", "snapshot_of_case"]


class Figures(NamedTuple):
    """What a plan moves and changes, and how its failover is spread."""

    moved: int
    leaders: int
    squares: int


class PublicCase(NamedTuple):
    """Brokers and partitions as in `tests.builders.cluster`, ids of two digits with commas; and what results are."""

    brokers: str
    partitions: str
    #: Of the class's own expectations.
    theirs: Figures
    #: Of our plans: with leaders that stay first, and with the order first as KAFKA-19048 has it.
    stable: Figures
    ordered: Figures


def _case(brokers: str, partitions: str, theirs: tuple[int, int, int], *ours: tuple[int, int, int]) -> PublicCase:
    stable, ordered = (Figures(*one) for one in (ours[0], ours[-1]))
    return PublicCase(brokers, partitions, Figures(*theirs), stable, ordered)


_EVEN = "123 231 312 123 231 312"
_RANDOM = "143 253 321 425 534 514"
_FOUR = "1,2,6,4 3,9,7,5 5,2,6,4 1,5,3,4 5,2,3,8 6,2,8,10 7,2,9,4 9,2,11,4 1,2,8,4 6,2,3,5 10,2,3,4 1,8,3,9"
_FIVE = (
    "1,2,3,4,5 1,2,5,6,7 3,4,5,6,7 1,3,5,6,7 4,2,5,6,7 1,2,3,4,6 1,2,3,4,8 0,2,1,4,9 0,2,1,4,9 0,2,6,4,10 0,2,6,5,10 "
    "11,12,13,14,15 15,16,17,0,14 0,2,6,13,11"
)
CASES = {
    "evenRackExtend": _case("1a 2b 3c 4a+ 5b+ 6c+", _EVEN, (9, 3, 6), (9, 3, 6)),
    "unevenRackExtend": _case("1a 2b 3c 4a+ 5b+ 6c+ 7a+", _EVEN, (10, 4, 6), (10, 3, 6)),
    "highWeightExtend": _case("1a 2b 3c 4a+ 5a+ 6a+ 7d+", _EVEN, (8, 4, 6), (8, 3, 6)),
    "brokerScaleIn": _case("1a 2b 3c 4a- 5b-", _RANDOM, (8, 3, 10), (8, 3, 6)),
    "highWeightRandomExtend": _case("1a 2b 3c 4a 5a 6a+", _RANDOM, (7, 5, 6), (6, 2, 6)),
    "rf2RackConflict": _case("1a 2b 3c+ 4a+ 5a 6a", "12 51 51 12 61 16", (5, 4, 6), (5, 3, 6)),
    "rf2IsrOrder": _case("1a 2b 3c", "12 23 12 23 31 31", (0, 3, 6), (0, 0, 12), (0, 3, 6)),
    "rf3IsrOrder": _case("1a 2b 3c", " ".join(["123"] * 9), (0, 6, 19), (0, 6, 15)),
    "rf4ScaleInIsrOrder": _case("1a 2b 3c 4d 5- 6- 7- 8- 9- 10- 11-", _FOUR, (22, 9, 12), (22, 8, 12)),
    "rf1Extend": _case("1a 2b 3c 4a 5b+", "1 2 3 4 1 2 3 4 1 1", (2, 2, 0), (2, 2, 0)),
    "replaceBroker": _case("0d- 1a 2b 3c 4a", "012 123 234 340 401 023 134 240 301 412", (10, 8, 14), (9, 2, 10)),
    "rf5Replace": _case(
        "1a 2b 3a 4b 5c 6d 7e 0- " + " ".join(f"{one}-" for one in range(8, 18)), _FIVE, (33, 14, 14), (33, 10, 14)
    ),
}


def snapshot_of_case(case: PublicCase) -> SnapshotFolder:
    """The cluster of a case."""
    brokers = [
        {
            "broker": int(word.strip("!-+abcdefgh")),
            "rack": word.strip("!-+0123456789") or None,
            "state": STATES.get(word[-1], "live"),
        }
        for word in case.brokers.split()
    ]
    held = [[int(one) for one in (word.split(",") if "," in word else word)] for word in case.partitions.split()]
    return snapshot_of(
        brokers,
        [{"topic": "t", "partition": at, "replicas": each, "isr": each, "bytes": 1000} for at, each in enumerate(held)],
    )


def figures(plan: PlanFolder) -> Figures:
    """The figures of a plan of ours."""
    squares = plan.proof["spread"]["next_in_line"]["after"]["squares"]
    return Figures(plan.proof["replicas_moved"], plan.proof["leader_changes"], squares)
