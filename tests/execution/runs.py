"""Plans on a simulated cluster of each kind: what the tests of the Runner set out from."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulated_plan import World, heal_moves, memory_journal
from tests.simulator import Simulator

__all__ = ["apply", "heal", "simulator"]

TOPIC = "t: 123 231 312 124 213 321"


@pytest.fixture(params=("kraft", "zookeeper"))
def simulator(request: pytest.FixtureRequest) -> Simulator:
    return Simulator.of("1a 2b 3c 4a", TOPIC, mode=request.param)


def heal(simulator: Simulator, **more: Any) -> World:
    """Broker 1 died; it is replaced by 4 wherever 4 is not yet."""
    simulator.kill(1)
    return World(simulator, memory_journal(simulator), heal_moves(simulator, 1, 4), failed=(1,), **more)


def apply(simulator: Simulator, *moves: Any, **more: Any) -> World:
    """What a person asked for."""
    return World(simulator, memory_journal(simulator), moves, auto_generated=False, **more)
