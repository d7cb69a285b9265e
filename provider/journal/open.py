"""Opening a journal: which backend for which URL, the one-host rule of SQLite, and what may go wrong, in sentences."""

from __future__ import annotations

import platform
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING

from kafka_steward.journal.audit import Audit
from kafka_steward.journal.locks import LIFE_MS, Slot, StepLock
from kafka_steward.journal.plans import Plans
from kafka_steward.journal.tree import Tree

if TYPE_CHECKING:
    from typing_extensions import Self

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
    ) -> None:
        self.cluster_id = cluster_id
        self.tree = tree
        self.audit = audit
        self.plans = plans
        self.slot = Slot(tree)
        self.together = together
        self._close = close

    def __repr__(self) -> str:
        return f"Journal(cluster_id={self.cluster_id!r})"

    def now_ms(self) -> int:
        """The journal's clock, in milliseconds since 1970."""
        return self.tree.now_ms()

    def step_lock(self, owner: str, *, life_ms: int = LIFE_MS) -> StepLock:
        """The right to step, to be used as a context manager. `owner` names the process for people."""
        return StepLock(self.tree, owner, life_ms=life_ms)

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


def open_journal(url: str, cluster_id: str, *, host: str | None = None) -> Journal:
    """Open the journal of a cluster, and create or upgrade its tables.

    `url` is SQLAlchemy's: `sqlite:////path/journal.db` or `postgresql+psycopg://user:password@host/name`. `host` is
    this machine's name, by default the operating system's word; a SQLite journal belongs to the first host.

    Raises SettingError for a URL that cannot be used, JournalUnreachable when the database does not answer, and
    JournalError when it belongs to another host, cannot be written, or was written by a newer Kafka Steward.
    """
    # SQLAlchemy is loaded only here, so that parsing a DAG costs nothing.
    from kafka_steward.journal.engine import open_database  # noqa: PLC0415
    from kafka_steward.journal.sql_audit import AuditTable  # noqa: PLC0415
    from kafka_steward.journal.sql_moves import MoveTable  # noqa: PLC0415
    from kafka_steward.journal.sql_tree import SqlTree  # noqa: PLC0415

    database = open_database(url, cluster_id, host or platform.node())
    tree, together = SqlTree(database), database.transaction
    plans = Plans(tree, MoveTable(database), cluster_id, together)
    return Journal(
        cluster_id,
        tree=tree,
        audit=Audit(AuditTable(database)),
        plans=plans,
        together=together,
        close=database.close,
    )
