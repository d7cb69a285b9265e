"""Former names, importable from where they were until version 0.3 with a DeprecationWarning that names the current one.

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
class _FormerName:
    """The current path of a former name, the arguments that it implies, and the arguments that were renamed."""

    path: str
    implied: Mapping[str, Any] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)


def _map_moved_names(former: str, current: str, *names: str) -> dict[str, _FormerName]:
    return {f"{former}.{name}": _FormerName(f"{current}.{name}") for name in names}


_REVIEW, _REPORT = "operators.review.ReviewPlanOperator", "operators.report.ReportPlanOperator"
_FORMER: Mapping[str, _FormerName] = {
    "operators.outcome.ShowPlanOperator": _FormerName(_REVIEW, {}, {"only_show": "plan_only"}),
    "operators.report.TellPlanOperator": _FormerName(_REVIEW, {"mode": "heal"}),
    "operators.outcome.ReportPlanOperator": _FormerName(
        _REPORT, {}, {"shown": "review", "draining_brokers": "brokers"}
    ),
    "operators.report.ReportHealOperator": _FormerName(_REPORT, {"verify": "heal"}, {"on_healed": "on_done"}),
    "operators.owed.ReportFillOperator": _FormerName(_REPORT, {"verify": "fill"}, {"on_filled": "on_done"}),
    "operators.owed.SnapshotOwedOperator": _FormerName(
        "operators.snapshot.SnapshotClusterOperator", {"pending_replicas": True}
    ),
    "operators.owed.FindOwedOperator": _FormerName("operators.pending_replicas.FindPendingReplicasOperator"),
    "operators.given.CheckReassignmentOperator": _FormerName("operators.reassignment.CheckReassignmentOperator"),
    "operators.gate.GateOperator": _FormerName("operators.gate.ClusterReadyOperator"),
    "operators.joined.FindJoinedOperator": _FormerName("operators.rebalance.ClaimEmptyBrokersOperator"),
    "operators.bounce.AnnounceBounceOperator": _FormerName("operators.bounce.AnnounceBrokerRestartOperator"),
    "operators.rebalance.WISHES": _FormerName("operators.rebalance.REQUEST_FIELDS"),
    "dags.documents.work_asked": _FormerName("dags.documents.reassignment_requested"),
    "dags.documents.cancel_asked": _FormerName("dags.documents.cancel_requested"),
    "dags.broker_new": _FormerName("dags.empty_broker_joined"),
    "dags.rebalance.broker_new": _FormerName("dags.rebalance.empty_broker_joined"),
    "operators.conf.unknown_keys": _FormerName("operators.base.unknown_keys_message"),
    "operators.notify.as_notifiers": _FormerName("operators.base.to_notifier_list"),
    "operators.people.approvers_of": _FormerName("operators.approve.parse_approvers"),
    "operators.people.checked_bytes": _FormerName("operators.approve.validate_approve_above"),
    "operators.people.request_shown": _FormerName("operators.approve.request_input"),
    "operators.spark.master_of": _FormerName("hooks.spark.find_spark_cluster"),
    **_map_moved_names("operators.conf", "operators.base", "refuse_unknown_keys"),
    **_map_moved_names("operators.notify", "operators.base", "Notifiers", "notify"),
    **_map_moved_names("operators.people", "operators.approve", "Approvers"),
    **_map_moved_names("operators.rollback", "operators.cancel", "RollbackReassignmentOperator"),
    "operators.spark.Master": _FormerName("hooks.spark.SparkCluster"),
    **_map_moved_names("operators.spark", "operators.plan", "LOCAL_CONF", "QUIET_CONF"),
    **_map_moved_names(
        "operators.spark", "hooks.spark", "LOCAL_CONN_ID", "local_environment", "offer_local_connection"
    ),
    # The trigger of a cancel, in tasks that an earlier release deferred.
    "triggers.undo_plan.UndoPlanTrigger": _FormerName("triggers.run_plan.RunPlanTrigger"),
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
        message = f"{module}.{name} is deprecated, and gone in version 0.3; use {_replacement_text(former)}."
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return _resolve_former_name(prefix + name)

    # Not defined in the module: a type checker would then accept every name of it.
    vars(sys.modules[module])["__getattr__"] = resolve


def warn_of_former_argument(operator: type, former: str, current: str) -> None:
    """Warn that an operator was called with a renamed argument."""
    message = f"The argument {former} of {operator.__name__} is deprecated, and gone in version 0.3; use {current}."
    warnings.warn(message, DeprecationWarning, stacklevel=3)


def _replacement_text(former: _FormerName) -> str:
    arguments = ", ".join(f"{name}={value!r}" for name, value in former.implied.items())
    return f"{_PACKAGE}.{former.path}" + (f"({arguments})" if arguments else "")


@cache
def _resolve_former_name(key: str) -> Any:
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
