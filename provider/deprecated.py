"""Former names, importable from where they were until version 0.2 with a DeprecationWarning that names the current one.

A current name's module is imported when a former one is used: DAG files are parsed with this one.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_PACKAGE = "kafka_steward"


@dataclass(frozen=True)
class _Former:
    """The current path of a former name, the arguments that it implies, and the arguments that were renamed."""

    path: str
    implied: Mapping[str, Any] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)


def _moved(former: str, current: str, *names: str) -> dict[str, _Former]:
    return {f"{former}.{name}": _Former(f"{current}.{name}") for name in names}


_REVIEW, _REPORT = "operators.review.ReviewPlanOperator", "operators.report.ReportPlanOperator"
_FORMER: Mapping[str, _Former] = {
    "operators.outcome.ShowPlanOperator": _Former(_REVIEW, {}, {"only_show": "plan_only"}),
    "operators.report.TellPlanOperator": _Former(_REVIEW, {"mode": "heal"}),
    "operators.outcome.ReportPlanOperator": _Former(_REPORT, {}, {"shown": "review", "draining_brokers": "brokers"}),
    "operators.report.ReportHealOperator": _Former(_REPORT, {"verify": "heal"}, {"on_healed": "on_done"}),
    "operators.owed.ReportFillOperator": _Former(_REPORT, {"verify": "fill"}, {"on_filled": "on_done"}),
    "operators.owed.SnapshotOwedOperator": _Former(
        "operators.snapshot.SnapshotClusterOperator", {"pending_replicas": True}
    ),
    "operators.owed.FindOwedOperator": _Former("operators.pending_replicas.FindPendingReplicasOperator"),
    "operators.given.CheckReassignmentOperator": _Former("operators.reassignment.CheckReassignmentOperator"),
    "operators.gate.GateOperator": _Former("operators.gate.ClusterReadyOperator"),
    "operators.joined.FindJoinedOperator": _Former("operators.joined.ClaimEmptyBrokersOperator"),
    "operators.bounce.AnnounceBounceOperator": _Former("operators.bounce.AnnounceBrokerRestartOperator"),
    "operators.rebalance.WISHES": _Former("operators.rebalance.REQUEST_FIELDS"),
    "dags.documents.work_asked": _Former("dags.documents.reassignment_requested"),
    "dags.documents.cancel_asked": _Former("dags.documents.cancel_requested"),
    "dags.broker_new": _Former("dags.empty_broker_joined"),
    "dags.rebalance.broker_new": _Former("dags.rebalance.empty_broker_joined"),
    **_moved("operators.conf", "operators.base", "refuse_unknown_keys", "unknown_keys"),
    **_moved("operators.notify", "operators.base", "Notifiers", "as_notifiers", "notify"),
    **_moved("operators.people", "operators.approve", "Approvers", "approvers_of", "checked_bytes", "request_shown"),
    **_moved("operators.rollback", "operators.cancel", "RollbackReassignmentOperator"),
    **_moved("operators.spark", "operators.plan", "LOCAL_CONN_ID", "LOCAL_CONF", "QUIET_CONF", "Master"),
    **_moved("operators.spark", "operators.plan", "local_environment", "master_of", "offer_local_connection"),
    # The trigger of a cancel, in tasks that an earlier release deferred.
    "triggers.undo_plan.UndoPlanTrigger": _Former("triggers.run_plan.RunPlanTrigger"),
}


def keep_former_modules(package: str, *names: str) -> None:
    """Make the modules `names` of a package importable, which have no file: they hold nothing but former names."""
    for name in names:
        module = ModuleType(f"{package}.{name}", "Former names.")
        module.__spec__ = ModuleSpec(module.__name__, None)
        sys.modules[module.__name__] = module
        setattr(sys.modules[package], name, module)
        keep_former_names(module.__name__)


def keep_former_names(module: str) -> None:
    """Make the former names of a module resolve to the current ones, each with a DeprecationWarning."""
    prefix = f"{module.removeprefix(f'{_PACKAGE}.')}."

    def resolve(name: str) -> Any:
        former = _FORMER.get(prefix + name)
        if former is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        message = f"{module}.{name} is deprecated, and gone in version 0.2; use {_replacement(former)}."
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return _resolve(prefix + name)

    # Not defined in the module: a type checker would then accept every name of it.
    vars(sys.modules[module])["__getattr__"] = resolve


def warn_of_former_argument(operator: type, former: str, current: str) -> None:
    """Warn that an operator was called with a renamed argument."""
    message = f"The argument {former} of {operator.__name__} is deprecated, and gone in version 0.2; use {current}."
    warnings.warn(message, DeprecationWarning, stacklevel=3)


def _replacement(former: _Former) -> str:
    arguments = ", ".join(f"{name}={value!r}" for name, value in former.implied.items())
    return f"{_PACKAGE}.{former.path}" + (f"({arguments})" if arguments else "")


@cache
def _resolve(key: str) -> Any:
    former = _FORMER[key]
    module, name = former.path.rsplit(".", 1)
    current = getattr(import_module(f"{_PACKAGE}.{module}"), name)
    if not (former.implied or former.renamed):
        return current

    def init(self: Any, **kwargs: Any) -> None:
        given = {former.renamed.get(name, name): value for name, value in kwargs.items()}
        super(subclass, self).__init__(**{**former.implied, **given})

    # Airflow shows the name of a task's class, and finds the class by its module.
    module, name = key.rsplit(".", 1)
    subclass = type(current)(name, (current,), {"__init__": init, "__module__": f"{_PACKAGE}.{module}"})
    return subclass
