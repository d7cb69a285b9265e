"""Triggers that earlier versions stored in Airflow's database: this version rebuilds each, as it was."""

from __future__ import annotations

import json
import pkgutil
from pathlib import Path
from typing import Any

import pytest

RECORDED = {
    f"{path.parent.name} {number}": (classpath, keywords)
    for path in sorted((Path(__file__).parent / "recorded").glob("*/triggers.json"))
    for number, (classpath, keywords) in enumerate(json.loads(path.read_text()))
}


@pytest.mark.parametrize("name", RECORDED)
def test_a_trigger_of_an_earlier_version_is_rebuilt_with_what_it_was_given(name: str) -> None:
    classpath, keywords = RECORDED[name]
    trigger: Any = pkgutil.resolve_name(classpath)(**keywords)
    path, today = trigger.serialize()
    assert path == classpath
    assert {key: value for key, value in today.items() if key in keywords} == keywords


@pytest.mark.parametrize("name", RECORDED)
def test_a_trigger_of_a_later_version_is_rebuilt_without_what_this_one_does_not_know(name: str) -> None:
    classpath, keywords = RECORDED[name]
    trigger: Any = pkgutil.resolve_name(classpath)(**keywords, a_later_argument=1)
    assert "a_later_argument" not in trigger.serialize()[1]


def test_each_kind_of_trigger_is_recorded() -> None:
    assert {classpath.rpartition(".")[2] for classpath, _ in RECORDED.values()} == {
        "RunPlanTrigger",
        "WaitTrigger",
        "WatchTrigger",
    }
