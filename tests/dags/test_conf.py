"""What a run was given is refused by the first task of each workflow's DAG, before anything is asked of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG, BaseOperator
from airflow.sdk.exceptions import AirflowFailException
from airflow.serialization.serialized_objects import DagSerialization

from kafka_steward.dags import apply, cancel, fill, heal, health, rebalance, throttle
from kafka_steward.dags.params import SECTION
from kafka_steward.operators.base import unknown_keys_message

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


@pytest.mark.parametrize("make", WORKFLOWS)
def test_no_backfill_is_taken(make: Callable[[], DAG]) -> None:
    dag = DagSerialization.from_dict(DagSerialization.to_dict(make()))
    allowed = {str(getattr(kind, "value", kind)) for kind in dag.allowed_run_types or ()}
    assert allowed == {"manual", "scheduled", "asset_triggered", "asset_materialization", "operator_triggered"}


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
def test_the_settings_of_a_form_begin_with_what_its_workflow_needs(
    make: Callable[[], DAG], first: list[str], missing: str
) -> None:
    params = make().params
    settings = [name for name in params if params.get_param(name).schema.get("section") == SECTION]
    assert settings[: len(first)] == first
    assert missing not in settings
    assert "Default: 50000000." in str(params.get_param("throttle").description)


@pytest.mark.parametrize("make", [heal, rebalance, apply, cancel, fill])
def test_a_toggle_is_not_marked_as_required(make: Callable[[], DAG]) -> None:
    """Airflow's form marks each field whose type lacks null, and shows a toggle for boolean beside null, too."""
    params = make().params
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
