"""Airflow's pages in a real browser, as a person meets them: the connection form, its Test button, the heal's form."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafka_steward.dags.params import SECTION
from kafka_steward.sandbox import Sandbox
from kafka_steward.sandbox.airflow import LocalAirflow
from tests.airflow.conftest import Desk
from tests.airflow.test_heal_dag import THREE_LINES
from tests.eventually import eventually
from tests.page import Page, browser

pytestmark = [pytest.mark.airflow, pytest.mark.slow]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("browser")) as page:
        yield page


@pytest.fixture
def admin(page: Page, airflow: LocalAirflow) -> Page:
    """The browser, with somebody logged in."""
    answer = airflow.call_api("POST", "/auth/token", {"username": "admin", "password": "admin"})
    page.log_in(airflow.url, answer["access_token"])
    return page


def fill_in(page: Page, desk: Desk, conn_id: str, host: str, port: str) -> None:
    """Add a connection of our type by hand."""
    page.go(f"{desk.airflow.url}/connections?search={conn_id}")
    page.click("button", "Add Connection")
    page.type("[role=dialog] input[name=connection_id]", conn_id)
    page.click("[role=dialog] input[role=combobox]")
    page.tell("Input.insertText", text="Kafka Steward")
    page.click("[role=option]", "Kafka Steward")
    page.shows("Bootstrap servers", "SASL user", "SASL password")
    page.type("[role=dialog] input[name=host]", host)
    page.type("[role=dialog] input[name=port]", port)


def press_test(page: Page, desk: Desk, conn_id: str) -> None:
    """Press the Test button of its row, on the page as it is once the dialog has gone."""
    page.go(f"{desk.airflow.url}/connections?test={conn_id}")
    page.shows(conn_id)
    page.click("button[aria-label='Test Connection']", row=conn_id)


#: The text of Airflow's frame, and where its footer leads.
FRAMED = "document.querySelector('iframe')?.contentDocument?.body?.innerText ?? ''"
FOOTER = "document.querySelector('iframe').contentDocument.querySelector('footer a')"


def test_the_page_is_in_airflows_navigation_and_its_links_lead_out_of_the_frame(
    admin: Page, airflow: LocalAirflow
) -> None:
    admin.go(f"{airflow.url}/dags")
    admin.click("nav a, nav button, a", "Kafka")
    eventually(lambda: _assert_in("signed in as admin", admin.evaluate(FRAMED)), within=60)
    # Airflow adds the path of what the frame shows.
    assert admin.evaluate("location.pathname").startswith("/plugin/kafka-steward")
    served = "allow-scripts allow-same-origin allow-forms allow-downloads"
    assert admin.evaluate("document.querySelector('iframe').getAttribute('sandbox')") == served
    admin.evaluate(f"{FOOTER}.click()")
    eventually(lambda: _assert_left(admin.evaluate("location.pathname")), within=60)
    admin.shows("Kafka")


def _assert_left(path: str) -> None:
    assert not path.startswith("/plugin"), path


def _assert_in(text: str, shown: str) -> None:
    assert text in shown, shown


def test_the_form_shows_our_fields_and_its_test_says_what_answers(
    admin: Page, desk: Desk, kraft_sandbox: Sandbox
) -> None:
    with desk.opened() as opened:
        cluster_id = opened.cluster.cluster_id
    host, port = kraft_sandbox.bootstrap.split(",")[0].split(":")
    fill_in(admin, desk, "by_hand", host, port)
    for group, fields in {
        "Security": ("Security protocol", "SASL mechanism", "CA file"),
        "Journal, workspace and Spark": ("Workspace",),
        "ZooKeeper": ("ZooKeeper user",),
        "Settings of the workflows": ("Heal failure interval", "nothing is healed. Default: 1800."),
    }.items():
        admin.open("[role=dialog] button", group, fields[0])
        admin.shows(*fields)
    admin.photograph("form", height=3400)
    admin.click("[role=dialog] button", "Save")
    admin.shows("successfully created", f"{host}\t{port}")
    press_test(admin, desk, "by_hand")
    admin.shows(f"Cluster {cluster_id} in KRaft mode answers; live brokers: 1, 2, 3, 4.")
    admin.photograph("answers")
    assert desk.airflow.call_api("GET", "/api/v2/connections/by_hand")["conn_type"] == "kafka_steward"


def test_a_wrong_connection_is_reported_in_one_sentence(admin: Page, desk: Desk, kraft_sandbox: Sandbox) -> None:
    fill_in(admin, desk, "wrong_one", "127.0.0.1", "1")
    admin.click("[role=dialog] button", "Save")
    admin.shows("successfully created", "wrong_one")
    press_test(admin, desk, "wrong_one")
    admin.shows("No Kafka server at 127.0.0.1:1 answered within 8 s (111 ECONNREFUSED); check that it runs, and the")
    admin.photograph("wrong")


def test_the_heal_can_be_started_from_a_form_and_its_asset_is_listed(
    admin: Page, desk: Desk, kraft_sandbox: Sandbox
) -> None:
    heal = f"heal_{desk.conn_id}"
    desk.add_dags("three_lines", THREE_LINES.format(conn_id=desk.conn_id), heal, by_spark=[heal])
    admin.go(f"{desk.airflow.url}/dags/{heal}")
    admin.click("button", "Trigger")
    admin.shows("plan and report, submit nothing", "Ids of the failed brokers to heal", "ignore_grace")
    admin.open("[role=dialog] button", SECTION, "Partitions in one chunk of a plan.")
    admin.shows(
        "as configured", "throttle", "Bytes per second that reassignment may bring into a broker. 0: no throttle."
    )
    admin.photograph("trigger", height=2400)
    admin.go(f"{desk.airflow.url}/assets")
    admin.shows(f"kafka-steward:{desk.conn_id}:broker-failed", "kafka-steward", "1 Dag")
    admin.photograph("assets")
