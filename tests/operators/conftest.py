from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.airflow_home import connect
from tests.local_plan import plan_folder
from tests.operators.simulated import gauges, make_cluster

__all__ = ["connect", "gauges", "make_cluster"]


@pytest.fixture
def plans_in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an operator submits to Spark is planned in this process; all but the submission is the operator's own."""
    # Not before tests.airflow_home.
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.sdk.exceptions import AirflowException

    from kafka_steward.errors import StewardError
    from kafka_steward.planning.spark.job import parse_command_line

    def submit(self: SparkSubmitHook, application: str = "", **_: Any) -> None:
        assert Path(application).name == "job.py"
        try:
            request = parse_command_line([str(one) for one in self._application_args or ()])
            plan_folder(request.snapshot, request.out, request.operation, request.options)
        except StewardError as error:
            # As the hook tells of a job that ended with another code than 0: with the last lines of its log.
            raise AirflowException(f"Cannot execute: spark-submit. Error code is: 1.\n{error}\n") from error

    monkeypatch.setattr(SparkSubmitHook, "submit", submit)
