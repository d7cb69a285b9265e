"""Every knob of a run, once, as a typed Param: the UI makes a form of them, in which an empty field is no override."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, fields
from typing import Any

from airflow.sdk import Param

from kafka_steward.provider_info import SETTINGS
from kafka_steward.settings import Settings

__all__ = ["cancel_params", "heal_params", "setting_params"]

#: The title of the form's second part.
SECTION = "Settings (empty: as configured)"
_TYPES = {"float": "number", "integer": "integer", "boolean": "boolean", "string": "string"}
#: Read by the watch, which no run can change, or by upkeep.
_NOT_OF_A_RUN = frozenset(
    {
        "heal_failure_interval",
        "heal_fast_detection",
        "heal_retry_interval",
        "watch_interval",
        "foreign_while_disabled",
        "submission",
        "abandoned_after",
        "enable_under_replicated_topic_creation",
        "plan_retention",
    }
)


def heal_params(mode: str, settings: Mapping[str, Any]) -> dict[str, Param]:
    """The form of a heal: what to do first, then the settings."""
    return {
        "mode": Param(
            mode,
            "heal: plan and carry out. report: plan and tell, submit nothing.",
            type="string",
            enum=["heal", "report"],
        ),
        "brokers": Param(
            None,
            "Ids of the failed brokers to heal, such as [3, 4]. Empty: all that are due.",
            type=["null", "array"],
            items={"type": "integer", "minimum": 0},
        ),
        "ignore_grace": Param(False, "Heal what is dead now, without waiting for the grace period.", type="boolean"),
        **setting_params(settings),
    }


def cancel_params(settings: Mapping[str, Any]) -> dict[str, Param]:
    """The form of a cancel: what, how much of it, and why; then the settings, which a rollback heeds."""
    return {
        "plan": Param(
            None,
            "The plan's digest, or its first letters; empty: the plan that has the cluster.",
            type=["null", "string"],
            pattern="^([0-9a-f]{4,64})?$",
        ),
        "scope": Param(
            "pending",
            "pending: cancel what is in flight. plan: take back what is complete too.",
            type="string",
            enum=["pending", "plan"],
        ),
        "reason": Param("", "Why, for the audit trail.", type="string", maxLength=500),
        "even_if_disabled": Param(
            False, "Roll back although reassignments are switched off for this cluster.", type="boolean"
        ),
        **setting_params(settings),
    }


def setting_params(settings: Mapping[str, Any]) -> dict[str, Param]:
    """One Param for each setting that a run can override; `settings` are the DAG author's values."""
    knobs = [knob for knob in fields(Settings) if knob.name not in _NOT_OF_A_RUN]
    return {knob.name: _param(knob, settings.get(knob.name)) for knob in knobs}


def _param(knob: Field[Any], value: Any) -> Param:
    kind, _, description = SETTINGS[knob.name]
    facts = knob.metadata
    limits = {"minimum": facts["low"], "maximum": facts["high"], "pattern": facts["pattern"]}
    schema: dict[str, Any] = {name: limit for name, limit in limits.items() if limit is not None}
    if facts["choices"]:
        schema |= {"enum": [None, *facts["choices"]], "values_display": {"null": "as configured"}}
    return Param(value, description, type=["null", _TYPES[kind]], section=SECTION, **schema)
