"""How long a plan's order takes, simulated, beside the least time that any order needs."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from benchmarks.planner.table import table
from kafka_steward.planning.options import Options
from kafka_steward.planning.solver.plan_rows import MoveQueue, start_order
from tests.planning.test_stability import least, makespan

LIMITS = Options()
#: Standard deviation of the logarithm of the sizes: equal, as topics often are, and a few giants.
SKEWS = (0.0, 0.5, 1.0, 1.5)
_SEEDS = range(3)


def makespans(moves: int = 1_200, brokers: int = 12) -> str:
    """The table: each number is a makespan divided by the least possible one, the worst of some seeds."""
    head = ["sizes", "our order, sliding window", "by name, sliding window"]
    head += ["our order, barrier chunks of 50 (KIP-46)", "our order, barrier chunks filled first-fit"]
    return table(head, [_row(skew, moves, brokers) for skew in SKEWS])


def _row(skew: float, moves: int, brokers: int) -> list[object]:
    worst = [0.0, 0.0, 0.0, 0.0]
    for seed in _SEEDS:
        queue = queue_of(seed, moves, brokers, skew)
        bound = least(queue, LIMITS)
        ours, by_name = start_order(queue, LIMITS).tolist(), list(range(moves))
        times = [makespan(queue, numbers, LIMITS) for numbers in (ours, by_name)]
        times += [_in_chunks(queue, chunks) for chunks in (_chunks(ours), _filled(queue, ours))]
        worst = [max(one, time / bound) for one, time in zip(worst, times, strict=True)]
    return ["equal" if skew == 0 else f"lognormal, sigma = {skew}", *(round(one, 3) for one in worst)]


def queue_of(seed: int, moves: int, brokers: int, skew: float) -> MoveQueue:
    """Moves of one replica each, between random brokers."""
    dice = random.Random(seed)
    ends = np.array([dice.sample(range(brokers), 2) for _ in range(moves)])
    size = np.array([int(dice.lognormvariate(18, skew)) for _ in range(moves)])
    same = np.zeros(moves, np.int64)
    return MoveQueue(same, same, size, ends[:, 0], np.arange(moves), ends[:, 1])


def _in_chunks(queue: MoveQueue, chunks: Iterable[Sequence[int]]) -> float:
    """Nothing of a chunk starts before everything of the one before it is done."""
    return sum(float(makespan(queue, chunk, LIMITS)) for chunk in chunks)


def _chunks(numbers: Sequence[int]) -> Iterable[Sequence[int]]:
    return (numbers[start : start + LIMITS.chunk_size] for start in range(0, len(numbers), LIMITS.chunk_size))


def _filled(queue: MoveQueue, numbers: Sequence[int]) -> Iterable[Sequence[int]]:
    """Chunks as large as every broker's slots allow: the best that barriers can do in this order."""
    waiting = list(numbers)
    while waiting:
        into, out_of = Counter[int](), Counter[int]()
        chunk: list[int] = []
        later: list[int] = []
        for move in waiting:
            source, target = int(queue.source[move]), int(queue.into[move])
            fits = out_of[source] < LIMITS.max_out_per_broker and into[target] < LIMITS.max_in_per_broker
            (chunk if fits else later).append(move)
            out_of[source] += fits
            into[target] += fits
        yield chunk
        waiting = later
