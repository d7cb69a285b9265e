"""A simulated cluster with a journal, and plans made by hand: what the tests of execution live in."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafka_steward.assignment import Assignment, Move, Operation, TopicPartition
from kafka_steward.execution.moves.progress import Progress
from kafka_steward.execution.plans.runner import PlanRunner
from kafka_steward.execution.ports import ClusterContext, ClusterPort
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Actor, Audit
from kafka_steward.journal.kip_documents import FailedBroker
from kafka_steward.journal.mailbox import read_one
from kafka_steward.journal.plans import Plans
from kafka_steward.journal.records import PENDING_REPLICAS, THROTTLE_LEASES, MoveRow, MoveState, PlanRecord
from kafka_steward.journal.sql.audit import AuditTable
from kafka_steward.journal.sql.database import open_database
from kafka_steward.journal.sql.moves import MoveTable
from kafka_steward.journal.sql.plans import PlanTable
from kafka_steward.journal.store import Journal, call_at_once
from kafka_steward.planning.files.formats import PlanFolder
from kafka_steward.settings import Settings
from tests.documents import change_document, create_document, delete_document
from tests.local_plan import plan_with
from tests.memory_mailbox import MemoryMailbox
from tests.memory_state import MemoryState
from tests.memory_tables import MemoryAudit, MemoryMoves, MemoryPlans
from tests.simulator import Simulator

WHO = Actor(dag_id="heal", run_id="manual", task_id="submit", try_number=1, person="ada")
FOLLOWERS = "follower.replication.throttled.replicas"
RATE = "follower.replication.throttled.rate"
_cluster_ids = itertools.count(1)


def journal_of(simulator: Simulator, folder: Path) -> Journal:
    """A journal whose tree is in memory, on the simulator's clock, and whose tables are a SQLite file in `folder`."""
    simulator.cluster_id = f"simulated-{next(_cluster_ids)}"
    database = open_database(f"sqlite:///{folder}/journal.db", simulator.cluster_id, "here")
    clock = lambda: simulator.now_ms  # noqa: E731
    tables = MoveTable(database), AuditTable(database), PlanTable(database)
    stores = MemoryMailbox(clock), MemoryState(clock), *tables
    return journal_over(simulator.cluster_id, *stores, transaction=database.write_transaction)


def count_pending(journal: Journal) -> int:
    """The number of pending replicas by the records, obsolete ones included."""
    return sum(row.value.target_rf - len(row.value.brokers) for row in journal.rows(PENDING_REPLICAS).all())


def pending_partitions(journal: Journal, topic: str) -> list[int]:
    """The partitions of a topic with pending replicas."""
    return [row.key.partition for row in journal.rows(PENDING_REPLICAS).all() if row.key.topic == topic]


def memory_journal(simulator: Simulator) -> Journal:
    """A journal that is in memory as a whole, on the simulator's clock."""
    clock = lambda: simulator.now_ms  # noqa: E731
    audit = MemoryAudit(simulator.cluster_id, clock)
    stores = MemoryMailbox(clock), MemoryState(clock), MemoryMoves(clock, audit), audit, MemoryPlans(clock)
    return journal_over(simulator.cluster_id, *stores)


def journal_over(
    cluster_id: str,
    mailbox: Any,
    state: Any,
    *tables: Any,
    transaction: Callable[[], Any] = nullcontext,
) -> Journal:
    """A journal over these parts, and tables of moves, audit and plans, which need not be one database.

    If they are not, nothing that they do is one transaction.
    """
    beginnings: Any = {"transaction": transaction, "project": call_at_once}
    moves, audit, plans = tables
    stored = Plans(mailbox, moves, plans, cluster_id, now_ms=state.now_ms, **beginnings)
    parts: Any = {"audit": Audit(audit), "plans": stored, "close_connections": lambda: None}
    return Journal(cluster_id=cluster_id, mailbox=mailbox, state=state, **parts, **beginnings)


def lose(simulator: Simulator, journal: Journal, *brokers: int) -> None:
    """Kill brokers; the journal names them as failed, so that they count as known even if no replica names them."""
    for broker in brokers:
        simulator.kill(broker)
        create_document(journal.mailbox, paths.failed_broker(broker), FailedBroker(1).to_json())


def simulated(brokers: str, *topics: str, lost: Sequence[int] = (), **more: Any) -> tuple[Simulator, Journal]:
    """Return a cluster of `Simulator.of` and its journal in memory; `lost` names failed brokers, as `lose` does."""
    simulator = Simulator.of(brokers, *topics, **more)
    journal = memory_journal(simulator)
    lose(simulator, journal, *lost)
    return simulator, journal


def overwrite(journal: Journal, path: str, text: str) -> None:
    """Write this text into a document, as anybody may."""
    node = read_one(journal.mailbox, path)
    assert node is not None
    change_document(journal.mailbox, path, text)


def delete(journal: Journal, path: str) -> None:
    """Delete a document, as anybody may."""
    node = read_one(journal.mailbox, path)
    assert node is not None
    delete_document(journal.mailbox, path)


def plan_of(simulator: Simulator, moves: Sequence[Move], *, operation: str = "heal", **proof: Any) -> PlanFolder:
    """A plan as read from its folder."""
    digest = hashlib.sha256(repr(list(moves)).encode()).hexdigest()
    failed = list(proof.pop("failed", ()))
    head = {"cluster_id": simulator.cluster_id, "operation": operation, "brokers_failed": failed, "unplaced": []}
    return plan_with(digest, head | {"digest": digest} | proof, list(moves))


def move(
    name: str,
    before: str,
    after: str,
    *,
    chunk: int = 0,
    position: int = 0,
    size: int = 100,
    topic_id: str | None = None,
) -> Move:
    """`move("t-0", "123", "423")`: single-digit brokers."""
    topic, _, number = name.rpartition("-")
    return Move(topic, int(number), _brokers(before), _brokers(after), chunk, position, "test", topic_id, size)


def _brokers(digits: str) -> Assignment:
    return tuple(map(int, digits))


def heal_moves(simulator: Simulator, failed: int, target: int, *, chunk_size: int = 2) -> list[Move]:
    """The moves that replace `failed` by `target` where it is not yet, in order."""
    hurt = [(name, each) for name, each in sorted(simulator.topics.items()) if failed in each.replicas]
    return [
        Move(
            *name,
            each.replicas,
            tuple(target if broker == failed else broker for broker in each.replicas),
            index // chunk_size,
            index % chunk_size,
            "broker_failed",
            each.topic_id,
            each.size,
        )
        for index, (name, each) in enumerate(hurt)
        if target not in each.replicas
    ]


@dataclass
class World:
    """A cluster, its journal, one published plan, and a Runner for it."""

    simulator: Simulator
    journal: Journal
    moves: Sequence[Move]
    settings: Settings = field(default_factory=lambda: Settings(throttle=0))
    auto_generated: bool = True
    operation: Operation | None = None
    failed: tuple[int, ...] = ()
    left: int = 0
    cluster: ClusterPort | None = None
    digest: str = ""

    def __post_init__(self) -> None:
        self.digest = self.digest or hashlib.sha256(repr(list(self.moves)).encode()).hexdigest()
        self.publish(self.digest, self.moves)
        self.runner = self.new_runner()

    def publish(self, digest: str, moves: Sequence[Move]) -> PlanRecord:
        operation = self.operation or (Operation.HEAL if self.auto_generated else Operation.APPLY)
        record = PlanRecord(
            digest,
            self.simulator.cluster_id,
            operation.value,
            failed_brokers=self.failed,
            auto_generated=self.auto_generated,
            live_brokers=tuple(sorted(self.simulator.alive)),
            left=self.left,
        )
        return self.journal.plans.publish(record, moves)

    def record(self, digest: str | None = None) -> PlanRecord:
        found = self.journal.plans.get(digest or self.digest)
        assert found is not None
        return found

    def new_runner(self) -> PlanRunner:
        return PlanRunner(ClusterContext(self.cluster or self.simulator, self.journal, self.settings, WHO), self.digest)

    def step(self) -> Progress:
        return self.runner.step()

    def run(self, *, steps: int = 60, between: Callable[[], None] | None = None) -> Progress:
        """Step, tick, step, until the plan ends; the bound is on work, not on time."""
        for _ in range(steps):
            progress = self.step()
            if progress.ended or progress.waits_for_person:
                return progress
            (between or self.simulator.tick)()
        raise AssertionError(f"not ended after {steps} steps: {progress}")

    def confirm_deaths(self) -> None:
        """Step, and let time pass, in which nothing is copied: at the next step a broker is dead that was before it."""
        self.step()
        self.simulator.now_ms += 10_000

    def row(self, name: str) -> MoveRow:
        return next(row for row in self.rows() if str(row.topic_partition) == name)

    def rows(self) -> list[MoveRow]:
        return self.journal.plans.rows(self.digest)

    def states(self) -> dict[str, str]:
        return {str(row.topic_partition): row.state.value for row in self.rows()}

    def replicas(self, name: str) -> Assignment:
        topic, _, number = name.rpartition("-")
        return self.simulator.topics[TopicPartition(topic, int(number))].replicas

    def actions(self) -> list[str]:
        return [row.entry.action.value for row in self.journal.audit.rows(plan=self.digest)]

    def leases(self) -> list[str]:
        """The leases of throttle settings that the journal has."""
        keys = [row.key for row in self.journal.rows(THROTTLE_LEASES).all()]
        return sorted({f"{'broker' if key.setting.endswith('rate') else 'topic'}/{key.name}" for key in keys})

    def throttles(self) -> list[str]:
        """Every throttle that Kafka holds now."""
        lists = [f"{topic}:{of[FOLLOWERS]}" for topic, of in self.simulator.topic_settings.items() if FOLLOWERS in of]
        rates = [f"{broker}:{of[RATE]}" for broker, of in self.simulator.broker_settings.items() if RATE in of]
        return lists + rates


def settled(world: World) -> bool:
    return all(row.state is not MoveState.SUBMITTED and row.state.settled for row in world.rows())


@contextmanager
def killed(simulator: Simulator, broker: int) -> Iterator[None]:
    """A broker is dead for a while."""
    simulator.kill(broker)
    yield
    simulator.restart(broker)
