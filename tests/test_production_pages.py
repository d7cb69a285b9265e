"""Each page of docs/production says whether it was verified, and the site links it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs" / "production").glob("*.md"))
PLATFORMS = {"astro.md", "composer.md", "docker-compose.md", "helm.md", "mwaa.md"}
STATE = re.compile(r"^\*\*(Verified here|By the vendor's documents)\*\*, as of \d{4}-\d\d-\d\d[;:.]", re.MULTILINE)


def test_there_is_a_page_for_each_platform() -> None:
    assert {page.name for page in PAGES} == PLATFORMS | {"index.md"}


@pytest.mark.parametrize("name", sorted(PLATFORMS))
def test_it_says_what_it_rests_on_and_is_linked(name: str) -> None:
    folder = ROOT / "docs" / "production"
    assert STATE.search((folder / name).read_text())
    assert f"production/{name}" in (ROOT / "mkdocs.yml").read_text()
    assert f"({name})" in (folder / "index.md").read_text()


@pytest.mark.parametrize("page", ["README.md", "docs/production/index.md"])
def test_where_the_state_is_is_said_before_anything_is_typed(page: str) -> None:
    text = (ROOT / page).read_text()
    assert "AIRFLOW_HOME" in text or "AIRFLOW__KAFKA_STEWARD__JOURNAL" in text
    assert re.search(r"\b(setting )?`?workspace`?\b", text)
    assert "s3://bucket/" in text
