"""The approvers and limits that a DAG author sets, and the approval request as Airflow shows it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from kafka_steward.errors import SettingError

if TYPE_CHECKING:
    from airflow.providers.standard.operators.hitl import HITLOperator
    from airflow.sdk import Context
    from airflow.sdk.execution_time.hitl import HITLUser

__all__ = ["Approvers", "approvers_of", "checked_bytes", "request_shown"]

#: Ids of Airflow's users, or `{"id", "name"}` of each; None allows every user who may answer for the DAG.
Approvers: TypeAlias = "Collection[str | Mapping[str, str]] | None"


def approvers_of(given: Approvers) -> list[HITLUser] | None:
    """Return the approvers in Airflow's format, without duplicates. Raises SettingError for an empty or invalid value.

    The id format depends on Airflow's auth manager: the name with SimpleAuthManager, a number with the FAB provider's.
    """
    if given is None:
        return None
    if isinstance(given, str | Mapping) or not given:
        raise SettingError(
            f"approvers is {given!r}; it takes a list of the ids of Airflow's users, or None for no limit."
        )
    users = [_user(one) for one in given]
    return [user for at, user in enumerate(users) if user not in users[:at]]


def _user(given: Any) -> HITLUser:
    fields = {"id": given, "name": given} if isinstance(given, str) else given
    if not isinstance(fields, Mapping) or not all(isinstance(fields.get(name), str) for name in ("id", "name")):
        raise SettingError(f"The approver {given!r} is neither the id of a user nor {{'id': ..., 'name': ...}}.")
    return {"id": fields["id"], "name": fields["name"]}


def checked_bytes(approve_above: Any) -> int | None:
    """Return `approve_above` unchanged. Raises SettingError unless it is a number of bytes or None.

    Only a literal of the DAG author is accepted: no field of a run's form and no other result of a run can replace it.
    """
    if approve_above is None or (type(approve_above) is int and approve_above >= 0):
        return approve_above
    raise SettingError(f"approve_above is {approve_above!r}; it takes a whole number of bytes, or None to ask always.")


def request_shown(operator: HITLOperator, context: Context) -> tuple[str, str | None, list[HITLUser]]:
    """Request input as HITLOperator does; return the subject, body and approvers that Airflow then shows.

    Airflow keeps one request for each task of a run, and shows the first one even if a later try requests something
    else.
    """
    # HITLOperator sends the same message, but discards the response.
    from airflow.sdk.api.datamodels._generated import HITLUser as User
    from airflow.sdk.execution_time.comms import CreateHITLDetailPayload
    from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS

    shown: Any = SUPERVISOR_COMMS.send(
        msg=CreateHITLDetailPayload(
            ti_id=context["task_instance"].id,
            options=operator.options,
            subject=operator.subject,
            body=operator.body,
            defaults=operator.defaults,
            multiple=operator.multiple,
            params=operator.serialized_params,
            assigned_users=[User(**user) for user in operator.assigned_users or ()],
        )
    )
    return shown.subject, shown.body, [{"id": user.id, "name": user.name} for user in shown.assigned_users or ()]
