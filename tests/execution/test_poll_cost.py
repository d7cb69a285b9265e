"""What a poll of the watch costs does not grow with the plans that have ended."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from kafka_steward.document_api.controller import DocumentController
from kafka_steward.execution.broker_joins import poll_empty_brokers, poll_joined_brokers
from kafka_steward.execution.failure_detector import FailureDetector
from kafka_steward.journal import paths
from kafka_steward.journal.store import Journal, open_journal
from kafka_steward.settings import Settings
from tests.ended_plans import Cost, add_ended_plans, cost_of
from tests.simulated_plan import WHO
from tests.simulator import Simulator

FEW, MANY = 10, (1_000, 10_000)
SETTINGS = Settings()


@lru_cache
def costs(plans: int, *, approved: bool = False) -> dict[str, Cost]:
    """What each poll costs with so many ended plans: the first one, which sweeps, and a later one."""
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123 231 312 132")
    found: dict[str, Cost] = {}
    with TemporaryDirectory() as folder, open_journal(f"sqlite:///{Path(folder)}/journal.db", "simulated") as journal:
        add_ended_plans(journal, plans, approved=approved)
        detector = FailureDetector(simulator, journal, SETTINGS, WHO)
        protocol = DocumentController(simulator, journal, SETTINGS, WHO)
        polls: dict[str, Callable[[], object]] = {
            "failures": detector.poll,
            "documents": protocol.poll,
            "joined": lambda: poll_joined_brokers(simulator, journal, SETTINGS, WHO),
            "newcomers": lambda: poll_empty_brokers(simulator, journal, SETTINGS),
        }
        for time in ("first", "later"):
            found |= {f"{kind}, {time}": cost(journal, poll) for kind, poll in polls.items()}
        assert journal.tree.children(paths.PLANS) == []
        simulator.kill(1)
        detector.poll()
        found["failures, with a broker down"] = cost(journal, detector.poll)
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
