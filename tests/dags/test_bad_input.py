"""The form of a run refuses caps below one and rates below zero, in each workflow that has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from airflow.sdk import DAG, Param
from airflow.sdk.exceptions import AirflowException

from kafka_steward.dags import apply, cancel, fill, heal, rebalance, throttle
from kafka_steward.errors import SettingError

CAPS = ("max_in_per_broker", "max_out_per_broker", "max_in_flight", "heal_chunk_size", "max_attempts")


def field(dag: DAG, name: str) -> Param:
    found = dag.params.get_param(name)
    assert isinstance(found, Param)
    return found


@pytest.mark.parametrize("make", [heal, rebalance, apply, fill, cancel])
@pytest.mark.parametrize("name", CAPS)
def test_a_cap_below_one_is_refused_by_the_form_and_one_is_taken(make: Callable[[], DAG], name: str) -> None:
    given = field(make(), name)
    for value in (0, -1, 0.5, "5"):
        with pytest.raises(AirflowException):
            given.resolve(value)
    assert given.resolve(1) == 1
    assert given.resolve(None) is None


@pytest.mark.parametrize("make", [heal, rebalance, apply, fill])
@pytest.mark.parametrize(
    "settings", [{"max_in_flight": 0}, {"window": "sliding", "chunk_pause": 5}, {"throttle": -1}, {"min_free": 2}]
)
def test_settings_of_a_dag_file_that_make_no_sense_are_an_import_error_with_the_setting(
    make: Callable[..., DAG], settings: dict[str, Any]
) -> None:
    with pytest.raises(SettingError, match=f"^The setting {list(settings)[-1]} is "):
        make(settings=settings)


def test_a_rate_of_one_byte_is_taken_and_one_below_zero_is_not() -> None:
    rate = field(throttle(), "rate")
    assert rate.resolve(1) == 1
    for value in (-1, 0.5, "1", None, 2**63):
        with pytest.raises(AirflowException):
            rate.resolve(value)


@pytest.mark.parametrize(
    "partitions",
    [
        [],
        [{"topic": "t", "partition": -1, "replicas": [1]}],
        [{"topic": "t", "partition": 0, "replicas": []}],
        [{"topic": "t", "partition": 0, "replicas": [1, 1]}],
        [{"topic": "t", "partition": 0, "replicas": [-1]}],
        [{"topic": "t", "partition": 0}],
    ],
)
def test_a_reassignment_that_makes_no_sense_is_refused_by_the_form(partitions: list[Any]) -> None:
    with pytest.raises(AirflowException):
        field(apply(), "reassignment").resolve({"version": 1, "partitions": partitions})
