"""The current tables, and how the values of the journal's records are stored, so that rows are read by field name.

`versions/` contains the migrations from the tables of earlier releases; a test compares what they make with these.
Every table except `host` is keyed by Kafka's cluster id. Paths and names compare byte by byte on every database.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, astuple, fields
from enum import Enum
from functools import lru_cache, partial
from types import UnionType
from typing import Any, get_args, get_type_hints

import sqlalchemy as sa
from sqlalchemy.types import TypeDecorator, TypeEngine

from kafka_steward.journal.audit import Actor, AuditRecord, StoredAuditRecord
from kafka_steward.journal.document import Document
from kafka_steward.journal.kip_documents import CancelRequest
from kafka_steward.journal.observed import ApprovalState, BrokerChange, CheckState, HeldGroup, ProofSummary
from kafka_steward.journal.records import Cause, LeaderRate, MoveState, Phase, PlanRecord, PlanStatus
from kafka_steward.journal.sql.dialect import LONG_TEXT, NAME, PATH, ROW_ID, WORD, partial_index_options

#: Characters that are kept of a text, unless said otherwise.
LONGEST = 10_000


class ConvertingType(TypeDecorator[Any]):
    """A column type that stores `write` of a value, in a column of the type `base`; `read` makes the value again.

    Without `read`, the stored value is the value.
    """

    impl = sa.Text
    cache_ok = True

    def __init__(
        self,
        write: Callable[[Any], Any],
        read: Callable[[Any], Any] | None = None,
        base: TypeEngine[Any] | None = None,
    ) -> None:
        super().__init__()
        self.write = write
        self.read = read
        self.base = base or LONG_TEXT

    def load_dialect_impl(self, dialect: sa.Dialect) -> TypeEngine[Any]:  # noqa: ARG002 - SQLAlchemy's signature
        """Return the base type, with its variants."""
        return self.base

    def bind_processor(self, dialect: sa.Dialect) -> Callable[[Any], Any]:  # noqa: ARG002 - SQLAlchemy's signature
        """Return the function for what is stored of a value: the base types need none of their own."""
        return self.write

    def result_processor(self, dialect: sa.Dialect, coltype: object) -> Callable[[Any], Any] | None:  # noqa: ARG002 - the same
        """Return the function for the value that was stored, if it needs one."""
        return self.read


def clean_text_type(most: int | None = LONGEST) -> ConvertingType:
    """Return the type of a text that may quote others, as every database stores it, and cut to `most` characters."""
    return ConvertingType(partial(_clean_and_truncate, most=most))


def enum_type(kind: type[Enum]) -> ConvertingType:
    """Return the type of a member of `kind`, which is stored by its value; None is NULL."""
    members: dict[Any, Any] = {None: None} | {member.value: member for member in kind}
    return ConvertingType(lambda value: None if value is None else kind(value).value, members.__getitem__, WORD)


def record_type(kind: type[Any]) -> ConvertingType:
    """Return the type of a record whose fields are JSON values; None is NULL."""
    return ConvertingType(
        lambda value: None if value is None else json.dumps(asdict(value)),
        lambda text: None if text is None else kind(**json.loads(text)),
    )


def records_type(kind: Callable[..., Any]) -> ConvertingType:
    """Return the type of a tuple of such records, each of which is stored as a list of its values.

    NULL, which an outer join returns where there is no row, is none.
    """
    return ConvertingType(
        lambda records: json.dumps([astuple(record) for record in records]),
        lambda text: tuple(kind(*values) for values in json.loads(text or "[]")),
    )


def document_type(kind: type[Document]) -> ConvertingType:
    """Return the type of a document in a column of a row; None is NULL."""
    return ConvertingType(
        lambda value: None if value is None else json.dumps(value.as_object()),
        lambda text: None if text is None else kind.from_json(text, "a row"),
    )


def _clean_and_truncate(text: str | None, most: int | None) -> str | None:
    # PostgreSQL stores no NUL, and no database stores half a surrogate pair; Kafka's messages may contain both.
    return None if text is None else text[:most].replace("\x00", "").encode(errors="replace").decode()


#: Any JSON value; None is NULL.
JSON = ConvertingType(
    lambda value: None if value is None else json.dumps(value, sort_keys=True),
    lambda text: None if text is None else json.loads(text),
)


@lru_cache(maxsize=4096)  # thousands of moves have the same replicas, and share the value
def _read_list(text: str | None) -> tuple[Any, ...]:
    return tuple(json.loads(text or "[]"))


#: Broker ids or words, in order, as a JSON list; NULL, of an outer join, is none.
LIST = ConvertingType(json.dumps, _read_list)
#: Points of a curve, each a tuple of numbers, as a JSON list; NULL, of an outer join, is none.
SERIES = ConvertingType(json.dumps, lambda text: tuple(map(tuple, json.loads(text or "[]"))))
#: A name and a number in a key, where '' and -1 represent None, because NULLs never compare equal.
NAME_OR_NONE = ConvertingType(lambda name: _clean_and_truncate(name or "", LONGEST), lambda text: text or None, NAME)
NUMBER_OR_NONE = ConvertingType(
    lambda number: -1 if number is None else number,
    lambda number: None if number == -1 else number,
    sa.BigInteger(),
)


metadata = sa.MetaData()


def _name_column(column: str, *, key: bool = False) -> sa.Column[str]:
    return sa.Column(column, NAME, primary_key=key, nullable=False)


def _number_column(column: str, *, key: bool = False, nullable: bool = False) -> sa.Column[int]:
    return sa.Column(column, sa.BigInteger, primary_key=key, nullable=nullable, autoincrement=False)


#: Our own state: one row for each value of a noun, a JSON object.
state = sa.Table(
    "steward_state",
    metadata,
    _name_column("cluster_id", key=True),
    _name_column("noun", key=True),
    sa.Column("key", PATH, primary_key=True, nullable=False),
    sa.Column("value", LONG_TEXT, nullable=False),
    _number_column("created_id"),
    _number_column("revision"),
    _number_column("at_ms"),
)

#: The documents of the KIPs, of a cluster without ZooKeeper: one row for each.
node = sa.Table(
    "steward_node",
    metadata,
    _name_column("cluster_id", key=True),
    sa.Column("path", PATH, primary_key=True, nullable=False),
    sa.Column("data", LONG_TEXT, nullable=False),
    _number_column("version"),
    _number_column("created_id"),
    _number_column("modified_id"),
    _number_column("created_ms"),
    _number_column("modified_ms"),
)

#: Monotonic counters: one for created and modified ids, and one per sequence.
counter = sa.Table(
    "steward_counter",
    metadata,
    _name_column("cluster_id", key=True),
    _name_column("name", key=True),
    _number_column("value"),
)

#: The moves of plans, and the state of each: a column for each field of Move and MoveRow.
plan_move = sa.Table(
    "steward_plan_move",
    metadata,
    _name_column("cluster_id", key=True),
    _name_column("plan", key=True),
    _name_column("topic", key=True),
    _number_column("partition", key=True),
    sa.Column("topic_id", WORD),
    sa.Column("before", LIST, nullable=False),
    sa.Column("after", LIST, nullable=False),
    _number_column("chunk"),
    _number_column("position"),
    sa.Column("reason", WORD, nullable=False, key="purpose"),
    _number_column("size_bytes", nullable=True),
    sa.Column("state", enum_type(MoveState), nullable=False),
    sa.Column("detail", clean_text_type(most=None), nullable=False),
    _number_column("attempt"),
    _number_column("submitted_ms", nullable=True),
    _number_column("settled_ms", nullable=True),
    sa.Column("isr_seen", sa.Boolean, nullable=False),
    sa.Column("phase", enum_type(Phase)),
    _number_column("stage"),
    sa.Column("cause", enum_type(Cause)),
    sa.Column("unacknowledged", sa.Boolean, nullable=False),
    _number_column("refused"),
    # In SQLite only, for the page. PostgreSQL counts fast enough without it; and without statistics of a new plan it
    # may use an index that begins with the plan for each row of the plan, and read all other rows.
    sa.Index("steward_plan_move_state", "cluster_id", "plan", "state", "topic", "partition").ddl_if(dialect="sqlite"),
)

#: The fields by which the audit rows of a plan are unique.
AUDIT_KEY = ("plan", "chunk", "topic", "partition", "broker", "action", "attempt")


def _audit_columns() -> Iterator[sa.Column[Any]]:
    """Yield a column for each field of StoredAuditRecord, AuditRecord and Actor, as its type says."""
    yield sa.Column("id", ROW_ID, primary_key=True, autoincrement=True)
    yield _name_column("cluster_id")
    for record in (StoredAuditRecord, AuditRecord, Actor):
        hints = get_type_hints(record)
        for field in fields(record):
            if field.name not in {"id", "cluster_id", "entry", "who"}:
                yield _audit_column(field.name, hints[field.name])


def _audit_column(name: str, hint: Any) -> sa.Column[Any]:
    kind, *optional = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    in_key = name in AUDIT_KEY
    types: dict[Any, TypeEngine[Any]] = {
        str: (NAME_OR_NONE if optional else NAME) if in_key else clean_text_type(),
        int: NUMBER_OR_NONE if in_key and optional else sa.BigInteger(),
        Any: JSON,
    }
    return sa.Column(name, types.get(kind) or enum_type(kind), nullable=kind is Any or (bool(optional) and not in_key))


#: The audit trail. A further column needs a field of one of its records, and a migration.
audit = sa.Table("steward_audit", metadata, *_audit_columns(), sa.Index("steward_audit_when", "cluster_id", "when_ms"))

#: Only the actions of plans are unique: other actions may repeat, as a broker may fail many times.
audit_once = sa.Index(
    "steward_audit_once",
    audit.c.cluster_id,
    *(audit.c[name] for name in AUDIT_KEY),
    unique=True,
    **partial_index_options(audit.c.plan != ""),
)

#: The one host that an SQLite journal belongs to.
host = sa.Table(
    "steward_host",
    metadata,
    sa.Column("only", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("name", LONG_TEXT, nullable=False),
)

#: The cluster's health as measured by the watch, for plots.
health = sa.Table(
    "steward_health",
    metadata,
    _name_column("cluster_id", key=True),
    _number_column("at_ms", key=True),
    sa.Column("measures", LONG_TEXT, nullable=False),
)

#: The id of the journal, which its mailbox has too, and the mailbox's location. Bound once both halves have the id.
journal = sa.Table(
    "steward_journal",
    metadata,
    _name_column("cluster_id", key=True),
    sa.Column("id", WORD, nullable=False),
    sa.Column("mailbox", LONG_TEXT, nullable=False),
    sa.Column("bound", sa.Boolean, nullable=False),
)


def _text_column(column: str, *, nullable: bool = False) -> sa.Column[str]:
    return sa.Column(column, clean_text_type(), nullable=nullable)


def _flag_column(column: str) -> sa.Column[bool]:
    return sa.Column(column, sa.Boolean, nullable=False)


def _word_column(column: str, kind: type[Enum], *, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(column, enum_type(kind), nullable=nullable)


#: The last poll of each check of each watch: a column for each field of CheckReport.
watch_check = sa.Table(
    "steward_watch_check",
    metadata,
    _name_column("cluster_id", key=True),
    _name_column("conn_id", key=True),
    _name_column("kind", key=True),
    _name_column("host", key=True),
    _text_column("version"),
    _number_column("at_ms"),
    _word_column("state", CheckState),
    _text_column("sentence"),
    sa.Column("brokers", LIST, nullable=False),
    _number_column("due_ms", nullable=True),
    _number_column("failures"),
    _number_column("failing_ms", nullable=True),
    _text_column("error"),
)

#: The brokers as of the last health check: a column for each field of BrokerReport.
broker = sa.Table(
    "steward_broker",
    metadata,
    _name_column("cluster_id", key=True),
    _number_column("broker", key=True),
    _text_column("rack", nullable=True),
    _flag_column("live"),
    _flag_column("cordoned"),
    _number_column("replicas"),
    _number_column("leaders"),
    _number_column("under_replicated"),
    sa.Column("failed_log_dirs", LIST, nullable=False),
    *(
        _number_column(name, nullable=True)
        for name in ("replica_bytes", "sized_ms", "disk_total", "disk_usable", "bytes_in", "bytes_out")
    ),
    *(_number_column(name, nullable=True) for name in ("leader_bytes_in", "follower_bytes_in")),
    _number_column("at_ms"),
)

#: The bytes per second that producers bring into each partition: a column for each field of PartitionRate.
rate = sa.Table(
    "steward_rate",
    metadata,
    _name_column("cluster_id", key=True),
    _name_column("topic", key=True),
    _number_column("partition", key=True),
    sa.Column("topic_id", WORD),
    _number_column("bytes_per_s", nullable=True),
    sa.Column("peaks", SERIES, nullable=False),
    _number_column("at_ms"),
)

#: The progress of each plan that was stepped: a column for each field of ProgressReport.
progress = sa.Table(
    "steward_progress",
    metadata,
    _name_column("cluster_id", key=True),
    _name_column("plan", key=True),
    _number_column("at_ms"),
    _word_column("status", PlanStatus),
    *(
        _number_column(name)
        for name in ("partitions_total", "partitions_settled", "in_flight", "waiting", "completed", "held_count")
    ),
    sa.Column("held", records_type(HeldGroup), nullable=False),
    _number_column("stalled_count"),
    sa.Column("stalled", LIST, nullable=False),
    _number_column("bytes_total"),
    _number_column("bytes_done"),
    *(_number_column(name, nullable=True) for name in ("bytes_per_s", "eta_s", "throttle")),
    sa.Column("pressure", WORD),
    _number_column("chunk", nullable=True),
    _number_column("chunks"),
    _text_column("sentence"),
    sa.Column("series", SERIES, nullable=False),
)


def _plan_columns() -> Iterator[sa.Column[Any]]:
    """Yield a column for each field of PlanRecord, as its type says; a proposed plan has no status yet."""
    types: dict[Any, TypeEngine[Any]] = {
        str: clean_text_type(),
        int: sa.BigInteger(),
        bool: sa.Boolean(),
        Actor: record_type(Actor),
        CancelRequest: document_type(CancelRequest),
        PlanStatus: enum_type(PlanStatus),
        tuple[int, ...]: LIST,
        tuple[str, ...]: LIST,
        tuple[LeaderRate, ...]: records_type(LeaderRate),
    }
    hints = get_type_hints(PlanRecord)
    for field in fields(PlanRecord):
        kind, *optional = (
            get_args(hints[field.name]) if isinstance(hints[field.name], UnionType) else (hints[field.name],)
        )
        if field.name in {"cluster_id", "digest"}:
            yield _name_column(field.name, key=True)
        else:
            yield sa.Column(field.name, types[kind], nullable=bool(optional) or kind is PlanStatus)


#: The plans: a column for each field of PlanRecord, and those of its approval and its proof.
plan = sa.Table(
    "steward_plan",
    metadata,
    *_plan_columns(),
    _number_column("listed_ms"),
    _number_column("modified_ms"),
    *(_number_column(name, nullable=True) for name in ("began_ms", "ended_ms")),
    _text_column("conn_id", nullable=True),
    _word_column("approval", ApprovalState, nullable=True),
    _number_column("asked_ms", nullable=True),
    _number_column("expires_ms", nullable=True),
    sa.Column("asked_by", record_type(Actor)),
    _number_column("answered_ms", nullable=True),
    _text_column("answered_by", nullable=True),
    _text_column("answer", nullable=True),
    sa.Column("proof", record_type(ProofSummary)),
    sa.Column("brokers", records_type(BrokerChange)),
    sa.Index("steward_plan_latest", "cluster_id", "listed_ms", "digest"),
    sa.Index("steward_plan_status", "cluster_id", "status"),
)

#: The ended plans that a user cancelled, which polls read: any process may go on with the rollback.
plan_cancelled = sa.Index(
    "steward_plan_cancelled", plan.c.cluster_id, plan.c.ended_ms, **partial_index_options(plan.c.cancel.is_not(None))
)

#: The documents of each kind, as the watch read them last: a column for each field of DocumentReport.
document = sa.Table(
    "steward_document",
    metadata,
    _name_column("cluster_id", key=True),
    _name_column("kind", key=True),
    _number_column("at_ms"),
    _number_column("count"),
    sa.Column("documents", JSON, nullable=False),
)
