#!/usr/bin/env bash
# HiGHS, asked for one goal after the other, returns the solution that it was given to start from, under the value of a better one.
#
# A program is solved for three goals in turn. After each, a row keeps the goal's least value, the costs become those of the next goal, and the
# solution so far is given as the start (`setSolution`), to save time. highspy 1.16.0 then reports the status `kOptimal` and the least value as
# `objective_function_value`; the values of `getSolution` are still those of the start, which cost more. Without the start, both agree.
# Whoever takes the columns from `getSolution` carries out a plan that is not the one that was proven to be the best.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
timeout 300 "$folder/venv/bin/pip" install --quiet --disable-pip-version-check highspy==1.16.0 numpy==2.4.6

cat > "$folder/goals.py" <<'PYTHON'
"""Print the value that HiGHS reports for the last goal, and what its solution costs, with and without a start."""

import highspy
import numpy as np

BINARY, ALL = 12, 19
#: The columns of each row; the first ones count once, and the others once less. Each row is 0.
ROWS = [
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
#: The costs of each goal, by column.
GOALS = [
    dict.fromkeys((8, 9, 10, 11), -1),
    dict.fromkeys((12, 13), 1),
    {14: 81, 15: 8, 16: 73, 17: 77, 18: 81},
]


def solve(*, start: bool) -> tuple[int, int]:
    model = highspy.Highs()
    for option, value in (("output_flag", False), ("threads", 1), ("mip_rel_gap", 0.0), ("mip_abs_gap", 0.0)):
        model.setOptionValue(option, value)
    program = highspy.HighsLp()
    program.num_col_, program.num_row_ = ALL, len(ROWS)
    program.col_cost_, program.col_lower_, program.col_upper_ = np.zeros(ALL), np.zeros(ALL), np.ones(ALL)
    program.row_lower_ = program.row_upper_ = np.zeros(len(ROWS))
    kinds = highspy.HighsVarType
    program.integrality_ = [kinds.kInteger if at < BINARY else kinds.kContinuous for at in range(ALL)]
    entries = [[*((at, 1.0) for at in more), *((at, -1.0) for at in less)] for more, less in ROWS]
    program.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    program.a_matrix_.start_ = np.cumsum([0, *map(len, entries)]).astype(np.int32)
    program.a_matrix_.index_ = np.array([at for row in entries for at, _ in row], np.int32)
    program.a_matrix_.value_ = np.array([value for row in entries for _, value in row])
    model.passModel(program)
    columns, values = np.arange(ALL, dtype=np.int32), None
    for goal in GOALS:
        costs = np.array([float(goal.get(at, 0)) for at in range(ALL)])
        model.changeColsCost(ALL, columns, costs)
        if start and values is not None:
            model.setSolution(ALL, columns, values)
        model.run()
        assert model.getModelStatus() == highspy.HighsModelStatus.kOptimal
        reported, values = model.getInfo().objective_function_value, np.array(model.getSolution().col_value)
        used = np.flatnonzero(costs).astype(np.int32)
        model.addRow(-highspy.kHighsInf, round(float(costs @ values)) + 0.5, len(used), used, costs[used])
    return round(reported), round(float(costs @ values))


print("highspy", highspy.Highs().version())
found = {start: solve(start=start) for start in (False, True)}
for start, (reported, cost) in found.items():
    print(f"{'with' if start else 'without'} a start: optimal, reported {reported}, its solution costs {cost}")
least = found[False][0]
raise SystemExit(0 if found == {False: (least, least), True: (least, found[True][1])} and found[True][1] > least else 1)
PYTHON
timeout 60 "$folder/venv/bin/python" "$folder/goals.py"
