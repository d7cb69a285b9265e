"""The browser that npm brings shows a page, on a machine that has none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chromium import brought
from tests.page import browser


@pytest.mark.slow
def test_the_browser_that_npm_brings_shows_a_page(tmp_path: Path) -> None:
    with browser(tmp_path, brought()) as page:
        page.go("data:text/html,<button onclick=\"document.body.append('pressed')\">Press</button>")
        page.click("button", "Press")
        page.shows("pressed")
        assert page.photograph("pressed").stat().st_size > 1000
