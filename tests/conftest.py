"""What every test may use: a real cluster in each mode (`sandbox`), a fresh topic (`topic`), counts by mode."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.pace import slowdown_at_start

# Its comings and goings would bury what a failed test says.
logging.getLogger("kafka").setLevel(logging.CRITICAL)
# It says goodbye when the process ends, and pytest has closed its streams by then.
logging.getLogger("py4j").setLevel(logging.WARNING)
# A machine that is busy is no failure.
unhurried: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
# The same cases each time: what fails, fails because of a change. `make slow` looks for new ones.
settings.register_profile("steady", derandomize=True, **unhurried)
settings.register_profile("searching", derandomize=False, print_blob=True, **unhurried)
settings.load_profile("steady")

pytest_plugins = ["kafka_steward.sandbox.pytest_plugin", "tests.modes", "tests.rings", "tests.unstable"]


def pytest_configure(config: pytest.Config) -> None:
    """Try some of a property's examples where not every case is asked for."""
    from tests.rings import tried  # pytest rewrites the asserts of a plugin that is not imported before it is loaded

    if not config.getoption("--every-case"):
        settings.register_profile("some", settings.get_profile("steady"), max_examples=tried(100))
        settings.load_profile("some")


def pytest_sessionstart() -> None:
    """Measure how slow the machine is, once, before the first limit is set."""
    slowdown_at_start()
