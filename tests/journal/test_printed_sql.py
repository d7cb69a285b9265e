"""docs/reference/journal.md: a document that is written by the printed statement, exactly as printed, is read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import sqlalchemy as sa

from kafka_steward.assignment import TopicPartition
from kafka_steward.document_api.request_documents import read_requests
from kafka_steward.journal.store import open_journal

_PAGE = (Path(__file__).parents[2] / "docs/reference/journal.md").read_text()
STATEMENTS = dict(re.findall(r"^```sql (\w+)\n(.*?)^```", _PAGE, re.MULTILINE | re.DOTALL))


def a_printed_statement_is_a_request(url: str, statement: str, cluster_id: str) -> None:
    with open_journal(url, cluster_id) as journal:
        journal.tree.create("/admin/reassignment_requests/request_0000000000", '{"version": 1, "partitions": []}')
        before = journal.now_ms()
        engine = sa.create_engine(url)
        with engine.begin() as connection:
            connection.exec_driver_sql(statement.replace("KAFKAS-CLUSTER-ID", cluster_id))
        engine.dispose()
        (_, written), more = read_requests(journal.tree)
        assert not more
        (asked,) = written.requested
        assert (asked.partition, asked.replicas) == (TopicPartition("orders", 0), (2, 3))
        assert written.node.path == "/admin/reassignment_requests/from-ada-1"
        assert before - 1_000 <= written.node.created_ms == written.node.modified_ms <= journal.now_ms() + 1_000


def test_there_is_a_statement_for_each_database() -> None:
    assert sorted(STATEMENTS) == ["postgresql", "sqlite"]


def test_on_sqlite(sqlite_url: str, cluster_id: str) -> None:
    a_printed_statement_is_a_request(sqlite_url, STATEMENTS["sqlite"], cluster_id)


@pytest.mark.process
def test_on_postgresql(postgres_url: str, cluster_id: str) -> None:
    a_printed_statement_is_a_request(postgres_url, STATEMENTS["postgresql"], cluster_id)
