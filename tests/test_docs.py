"""The site of docs/: pages that are made from code are current, and nothing that it should list is missing."""

from __future__ import annotations

import re
from pathlib import Path

from kafka_steward.provider_info import get_provider_info
from tests.cli_page import page

DOCS = Path(__file__).parents[1] / "docs"


def test_the_page_of_the_verbs_is_the_one_that_the_code_makes() -> None:
    written = (DOCS / "reference" / "cli.md").read_text()
    assert written == page(), "python -m tests.cli_page > docs/reference/cli.md"


def test_the_reference_lists_every_module_of_operators_sensors_and_notifiers() -> None:
    text = (DOCS / "reference" / "python.md").read_text()
    listed = set(re.findall(r"^::: (kafka_steward\.\w+\.\w+)", text, re.MULTILINE))
    info = get_provider_info()
    modules = {name for part in ("operators", "sensors") for entry in info[part] for name in entry["python-modules"]}
    notifiers = {name.rpartition(".")[0] for name in info["notifications"]}
    assert {name for name in listed if not name.startswith("kafka_steward.dags")} == modules | notifiers


def test_the_list_of_decisions_has_each_page_with_its_title() -> None:
    folder = DOCS / "decisions"
    titles = {path.name: path.read_text().split("\n")[0].removeprefix("# ") for path in folder.glob("0*.md")}
    listed = re.findall(r"^- \[(.*)\]\((.*)\)$", (folder / "index.md").read_text(), re.MULTILINE)
    assert [(titles[name], name) for name in sorted(titles)] == listed
