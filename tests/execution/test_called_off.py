"""A heal that an operator calls off, and announced restarts (KIP-46): the grace period, and when entries go."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_steward.errors import PlanError, RequestError
from kafka_steward.execution.announcements import (
    AnnouncedRestart,
    announce_restart,
    announced_restarts,
    expired_announcements,
    restarting_brokers,
)
from kafka_steward.execution.failures.records import delete_entry
from kafka_steward.execution.failures.rules import Failure, called_off_brokers
from kafka_steward.execution.plans.lifecycle import abandon_plan
from kafka_steward.execution.plans.publishing import publish_plan
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.watch.failure_detector import DetectionResult, FailureDetector
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action
from kafka_steward.journal.kip_documents import FailedBroker
from kafka_steward.journal.mailbox import Node, read_one
from kafka_steward.journal.records import PlanRecord
from kafka_steward.journal.store import Journal
from kafka_steward.settings import Settings
from tests.crash import Died, Faults, points
from tests.documents import create_document
from tests.rings import tried
from tests.simulated_plan import WHO, World, delete, heal_moves, journal_over, memory_journal, plan_of, simulated
from tests.simulator import Simulator

GRACE_S = 10
ENTRY, RECORD = paths.failed_broker(1), "/steward/failures/1"
RULES = Settings(heal_failure_interval=GRACE_S, heal_retry_interval=60)
CALLED_OFF = (
    "The heal of broker 1 is called off until the broker is live again, because /admin/failed_brokers/1 was deleted; "
    "to heal it, report it: airflow kafka-steward failed 1."
)


def look(simulator: Simulator, journal: Journal) -> DetectionResult:
    """A look by a process of its own: nothing is remembered but by the journal."""
    return FailureDetector(simulator, journal, RULES, WHO).poll()


def fail_and_delete(simulator: Simulator, journal: Journal) -> None:
    """Broker 1 fails, which a look enters, and the entry is deleted."""
    simulator.kill(1)
    look(simulator, journal)
    delete(journal, ENTRY)


def publish(simulator: Simulator, journal: Journal) -> PlanRecord:
    plan = plan_of(simulator, heal_moves(simulator, 1, 4), failed=(1,))
    return publish_plan(ClusterContext(simulator, journal, RULES, WHO), plan)


def reasons(journal: Journal) -> list[tuple[str, str]]:
    return [(row.entry.action.value, row.entry.reason) for row in journal.audit.rows()]


def test_a_heal_whose_entry_was_deleted_never_comes_and_is_reported(simulator: Simulator, journal: Journal) -> None:
    fail_and_delete(simulator, journal)
    for _ in range(3):
        verdict = look(simulator, journal)
        assert (verdict.called_off, verdict.failed, verdict.due, verdict.waiting) == ((1,), (), (), {})
        assert (verdict.down, verdict.sentence) == ((1,), f"Broker 1 is down. {CALLED_OFF}")
        assert read_one(journal.mailbox, ENTRY) is None
        simulator.tick(10 * GRACE_S)
    called_off = "called off the heal of broker 1 until it is live again: /admin/failed_brokers/1 was deleted"
    assert reasons(journal) == [("detect", "broker 1 hosts replicas and is down"), ("request", called_off)]


def test_the_broker_that_fails_anew_is_healed_after_a_grace_period_of_its_own(
    simulator: Simulator, journal: Journal
) -> None:
    fail_and_delete(simulator, journal)
    look(simulator, journal)
    simulator.restart(1)
    assert look(simulator, journal).cleared == (1,)
    assert read_one(journal.mailbox, RECORD) is None
    simulator.kill(1)
    assert look(simulator, journal).waiting == {1: simulator.now_ms + GRACE_S * 1000}
    assert read_one(journal.mailbox, ENTRY) is not None
    simulator.tick(GRACE_S)
    assert look(simulator, journal).due == (1,)


def test_an_entry_that_is_written_again_resumes_the_heal_at_its_time(simulator: Simulator, journal: Journal) -> None:
    fail_and_delete(simulator, journal)
    look(simulator, journal)
    simulator.tick(GRACE_S)
    create_document(journal.mailbox, ENTRY, f'{{"failure_timestamp": {simulator.now_ms - 1000}}}')
    verdict = look(simulator, journal)
    assert (verdict.called_off, verdict.waiting) == ((), {1: simulator.now_ms + (GRACE_S - 1) * 1000})
    simulator.tick(GRACE_S - 1)
    assert look(simulator, journal).due == (1,)
    delete(journal, ENTRY)
    assert look(simulator, journal).called_off == (1,)


def test_other_brokers_are_healed_meanwhile() -> None:
    simulator, journal = simulated("1a 2b 3c 4a 5b", "t: 123 231")
    fail_and_delete(simulator, journal)
    simulator.kill(2)
    look(simulator, journal)
    simulator.tick(GRACE_S)
    verdict = look(simulator, journal)
    assert (verdict.called_off, verdict.due) == ((1,), (2,))
    assert verdict.sentence.endswith(f"broker 2 will be healed. {CALLED_OFF}")


def test_what_the_heal_itself_deletes_calls_nothing_off(simulator: Simulator, journal: Journal) -> None:
    simulator.kill(1)
    look(simulator, journal)
    simulator.tick(GRACE_S)
    look(simulator, journal)
    record = publish(simulator, journal)
    assert read_one(journal.mailbox, ENTRY) is None
    assert (look(simulator, journal).handled, look(simulator, journal).called_off) == ((1,), ())
    abandon_plan(journal, record.digest, WHO, "it was the wrong one")
    verdict = look(simulator, journal)
    assert (verdict.called_off, verdict.failed) == ((), (1,))
    assert read_one(journal.mailbox, ENTRY) is not None


def test_a_heal_that_was_planned_meanwhile_is_refused(simulator: Simulator, journal: Journal) -> None:
    fail_and_delete(simulator, journal)
    words = r"was not published: the heal of broker 1 was called off, because /admin/failed_brokers/1 was deleted; to h"
    with pytest.raises(PlanError, match=words):
        publish(simulator, journal)
    look(simulator, journal)
    with pytest.raises(PlanError, match=words):
        publish(simulator, journal)
    assert journal.plans.latest(1) == []


def step_return(simulator: Simulator, journal: Journal) -> None:
    simulator.restart(1)
    look(simulator, journal)
    simulator.kill(1)


@contextmanager
def failed() -> Iterator[tuple[Simulator, Journal]]:
    """Broker 1 is down and entered."""
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123 231 312")
    simulator.kill(1)
    yield simulator, memory_journal(simulator)


@pytest.mark.parametrize("step", [look, publish, step_return])
def test_a_process_that_dies_at_any_call_calls_nothing_off(step: Callable[[Simulator, Journal], object]) -> None:
    quiet = Faults()
    attempt(step, quiet)
    for at, kind, _ in points(quiet.calls):
        assert attempt(step, Faults(at, kind)).called_off == (), (at, kind)


def attempt(step: Callable[[Simulator, Journal], object], faults: Faults) -> DetectionResult:
    """The result of a look after a process died in `step`."""
    with failed() as (simulator, journal):
        if step is not look:
            look(simulator, journal)
        mailbox = faults.around("mailbox", journal.mailbox)
        tables = journal.plans._table, journal.audit._table, journal.plans._plans
        dying = journal_over(journal.cluster_id, mailbox, faults.around("state", journal.state), *tables)
        try:
            step(simulator, dying)
        except (Died, Exception):  # noqa: BLE001 - whatever it met
            simulator.kill(1)
        look(simulator, journal)
        return look(simulator, journal)


def test_a_poll_that_read_before_the_deletion_of_another_process_calls_nothing_off() -> None:
    """It reads the record while the entry exists; before it reads the entries, a heal is persisted."""
    with failed() as (simulator, journal):
        look(simulator, journal)
        children = journal.mailbox.children
        turns = iter([True])

        def delete_before_the_entries_are_read(path: str) -> list[str]:
            if path == paths.FAILED_BROKERS and next(turns, False):
                assert delete_entry(journal, 1)
            return children(path)

        journal.mailbox.children = delete_before_the_entries_are_read  # type: ignore[method-assign]
        look(simulator, journal)
        verdict = look(simulator, journal)
        assert (verdict.called_off, verdict.waiting) == ((), {1: simulator.now_ms + GRACE_S * 1000})


FAILURES = st.builds(Failure, st.just(1), entered=st.booleans(), called_off_ms=st.none() | st.just(5))


@settings(max_examples=tried(200), deadline=None)
@given(st.dictionaries(st.integers(0, 4), FAILURES, max_size=5), st.frozensets(st.integers(0, 4)))
def test_a_heal_is_called_off_by_an_entry_that_is_missing_and_that_we_did_not_delete(
    recorded: dict[int, Failure], entries: frozenset[int]
) -> None:
    found = called_off_brokers(recorded, entries)
    assert not found & entries
    for broker in recorded.keys() - entries:
        kept = recorded[broker]
        assert (broker in found) == (kept.entered or kept.called_off_ms is not None)
    assert found <= recorded.keys()


FAST = Settings(heal_failure_interval=60, heal_fast_detection=True)
SLOW = Settings(heal_failure_interval=60)


def poll(simulator: Simulator, journal: Journal, settings: Settings = SLOW) -> DetectionResult:
    return FailureDetector(simulator, journal, settings, WHO).poll()


def due_after_s(simulator: Simulator, journal: Journal, settings: Settings = SLOW) -> int:
    """Seconds from the first poll that sees broker 2 gone until it is due."""
    simulator.kill(2)
    for seconds in range(1_000):
        if 2 in poll(simulator, journal, settings).failed:
            return seconds
        simulator.tick()
    raise AssertionError("never due")


@pytest.mark.parametrize(
    ("settings", "lasts_ms", "due_s"),
    [(SLOW, None, 60), (SLOW, 20_000, 20), (SLOW, 100_000, 100), (FAST, None, 60), (FAST, 20_000, 20)],
)
def test_an_announced_broker_gets_its_grace_period_or_the_stated_time(
    simulator: Simulator, journal: Journal, settings: Settings, lasts_ms: int | None, due_s: int
) -> None:
    announce_restart(journal, 2, who=WHO, lasts_ms=lasts_ms)
    assert due_after_s(simulator, journal, settings) == due_s


def test_with_fast_detection_a_broker_that_vanishes_unannounced_is_due_at_once(
    simulator: Simulator, journal: Journal
) -> None:
    assert due_after_s(simulator, journal, FAST) == 0
    assert due_after_s(simulator, memory_journal(simulator)) == 60


def test_a_time_that_was_over_before_says_nothing_about_this_failure(simulator: Simulator, journal: Journal) -> None:
    announce_restart(journal, 2, who=WHO, lasts_ms=5_000)
    simulator.tick(10)
    assert due_after_s(simulator, journal) == 60


def test_it_receives_nothing_meanwhile(simulator: Simulator, journal: Journal) -> None:
    announce_restart(journal, 4, who=WHO, lasts_ms=5_000)
    assert restarting_brokers(journal.mailbox, journal.now_ms()) == {4: journal.now_ms() + 5_000}
    simulator.tick(6)
    assert restarting_brokers(journal.mailbox, journal.now_ms()) == {}


@pytest.mark.parametrize(
    ("broker", "down", "held"),
    [
        (4, False, "broker 4 announced a restart until 1"),
        (2, False, ""),
        (2, True, "broker 2 announced a restart until 1"),
    ],
    ids=["is added", "is kept and live", "is kept and down"],
)
def test_a_heal_waits_for_the_restart_of_a_broker_that_it_adds_and_not_of_a_live_one_that_it_keeps(
    broker: int, down: bool, held: str
) -> None:
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123 312")
    simulator.kill(1)
    world = World(simulator, memory_journal(simulator), heal_moves(simulator, 1, 4), failed=(1,))
    announce_restart(world.journal, broker, who=WHO, lasts_ms=7_200_000)
    if down:
        simulator.kill(broker)
    found = [each.sentence for each in world.step().held]
    assert [f"was not moved: {held}" in each for each in found] == ([True, True] if held else [])
    assert [" and has not returned; it is retried" in each for each in found] == [down] * len(found)
    if not held:
        world.run()
        assert (world.replicas("t-0"), world.replicas("t-1")) == ((4, 2, 3), (3, 4, 2))


def test_the_entry_goes_when_the_broker_is_back(simulator: Simulator, journal: Journal) -> None:
    announce_restart(journal, 2, who=WHO)
    simulator.kill(2)
    poll(simulator, journal)
    simulator.restart(2)
    assert poll(simulator, journal).cleared == (2,)
    assert read_one(journal.mailbox, paths.rolling_bounce(2)) is None


def test_the_entry_goes_once_the_tasks_are_persisted(simulator: Simulator, journal: Journal) -> None:
    simulator.kill(2)
    poll(simulator, journal)
    announce_restart(journal, 2, who=WHO)
    plan = plan_of(simulator, heal_moves(simulator, 2, 4), failed=[2])
    publish_plan(ClusterContext(simulator, journal, FAST, WHO), plan)
    assert read_one(journal.mailbox, paths.rolling_bounce(2)) is None
    assert read_one(journal.mailbox, paths.failed_broker(2)) is None


def test_the_entry_of_an_unseen_restart_goes_with_the_grace_period(simulator: Simulator, journal: Journal) -> None:
    announce_restart(journal, 2, who=WHO)
    simulator.tick(59)
    poll(simulator, journal)
    assert set(announced_restarts(journal.mailbox)) == {2}
    simulator.tick()
    poll(simulator, journal)
    assert announced_restarts(journal.mailbox) == {}


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"timestamp": "noon"}', '{"timestamp": 1, "expiry": -5}'])
def test_one_that_cannot_be_read_announces_all_the_same(simulator: Simulator, journal: Journal, text: str) -> None:
    create_document(journal.mailbox, paths.rolling_bounce(2), text)
    create_document(journal.mailbox, f"{paths.ROLLING_BOUNCE}/-7", text)
    assert restarting_brokers(journal.mailbox, journal.now_ms()) == {2: None}
    assert due_after_s(simulator, journal) == 60


@pytest.mark.parametrize(
    "expiry",
    ["1" + "0" * 400, "1e400", "-1" + "0" * 400, "9007199254740992"],
    ids=["10**400", "infinite", "-10**400", "2**53"],
)
def test_an_expiry_beyond_every_date_delays_no_poll_nor_heal(
    simulator: Simulator, journal: Journal, expiry: str
) -> None:
    create_document(journal.mailbox, paths.rolling_bounce(2), f'{{"timestamp": 1, "expiry": {expiry}}}')
    assert poll(simulator, journal).down == ()
    for broker in (2, 3):
        simulator.kill(broker)
    first = poll(simulator, journal)
    assert first.down == (2, 3)
    assert first.waiting == dict.fromkeys((2, 3), simulator.now_ms + 60_000)
    simulator.restart(3)
    simulator.tick(60)
    verdict = poll(simulator, journal)
    assert (verdict.due, verdict.cleared) == ((2,), (3,))


def test_announced_again_the_later_word_counts(simulator: Simulator, journal: Journal) -> None:
    announce_restart(journal, 2, who=WHO, lasts_ms=5_000)
    assert "has 90 s to come back" in announce_restart(journal, 2, who=WHO, lasts_ms=90_000)
    assert due_after_s(simulator, journal) == 90


@pytest.mark.parametrize(("broker", "lasts_ms"), [(-1, None), (2**31, None), (2, 0), (2, -5)])
def test_what_is_no_broker_or_no_time_is_refused(broker: int, lasts_ms: int | None) -> None:
    with pytest.raises(RequestError, match=r"is no broker|cannot last"):
        announce_restart(memory_journal(Simulator.of("1a", "t: 1")), broker, who=WHO, lasts_ms=lasts_ms)


@pytest.mark.parametrize("ahead_ms", [45 * 60_000, 10**15])
def test_a_failure_written_by_a_clock_that_runs_ahead_counts_from_its_writing(
    simulator: Simulator, journal: Journal, ahead_ms: int
) -> None:
    told_ms = simulator.now_ms + ahead_ms
    create_document(journal.mailbox, paths.failed_broker(2), f'{{"failure_timestamp": {told_ms}}}')
    assert due_after_s(simulator, journal) == 60


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


@pytest.mark.parametrize(("broker", "why"), [(2, "it is live; to move"), (77, "the cluster has no live broker and no")])
def test_a_report_by_an_entry_of_a_broker_that_is_live_or_unknown_is_refused_in_words(
    simulator: Simulator, journal: Journal, broker: int, why: str
) -> None:
    create_document(journal.mailbox, paths.failed_broker(broker), FailedBroker(1, reported=True).to_json())
    assert poll(simulator, journal).cleared == ()
    assert read_one(journal.mailbox, paths.failed_broker(broker)) is None
    (row,) = journal.audit.rows(action=Action.CLEAR)
    said = f"broker {broker} was not reported as failed by /admin/failed_brokers/{broker}: {why}"
    assert row.entry.reason.startswith(said)
