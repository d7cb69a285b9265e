"""What Airflow's servers log when they look our connections up."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
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


LOOK_UP = """
from airflow.models.connection import Connection
Connection(conn_id="kafka_test", conn_type="kafka_steward", host="broker1:9092").get_uri()
Connection(conn_id="other", conn_type="kafka_steward", host="broker1:9092").log.error("this is logged")
"""
PAGE = Path(__file__).parents[2] / "docs" / "production" / "index.md"
(SETTING,) = [line for line in PAGE.read_text().splitlines() if line.startswith("AIRFLOW__LOGGING__NAMESPACE_LEVELS=")]


@pytest.mark.process
@pytest.mark.parametrize(("setting", "warns"), [("", True), (SETTING.partition("=")[2], False)])
def test_the_setting_of_the_page_drops_the_warning_and_no_error(setting: str, warns: bool, tmp_path: Path) -> None:
    variables = {"AIRFLOW_HOME": str(tmp_path), SETTING.partition("=")[0]: setting}
    done = subprocess.run(
        [sys.executable, "-c", LOOK_UP], env=os.environ | variables, capture_output=True, text=True, check=True
    )
    logged = done.stdout + done.stderr
    assert "this is logged" in logged
    assert ("shall not contain '_'" in logged) == warns
