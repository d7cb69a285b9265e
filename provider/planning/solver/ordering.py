"""The order of a plan, and its chunks.

The partitions that are nearest to data loss come first: the fewest in-sync replicas, then the most missing. Among
equals, a move comes when the brokers that it needs are expected to be free. Each broker is assumed to process its moves
from the largest on, as many at a time as it may, and a move starts when the last of its brokers reaches it. Any part of
the plan therefore keeps all brokers busy, and large partitions do not come last.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_steward.planning.files.formats import PLAN
from kafka_steward.planning.files.options import Options
from kafka_steward.planning.solver.problem import Ints

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class TransferLimits:
    """Replicas that one broker may receive and send at the same time, and partitions per chunk."""

    into: int
    out_of: int
    chunk_size: int

    @classmethod
    def of(cls, options: Options) -> TransferLimits:
        """Return the limits of a plan's options."""
        return cls(options.max_in_per_broker, options.max_out_per_broker, options.chunk_size)


@dataclass(frozen=True)
class MoveQueue:
    """Moves: in-sync replicas, replicas not in sync, bytes, sending broker; and (owner, into): receiving brokers."""

    in_sync: Ints
    short: Ints
    size: Ints
    source: Ints
    owner: Ints
    into: Ints


def ordered_plan(moves: pa.Table, limits: TransferLimits) -> pa.Table:
    """Return moves (see `candidate.MOVES`) as the rows of a plan: in order, with chunk and position."""
    moves = moves.sort_by([("topic", "ascending"), ("partition", "ascending")]).combine_chunks()
    adding = moves.column("adding").combine_chunks()
    owner = np.repeat(np.arange(len(moves)), adding.value_lengths().to_numpy(False))
    sizes = moves.column("bytes").fill_null(0).to_numpy()
    names = ("in_sync", "short", "source")
    in_sync, short, source = (moves.column(name).to_numpy().astype(np.int64) for name in names)
    into = adding.flatten().to_numpy(False).astype(np.int64)
    queue = MoveQueue(in_sync, short, np.asarray(sizes), source, owner, into)
    moves = moves.take(pa.array(start_order(queue, limits)))
    number = np.arange(len(moves))
    moves = moves.append_column("chunk", pa.array(number // limits.chunk_size, pa.int32()))
    moves = moves.append_column("position", pa.array(number % limits.chunk_size, pa.int32()))
    return moves.select(PLAN.names).cast(PLAN)


def start_order(queue: MoveQueue, limits: TransferLimits) -> Ints:
    """Return the moves' numbers in the order in which they should start."""
    # Every move costs its brokers a minimum of work, so that empty partitions take turns too.
    work = queue.size.astype(np.float64) + 1.0
    by_urgency = np.lexsort((np.arange(len(work)), -work, -queue.short, queue.in_sync))
    rank = np.empty_like(by_urgency)
    rank[by_urgency] = np.arange(len(work))
    start = _waits(queue.source, rank, work, limits.out_of)
    np.maximum.at(start, queue.owner, _waits(queue.into, rank[queue.owner], work[queue.owner], limits.into))
    return np.lexsort((rank, start, -queue.short, queue.in_sync))


def _waits(broker: Ints, rank: Ints, work: Floats, limits: int) -> Floats:
    """Return the work that comes before each item on its broker, per transfer at a time."""
    by_broker = np.lexsort((rank, broker))
    done = np.cumsum(work[by_broker]) - work[by_broker]
    first = np.searchsorted(broker[by_broker], broker[by_broker])
    waits = np.empty_like(done)
    waits[by_broker] = (done - done[first]) / limits
    return waits
