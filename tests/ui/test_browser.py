"""The page in a real browser: it updates itself, its buttons ask Airflow, and everybody can read it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa

from tests.axe import serious_findings
from tests.chromium import chromium
from tests.eventually import eventually
from tests.page import Page, browser
from tests.ui.conftest import Visitor, dags_of, everything

if TYPE_CHECKING:
    # Not at run time: Airflow must be imported after tests.airflow_home.
    from tests.ui.scene import Scene
    from tests.ui.serving import Served
    # Not at run time: Airflow must be imported after tests.airflow_home.

pytestmark = [pytest.mark.slow]

FAILED, MOVING = "kafka_failed", "kafka_moving"
#: What violates the content security policy, and what is loaded from elsewhere, while a page is shown.
WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation", e => violations.push(e.violatedDirective + " " + e.blockedURI));
"""
CHARTS = "document.querySelectorAll('.chart canvas').length"
#: All that a person can use, with every part of the page opened, and nothing being replaced meanwhile.
CONTROLS = """
document.getElementById("pause")?.click();
document.querySelectorAll("details").forEach(each => { each.open = true; });
window.controls = [...document.querySelectorAll(
  "a[href], button:enabled, input, select, summary, [tabindex='0']"
)].filter(each => each.getClientRects().length);
document.activeElement.blur();
controls.length
"""
#: A date and time has seven parts, each of which takes the focus in turn.
MOST_PARTS = 20
#: The number of the control that has the focus, and whether a person sees which one it is.
FOCUSED = """
(() => {
  const style = getComputedStyle(document.activeElement);
  const box = document.activeElement.getBoundingClientRect();
  const inside = box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth;
  const outlined = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
  return [controls.indexOf(document.activeElement), inside && outlined];
})()
"""
ELSEWHERE = "performance.getEntriesByType('resource').map(e => e.name).filter(n => !n.startsWith(location.origin))"


def pages() -> tuple[str, ...]:
    from tests.ui.scene import digest_of

    shown = (f"plan?conn={MOVING}&digest={digest_of('running')}", f"health?conn={FAILED}", f"audit?conn={MOVING}")
    return ("", f"cluster?conn={FAILED}", f"cluster?conn={MOVING}", *shown, "stop", "cluster?conn=missing")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("browser")) as page:
        page.tell("Page.addScriptToEvaluateOnNewDocument", source=WATCH)
        page.emulate(width=1200, height=900)
        yield page


@pytest.fixture
def desk(scene: Scene) -> Iterator[Served]:
    from tests.ui.serving import served

    with served(everything()) as opened:
        yield opened


def go(page: Page, url: str) -> None:
    page.go(url)
    page.shows("Times are in UTC")
    eventually(lambda: _assert(page.evaluate("document.readyState") == "complete"), within=60)


def _assert(holds: Any, *said: Any) -> None:
    assert holds, said


def change(scene: Scene, statement: str, **values: Any) -> None:
    engine = sa.create_engine(scene.url)
    with engine.begin() as connection:
        connection.execute(sa.text(statement), values)
    engine.dispose()


def test_it_updates_itself_and_leaves_alone_what_is_open(page: Page, desk: Served, scene: Scene) -> None:
    go(page, f"{desk.page}cluster?conn={MOVING}")
    page.evaluate("window.before = document.querySelector('#live h2')")
    change(scene, "UPDATE steward_progress SET partitions_settled = 150")
    page.shows("50 % of 300 partitions")
    assert page.evaluate("document.getElementById('updated').textContent").startswith("Updated ")
    # Unchanged: what is shown is not replaced.
    page.evaluate("window.before = document.querySelector('#live h2')")
    time.sleep(7)
    assert page.evaluate("document.contains(window.before)")
    # While somebody fills in a form, nothing moves.
    page.click("#action-cancel summary")
    change(scene, "UPDATE steward_progress SET partitions_settled = 225")
    time.sleep(7)
    assert "50 % of 300" in page.text
    page.click("#action-cancel summary")
    page.shows("75 % of 300 partitions")
    page.click("#pause")
    change(scene, "UPDATE steward_progress SET partitions_settled = 240")
    time.sleep(7)
    assert "75 % of 300" in page.text


def test_a_page_that_cannot_be_shown_yet_is_shown_as_soon_as_it_can(page: Page, desk: Served, scene: Scene) -> None:
    change(scene, "ALTER TABLE steward_journal RENAME TO steward_away")
    try:
        go(page, f"{desk.page}cluster?conn={MOVING}")
        page.shows("Service Unavailable")
    finally:
        change(scene, "ALTER TABLE steward_away RENAME TO steward_journal")
    page.shows("Brokers by rack", within=60)


def test_a_new_state_is_announced_to_a_screen_reader(page: Page, desk: Served, scene: Scene) -> None:
    go(page, f"{desk.page}cluster?conn={MOVING}")
    change(scene, "UPDATE steward_plan SET status = 'stuck' WHERE status = 'running'")
    eventually(
        lambda: _assert(page.evaluate("document.getElementById('announce').textContent").startswith("stuck")), within=60
    )


def test_cancelling_takes_two_steps_and_a_reason(page: Page, desk: Served) -> None:
    from tests.ui.scene import digest_of

    go(page, f"{desk.page}cluster?conn={MOVING}")
    page.click("#action-cancel summary")
    page.click("#action-cancel button")
    page.shows("Reason is needed.")
    assert desk.requests == []
    page.type("#action-cancel input", 'wrong "racks" <b>')
    page.click("#action-cancel button")
    page.shows("Requested as the run manual__1.")
    conf = {"plan": digest_of("running"), "scope": "pending", "reason": 'wrong "racks" <b>'}
    body = {"logical_date": None, "conf": conf}
    assert desk.requests == [("POST", f"/api/v2/dags/cancel_{MOVING}/dagRuns", body)]
    follow = page.evaluate("document.querySelector('#action-cancel .outcome a').getAttribute('href')")
    assert follow == f"/dags/cancel_{MOVING}/runs/manual__1"


def test_numbers_and_lists_are_sent_as_such_and_a_refusal_is_shown(page: Page, desk: Served) -> None:
    go(page, f"{desk.page}cluster?conn={MOVING}")
    page.click("#action-throttle summary")
    page.type("#action-throttle input[data-kind=megabytes]", "fast")
    page.click("#action-throttle button")
    page.shows("MB/s into one broker cannot be fast.")
    page.type("#action-throttle input[data-kind=megabytes]", "2.5")
    page.type("#action-throttle input[data-kind=text]", "peak")
    desk.answer = (403, {"detail": "Forbidden <script>"})
    page.click("#action-throttle button")
    page.shows("Airflow refused (403): Forbidden <script>")
    assert desk.requests[0][2]["conf"] == {
        "plan": desk.requests[0][2]["conf"]["plan"],
        "rate": 2_500_000,
        "reason": "peak",
    }
    page.click("#action-drain summary")
    page.type("#action-drain input", "3, 4 3")
    page.click("#action-drain button")
    eventually(lambda: _assert(len(desk.requests) == 2), within=30)
    assert desk.requests[1][2]["conf"] == {"operation": "drain", "brokers": [3, 4]}


def test_a_dry_run_is_asked_for_as_such(page: Page, desk: Served) -> None:
    go(page, f"{desk.page}cluster?conn={MOVING}")
    page.click("#action-dry-run summary")
    page.click("#action-dry-run button")
    page.shows("Requested as the run manual__1.")
    body = {"logical_date": None, "conf": {"operation": "rebalance", "dry_run": True}}
    assert desk.requests == [("POST", f"/api/v2/dags/rebalance_{MOVING}/dagRuns", body)]


def test_a_refused_button_cannot_be_pressed(page: Page, scene: Scene) -> None:
    from tests.ui.serving import served

    with served(Visitor({MOVING: dags_of(MOVING)}, may_start=False)) as desk:
        go(page, f"{desk.page}cluster?conn={MOVING}")
        page.click("#action-cancel summary")
        page.shows("You may not start runs of the DAG", "airflow kafka-steward cancel")
        page.click("#action-cancel button")
        time.sleep(1)
        assert desk.requests == []


#: The document of the page within Airflow's frame.
INSIDE = "document.querySelector('iframe').contentDocument"
#: The middle of an element in the frame, as the window around it counts.
PLACE = """
(() => {
  const frame = document.querySelector("iframe"), found = frame.contentDocument.querySelector(%s);
  found.scrollIntoView({block: "center", behavior: "instant"});
  const outer = frame.getBoundingClientRect(), box = found.getClientRects()[0];
  return [outer.x + frame.clientLeft + box.x + box.width / 2, outer.y + frame.clientTop + box.y + box.height / 2];
})()
"""


def open_frame(page: Page, desk: Served, ready: str) -> None:
    """Show the cluster whose plan runs in Airflow's frame, until it has what `ready` selects."""
    page.go(f"{desk.url}/frame")
    eventually(lambda: _assert(page.evaluate(f"{INSIDE}?.body?.innerText.includes('3 clusters')")), within=60)
    page.evaluate(f"{INSIDE}.querySelector('a[href*={MOVING}]').click()")
    eventually(lambda: _assert(page.evaluate(f"!!{INSIDE}?.querySelector({json.dumps(ready)})")), within=60)


def click_inside(page: Page, selector: str, *, button: str = "left", modifiers: int = 0) -> None:
    """Click where an element of the frame is, as a person does."""
    x, y = page.evaluate(PLACE % json.dumps(selector))
    for kind in ("mousePressed", "mouseReleased"):
        options = {"button": button, "clickCount": 1, "modifiers": modifiers}
        page.tell("Input.dispatchMouseEvent", type=kind, x=x, y=y, **options)


def leaves_for(page: Page, path: str) -> None:
    """Wait until the whole window, and not the frame alone, is at this path."""
    eventually(lambda: _assert(page.evaluate("location.pathname") == path, page.evaluate("location.href")), within=30)


def test_the_buttons_work_in_the_frame_of_airflow_and_lead_to_the_run(page: Page, desk: Served) -> None:
    open_frame(page, desk, "#action-disable button:enabled")
    page.evaluate(f"{INSIDE}.querySelector('#action-disable').open = true")
    page.evaluate(f"{INSIDE}.querySelector('#action-disable input').value = 'night'")
    page.evaluate(f"{INSIDE}.querySelector('#action-disable button').click()")
    eventually(lambda: _assert(desk.requests), within=30)
    assert desk.requests[0][2]["conf"] == {"action": "disable", "reason": "night"}
    run = "#action-disable .outcome a"
    eventually(lambda: _assert(page.evaluate(f"!!{INSIDE}.querySelector({json.dumps(run)})")), within=30)
    click_inside(page, run)
    leaves_for(page, f"/dags/controls_{MOVING}/runs/manual__1")


def test_a_link_leads_out_of_the_frame_of_airflow_by_keyboard_too(page: Page, desk: Served) -> None:
    open_frame(page, desk, "footer a")
    page.evaluate("document.querySelector('iframe').contentWindow.focus()")
    page.evaluate(f"{INSIDE}.querySelector('footer a').focus()")
    key(page, "Enter", 13)
    leaves_for(page, "/")


@pytest.mark.parametrize(("button", "modifiers"), [("left", 2), ("middle", 0)])
def test_a_link_is_opened_in_a_new_tab_from_the_frame_of_airflow(
    page: Page, desk: Served, button: str, modifiers: int
) -> None:
    open_frame(page, desk, "footer a")
    click_inside(page, "footer a", button=button, modifiers=modifiers)  # 2: with the control key
    (tab,) = eventually(lambda: _tabs(page, f"{desk.url}/"), within=30)
    page.tell("Target.closeTarget", targetId=tab)
    assert page.evaluate("location.pathname") == "/frame"


def test_an_approval_is_reached_from_the_frame_of_airflow(page: Page, scene: Scene) -> None:
    from kafka_steward.ui.access import PendingApproval
    from tests.ui.serving import served

    asked = PendingApproval("rebalance_it", "manual__1", "approve", -1, "Move 3 replicas?", 0, answerable=False)
    visitor = everything()
    visitor.approvals = [asked]
    with served(visitor) as desk:
        open_frame(page, desk, "[aria-labelledby=approvals] p a")
        click_inside(page, "[aria-labelledby=approvals] p a")
        leaves_for(page, "/dags/rebalance_it/runs/manual__1/tasks/approve")


def _tabs(page: Page, url: str) -> list[str]:
    targets = page.tell("Target.getTargets")["targetInfos"]
    found = [each["targetId"] for each in targets if each["url"] == url]
    assert found, targets
    return found


def test_the_charts_are_drawn_and_nothing_breaks_the_policy(page: Page, desk: Served) -> None:
    go(page, f"{desk.page}health?conn={FAILED}")
    eventually(lambda: _assert(page.evaluate(CHARTS) == 3), within=60)
    for path in pages():
        go(page, desk.page + path)
        assert page.evaluate("violations") == [], path
        assert page.evaluate(ELSEWHERE) == [], path


#: Languages that Intl refuses: that of Chromium in the locale C, and none.
REFUSED = ("en-US@posix", "")
LANGUAGE = "Object.defineProperty(Navigator.prototype, 'language', {{get: () => {}, configurable: true}});"


@pytest.mark.parametrize("language", REFUSED)
def test_the_charts_are_drawn_in_a_language_that_the_browser_does_not_know(
    page: Page, desk: Served, language: str
) -> None:
    source = LANGUAGE.format(json.dumps(language))
    script = page.tell("Page.addScriptToEvaluateOnNewDocument", source=source)["identifier"]
    try:
        go(page, f"{desk.page}health?conn={FAILED}")
        eventually(lambda: _assert(page.evaluate(CHARTS) == 3), within=30)
    finally:
        page.tell("Page.removeScriptToEvaluateOnNewDocument", identifier=script)


def test_the_charts_are_drawn_in_the_locale_c(desk: Served, tmp_path: Path) -> None:
    found = chromium()
    locale = {"LANG": "C", "LC_ALL": "C", "LANGUAGE": "C"}
    program = replace(found, environment={**found.environment, **locale}, language=None)
    with browser(tmp_path / "c", program) as page:
        go(page, f"{desk.page}health?conn={FAILED}")
        eventually(lambda: _assert(page.evaluate(CHARTS) == 3), within=30)


@pytest.mark.parametrize(("width", "dark"), [(1200, False), (1200, True), (360, False), (360, True)])
def test_nobody_is_hindered(page: Page, desk: Served, width: int, dark: bool) -> None:
    page.emulate(width=width, height=800, dark=dark)
    try:
        for path in pages():
            go(page, desk.page + path)
            page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
            assert serious_findings(page) == [], path
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path
    finally:
        page.emulate(width=1200, height=900)


def test_it_is_used_by_keyboard(page: Page, desk: Served) -> None:
    go(page, f"{desk.page}cluster?conn={MOVING}")
    key(page, "Tab", 9)
    assert page.evaluate("document.activeElement.className") == "skip"
    key(page, "Enter", 13)
    eventually(lambda: _assert(page.evaluate("document.activeElement.id") == "main"), within=30)
    page.evaluate("document.querySelector('#action-cancel summary').focus()")
    key(page, "Enter", 13)
    eventually(lambda: _assert(page.evaluate("document.querySelector('#action-cancel').open")), within=30)
    key(page, "Tab", 9)
    page.tell("Input.insertText", text="by keyboard")
    key(page, "Enter", 13)
    eventually(lambda: _assert(desk.requests), within=30)


@pytest.mark.parametrize("width", [1200, 360])
def test_every_control_is_reached_by_the_tab_key_and_its_focus_is_seen(page: Page, desk: Served, width: int) -> None:
    page.emulate(width=width, height=800)
    try:
        for path in pages():
            go(page, desk.page + path)
            count = page.evaluate(CONTROLS)
            assert count > 3, path
            seen: dict[int, bool] = {}
            for _ in range(count + MOST_PARTS):
                key(page, "Tab", 9)
                number, visible = page.evaluate(FOCUSED)
                seen[number] = visible and seen.get(number, True)
                if len(seen) == count:
                    break
            assert sorted(seen) == list(range(count)), path
            hidden = [number for number, visible in seen.items() if not visible]
            assert page.evaluate(f"{hidden}.map(number => controls[number].outerHTML)") == [], path
    finally:
        page.emulate(width=1200, height=900)


def test_it_is_read_without_scripts(page: Page, desk: Served, tmp_path: Path) -> None:
    page.tell("Emulation.setScriptExecutionDisabled", value=True)
    try:
        for path, words in {
            "": "grace period",
            f"cluster?conn={MOVING}": "25 % of",
            f"health?conn={FAILED}": "Most",
        }.items():
            page.go(desk.page + path)
            page.shows("Times are in UTC", words)
            assert not page.evaluate("document.querySelector('form.request button:enabled')")
    finally:
        page.tell("Emulation.setScriptExecutionDisabled", value=False)


def key(page: Page, name: str, code: int) -> None:
    text = {"text": "\r"} if name == "Enter" else {}
    for kind in ("keyDown", "keyUp"):
        given = text if kind == "keyDown" else {}
        page.tell("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code, **given)


# pages that refresh themselves

#: Seconds in which a page refreshes itself at least once.
REFRESHED_S = 7
#: Rows of the audit trail get another reason, which takes as much room.
DRAIN = "UPDATE steward_audit SET reason = :after WHERE reason = :before"


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("browser")) as opened:
        opened.emulate(width=1200, height=900)
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
