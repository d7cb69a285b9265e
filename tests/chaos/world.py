"""The world of a simulated round: the cluster, the journal's contents, and processes to whose calls things happen."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from kafka_steward.assignment import Assignment, TopicPartition
from kafka_steward.errors import ClusterUnreachable, JournalUnreachable, KafkaTimeout
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.journal.audit import Action, Actor, Audit
from kafka_steward.journal.plans import Plans
from kafka_steward.journal.sql.audit import AuditTable
from kafka_steward.journal.sql.database import Database, open_database
from kafka_steward.journal.sql.mailbox import SqlMailbox
from kafka_steward.journal.sql.moves import MoveTable
from kafka_steward.journal.sql.plans import PlanTable
from kafka_steward.journal.sql.state import StateTable
from kafka_steward.journal.sql.view import Views
from kafka_steward.journal.store import Journal, call_at_once
from kafka_steward.settings import Settings
from tests.chaos.schedule import AT_A_CALL, Event
from tests.crash import Died, Faults
from tests.memory_mailbox import MemoryMailbox
from tests.memory_state import MemoryState
from tests.memory_tables import MemoryAudit, MemoryMoves, MemoryPlans
from tests.simulator import Simulator

__all__ = ["PERSON", "Process", "World"]

PERSON = Actor(person="ada")
#: What changes the cluster.
CHANGES = frozenset(
    {
        "cluster.alter",
        "cluster.cancel",
        "cluster.elect_leaders",
        "cluster.change_topic_configs",
        "cluster.change_broker_configs",
        "cluster.change_default_broker_configs",
        "cluster.name_directories",
    }
)
#: Milliseconds that a request to the cluster takes.
_REQUEST_MS = 3
#: A holder of the step lock, and a number that an event drew: nothing else differs between two runs of a seed.
_DRAWN = re.compile(r"\S+:[0-9]+:[0-9a-f]{16}")


@dataclass
class Armed:
    """An event that happens after so many more calls."""

    calls: int
    event: Event


class World:
    """What outlives every process: the cluster, the journal's contents, and the outages.

    `happen` carries out an event that is none of a call. `broken` has a sentence for each invariant that was broken.
    """

    def __init__(self, simulator: Simulator, settings: Settings, *, folder: str | None) -> None:
        self.simulator = simulator
        self.settings = settings
        self.clock: Callable[[], int] = lambda: self.simulator.now_ms
        self.stores: dict[str, Any] = {}
        self.database: Database | None = None
        if folder is None:
            audit = MemoryAudit(simulator.cluster_id, self.clock)
            self.stores = {
                "mailbox": MemoryMailbox(self.clock),
                "state": MemoryState(self.clock),
                "moves": MemoryMoves(self.clock, audit),
                "audit": audit,
                "plans": MemoryPlans(self.clock),
            }
        else:
            self.database = open_database(f"sqlite:///{folder}/journal.db", simulator.cluster_id, "here", self.clock)
        self.happen: Callable[[Event], None] = lambda _: None
        self.armed: list[Armed] = []
        self.broken: list[str] = []
        #: Until when, by the clock, the journal, the cluster or the controller does not answer.
        self.journal_locked_ms = self.cluster_silent_ms = self.controller_silent_ms = 0
        #: Requests without an answer that the cluster will execute, and when.
        self.late: list[tuple[int, Callable[[], Any]]] = []
        #: Whether a call was interrupted: the outcome of what it did may then be unknown to the audit trail.
        self.interrupted = False
        #: The targets that the cluster accepted of us, by partition and topic id.
        self.submitted: dict[tuple[TopicPartition, str | None], list[Assignment]] = {}
        self._inside = False
        self._depth = 0
        self._hash = hashlib.sha256()

    # time

    def tick(self, times: int = 1) -> None:
        """Let seconds pass, in which the cluster copies and late requests are executed."""
        for _ in range(times):
            self.simulator.tick()
            due = [act for at_ms, act in self.late if at_ms <= self.simulator.now_ms]
            self.late = [each for each in self.late if each[0] > self.simulator.now_ms]
            for act in due:
                act()

    # the trace

    def note(self, text: str) -> None:
        """Add a line to the trace."""
        self._hash.update(_DRAWN.sub("HOLDER", text).encode() + b"\n")

    @property
    def trace(self) -> str:
        """The digest of all that happened."""
        return self._hash.hexdigest()

    def audit_rows(self) -> list[Any]:
        """Return all rows of the audit trail."""
        if self.database is None:
            return list(self.stores["audit"]._rows)
        return list(AuditTable(self.database).select(plan=None, action=None, topic=None, since_ms=None, limit=None))

    # processes

    def context(self, process: Faults, who: Actor = PERSON) -> ClusterContext:
        """Return what a process works with."""
        cluster = process.around("cluster", Witness(self))
        return ClusterContext(cluster, self._journal(process), self.settings, who)

    def _journal(self, process: Faults) -> Journal:
        stores, cluster_id = self._stores(), self.simulator.cluster_id
        mailbox, state, moves, audit, plans = (
            process.around(name, stores[name]) for name in ("mailbox", "state", "moves", "audit", "plans")
        )
        afterwards: list[Callable[[], None]] = []

        @contextmanager
        def transaction() -> Iterator[object]:
            with self._transaction(process):
                yield None
            while afterwards and not self._depth:
                afterwards.pop(0)()

        def project(action: Callable[[], None]) -> None:
            if self._depth:
                afterwards.append(action)
            else:
                action()

        # With ZooKeeper the documents are not in the database.
        beginnings: Any = {"transaction": transaction, "project": project if self._is_split else call_at_once}
        return Journal(
            cluster_id=cluster_id,
            mailbox=mailbox,
            state=state,
            audit=Audit(audit),
            plans=Plans(mailbox, moves, plans, cluster_id, now_ms=self.clock, **beginnings),
            close_connections=lambda: None,
            **beginnings,
        )

    @property
    def _is_split(self) -> bool:
        return self.simulator.zookeeper_mode and self.database is None

    def _stores(self) -> dict[str, Any]:
        if self.database is None:
            return self.stores
        views = Views(self.database)
        return {
            "mailbox": SqlMailbox(views),
            "state": StateTable(views),
            "moves": MoveTable(self.database),
            "audit": AuditTable(self.database),
            "plans": PlanTable(self.database, views.plans),
        }

    @contextmanager
    def _transaction(self, process: Faults) -> Iterator[None]:
        if self._depth:
            yield
            return
        self._depth += 1
        saved = None if self.database is not None else self._save()
        try:
            with nullcontext() if self.database is None else self.database.write_transaction():
                yield
                process.call("journal.commit", lambda: None)
        except BaseException:
            if saved is not None:
                self._restore(saved)
            raise
        finally:
            self._depth -= 1

    def _save(self) -> list[tuple[object, str, Any]]:
        stores = self.stores
        kept = [(stores["state"], "rows"), (stores["audit"], "_rows"), (stores["audit"], "_keys")]
        kept += [(stores["plans"], name) for name in ("_plans", "_changed", "_approvals")]
        kept += [] if self._is_split else [(stores["mailbox"], "_nodes")]
        saved = [(store, name, getattr(store, name).copy()) for store, name in kept]
        moves = stores["moves"]
        return [*saved, (moves, "_plans", {plan: dict(rows) for plan, rows in moves._plans.items()})]

    @staticmethod
    def _restore(saved: list[tuple[object, str, Any]]) -> None:
        for store, name, value in saved:
            setattr(store, name, value)

    # what happens to a call

    def next_event(self) -> Event | None:
        """Count a call; return the event that happens at it."""
        if self._inside:
            return None
        for armed in self.armed:
            armed.calls -= 1
        # Nobody else changes the journal within a transaction.
        due = [armed for armed in self.armed if armed.calls < 0 and (armed.event.kind in AT_A_CALL or not self._depth)]
        if not due:
            return None
        self.armed.remove(due[0])
        return due[0].event

    @property
    def is_inside(self) -> bool:
        """True while something happens between two calls of a step."""
        return self._inside

    def happen_inside(self, event: Event) -> None:
        """Let an event happen that is none of the call at which it does."""
        self._inside = True
        try:
            self.happen(event)
        finally:
            self._inside = False

    def reach(self, name: str) -> None:
        """Let a call reach what it asks, or raise its error while that does not answer.

        Kafka executes requests in order: what it has not executed yet of the earlier ones comes before this one.
        """
        self._refuse(name)
        if name in CHANGES:
            due, self.late = self.late, []
            for _, act in due:
                act()

    def _refuse(self, name: str) -> None:
        now_ms = self.simulator.now_ms
        if not name.startswith("cluster."):
            if now_ms < self.journal_locked_ms:
                self.interrupted = True
                raise JournalUnreachable("The journal is locked.")
            return
        if now_ms < self.cluster_silent_ms:
            self.interrupted = True
            raise ClusterUnreachable("No bootstrap server answers.")
        if now_ms < self.controller_silent_ms and name in CHANGES:
            self.interrupted = True
            raise KafkaTimeout("The controller did not answer; the change may have been made.")


class Process(Faults):
    """One process of ours, until it dies: what happens to its calls is the world's."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def call(self, name: str, act: Callable[[], Any], half: Callable[[], Any] | None = None) -> Any:
        world = self._world
        if self.dead:
            raise Died
        world.note(name)
        if name.startswith("cluster."):
            world.simulator.now_ms += _REQUEST_MS
        event = world.next_event()
        if event is None:
            world.reach(name)
            return act()
        world.note(str(event))
        if event.kind not in AT_A_CALL:
            world.happen_inside(event)
            world.reach(name)
            return act()
        world.interrupted = True
        return self._interrupt(event, name, act, half)

    def _interrupt(self, event: Event, name: str, act: Callable[[], Any], half: Callable[[], Any] | None) -> Any:
        lost = KafkaTimeout if name.startswith("cluster") else JournalUnreachable
        if event.kind == "dies before":
            self._die()
        if event.kind == "dies half-way" and half is not None:
            half()
            self._die()
        if event.kind == "fails":
            raise self._error(name, lost)
        if event.kind == "is applied late" and name in CHANGES:
            self._world.late.append((self._world.simulator.now_ms + 1000 * (1 + event.number % 6), act))
            raise self._error(name, lost)
        self._world.reach(name)
        act()
        if event.kind in {"dies after", "dies half-way"}:
            self._die()
        raise self._error(name, lost)


class Witness:
    """The cluster as our processes reach it: each change has to be in the audit trail before it comes."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world.simulator, name)

    def alter(self, targets: Any, **more: Any) -> Any:
        rows = self._rows({Action.SUBMIT, Action.REORDER, Action.ROLL_BACK})
        for name, target in targets.items():
            after = [row.after for row in rows if (row.topic, row.partition) == name]
            self._require(list(target) in after, f"the submission of {name} to {target}, {after}")
        topics = self._world.simulator.topics
        for name, target in targets.items():
            if name in topics:
                self._world.submitted.setdefault((name, topics[name].topic_id), []).append(target)
        return self._world.simulator.alter(targets, **more)

    def cancel(self, partitions: Any) -> Any:
        rows = {(row.topic, row.partition) for row in self._rows({Action.CANCEL})}
        for name in partitions:
            self._require(tuple(name) in rows, f"the cancel of {name}")
        return self._world.simulator.cancel(partitions)

    def elect_leaders(self, partitions: Any) -> Any:
        rows = {(row.topic, row.partition) for row in self._rows({Action.ELECT})}
        for name in partitions:
            self._require(tuple(name) in rows, f"the election of {name}")
        return self._world.simulator.elect_leaders(partitions)

    def change_topic_configs(self, changes: Any) -> Any:
        topics = {row.topic for row in self._rows({Action.THROTTLE, Action.UNTHROTTLE})}
        for topic in changes:
            self._require(topic in topics, f"the throttle of {topic}")
        return self._world.simulator.change_topic_configs(changes)

    def change_broker_configs(self, changes: Any) -> Any:
        actions = {Action.THROTTLE, Action.UNTHROTTLE, Action.CORDON, Action.UNCORDON}
        brokers = {row.broker for row in self._rows(actions) if row.topic is None}
        for broker in changes:
            self._require(broker in brokers, f"the rate or the cordon of broker {broker}")
        return self._world.simulator.change_broker_configs(changes)

    def _rows(self, actions: set[Action]) -> list[Any]:
        return [row.entry for row in self._world.audit_rows() if row.entry.action in actions]

    def _require(self, known: bool, what: str) -> None:
        if not known:
            self._world.broken.append(f"{what} is not in the audit trail")
