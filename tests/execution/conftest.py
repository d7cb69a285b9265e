"""A small simulated cluster and its journal, for tests that need no other."""

from __future__ import annotations

import pytest

from kafka_steward.journal.store import Journal
from tests.simulated_plan import memory_journal
from tests.simulator import Simulator


@pytest.fixture
def simulator() -> Simulator:
    return Simulator.of("1a 2b 3c 4a", "t: 123 231 312")


@pytest.fixture
def journal(simulator: Simulator) -> Journal:
    return memory_journal(simulator)
