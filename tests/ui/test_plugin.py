"""The plugin as Airflow loads it, the files of others that the page brings along, and its pictures."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tests.ui.pictures import PICTURES

ROOT = Path(__file__).parents[2]
STATIC = ROOT / "provider" / "ui" / "static"
OURS = {"icon-dark.svg", "icon.svg", "page.css", "page.js"}

LOAD = """
import sys
from airflow import plugins_manager
plugins_manager.{load}()
loaded = set(sys.modules) & {{"kafka_steward.ui.app", "kafka", "kafka_steward.hooks.steward"}}
print(plugins_manager.get_import_errors(), *sorted(loaded))
"""


@pytest.mark.process
@pytest.mark.parametrize(
    ("load", "imported"),
    [
        ("ensure_plugins_loaded", "{}"),
        ("get_timetables_plugins", "{}"),
        ("get_fastapi_plugins", "{} kafka kafka_steward.hooks.steward kafka_steward.ui.app"),
    ],
)
def test_only_the_api_server_builds_the_page(load: str, imported: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOAD.format(load=load)],
        env={"AIRFLOW_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == imported


def test_the_entry_point_is_the_plugin_and_providers_info_names_it() -> None:
    from kafka_steward.provider_info import get_provider_info
    from kafka_steward.ui.plugin import KafkaStewardPlugin

    (found,) = [each for each in entry_points(group="airflow.plugins") if each.name == "kafka_steward"]
    assert found.load() is KafkaStewardPlugin
    ((named,),) = [get_provider_info()["plugins"]]
    assert named["plugin-class"] == f"{KafkaStewardPlugin.__module__}.{KafkaStewardPlugin.__name__}"


@pytest.mark.parametrize(
    ("base_url", "href"),
    [
        (None, "/kafka-steward/"),
        ("http://localhost:8080", "/kafka-steward/"),
        ("https://example.com/airflow/", "/airflow/kafka-steward/"),
    ],
)
def test_the_view_is_below_the_path_of_airflow(
    base_url: str | None, href: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kafka_steward.ui.plugin import KafkaStewardPlugin

    if base_url:
        monkeypatch.setenv("AIRFLOW__API__BASE_URL", base_url)
    (view,) = KafkaStewardPlugin().external_views
    assert view["href"] == href
    assert view["icon"] == f"{href}static/icon.svg"


def test_the_files_of_others_are_those_of_the_notice() -> None:
    notice = (ROOT / "NOTICE").read_text()
    named = dict(re.findall(r"^  (\S+\.(?:js|css))\n  ([0-9a-f]{64})$", notice, re.MULTILINE))
    assert named == {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in STATIC.iterdir() if path.name not in OURS
    }
    for words in ("Zero-Clause BSD", "The MIT License", "Copyright (c) 2022 Leon Sorokin"):
        assert words in notice


def test_our_own_files_load_nothing_from_elsewhere() -> None:
    for name in OURS:
        text = (STATIC / name).read_text().replace("http://www.w3.org/2000/svg", "")
        assert not re.findall(r"https?:|//[a-z]+\.|@import|url\(", text.replace("// ", "")), name
    for template in (STATIC.parent / "templates").iterdir():
        assert "//" not in template.read_text(), template.name


def test_a_page_that_cannot_be_built_does_not_keep_the_api_server_from_starting(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from kafka_steward.ui import plugin

    def fail() -> None:
        raise ImportError("no such module")

    monkeypatch.setattr(plugin, "_build_app", fail)
    assert plugin.KafkaStewardPlugin().fastapi_apps == []
    assert "The page of Kafka Steward is not shown" in caplog.text


DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_links_every_picture_that_the_command_takes_and_no_other() -> None:
    linked = set(re.findall(r"\]\(pictures/([^)]+)\)", (DOCS / "page.md").read_text()))
    assert linked == set(PICTURES)
    assert {path.name for path in (DOCS / "pictures").iterdir()} == set(PICTURES)
