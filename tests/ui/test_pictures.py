"""The pictures of docs/page.md are those that the command takes."""

from __future__ import annotations

import re
from pathlib import Path

from tests.ui.pictures import PICTURES

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_links_every_picture_that_the_command_takes_and_no_other() -> None:
    linked = set(re.findall(r"\]\(pictures/([^)]+)\)", (DOCS / "page.md").read_text()))
    assert linked == set(PICTURES)
    assert {path.name for path in (DOCS / "pictures").iterdir()} == set(PICTURES)
