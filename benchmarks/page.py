"""How long the page takes: `python -m benchmarks.page`, on SQLite and PostgreSQL.

One of three clusters has 20 brokers, a running plan with 200,000 moves and 100,000 audit rows. An Airflow whose own
database is in SQLite, and that has nothing else to do, shows them to an admin. Each page is asked for over HTTP by one
client, and some are opened in a real browser with an empty cache: first content, and from a click to the next page.
Without `--browser` only HTTP is measured.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from benchmarks.report import table
from kafka_steward.page_address import MOUNT
from kafka_steward.sandbox.airflow import LocalAirflow
from tests import airflow_home  # before Airflow
from tests.eventually import eventually
from tests.page import Page, browser
from tests.postgres import PostgresServer
from tests.ui.scene import CONN_IDS, Scene, cluster_id, digest_of, fill_scene

DATABASES = ("SQLite", "PostgreSQL")
_HEAD = ("database", "page", "HTTP, ms", "first content, ms", "click to shown, ms", "kB in all")
MOVING = CONN_IDS[1]
RUNNING = digest_of("running")
PAGES = {
    "fleet": "",
    "cluster": f"cluster?conn={MOVING}",
    "refresh of the cluster": f"cluster?conn={MOVING}&fragment=1",
    "plan": f"plan?conn={MOVING}&digest={RUNNING}",
    "waiting moves": f"plan?conn={MOVING}&digest={RUNNING}&state=waiting",
    "health, 30 days": f"health?conn={MOVING}&days=30",
    "audit": f"audit?conn={MOVING}",
    "audit, a topic": f"audit?conn={MOVING}&topic=orders.00400",
    "audit, a broker": f"audit?conn={MOVING}&broker=7",
    "audit, a person": f"audit?conn={MOVING}&person=ada",
    "audit, nobody": f"audit?conn={MOVING}&person=nobody",
}
#: Pages that are also opened in the browser.
OPENED = ("fleet", "cluster", "plan", "health, 30 days", "audit")
PAINT = """
new Promise(done => {
  const paint = performance.getEntriesByName("first-contentful-paint")[0];
  const [page] = performance.getEntriesByType("navigation");
  const sent = [page, ...performance.getEntriesByType("resource")];
  const bytes = sent.reduce((total, each) => total + each.transferSize, 0);
  done([paint ? paint.startTime : null, page.domContentLoadedEventEnd, bytes]);
})
"""


#: A cluster is shown to those who may read one of its DAGs.
_DAGS = f"""\
from airflow_provider_kafka_steward.dags import heal

for conn_id in {CONN_IDS!r}:
    globals()[conn_id] = heal(conn_id=conn_id)
"""


@dataclass(frozen=True)
class Site:
    """The address of Airflow and of the page, and the token of a person who is signed in."""

    url: str
    page: str
    token: str


@contextmanager
def in_airflow(journal: str, folder: Path) -> Iterator[Site]:
    """A real Airflow with a connection for each cluster of the scene, whose journal is at an address."""
    connections = {
        conn_id: {
            "conn_type": "kafka_steward",
            "host": airflow_home.NOWHERE,
            "extra": {"journal": journal, "cluster_id": cluster_id(conn_id)},
        }
        for conn_id in CONN_IDS
    }
    with LocalAirflow(folder / "airflow", connections=connections) as airflow:
        (airflow.dags / "heal.py").write_text(_DAGS)
        eventually(lambda: _assert_found(airflow), within=180)
        token = airflow.call_api("POST", "/auth/token", {"username": "admin", "password": "admin"})["access_token"]
        yield Site(airflow.url, f"{airflow.url}{MOUNT}/", token)


def _assert_found(airflow: LocalAirflow) -> None:
    if airflow.call_api("GET", "/api/v2/dags")["total_entries"] < len(CONN_IDS):
        raise AssertionError("the DAGs are not parsed yet")  # which is waited for


def ask(site: Site, path: str) -> float:
    """Milliseconds until the last byte."""
    headers = {"Accept-Encoding": "gzip", "Authorization": f"Bearer {site.token}"}
    request = Request(site.page + path, headers=headers)  # noqa: S310 - http on 127.0.0.1
    began = time.perf_counter()
    with urlopen(request, timeout=60) as answer:  # noqa: S310 - http on 127.0.0.1
        answer.read()
    return (time.perf_counter() - began) * 1000


@dataclass(frozen=True)
class Opened:
    """One page in the browser: milliseconds until it is there, and the bytes of all its files as they are sent."""

    paint_ms: float
    click_ms: float
    sent: int


def measure_http(site: Site, times: int) -> dict[str, float]:
    """Return by page the milliseconds until the last byte."""
    found = {}
    for name, path in PAGES.items():
        ask(site, path)
        found[name] = statistics.median(ask(site, path) for _ in range(times))
    return found


def measure_browser(page: Page, site: Site, times: int) -> dict[str, Opened]:
    page.log_in(site.url, site.token)
    open_empty(page, f"{site.page}stop")  # the browser's own start is not the page's
    return {name: opened_often(page, site.page + PAGES[name], times) for name in OPENED}


def opened_often(page: Page, address: str, times: int) -> Opened:
    found = []
    for _ in range(times):
        paint_ms, _, sent = open_empty(page, address)
        found.append((paint_ms, click(page), sent))
    paint, clicked, sent_by = zip(*found, strict=True)
    return Opened(statistics.median(paint), statistics.median(clicked), int(max(sent_by)))


def open_empty(page: Page, address: str) -> Any:
    """Open a page with an empty cache, from an empty one."""
    page.go("about:blank")
    page.tell("Network.clearBrowserCache")
    page.go(address)
    page.shows("Times are in UTC")
    return eventually(lambda: painted(page), within=60)


def painted(page: Page) -> Any:
    found = page.evaluate(PAINT)
    if found[0] is None or not found[1]:
        raise AssertionError("it is not painted yet")  # which is waited for
    return found


def click(page: Page) -> float:
    """Milliseconds from a click on the first link to the fleet's first content, the cache being warm."""
    page.evaluate("document.querySelector('nav .home').click()")
    page.shows("those that need a person first")
    return float(eventually(lambda: painted(page), within=60)[0])


def cells(database: str, name: str, http_ms: float, opened: Opened | None) -> list[str]:
    shown = ["-"] * 3
    if opened is not None:
        shown = [f"{opened.paint_ms:.0f}", f"{opened.click_ms:.0f}", f"{opened.sent / 1000:.0f}"]
    return [database, name, f"{http_ms:.0f}", *shown]


def measure(database: str, url: str, given: argparse.Namespace, folder: Path) -> list[list[str]]:
    now_ms = int(time.time() * 1000)
    fill_scene(Scene(url, now_ms, 20, given.moves, given.audit_rows, health_rows=8_000))
    opened: dict[str, Opened] = {}
    with in_airflow(url, folder) as site:
        asked = measure_http(site, given.times)
        if given.browser:
            with browser(folder / "browser") as page:
                opened = measure_browser(page, site, given.times)
    return [cells(database, name, each, opened.get(name)) for name, each in asked.items()]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page", description=__doc__)
    parser.add_argument("--times", type=int, default=9)
    parser.add_argument("--moves", type=int, default=200_000)
    parser.add_argument("--audit-rows", type=int, default=100_000)
    parser.add_argument("--browser", action="store_true")
    parser.add_argument("--databases", nargs="+", choices=DATABASES, default=DATABASES)
    given = parser.parse_args()
    rows: list[list[str]] = []
    with tempfile.TemporaryDirectory() as work, ExitStack() as servers:
        for database in given.databases:
            url = f"sqlite:///{work}/journal.db"
            if database == "PostgreSQL":
                url = servers.enter_context(PostgresServer()).new_database()
            rows += measure(database, url, given, Path(work) / database)
    print(table(_HEAD, rows))


if __name__ == "__main__":
    main()
