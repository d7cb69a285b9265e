"""What a poll of the watch costs does not grow with the plans that have ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from kafka_steward.document_api.controller import DocumentController
from kafka_steward.execution.broker_joins import poll_empty_brokers, poll_joined_brokers
from kafka_steward.execution.failure_detector import FailureDetector
from kafka_steward.journal import paths
from kafka_steward.journal.store import Journal, open_journal
from kafka_steward.settings import Settings
from tests.crash import Faults
from tests.ended_plans import Cost, add_ended_plans, cost_of
from tests.simulated_plan import WHO
from tests.simulator import Simulator

FEW, MANY = 10, (1_000, 10_000)
#: SQLite is told to begin a transaction.
BEGIN_AND_READ = 2
SETTINGS = Settings()


@contextmanager
def idle_cluster(plans: int, *, approved: bool = False) -> Iterator[tuple[Simulator, Journal]]:
    """A cluster where nothing happens, and a journal with so many ended plans."""
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123 234 314 421")
    with TemporaryDirectory() as folder, open_journal(f"sqlite:///{Path(folder)}/journal.db", "simulated") as journal:
        add_ended_plans(journal, plans, approved=approved)
        yield simulator, journal


def polls_of(cluster: Any, journal: Journal) -> dict[str, Callable[[], object]]:
    return {
        "failures": FailureDetector(cluster, journal, SETTINGS, WHO).poll,
        "documents": DocumentController(cluster, journal, SETTINGS, WHO).poll,
        "joined": lambda: poll_joined_brokers(cluster, journal, SETTINGS, WHO),
        "newcomers": lambda: poll_empty_brokers(cluster, journal, SETTINGS),
    }


@lru_cache
def costs(plans: int, *, approved: bool = False) -> dict[str, Cost]:
    """What each poll costs with so many ended plans: the first one, which sweeps, and a later one."""
    found: dict[str, Cost] = {}
    with idle_cluster(plans, approved=approved) as (simulator, journal):
        polls = polls_of(simulator, journal)
        for time in ("first", "later"):
            found |= {f"{kind}, {time}": cost(journal, poll) for kind, poll in polls.items()}
        assert journal.tree.children(paths.PLANS) == []
        simulator.kill(1)
        polls["failures"]()
        found["failures, with a broker down"] = cost(journal, polls["failures"])
    return found


@lru_cache
def asked(plans: int) -> dict[str, list[str]]:
    """What a later poll of each kind asks of Kafka: each of these calls is one request of `KafkaCluster`."""
    found: dict[str, list[str]] = {}
    with idle_cluster(plans) as (simulator, journal):
        faults = Faults()
        for kind, poll in polls_of(faults.around("cluster", simulator), journal).items():
            poll()
            faults.calls.clear()
            poll()
            found[kind] = [name.removeprefix("cluster.") for name in faults.calls]
    return found


def cost(journal: Journal, poll: Callable[[], object]) -> Cost:
    with cost_of(journal) as found:
        poll()
    return found


KINDS = [f"{kind}, {time}" for time in ("first", "later") for kind in ("failures", "documents", "joined", "newcomers")]


@pytest.mark.parametrize("plans", MANY)
@pytest.mark.parametrize("kind", KINDS)
def test_a_poll_executes_as_many_statements_and_reads_as_much_with_many_ended_plans_as_with_few(
    kind: str, plans: int
) -> None:
    few = costs(FEW)[kind]
    assert few.statements > 0
    assert few.instructions > 0
    assert costs(plans)[kind] == few


@pytest.mark.parametrize("plans", MANY)
def test_a_poll_while_a_broker_is_down_reads_the_newest_plans_only(plans: int) -> None:
    kind = "failures, with a broker down"
    assert costs(plans)[kind].statements == costs(FEW)[kind].statements
    assert costs(plans)[kind].instructions == costs(MANY[0])[kind].instructions


@pytest.mark.parametrize("kind", KINDS)
def test_approvals_of_ended_plans_add_no_statement_and_are_read_by_no_poll(kind: str) -> None:
    assert costs(MANY[0], approved=True)[kind] == costs(FEW, approved=True)[kind]


@pytest.mark.parametrize(
    ("kind", "requests"),
    [("failures", ["live_brokers"]), ("documents", ["reassignments"]), ("joined", []), ("newcomers", ["live_brokers"])],
)
def test_an_idle_poll_is_one_statement_and_at_most_one_request_to_kafka(kind: str, requests: list[str]) -> None:
    found = costs(FEW)[f"{kind}, later"]
    assert found.statements == BEGIN_AND_READ
    assert asked(FEW)[kind] == requests
