"""KIP-409: creations whose answer is lost, the fill of what is pending, and brokers that join and hold nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from kafka_steward.assignment import TopicPartition
from kafka_steward.errors import KafkaRefused, KafkaTimeout, VersionConflict
from kafka_steward.execution.cluster_queries import cordoned_brokers
from kafka_steward.execution.plans.drive import DrivePolicy, run_to_end
from kafka_steward.execution.plans.publishing import publish_plan
from kafka_steward.execution.plans.runner import PlanRunner
from kafka_steward.execution.plans.snapshot import take_snapshot
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.topics.creation import (
    CreateTopicResult,
    TopicSpec,
    add_partitions,
    create_topic,
    unwatched_reason,
)
from kafka_steward.execution.topics.pending import list_pending, reconcile_pending, target_replication_factors
from kafka_steward.execution.watch.broker_joins import (
    claim_empty_brokers,
    poll_empty_brokers,
    poll_joined_brokers,
    update_empty_brokers,
)
from kafka_steward.journal.records import EMPTY_BROKERS, PENDING_REPLICAS, BrokerClaims, PlanRecord
from kafka_steward.journal.state import ONLY
from kafka_steward.journal.store import Journal, open_journal
from kafka_steward.planning.checker.check import check
from kafka_steward.planning.files.formats import PlanFolder, read_snapshot
from kafka_steward.settings import Settings
from tests.builders import planned
from tests.present import present
from tests.simulated_plan import WHO, lose, memory_journal, move, simulated
from tests.simulator import Simulator

SETTINGS = Settings(throttle=0)


def with_pending(brokers: str, *dead: int, factor: int, partitions: int = 6) -> tuple[Simulator, Journal]:
    simulator = Simulator.of(brokers, mode="zookeeper")
    journal = memory_journal(simulator)
    lose(simulator, journal, *dead)
    create_topic(simulator, journal, TopicSpec("t", partitions, factor), allowed=True, who=WHO)
    return simulator, journal


def fill_plan(simulator: Simulator, journal: Journal, folder: Path) -> PlanFolder:
    snapshot = simulator.snapshot()
    cordoned = cordoned_brokers(simulator, snapshot.live)
    wanted = target_replication_factors(list_pending(journal, snapshot), snapshot, cordoned)
    take_snapshot(simulator, str(folder), failed=(), now_ms=simulator.now_ms, targets=wanted)
    read = read_snapshot(str(folder))
    plan = planned(read, "fill")
    assert check(read, plan).problems == []
    return plan


def carried_out(simulator: Simulator, journal: Journal, plan: PlanFolder) -> list[str]:
    record = publish_plan(ClusterContext(simulator, journal, SETTINGS, WHO), plan)
    runner = PlanRunner(ClusterContext(simulator, journal, SETTINGS, WHO), record.digest)
    run_to_end(runner.step, lambda _: simulator.tick(), DrivePolicy(interval_s=lambda: 1))
    return [replica.state.value for replica in reconcile_pending(simulator, journal, simulator.snapshot(), WHO)]


def test_each_pending_replica_goes_to_a_broker_that_does_not_hold_one_yet(tmp_path: Path) -> None:
    simulator, journal = with_pending("1a 2b 3c", 3, factor=3)
    simulator.restart(3)
    plan = fill_plan(simulator, journal, tmp_path / "s")
    assert [(move.adding, move.removing) for move in plan.moves] == [(frozenset({3}), frozenset())] * 6
    assert carried_out(simulator, journal, plan) == ["settled"] * 6
    assert {len(each.replicas) for each in simulator.topics.values()} == {3}


def test_a_fill_prefers_a_rack_that_has_no_replica_yet(tmp_path: Path) -> None:
    simulator, journal = with_pending("1a 2b 3a 4c", 3, 4, factor=3)
    simulator.create("other", [(1,), (2,)])  # of which no replica is pending
    simulator.restart(3)
    simulator.restart(4)
    plan = fill_plan(simulator, journal, tmp_path / "s")
    assert [(move.topic, move.adding) for move in plan.moves] == [("t", frozenset({4}))] * 6


def test_what_can_be_filled_is_filled_and_the_rest_stays_pending(tmp_path: Path) -> None:
    simulator, journal = with_pending("1a 2b 3c 4a", 3, 4, factor=4)
    simulator.restart(3)
    plan = fill_plan(simulator, journal, tmp_path / "s")
    assert carried_out(simulator, journal, plan) == ["open"] * 6
    assert simulator.topics[TopicPartition("t", 0)].replicas == (1, 2, 3)
    simulator.restart(4)
    assert carried_out(simulator, journal, fill_plan(simulator, journal, tmp_path / "s2")) == ["settled"] * 6


def test_what_a_fill_leaves_on_one_rack_is_spread_by_the_next_rebalance(tmp_path: Path) -> None:
    # Of racks a and b, rack b is away: its broker joins only after the fill.
    simulator, journal = with_pending("1a 2a 3a 4b", 2, 3, 4, factor=2, partitions=3)
    for broker in (2, 3):
        simulator.restart(broker)
    carried_out(simulator, journal, fill_plan(simulator, journal, tmp_path / "s"))
    assert all(4 not in each.replicas for each in simulator.topics.values())
    simulator.restart(4)
    take_snapshot(simulator, str(tmp_path / "t"), failed=(), now_ms=simulator.now_ms)
    plan = planned(read_snapshot(str(tmp_path / "t")), "rebalance")
    assert plan.proof["rack_violations"] == {"before": 3, "after": 0}
    carried_out(simulator, journal, plan)
    assert all(4 in each.replicas for each in simulator.topics.values())


EVERY = Settings(heal_retry_interval=60)


def three_and_one() -> tuple[Simulator, Journal]:
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123 231")
    return simulator, memory_journal(simulator)


def due(simulator: Simulator, journal: Journal) -> tuple[int, ...]:
    return poll_empty_brokers(simulator, journal, EVERY).due


def test_a_broker_that_holds_nothing_but_a_canary_is_new(tmp_path: Path) -> None:
    simulator, journal = three_and_one()
    simulator.create("__amazon_msk_canary", [(4, 1)])
    assert due(simulator, journal) == (4,)
    assert present(poll_joined_brokers(simulator, journal, EVERY, WHO, always=True)).empty == (4,)
    assert claim_empty_brokers(simulator, journal, EVERY, "expand/1").empty == (4,)
    for number, (patterns, state) in enumerate(((["__amazon.*"], "new"), ([], "live"))):
        take_snapshot(simulator, f"{tmp_path}/{number}", failed=(), now_ms=1, service_topics=patterns)
        assert read_snapshot(f"{tmp_path}/{number}").brokers["state"].to_pylist() == ["live"] * 3 + [state]
    assert poll_empty_brokers(simulator, journal, replace(EVERY, service_topics="x")).brokers == ()


def test_an_event_for_a_broker_that_holds_nothing_is_repeated_until_a_run_claims_the_broker() -> None:
    simulator, journal = three_and_one()
    assert due(simulator, journal) == (4,)
    assert due(simulator, journal) == ()
    simulator.tick(60)
    assert due(simulator, journal) == (4,)
    found = claim_empty_brokers(simulator, journal, EVERY, "expand/1")
    assert (found.brokers, found.empty, found.sentence) == ((4,), (4,), "Broker 4 has joined.")
    simulator.tick(600)
    assert due(simulator, journal) == (), "whatever came of that run, nobody is asked twice"
    assert claim_empty_brokers(simulator, journal, EVERY, "expand/2").brokers == ()


def test_a_later_try_of_the_same_run_gets_the_same_brokers() -> None:
    simulator, journal = three_and_one()
    due(simulator, journal)
    assert [claim_empty_brokers(simulator, journal, EVERY, "expand/1").brokers for _ in range(2)] == [(4,), (4,)]


def test_a_broker_that_goes_and_comes_back_empty_has_joined_anew() -> None:
    simulator, journal = three_and_one()
    due(simulator, journal)
    claim_empty_brokers(simulator, journal, EVERY, "expand/1")
    simulator.kill(4)
    assert due(simulator, journal) == ()
    simulator.restart(4)
    assert due(simulator, journal) == (4,)


def test_a_broker_that_was_drained_is_not_new() -> None:
    simulator, journal = simulated("1a 2b 3c 4a", "t: 124")
    assert due(simulator, journal) == (3,)
    simulator.alter({TopicPartition("t", 0): (1, 2, 3)})
    simulator.run()
    simulator.tick(60)
    assert due(simulator, journal) == (3,), "no run has taken it up"
    simulator.kill(4)
    due(simulator, journal)
    simulator.restart(4)
    assert poll_empty_brokers(simulator, journal, EVERY, announce=False).sentence == (
        "Broker 4 has joined. Broker 3 waits for an expand."
    )
    assert due(simulator, journal) == (3, 4), "it has come back, holds nothing, and does not wait for the interval of 3"
    assert poll_empty_brokers(simulator, journal, EVERY).sentence == "Brokers 3 and 4 wait for an expand."


def test_the_fill_goes_first_and_who_got_something_by_it_waits_all_the_same() -> None:
    simulator, journal = simulated("1a 2b 3c", "u: 12", mode="zookeeper", lost=(3,))
    create_topic(simulator, journal, TopicSpec("t", 1, 3, {}), allowed=True, who=WHO)
    simulator.restart(3)
    looked = poll_empty_brokers(simulator, journal, EVERY)
    assert (looked.brokers, looked.due) == ((3,), ())
    assert looked.sentence.endswith("The expand waits: a live broker can host pending replicas.")
    assert claim_empty_brokers(simulator, journal, EVERY, "expand/1").brokers == ()
    simulator.alter({next(name for name in simulator.topics if name.topic == "t"): (1, 2, 3)})
    simulator.run()
    assert due(simulator, journal) == (3,)
    found = claim_empty_brokers(simulator, journal, EVERY, "expand/1")
    assert (found.brokers, found.empty) == ((3,), ())


def test_a_fill_under_way_is_waited_for() -> None:
    simulator, journal = three_and_one()
    record = PlanRecord("f" * 64, simulator.cluster_id, "fill")
    journal.plans.publish(record, [move("t-0", "123", "1234")])
    looked = poll_empty_brokers(simulator, journal, EVERY)
    told = "Broker 4 waits for an expand. The expand waits: a fill is in progress."
    assert (looked.due, looked.sentence) == ((), told)


def test_on_a_cluster_without_topics_nobody_has_joined() -> None:
    simulator = Simulator.of("1a 2b 3c")
    assert update_empty_brokers(BrokerClaims(), simulator.snapshot(), frozenset()).unclaimed == ()


def test_a_run_that_takes_up_while_the_watch_writes_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    simulator, journal = three_and_one()
    due(simulator, journal)
    rows, select = journal.rows(EMPTY_BROKERS), journal.state.select
    row = present(rows.get(ONLY))

    def stale(wanted: Any) -> Any:
        found = select(wanted)
        if found == [row.stored]:
            rows.put(ONLY, replace(row.value, announced_ms=1), row)
        return found

    monkeypatch.setattr(journal.state, "select", stale)
    with pytest.raises(VersionConflict, match="it is retried"):
        claim_empty_brokers(simulator, journal, EVERY, "expand/1")
    assert claim_empty_brokers(simulator, journal, EVERY, "expand/1").brokers == (4,)


def test_a_new_broker_is_announced_and_claimed_when_it_is_not_cordoned_any_more() -> None:
    simulator, journal = simulated("1a 2b 3c 4a 5b", "t: 123 231")
    simulator.cordoned.add(4)
    assert poll_empty_brokers(simulator, journal, EVERY).due == (5,)
    assert claim_empty_brokers(simulator, journal, EVERY, "expand/1").brokers == (5,)
    simulator.tick(60)
    assert poll_empty_brokers(simulator, journal, EVERY).due == ()
    assert claim_empty_brokers(simulator, journal, EVERY, "expand/2").brokers == ()
    simulator.cordoned.clear()
    simulator.tick(60)
    assert poll_empty_brokers(simulator, journal, EVERY).due == (4,)
    assert claim_empty_brokers(simulator, journal, EVERY, "expand/3").brokers == (4,)


def test_an_expand_does_not_wait_for_replicas_that_only_a_cordoned_broker_could_host() -> None:
    simulator, journal = with_pending("1a 2b 3c", 2, 3, factor=3)
    simulator.cordoned.add(2)
    simulator.restart(2)
    assert "The expand waits" not in poll_empty_brokers(simulator, journal, EVERY).sentence
    simulator.restart(3)
    assert "The expand waits" in poll_empty_brokers(simulator, journal, EVERY).sentence


def test_a_topic_is_created_and_filled_around_a_cordoned_broker() -> None:
    simulator, journal = simulated("1a 2b 3c", mode="kraft")
    simulator.cordoned.add(2)
    created = create_topic(simulator, journal, TopicSpec("t", 1, 3), allowed=True, who=WHO)
    assert created.pending == 1
    assert set(simulator.topics[TopicPartition("t", 0)].replicas) == {1, 3}
    joined = present(poll_joined_brokers(simulator, journal, EVERY, WHO))
    assert (joined.eligible, joined.due) == ((), ())
    simulator.cordoned.clear()
    joined = present(poll_joined_brokers(simulator, journal, EVERY, WHO))
    assert (joined.eligible, joined.due) == ((2,), (2,))


def test_one_that_does_not_answer_is_not_called_cordoned_and_nobody_is_asked_about_none() -> None:
    simulator = Simulator.of("1a 2b 3c")
    simulator.cordoned |= {1, 2}
    simulator.mute.add(2)
    assert cordoned_brokers(simulator, [1, 2, 3]) == {1}
    simulator.reachable = False
    assert cordoned_brokers(simulator, []) == frozenset()


def test_a_journal_that_no_watch_has_read_for_ten_minutes_is_reported(tmp_path: Path) -> None:
    def minutes_later(minutes: int) -> str:
        with sa.create_engine(f"sqlite:///{tmp_path}/journal.db").begin() as connection:
            connection.execute(
                sa.text("UPDATE steward_state SET at_ms = at_ms - :ms WHERE noun = 'polls'"), {"ms": minutes * 60_000}
            )
        return unwatched_reason(journal)

    with open_journal(f"sqlite:///{tmp_path}/journal.db", "one") as journal:
        journal.record_poll("health")
        assert unwatched_reason(journal).startswith("No watch has polled this journal ever, so no fill starts")
        journal.record_poll("failures")
        assert [unwatched_reason(journal), minutes_later(9)] == ["", ""]
        assert "in the last 11 minutes" in minutes_later(2)


def test_a_journal_without_a_database_says_nothing() -> None:
    assert unwatched_reason(memory_journal(Simulator.of("1a", "t: 1"))) == ""


RETENTION = {"retention.ms": "1000"}


class Unsteady:
    """A cluster that breaks the connection after it did what it was asked, or repeats it on the way to its controller.

    With `instead`, something else is there by then.
    """

    def __init__(self, simulator: Simulator, how: str, instead: Any = None) -> None:
        self._simulator, self._how, self._instead = simulator, how, instead
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._simulator, name)

    def create_topic(self, topic: str, *args: Any, **more: Any) -> Any:
        return self._lost(lambda: self._simulator.create_topic(topic, *args, **more), 36)

    def create_partitions(self, topic: str, count: int, assignments: Any = None) -> Any:
        return self._lost(lambda: self._simulator.create_partitions(topic, count, assignments), 37)

    def _lost(self, act: Any, code: int) -> Any:
        self.asked += 1
        if self._instead is None:
            refused = act()
            if refused is not None:
                return refused  # it arrives: only what was done is in doubt
        else:
            self._instead(self._simulator)
        if self._how == "no answer":
            raise KafkaTimeout("Kafka did not confirm a change in time; it may have been applied nevertheless.")
        return KafkaRefused(code, "It already exists.", "Kafka refused: It already exists.")


@pytest.fixture(params=["no answer", "repeated"])
def how(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def two_brokers(mode: str = "zookeeper") -> tuple[Simulator, Journal]:
    simulator, journal = simulated("1a 2b 3c", mode=mode, lost=(3,))
    simulator.unregister(3)
    return simulator, journal


def created(cluster: Any, journal: Journal, **settings: str) -> CreateTopicResult:
    return create_topic(cluster, journal, TopicSpec("t", 2, 3, settings), allowed=True, who=WHO)


def pending(journal: Journal) -> list[str]:
    return [str(row.key) for row in journal.rows(PENDING_REPLICAS).all()]


@pytest.mark.parametrize("settings", [{}, RETENTION])
@pytest.mark.parametrize(("mode", "asked"), [("zookeeper", 1), ("kraft", 2)])
def test_what_a_topic_lacks_whose_creation_was_not_answered_is_pending(
    how: str, settings: dict[str, str], mode: str, asked: int
) -> None:
    simulator, journal = two_brokers(mode)
    cluster = Unsteady(simulator, how)
    told = created(cluster, journal, **settings)
    assert (told.existed, told.pending, cluster.asked) == (False, 2, asked), "KRaft is first left to place them all"
    assert pending(journal) == ["t-0", "t-1"]
    again = create_topic(simulator, journal, TopicSpec("t", 2, 3, settings), allowed=True, who=WHO)
    assert (again.existed, again.pending) == (True, 2)


def test_a_topic_that_kafka_places_itself_is_compared_too(how: str) -> None:
    simulator, journal = simulated("1a 2b 3c")
    assert created(Unsteady(simulator, how), journal).pending == 0


@pytest.mark.parametrize("instead", [None, lambda _: None], ids=["created", "not created"])
def test_on_kraft_no_topic_with_fewer_replicas_follows_a_request_that_may_be_executed(how: str, instead: Any) -> None:
    simulator = Simulator.of("1a 2b 3c", mode="kraft")
    simulator.kill(3)
    journal, cluster = memory_journal(simulator), Unsteady(simulator, how, instead)
    if instead is None:
        assert created(cluster, journal).pending == 0
    else:
        with pytest.raises((KafkaTimeout, KafkaRefused)):
            created(cluster, journal)
    assert (cluster.asked, pending(journal)) == (1, [])
    assert {len(each.replicas) for each in simulator.topics.values()} <= {3}


@pytest.mark.parametrize(
    "instead",
    [
        lambda simulator: simulator.create("t", [(1, 2)]),
        lambda simulator: simulator.create("t", [(1, 2), (1, 2)]),
        lambda simulator: simulator.create("t", [(1, 2), (2, 1), (1, 2)]),
        lambda simulator: (simulator.create("t", [(1, 2), (2, 1)]), simulator.topic_settings["t"].update(a="b")),
    ],
    ids=["fewer partitions", "other replicas", "more partitions", "other settings"],
)
def test_a_topic_of_someone_else_is_not_taken_for_it(how: str, instead: Any) -> None:
    simulator, journal = two_brokers()
    with pytest.raises((KafkaTimeout, KafkaRefused)):
        created(Unsteady(simulator, how, instead), journal, **RETENTION)
    # Without an answer it may still be made: the replica stays pending until a poll finds another topic.
    assert pending(journal) == (["t-0", "t-1"] if how == "no answer" else [])


def test_new_partitions_of_a_topic_with_pending_replicas_have_some_too(how: str) -> None:
    simulator, journal = two_brokers()
    created(simulator, journal)
    cluster = Unsteady(simulator, how)
    added = add_partitions(cluster, journal, "t", 4, later=False, who=WHO)
    assert (added.done, cluster.asked) == (True, 1)
    assert pending(journal) == ["t-0", "t-1", "t-2", "t-3"]


def test_partitions_that_were_not_added_have_no_pending_replicas_once_kafka_has_refused() -> None:
    simulator, journal = two_brokers()
    created(simulator, journal)
    with pytest.raises(KafkaRefused):
        add_partitions(Unsteady(simulator, "repeated", lambda _: None), journal, "t", 4, later=False, who=WHO)
    assert pending(journal) == ["t-0", "t-1"]
    with pytest.raises(KafkaTimeout):
        add_partitions(Unsteady(simulator, "no answer", lambda _: None), journal, "t", 4, later=False, who=WHO)
    assert TopicPartition("t", 3) not in simulator.topics
