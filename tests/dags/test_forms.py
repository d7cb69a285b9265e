"""What the form of a run takes and refuses, field by field, and what is wrong with a DAG file when it is parsed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jsonschema
import pytest
from airflow.sdk import DAG, Param
from airflow.sdk.exceptions import AirflowException

from kafka_steward.dags import apply, cancel, controls, fill, heal, probe, rebalance, throttle
from kafka_steward.errors import SettingError

CAPS = ("max_in_per_broker", "max_out_per_broker", "max_in_flight", "heal_chunk_size", "max_attempts")
WINDOW = "mon-fri 22:00-06:00; sat 00:00-24:00"
GIVEN: dict[str, Any] = {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}
Make = Callable[..., DAG]

#: The values that a field takes.
ACCEPTED: dict[Make, dict[str, list[Any]]] = {
    cancel: {
        "plan": ["3f2a91c0", ""],
        "scope": ["plan"],
        "even_if_disabled": [True],
        "throttle": [1_000_000],
    },
    controls: {
        "action": ["disable", "enable"],
        "broker": [0, None],
        "minutes": [30],
        "reason": ["x"],
    },
    heal: {
        "mode": ["report"],
        "brokers": [[3, 4]],
        "ignore_grace": [True, None],
        "throttle": [1_000_000],
        "window": ["chunk"],
        "min_free": [0.2],
        "throttle_leaders": [True],
    },
    probe: {"marker": ["", "doctor-0123456789abcdef.txt"]},
    rebalance: {
        "operation": ["drain", "set-replication-factor"],
        "brokers": [[4], "3, 4"],
        "exclude_brokers": ["5 6"],
        "replication_factor": [3],
        "topics": [["orders"]],
        "max_bytes": [None],
        "max_moves": [1],
        "tolerance": [0.5],
        "maintenance_window": [WINDOW, ""],
        "maintenance_timezone": ["Europe/Berlin"],
        "throttle": [1_000_000],
        "dry_run": [True],
        "when_busy": ["wait"],
    },
    throttle: {"rate": [0, 1, 50_000_000], "plan": ["3f2a91c0", "", None], "reason": ["quiet"]},
}
#: The values that it refuses.
REFUSED: dict[Make, dict[str, list[Any]]] = {
    cancel: {"plan": ["../x", 7], "scope": ["all"], "reason": [None], "even_if_disabled": ["yes"]},
    controls: {"action": ["explode", None], "broker": [-1], "minutes": [0], "reason": [None]},
    heal: {
        "mode": ["maybe"],
        "brokers": [["three"], [-1]],
        "throttle": [-1],
        "heal_chunk_size": [0],
        "window": ["wide"],
        "min_free": [2],
        "ignore_grace": ["yes"],
    },
    probe: {"marker": ["../x", "doctor-0123456789abcdef.txt/..", None, 7]},
    rebalance: {
        "operation": ["shrink"],
        "brokers": [[-1], [4, 4], "four", "3-4", 4],
        "replication_factor": [0],
        "topics": [[""]],
        "tolerance": [1.5],
        "max_moves": [0],
        "max_bytes": [-5],
        "when_busy": ["hope"],
        "dry_run": ["yes"],
        "throttle": [-1],
        "maintenance_window": ["at night"],
    },
    throttle: {"rate": [None, -1, "50M", "1", 0.5, 1.5, 2**63], "plan": ["../x"], "reason": [None]},
}


@pytest.mark.parametrize("make", ACCEPTED)
def test_a_form_takes_what_makes_sense_and_nothing_else(make: Make) -> None:
    params = make().params
    for name, values in ACCEPTED[make].items():
        for value in values:
            jsonschema.validate(value, params.get_param(name).schema)
    for name, values in REFUSED[make].items():
        for value in values:
            with pytest.raises(jsonschema.ValidationError):
                jsonschema.validate(value, params.get_param(name).schema)


def field(dag: DAG, name: str) -> Param:
    found = dag.params.get_param(name)
    assert isinstance(found, Param)
    return found


@pytest.mark.parametrize("make", [heal, rebalance, apply, fill, cancel])
@pytest.mark.parametrize("name", CAPS)
def test_a_cap_below_one_is_refused_by_the_form_and_one_is_taken(make: Make, name: str) -> None:
    given = field(make(), name)
    for value in (0, -1, 0.5, "5"):
        with pytest.raises(AirflowException):
            given.resolve(value)
    assert given.resolve(1) == 1
    assert given.resolve(None) is None


@pytest.mark.parametrize(
    ("given", "accepted"),
    [
        (GIVEN, True),
        ({"partitions": GIVEN["partitions"]}, True),
        ({"partitions": [{**GIVEN["partitions"][0], "log_dirs": ["any", "any"]}]}, True),
        ({}, False),
        ({"version": 2, "partitions": GIVEN["partitions"]}, False),
        ({"version": 1, "partitions": []}, False),
        ({"version": 1, "partitions": [{"topic": "t", "partition": -1, "replicas": [1]}]}, False),
        ({"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": []}]}, False),
        ({"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 1]}]}, False),
        ({"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [-1]}]}, False),
        ({"version": 1, "partitions": [{"topic": "t", "partition": 0}]}, False),
        ("t-0 to 1, 2", False),
    ],
)
def test_the_form_of_an_apply_takes_kafkas_own_document(given: Any, accepted: bool) -> None:
    schema = field(apply(), "reassignment").schema
    assert jsonschema.Draft7Validator(schema).is_valid(given) is accepted


@pytest.mark.parametrize("make", [heal, rebalance, apply, fill])
@pytest.mark.parametrize(
    "settings", [{"max_in_flight": 0}, {"window": "sliding", "chunk_pause": 5}, {"throttle": -1}, {"min_free": 2}]
)
def test_settings_of_a_dag_file_that_make_no_sense_are_an_import_error_with_the_setting(
    make: Make, settings: dict[str, Any]
) -> None:
    with pytest.raises(SettingError, match=f"^The setting {list(settings)[-1]} is "):
        make(settings=settings)


@pytest.mark.parametrize("make", [cancel, fill, heal, rebalance, throttle])
def test_a_setting_that_is_none_is_named_when_the_file_is_parsed(make: Make) -> None:
    with pytest.raises(SettingError, match="There is no setting 'trottle'; there are heal_failure_interval"):
        make(settings={"trottle": 1})


@pytest.mark.parametrize(
    ("make", "wrong", "sentence"),
    [
        (heal, {"mode": "dry"}, r"The mode of a heal is 'dry'; it takes heal or report\."),
        (heal, {"settings": {"throttle": 0.5}}, "The setting throttle is 0.5; it takes a whole number"),
        (
            heal,
            {"settings": {"step_interval": 9, "stall_after": 10}},
            "set stall_after to at least twice step_interval",
        ),
        (
            rebalance,
            {"fields": {"tolerance": 3}},
            "The field tolerance of the form does not take 3: .*greater than",
        ),
        (rebalance, {"fields": {"operations": "drain"}}, "The form has no field 'operations'; there are operation, br"),
        (rebalance, {"fields": {"approve_above": 1}}, "The form has no field 'approve_above'"),
        (
            rebalance,
            {"approve_above": "1"},
            "approve_above is '1'; it takes a whole number of bytes, or None to ask",
        ),
        (rebalance, {"approvers": "ann"}, "approvers is 'ann'; it takes a list of the ids of Airflow's users"),
        (rebalance, {"approvers": [{"id": 7}]}, "The approver {'id': 7} is neither the id of a user nor"),
        (rebalance, {"settings": {"maintenance_window": "22:00-22:00"}}, "22:00-22:00 never opens"),
        (
            rebalance,
            {"settings": {"maintenance_window": "1:00-2:00", "maintenance_timezone": "x"}},
            "There is no time zone 'x'",
        ),
    ],
)
def test_what_is_wrong_is_said_when_the_file_is_parsed(make: Make, wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        make(**wrong)
