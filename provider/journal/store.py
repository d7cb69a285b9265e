"""The journal of one cluster, and its opening: all in a database, but the KIPs' documents of a ZooKeeper cluster."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from kafka_steward.errors import PlanError
from kafka_steward.journal.audit import Audit
from kafka_steward.journal.listing import quarantine_document
from kafka_steward.journal.locks import TTL_MS, PlanSlot, StepLock, new_holder_name
from kafka_steward.journal.mailbox import Mailbox
from kafka_steward.journal.plans import Plans
from kafka_steward.journal.state import Noun, Rows, State

if TYPE_CHECKING:
    from typing import Self

    from kafka_steward.journal.hosts import HostActivity
    from kafka_steward.journal.identity import Identity
    from kafka_steward.journal.sql.plan_reports import PlanReports
    from kafka_steward.journal.sql.view import Views
    from kafka_steward.journal.sql.watch_reports import HealthHistory, WatchReports
    from kafka_steward.journal.zookeeper.options import ZooKeeperOptions

K = TypeVar("K")
T = TypeVar("T")


@dataclass(eq=False, repr=False, kw_only=True)
class Journal:
    """The durable record of one cluster. Thread-safe; as a context manager it closes itself."""

    cluster_id: str
    mailbox: Mailbox
    state: State
    audit: Audit
    plans: Plans
    #: Begins a transaction over all that is in the database; a nested one joins the outer one.
    transaction: Callable[[], AbstractContextManager[object]]
    #: Calls a function that writes or deletes documents as the rows of the transaction require it: within the
    #: transaction if the documents are in the same database, after it if they are in ZooKeeper.
    project: Callable[[Callable[[], None]], None]
    close_connections: Callable[[], None]
    #: Health measures for plots; None for a journal without a database, as each of the next three.
    health: HealthHistory | None = None
    #: When hosts opened the journal, and when watches polled.
    hosts: HostActivity | None = None
    #: The proofs and the progress of plans, for the page.
    plan_reports: PlanReports | None = None
    #: What the page shows of the watch.
    watch_reports: WatchReports | None = None
    #: The identity that both halves contain; None if the journal was opened without comparing them.
    identity: Identity | None = None
    #: Gives both halves a new identity; None for a journal without a database.
    pair: Callable[[], Identity] | None = None
    #: The Airflow connection by which it was opened, for the commands that messages suggest; None without one.
    conn_id: str | None = None

    def __repr__(self) -> str:
        return f"Journal(cluster_id={self.cluster_id!r})"

    @property
    def slot(self) -> PlanSlot:
        """The plan slot."""
        return PlanSlot(self.state)

    def now_ms(self) -> int:
        """Return the time of the journal's clock, in milliseconds since 1970."""
        return self.state.now_ms()

    def rows(self, noun: Noun[K, T]) -> Rows[K, T]:
        """Return the rows of a noun of our own state."""
        return Rows(self.state, noun)

    @contextmanager
    def one_read(self, *, again: bool = False) -> Iterator[None]:
        """Let the reads of this thread in the block be answered by one request, as in `Mailbox.one_read`."""
        with self.mailbox.one_read(again=again), self.state.one_read(again=again):
            yield

    def record_poll(self, *kinds: str) -> None:
        """Record that the watch's polls of these `kinds` succeeded now, if the journal has a database for it."""
        if self.hosts is not None:
            self.hosts.record_polls(*kinds)

    def require_cluster(self, cluster_id: str) -> None:
        """Raise PlanError if this is the journal of another cluster."""
        if self.cluster_id != cluster_id:
            raise PlanError(
                f"The journal is of cluster {self.cluster_id}, and this is {cluster_id}; open the journal of this "
                "cluster."
            )

    def step_lock(self, owner: str | None = None, *, ttl_ms: int = TTL_MS) -> StepLock:
        """Return the step lock, to be used as a context manager. Messages name `owner`, by default this process."""
        return StepLock(self.state, owner or new_holder_name(), ttl_ms=ttl_ms)

    def bind_rows_to_mailbox(self) -> Identity | None:
        """Bind rows and mailbox to each other by a new id: any other journal that shares a half is refused later.

        Returns the new identity; for a journal without a database, the identity is unchanged. Raises
        JournalUnreachable.
        """
        if self.pair is not None:
            self.identity = self.pair()
        return self.identity

    def close(self) -> None:
        """Close all connections. Harmless when called twice."""
        self.close_connections()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_journal(
    url: str,
    cluster_id: str,
    *,
    host: str | None = None,
    zookeeper: ZooKeeperOptions | None = None,
    compare: bool = True,
    clock: Callable[[], int] | None = None,
) -> Journal:
    """Open the journal of a cluster, and create or upgrade its tables.

    `url` is the SQLAlchemy URL of one of the `DATABASES`. `host` is this machine's name, by default the one that the
    operating system reports; a journal in a local database belongs to the first host that opens it. With `zookeeper`
    the documents of the KIPs are there, at the KIPs' paths; everything else is in the database. Both halves contain
    the journal's id. Unless `compare` is False, the two ids are compared, and this host is recorded. `clock` is a
    simulated time, as in `open_database`.

    Raises SettingError for an unusable URL, JournalUnreachable when the database or ZooKeeper does not answer,
    WrongCluster when ZooKeeper belongs to another cluster, WrongJournal when rows and mailbox do not belong to one
    journal, and JournalError when the database belongs to another host, cannot be written, or was written by a newer
    Kafka Steward.
    """
    # SQLAlchemy and kazoo are imported only here, so that parsing a DAG does not import them.
    from kafka_steward.journal.sql.database import open_database  # noqa: PLC0415
    from kafka_steward.journal.sql.mailbox import SqlMailbox  # noqa: PLC0415
    from kafka_steward.journal.sql.state import StateTable  # noqa: PLC0415
    from kafka_steward.journal.sql.view import Views  # noqa: PLC0415

    opened = ExitStack()
    try:
        database = open_database(url, cluster_id, host or platform.node(), clock)
        opened.callback(database.close)
        views = Views(database)
        state = StateTable(views)
        if zookeeper is None:
            return _build_journal(views, state, SqlMailbox(views), None, compare=compare, close=opened.close)
        from kafka_steward.journal.zookeeper.mailbox import ZkMailbox  # noqa: PLC0415

        mailbox = ZkMailbox(zookeeper, lambda node, reason: quarantine_document(mailbox, state, node, reason, None))
        opened.callback(mailbox.close)
        # Before anything is written there: a mistyped chroot may be another cluster's.
        mailbox.require_cluster(cluster_id)
        journal = _build_journal(views, state, mailbox, zookeeper.place, compare=compare, close=opened.close)
        mailbox.revoke_open_access()
    except BaseException:
        opened.close()
        raise
    return journal


def _build_journal(
    views: Views, state: State, mailbox: Mailbox, mailbox_place: str | None, *, compare: bool, close: Callable[[], None]
) -> Journal:
    """Return the journal over rows and mailbox. `mailbox_place` is the location of a mailbox outside the database."""
    from kafka_steward.journal.hosts import HostActivity  # noqa: PLC0415
    from kafka_steward.journal.identity import bind_rows_to_mailbox, ensure_identity  # noqa: PLC0415
    from kafka_steward.journal.sql.audit import AuditTable  # noqa: PLC0415
    from kafka_steward.journal.sql.moves import MoveTable  # noqa: PLC0415
    from kafka_steward.journal.sql.plan_reports import PlanReports  # noqa: PLC0415
    from kafka_steward.journal.sql.plans import PlanTable  # noqa: PLC0415
    from kafka_steward.journal.sql.watch_reports import HealthHistory, WatchReports  # noqa: PLC0415

    database = views.database
    hosts = HostActivity(state, database.host, database.is_local)
    identity = ensure_identity(database, mailbox, mailbox_place) if compare else None
    if compare:
        hosts.record_opening()
    # A request to ZooKeeper may take long, and must not keep the other writers of the database waiting.
    project = call_at_once if mailbox_place is None else database.after_commit
    plans = Plans(
        mailbox,
        MoveTable(database),
        PlanTable(database, views.plans),
        database.cluster_id,
        now_ms=views.now_ms,
        transaction=database.write_transaction,
        project=project,
    )
    return Journal(
        cluster_id=database.cluster_id,
        mailbox=mailbox,
        state=state,
        audit=Audit(AuditTable(database)),
        plans=plans,
        transaction=database.write_transaction,
        project=project,
        close_connections=close,
        health=HealthHistory(database),
        hosts=hosts,
        plan_reports=PlanReports(database),
        watch_reports=WatchReports(database),
        identity=identity,
        pair=partial(bind_rows_to_mailbox, database, mailbox, mailbox_place),
    )


def call_at_once(action: Callable[[], None]) -> None:
    """Call the function."""
    action()
