"""Excluded brokers receive nothing, and the others come as near to their fair shares as can be: proven so."""

import random
from dataclasses import replace
from functools import cache

import numpy as np

from kafka_steward.planning.checker.certificate import find_prices
from kafka_steward.planning.checker.check import check
from kafka_steward.planning.checker.constraints import PlacementOutcome
from kafka_steward.planning.files.formats import PlanFolder, SnapshotFolder
from tests.builders import planned
from tests.planning.integer_solver import random_case
from tests.planning.outcomes import price_objections, replicas_moved
from tests.planning.test_certificate import outcome_after
from tests.rings import tried


@cache
def excluding(seed: int) -> tuple[SnapshotFolder, int, PlanFolder] | None:
    """A random snapshot, one usable broker of it to exclude, and the plan; None where it cannot be."""
    snapshot = random_case(seed)
    usable = [row["broker"] for row in snapshot.brokers.to_pylist() if row["state"] in ("live", "new")]
    receive_excluded = random.Random(seed).choice(usable)
    rows = snapshot.partitions.to_pylist()
    if any(
        row["target_rf"] > len(set(usable) - {receive_excluded} | set(usable) & set(row["replicas"])) for row in rows
    ):
        return None
    return snapshot, receive_excluded, planned(snapshot, "rebalance", {"exclude_brokers": [receive_excluded]})


def test_plans_with_excluded_brokers_are_valid_and_proven_nearest() -> None:
    judged = 0
    for seed in range(tried(150)):
        found = excluding(seed)
        if found is None:
            continue
        snapshot, receive_excluded, plan = found
        assert not any(receive_excluded in move.adding for move in plan.moves), seed
        verdict = check(snapshot, plan)
        assert (verdict.problems, verdict.unproven) == ([], ()), seed
        judged += 1
    assert judged > tried(150) / 2


def test_with_excluded_brokers_one_move_more_is_not_proven() -> None:
    judged = 0
    for seed in range(tried(60)):
        found = excluding(seed)
        if found is None:
            continue
        outcome = outcome_after(found[0], found[2])
        good = find_prices(outcome)
        assert good is not None
        for worse in one_move_worse(outcome, random.Random(seed)):
            judged += 1
            assert find_prices(worse) is None
            assert price_objections(worse, good)
    assert judged >= tried(60)


def one_move_worse(outcome: PlacementOutcome, dice: random.Random) -> list[PlacementOutcome]:
    """Positions in which two partitions have swapped brokers of one rack, at the price of moves: no count changes."""
    found = []
    pairs = [(row, other) for row in range(len(outcome.topic)) for other in range(row)]
    dice.shuffle(pairs)
    for row, other in pairs[:60]:
        if outcome.topic[row] != outcome.topic[other]:
            continue
        for one, two in np.argwhere(
            (outcome.placed[row] & ~outcome.placed[other])[:, None] & (outcome.placed[other] & ~outcome.placed[row])
        ):
            changed = outcome.placed.copy()
            changed[[row, other], [one, two]] = False
            changed[[row, other], [two, one]] = True
            worse = replace(outcome, placed=changed)
            receive_excluded = worse.placed & ~worse.held & outcome.constraints.receive_excluded
            if (
                replicas_moved(worse) > replicas_moved(outcome)
                and not receive_excluded.any()
                and outcome.rack[one] == outcome.rack[two]
            ):
                found.append(worse)
    return found[:3]
