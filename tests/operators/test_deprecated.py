"""Former names of operators: importable where they were, with a warning, and with their former arguments."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from airflow.sdk import BaseOperator

from kafka_steward.operators.deprecated import _FORMER


def former(key: str) -> type[Any]:
    module, name = key.split(".")
    with pytest.warns(DeprecationWarning, match=f"{name} is deprecated, and gone in version 0.2; use "):
        found: type[Any] = getattr(importlib.import_module(f"kafka_steward.operators.{module}"), name)
    return found


@pytest.mark.parametrize("key", _FORMER)
def test_a_former_name_stands_for_the_current_operator(key: str) -> None:
    current = importlib.import_module(f"kafka_steward.operators.{_FORMER[key].module}")
    assert issubclass(former(key), getattr(current, _FORMER[key].name))
    assert former(key) is former(key)


def test_former_arguments_are_accepted() -> None:
    show = former("outcome.ShowPlanOperator")(task_id="show", plan={}, snapshot={}, only_show=True)
    assert (show.plan_only, show.mode) == (True, None)
    report = former("outcome.ReportPlanOperator")(task_id="a", plan={}, shown={"stop": ""}, draining_brokers=[4])
    assert (report.verify, report.review, report.brokers) == ("outcome", {"stop": ""}, [4])
    assert former("report.TellPlanOperator")(task_id="tell", plan={}).mode == "heal"
    healed = former("report.ReportHealOperator")(task_id="b", brokers=[3], plan={}, submitted={}, on_healed=print)
    assert (healed.verify, healed.on_done) == ("heal", [print])
    filled = former("owed.ReportFillOperator")(task_id="c", plan={}, submitted={}, on_filled=print)
    assert (filled.verify, filled.on_done) == ("fill", [print])
    assert former("owed.SnapshotOwedOperator")(task_id="snapshot").pending_replicas
    assert isinstance(show, BaseOperator)


def test_another_name_is_missing_as_in_any_module() -> None:
    module = importlib.import_module("kafka_steward.operators.report")
    with pytest.raises(AttributeError, match=r"module 'kafka_steward\.operators\.report' has no attribute 'Report'"):
        _ = module.Report
