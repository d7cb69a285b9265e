"""How often a hook asks Airflow for a connection: each look-up is a request to its API server."""

from __future__ import annotations

from collections import Counter

import pytest
from airflow.sdk import BaseHook

from kafka_steward.hooks.steward import StewardHook
from tests.airflow_home import Connect


def test_a_hook_looks_each_connection_up_once(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    connect("steward_db", conn_type="sqlite", host="/tmp/journal.db")  # noqa: S108 - not opened
    connect("kafka_clients", conn_type="kafka", extra={"bootstrap.servers": "broker1:9092"})
    connect("kafka_test", host="", extra={"journal": "steward_db", "kafka_conn_id": "kafka_clients"})
    asked: Counter[str] = Counter()

    def counted(conn_id: str) -> object:
        asked[conn_id] += 1
        return BaseHook.get_connection(conn_id)

    monkeypatch.setattr(StewardHook, "get_connection", staticmethod(counted))
    hook = StewardHook("kafka_test")
    assert (hook.access.bootstrap, hook.journal_url) == ("broker1:9092", "sqlite:////tmp/journal.db")
    assert asked == {"kafka_test": 1, "kafka_clients": 1, "steward_db": 1}
