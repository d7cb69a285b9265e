"""Ask Airflow's auth manager what a user may see and do, and list the DAGs of each cluster.

A user sees a cluster when they may read a DAG that carries its tag. Only the api-server imports this module.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

# At module level: FastAPI evaluates the annotations of the routes in their module's namespace.
from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import get_user
from airflow.models.connection import Connection
from airflow.models.dag import DagModel, DagTag
from airflow.models.dagrun import DagRun
from airflow.models.hitl import HITLDetail
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from fastapi import Depends
from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from kafka_steward.airflow_versions import AWAITING_APPROVAL
from kafka_steward.cluster_tag import STEWARD_TAG, cluster_tag, tagged_conn_id, tagged_workflow

UserDep = Annotated[BaseUser, Depends(get_user)]

#: The largest number of open approvals that are shown.
_APPROVALS = 20


@dataclass(frozen=True)
class WorkflowDag:
    """A DAG of a cluster. `workflow` is None for a DAG that an author built from operators."""

    dag_id: str
    workflow: str | None
    paused: bool
    team: str | None = None


@dataclass(frozen=True)
class PendingApproval:
    """A plan that waits for an answer in a run of `dag_id`. `answerable` says whether this user may give it.

    `person` is who started the run, None if nobody did.
    """

    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    subject: str
    since_ms: int
    answerable: bool
    person: str | None = None


@dataclass(frozen=True)
class VisibleClusters:
    """The clusters that a user may see, by `conn_id`, each with its DAGs that this user may read.

    `without_dag` are connections that this user may read and that no DAG uses.
    """

    dags: Mapping[str, tuple[WorkflowDag, ...]] = field(default_factory=dict)
    without_dag: tuple[str, ...] = ()


class AirflowAccess:
    """The questions to Airflow that the page asks for one `user`. Each reads Airflow's own database."""

    def __init__(self, user: BaseUser) -> None:
        self._user = user

    @property
    def name(self) -> str:
        """The user's name."""
        return str(self._user.get_name())

    def visible_clusters(self) -> VisibleClusters:
        """Return the clusters of which the user may read a DAG, and the connections that no DAG uses."""
        with create_session() as session:
            tags, paused = _tags_of_dags(session, DagTag.name.startswith(STEWARD_TAG, autoescape=True))
            known = set(session.scalars(select(Connection.conn_id).where(Connection.conn_type == "kafka_steward")))
        by_cluster = _group_by_cluster(tags, paused, known, self._readable_dags(tags))
        used = {conn_id for conn_id in known if any(cluster_tag(conn_id) in of_dag for of_dag in tags.values())}
        unused = known - used
        if unused:
            unused &= get_auth_manager().get_authorized_connections(user=self._user, method="GET")
        return VisibleClusters(by_cluster, tuple(sorted(unused)))

    def dags_of(self, conn_id: str) -> tuple[WorkflowDag, ...]:
        """Return the DAGs of one cluster that the user may read; empty if the user may not see the cluster."""
        with create_session() as session:
            tagged = select(DagTag.dag_id).where(DagTag.name == cluster_tag(conn_id))
            tags, paused = _tags_of_dags(session, DagTag.dag_id.in_(tagged))
        return _group_by_cluster(tags, paused, {conn_id}, self._readable_dags(tags)).get(conn_id, ())

    def may_trigger(self, dag: WorkflowDag) -> bool:
        """Return whether the user may start a run of the DAG."""
        return self._may(dag, DagAccessEntity.RUN, "POST")

    def pending_approvals(self, dags: Collection[WorkflowDag]) -> list[PendingApproval]:
        """Return the plans of these DAGs that wait for an answer, the oldest first."""
        by_id = {dag.dag_id: dag for dag in dags}
        with create_session() as session:
            rows = session.execute(
                select(
                    *(TaskInstance.dag_id, TaskInstance.run_id, TaskInstance.task_id, TaskInstance.map_index),
                    *(HITLDetail.subject, HITLDetail.created_at, HITLDetail.assignees),
                    DagRun.triggering_user_name,
                )
                .join(TaskInstance, TaskInstance.id == HITLDetail.ti_id)
                .join(DagRun, (DagRun.dag_id == TaskInstance.dag_id) & (DagRun.run_id == TaskInstance.run_id))
                .where(
                    TaskInstance.dag_id.in_(by_id),
                    TaskInstance.state.in_(AWAITING_APPROVAL),
                    HITLDetail.responded_at.is_(None),
                )
                .order_by(HITLDetail.created_at)
                .limit(_APPROVALS)
            ).all()
        return [
            PendingApproval(
                *(row.dag_id, row.run_id, row.task_id, row.map_index, row.subject),
                since_ms=int(row.created_at.timestamp() * 1000),
                answerable=self._may_answer(by_id[row.dag_id], row.assignees),
                person=row.triggering_user_name,
            )
            for row in rows
        ]

    def _may_answer(self, dag: WorkflowDag, assignees: Collection[Mapping[str, str]] | None) -> bool:
        users = {assignee["id"] for assignee in assignees or ()}
        named = not users or get_auth_manager().is_authorized_hitl_task(assigned_users=users, user=self._user)
        return named and self._may(dag, DagAccessEntity.HITL_DETAIL, "PUT")

    def _may(self, dag: WorkflowDag, entity: DagAccessEntity, method: Any) -> bool:
        details = DagDetails(id=dag.dag_id, team_name=dag.team)
        return bool(
            get_auth_manager().is_authorized_dag(method=method, access_entity=entity, details=details, user=self._user)
        )

    def _readable_dags(self, dag_ids: Collection[str]) -> dict[str, str | None]:
        """Return the team of each of these DAGs that the user may read."""
        if not dag_ids:
            return {}
        team_of = DagModel.get_dag_id_to_team_name_mapping(list(dag_ids))
        by_team: dict[str | None, set[str]] = defaultdict(set)
        for dag_id in dag_ids:
            by_team[team_of.get(dag_id)].add(dag_id)
        manager = get_auth_manager()
        return {
            dag_id: team
            for team, ids in by_team.items()
            for dag_id in manager.filter_authorized_dag_ids(dag_ids=ids, user=self._user, method="GET", team_name=team)
        }


def _tags_of_dags(session: Session, condition: ColumnElement[bool]) -> tuple[dict[str, set[str]], dict[str, bool]]:
    """Return the tags of each DAG whose tags meet the condition, and whether it is paused."""
    query = select(DagTag.dag_id, DagTag.name, DagModel.is_paused).join(DagModel, DagModel.dag_id == DagTag.dag_id)
    tags: dict[str, set[str]] = defaultdict(set)
    paused = {}
    for dag_id, tag, is_paused in session.execute(query.where(condition, DagModel.is_stale.is_(False))):
        tags[dag_id].add(tag)
        paused[dag_id] = bool(is_paused)
    return tags, paused


def _group_by_cluster(
    tags: Mapping[str, Collection[str]],
    paused: Mapping[str, bool],
    known: Collection[str],
    readable: Mapping[str, str | None],
) -> dict[str, tuple[WorkflowDag, ...]]:
    """Return the readable DAGs by `conn_id`. Pure."""
    by_tag = {cluster_tag(conn_id): conn_id for conn_id in known}
    grouped: dict[str, list[WorkflowDag]] = defaultdict(list)
    for dag_id in sorted(readable):
        workflow = next(filter(None, map(tagged_workflow, sorted(tags[dag_id]))), None)
        for tag in tags[dag_id]:
            conn_id = by_tag.get(tag) or tagged_conn_id(tag)
            if conn_id:
                grouped[conn_id].append(WorkflowDag(dag_id, workflow, paused[dag_id], readable[dag_id]))
    return {conn_id: tuple(dags) for conn_id, dags in sorted(grouped.items())}
