"""The order keeps brokers busy: simulated in a sliding window, it takes hardly longer than any order must."""

import heapq
import random
from collections import Counter
from collections.abc import Iterable

import numpy as np
import pytest

from kafka_steward.planning.files.options import Options
from kafka_steward.planning.solver.plan_rows import MoveQueue, start_order

LIMITS = Options()


def queue_of(seed: int, moves: int = 600, brokers: int = 12, skew: float = 1.5) -> MoveQueue:
    dice = random.Random(seed)
    pairs = [dice.sample(range(brokers), 2) for _ in range(moves)]
    size = np.array([int(dice.lognormvariate(15, skew)) for _ in range(moves)])
    same = np.zeros(moves, np.int64)
    source, into = (np.array([pair[end] for pair in pairs]) for end in (0, 1))
    return MoveQueue(same, same, size, source, np.arange(moves), into)


def makespan(queue: MoveQueue, numbers: Iterable[int], limits: Options) -> float:
    """The time until all moves are done when each starts as soon as its brokers have a slot, in the given order."""
    into, out_of, now = Counter[int](), Counter[int](), 0.0
    running: list[tuple[float, int]] = []
    waiting = list(numbers)
    while waiting or running:
        blocked = []
        for move in waiting:
            source, target = queue.source[move], queue.into[move]
            if out_of[source] < limits.max_out_per_broker and into[target] < limits.max_in_per_broker:
                out_of[source] += 1
                into[target] += 1
                heapq.heappush(running, (now + float(queue.size[move]) * limits.max_in_per_broker, move))
            else:
                blocked.append(move)
        waiting = blocked
        now, move = heapq.heappop(running)
        out_of[queue.source[move]] -= 1
        into[queue.into[move]] -= 1
    return now


def least(queue: MoveQueue, limits: Options) -> float:
    """No order is faster than the busiest broker, or the largest move in its one slot."""
    busiest = max(float(np.bincount(ends, weights=queue.size).max()) for ends in (queue.source, queue.into))
    return max(busiest, float(queue.size.max()) * limits.max_in_per_broker)


@pytest.mark.parametrize("skew", [0.5, 1.0, 1.5])
@pytest.mark.parametrize("seed", range(3))
def test_the_order_takes_at_most_six_percent_longer_than_any_must(seed: int, skew: float) -> None:
    queue = queue_of(seed, skew=skew)
    assert makespan(queue, start_order(queue, LIMITS), LIMITS) <= 1.06 * least(queue, LIMITS)


def test_neighbours_in_the_plan_use_different_brokers() -> None:
    # Ten moves into each of six brokers, equal in everything: any six in a row should go to six brokers.
    into = np.repeat(np.arange(6), 10)
    same = np.zeros(60, np.int64)
    queue = MoveQueue(same, same, same, same + 6, np.arange(60), into)
    numbers = start_order(queue, Options(max_in_per_broker=1, max_out_per_broker=60))
    assert all(len({into[move] for move in numbers[at : at + 6]}) == 6 for at in range(0, 60, 6))


def test_the_fewest_in_sync_come_first_whatever_their_size() -> None:
    queue = queue_of(3, moves=40)
    in_sync = np.array([2, 1] * 20)
    numbers = start_order(
        MoveQueue(in_sync, queue.out_of_sync, queue.size, queue.source, queue.owner, queue.into), LIMITS
    )
    assert in_sync[numbers].tolist() == [1] * 20 + [2] * 20
