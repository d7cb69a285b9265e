from __future__ import annotations

import pytest

from tests.airflow_home import connect
from tests.protocol.simulated_watch import Yard

__all__ = ["connect"]


@pytest.fixture
def yard() -> Yard:
    """Three partitions on five brokers, with a journal in memory."""
    return Yard()
