"""What the README prints works as it is printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.airflow.conftest import Desk

README = Path(__file__).parents[2] / "README.md"

pytestmark = pytest.mark.airflow


def test_the_dag_file_of_the_readme_is_found_by_the_dag_processor(desk: Desk) -> None:
    printed = README.read_text().split("```python\n", 1)[1].split("```", 1)[0]
    assert len(printed.splitlines()) == 3
    desk.add_dags("readme", printed, "heal_kafka_production")
    assert desk.dag("heal_kafka_production")["is_paused"]
    assert desk.airflow.api("GET", "/api/v2/importErrors")["total_entries"] == 0
