"""The page from end to end: real brokers, a real Airflow, and a person with a browser who sees and presses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from kafka_steward.assignment import Assignment
from kafka_steward.execution.topics.creation import unwatched_reason
from kafka_steward.hooks.session import ClusterSession
from kafka_steward.journal.audit import Action
from kafka_steward.journal.mailbox import read_one
from kafka_steward.journal.records import PlanStatus
from kafka_steward.sandbox import Sandbox
from tests.airflow.conftest import Desk
from tests.airflow.people import asked, wait_until_parked
from tests.airflow.test_cancel_dag import REASSIGN, described, printed
from tests.documents import delete_document
from tests.eventually import eventually
from tests.journal.zookeeper import forget_journal
from tests.page import Page, browser

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow]

DAGS = """\
# The Airflow DAGs of one cluster, for each button of the page.
from kafka_steward.dags import cancel, controls, heal, rebalance
heal(conn_id="{conn_id}")
rebalance(conn_id="{conn_id}")
cancel(conn_id="{conn_id}")
controls(conn_id="{conn_id}")
"""
#: The first topic is empty and moves at once, the second is held up by the throttle. Both leave broker 4.
SMALL: dict[int, Assignment] = {0: (4, 2, 3), 1: (2, 4, 3)}
LARGE: dict[int, Assignment] = {0: (4, 2, 3), 1: (3, 4, 2), 2: (2, 3, 4)}
THROTTLE = 100_000
STATE = "document.querySelector('p.state .word')?.textContent"
MOVES = "document.querySelector('#moves + p')?.textContent"
FACTS = """
Object.fromEntries([...document.querySelectorAll(".facts > div")].map(e => [...e.children].map(c => c.textContent)))
"""
SWITCH = f"({FACTS.strip()})['Reassignments']"


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("browser")) as page:
        page.emulate(width=1300, height=1000)
        yield page


@pytest.fixture
def watched(desk: Desk, sandbox: Sandbox) -> Iterator[Desk]:
    """The cluster with its DAGs and its watch; on a ZooKeeper cluster, the documents are in ZooKeeper."""
    if sandbox.zookeeper:
        forget_journal(sandbox.zookeeper)
        desk = replace(desk, extra={"zookeeper": sandbox.zookeeper})
    desk.configure(heal_failure_interval=1800, throttle=THROTTLE)
    dags = [f"{name}_{desk.conn_id}" for name in ("heal", "rebalance", "cancel", "controls")]
    desk.add_dags("page_on_kafka", DAGS.format(conn_id=desk.conn_id), *dags)
    desk.pause(dags[0], paused=False)
    with desk.opened() as opened:
        # A watch of the test before looks its connection up each minute, and has the settings and the journal of that.
        eventually(lambda: assert_watched(opened), within=180)
    yield desk
    desk.pause(dags[0], paused=True)


def assert_watched(opened: ClusterSession) -> None:
    assert unwatched_reason(opened.journal) == ""


@pytest.fixture
def ann(tab: Page, watched: Desk) -> Page:
    """The browser of ann, who may run DAGs and is no administrator, at the fleet."""
    answer = watched.airflow.call_api("POST", "/auth/token", {"username": "ann", "password": "ann"})
    tab.log_in(watched.airflow.url, answer["access_token"])
    tab.go(f"{watched.airflow.url}/kafka-steward/")
    tab.shows(watched.conn_id)
    return tab


@pytest.fixture
def opened(watched: Desk) -> Iterator[ClusterSession]:
    with watched.opened() as opened:
        yield opened


def press(page: Page, action: str, *values: str, answer: str = "Requested as the run") -> None:
    """Open a button of the page, fill in its fields, press it, and close it again: the page updates itself then."""
    button = f"[id^='action-{action}']"
    page.click(f"{button} summary")
    for number, value in enumerate(values, 1):
        page.type(f"{button} label:nth-of-type({number}) input", value)
    page.click(f"{button} button")
    page.shows(answer)
    page.click(f"{button} summary")


def facts(page: Page) -> dict[str, str]:
    return dict(page.evaluate(FACTS))


def see(page: Page, script: str, pattern: str, *, within: float = 120) -> re.Match[str]:
    """Wait until what a script returns matches."""

    def found() -> re.Match[str]:
        match = re.search(pattern, str(page.evaluate(script)))
        assert match, page.text
        return match

    return eventually(found, within=within)


def see_the_failed_broker_and_its_return(page: Page, desk: Desk, sandbox: Sandbox) -> None:
    sandbox.kill(4)
    page.shows("waiting", "failed: 4", within=120)
    page.click("th a", desk.conn_id)
    page.shows("A broker has failed; it is healed when its grace period ends.", "failed heals in", within=180)
    shown = facts(page)
    assert shown["Failed"] == "4"
    assert re.fullmatch(r"(2\d|30) min", shown["Heals in"])
    sandbox.restart(4)
    eventually(lambda: assert_no_countdown(page), within=180)
    sandbox.wait_replicated(within_s=180)


def assert_no_countdown(page: Page) -> None:
    assert "Heals in" not in facts(page), page.text


def drain_and_approve(page: Page, desk: Desk) -> None:
    """Ask for a plan that empties broker 4, and approve it, on the page of the cluster."""
    rebalance = f"rebalance_{desk.conn_id}"
    press(page, "drain", "4")
    run_id = desk.runs(rebalance)[-1]["dag_run_id"]
    asked(desk, rebalance, run_id)
    wait_until_parked(desk, run_id)
    page.shows("Waiting for approval")
    press(page, "approve-", "rack move", answer="Answered.")
    eventually(lambda: assert_state(desk, rebalance, run_id, "approve", "success"), within=180)


def assert_state(desk: Desk, dag_id: str, run_id: str, task: str, state: str) -> None:
    assert desk.tasks(dag_id, run_id)[task] == state


def test_a_person_sees_a_failed_broker_approves_a_plan_and_rolls_it_back_while_it_runs(
    ann: Page, watched: Desk, sandbox: Sandbox, opened: ClusterSession, topic: str
) -> None:
    for name, assignments in ((f"{topic}-small", SMALL), (f"{topic}-large", LARGE)):
        sandbox.create_topics(name, assignments=assignments)
    sandbox.fill(f"{topic}-large", 12_000_000)
    see_the_failed_broker_and_its_return(ann, watched, sandbox)

    drain_and_approve(ann, watched)
    link = "document.querySelector('section[aria-labelledby=running] a.digest')?.textContent"
    digest = see(ann, link, "^[0-9a-f]{12}$")[0]
    ann.click("section[aria-labelledby=running] a.digest")
    ann.shows(f"Plan {digest}", "Fewest possible", "approved by ann: rack move")
    see(ann, MOVES, r"completed \d+.*submitted \d+")
    assert opened.cluster.reassignments(), "it is in the middle"

    press(ann, "rollback", "the wrong broker")
    see(ann, STATE, "^rolled back$", within=300)
    assert "by ann: the wrong broker" in facts(ann)["Cancelled"]
    assert described(sandbox, f"{topic}-small") == printed(SMALL)
    assert described(sandbox, f"{topic}-large") == printed(LARGE)
    listed = sandbox.kafka_tool(REASSIGN, "--bootstrap-server", sandbox.bootstrap, "--list")
    assert "No partition reassignments found." in listed
    (plan,) = [each for each in opened.journal.plans.latest(5) if each.digest.startswith(digest)]
    assert plan.status is PlanStatus.ROLLED_BACK
    who = {row.entry.who.person for row in opened.journal.audit.rows(plan=plan.digest, action=Action.REQUEST)}
    assert who == {"ann"}
    ann.go(f"{watched.airflow.url}/kafka-steward/audit?conn={watched.conn_id}&plan={digest}&person=ann")
    ann.shows("the wrong broker", "Times are in UTC")


def test_the_switch_and_an_announced_restart_are_pressed_and_shown_from_the_watchs_mirror(
    ann: Page, watched: Desk, zookeeper_sandbox: Sandbox, opened: ClusterSession
) -> None:
    ann.click("th a", watched.conn_id)
    ann.shows("Brokers by rack", within=180)
    press(ann, "disable", "the racks are being rewired")
    see(ann, SWITCH, "^disabled by ann: the racks are being rewired$")
    press(ann, "announce", "2", "20")
    ann.shows("1 announced restart", "restart announced", within=120)
    announced = read_one(opened.journal.mailbox, "/admin/rolling_bounce/2")
    assert announced is not None
    assert read_one(opened.journal.mailbox, "/admin/reassign_cancel") is not None
    delete_document(opened.journal.mailbox, announced.path)
    press(ann, "enable", "it is over")
    see(ann, SWITCH, "^enabled$")
    assert read_one(opened.journal.mailbox, "/admin/reassign_cancel") is None
    eventually(lambda: assert_not_shown(ann, "restart announced"), within=120)


def assert_not_shown(page: Page, text: str) -> None:
    assert text not in page.text
