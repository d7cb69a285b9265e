"""What every test may use: a real cluster in each mode (`sandbox`), a fresh topic (`topic`), counts by mode."""

from __future__ import annotations

import logging

from hypothesis import settings

# Its comings and goings would bury what a failed test says.
logging.getLogger("kafka").setLevel(logging.CRITICAL)
# The same cases each time: what fails, fails because of a change. `make slow` looks for new ones.
settings.register_profile("steady", derandomize=True)
settings.register_profile("searching", derandomize=False, print_blob=True)
settings.load_profile("steady")

pytest_plugins = ["kafka_steward.sandbox.pytest_plugin", "tests.modes"]
