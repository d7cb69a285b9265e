"""The current tables. `versions/` contains the migrations to them; a test compares the two.

Every table except `host` is keyed by Kafka's cluster id. Paths and names compare byte by byte on every database.
"""

from __future__ import annotations

import sqlalchemy as sa

from kafka_steward.journal.audit import Action, Code, Outcome
from kafka_steward.journal.moves import Cause, MoveState, Phase
from kafka_steward.journal.schema.types import BROKERS, JSON, NAME_OR_NONE, NUMBER_OR_NONE, clean_text, member
from kafka_steward.journal.sql.dialect import NAME, ROW_ID, only_where

metadata = sa.MetaData()


def _name(column: str, *, key: bool = False) -> sa.Column[str]:
    return sa.Column(column, NAME, primary_key=key, nullable=False)


def _number(column: str, *, key: bool = False, nullable: bool = False) -> sa.Column[int]:
    return sa.Column(column, sa.BigInteger, primary_key=key, nullable=nullable, autoincrement=False)


#: The tree: one row per document.
node = sa.Table(
    "steward_node",
    metadata,
    _name("cluster_id", key=True),
    _name("path", key=True),
    sa.Column("data", sa.Text, nullable=False),
    _number("version"),
    _number("created_id"),
    _number("modified_id"),
    _number("created_ms"),
    _number("modified_ms"),
)

#: Monotonic counters: one for created and modified ids, and one per sequence.
counter = sa.Table(
    "steward_counter",
    metadata,
    _name("cluster_id", key=True),
    _name("name", key=True),
    _number("value"),
)

#: The moves of plans, and the state of each: a column for each field of Move and MoveRow.
plan_move = sa.Table(
    "steward_plan_move",
    metadata,
    _name("cluster_id", key=True),
    _name("plan", key=True),
    _name("topic", key=True),
    _number("partition", key=True),
    sa.Column("topic_id", sa.Text),
    sa.Column("before", BROKERS, nullable=False),
    sa.Column("after", BROKERS, nullable=False),
    _number("chunk"),
    _number("position"),
    sa.Column("reason", sa.Text, nullable=False, key="purpose"),
    _number("size_bytes", nullable=True),
    sa.Column("state", member(MoveState), nullable=False),
    sa.Column("detail", clean_text(most=None), nullable=False),
    _number("attempt"),
    _number("submitted_ms", nullable=True),
    _number("settled_ms", nullable=True),
    sa.Column("isr_seen", sa.Boolean, nullable=False),
    sa.Column("phase", member(Phase)),
    sa.Column("stage", sa.BigInteger, nullable=False, server_default="0", autoincrement=False),
    sa.Column("cause", member(Cause)),
    sa.Column("unacknowledged", sa.Boolean, nullable=False, server_default=sa.false()),
)

#: Records of plans that ended a while ago, in the format of the tree.
ended_plan = sa.Table(
    "steward_ended_plan",
    metadata,
    _name("cluster_id", key=True),
    _name("digest", key=True),
    _number("published_ms"),
    _number("ended_ms"),
    sa.Column("record", sa.Text, nullable=False),
    sa.Index("steward_ended_plan_latest", "cluster_id", "published_ms"),
)

#: The audit trail: a column for each field of AuditRecord, Actor and StoredAuditRecord.
audit = sa.Table(
    "steward_audit",
    metadata,
    sa.Column("id", ROW_ID, primary_key=True, autoincrement=True),
    _number("when_ms"),
    _number("completed_ms", nullable=True),
    _name("cluster_id"),
    _name("plan"),
    sa.Column("chunk", NUMBER_OR_NONE, nullable=False),
    sa.Column("topic", NAME_OR_NONE, nullable=False),
    sa.Column("partition", NUMBER_OR_NONE, nullable=False),
    sa.Column("broker", NUMBER_OR_NONE, nullable=False),
    sa.Column("action", member(Action), nullable=False),
    _number("attempt"),
    sa.Column("before", JSON),
    sa.Column("after", JSON),
    sa.Column("reason", clean_text(), nullable=False),
    sa.Column("outcome", member(Outcome), nullable=False),
    sa.Column("detail", clean_text(), nullable=False),
    sa.Column("dag_id", clean_text()),
    sa.Column("run_id", clean_text()),
    sa.Column("task_id", clean_text()),
    _number("try_number", nullable=True),
    sa.Column("person", clean_text()),
    sa.Column("code", member(Code)),
    sa.Index("steward_audit_when", "cluster_id", "when_ms"),
)

#: Only the actions of plans are unique: other actions may repeat, as a broker may fail many times.
audit_once = sa.Index(
    "steward_audit_once",
    audit.c.cluster_id,
    audit.c.plan,
    audit.c.chunk,
    audit.c.topic,
    audit.c.partition,
    audit.c.broker,
    audit.c.action,
    audit.c.attempt,
    unique=True,
    **only_where(audit.c.plan != ""),
)

#: The one host that an SQLite journal belongs to.
host = sa.Table(
    "steward_host",
    metadata,
    sa.Column("only", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("name", sa.Text, nullable=False),
)

#: The cluster's health as measured by the watch, for plots.
health = sa.Table(
    "steward_health",
    metadata,
    _name("cluster_id", key=True),
    _number("at_ms", key=True),
    sa.Column("measures", sa.Text, nullable=False),
)

#: The id of the journal, which its tree contains too, and the tree's location. Bound once both halves have the id.
journal = sa.Table(
    "steward_journal",
    metadata,
    _name("cluster_id", key=True),
    sa.Column("id", sa.Text, nullable=False),
    sa.Column("tree", sa.Text, nullable=False),
    sa.Column("bound", sa.Boolean, nullable=False),
)

#: The hosts that opened the journal, with the times of the first and the last opening.
opened = sa.Table(
    "steward_opened",
    metadata,
    _name("cluster_id", key=True),
    _name("host", key=True),
    _number("first_ms"),
    _number("last_ms"),
)

#: The time and host of the last successful poll of each kind by a watch.
look = sa.Table(
    "steward_look",
    metadata,
    _name("cluster_id", key=True),
    _name("kind", key=True),
    _name("host", key=True),
    _number("at_ms"),
)
