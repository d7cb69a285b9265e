"""The page in a real api-server, without Kafka: who may see it and press its buttons, and what a button does."""

from __future__ import annotations

import html
import json
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import pytest

from kafka_steward.sandbox.airflow import LocalAirflow
from tests.airflow.conftest import Desk
from tests.eventually import eventually

pytestmark = [pytest.mark.airflow]

CLUSTER = "page-cluster"
DAGS = """\
# Airflow reads only those DAG files that name it, so this line stays.
from kafka_steward.dags import cancel, controls, rebalance, throttle
cancel_it = cancel(conn_id="{conn_id}")
controls_it = controls(conn_id="{conn_id}")
rebalance_it = rebalance(conn_id="{conn_id}", dag_id="called_otherwise")
throttle_it = throttle(conn_id="{conn_id}", is_paused_upon_creation=True)
"""
CONN_ID = "kafka_page"
#: Each route, and a text that it alone shows.
ROUTES = {
    "": "those that need a person first",
    f"cluster?conn={CONN_ID}": "Brokers by rack",
    f"health?conn={CONN_ID}": "No health check of this time",
    f"health.json?conn={CONN_ID}": '"at_s":[]',
    f"audit?conn={CONN_ID}": "Search",
    f"audit.csv?conn={CONN_ID}": "when,completed,action",
    "stop": "airflow kafka-steward cancel --all",
    "static/page.css": "--accent",
    "static/htmx-2.0.11.min.js": "var htmx=function",
    f"plan?conn={CONN_ID}&digest=abcdef": "The journal has no plan abcdef",
}


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    text: str


@pytest.fixture(scope="module")
def page(airflow: LocalAirflow) -> Iterator[Desk]:
    """A connection whose brokers do not answer, its journal, and its DAGs."""
    from kafka_steward.journal.store import open_journal

    journal = f"sqlite:///{airflow.home}/kafka_steward/page-{secrets.token_hex(4)}.db"
    desk = Desk(airflow, CONN_ID, "127.0.0.1:1", journal, extra={"cluster_id": CLUSTER})
    desk.configure()
    open_journal(journal, CLUSTER).close()
    dag_ids = (f"cancel_{CONN_ID}", f"controls_{CONN_ID}", "called_otherwise", f"throttle_{CONN_ID}")
    desk.add_dags("page", DAGS.format(conn_id=CONN_ID), *dag_ids)
    desk.connect("kafka_unused", conn_type="kafka_steward", host="127.0.0.1:1")
    yield desk
    (airflow.dags / "page.py").unlink()
    airflow.call_api("DELETE", "/api/v2/connections/kafka_unused")


def get(airflow: LocalAirflow, path: str, user: str | None, *, cookie: bool = False, etag: str | None = None) -> Answer:
    headers = {"If-None-Match": etag} if etag else {}
    if user:
        token = airflow.call_api("POST", "/auth/token", {"username": user, "password": user})["access_token"]
        headers |= {"Cookie": f"_token={token}"} if cookie else {"Authorization": f"Bearer {token}"}
    connection = HTTPConnection(urlsplit(airflow.url).netloc, timeout=60)
    try:
        connection.request("GET", f"/kafka-steward/{path}", headers=headers)
        answer = connection.getresponse()
        return Answer(
            answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read().decode()
        )
    finally:
        connection.close()


def actions(text: str) -> dict[str, str]:
    """The buttons of a page, each with why it is refused; empty if it is not."""
    found = re.findall(r'<details class="action" id="action-([^"]+)">(.*?)</details>', text, re.DOTALL)
    refusals = {name: re.search(r'<p class="refusal">(.*?)</p>', body) for name, body in found}
    return {name: html.unescape(refusal[1]) if refusal else "" for name, refusal in refusals.items()}


@pytest.mark.parametrize("path", ROUTES)
def test_nobody_sees_anything(page: Desk, path: str) -> None:
    answer = get(page.airflow, path, None)
    # Not the status alone: Airflow answers 200, with its own page, for a path that is not mounted.
    assert (answer.status, ROUTES[path] in answer.text) == (401, False)
    assert "Sign in to Airflow" in answer.text


@pytest.mark.parametrize("user", ["victor", "uma", "ann", "admin"])
def test_whoever_may_read_a_dag_of_the_cluster_sees_every_route(page: Desk, user: str) -> None:
    for path, shown in ROUTES.items():
        answer = get(page.airflow, path, user, cookie=user == "ann")
        assert answer.status == (404 if path.startswith("plan") else 200), path
        assert shown in answer.text
        assert answer.headers["content-security-policy"].startswith("default-src 'self';")
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_cluster_without_a_dag_is_shown_to_nobody_and_named_to_who_may_read_connections(page: Desk) -> None:
    for user, named in {"victor": False, "uma": False, "ann": True, "admin": True}.items():
        assert get(page.airflow, "cluster?conn=kafka_unused", user).status == 404
        assert ("kafka_unused" in get(page.airflow, "", user).text) == named


def test_each_user_is_shown_what_they_may_do_and_why_not(page: Desk) -> None:
    for user in ("victor", "uma", "ann", "admin"):
        found = actions(get(page.airflow, f"cluster?conn={CONN_ID}", user).text)
        assert set(found) == {"dry-run", "drain", "disable", "announce"}
        refused = "" if user != "victor" else f"You may not start runs of the DAG controls_{CONN_ID}; ask"
        assert found["disable"].startswith(refused)
        assert bool(found["disable"]) == bool(refused)
        assert bool(found["drain"]) == bool(refused), "found by its tag, whatever its id is"


def test_the_button_disables_in_the_name_of_the_person_and_a_viewer_cannot(page: Desk) -> None:
    from kafka_steward.journal.store import open_journal

    text = get(page.airflow, f"cluster?conn={CONN_ID}", "ann").text
    form = re.search(r'id="action-disable">.*?<form class="request" (.*?) novalidate>', text, re.DOTALL)
    assert form
    request = {name: html.unescape(value) for name, value in re.findall(r'data-(\w+)="([^"]*)"', form[1])}
    body: dict[str, Any] = json.loads(request["body"])
    body["conf"]["reason"] = "the racks are being rewired"
    with pytest.raises(Exception, match="403"):
        page.airflow.call_api(request["method"], request["url"], body, user="victor")
    run = page.airflow.call_api(request["method"], request["url"], body, user="ann")
    ended = eventually(lambda: _ended(page, run["dag_run_id"]), within=180, every=1)
    assert ended == "success"
    with open_journal(page.journal, CLUSTER) as journal:
        (row,) = journal.audit.rows()
    assert (row.entry.reason, row.entry.who.person) == ("disabled: the racks are being rewired", "ann")
    shown = get(page.airflow, f"audit?conn={CONN_ID}&person=ann", "victor").text
    assert "disabled: the racks are being rewired" in shown


def test_airflow_lists_the_page_in_its_navigation(page: Desk) -> None:
    plugins = page.airflow.call_api("GET", "/api/v2/plugins")["plugins"]
    (ours,) = [each for each in plugins if each["name"] == "kafka_steward"]
    (view,) = ours["external_views"]
    assert (view["href"], view["destination"], view["url_route"]) == ("/kafka-steward/", "nav", "kafka-steward")
    assert get(page.airflow, "static/icon.svg", "victor").headers["content-type"].startswith("image/svg+xml")
    assert page.airflow.call_api("GET", "/api/v2/plugins/importErrors")["import_errors"] == []


def test_an_unchanged_fragment_is_not_sent_again(page: Desk) -> None:
    first = get(page.airflow, f"health?conn={CONN_ID}&fragment=1", "ann")
    again = get(page.airflow, f"health?conn={CONN_ID}&fragment=1", "ann", etag=first.headers["etag"])
    assert (first.status, again.status, again.text) == (200, 304, "")
    assert "<html" not in first.text


def _ended(page: Desk, run_id: str) -> str:
    (run,) = [each for each in page.runs(f"controls_{CONN_ID}") if each["dag_run_id"] == run_id]
    assert run["state"] in ("success", "failed"), run["state"]
    return str(run["state"])
