"""Former names: importable where they were, with a warning, and with their former arguments."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import pytest
from airflow.sdk import BaseOperator

from kafka_steward.deprecated import _FORMER
from kafka_steward.operators.rebalance import PlanRebalanceOperator
from kafka_steward.triggers.watch import WatchTrigger


def former(key: str) -> Any:
    module, name = f"kafka_steward.{key}".rsplit(".", 1)
    with pytest.warns(DeprecationWarning, match=f"{name} is deprecated, and gone in version 0.3; use "):
        return getattr(importlib.import_module(module), name)


@pytest.mark.parametrize("key", _FORMER)
def test_a_former_name_stands_for_the_current_one(key: str) -> None:
    module, name = f"kafka_steward.{_FORMER[key].path}".rsplit(".", 1)
    current = getattr(importlib.import_module(module), name)
    if _FORMER[key].implied or _FORMER[key].renamed:
        assert issubclass(former(key), current)
        assert former(key) is former(key)
    else:
        assert former(key) is current


def test_a_module_without_a_file_is_imported_as_before() -> None:
    from kafka_steward.operators import outcome, owed  # type: ignore[attr-defined]

    assert (owed.__name__, outcome.__name__) == ("kafka_steward.operators.owed", "kafka_steward.operators.outcome")
    assert importlib.util.find_spec("kafka_steward.operators.given") is not None
    with pytest.raises(ImportError, match="FindOwed'"):
        from kafka_steward.operators.owed import FindOwed  # type: ignore[import-not-found] # noqa: F401


def test_former_arguments_are_accepted() -> None:
    show = former("operators.outcome.ShowPlanOperator")(task_id="show", plan={}, snapshot={}, only_show=True)
    assert (show.plan_only, show.mode) == (True, None)
    report = former("operators.outcome.ReportPlanOperator")(
        task_id="a", plan={}, shown={"stop": ""}, draining_brokers=[4]
    )
    assert (report.verify, report.review, report.brokers) == ("outcome", {"stop": ""}, [4])
    assert former("operators.report.TellPlanOperator")(task_id="tell", plan={}).mode == "heal"
    healed = former("operators.report.ReportHealOperator")(
        task_id="b", brokers=[3], plan={}, submitted={}, on_healed=print
    )
    assert (healed.verify, healed.on_done) == ("heal", [print])
    filled = former("operators.owed.ReportFillOperator")(task_id="c", plan={}, submitted={}, on_filled=print)
    assert (filled.verify, filled.on_done) == ("fill", [print])
    assert former("operators.owed.SnapshotOwedOperator")(task_id="snapshot").pending_replicas
    assert isinstance(show, BaseOperator)


def test_the_former_argument_of_a_rebalance_is_accepted() -> None:
    with pytest.warns(
        DeprecationWarning, match="The argument wishes of PlanRebalanceOperator is deprecated, .* request"
    ):
        plan = PlanRebalanceOperator(task_id="plan", snapshot={}, wishes={"operation": "expand"})
    assert plan.request == {"operation": "expand"}
    with pytest.raises(TypeError, match="PlanRebalanceOperator needs the argument request"):
        PlanRebalanceOperator(task_id="plan", snapshot={})


def test_a_watch_that_was_stored_with_a_former_keyword_emits_the_same_event() -> None:
    assert WatchTrigger("kafka", rings="cancel").serialize() == WatchTrigger("kafka", event="cancel").serialize()


def test_another_name_is_missing_as_in_any_module() -> None:
    module = importlib.import_module("kafka_steward.operators.report")
    with pytest.raises(AttributeError, match=r"module 'kafka_steward\.operators\.report' has no attribute 'Report'"):
        _ = module.Report
