"""Pairs of rows and brokers, looked up in a table where it is small enough, and by sorting where it is not."""

from __future__ import annotations

import random

import numpy as np
import pytest

from kafka_steward.planning.solver.problem import is_pair_in


@pytest.mark.parametrize("many", [0, 1 << 26], ids=["by sorting", "by a table"])
def test_a_pair_is_found_among_others(monkeypatch: pytest.MonkeyPatch, many: int) -> None:
    monkeypatch.setattr("kafka_steward.planning.solver.problem._MANY_PAIRS", many)
    for seed in range(50):
        dice = random.Random(seed)
        mine, others = ([(dice.randrange(9), dice.randrange(9)) for _ in range(dice.randrange(30))] for _ in range(2))
        columns = [np.array([pair[at] for pair in pairs], np.int64) for pairs in (mine, others) for at in (0, 1)]
        assert is_pair_in(*columns).tolist() == [pair in others for pair in mine]
