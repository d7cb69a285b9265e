"""Apply: turn a reassignment from a person or a file into a plan, checked and put in order."""

from __future__ import annotations

import numpy as np

from kafka_steward.assignment import Assignment, TopicPartition
from kafka_steward.errors import PlanError
from kafka_steward.planning.files.reassignment import assignments
from kafka_steward.planning.solver.arrays import Brokers, Rows
from kafka_steward.planning.solver.drafts import Draft
from kafka_steward.planning.solver.selection import Case, Fate

__all__ = ["apply_given"]


def apply_given(case: Case) -> Draft:
    """Return the given assignments as new ones.

    Raises PlanError that names a partition or broker that the snapshot does not have, or a broker that has failed.
    """
    rows, brokers = case.rows, case.brokers
    given = assignments(case.options.reassignment)
    wanted = _rows_of(rows, given)
    moving = rows.moving[wanted]
    fate = np.full(len(rows), int(Fate.UNTOUCHED))
    fate[wanted] = np.where(moving, Fate.IN_FLIGHT, Fate.PLANNED)
    planned = np.sort(wanted[~moving])
    targets = [given[TopicPartition(rows.topics[rows.topic[row]], int(rows.number[row]))] for row in planned]
    stays = (fate != Fate.PLANNED)[rows.row]
    index = [_index(brokers, rows.name(int(row)), target) for row, target in zip(planned, targets, strict=True)]
    row = np.concatenate([rows.row[stays], np.repeat(planned, [len(target) for target in targets]).astype(np.int64)])
    broker = np.concatenate([rows.broker[stays], np.array([one for ids in index for one in ids], np.int64)])
    order = np.argsort(row, kind="stable")
    draft = Draft(rows, fate, row[order], broker[order], bound=0)
    # No plan reaches exactly these assignments with fewer moves than they differ by.
    return Draft(rows, fate, draft.row, draft.broker, bound=int(draft.added.sum()))


def _rows_of(rows: Rows, given: dict[TopicPartition, Assignment]) -> np.typing.NDArray[np.int64]:
    known = {topic: at for at, topic in enumerate(rows.topics)}
    first = np.searchsorted(rows.topic, np.arange(len(rows.topics) + 1))
    found = []
    for name in given:
        if name.topic not in known:
            continue
        low, high = first[known[name.topic] : known[name.topic] + 2]
        at = low + int(np.searchsorted(rows.number[low:high], name.partition))
        if at >= high or rows.number[at] != name.partition:
            raise PlanError(f"The reassignment names {name}, which the snapshot does not have.")
        found.append(at)
    return np.array(found, np.int64)


def _index(brokers: Brokers, name: str, target: Assignment) -> list[int]:
    known = {int(broker): at for at, broker in enumerate(brokers.ids)}
    for broker in target:
        if broker not in known:
            raise PlanError(f"The reassignment of {name} names broker {broker}, which the snapshot does not have.")
        if brokers.state[known[broker]] == "failed":
            raise PlanError(f"The reassignment of {name} names broker {broker}, which has failed.")
    return [known[broker] for broker in target]
