"""Each operation has what it needs: its properties, and, if it is planned, a solver and a rule of the checker."""

from __future__ import annotations

import pytest

from kafka_steward.assignment import OPERATIONS, MoveRule, Operation
from kafka_steward.errors import PlanError
from kafka_steward.planning.checker.rules import RULES
from kafka_steward.planning.files.options import find_operation
from kafka_steward.planning.shards import SOLVERS


def test_each_operation_has_its_properties() -> None:
    assert set(OPERATIONS) == set(Operation)
    assert all(spec.help for spec in OPERATIONS.values())


def test_each_planned_operation_has_a_solver_and_the_checker_has_each_rule() -> None:
    assert set(SOLVERS) == {operation for operation, spec in OPERATIONS.items() if spec.rule}
    assert set(RULES) == set(MoveRule)


def test_an_operation_that_is_not_planned_is_refused() -> None:
    with pytest.raises(PlanError, match="There is no operation 'rollback'; there are heal, rebalance"):
        find_operation("rollback")
