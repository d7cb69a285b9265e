"""Which forms have a maintenance window: those of work that waits for it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from airflow.sdk import DAG

from kafka_steward.dags import apply, cancel, fill, heal, rebalance


@pytest.mark.parametrize(
    ("make", "waits"), [(apply, True), (rebalance, True), (cancel, False), (fill, False), (heal, False)]
)
def test_only_work_that_waits_for_a_window_has_its_fields(make: Callable[[], DAG], waits: bool) -> None:
    shown = {"maintenance_window", "maintenance_timezone"} & set(make().params)
    assert len(shown) == (2 if waits else 0)
