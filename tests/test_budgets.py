"""What recurring work asks of the database and of Kafka at most: with a large journal or plan as with a small one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_steward.document_api.controller import DocumentController
from kafka_steward.execution.plans.runner import PlanRunner
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.watch.broker_joins import poll_empty_brokers, poll_joined_brokers
from kafka_steward.execution.watch.failure_detector import FailureDetector
from kafka_steward.hooks.session import ClusterSession
from kafka_steward.journal.store import Journal, open_journal
from kafka_steward.page_data import audit, clusters, plans
from kafka_steward.page_data.reader import open_reader
from kafka_steward.settings import Settings
from kafka_steward.triggers.cluster_watch import ClusterWatch
from tests.crash import Faults
from tests.ended_plans import Cost, add_ended_plans, cost_of
from tests.simulated_plan import WHO, World, move
from tests.simulator import Simulator

SETTINGS = Settings(throttle=1_000)
CLUSTER = "simulated"


@dataclass(frozen=True)
class Place:
    """A journal in SQLite, and a cluster whose requests are listed in `faults`."""

    url: str
    journal: Journal
    simulator: Simulator
    faults: Faults

    @property
    def cluster(self) -> Any:
        return self.faults.around("kafka", self.simulator)


Work = Callable[[Place, int], Callable[[], object]]


def poll(make: Callable[[Any, Journal], Callable[[], object]]) -> Work:
    """A later poll of the watch, beside ended plans."""

    def prepare(place: Place, size: int) -> Callable[[], object]:
        add_ended_plans(place.journal, size, approved=True)
        made = make(place.cluster, place.journal)
        made()  # the first one sweeps
        return made

    return prepare


def tick(*, standby: bool = False, woken: bool = True) -> Work:
    """Ten ticks of a watch that decides each time, or only asks who lives, or one of a watch that stands by."""

    def prepare(place: Place, size: int) -> Callable[[], object]:
        add_ended_plans(place.journal, size)
        access: Any = SimpleNamespace(conn_id="kafka", settings=SETTINGS)
        opened = ClusterSession(access, place.cluster, place.journal)
        mine, other = (ClusterWatch("kafka", log=print, log_error=print)._detection for _ in range(2))

        def ten_ticks() -> None:
            for _ in range(10):
                mine._woken = woken
                mine.poll(opened)

        mine.poll(opened)
        return (lambda: other.poll(opened)) if standby else ten_ticks

    return prepare


def page(read: Callable[[Any], object]) -> Work:
    """A page, beside ended plans."""

    def prepare(place: Place, size: int) -> Callable[[], object]:
        add_ended_plans(place.journal, size)
        reader = open_reader(place.url)
        return lambda: read(reader)

    return prepare


def step(*, idle: bool) -> Work:
    """A step of a plan: the first one, which submits, or one in which nothing has changed."""

    def prepare(place: Place, size: int) -> Callable[[], object]:
        place.simulator.bandwidth = 0
        moves = [move(f"t-{at}", "123", "423", position=at, size=1) for at in range(size)]
        world = World(place.simulator, place.journal, moves, settings=SETTINGS, auto_generated=False)
        runner = PlanRunner(ClusterContext(place.cluster, place.journal, SETTINGS, WHO), world.digest)
        if idle:
            runner.step()
            runner.step()
        return runner.step

    return prepare


@dataclass(frozen=True)
class Budget:
    """What `work` may take: SQL statements, and requests to Kafka; `more` is what ten times as much of it may add.

    The rows that are read may grow with it only if `reads_more`.
    """

    work: Work
    statements: int
    requests: tuple[str, ...] = ()
    more_statements: int = 0
    more_requests: tuple[str, ...] = ()
    reads_more: bool = False


BUDGETS = {
    "poll for failures": Budget(
        poll(lambda cluster, journal: FailureDetector(cluster, journal, SETTINGS, WHO).poll), 2, ("live_brokers",)
    ),
    "poll for documents": Budget(
        poll(lambda cluster, journal: DocumentController(cluster, journal, SETTINGS, WHO).poll), 2, ("reassignments",)
    ),
    "poll for pending replicas": Budget(
        poll(lambda cluster, journal: lambda: poll_joined_brokers(cluster, journal, SETTINGS, WHO)), 2
    ),
    "poll for empty brokers": Budget(
        poll(lambda cluster, journal: lambda: poll_empty_brokers(cluster, journal, SETTINGS)), 2, ("live_brokers",)
    ),
    "watch that stands by": Budget(tick(standby=True), 2),
    # Ten reads; and on a slow machine, once in five seconds, the lease and the times of the polls.
    "ten ticks": Budget(tick(), 25, ("live_brokers",) * 10, more_statements=5, reads_more=True),
    "ten ticks within two seconds": Budget(tick(woken=False), 0, ("live_brokers",) * 10),
    "idle step": Budget(
        step(idle=True),
        23,
        ("broker_rates", "log_sizes", "reassignments", "snapshot", "topic_configs"),
        reads_more=True,
    ),
    # Each request to Kafka has up to 50 partitions.
    "step that submits": Budget(
        step(idle=False),
        128,
        (
            *("alter", "broker_rates", "change_broker_configs", "change_topic_configs", "log_dirs", "log_sizes"),
            *("snapshot", "topic_configs", "topic_configs"),
        ),
        more_statements=36,
        more_requests=("alter",) * 9,
        reads_more=True,
    ),
    "page of the fleet": Budget(page(clusters.fleet), 11),
    "page of a cluster": Budget(page(lambda reader: clusters.cluster(reader, CLUSTER)), 11),
    "page of plans": Budget(page(lambda reader: plans.plans(reader, CLUSTER, limit=20)), 2),
    "page of the audit trail": Budget(page(lambda reader: audit.audit(reader, CLUSTER)), 2),
}


@contextmanager
def place(folder: Path, size: int) -> Iterator[Place]:
    """A cluster with `size` partitions to move, and its journal."""
    url = f"sqlite:///{folder}/journal-{size}.db"
    simulator = Simulator.of("1a 2b 3c 4a", "t: " + " ".join(["123"] * size), "u: 4", size=1, mode="zookeeper")
    simulator.cluster_id = CLUSTER
    with open_journal(url, CLUSTER) as journal:
        yield Place(url, journal, simulator, Faults())


def spent(work: Work, folder: Path, size: int) -> tuple[Cost, Counter[str]]:
    """Return what the work takes of the database, and its requests to Kafka."""
    with place(folder, size) as here:
        prepared = work(here, size)
        here.faults.calls.clear()
        with cost_of() as cost:
            prepared()
        return cost, Counter(name.removeprefix("kafka.") for name in here.faults.calls)


@pytest.mark.parametrize("name", BUDGETS)
def test_recurring_work_stays_within_its_budget_also_with_ten_times_as_much(name: str, tmp_path: Path) -> None:
    budget = BUDGETS[name]
    (few, requests), (many, more) = (spent(budget.work, tmp_path, size) for size in (50, 500))
    assert few.statements <= budget.statements
    assert many.statements <= few.statements + budget.more_statements
    assert (requests, more - requests) == (Counter(budget.requests), Counter(budget.more_requests))
    assert budget.reads_more or many.instructions == few.instructions
