"""Failure detection over time: the journal remembers, whoever looks; all partitions are read now and then."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kafka_steward.assignment import TopicPartition, begin_with_brokers, name_brokers
from kafka_steward.cluster.state import Snapshot
from kafka_steward.errors import ClusterUnreachable
from kafka_steward.escaping import utc_text
from kafka_steward.execution.announcements import announce_restart
from kafka_steward.execution.failures.records import FAILURES
from kafka_steward.execution.plans.lifecycle import request_cancel
from kafka_steward.execution.plans.publishing import publish_plan
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.watch.failure_detector import CALM_MS, LOST_MS, DetectionResult, FailureDetector
from kafka_steward.journal.mailbox import read_one
from kafka_steward.journal.observed import CheckState
from kafka_steward.journal.store import Journal, open_journal
from kafka_steward.settings import Settings
from tests.documents import create_document
from tests.simulated_plan import RATE, WHO, World, delete, heal_moves, plan_of
from tests.simulator import Simulator
from tests.watching import tick_of

GRACE_S = 10
RETRY_S = 60


def rules(**more: Any) -> Settings:
    return Settings(**{"heal_failure_interval": GRACE_S, "heal_retry_interval": RETRY_S, **more})


def look(simulator: Simulator, journal: Journal, *, announce: bool = True, **more: Any) -> DetectionResult:
    """A look by a process of its own: nothing is remembered but by the journal."""
    return FailureDetector(simulator, journal, rules(**more), WHO).poll(announce=announce)


def entry(journal: Journal, broker: int = 1) -> int | None:
    node = read_one(journal.mailbox, f"/admin/failed_brokers/{broker}")
    return None if node is None else json.loads(node.data)["failure_timestamp"]


def actions(journal: Journal) -> list[str]:
    return [row.entry.action.value for row in journal.audit.rows()]


def test_later_looks_and_other_processes_keep_the_time(simulator: Simulator, journal: Journal) -> None:
    simulator.kill(1)
    first_ms = simulator.now_ms
    verdict = look(simulator, journal)
    assert (verdict.waiting, verdict.failed) == ({1: first_ms + GRACE_S * 1000}, ())
    assert verdict.sentence == "Broker 1 is down; the grace period ends in 10 s."
    simulator.tick(4)
    assert look(simulator, journal).waiting == verdict.waiting
    assert entry(journal) == first_ms
    assert actions(journal) == ["detect"]


def test_a_grace_period_is_stated_with_the_time_at_which_it_ends(simulator: Simulator, journal: Journal) -> None:
    simulator.kill(1)
    end_ms = simulator.now_ms + GRACE_S * 1000
    stated = f"Broker 1 is down; the grace period ends at {utc_text(end_ms)} UTC."
    for _ in range(2):
        verdict = look(simulator, journal)
        assert (verdict.state, verdict.stated, verdict.due_ms) == (CheckState.GRACE_PERIOD, stated, end_ms)
        simulator.tick(4)
    simulator.kill(2)
    verdict = look(simulator, journal, max_failed_fraction=0.9)
    assert verdict.waiting == {1: end_ms, 2: simulator.now_ms + GRACE_S * 1000}
    assert (verdict.state, verdict.due_ms) == (CheckState.GRACE_PERIOD, end_ms)


def fail(simulator: Simulator, journal: Journal, *brokers: int, waited_s: int = GRACE_S) -> None:
    for broker in brokers or (1,):
        simulator.kill(broker)
    look(simulator, journal)
    simulator.tick(waited_s)


def fail_and_publish(simulator: Simulator, journal: Journal) -> None:
    fail(simulator, journal)
    publish(simulator, journal)


def fail_and_call_off(simulator: Simulator, journal: Journal) -> None:
    fail(simulator, journal, waited_s=1)
    delete(journal, "/admin/failed_brokers/1")


@pytest.mark.parametrize(
    ("arrange", "state", "interval"),
    [
        (lambda *_: None, CheckState.FINE, GRACE_S),
        (fail, CheckState.DUE, GRACE_S),
        (fail, CheckState.NOT_HEALED, -1),
        (fail_and_publish, CheckState.HANDLED, GRACE_S),
        (fail_and_call_off, CheckState.CALLED_OFF, GRACE_S),
        (lambda simulator, journal: fail(simulator, journal, 1, 2), CheckState.OUTAGE, GRACE_S),
    ],
)
def test_without_a_grace_period_the_state_is_stated_in_the_same_sentence_and_nothing_falls_due(
    simulator: Simulator,
    journal: Journal,
    arrange: Callable[[Simulator, Journal], None],
    state: CheckState,
    interval: int,
) -> None:
    arrange(simulator, journal)
    verdict = look(simulator, journal, heal_failure_interval=interval)
    assert (verdict.state, verdict.stated, verdict.due_ms) == (state, verdict.sentence, None)
    assert verdict.stated


def test_it_is_due_to_the_millisecond(simulator: Simulator, journal: Journal) -> None:
    simulator.kill(1)
    look(simulator, journal)
    simulator.now_ms += GRACE_S * 1000 - 1
    assert look(simulator, journal).failed == ()
    simulator.now_ms += 1
    verdict = look(simulator, journal)
    assert (verdict.due, verdict.failed) == ((1,), (1,))
    assert verdict.sentence == "Broker 1 is down longer than the grace period: it will be healed."
    simulator.kill(2)
    verdict = look(simulator, journal, max_failed_fraction=0.9)
    left = f"the grace period ends in {GRACE_S} s"
    assert verdict.sentence == f"Brokers 1 and 2 are down: broker 1 will be healed; of broker 2 {left}."


def test_a_broker_has_half_an_hour_unless_another_time_is_set(simulator: Simulator, journal: Journal) -> None:
    simulator.kill(1)
    assert FailureDetector(simulator, journal, Settings(), WHO).poll().waiting == {1: simulator.now_ms + 30 * 60 * 1000}


def test_two_bounces_within_the_interval_do_not_heal(simulator: Simulator, journal: Journal) -> None:
    for _ in range(2):
        simulator.kill(1)
        look(simulator, journal)
        simulator.tick(GRACE_S - 2)
        assert look(simulator, journal).failed == ()
        simulator.restart(1)
        verdict = look(simulator, journal)
        assert verdict.cleared == (1,)
        assert entry(journal) is None
        simulator.tick(3)
    assert actions(journal) == ["detect", "clear"] * 2


def test_it_is_announced_again_each_retry_interval_until_a_plan_exists(simulator: Simulator, journal: Journal) -> None:
    fail(simulator, journal)
    announced = []
    for _ in range(2 * RETRY_S + 1):
        verdict = look(simulator, journal)
        assert verdict.failed == (1,)
        announced += [simulator.now_ms] if verdict.due else []
        simulator.tick()
    assert [later - earlier for earlier, later in pairwise(announced)] == [RETRY_S * 1000] * 2
    publish(simulator, journal)
    verdict = look(simulator, journal)
    assert (verdict.due, verdict.failed, verdict.handled) == ((), (), (1,))
    assert verdict.sentence == "Broker 1 is down, and a plan handles it."
    assert entry(journal) is None


def publish(simulator: Simulator, journal: Journal, **proof: Any) -> World:
    moves = [] if proof else heal_moves(simulator, 1, 4)
    plan = plan_of(simulator, moves, failed=(1,), **proof)
    publish_plan(ClusterContext(simulator, journal, rules(), WHO), plan)
    return World(simulator, journal, moves, digest=plan.digest, settings=Settings(throttle=50), failed=(1,))


def test_a_sensor_looks_without_using_up_the_announcement(simulator: Simulator, journal: Journal) -> None:
    fail(simulator, journal)
    assert look(simulator, journal, announce=False).failed == (1,)
    assert look(simulator, journal).due == (1,)
    assert look(simulator, journal).due == ()
    assert look(simulator, journal, announce=False).failed == (1,)


def test_a_healed_broker_is_forgotten(simulator: Simulator, journal: Journal) -> None:
    fail(simulator, journal)
    publish(simulator, journal).run()
    assert look(simulator, journal).sentence == "Every broker that has replicas is live."
    assert journal.rows(FAILURES).all() == []
    assert journal.mailbox.children("/admin/failed_brokers") == []


def test_what_cannot_be_healed_is_reported_once_and_healed_at_once_when_a_broker_joins(
    simulator: Simulator, journal: Journal
) -> None:
    fail(simulator, journal)
    held = [name for name, each in simulator.snapshot().partitions.items() if 1 in each.replicas]
    unplaced = [{"topic": topic, "partition": number, "reason": "too_few_brokers"} for topic, number in held]
    publish(simulator, journal, unplaced=unplaced).run()
    verdict = look(simulator, journal)
    assert (verdict.due, verdict.handled) == ((), (1,))
    simulator.tick(2 * RETRY_S)
    assert look(simulator, journal).due == ()
    simulator.racks[5] = "b"
    simulator.alive.add(5)
    verdict = look(simulator, journal)
    assert verdict.due == (1,), "no second grace period: it has been gone all the time"


def test_a_plan_that_handed_back_is_followed_by_another(simulator: Simulator, journal: Journal) -> None:
    fail(simulator, journal)
    look(simulator, journal)
    world = publish(simulator, journal)
    world.settings = Settings(throttle=50, max_attempts=2)
    world.runner = world.new_runner()
    simulator.kill(4)
    world.run()
    simulator.restart(4)
    simulator.tick(RETRY_S)
    assert look(simulator, journal).due == (1,)


def test_a_heal_that_a_person_cancelled_is_not_repeated(simulator: Simulator, journal: Journal) -> None:
    fail(simulator, journal)
    world = publish(simulator, journal)
    request_cancel(journal, world.digest, who=WHO, reason="not now")
    assert world.run().left == 3
    simulator.tick(2 * RETRY_S)
    assert look(simulator, journal).handled == (1,)
    simulator.kill(4)
    simulator.tick(GRACE_S)
    assert look(simulator, journal, max_failed_fraction=0.9).handled == (1,), "fewer live brokers help nobody"
    simulator.racks[5] = "b"
    simulator.alive.add(5)
    assert 1 in look(simulator, journal, max_failed_fraction=0.9).failed, "a further broker may"


@pytest.mark.parametrize("seen", [True, False])
def test_a_broker_that_came_back_and_failed_again_is_due_again_whoever_saw_it(
    simulator: Simulator, journal: Journal, *, seen: bool
) -> None:
    fail(simulator, journal)
    world = publish(simulator, journal)
    request_cancel(journal, world.digest, who=WHO, reason="not now")
    world.run()
    assert look(simulator, journal).handled == (1,)
    simulator.restart(1)
    if seen:
        assert look(simulator, journal).cleared == (1,)
    else:
        simulator.create("made-meanwhile", [(1, 2), (1, 3)])
    simulator.tick()
    fail(simulator, journal)
    verdict = look(simulator, journal)
    assert (verdict.failed, verdict.handled) == ((1,), ())


def test_an_outage_is_reported_and_not_healed(simulator: Simulator, journal: Journal) -> None:
    simulator.kill(1)
    simulator.kill(2)
    look(simulator, journal)
    simulator.tick(GRACE_S)
    verdict = look(simulator, journal)
    assert verdict.outage
    assert (verdict.due, verdict.failed, verdict.down) == ((), (), (1, 2))
    assert verdict.sentence == (
        "Brokers 1 and 2 are down: 2 of 4 brokers, more than max_failed_fraction (0.4) allows; this "
        "counts as an outage, and nothing is healed until some brokers return. To heal all the same, run the DAG heal "
        "with a higher max_failed_fraction, or report a broker that will not return: airflow kafka-steward failed 1."
    )
    assert "outage" in actions(journal)
    simulator.restart(2)
    assert look(simulator, journal).due == (1,)


def test_switched_off_nothing_is_written_and_it_still_reports(simulator: Simulator, journal: Journal) -> None:
    simulator.kill(1)
    verdict = look(simulator, journal, heal_failure_interval=-1)
    assert (verdict.down, verdict.due, verdict.failed) == ((1,), (), ())
    assert verdict.sentence == "Broker 1 is down; healing is disabled (heal_failure_interval is -1)."
    assert journal.mailbox.children("/admin") == []
    assert journal.rows(FAILURES).all() == []


def test_fast_detection_waits_only_for_those_who_announced_it(simulator: Simulator, journal: Journal) -> None:
    create_document(journal.mailbox, "/admin/rolling_bounce/2", json.dumps({"timestamp": simulator.now_ms}))
    look_fast = partial(look, simulator, journal, heal_fast_detection=True, max_failed_fraction=0.9)
    simulator.kill(1)
    simulator.kill(2)
    verdict = look_fast()
    assert verdict.due == (1,)
    assert list(verdict.waiting) == [2]
    simulator.restart(2)
    look_fast()
    assert read_one(journal.mailbox, "/admin/rolling_bounce/2") is None, "it is back: the announcement is over"


def test_not_reaching_the_cluster_is_never_a_failure(simulator: Simulator, journal: Journal) -> None:
    simulator.reachable = False
    with pytest.raises(ClusterUnreachable):
        look(simulator, journal)
    assert journal.mailbox.children("/admin") == []


def test_one_witness_is_not_enough_and_clears_nothing(simulator: Simulator, journal: Journal) -> None:
    simulator.kill(1)
    look(simulator, journal)
    since = entry(journal)
    simulator.live_views = lambda *_, **__: {2: frozenset({2, 3, 4})}  # type: ignore[method-assign]
    simulator.tick(GRACE_S)
    assert look(simulator, journal).failed == ()
    assert entry(journal) == since


def test_an_invalid_entry_counts_from_when_it_was_written(simulator: Simulator, journal: Journal) -> None:
    simulator.kill(1)
    create_document(journal.mailbox, "/admin/failed_brokers/1", "gone fishing")
    create_document(journal.mailbox, "/admin/failed_brokers/not-a-broker", "{}")
    create_document(journal.mailbox, "/steward/failures/1", "[]")
    assert look(simulator, journal).waiting == {1: simulator.now_ms + GRACE_S * 1000}


def test_throttles_that_a_plan_left_on_a_dead_broker_are_released(simulator: Simulator, journal: Journal) -> None:
    simulator.kill(1)
    world = publish(simulator, journal)
    world.step()
    simulator.tick(3)
    simulator.kill(4)
    world.settings = Settings(throttle=50, max_attempts=2)
    world.runner = world.new_runner()
    progress = world.run()
    assert "the throttle of broker 4 is released on return, by the watch, the next run of heal, or" in progress.sentence
    assert simulator.broker_settings[4] == {RATE: "50"}
    simulator.restart(4)
    tick_of(simulator, journal, Settings())
    assert simulator.broker_settings[4] == {}
    assert world.leases() == []


@pytest.fixture
def asked(simulator: Simulator, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """When all partitions were asked for."""
    times: list[int] = []
    everything = simulator.snapshot

    def counted(topics: Collection[str] | None = None) -> Snapshot:
        times.append(simulator.now_ms)
        return everything(topics)

    monkeypatch.setattr(simulator, "snapshot", counted)
    return times


def test_while_the_same_brokers_live_only_they_are_asked_for(
    simulator: Simulator, journal: Journal, asked: list[int]
) -> None:
    detector = FailureDetector(simulator, journal, Settings(), WHO)

    def looks(seconds: int) -> int:
        asked.clear()
        for _ in range(seconds):
            simulator.tick()
            assert detector.poll().down == ()
        return len(asked)

    assert (looks(1), looks(CALM_MS // 1000 - 1), looks(1)) == (1, 0, 1)
    simulator.kill(4)  # which holds nothing
    assert (looks(1), looks(1)) == (1, 0)
    simulator.kill(1)
    assert detector.poll().down == (1,)
    assert detector.poll().down == (1,)
    simulator.restart(1)
    assert detector.poll().cleared == (1,)


def test_while_a_broker_is_gone_all_partitions_are_asked_for_every_ten_seconds_and_before_it_is_announced(
    simulator: Simulator, journal: Journal, asked: list[int]
) -> None:
    detector = FailureDetector(simulator, journal, Settings(heal_failure_interval=34), WHO)
    simulator.kill(1)
    began_ms = simulator.now_ms
    verdict = detector.poll()
    while not verdict.due:
        simulator.tick()
        verdict = detector.poll()
    assert [(at_ms - began_ms) // 1000 for at_ms in asked] == [0, 10, 20, 30, 34]
    assert LOST_MS == 10_000


def test_a_broker_of_which_too_few_have_said_that_it_is_gone_is_asked_for_at_each_look(
    simulator: Simulator, journal: Journal, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    detector = FailureDetector(simulator, journal, Settings(), WHO)
    monkeypatch.setattr(simulator, "live_views", lambda brokers: {2: frozenset(brokers)})
    simulator.kill(1)
    for _ in range(3):
        assert detector.poll().down == ()
        simulator.tick()
    assert len(asked) == 3
    monkeypatch.undo()
    assert detector.poll().down == (1,)


def test_nothing_is_announced_of_a_broker_that_was_healed_since_the_last_look_at_all_partitions(
    simulator: Simulator, journal: Journal
) -> None:
    detector = FailureDetector(simulator, journal, Settings(heal_failure_interval=9), WHO)
    simulator.kill(1)
    assert detector.poll().waiting
    simulator.tick()
    everywhere = [name for name, each in simulator.snapshot().partitions.items() if 1 in each.replicas]
    simulator.alter(dict.fromkeys(everywhere, (2, 3, 4)))
    simulator.tick(8)
    verdict = detector.poll()
    assert (verdict.due, verdict.down) == ((), ())


def test_replicas_assigned_to_a_dead_broker_are_seen_in_the_end(simulator: Simulator, journal: Journal) -> None:
    simulator.kill(4)
    detector = FailureDetector(simulator, journal, Settings(), WHO)
    assert detector.poll().down == ()
    simulator.alter({TopicPartition("t", 0): (4, 2, 3)})
    simulator.tick(CALM_MS // 1000)
    assert detector.poll().down == (4,)


AT_ONCE = Settings(heal_failure_interval=0)


class SlowCluster(Simulator):
    """A cluster during whose answer somebody announces the restart of a broker, and stops it."""

    other: Any = None

    def snapshot(self, topics: Collection[str] | None = None) -> Snapshot:
        if self.other is not None:
            announce_restart(self.other, 3, who=WHO, lasts_ms=600_000)
            self.kill(3)
            self.other = None
        return super().snapshot(topics)


def test_a_restart_that_is_announced_during_a_poll_is_no_failure(tmp_path: Path) -> None:
    cluster, url = SlowCluster.of("1a 2b 3c", "t: 123"), f"sqlite:///{tmp_path}/journal.db"
    with open_journal(url, cluster.cluster_id) as journal, open_journal(url, cluster.cluster_id) as other:
        assert isinstance(cluster, SlowCluster)
        cluster.other = other
        found = FailureDetector(cluster, journal, AT_ONCE, WHO).poll()
        assert (found.down, found.due) == ((3,), ())
        assert list(found.waiting) == [3]


@pytest.mark.parametrize(
    ("brokers", "name", "beginning"),
    [
        ([3], "broker 3", "Broker 3 is"),
        ([3, 4], "brokers 3 and 4", "Brokers 3 and 4 are"),
        ((3, 4, 10), "brokers 3, 4 and 10", "Brokers 3, 4 and 10 are"),
    ],
)
def test_the_verb_agrees_with_the_number_of_brokers(brokers: Any, name: str, beginning: str) -> None:
    assert name_brokers(brokers) == name
    assert begin_with_brokers(brokers, "is", "are") == beginning
