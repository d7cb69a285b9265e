"""KIP-46's announced shutdowns, simulated: the grace period, the stated time, fast detection, and when entries go."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_steward.errors import RequestError
from kafka_steward.execution.failure_detector import DetectionResult, FailureDetector
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.preflight_inputs import restarting_brokers
from kafka_steward.execution.publishing import publish_plan
from kafka_steward.execution.readiness import (
    AnnouncedRestart,
    announce_restart,
    announced_restarts,
    expired_announcements,
)
from kafka_steward.journal import paths
from kafka_steward.journal.store import Journal
from kafka_steward.journal.tree import Node
from kafka_steward.settings import Settings
from tests.simulated_plan import WHO, heal_moves, memory_journal, plan_of
from tests.simulator import Simulator

FAST = Settings(heal_failure_interval=60, heal_fast_detection=True)
SLOW = Settings(heal_failure_interval=60)


@dataclass
class Yard:
    settings: Settings = SLOW
    simulator: Simulator = field(default_factory=lambda: Simulator.of("1a 2b 3c 4a", "t: 123 231"))

    def __post_init__(self) -> None:
        self.journal: Journal = memory_journal(self.simulator)

    def look(self) -> DetectionResult:
        return FailureDetector(self.simulator, self.journal, self.settings, WHO).poll()

    def due_after_s(self, broker: int) -> int:
        """Seconds from the first look that sees the broker gone until it is due."""
        self.simulator.kill(broker)
        for seconds in range(1_000):
            if broker in self.look().failed:
                return seconds
            self.simulator.tick()
        raise AssertionError("never due")


@pytest.fixture
def yard() -> Yard:
    return Yard()


@pytest.mark.parametrize(
    ("settings", "lasts_ms", "due_s"),
    [(SLOW, None, 60), (SLOW, 20_000, 20), (SLOW, 200_000, 200), (FAST, None, 60), (FAST, 20_000, 20)],
)
def test_an_announced_broker_gets_its_grace_period_or_the_stated_time(
    settings: Settings, lasts_ms: int | None, due_s: int
) -> None:
    yard = Yard(settings)
    announce_restart(yard.journal, 2, who=WHO, lasts_ms=lasts_ms)
    assert yard.due_after_s(2) == due_s


def test_with_fast_detection_a_broker_that_vanishes_unannounced_is_due_at_once() -> None:
    assert Yard(FAST).due_after_s(2) == 0
    assert Yard(SLOW).due_after_s(2) == 60


def test_a_time_that_was_over_before_says_nothing_about_this_failure() -> None:
    yard = Yard(SLOW)
    announce_restart(yard.journal, 2, who=WHO, lasts_ms=5_000)
    yard.simulator.tick(10)
    assert yard.due_after_s(2) == 60


def test_it_receives_nothing_meanwhile(yard: Yard) -> None:
    announce_restart(yard.journal, 4, who=WHO, lasts_ms=5_000)
    assert restarting_brokers(yard.journal.tree, yard.journal.now_ms()) == {4}
    yard.simulator.tick(6)
    assert restarting_brokers(yard.journal.tree, yard.journal.now_ms()) == frozenset()


def test_the_entry_goes_when_the_broker_is_back(yard: Yard) -> None:
    announce_restart(yard.journal, 2, who=WHO)
    yard.simulator.kill(2)
    yard.look()
    yard.simulator.restart(2)
    assert yard.look().cleared == (2,)
    assert yard.journal.tree.get(paths.rolling_bounce(2)) is None


def test_the_entry_goes_once_the_tasks_are_persisted() -> None:
    yard = Yard(FAST)
    yard.simulator.kill(2)
    yard.look()
    announce_restart(yard.journal, 2, who=WHO)
    plan = plan_of(yard.simulator, heal_moves(yard.simulator, 2, 4), failed=[2])
    publish_plan(ClusterContext(yard.simulator, yard.journal, yard.settings, WHO), plan)
    assert yard.journal.tree.get(paths.rolling_bounce(2)) is None
    assert yard.journal.tree.get(paths.failed_broker(2)) is None


def test_the_entry_of_a_bounce_too_quick_to_be_seen_goes_with_the_grace_period(yard: Yard) -> None:
    announce_restart(yard.journal, 2, who=WHO)
    yard.simulator.tick(59)
    yard.look()
    assert set(announced_restarts(yard.journal.tree)) == {2}
    yard.simulator.tick()
    yard.look()
    assert announced_restarts(yard.journal.tree) == {}


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"timestamp": "noon"}', '{"timestamp": 1, "expiry": -5}'])
def test_one_that_cannot_be_read_announces_all_the_same(text: str) -> None:
    yard = Yard(FAST)
    yard.journal.tree.create(paths.rolling_bounce(2), text)
    yard.journal.tree.create(f"{paths.ROLLING_BOUNCE}/-7", text)
    assert restarting_brokers(yard.journal.tree, yard.journal.now_ms()) == {2}
    assert yard.due_after_s(2) == 60


@pytest.mark.parametrize(
    "expiry",
    ["1" + "0" * 400, "1e400", "-1" + "0" * 400, "9007199254740992"],
    ids=["10**400", "infinite", "-10**400", "2**53"],
)
def test_an_expiry_beyond_every_date_delays_neither_a_poll_nor_the_heal(yard: Yard, expiry: str) -> None:
    yard.journal.tree.create(paths.rolling_bounce(2), f'{{"timestamp": 1, "expiry": {expiry}}}')
    assert yard.look().down == ()
    for broker in (2, 3):
        yard.simulator.kill(broker)
    first = yard.look()
    assert first.down == (2, 3)
    assert first.waiting == dict.fromkeys((2, 3), yard.simulator.now_ms + 60_000)
    yard.simulator.restart(3)
    yard.simulator.tick(60)
    verdict = yard.look()
    assert (verdict.due, verdict.cleared) == ((2,), (3,))


def test_announced_again_the_later_word_counts(yard: Yard) -> None:
    announce_restart(yard.journal, 2, who=WHO, lasts_ms=5_000)
    assert "has 900 s to come back" in announce_restart(yard.journal, 2, who=WHO, lasts_ms=900_000)
    assert yard.due_after_s(2) == 900


@pytest.mark.parametrize(("broker", "lasts_ms"), [(-1, None), (2**31, None), (2, 0), (2, -5)])
def test_what_is_no_broker_or_no_time_is_refused(broker: int, lasts_ms: int | None) -> None:
    with pytest.raises(RequestError, match=r"is no broker|cannot last"):
        announce_restart(Yard().journal, broker, who=WHO, lasts_ms=lasts_ms)


@pytest.mark.parametrize("ahead_ms", [45 * 60_000, 10**15])
def test_a_failure_written_by_a_clock_that_runs_ahead_counts_from_its_writing(yard: Yard, ahead_ms: int) -> None:
    told_ms = yard.simulator.now_ms + ahead_ms
    yard.journal.tree.create(paths.failed_broker(2), f'{{"failure_timestamp": {told_ms}}}')
    assert yard.due_after_s(2) == 60


@given(
    st.dictionaries(st.integers(0, 5), st.tuples(st.integers(0, 200), st.none() | st.integers(0, 200)), max_size=5),
    st.frozensets(st.integers(0, 5)),
    st.integers(0, 300),
)
def test_only_what_is_over_and_live_is_collected(
    told: dict[int, tuple[int, int | None]], live: frozenset[int], now_ms: int
) -> None:
    node = Node("/x", "", 0, 1, 1, 0, 0)
    announced = {broker: AnnouncedRestart(node, at_ms, until_ms) for broker, (at_ms, until_ms) in told.items()}
    gone = expired_announcements(announced, live, now_ms, Settings(heal_failure_interval=0.05))
    for broker, bounce in announced.items():
        over = (bounce.announced_ms + 50 if bounce.until_ms is None else bounce.until_ms) <= now_ms
        assert (broker in gone) == (over and broker in live)
