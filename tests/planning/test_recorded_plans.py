"""Plans are byte for byte those that were recorded: every operation, every option, in one shard and in several.

Where a plan is to change, `python -m tests.planning.test_recorded_plans` records it anew, and the commit says why.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kafka_steward.planning.shards import SHARD_ROWS
from tests.local_plan import planned
from tests.planning.test_spark_agrees import CASES, FEW, Case

RECORDED = Path(__file__).parent / "recorded_plans.json"
PLANS = {f"{case}, {name}": (case, rows) for case in CASES for name, rows in (("one", SHARD_ROWS), ("several", FEW))}


def digest_of(case: Case, shard_rows: int) -> str:
    """The digest of the plan, which covers every move and all of the proof."""
    return planned(case.snapshot, case.operation.value, case.options, shard_rows).digest


def test_all_plans_are_recorded() -> None:
    assert json.loads(RECORDED.read_text()).keys() == PLANS.keys()
    assert len(PLANS) == 108


@pytest.mark.parametrize("name", PLANS)
def test_the_plan_is_as_it_was_recorded(name: str) -> None:
    assert digest_of(*PLANS[name]) == json.loads(RECORDED.read_text())[name]


if __name__ == "__main__":
    RECORDED.write_text(json.dumps({name: digest_of(*plan) for name, plan in PLANS.items()}, indent=2) + "\n")
