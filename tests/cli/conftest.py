from __future__ import annotations

from pathlib import Path

import pytest

from tests.airflow_home import connect
from tests.cli.scene import Scene, new_scene
from tests.journal.conftest import postgres, postgres_url, zookeeper

__all__ = ["connect", "postgres", "postgres_url", "zookeeper"]


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Scene:
    return new_scene(monkeypatch, tmp_path)
