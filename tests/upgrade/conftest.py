"""The former version, once for all tests of this folder."""

from __future__ import annotations

import pytest

from tests.airflow_home import connect
from tests.upgrade.former import Former, install

__all__ = ["connect", "former"]


@pytest.fixture(scope="package")
def former(tmp_path_factory: pytest.TempPathFactory) -> Former:
    return install(tmp_path_factory.mktemp("former"))
