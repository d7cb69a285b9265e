"""The support matrix of docs/versions.md: its dates are those of runs, and come from no other place."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests import versions
from tests.versions import BEGIN, CHECKS, END, PAGE, Check, Run, page_with, recorded


@pytest.mark.project
def test_the_page_has_what_is_recorded() -> None:
    page = PAGE.read_text()
    assert page.count(BEGIN) == page.count(END) == 1
    assert page_with(recorded(), page) == page, "python -m tests.versions --write NAME rewrites it"


def test_nothing_is_recorded_that_has_no_check_or_is_of_the_future() -> None:
    assert recorded().keys() <= CHECKS.keys()
    today = datetime.now(UTC).date().isoformat()
    for run in recorded().values():
        assert run.date <= today
        assert bool(run.versions) == run.passed != bool(run.failure)


def test_a_run_is_recorded_as_it_ended_on_its_day(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(folder: Path) -> str:
        raise AssertionError("first\nDAG() has no argument | x\n")

    checks = {"good": Check("Kafka", "all", lambda _: "Kafka 9"), "bad": Check("Airflow 1", "all", fail)}
    page, record = tmp_path / "page.md", tmp_path / "versions.json"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    record.write_text("{}\n")
    monkeypatch.setattr(versions, "CHECKS", checks)
    monkeypatch.setattr(versions, "PAGE", page)
    monkeypatch.setattr(versions, "RECORDED", record)
    assert versions.main(["--write", "bad"]) == 0
    today = datetime.now(UTC).date().isoformat()
    assert recorded() == {"bad": Run(False, "", today, "DAG() has no argument / x")}
    assert "| Kafka | all | | not run | | `good` |" in page.read_text()
    versions.main(["--write", "good"])
    assert f"| Kafka | all | Kafka 9 | {today} | passed | `good` |" in page.read_text()
    assert page.read_text().startswith("before\n")
    assert page.read_text().endswith(f"{END}\nafter\n")
