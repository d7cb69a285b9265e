"""The capacity of brokers, as the connection has it, reaches the snapshot of a DAG."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafka_steward.operators.snapshot import SnapshotClusterOperator
from kafka_steward.planning.files.formats import read_snapshot
from tests.airflow_home import context
from tests.operators.simulated import CONN_ID, MakeCluster, make_cluster

__all__ = ["make_cluster"]


@pytest.mark.parametrize("capacity", ["2=2, 3=0.5", {"2": 2, "3": 0.5}])
def test_a_snapshot_has_the_capacities_of_the_connection(
    make_cluster: MakeCluster, tmp_path: Path, capacity: Any
) -> None:
    make_cluster("1a 2b 3c", "t: 12 23", workspace=str(tmp_path), capacity=capacity)
    taken = SnapshotClusterOperator(task_id="snapshot", conn_id=CONN_ID).execute(context())
    assert read_snapshot(taken["uri"]).brokers["capacity"].to_pylist() == [1.0, 2.0, 0.5]
