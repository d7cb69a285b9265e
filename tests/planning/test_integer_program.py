"""Integer programs: goal after goal, each at its least value."""

from __future__ import annotations

import numpy as np

from kafka_steward.planning.solver.integer_program import IntegerProgram


def test_each_goal_is_at_the_least_value_that_those_before_it_leave() -> None:
    """The case in which HiGHS, given the solution of the goal before, returns that in place of the best one."""
    program = IntegerProgram()
    whole, part = program.add_columns(12), program.add_columns(7, whole=False)
    columns = np.concatenate([whole, part])
    sums = [
        ([0, 1], [8]),
        ([2], [9]),
        ([3, 4, 5], [10]),
        ([6, 7], [11]),
        ([5], [12]),
        ([3, 4], [13]),
        ([0, 3], [14]),
        ([1, 4], [15]),
        ([2, 5, 6], [16, 17, 18]),
        ([7], []),
    ]
    for more, less in sums:
        row = program.add_rows(0, 0, 1)
        program.add_terms(row, columns[more])
        program.add_terms(row, columns[np.array(less, np.int64)], -1)
    goals = [([8, 9, 10, 11], [-1] * 4), ([12, 13], [1, 1]), ([14, 15, 16, 17, 18], [81, 8, 73, 77, 81])]
    for of, costs in goals:
        program.add_goal(columns[of], costs)
    solved = program.solve()
    assert solved is not None
    values, proven = solved
    assert ([int(values[of] @ np.array(costs)) for of, costs in goals], proven) == ([-4, 1, 239], True)


def test_a_program_without_a_solution_is_none() -> None:
    program = IntegerProgram()
    column = program.add_columns(1)
    program.add_terms(program.add_rows(2, 3, 1), column)
    program.add_goal(column, 1)
    assert program.solve() is None
