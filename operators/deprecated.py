"""Former names of operators. They are importable from where they were until version 0.2, with a DeprecationWarning."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any

__all__ = ["former_names"]

_PACKAGE = "kafka_steward.operators"


@dataclass(frozen=True)
class _Former:
    """The operator that a former name stands for: its module and name, arguments it implies, and renamed arguments."""

    module: str
    name: str
    implied: Mapping[str, Any] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)


_FORMER: Mapping[str, _Former] = {
    "outcome.ShowPlanOperator": _Former("review", "ReviewPlanOperator", renamed={"only_show": "plan_only"}),
    "outcome.ReportPlanOperator": _Former(
        "report", "ReportPlanOperator", renamed={"shown": "review", "draining_brokers": "brokers"}
    ),
    "report.TellPlanOperator": _Former("review", "ReviewPlanOperator", {"mode": "heal"}),
    "report.ReportHealOperator": _Former("report", "ReportPlanOperator", {"verify": "heal"}, {"on_healed": "on_done"}),
    "owed.ReportFillOperator": _Former("report", "ReportPlanOperator", {"verify": "fill"}, {"on_filled": "on_done"}),
    "owed.SnapshotOwedOperator": _Former("snapshot", "SnapshotClusterOperator", {"pending_replicas": True}),
}


def former_names(module: str) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module: it resolves the module's former names, each with a DeprecationWarning."""

    def resolve(name: str) -> Any:
        key = f"{module.removeprefix(f'{_PACKAGE}.')}.{name}"
        if key not in _FORMER:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        message = f"{module}.{name} is deprecated, and gone in version 0.2; use {_replacement(_FORMER[key])}."
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return _resolved(key)

    return resolve


def _replacement(former: _Former) -> str:
    arguments = ", ".join(f"{name}={value!r}" for name, value in former.implied.items())
    return f"{_PACKAGE}.{former.module}.{former.name}" + (f"({arguments})" if arguments else "")


@cache
def _resolved(key: str) -> Any:
    former = _FORMER[key]
    current = getattr(import_module(f"{_PACKAGE}.{former.module}"), former.name)
    if not (former.implied or former.renamed):
        return current

    def init(self: Any, **kwargs: Any) -> None:
        given = {former.renamed.get(name, name): value for name, value in kwargs.items()}
        super(subclass, self).__init__(**{**former.implied, **given})

    # Airflow shows the name of a task's class, and finds the class by its module.
    module, name = key.split(".")
    subclass = type(current)(name, (current,), {"__init__": init, "__module__": f"{_PACKAGE}.{module}"})
    return subclass
