from __future__ import annotations

from tests.airflow_home import connect

__all__ = ["connect"]
