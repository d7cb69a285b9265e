"""The journal's tables in memory answer as those in SQLite do."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafka_steward.assignment import TopicPartition
from kafka_steward.journal.audit import Action, Actor, AuditRecord, Code, Outcome
from kafka_steward.journal.kip_documents import CancelRequest
from kafka_steward.journal.observed import ApprovalState
from kafka_steward.journal.records import Cause, MoveState, Phase, PlanRecord, PlanStatus
from kafka_steward.journal.sql.audit import AuditTable
from kafka_steward.journal.sql.database import Database, open_database
from kafka_steward.journal.sql.moves import MoveTable
from kafka_steward.journal.sql.plans import PlanTable
from tests.memory_tables import MemoryAudit, MemoryMoves, MemoryPlans
from tests.rings import tried
from tests.simulated_plan import move

MOVES = [move(f"t-{n}", "123", "423", chunk=n // 2, position=n % 2) for n in range(4)]
NAMES = [each.topic_partition for each in MOVES]
#: Some contain the name of a partition, and one what the statement has in place of a name.
words = st.text("ab", max_size=3) | st.sampled_from(["t-1: t-1 is", "t-2 and t-1", "{partition} t-1"])
marks = st.tuples(
    st.sets(st.sampled_from(NAMES), min_size=1),
    st.sampled_from(MoveState),
    words | st.fixed_dictionaries(dict.fromkeys(NAMES, words)),
    st.none() | st.integers(0, 3),
    st.none() | st.booleans(),
    st.fixed_dictionaries(
        {
            "phase": st.none() | st.sampled_from(Phase),
            "stage": st.integers(0, 2),
            "cause": st.none() | st.sampled_from(Cause),
            "unacknowledged": st.none() | st.booleans(),
            "refused": st.none() | st.integers(0, 2),
            "action": st.none() | st.sampled_from([Action.HOLD, Action.DROP]),
            "who": st.none() | st.just(Actor(dag_id="heal", try_number=2)),
        }
    ),
)
entries = st.builds(
    AuditRecord,
    st.sampled_from([Action.SUBMIT, Action.THROTTLE]),
    st.just("why"),
    plan=st.sampled_from(["p", "q", ""]),
    chunk=st.none() | st.just(0),
    topic=st.none() | st.just("t"),
    partition=st.none() | st.integers(0, 1),
    broker=st.none() | st.integers(0, 1),
    attempt=st.integers(0, 1),
    before=st.none() | st.just([1, 2]),
    code=st.none() | st.sampled_from(Code),
)
told = st.tuples(st.sampled_from(["insert", "complete"]), st.lists(entries, max_size=3), st.sampled_from(Outcome))
ALL: dict[str, Any] = {"plan": None, "action": None, "topic": None, "since_ms": None, "limit": None}
few = settings(max_examples=tried(45), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
_cluster_ids = iter(range(10**6))


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return open_database(f"sqlite:///{tmp_path_factory.mktemp('tables')}/journal.db", "none", "here").engine


def database(engine: Any) -> Database:
    return Database(engine, f"c{next(_cluster_ids)}", "here")


def without_times(rows: list[Any]) -> list[str]:
    hidden = {"id", "when_ms", "completed_ms", "cluster_id", "submitted_ms", "settled_ms"}
    return [str({name: getattr(row, name) for name in row.__dataclass_fields__ if name not in hidden}) for row in rows]


@few
@given(st.lists(marks, max_size=5))
def test_moves(engine: Any, changes: list[Any]) -> None:
    tables, memory = database(engine), MemoryAudit("c", lambda: 1)
    real, fake = MoveTable(tables), MemoryMoves(lambda: 1, memory)
    for table in (real, fake):
        table.insert_missing("p", MOVES)
        for change in changes:
            table.set_state("p", *change[:3], attempt=change[3], isr_seen=change[4], **change[5])
    assert without_times(fake.rows("p")) == without_times(real.rows("p"))
    assert [row.settled_ms is None for row in fake.rows("p")] == [row.settled_ms is None for row in real.rows("p")]
    assert fake.unsettled_chunks("p") == real.unsettled_chunks("p")
    assert fake.count_states("p") == real.count_states("p")
    assert fake.unsettled_partitions("p") == real.unsettled_partitions("p")
    assert without_times(memory.select(**ALL)) == without_times(AuditTable(tables).select(**ALL))
    asked = [MOVES[3].topic_partition, TopicPartition("t", 99)]
    told: dict[str, Any] = {"attempt": None, "isr_seen": None}
    assert [table.set_state("p", asked, MoveState.HELD, "why", **told) for table in (fake, real)] == [1, 1]


@few
@given(st.lists(told, max_size=6))
def test_audit(engine: Any, told: list[Any]) -> None:
    real, fake = AuditTable(database(engine)), MemoryAudit("c", lambda: 1)
    for how, several, outcome in told:
        for table in (real, fake):
            if how == "insert":
                table.insert([(entry, outcome, "so") for entry in several])
            else:
                table.complete([(entry, outcome, f"so {place}") for place, entry in enumerate(several)])
    for query in (ALL, ALL | {"plan": "p"}, ALL | {"action": Action.SUBMIT, "limit": 2}, ALL | {"topic": "t"}):
        assert without_times(fake.select(**query)) == without_times(real.select(**query))
        real_open = [row.completed_ms is None for row in real.select(**query)]
        assert [row.completed_ms is None for row in fake.select(**query)] == real_open


asked = st.lists(st.sampled_from(["/a@1", "/b@2"]), max_size=2, unique=True).map(tuple)
changes = st.fixed_dictionaries(
    {}, optional={"status": st.sampled_from(PlanStatus), "cancel": st.sampled_from([None, CancelRequest()])}
)
plan_acts = st.tuples(st.sampled_from(["p", "q"]), asked, st.integers(0, 2), changes)


@few
@given(st.lists(plan_acts, max_size=6), st.lists(st.tuples(st.sampled_from("pq"), st.sampled_from(ApprovalState))))
def test_plans(engine: Any, acts: list[Any], answers: list[Any]) -> None:
    real, fake = PlanTable(database(engine)), MemoryPlans(lambda: 1)
    found: list[list[object]] = []
    for table in (real, fake):
        told: list[object] = []
        for number, (digest, sources, revision, changed) in enumerate(acts):
            record = PlanRecord(digest, real.database.cluster_id, "apply", sources=sources, published_ms=number)
            told += [table.insert(record), table.change(digest, revision, changed)]
        for digest, state in answers:
            table.answer(digest, state, person="ada", reason=None, answered_ms=5)
        told += [table.get("p"), table.latest(1), table.unfinished(), table.unfinished(or_cancelled=True)]
        found.append([*told, table.by_source(), [table.approval(digest) for digest in "pq"]])
    assert found[0] == found[1]
