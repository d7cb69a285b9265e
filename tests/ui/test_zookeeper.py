"""With the tree in ZooKeeper, the page shows plans and documents from the watch's rows in SQL, and asks SQL alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.airflow_home import Connect
from tests.journal.zookeeper import ZooKeeperServer
from tests.ui.conftest import Visit, Visitor, dags_of
from tests.ui.test_pages import shown

pytestmark = [pytest.mark.process]

CONN_ID, CLUSTER = "kafka_zk", "cluster-in-zookeeper"


@pytest.fixture
def zookeeper() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer() as server:
        yield server


def nodes(url: str) -> int:
    """The number of documents of the KIPs that are in SQL."""
    from kafka_steward.journal.schema import tables

    engine = sa.create_engine(url)
    with engine.connect() as connection:
        count = sa.select(sa.func.count()).where(tables.node.c.path.startswith("/admin/"))
        found = int(connection.execute(count).scalar_one())
    engine.dispose()
    return found


def test_the_page_shows_plan_queue_switch_and_restarts_while_zookeeper_is_down(
    zookeeper: ZooKeeperServer, connect: Connect, visit: Visit, tmp_path: Path
) -> None:
    from kafka_steward.document_api.document_reports import DocumentReporter
    from kafka_steward.journal.store import open_journal
    from kafka_steward.journal.zookeeper.options import ZooKeeperOptions
    from tests.protocol.written_documents import CANCELLED, WAITING, write_documents

    url, options = f"sqlite:///{tmp_path}/journal.db", ZooKeeperOptions(zookeeper.at("kafka"))
    with open_journal(url, CLUSTER, zookeeper=options) as journal:
        name = write_documents(journal)
        DocumentReporter(journal).report()
    assert nodes(url) == 0, "the documents are in ZooKeeper alone"
    connect(CONN_ID, extra={"journal": url, "cluster_id": CLUSTER, "zookeeper": options.hosts})
    zookeeper.stop()

    client = visit(Visitor({CONN_ID: dags_of(CONN_ID)}))
    answer = client.get(f"cluster?conn={CONN_ID}")
    assert answer.status_code == 200
    text = shown(answer.text)
    assert "disabled by ada: the racks are being rewired" in text
    for summary in ("queued plan", "request", "chunk", "cancel signal", "announced restart"):
        assert f" 1 {summary} " in text
    assert f"; first: r-7 to 3, 1; name: {name}; partitions: 1; " in text
    assert re.search("; first: q-0 to 2, 3 · q-1 to 2, 3 · q-2 to 2, 3; name: [^;]+; partitions: 4; ", text)
    assert re.search(r"announced: [^;]+; broker: 5; until: ", text)
    assert {WAITING[:12], CANCELLED[:12]} <= set(re.findall(r'<a class="digest"[^>]*>(\w{12})</a>', answer.text))
    moves = shown(client.get(f"plan?conn={CONN_ID}&digest={WAITING}").text)
    assert "t-0 waiting 1, 2 2, 3" in moves
    assert "wrong racks" in shown(client.get(f"plan?conn={CONN_ID}&digest={CANCELLED}").text)
    assert "disabled by ada" in shown(client.get("").text)
