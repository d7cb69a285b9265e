"""The commands as Airflow takes them in, each time that it starts."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.process


def test_taking_them_in_imports_neither_kafka_nor_arrow_nor_what_carries_plans_out() -> None:
    script = (
        "import sys; from kafka_steward.cli import get_kafka_steward_commands as get; assert get()\n"
        "heavy, ours = {'kafka', 'kazoo', 'pyarrow', 'alembic'}, ('kafka_steward.cluster', 'kafka_steward.execution')\n"
        "print(sorted(m for m in sys.modules if m in heavy or m.startswith(ours)))"
    )
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=300)
    assert printed.stdout.splitlines()[-1] == "[]"
