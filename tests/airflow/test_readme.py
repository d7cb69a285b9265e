"""What the README prints works as it is printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.airflow.conftest import Desk

README = Path(__file__).parents[2] / "README.md"

pytestmark = [pytest.mark.airflow, pytest.mark.usefixtures("kraft_sandbox")]


def test_the_dag_file_of_the_readme_is_found_by_the_dag_processor(desk: Desk) -> None:
    (text,) = [block.split("```", 1)[0] for block in README.read_text().split("```python\n")[1:]]
    names = [f"{name}_kafka_production" for name in ("heal", "rebalance", "cancel")]
    desk.add_dags("readme", text, *names, by_spark=names)
    assert [desk.dag(name)["is_paused"] for name in names] == [True, False, False]
    errors = desk.airflow.call_api("GET", "/api/v2/importErrors")["import_errors"]
    assert [error for error in errors if "readme" in error["filename"]] == []
