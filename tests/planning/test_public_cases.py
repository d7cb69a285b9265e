"""KAFKA-19048's own cases: equal or better in moves, leaders and failover order, and proven."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_steward.planning.checker.check import check
from tests.builders import planned
from tests.planning.public_cases import CASES, PublicCase, figures, snapshot_of_case

PAGE = Path(__file__).parents[2] / "docs" / "planning.md"


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("prefer", ["leader-stability", "isr-order"])
def test_plans_are_proven_and_have_these_figures(case: PublicCase, prefer: str) -> None:
    snapshot = snapshot_of_case(case)
    plan = planned(snapshot, "rebalance", {"prefer": prefer})
    verdict = check(snapshot, plan)
    assert (verdict.problems, verdict.unproven) == ([], ())
    assert plan.proof["leader_evenness"] == "even"
    assert plan.proof["replicas_moved"] == plan.proof["lower_bound"]
    assert figures(plan) == (case.ordered if prefer == "isr-order" else case.stable)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_with_its_ranking_no_figure_is_worse_than_its_own(case: PublicCase) -> None:
    assert all(ours <= theirs for ours, theirs in zip(case.ordered, case.theirs, strict=True))


def test_the_ranking_decides_one_case_alone() -> None:
    different = [name for name, case in CASES.items() if case.stable != case.ordered]
    assert different == ["rf2IsrOrder"]
    case = CASES["rf2IsrOrder"]
    plan = planned(snapshot_of_case(case), "rebalance", {"prefer": "isr-order"})
    line = plan.proof["spread"]["next_in_line"]["after"]
    assert (line["pairs"], line["most"]) == (6, 1)
    assert planned(snapshot_of_case(case), "rebalance").moves == []


def test_the_page_has_the_figures() -> None:
    told = PAGE.read_text()
    for name, case in CASES.items():
        cells = [" / ".join(map(str, each)) for each in (case.theirs, case.stable, case.ordered)]
        assert f"| {name} | {' | '.join(cells)} |" in told
