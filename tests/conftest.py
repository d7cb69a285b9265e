"""What every test may use: a real cluster in each mode (`sandbox`), a fresh topic (`topic`), counts by mode."""

from __future__ import annotations

pytest_plugins = ["kafka_steward.sandbox.pytest_plugin", "tests.modes"]
