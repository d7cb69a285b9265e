from __future__ import annotations

from tests.airflow_home import connect
from tests.planning.conftest import spark

__all__ = ["connect", "spark"]
