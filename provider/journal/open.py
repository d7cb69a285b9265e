"""Opening a journal: which backend for which URL, the one-host rule of SQLite, and what may go wrong, in sentences."""

from __future__ import annotations

import platform
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import TYPE_CHECKING

from kafka_steward.errors import PlanError
from kafka_steward.journal.audit import Audit
from kafka_steward.journal.locks import LIFE_MS, Guard, Slot, StepLock
from kafka_steward.journal.plans import Plans
from kafka_steward.journal.tree import Tree

if TYPE_CHECKING:
    from typing_extensions import Self

    from kafka_steward.journal.database import Database
    from kafka_steward.journal.sql_health import HealthRows
    from kafka_steward.journal.zk_options import ZooKeeperOptions

__all__ = ["Journal", "open_journal"]


class Journal:
    """The durable record of one cluster. Safe in threads; a context manager that closes it."""

    def __init__(
        self,
        cluster_id: str,
        *,
        tree: Tree,
        audit: Audit,
        plans: Plans,
        together: Callable[[], AbstractContextManager[object]],
        close: Callable[[], None],
        guard: Guard | None = None,
        health: HealthRows | None = None,
    ) -> None:
        self.cluster_id = cluster_id
        self.tree = tree
        self.audit = audit
        self.plans = plans
        self.slot = Slot(tree)
        self.together = together
        #: Rows for plots; None for a journal without a database.
        self.health = health
        self._close = close
        self._guard = guard

    def __repr__(self) -> str:
        return f"Journal(cluster_id={self.cluster_id!r})"

    def now_ms(self) -> int:
        """The journal's clock, in milliseconds since 1970."""
        return self.tree.now_ms()

    def must_be_of(self, cluster_id: str) -> None:
        """Raises PlanError when this is the journal of another cluster."""
        if self.cluster_id != cluster_id:
            raise PlanError(
                f"The journal is of cluster {self.cluster_id}, and this is {cluster_id}; open the journal of this "
                "cluster."
            )

    def step_lock(self, owner: str, *, life_ms: int = LIFE_MS) -> StepLock:
        """The right to step, to be used as a context manager. `owner` names the process for people."""
        return StepLock(self.tree, owner, life_ms=life_ms, guard=self._guard)

    def close(self) -> None:
        """Give back everything held open. Harmless when called twice."""
        self.tree.close()
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_journal(
    url: str, cluster_id: str, *, host: str | None = None, zookeeper: ZooKeeperOptions | None = None
) -> Journal:
    """Open the journal of a cluster, and create or upgrade its tables.

    `url` is SQLAlchemy's: `sqlite:////path/journal.db` or `postgresql+psycopg://user:password@host/name`. `host` is
    this machine's name, by default the operating system's word; a SQLite journal belongs to the first host. With
    `zookeeper` the tree is kept there, where the KIPs put it; plans' rows and the audit trail stay in SQL.

    Raises SettingError for a URL that cannot be used, JournalUnreachable when the database or ZooKeeper does not
    answer, WrongCluster when ZooKeeper is another cluster's, and JournalError when the database belongs to another
    host, cannot be written, or was written by a newer Kafka Steward.
    """
    # SQLAlchemy is loaded only here, so that parsing a DAG costs nothing.
    from kafka_steward.journal.engine import open_database  # noqa: PLC0415

    database = open_database(url, cluster_id, host or platform.node())
    try:
        return _in_zookeeper(database, zookeeper) if zookeeper else _in_sql(database)
    except BaseException:
        database.close()
        raise


def _in_sql(database: Database) -> Journal:
    from kafka_steward.journal.sql_audit import AuditTable  # noqa: PLC0415
    from kafka_steward.journal.sql_health import HealthRows  # noqa: PLC0415
    from kafka_steward.journal.sql_moves import MoveTable  # noqa: PLC0415
    from kafka_steward.journal.sql_tree import SqlTree  # noqa: PLC0415

    tree, together = SqlTree(database), database.transaction
    return Journal(
        database.cluster_id,
        tree=tree,
        audit=Audit(AuditTable(database)),
        plans=Plans(tree, MoveTable(database), database.cluster_id, together),
        together=together,
        close=database.close,
        health=HealthRows(database),
    )


def _in_zookeeper(database: Database, options: ZooKeeperOptions) -> Journal:
    from kafka_steward.journal.sql_audit import AuditTable  # noqa: PLC0415
    from kafka_steward.journal.sql_guard import SqlGuard  # noqa: PLC0415
    from kafka_steward.journal.sql_health import HealthRows  # noqa: PLC0415
    from kafka_steward.journal.sql_moves import MoveTable  # noqa: PLC0415
    from kafka_steward.journal.zk_tree import ZkTree  # noqa: PLC0415

    tree = ZkTree(options)
    try:
        tree.refuse_unless(database.cluster_id)
    except BaseException:
        tree.close()
        raise
    plans = Plans(tree, MoveTable(database), database.cluster_id, nullcontext, rows_together=database.transaction)
    return Journal(
        database.cluster_id,
        tree=tree,
        audit=Audit(AuditTable(database)),
        plans=plans,
        together=nullcontext,
        close=database.close,
        guard=SqlGuard(database),
        health=HealthRows(database),
    )
