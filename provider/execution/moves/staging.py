"""Staged moves, which are executed as a series of reassignments: the next one. Pure.

A move is executed in *stages* for one of two reasons. Until the last stage the partition keeps its original replicas,
in their order, and the new replicas follow them. So the preferred leader stays as long as possible, and a cancel
between stages copies nothing: the original replicas are present, and only the new ones are removed.

* `one_replica_at_a_time`: each stage adds one replica. The last one adds the last new replica and removes the replicas
  that leave. From 123 to 456, the stages are 1234, 12345, 456. A kept replica that is not in sync would stall a stage.
  Then all remaining replicas are submitted at once. So a partition that a heal makes fully replicated never waits for
  its second new replica.
* Unclean leader elections are allowed (`unclean.leader.election.enable`). While a move is in flight, Kafka lists the
  target first and then the replicas that leave. When the ISR is lost, it elects the first live replica of that list: a
  new one that has copied a part only, before a live original that has more. Kafka then deletes the better copy, and
  messages are lost. So a stage adds all new replicas behind the live originals, and the last stage, which copies
  nothing, brings the replicas to the target. From 12 to 31, the stages are 123, 31. Replicas on dead brokers that leave
  are removed by the first stage, because they would stall it. A partition with one live original has no better copy
  beside its leader: it moves at once. A kept replica that is out of sync is no better than a new one: while it would
  come before a live original, the last stage waits (`out_of_sync_before_better`).

The assignment of a partition between two stages determines the next stage. Only one number is stored, with each
submission: the row's `stage`, the number of new replicas after its completion, and one more for the last stage. That
number distinguishes a completed stage from a cancelled one, and a staged move from one that another client moved.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from kafka_steward.assignment import Assignment, Move
from kafka_steward.cluster.state import Partition
from kafka_steward.execution.moves.states import OPEN, phase_of
from kafka_steward.journal.records import MoveRow, Phase

#: The topic setting that allows unclean leader elections.
UNCLEAN_ELECTIONS = "unclean.leader.election.enable"


def stage_reached(move: Move, replicas: Collection[int]) -> int:
    """Return the number of new replicas if `replicas`, in any order, is an assignment of `move` between two stages.

    Returns 0 if it is not. With all new replicas, those that leave may be missing: they were on dead brokers.
    """
    new, brokers = _new_replicas(move), frozenset(replicas)
    here = len(move.adding & brokers)
    if tuple(replicas) == move.after or not brokers <= frozenset((*move.before, *new[:here])):
        return 0
    lacking = frozenset(move.before) - brokers
    partly = here == len(new) and lacking <= move.removing and len(lacking) < len(move.before)
    return here if not lacking or partly else 0


def is_between_stages(row: MoveRow, replicas: Collection[int]) -> bool:
    """Return True if `replicas`, in any order, are those between two stages of a move that is executed in stages."""
    return is_at_stage(row.move, row.stage, replicas, back=row.state.settled or phase_of(row) is Phase.CANCELLING)


def is_at_stage(move: Move, stage: int, replicas: Collection[int], *, back: bool) -> bool:
    """Return True if `replicas`, in any order, are between two stages of a move of which `stage` was submitted last.

    On the way `back`, any of the new replicas may be there beside the originals.
    """
    if not stage:
        return False
    originals, brokers = frozenset(move.before), frozenset(replicas)
    partly_back = back and originals < brokers <= originals | move.adding and tuple(replicas) != move.after
    return stage_reached(move, replicas) > 0 or partly_back


def rests_between_stages(row: MoveRow, partition: Partition) -> bool:
    """Return True if the move is to be continued with its next stage."""
    return (
        row.stage > 0 and row.state in OPEN and not partition.reassigning and is_between_stages(row, partition.replicas)
    )


def intermediate_assignments(move: Move) -> list[Assignment]:
    """Return the assignments of `move` between its stages, first to last, while no broker is dead."""
    new = _new_replicas(move)
    between = [(*move.before, *new[:count]) for count in range(1, len(new) + 1)]
    return [assignment for assignment in between if assignment != move.after]


def remaining_move(row: MoveRow, partition: Partition | None) -> Move:
    """Return the remaining part of a move: the whole move, or the remaining stages if it is between stages."""
    if partition is None or not rests_between_stages(row, partition):
        return row.move
    return replace(row.move, before=partition.replicas)


def can_roll_back_stages(row: MoveRow, partition: Partition | None, live: frozenset[int]) -> bool:
    """Return True if the move is between stages and can be rolled back.

    The removal of the new replicas would stall on an original broker that is dead (ZooKeeper), or whose log directory
    failed.
    """
    if partition is None or not rests_between_stages(row, partition):
        return False
    return frozenset(row.move.before) <= live - partition.offline


def next_stage(move: Move, partition: Partition, live: frozenset[int], *, one_at_a_time: bool, unclean: bool) -> Move:
    """Return the next reassignment of `move`, whose `before` is the current assignment: a stage, or all of it.

    With `one_at_a_time`, a move that adds several replicas adds one, if all replicas in `before` are live and in sync.
    With `unclean`, the topic allows unclean leader elections. A replica in a failed log directory is as one on a dead
    broker.
    """
    if not (one_at_a_time or unclean):
        return move
    new, live = _new_replicas(move), live - partition.offline
    # A kept replica that is out of sync would stall a stage: then all new replicas are submitted at once.
    if one_at_a_time and len(new) > 1 and frozenset(move.before) <= partition.isr & live:
        return replace(move, after=(*move.before, new[0]))
    if (
        unclean
        and move.adding
        and (_puts_new_before_live(move, live) or out_of_sync_before_better(move, partition, live) is not None)
    ):
        # A replica that leaves, and whose broker is dead, would stall this stage: it leaves with it.
        kept = tuple(broker for broker in move.before if broker in live or broker in move.after)
        return replace(move, after=(*kept, *new))
    return move


def _puts_new_before_live(move: Move, live: frozenset[int]) -> bool:
    """Return True if Kafka would list a new replica before one of several live original ones."""
    originals = frozenset(move.before) & live
    listed = [broker for broker in (*move.after, *move.before) if broker in originals | move.adding]
    return len(originals) > 1 and not originals <= frozenset(listed[: len(originals)])


def out_of_sync_before_better(move: Move, partition: Partition, live: frozenset[int]) -> int | None:
    """Return a kept replica that is out of sync and would come before a live one that precedes it now; None without.

    If the ISR is lost, the one that comes first leads, whatever it has. Kafka lists replicas that leave last.
    """
    listed = (*move.after, *(broker for broker in move.before if broker not in move.after))
    for broker in move.after:
        if broker in move.before and broker not in partition.isr:
            preceding = frozenset(move.before[: move.before.index(broker)]) & live
            if not preceding <= frozenset(listed[: listed.index(broker)]):
                return broker
    return None


def as_completed_stage(row: MoveRow, partition: Partition, live: frozenset[int]) -> Partition:
    """Return the partition as after the stage in flight, if all new replicas are in the ISR; otherwise as it is.

    Kafka completes a stage only when the original replicas are in the ISR as well, and one of them may lag for long.
    The last stage replaces the one in flight, unless it would have to wait, or a replica of the target is on a dead
    broker or in a failed log directory. A move that is being cancelled stays as it is.
    """
    target = target_in_flight(row.move, partition)
    if target is None or target == row.move.after or not row.stage or phase_of(row) is Phase.CANCELLING:
        return partition
    waits = out_of_sync_before_better(replace(row.move, before=target), partition, frozenset(target)) is not None
    complete = row.move.adding <= partition.isr and frozenset(row.move.after) <= live - partition.offline
    if waits or not complete:
        return partition
    return replace(partition, replicas=target, adding=(), removing=())


def target_in_flight(move: Move, partition: Partition) -> Assignment | None:
    """Return the target of the reassignment in flight, if it is the target of `move` or of one of its stages.

    Its `adding` says nothing: it is empty while a broker still shows a completed stage as in flight.
    """
    if not partition.reassigning:
        return None
    target = partition.target
    removed, originals_first = frozenset(partition.removing), target[:1] and target[0] not in move.adding
    stages = originals_first and removed <= move.removing and stage_reached(move, target)
    return target if target == move.after or stages else None


def is_rolling_back(move: Move, partition: Partition) -> bool:
    """Return True if the reassignment in flight removes only new replicas, and ends at the originals in their order.

    An original that a stage has removed, because its broker was dead, is added again, in a stage of its own where it
    would come before a better one (`restoring_stage`).
    """
    kept, originals, added = partition.target, frozenset(move.before), frozenset(partition.adding)
    back = added <= originals and frozenset(partition.removing) <= move.adding
    return back and (kept == move.before or (bool(added) and originals <= frozenset(kept) <= originals | move.adding))


def restoring_stage(move: Move, partition: Partition, live: frozenset[int], *, unclean: bool) -> Assignment:
    """Return the next assignment of a cancelled move on its way from `partition`, at rest, to its originals."""
    back = replace(move, before=partition.replicas, after=move.before)
    return next_stage(back, partition, live, one_at_a_time=False, unclean=unclean).after


def part_in_flight(row: MoveRow, partition: Partition | None) -> Move:
    """Return the part of a submitted move that is in flight: the whole move, or one stage."""
    target = None if partition is None else target_in_flight(row.move, partition)
    if partition is None or target is None:
        return row.move
    if target == row.move.after and frozenset(partition.adding) == row.move.adding:
        return row.move
    return replace(row.move, before=partition.original, after=target)


def stage_number(move: Move, target: Assignment) -> int:
    """Return the number of the stage with this target: that of its new replicas, and one more for the last stage."""
    return len(move.adding & frozenset(target)) + (target == move.after)


def stage_text(move: Move, stage: int) -> str:
    """Return the number of new replicas at a stage as text; empty for a whole move, which is stage 0."""
    return f"{min(stage, len(move.adding))} of {len(move.adding)} new replicas" if stage else ""


def _new_replicas(move: Move) -> list[int]:
    return [broker for broker in move.after if broker in move.adding]
