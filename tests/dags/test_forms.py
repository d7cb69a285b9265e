"""What the form of a run takes and refuses, what its first task refuses, and what is wrong with a DAG file."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest
from airflow.sdk import DAG, BaseOperator, Param
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from kafka_steward.dags import apply, cancel, controls, fill, heal, health, probe, rebalance, throttle
from kafka_steward.dags.params import SECTION
from kafka_steward.errors import SettingError
from kafka_steward.operators.base import unknown_keys_message
from kafka_steward.settings import SETTINGS

CAPS = ("max_in_per_broker", "max_out_per_broker", "max_in_flight", "heal_chunk_size", "max_attempts")
WINDOW = "mon-fri 22:00-06:00; sat 00:00-24:00"
GIVEN: dict[str, Any] = {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}
Make = Callable[..., DAG]

#: The values that a field takes.
ACCEPTED: dict[Make, dict[str, list[Any]]] = {
    cancel: {"plan": ["3f2a91c0", ""], "scope": ["plan"], "even_if_disabled": [True], "throttle": [1_000_000]},
    controls: {"action": ["disable", "enable"], "broker": [0, None], "minutes": [30], "reason": ["x"]},
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
def test_a_cap_below_one_is_refused_by_the_form_and_one_is_taken(make: Make) -> None:
    dag = make()
    for given in (field(dag, name) for name in CAPS):
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


@pytest.mark.parametrize("make", [cancel, fill, heal, rebalance, throttle])
@pytest.mark.parametrize("name", [name for name, setting in SETTINGS.items() if not setting.per_run])
def test_a_setting_of_the_watch_is_refused_when_the_file_is_parsed_with_the_key_of_the_connection(
    make: Make, name: str
) -> None:
    with pytest.raises(SettingError, match=f"set the key {name} in the extra of the connection kafka_east"):
        make("kafka_east", settings={name: SETTINGS[name].default})


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
        (rebalance, {"fields": {"tolerance": 3}}, "The field tolerance of the form does not take 3: .*greater than"),
        (rebalance, {"fields": {"operations": "drain"}}, "The form has no field 'operations'; there are operation, br"),
        (rebalance, {"fields": {"approve_above": 1}}, "The form has no field 'approve_above'"),
        (rebalance, {"approve_above": "1"}, "approve_above is '1'; it takes a whole number of bytes, or None to ask"),
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


NO, OWN = "The DAG d has no parameter", "trigger it with its own, which its form lists."


def expand() -> DAG:
    return rebalance(on_join=True)


WORKFLOWS: dict[Callable[[], DAG], str] = {
    apply: "check",
    cancel: "cancel",
    expand: "find_joined",
    fill: "find_pending",
    heal: "find_failures",
    health: "health",
    rebalance: "gate",
    throttle: "throttle",
}


def first_of(dag: DAG) -> BaseOperator:
    (task,) = (task for task in dag.tasks if not task.upstream_task_ids)
    assert isinstance(task, BaseOperator)
    return task


def begin(dag: DAG, conf: dict[str, Any] | None) -> None:
    """As Airflow does before it executes the first task; there is nothing that it could connect to."""
    hook = first_of(dag)._pre_execute_hook
    assert hook is not None
    required = {"reassignment", "rate"}
    params = {**{name: dag.params[name] for name in dag.params if name not in required}, **(conf or {})}
    hook({"dag": dag, "dag_run": SimpleNamespace(conf=conf), "params": params})


@pytest.mark.parametrize(("make", "first"), WORKFLOWS.items())
def test_the_first_task_refuses_unknown_keys_for_good(make: Callable[[], DAG], first: str) -> None:
    dag = make()
    assert first_of(dag).task_id == first
    for conf in (None, {}, {"openlineage": {"parentRunId": "x"}}):
        begin(dag, conf)
    for key in ("approve_above", "approvers", "self_approval", "no_such_key"):
        with pytest.raises(AirflowFailException, match=f"The DAG {dag.dag_id} has no parameter '{key}'"):
            begin(dag, {key: None})


@pytest.mark.parametrize(
    ("conf", "sentence"),
    [
        ({"operation": "drain"}, "Name the brokers to drain."),
        ({"operation": "drain", "brokers": []}, "Name the brokers to drain."),
        ({"operation": "drain", "brokers": " , "}, "Name the brokers to drain."),
        ({"brokers": [4]}, "The field brokers is only for drain"),
        ({"brokers": "4"}, "The field brokers is only for drain"),
        ({"operation": "set-replication-factor", "topics": ["t"]}, "Give the replication_factor to set."),
        ({"topics": ["("]}, "'\\(' is not a regular expression"),
        ({"brokrs": [4], "operation": "drain"}, r"no parameter 'brokrs' \(did you mean 'brokers'\?\)"),
    ],
)
@pytest.mark.parametrize("make", [rebalance, expand])
def test_a_form_whose_fields_do_not_go_together_fails_the_first_task_for_good(
    make: Callable[[], DAG], conf: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(AirflowFailException, match=sentence):
        begin(make(), conf)


def test_a_form_that_goes_together_is_gone_on_with() -> None:
    begin(rebalance(), {"operation": "drain", "brokers": [4]})
    begin(rebalance(), {"operation": "drain", "brokers": "3, 4"})
    begin(rebalance(fields={"operation": "drain", "brokers": [4]}), None)


@pytest.mark.parametrize(
    ("conf", "sentence"),
    [
        ({}, ""),
        ({"brokers": 1}, ""),
        ({"openlineage": 1}, ""),
        ({"x": 1}, f"{NO} 'x'; {OWN}"),
        (
            {"b": 1, "x": 1, "topcs": 1, "y": 1},
            f"{NO} 'b' and 'topcs' (did you mean 'topics'?) and 'x' and 1 more; {OWN}",
        ),
        ({"\n" + "x" * 500: 1}, f"{NO} '\\n{'x' * 99}'; {OWN}"),
    ],
)
def test_unknown_keys_are_named_with_what_may_have_been_meant(conf: dict[str, Any], sentence: str) -> None:
    assert unknown_keys_message(conf, ("brokers", "topics"), "d") == sentence


@pytest.mark.parametrize(
    ("make", "first", "missing"),
    [
        (heal, ["throttle", "max_failed_brokers", "max_failed_fraction"], "maintenance_window"),
        (rebalance, ["throttle", "maintenance_window", "maintenance_timezone"], "max_failed_brokers"),
        (apply, ["throttle", "maintenance_window", "maintenance_timezone"], "max_failed_fraction"),
        (cancel, ["throttle"], "max_failed_brokers"),
        (fill, ["throttle"], "max_failed_brokers"),
    ],
)
def test_the_settings_of_a_form_begin_with_what_its_workflow_needs_and_no_toggle_is_marked_as_required(
    make: Callable[[], DAG], first: list[str], missing: str
) -> None:
    params = make().params
    settings = [name for name in params if params.get_param(name).schema.get("section") == SECTION]
    assert settings[: len(first)] == first
    assert missing not in settings
    assert "Default: 50000000." in str(params.get_param("throttle").description)
    # Airflow's form marks each field whose type lacks null, and shows a toggle for boolean beside null, too.
    kinds = [params.get_param(name).schema["type"] for name in params]
    assert ["null", "boolean"] in kinds
    assert "boolean" not in kinds


def test_a_form_names_the_values_of_the_configuration_and_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "THROTTLE": "20000000",
        "WINDOW": " chunk\n",
        "CAPACITY": "4=2",
        "MIN_FREE": "0.15",
        "JOURNAL": "postgresql://steward:s3cret@db/steward",
    }.items():
        monkeypatch.setenv(f"AIRFLOW__KAFKA_STEWARD__{name}", value)
    params = rebalance(settings={"throttle": 7}).params
    told = {name: str(params.get_param(name).description) for name in params}
    assert params["throttle"] == 7
    assert told["throttle"].endswith(" 0: no throttle. Configured in [kafka_steward]: 20000000.")
    assert told["window"].endswith(' Configured in [kafka_steward]: "chunk".')
    assert told["capacity"].endswith(' Configured in [kafka_steward]: "4=2".')
    assert told["min_free"].endswith(" Default: 0.15.")
    assert told["heal_chunk_size"].endswith(" Default: 50.")
    assert "s3cret" not in str(told)


def test_a_wrong_configuration_is_left_to_the_tasks_and_no_dag_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__KAFKA_STEWARD__THROTTLE", "fast")
    assert str(heal().params.get_param("throttle").description).endswith(" Default: 50000000.")
