"""A simulated cluster with a journal in memory, and a watch that looks at it: time passes only when it is told to."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from kafka_steward.assignment import Move, TopicPartition
from kafka_steward.document_api.controller import DocumentController
from kafka_steward.document_api.document_plans import PollResult
from kafka_steward.execution.moves.in_flight import record_external_in_flight
from kafka_steward.execution.plans.publishing import publish_plan
from kafka_steward.execution.plans.runner import PlanRunner
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Actor
from kafka_steward.journal.kip_documents import InFlight
from kafka_steward.journal.listing import QUARANTINE
from kafka_steward.journal.mailbox import Node, read_one
from kafka_steward.planning.files.formats import PlanFolder
from kafka_steward.settings import Settings
from tests.documents import create_document
from tests.simulated_plan import WHO, memory_journal, plan_of
from tests.simulator import Simulator

WATCH = Actor(task_id="watch")
#: What most tests move: a second per 30 bytes, so that 100 bytes are in flight for some seconds.
SLOWLY = 30


class Yard:
    """`look` is one look of the watch; `run` looks, with a second between two looks, until nothing is under way."""

    def __init__(self, *topics: str, mode: str = "kraft", zookeeper: bool = False, **settings: Any) -> None:
        brokers = "1a 2b 3c 4a 5b"
        self.simulator = Simulator.of(brokers, *(topics or ("t: 12 231 312",)), mode=mode, bandwidth=SLOWLY)
        self.journal = memory_journal(self.simulator)
        self.settings = Settings.of({"throttle": 0, **settings})
        self.zookeeper = zookeeper
        self.protocol = self.new_watch()

    def new_watch(self, cluster: Any = None) -> DocumentController:
        """As after a restart."""
        return DocumentController(
            cluster or self.simulator, self.journal, self.settings, WATCH, zookeeper=self.zookeeper
        )

    def look(self) -> PollResult:
        return self.protocol.poll()

    def run(self, looks: int = 60) -> list[str]:
        """Look until all is done; what was said on the way."""
        said: list[str] = []
        for _ in range(looks):
            looked = self.look()
            said += looked.sentences
            if looked.pause_s is None:
                return said
            self.simulator.tick()
        raise AssertionError(f"not done after {looks} looks: {said[-3:]}")

    @property
    def context(self) -> ClusterContext:
        """What a person's command works with."""
        return ClusterContext(self.simulator, self.journal, self.settings, WHO)

    def publish(self, moves: Iterable[Move], **more: Any) -> PlanFolder:
        """The plan of a DAG, or one that a person made."""
        plan = plan_of(self.simulator, list(moves), **more)
        publish_plan(self.context, plan)
        return plan

    def runner(self, digest: str) -> PlanRunner:
        return PlanRunner(self.context, digest)

    def ask(self, *wanted: str, **fields: Any) -> Node:
        """A request in Kafka's format: `ask("t-0 23", "t-1 345")`."""
        text = document(wanted, **fields)
        return self.journal.mailbox.append(paths.REQUEST_PREFIX, text)

    def write(self, path: str, text: str) -> Node:
        """The queue, or a numbered document whose path begins with `path`."""
        if path == paths.REASSIGN_QUEUE:
            return create_document(self.journal.mailbox, path, text)
        return self.journal.mailbox.append(path, text)

    def replicas(self, name: str) -> tuple[int, ...]:
        return self.simulator.topics[partition(name)].replicas

    def record(self, name: str) -> InFlight | None:
        node = read_one(self.journal.mailbox, paths.reassignment(partition(name)))
        return None if node is None else InFlight.from_node(node)

    def requests(self) -> list[str]:
        return self.journal.mailbox.children(paths.REASSIGNMENT_REQUESTS)

    def quarantined(self) -> list[tuple[str, str]]:
        """Path and text of everything that was moved aside."""
        return [(row.value.path, row.value.text) for row in self.journal.rows(QUARANTINE).all()]

    def in_flight(self) -> list[str]:
        return [str(name) for name in sorted(self.simulator.reassignments())]


def foreign(yard: Yard, target: tuple[int, ...], originals: tuple[int, ...] | None) -> None:
    """Someone reassigns t-0 by the old route, as is recorded."""
    yard.simulator.alter({partition("t-0"): target})
    record_external_in_flight(yard.journal.mailbox, {partition("t-0"): InFlight(originals, target, legacy=True, top=2)})


def partition(name: str) -> TopicPartition:
    topic, _, number = name.rpartition("-")
    return TopicPartition(topic, int(number))


def document(wanted: Iterable[str], **fields: Any) -> str:
    """Kafka's reassignment JSON from `"t-0 23"`."""
    found = []
    for one in wanted:
        name, _, digits = one.partition(" ")
        topic, number = partition(name)
        found.append({"topic": topic, "partition": number, "replicas": [int(digit) for digit in digits]})
    return json.dumps({"version": 1, "partitions": found, **fields})
