"""Every operator and sensor is usable on its own: the example in its docstring runs, with nothing to connect to."""

from __future__ import annotations

import doctest
import importlib
import inspect
from typing import Any

import pytest
from airflow.sdk import BaseOperator

from kafka_steward.provider_info import get_provider_info

_INFO = get_provider_info()
_MODULES = [name for kind in ("operators", "sensors") for entry in _INFO[kind] for name in entry["python-modules"]]


def classes() -> list[type[Any]]:
    found = [
        value
        for name in _MODULES
        for _, value in inspect.getmembers(importlib.import_module(name), inspect.isclass)
        if issubclass(value, BaseOperator) and value.__module__ == name
    ]
    assert len(found) > 20
    return found


@pytest.mark.parametrize("operator", classes(), ids=lambda each: each.__name__)
def test_the_example_of_each_operator_runs(operator: type[Any]) -> None:
    module = importlib.import_module(operator.__module__)
    tests = doctest.DocTestFinder(recurse=False).find(operator, operator.__name__, module=module)
    with_examples: list[doctest.DocTest | None] = [test for test in tests if test.examples]
    (test,) = with_examples or [None]
    assert test is not None, "it has no example"
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    runner.run(test, clear_globs=False)
    assert runner.summarize(verbose=False).failed == 0
