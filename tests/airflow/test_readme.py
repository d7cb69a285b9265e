"""What the README prints works as it is printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.airflow.conftest import Desk

README = Path(__file__).parents[2] / "README.md"

pytestmark = [pytest.mark.airflow, pytest.mark.usefixtures("kraft_sandbox")]


def test_the_dag_files_of_the_readme_are_found_by_the_dag_processor(desk: Desk) -> None:
    blocks = [block.split("```", 1)[0] for block in README.read_text().split("```python\n")[1:]]
    heal, cancel = [block for block in blocks if "kafka_steward.dags" in block]
    for name, text in {"heal_kafka_production": heal, "cancel_kafka_production": cancel}.items():
        desk.add_dags(f"readme_{name}", text, name, by_spark=[name])
    assert desk.dag("heal_kafka_production")["is_paused"]
    assert not desk.dag("cancel_kafka_production")["is_paused"]
    # A file that was read while the test before took it away may still be listed.
    errors = desk.airflow.call_api("GET", "/api/v2/importErrors")["import_errors"]
    assert [error for error in errors if "readme_" in error["filename"]] == []
