"""The parameters of a run, as typed Params: the UI builds a form from them; an empty field is no override."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from airflow.sdk import Param
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowException

from kafka_steward.errors import SettingError
from kafka_steward.operators.documents import CONTROL_ACTIONS
from kafka_steward.planning.options import GIVEN_OPTIONS, PlannerOption
from kafka_steward.rebalance_request import REBALANCE_OPERATIONS
from kafka_steward.settings import SETTINGS, Setting, Settings

__all__ = [
    "apply_params",
    "cancel_params",
    "control_params",
    "fill_params",
    "heal_params",
    "rebalance_params",
    "setting_params",
    "throttle_params",
]

#: The title of the form's second part.
SECTION = "Settings (empty: as configured)"
#: Heal, fill and cancel ignore the maintenance window.
_WINDOW = frozenset({"maintenance_window", "maintenance_timezone"})
#: The settings that say how many failed brokers are an outage, and all those that heal alone reads.
_OUTAGE = ("max_failed_brokers", "max_failed_fraction")
_HEAL = frozenset({*_OUTAGE, "fail_incomplete_heal"})
_BROKER_IDS: dict[str, Any] = {"items": {"type": "integer", "minimum": 0}, "uniqueItems": True}
#: Brokers as a text that one can type, or as a list in JSON. With both types, Airflow shows a text field.
_BROKERS: dict[str, Any] = {"type": ["null", "string", "array"], "pattern": "^[0-9, ]*$", **_BROKER_IDS}
_PATTERNS: dict[str, Any] = {"items": {"type": "string", "minLength": 1, "maxLength": 500}}
#: A toggle, which always has a value; without null, Airflow marks it as required. null means the default.
_TOGGLE: dict[str, Any] = {"type": ["null", "boolean"]}


def heal_params(mode: str, settings: Mapping[str, Any]) -> dict[str, Param]:
    """Return the form of a heal: first the mode and the brokers, then the settings."""
    return {
        "mode": Param(
            mode,
            "heal: plan and execute. report: plan and report, submit nothing.",
            type="string",
            enum=["heal", "report"],
        ),
        "brokers": Param(
            None,
            "Ids of the failed brokers to heal, such as 3, 4, also in an outage. Empty: all that are due.",
            **_BROKERS,
        ),
        "ignore_grace": Param(False, "Heal all brokers that are down, without a grace period.", **_TOGGLE),
        **setting_params(settings, first=("throttle", *_OUTAGE), without=_WINDOW),
    }


def cancel_params(settings: Mapping[str, Any]) -> dict[str, Param]:
    """Return the form of a cancel: the plan, scope and reason; then the settings, which apply to a rollback."""
    return {
        "plan": _plan_param(),
        "scope": Param(
            "pending",
            "pending: cancel the reassignments in flight. plan: revert completed moves too.",
            type="string",
            enum=["pending", "plan"],
        ),
        "reason": _reason_param(),
        "even_if_disabled": Param(False, "Roll back although reassignments are disabled for this cluster.", **_TOGGLE),
        **setting_params(settings, without=_WINDOW | _HEAL),
    }


def throttle_params() -> dict[str, Param]:
    """Return the form of a change of the throttle: the plan, its rate, which has no default, and the reason."""
    return {
        "plan": _plan_param(),
        "rate": Param(
            description="Bytes per second into one broker, such as 50000000. 0: no throttle.",
            type="integer",
            minimum=0,
            maximum=2**63 - 1,
        ),
        "reason": _reason_param(),
    }


def control_params() -> dict[str, Param]:
    """Return the form of the controls: the action, which has no default, and what it needs."""
    return {
        "action": Param(
            description="disable: no move starts (KIP-236). enable: moves may start again. announce_restart: the "
            "broker is about to be restarted (KIP-46).",
            type="string",
            enum=list(CONTROL_ACTIONS),
        ),
        "reason": Param("", "The reason, for the audit trail; disable needs one.", type="string", maxLength=500),
        "broker": Param(
            None, "Id of the broker that restarts; only for announce_restart.", type=["null", "integer"], minimum=0
        ),
        "minutes": Param(
            None,
            "How long the restart lasts. Empty: the broker's grace period.",
            type=["null", "integer"],
            minimum=1,
            maximum=10_080,
        ),
    }


def fill_params(settings: Mapping[str, Any]) -> dict[str, Param]:
    """Return the form of a fill: the settings."""
    return setting_params(settings, without=_WINDOW | _HEAL)


def rebalance_params(given: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Param]:
    """Return the form of a rebalance: the operation, its goals and its budget; then the settings.

    `given` are the DAG author's values of fields. Raises SettingError for a field that does not exist, or a value that
    its field rejects.
    """
    return {**_set_param_values(_operation_params(), given), **_waiting_plan_params(settings)}


def apply_params(settings: Mapping[str, Any]) -> dict[str, Param]:
    """Return the form of an apply: the reassignment, which has no default; then the settings."""
    entry = {
        "type": "object",
        "required": ["topic", "partition", "replicas"],
        "properties": {
            "topic": {"type": "string"},
            "partition": {"type": "integer", "minimum": 0},
            "replicas": {"type": "array", "minItems": 1, **_BROKER_IDS},
        },
    }
    return {
        "reassignment": Param(
            description="Paste a file of kafka-reassign-partitions: "
            '{"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 2, 3]}]}.',
            type="object",
            required=["partitions"],
            properties={
                "version": {"const": 1},
                "partitions": {"type": "array", "minItems": 1, "items": entry},
            },
        ),
        "dry_run": _dry_run_param(),
        **_waiting_plan_params(settings),
    }


def _plan_param() -> Param:
    return Param(
        None,
        "The plan's digest, or a prefix of it. Empty: the plan that holds the plan slot.",
        type=["null", "string"],
        pattern="^([0-9a-f]{4,64})?$",
    )


def _reason_param() -> Param:
    return Param("", "The reason, for the audit trail.", type="string", maxLength=500)


def _dry_run_param() -> Param:
    return Param(False, "Stop after the review of the plan: nothing is submitted.", **_TOGGLE)


def _operation_params() -> dict[str, Param]:
    options = {name: (option.section, _option_param(option)) for name, option in GIVEN_OPTIONS.items()}
    return {
        "operation": Param(
            "rebalance",
            "rebalance: balance all brokers. expand: the same, if a broker is empty. drain: empty the named brokers. "
            "relieve: move off what disks hold above max_used. set-replication-factor: of the named topics. "
            "leaders: make leaders even; nothing is copied. demote: the named brokers lead nothing, until promote.",
            type="string",
            enum=list(REBALANCE_OPERATIONS),
        ),
        "brokers": Param(None, "Ids of the brokers to drain, demote or promote, such as 3, 4.", **_BROKERS),
        **{name: param for name, (section, param) in options.items() if not section},
        "dry_run": _dry_run_param(),
        "when_busy": Param(
            "skip",
            "While the cluster is not fully replicated and idle: skip the run, or wait until it is.",
            type="string",
            enum=["skip", "wait"],
        ),
        **{name: param for name, (section, param) in options.items() if section},
    }


def _option_param(option: PlannerOption) -> Param:
    """Return the field of an option of the planner. One without a default may be empty."""
    set_by_operation = bool(option.defaults_of)
    default = option.default if (option.default or option.kind is bool) and not set_by_operation else None
    schema: dict[str, Any]
    if option.items:
        schema = _BROKERS if option.items is int else {"type": ["null", "array"], **_PATTERNS}
    elif option.kind is bool:
        schema = _TOGGLE
    else:
        schema = {"type": option.json_type if default is not None else ["null", option.json_type], **option.json_limits}
    if option.choices:
        schema = {**schema, "enum": list(option.choices)}
    if set_by_operation:
        schema |= {"enum": [None, *option.choices], "values_display": {"null": "as the operation does"}}
    if option.section:
        schema = {**schema, "section": option.section}
    return Param(default, _describe_field(option), **schema)


def _describe_field(option: PlannerOption) -> str:
    example = ", such as 3, 4" if option.items is int else ""
    only = f"; only for {', '.join(option.of)}" if len(option.of) == 1 else ""
    others = [f"{value} for {operation}" for operation, value in option.defaults_of.items()]
    when_empty = ", ".join([*others, f"else {option.default}"]) if others else option.when_empty
    empty = f" Empty: {when_empty}." if when_empty else ""
    return f"{option.description.removesuffix('.')}{example}{only}.{empty}"


def _set_param_values(form: Mapping[str, Param], given: Mapping[str, Any]) -> dict[str, Param]:
    for name in given:
        if name not in form:
            raise SettingError(f"The form has no field {name!r}; there are {', '.join(form)}.")
    for name, value in given.items():
        form[name].value = value
        try:
            form[name].resolve()
        except AirflowException as error:
            words = str(error).splitlines()[0]
            raise SettingError(f"The field {name} of the form does not take {value!r}: {words}") from error
    return dict(form)


def setting_params(
    settings: Mapping[str, Any], *, first: Sequence[str] = ("throttle",), without: Collection[str] = ()
) -> dict[str, Param]:
    """Return one Param for each setting that a run can override, but those in `without`; those in `first` come first.

    `settings` are the DAG author's values. A description ends with the value of [kafka_steward], or with the default.
    """
    names, configured = dict.fromkeys((*first, *SETTINGS)), _read_configured_settings()
    return {
        name: _setting_param(SETTINGS[name], settings.get(name), getattr(configured, name))
        for name in names
        if SETTINGS[name].per_run and name not in without
    }


def _waiting_plan_params(settings: Mapping[str, Any]) -> dict[str, Param]:
    """Return the settings of a plan that waits for its maintenance window."""
    first = ("throttle", *sorted(_WINDOW, reverse=True))
    return setting_params(settings, first=first, without=_HEAL)


def _read_configured_settings() -> Settings:
    """Return the settings of the section [kafka_steward]; the defaults if it is wrong, which the tasks report."""
    given = {name: (conf.get("kafka_steward", name, fallback=None) or "").strip() for name in SETTINGS}
    try:
        return Settings.of({name: value for name, value in given.items() if value})
    except SettingError:
        return Settings()


def _setting_param(setting: Setting, value: Any, configured: Any) -> Param:
    schema = setting.json_limits
    if setting.choices:
        schema |= {"enum": [None, *setting.choices], "values_display": {"null": "as configured"}}
    origin = "Default" if configured == setting.default else "Configured in [kafka_steward]"
    usual = f" {origin}: {json.dumps(configured)}." if configured != "" else ""
    return Param(value, f"{setting.description}{usual}", type=["null", setting.json_type], section=SECTION, **schema)
