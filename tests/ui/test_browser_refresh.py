"""The refresh of the health and of the audit trail in a real browser: it takes nothing from whoever reads or types."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.eventually import eventually
from tests.page import Page, browser
from tests.ui.conftest import everything
from tests.ui.test_browser import CHARTS, FAILED, MOVING, change, go

if TYPE_CHECKING:
    # Not at run time: Airflow must be imported after tests.airflow_home.
    from tests.ui.scene import Scene
    from tests.ui.serving import Served

pytestmark = [pytest.mark.slow]

#: Seconds in which a page refreshes itself at least once.
REFRESHED_S = 7
#: Rows of the audit trail get another reason, which takes as much room.
DRAIN = "UPDATE steward_audit SET reason = :after WHERE reason = :before"


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("browser")) as opened:
        opened.emulate(width=1200, height=900)
        yield opened


@pytest.fixture
def desk(scene: Scene) -> Iterator[Served]:
    from tests.ui.serving import served

    with served(everything()) as opened:
        yield opened


def test_the_table_and_the_charts_of_the_health_follow_the_checks(tab: Page, desk: Served, scene: Scene) -> None:
    go(tab, f"{desk.page}health?conn={FAILED}")
    eventually(lambda: _assert(tab.evaluate(CHARTS) == 3), within=60)
    tab.evaluate("window.before = document.querySelector('.chart canvas')")
    tab.evaluate(
        "window.drawn = []; window.uPlot = new Proxy(uPlot, {construct(made, [options, values, box]) "
        "{ drawn.push(...values.flat()); return new made(options, values, box); }})"
    )
    change(
        scene,
        "INSERT INTO steward_health (cluster_id, at_ms, measures) SELECT cluster_id, MAX(at_ms) + 1000, "
        """'{"under_replicated_partitions": 4711}' FROM steward_health GROUP BY cluster_id""",
    )
    tab.shows("4711")
    assert tab.evaluate("document.getElementById('updated').textContent").startswith("Updated ")
    eventually(lambda: _assert(tab.evaluate("drawn.includes(4711)")), within=30)
    assert tab.evaluate(f"!document.contains(window.before) && {CHARTS} === 3")


def test_new_rows_of_the_audit_trail_are_shown_and_a_search_that_is_being_typed_stays(
    tab: Page, desk: Served, scene: Scene
) -> None:
    go(tab, f"{desk.page}audit?conn={MOVING}")
    tab.type("input[name=person]", "gra")
    change(scene, DRAIN, before="drain of broker 4", after="drain of broker 5")
    time.sleep(REFRESHED_S)
    assert "drain of broker 5" not in tab.text, "nothing moves while somebody types"
    tab.evaluate("document.activeElement.blur()")
    tab.evaluate("document.querySelector('.scroll').scrollLeft = 30; scrollTo(0, 200)")
    scrolled = "[scrollY, document.querySelector('.scroll').scrollLeft]"
    before = tab.evaluate(scrolled)
    tab.shows("drain of broker 5")
    assert tab.evaluate("document.querySelector('input[name=person]').value") == "gra"
    assert tab.evaluate(scrolled) == before
    # What was replaced is the place of the next refresh.
    change(scene, DRAIN, before="drain of broker 5", after="drain of broker 6")
    tab.shows("drain of broker 6")


def _assert(holds: bool) -> None:
    assert holds
