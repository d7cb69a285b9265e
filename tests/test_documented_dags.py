"""The DAG files in the documentation: Airflow finds each of them, and each makes DAGs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import_module("tests.airflow_home")  # before Airflow, which looks for its home when it is imported

ROOT = Path(__file__).parents[1]
#: An import of functions that make DAGs, by either name of the package.
_IMPORT = re.compile(r"^from (?:airflow_provider_)?kafka_steward\.dags import ", re.MULTILINE)


def dag_files() -> Iterator[tuple[str, str]]:
    """The blocks that import a function of ours which makes a DAG, by the page and the line of each."""
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        text = page.read_text()
        for found in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            if _IMPORT.search(found[1]):
                line = text.count("\n", 0, found.start()) + 1
                yield f"{page.relative_to(ROOT)}:{line}", found[1]


FILES = dict(dag_files())


def test_there_are_such_blocks_on_several_pages() -> None:
    assert {place.partition(":")[0] for place in FILES} >= {"README.md", "docs/workflows.md", "docs/notifications.md"}


@pytest.mark.parametrize("place", FILES)
def test_airflow_finds_the_dag_file_and_its_dags(place: str, tmp_path: Path) -> None:
    from airflow.dag_processing.dagbag import DagBag
    from airflow.utils.file import might_contain_dag

    (file := tmp_path / "file.py").write_text(FILES[place])
    assert might_contain_dag(str(file), safe_mode=True), "import from airflow_provider_kafka_steward.dags"
    bag = DagBag(tmp_path, safe_mode=True)
    assert bag.import_errors == {}
    assert bag.dags
