"""Arc costs of the placement's flow: moves before bytes before leaders, in numbers that its solver can hold."""

from __future__ import annotations

from kafka_steward.planning.solver.arrays import Ints

__all__ = ["costs_of"]

_MIB = 1 << 20
#: OR-tools multiplies costs by the number of nodes; beyond this limit they would overflow.
_MAX_SCALED_COST = 1 << 61


def costs_of(size: Ints, factor: Ints, nodes: int, *, soft: bool) -> tuple[Ints, int, int]:
    """Return the cost of a new replica of each row, the worth of keeping a leader, and the cost of a step off a bound.

    Moves come before bytes, bytes before leaders. Sizes are in mebibytes, rounded up, or in the smallest multiple of a
    mebibyte whose costs fit. Leaders are left out if their costs do not fit.
    """
    for lead, unit in [(1, _MIB), (0, _MIB), *((0, _MIB << shift) for shift in range(4, 60, 4))]:
        weight = -(-size // unit)
        move = int((weight * factor).sum()) + 1
        scale = len(size) + 1 if lead else 1
        price = (weight + move) * scale
        far = 8 * int(price.max())
        if (far if soft else int(price.max())) * (nodes + 1) < _MAX_SCALED_COST:
            return price, lead, far
    raise AssertionError("costs of one unit always fit")
