"""Solve small mixed-integer programs, goal by goal, with HiGHS. No other module uses highspy.

The goals are minimized one after the other, in the order of their rank: each keeps the least value of those before it.
Their costs would not fit into one objective of doubles. A program has the same solution on every machine: HiGHS runs
in one thread, and stops after a number of nodes, not after a time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import highspy
import numpy as np
import numpy.typing as npt

from kafka_steward.planning.solver.problem import Floats, Ints

#: The nodes of the search tree after which a goal is left as good as it is.
_MAX_NODES = 300
#: HiGHS takes a number within this of a whole number for it.
_TOLERANCE = 1e-7


@dataclass
class IntegerProgram:
    """A program that grows by blocks of columns (variables) and rows (constraints)."""

    _lower: list[Floats] = field(default_factory=list)
    _upper: list[Floats] = field(default_factory=list)
    _whole: list[npt.NDArray[np.bool_]] = field(default_factory=list)
    _columns: int = 0
    _rows: int = 0
    _entries: list[tuple[Ints, Ints, Floats]] = field(default_factory=list)
    _bounds: list[tuple[Floats, Floats]] = field(default_factory=list)
    _goals: list[tuple[Ints, Floats]] = field(default_factory=list)

    def add_columns(self, count: int, upper: npt.ArrayLike = 1.0, *, whole: bool = True) -> Ints:
        """Add variables between 0 and `upper`, and return their numbers."""
        self._lower.append(np.zeros(count))
        self._upper.append(np.broadcast_to(np.asarray(upper, np.float64), (count,)))
        self._whole.append(np.full(count, whole))
        self._columns += count
        return np.arange(self._columns - count, self._columns)

    def add_rows(self, low: npt.ArrayLike, high: npt.ArrayLike, count: int) -> Ints:
        """Add constraints on sums that `add_terms` fills, and return their numbers."""
        bounds = (np.broadcast_to(np.asarray(bound, np.float64), (count,)) for bound in (low, high))
        self._bounds.append((next(bounds), next(bounds)))
        self._rows += count
        return np.arange(self._rows - count, self._rows)

    def add_terms(self, row: npt.ArrayLike, column: npt.ArrayLike, factor: npt.ArrayLike = 1.0) -> None:
        """Add columns to the sums of rows, each with its factor; all arguments are broadcast."""
        rows, columns, factors = np.broadcast_arrays(row, column, np.asarray(factor, np.float64))
        self._entries.append((rows.ravel(), columns.ravel(), factors.ravel()))

    def add_goal(self, column: Ints, cost: npt.ArrayLike) -> None:
        """Add the goal of the next rank: the least cost of columns."""
        self._goals.append((column, np.broadcast_to(np.asarray(cost, np.float64), column.shape)))

    def solve(self) -> tuple[Ints, bool] | None:
        """Return the columns' values as whole numbers, and whether each goal is proven; None if none were found.

        A goal for which the search finds no values before its limit keeps those of the goal before it.
        """
        model = self._build()
        proven, values = True, None
        for columns, costs in self._goals:
            dense = np.zeros(self._columns)
            np.add.at(dense, columns, costs)
            model.changeColsCost(self._columns, np.arange(self._columns, dtype=np.int32), dense)
            # No start from the goal before: HiGHS 1.16 may return it in place of the best solution (findings/highs-…).
            model.run()
            if model.getInfo().primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
                proven = False
                break
            proven &= model.getModelStatus() == highspy.HighsModelStatus.kOptimal
            values = np.array(model.getSolution().col_value)
            used = np.flatnonzero(dense)
            # All costs are whole numbers, and so is the least sum of them.
            model.addRow(-highspy.kHighsInf, round(float(dense @ values)) + 0.5, len(used), used, dense[used])
        return None if values is None else (np.rint(values).astype(np.int64), proven)

    def _build(self) -> Any:
        model: Any = highspy.Highs()  # type: ignore[no-untyped-call]
        options = {
            "output_flag": False,
            "threads": 1,
            "mip_rel_gap": 0.0,
            "mip_abs_gap": 0.0,
            "mip_max_nodes": _MAX_NODES,
            "mip_feasibility_tolerance": _TOLERANCE,
        }
        for name, value in options.items():
            model.setOptionValue(name, value)
        row, column, factor = (np.concatenate([entry[part] for entry in self._entries]) for part in range(3))
        # HiGHS takes each pair of row and column once.
        pairs, at = np.unique(row * self._columns + column, return_inverse=True)
        factor = np.bincount(at, weights=factor)
        row, column = pairs // self._columns, pairs % self._columns
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = self._columns, self._rows
        lp.col_cost_ = np.zeros(self._columns)
        lp.col_lower_, lp.col_upper_ = np.concatenate(self._lower), np.concatenate(self._upper)
        lp.row_lower_, lp.row_upper_ = (np.concatenate([bound[side] for bound in self._bounds]) for side in (0, 1))
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.searchsorted(row, np.arange(self._rows + 1)).astype(np.int32)
        lp.a_matrix_.index_, lp.a_matrix_.value_ = column.astype(np.int32), factor.astype(np.float64)
        kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
        lp.integrality_ = [kinds[int(whole)] for whole in np.concatenate(self._whole)]
        model.passModel(lp)
        return model
