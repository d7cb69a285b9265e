"""What Airflow's servers log when they look our connections up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from airflow.models.connection import Connection

from kafka_steward.ui.plugin import KafkaStewardPlugin


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """The texts that are logged, after all processors."""
    before, texts = structlog.get_config(), []

    def keep(_: Any, __: str, event: Any) -> Any:
        texts.append(str(event["event"]))
        raise structlog.DropEvent

    structlog.configure(processors=[keep])
    yield texts
    structlog.configure(**before)


def look_up(conn_type: str) -> None:
    """As the server does for a task or a trigger that asks for a connection."""
    Connection(conn_id="kafka_test", conn_type=conn_type, host="broker1:9092").get_uri()


def test_airflow_warns_of_each_look_up_until_the_plugin_is_loaded(logged: list[str]) -> None:
    look_up("kafka_steward")
    assert len(logged) == 1
    KafkaStewardPlugin.on_load()
    KafkaStewardPlugin.on_load()
    look_up("kafka_steward")
    assert len(logged) == 1
    assert len(structlog.get_config()["processors"]) == 2


def test_no_other_warning_is_dropped(logged: list[str]) -> None:
    KafkaStewardPlugin.on_load()
    look_up("google_cloud_platform")
    assert ["google_cloud_platform" in text for text in logged] == [True]
