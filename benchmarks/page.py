"""How long the page takes: `python -m benchmarks.page`, on SQLite and PostgreSQL.

One of three clusters has 20 brokers, a running plan with 200,000 moves and 100,000 audit rows. Each page is asked for
over HTTP by one client, as the api-server would serve it, and then opened in a real browser with an empty cache: first
content, interactive, and from a click to the next page. Without `--browser` only HTTP is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from tests import airflow_home  # before Airflow
from tests.eventually import eventually
from tests.page import Page, browser
from tests.postgres import PostgresServer
from tests.ui.conftest import everything
from tests.ui.scene import CONN_IDS, Scene, cluster_id, digest_of, fill_scene
from tests.ui.serving import served

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
  const sum = name => sent.reduce((total, each) => total + each[name], 0);
  done([paint ? paint.startTime : null, page.domContentLoadedEventEnd, sum("transferSize"), sum("decodedBodySize")]);
})
"""


@contextmanager
def connections(url: str) -> Iterator[None]:
    """Airflow connections whose journal is at `url`."""
    for conn_id in CONN_IDS:
        extra = {"journal": url, "cluster_id": cluster_id(conn_id)}
        connection = {"conn_type": "kafka_steward", "host": airflow_home.NOWHERE, "extra": extra}
        os.environ[f"AIRFLOW_CONN_{conn_id.upper()}"] = json.dumps(connection)
    yield
    for conn_id in CONN_IDS:
        del os.environ[f"AIRFLOW_CONN_{conn_id.upper()}"]


def ask(url: str) -> tuple[float, int, int]:
    """Milliseconds until the last byte, the bytes that were sent, and the status."""
    request = Request(url, headers={"Accept-Encoding": "gzip"})  # noqa: S310 - http on 127.0.0.1
    began = time.perf_counter()
    with urlopen(request, timeout=60) as answer:  # noqa: S310 - http on 127.0.0.1
        sent = len(answer.read())
        return (time.perf_counter() - began) * 1000, sent, answer.status


def measure_http(url: str, times: int) -> None:
    print("| page | median, ms | slowest of", times, "| first | gzip, kB |\n|---|---|---|---|---|")
    for name, path in PAGES.items():
        first, sent, _ = ask(url + path)
        taken = [ask(url + path)[0] for _ in range(times)]
        print(f"| {name} | {statistics.median(taken):.0f} | {max(taken):.0f} | {first:.0f} | {sent / 1000:.1f} |")


def measure_browser(page: Page, url: str) -> None:
    print("| page | first content, ms | interactive | sent, kB | unpacked, kB | click to shown |")
    print("|---|---|---|---|---|---|")
    for name in OPENED:
        page.tell("Network.clearBrowserCache")
        page.go(url + PAGES[name])
        page.shows("Times are in UTC")
        paint, ready, sent, unpacked = eventually(lambda: painted(page), within=60)
        clicked = click(page) if name != "fleet" else None
        shown = "" if clicked is None else f"{clicked:.0f}"
        print(f"| {name} | {paint:.0f} | {ready:.0f} | {sent / 1000:.0f} | {unpacked / 1000:.0f} | {shown} |")


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=15)
    parser.add_argument("--moves", type=int, default=200_000)
    parser.add_argument("--audit-rows", type=int, default=100_000)
    parser.add_argument("--browser", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as work, PostgresServer() as server:
        for database, url in {"SQLite": f"sqlite:///{work}/journal.db", "PostgreSQL": server.new_database()}.items():
            now_ms = int(time.time() * 1000)
            fill_scene(Scene(url, now_ms, 20, given.moves, given.audit_rows, health_rows=8_000))
            with connections(url), served(everything()) as desk:
                print(f"\n{database}: 20 brokers, {given.moves:,} moves, {given.audit_rows:,} audit rows\n")
                measure_http(desk.page, given.times)
                if given.browser:
                    with browser(Path(work) / database) as page:
                        print()
                        measure_browser(page, desk.page)


if __name__ == "__main__":
    main()
