"""KIP-409: topics and partitions with fewer replicas than asked for, and what becomes of pending replicas."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_steward.assignment import Operation, TopicPartition
from kafka_steward.cluster.state import Broker, Partition
from kafka_steward.errors import KafkaRefused, RequestError
from kafka_steward.execution.topics.creation import (
    AddPartitionsResult,
    CreateTopicResult,
    TopicSpec,
    add_deferred_partitions,
    add_partitions,
    assign_to_live_brokers,
    create_topic,
    find_known_brokers,
)
from kafka_steward.execution.topics.pending import (
    PROPAGATION_MS,
    PendingReplica,
    PendingState,
    eligible_brokers,
    evaluate_pending,
    find_fillable,
    list_pending,
    reconcile_pending,
    target_replication_factors,
)
from kafka_steward.execution.watch.broker_joins import poll_joined_brokers
from kafka_steward.journal.audit import Action, Outcome
from kafka_steward.journal.records import PENDING_REPLICAS, PendingReplicas
from kafka_steward.journal.store import Journal
from kafka_steward.settings import Settings
from tests.documents import create_document
from tests.execution.looks import look, part
from tests.present import present
from tests.simulated_plan import WHO, World, count_pending, lose, memory_journal, move, simulated
from tests.simulator import Simulator

T0 = TopicPartition("t", 0)


def created(
    simulator: Simulator, journal: Journal, factor: int = 3, *, allowed: bool = True, **more: int
) -> CreateTopicResult:
    wanted = TopicSpec("t", more.get("partitions", 2), factor, {})
    return create_topic(simulator, journal, wanted, allowed=allowed, who=WHO)


def two_of_three(mode: str = "zookeeper") -> tuple[Simulator, Journal]:
    """A cluster of three brokers, one of which is away, with a topic that shall have three replicas."""
    simulator, journal = simulated("1a 2b 3c", mode=mode, lost=(3,))
    simulator.unregister(3)
    created(simulator, journal)
    return simulator, journal


def fill(simulator: Simulator, journal: Journal, *names: str, to: str = "") -> None:
    """A fill as its DAG does it, without planner: every partition gets what is pending on brokers that have none."""
    moves = []
    for place, name in enumerate(names):
        topic, _, number = name.rpartition("-")
        held = simulator.topics[TopicPartition(topic, int(number))].replicas
        before = "".join(map(str, held))
        after = to or before + "".join(str(broker) for broker in sorted(simulator.alive) if broker not in held)
        moves.append(move(name, before, after, position=place))
    World(simulator, journal, moves, auto_generated=False, operation=Operation.FILL).run()


# creating


@pytest.mark.parametrize("mode", ["kraft", "zookeeper"])
def test_with_too_few_brokers_a_topic_is_created_with_fewer_replicas_and_the_rest_is_pending(mode: str) -> None:
    simulator, journal = two_of_three(mode)
    assert {name.partition: each.replicas for name, each in simulator.topics.items()} == {0: (1, 2), 1: (2, 1)}
    assert present(journal.rows(PENDING_REPLICAS).get(T0)).value == PendingReplicas((1, 2, -1))
    assert count_pending(journal) == 2
    assert [row.entry.after for row in journal.audit.rows(action=Action.PENDING)] == [[1, 2, -1], [2, 1, -1]]
    asked = [row.outcome for row in journal.audit.rows(action=Action.CREATE)]
    assert asked == [*([Outcome.REFUSED] if mode == "kraft" else []), Outcome.DONE], "ZooKeeper mode would refuse it"


def test_each_missing_replica_has_a_placeholder_of_its_own_as_the_kip_numbers_them() -> None:
    simulator = Simulator.of("1a 2b 3c 4a", mode="zookeeper")
    journal = with_live(simulator, 1)
    created(simulator, journal, 4, partitions=1)
    assert [row.entry.after for row in journal.audit.rows(action=Action.PENDING)] == [[1, -1, -2, -3]]


def test_it_is_off_by_default() -> None:
    assert Settings.of({}).enable_under_replicated_topic_creation is False
    simulator, journal = simulated("1a 2b 3c", mode="zookeeper", lost=(3,))
    with pytest.raises(KafkaRefused, match="Only 2 brokers are live: wait for more, or set enable_under_replicated"):
        created(simulator, journal, allowed=False)
    assert count_pending(journal) == 0


def test_the_kips_dotted_name_of_the_setting_is_taken() -> None:
    assert Settings.of({"enable.under.replicated.topic.creation": "true"}).enable_under_replicated_topic_creation


@given(st.sets(st.integers(1, 9), min_size=1), st.integers(1, 20), st.integers(1, 12), st.sets(st.integers(10, 15)))
def test_every_live_broker_gets_a_replica_of_every_partition_and_leads_its_share(
    live: set[int], partitions: int, factor: int, away: set[int]
) -> None:
    wanted, known = TopicSpec("t", partitions, factor, {}), frozenset(live | away)
    if factor > len(known):
        with pytest.raises(RequestError, match=f"request at most {len(known)}, or start more brokers"):
            assign_to_live_brokers(wanted, frozenset(live), known)
        return
    placed = assign_to_live_brokers(wanted, frozenset(live), known)
    assert {frozenset(replicas) for replicas in placed} == {frozenset(live)}
    assert {len(replicas) for replicas in placed} == {len(live)}
    leaders = [replicas[0] for replicas in placed]
    assert max(map(leaders.count, live)) - min(map(leaders.count, live)) <= 1


def with_live(simulator: Simulator, *brokers: int) -> Journal:
    """Only these brokers are live, and the journal knows nothing but the others."""
    journal = memory_journal(simulator)
    lose(simulator, journal, *sorted(set(simulator.racks) - set(brokers)))
    return journal


def assert_refused(simulator: Simulator, journal: Journal, wanted: TopicSpec, needed: int, live: int) -> None:
    sentence = (
        f"Topic t was not created: it needs {needed} brokers, by its min.insync.replicas and replication factor, and "
        f"{live} {'is' if live == 1 else 'are'} live; restore brokers, or lower min.insync.replicas."
    )
    with pytest.raises(RequestError) as refused:
        create_topic(simulator, journal, wanted, allowed=True, who=WHO)
    assert str(refused.value) == sentence
    assert (simulator.topics, count_pending(journal), journal.audit.rows()) == ({}, 0, [])


def test_with_fewer_live_brokers_than_the_topics_own_min_isr_nothing_is_created() -> None:
    simulator = Simulator.of("1a 2b 3c", mode="zookeeper")
    journal = with_live(simulator, 1)
    wanted = TopicSpec("t", 2, 3, {"min.insync.replicas": "2"})
    assert_refused(simulator, journal, wanted, needed=2, live=1)
    simulator.restart(2)
    assert create_topic(simulator, journal, wanted, allowed=True, who=WHO).pending == 2


def test_a_topic_without_min_isr_of_its_own_is_held_to_the_largest_default_of_the_live_brokers() -> None:
    simulator = Simulator.of("1a 2b 3c 4a", mode="zookeeper")
    journal = with_live(simulator, 1, 2)
    simulator.broker_settings |= {
        broker: {"min.insync.replicas": least} for broker, least in {1: "1", 2: "3", 3: "9", 4: "9"}.items()
    }
    assert_refused(simulator, journal, TopicSpec("t", 1, 4), needed=3, live=2)
    simulator.restart(3)
    simulator.broker_settings[3]["min.insync.replicas"] = "1"
    assert create_topic(simulator, journal, TopicSpec("t", 1, 4), allowed=True, who=WHO).pending == 1


def test_the_topics_own_min_isr_wins_over_the_brokers_default() -> None:
    simulator = Simulator.of("1a 2b 3c", mode="zookeeper")
    journal = with_live(simulator, 1)
    simulator.broker_settings[1]["min.insync.replicas"] = "2"
    wanted = TopicSpec("t", 1, 3, {"min.insync.replicas": "1"})
    assert create_topic(simulator, journal, wanted, allowed=True, who=WHO).pending == 2


@pytest.mark.parametrize("mode", ["kraft", "zookeeper"])
def test_a_topic_of_fewer_replicas_than_min_isr_needs_no_more_live_brokers_than_replicas(mode: str) -> None:
    simulator = Simulator.of("1a 2b 3c", mode=mode)
    journal = with_live(simulator, 1, 2)
    wanted = TopicSpec("t", 1, 2, {"min.insync.replicas": "3"})
    assert create_topic(simulator, journal, wanted, allowed=True, who=WHO).pending == 0
    assert set(simulator.topics[T0].replicas) == {1, 2}


@pytest.fixture(params=[True, False], ids=["listed", "unlisted"])
def fenced(request: pytest.FixtureRequest) -> Simulator:
    """Brokers 1 and 2 of three are live on KRaft, and Kafka lists the third one as fenced, or is older than 4.0."""
    kind = Simulator if request.param else Older
    simulator = kind.of("1a 2b 3c", "seen: 123", mode="kraft")
    simulator.kill(3)
    return simulator


class Older(Simulator):
    """Kafka before 4.0: it places replicas on fenced brokers, and does not list them (KIP-1073)."""

    def listed_brokers(self) -> dict[int, Broker]:
        return {broker: each for broker, each in super().listed_brokers().items() if not each.fenced}


@pytest.mark.parametrize("allowed", [False, True], ids=["off", "on"])
def test_on_kraft_all_replicas_are_left_to_kafka_which_places_them_on_fenced_brokers(
    fenced: Simulator, allowed: bool
) -> None:
    journal = memory_journal(fenced)
    wanted = TopicSpec("t", 2, 3, {"min.insync.replicas": "2"})
    made = create_topic(fenced, journal, wanted, allowed=allowed, who=WHO)
    assert (made.pending, made.sentence) == (0, "Topic t was created with 2 partitions, each with 3 replicas.")
    assert [set(fenced.topics[TopicPartition("t", number)].replicas) for number in (0, 1)] == [{1, 2, 3}] * 2
    assert count_pending(journal) == 0
    assert [row.outcome for row in journal.audit.rows(action=Action.CREATE)] == [Outcome.DONE]
    fenced.restart(3)
    fenced.run()
    fenced.tick()
    assert poll_joined_brokers(fenced, journal, Settings(), WHO) is None


@pytest.mark.parametrize("allowed", [False, True], ids=["off", "on"])
def test_on_kraft_fewer_live_brokers_than_min_isr_are_too_few_for_kafka_as_well(
    fenced: Simulator, allowed: bool
) -> None:
    journal = memory_journal(fenced)
    wanted = TopicSpec("t", 2, 3, {"min.insync.replicas": "3"})
    with pytest.raises(RequestError, match=r"was not created: it needs 3 brokers, by its min\.insync\.replicas"):
        create_topic(fenced, journal, wanted, allowed=allowed, who=WHO)
    assert (list(fenced.topics), journal.audit.rows()) == ([TopicPartition("seen", 0)], [])


def test_on_kraft_what_kafka_refuses_for_its_few_registered_brokers_is_created_on_the_live_ones() -> None:
    simulator, journal = two_of_three("kraft")
    rows = journal.audit.rows(action=Action.CREATE)
    assert [(row.outcome, "assignments" in row.entry.after) for row in rows] == [
        (Outcome.REFUSED, False),
        (Outcome.DONE, True),
    ]
    simulator.restart(3)
    assert target_replication_factors(list_pending(journal, simulator.snapshot()), simulator.snapshot(), ())[T0] == 3


KNOWN = "2 brokers are known (live, registered, with replicas, or in the journal as failed or restarting)"


@pytest.mark.parametrize("mode", ["kraft", "zookeeper"])
def test_more_replicas_than_the_cluster_has_brokers_are_refused_and_not_pending_for_ever(mode: str) -> None:
    simulator, journal = simulated("1a 2b", mode=mode)
    with pytest.raises(RequestError) as refused:
        created(simulator, journal)
    assert str(refused.value) == (
        f"Topic t was not created: 3 replicas were requested, and {KNOWN}; request at most 2, or start more brokers "
        "first."
    )
    assert (simulator.topics, count_pending(journal)) == ({}, 0)
    with pytest.raises(KafkaRefused, match=r"Only 2 brokers are known .* request at most 2 replicas, or start more"):
        created(simulator, journal, allowed=False)


def test_brokers_that_are_away_are_known_by_their_replicas_and_by_the_journal() -> None:
    simulator, journal = simulated("1a 2b 3c 4a 5b 6c", "seen: 13", mode="zookeeper", lost=(4,))
    for broker in (3, 5, 6):
        simulator.kill(broker)
    create_document(journal.mailbox, "/admin/rolling_bounce/5", '{"timestamp": 1}')
    simulator.create("placeholders", [(1, -1)])  # ZooKeeper mode takes such ids
    assert find_known_brokers(journal, simulator.snapshot()) == {1, 2, 3, 4, 5}
    assert created(simulator, journal, 5).pending == 6
    simulator.mode = "kraft"
    assert find_known_brokers(journal, simulator.snapshot()) == {1, 2, 3, 4, 5, 6}, "KRaft has it registered"


def test_without_the_setting_too_few_brokers_for_min_isr_are_no_reason_to_suggest_it() -> None:
    simulator = Simulator.of("1a 2b 3c", "seen: 123", mode="zookeeper")
    for broker in (2, 3):
        simulator.kill(broker)
    wanted = TopicSpec("t", 2, 3, {"min.insync.replicas": "2"})
    with pytest.raises(KafkaRefused, match=r"Only 1 broker is live: wait for more\.$"):
        create_topic(simulator, memory_journal(simulator), wanted, allowed=False, who=WHO)


def test_a_second_try_finds_what_the_first_has_made() -> None:
    simulator, journal = two_of_three()
    again = created(simulator, journal)
    assert (again.existed, again.pending) == (True, 2)
    assert len(journal.audit.rows(action=Action.PENDING)) == 2


def test_a_topic_that_exists_with_another_replication_factor_is_refused_with_a_sentence() -> None:
    simulator, journal = two_of_three()
    with pytest.raises(RequestError, match="exists with replication factor 3, and 2 was requested"):
        created(simulator, journal, 2)
    with pytest.raises(RequestError, match="exists with 2 partitions, and 5 were requested"):
        created(simulator, journal, partitions=5)


def test_what_kafka_refuses_leaves_no_pending_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    simulator, journal = simulated("1a 2b 3c", mode="zookeeper", lost=(3,))
    refused = KafkaRefused(44, "No.", "Kafka refused: No.")
    monkeypatch.setattr(simulator, "create_topic", lambda *_, **__: refused)
    with pytest.raises(KafkaRefused, match="No"):
        created(simulator, journal)
    assert journal.rows(PENDING_REPLICAS).all() == []


# what becomes of it


def test_a_broker_that_joins_is_announced_and_a_fill_settles_the_pending_replicas() -> None:
    simulator, journal = two_of_three()
    settings = Settings()
    looked = present(poll_joined_brokers(simulator, journal, settings, WHO))
    assert (looked.due, looked.sentence) == ((), "2 replicas of 2 partitions are pending; no live broker can host one.")
    simulator.restart(3)
    looked = present(poll_joined_brokers(simulator, journal, settings, WHO))
    assert looked.due == (3,)
    assert target_replication_factors(list_pending(journal, simulator.snapshot()), simulator.snapshot(), ()) == {
        T0: 3,
        TopicPartition("t", 1): 3,
    }
    fill(simulator, journal, "t-0", "t-1")
    reconcile_pending(simulator, journal, simulator.snapshot(), WHO)
    assert poll_joined_brokers(simulator, journal, settings, WHO) is None
    settled = [row.entry for row in journal.audit.rows(action=Action.SETTLE) if row.entry.plan == ""]
    assert [entry.reason for entry in settled] == ["t-0 has all its 3 replicas.", "t-1 has all its 3 replicas."]


def test_the_event_is_repeated_after_the_interval_and_at_once_for_another_broker() -> None:
    simulator, journal = simulated("1a 2b 3c 4a", mode="zookeeper", lost=(3, 4))
    created(simulator, journal, 4)
    simulator.restart(3)

    def due() -> tuple[int, ...]:
        looked = present(poll_joined_brokers(simulator, journal, Settings(heal_retry_interval=600), WHO))
        return looked.due

    assert [due(), due()] == [(3,), ()]
    simulator.restart(4)
    assert [due(), due()] == [(3, 4), ()]
    simulator.now_ms += 600_000
    assert [due(), due()] == [(3, 4), ()]


def dropped(simulator: Simulator, journal: Journal) -> list[str]:
    reconcile_pending(simulator, journal, simulator.snapshot(), WHO)
    assert journal.rows(PENDING_REPLICAS).all() == []
    return [row.entry.reason for row in journal.audit.rows(action=Action.DROP)]


def test_a_topic_that_was_deleted_has_no_pending_replicas() -> None:
    simulator, journal = two_of_three()
    simulator.delete("t")
    reconcile_pending(simulator, journal, simulator.snapshot(), WHO)
    assert count_pending(journal) == 2  # a broker that lags behind may just not know of it yet
    simulator.now_ms += PROPAGATION_MS
    assert dropped(simulator, journal)[0] == "t-0: its topic was deleted, or never created."


PENDING = PendingReplicas((1, 2, -1, -2), "id")
OPEN, DROPPED, SETTLED = PendingState.OPEN, PendingState.DROPPED, PendingState.SETTLED
CHANGED = "t-0: its replication factor was changed externally from 2 to "


@pytest.mark.parametrize(
    ("partition", "replicas", "state", "sentence"),
    [
        (part("t-0", "12", topic_id="id"), PENDING.replicas, OPEN, "t-0 has 2 of 4 replicas."),
        (part("t-0", "17", topic_id="id"), (1, 7, -1, -2), OPEN, "t-0 has 2 of 4 replicas."),
        (part("t-0", "123", topic_id="id"), (1, 2, 3, -1), OPEN, "t-0 has 3 of 4 replicas."),
        (part("t-0", "124", topic_id="id"), PENDING.replicas, DROPPED, f"{CHANGED}3."),
        (part("t-0", "1", topic_id="id"), PENDING.replicas, DROPPED, f"{CHANGED}1."),
        (part("t-0", "12345", topic_id="id"), PENDING.replicas, DROPPED, f"{CHANGED}5."),
        (part("t-0", "1243", topic_id="id"), (1, 2, 4, 3), SETTLED, "t-0 has all its 4 replicas."),
        (part("t-0", "1234", topic_id="id"), (1, 2, 3, 4), SETTLED, "t-0 has all its 4 replicas."),
        (part("t-0", "12"), PENDING.replicas, OPEN, "t-0 has 2 of 4 replicas."),
        (part("t-0", "12", topic_id="other"), PENDING.replicas, DROPPED, "t-0: its topic was deleted and re-created."),
        (part("t-0", "123", adding="3", topic_id="id"), PENDING.replicas, PendingState.MOVING, "t-0 is being moved."),
    ],
)
def test_a_pending_replica_is_judged_by_how_many_replicas_there_are_and_who_added_them(
    partition: Partition, replicas: tuple[int, ...], state: PendingState, sentence: str
) -> None:
    filled = [(1,), (1, 2, 3), (1, 2, 3, 4), (1, 2, 3, 4, 5)]
    found = evaluate_pending(T0, PENDING, partition, age_ms=0, filled=filled)
    assert found == PendingReplica(T0, PendingReplicas(replicas, "id"), state, sentence)


def test_the_topics_id_is_noted_as_soon_as_it_is_seen() -> None:
    known = PendingReplicas((1, -1), "id")
    new = evaluate_pending(T0, replace(known, topic_id=None), part("t-0", "1", topic_id="id"), age_ms=0)
    assert new == PendingReplica(T0, known, OPEN, "t-0 has 1 of 2 replicas.")
    paid = evaluate_pending(T0, replace(known, topic_id=None), part("t-0", "12", topic_id="id"), age_ms=0)
    assert paid == PendingReplica(T0, PendingReplicas((1, 2), "id"), SETTLED, "t-0 has all its 2 replicas.")
    old = evaluate_pending(T0, replace(known, topic_id=None), part("t-0", "1"), age_ms=0)
    assert old == PendingReplica(T0, replace(known, topic_id=None), OPEN, "t-0 has 1 of 2 replicas.")


@pytest.mark.parametrize(
    ("age_ms", "standing", "sentence"),
    [
        (PROPAGATION_MS - 1, PendingState.COMING, "t-0 is not visible yet."),
        (PROPAGATION_MS, DROPPED, "t-0: its topic was deleted, or never created."),
    ],
)
def test_a_topic_that_is_not_there_is_waited_for_as_long_as_news_may_take(
    age_ms: int, standing: PendingState, sentence: str
) -> None:
    assert evaluate_pending(T0, PENDING, None, age_ms=age_ms) == PendingReplica(T0, PENDING, standing, sentence)


def test_a_pending_replica_is_obsolete_when_it_is_settled_or_dropped() -> None:
    pending = [PendingReplica(T0, PENDING, state, "") for state in PendingState]
    assert {replica.state for replica in pending if replica.is_obsolete} == {SETTLED, DROPPED}
    assert {replica.missing for replica in pending} == {2}


@pytest.mark.parametrize(
    ("live", "able", "to"),
    [("1", [], {}), ("12", [], {}), ("123", [3], {T0: 3}), ("12345", [3, 4, 5], {T0: 4}), ("134", [], {})],
    ids=["one dead, none other", "none other", "one more", "enough", "one of its own is dead"],
)
def test_a_pending_replica_can_be_hosted_by_live_brokers_that_hold_none(
    live: str, able: list[int], to: dict[TopicPartition, int]
) -> None:
    open_debt = PendingReplica(T0, PENDING, OPEN, "")
    others = (state for state in PendingState if state is not OPEN)
    several = [open_debt, *(replace(open_debt, state=state, sentence="Why.") for state in others)]
    snapshot = look(live, part("t-0", "12"))
    assert find_fillable(several, snapshot, ()) == ([open_debt] if able else [])
    assert sorted(eligible_brokers(several, snapshot, ())) == able
    assert target_replication_factors(several, snapshot, ()) == to


def test_brokers_that_can_host_several_pending_replicas_are_those_of_any() -> None:
    names = [TopicPartition("t", 1), TopicPartition("t", 2)]
    pending = [PendingReplica(name, PendingReplicas((name.partition, -1)), OPEN, "") for name in names]
    assert eligible_brokers(pending, look("123", part("t-1", "1"), part("t-2", "2")), ()) == {1, 2, 3}


# more partitions


def test_on_kraft_fenced_brokers_take_their_place_and_no_replica_is_pending() -> None:
    simulator, journal = simulated("1a 2b 3c", "t: 123")
    simulator.kill(3)
    added = add_partitions(simulator, journal, "t", 3, later=False, who=WHO)
    assert added.done
    assert len(simulator.topics) == 3
    assert journal.rows(PENDING_REPLICAS).all() == []


def test_too_few_brokers_for_partitions_are_refused_with_a_sentence_or_left_as_a_request() -> None:
    simulator, journal = simulated("1a 2b 3c", "t: 123", mode="zookeeper")
    simulator.kill(3)
    with pytest.raises(RequestError, match="pass later=True to add them when a broker joins"):
        add_partitions(simulator, journal, "t", 3, later=False, who=WHO)
    assert add_partitions(simulator, journal, "t", 3, later=True, who=WHO).waits
    assert add_deferred_partitions(simulator, journal, WHO) == []
    simulator.restart(3)
    looked = present(poll_joined_brokers(simulator, journal, Settings(), WHO))
    assert looked.due == (1, 2, 3)
    assert add_deferred_partitions(simulator, journal, WHO) == ["Topic t has 3 partitions, 2 of them new."]
    assert poll_joined_brokers(simulator, journal, Settings(), WHO) is None


def grown(simulator: Simulator, journal: Journal, *, later: bool = False) -> AddPartitionsResult:
    return add_partitions(simulator, journal, "seen", 3, later=later, who=WHO)


def test_on_kraft_as_many_brokers_as_min_isr_asks_for_have_to_be_live_for_new_partitions(fenced: Simulator) -> None:
    journal = memory_journal(fenced)
    fenced.topic_settings["seen"]["min.insync.replicas"] = "2"
    fenced.kill(2)
    lacking = (
        "Topic seen needs 2 live brokers for new partitions, by its min.insync.replicas and replication factor, and 1 "
        "are live"
    )
    with pytest.raises(RequestError) as refused:
        grown(fenced, journal)
    assert str(refused.value) == f"{lacking}: wait for more, or pass later=True to add them when a broker joins."
    assert (len(fenced.topics), journal.audit.rows()) == (1, [])
    assert grown(fenced, journal, later=True) == AddPartitionsResult(
        False, True, f"{lacking}: they are added when a broker joins."
    )
    assert (add_deferred_partitions(fenced, journal, WHO), len(fenced.topics)) == ([], 1)
    fenced.restart(2)
    fenced.restart(3)
    assert add_deferred_partitions(fenced, journal, WHO) == ["Topic seen has 3 partitions, 2 of them new."]


def test_on_kraft_new_partitions_that_waited_are_left_to_kafka_once_enough_brokers_are_live() -> None:
    simulator, journal = simulated("1a 2b 3c", "seen: 123", mode="kraft")
    simulator.topic_settings["seen"]["min.insync.replicas"] = "2"
    simulator.kill(2)
    simulator.kill(3)
    assert grown(simulator, journal, later=True).waits
    assert poll_joined_brokers(simulator, journal, Settings(), WHO).due == ()  # type: ignore[union-attr]
    simulator.restart(2)
    assert poll_joined_brokers(simulator, journal, Settings(), WHO).due == (1, 2)  # type: ignore[union-attr]
    assert add_deferred_partitions(simulator, journal, WHO) == ["Topic seen has 3 partitions, 2 of them new."]
    assert {frozenset(each.replicas) for each in simulator.topics.values()} == {frozenset({1, 2, 3})}


def test_a_replication_factor_below_min_isr_needs_no_more_live_brokers_than_replicas() -> None:
    simulator = Simulator.of("1a 2b", "seen: 1", mode="kraft")
    simulator.topic_settings["seen"]["min.insync.replicas"] = "3"
    simulator.kill(2)
    assert grown(simulator, memory_journal(simulator)).done


def test_new_partitions_are_left_to_kafka_where_fenced_brokers_are_not_listed(fenced: Simulator) -> None:
    assert grown(fenced, memory_journal(fenced)).done
    assert {frozenset(each.replicas) for each in fenced.topics.values()} == {frozenset({1, 2, 3})}


@pytest.mark.parametrize("away", ["unregistered", "cordoned"])
def test_what_kafka_on_kraft_refuses_for_its_few_brokers_is_refused_or_left_as_a_request(away: str) -> None:
    simulator, journal = simulated("1a 2b 3c", "seen: 123", mode="kraft")
    simulator.unregister(3) if away == "unregistered" else simulator.cordoned.add(3)
    with pytest.raises(RequestError, match=r"has 2 brokers that accept replicas: wait for more, or pass later=True"):
        grown(simulator, journal)
    assert grown(simulator, journal, later=True).waits
    assert add_deferred_partitions(simulator, journal, WHO) == []
    simulator.restart(3)
    simulator.cordoned.clear()
    assert add_deferred_partitions(simulator, journal, WHO) == ["Topic seen has 3 partitions, 2 of them new."]


def test_another_refusal_of_new_partitions_is_not_taken_for_a_lack_of_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    simulator = Simulator.of("1a 2b 3c", "seen: 123", mode="kraft")
    refused = KafkaRefused(44, "No.", "Kafka refused: No.")
    monkeypatch.setattr(simulator, "create_partitions", lambda *_: refused)
    with pytest.raises(KafkaRefused, match="No"):
        grown(simulator, memory_journal(simulator), later=True)


@pytest.mark.parametrize("then", ["deleted", "re-created", "added"])
def test_a_request_for_partitions_of_a_topic_that_changed_is_dropped_with_a_reason(then: str) -> None:
    simulator, journal = simulated("1a 2b 3c", "t: 123", mode="zookeeper")
    simulator.kill(3)
    add_partitions(simulator, journal, "t", 3, later=True, who=WHO)
    simulator.restart(3)
    if then == "added":
        simulator.create_partitions("t", 3)
    else:
        simulator.delete("t")
    if then == "re-created":
        simulator.create("t", [(1, 2, 3)])
    (told,) = add_deferred_partitions(simulator, journal, WHO)
    assert then in told
    assert add_deferred_partitions(simulator, journal, WHO) == []


def test_a_topic_keeps_its_partitions() -> None:
    simulator, journal = simulated("1a 2b", "t: 12 21")
    assert not add_partitions(simulator, journal, "t", 2, later=False, who=WHO).done
    with pytest.raises(RequestError, match="Kafka cannot remove partitions"):
        add_partitions(simulator, journal, "t", 1, later=False, who=WHO)
    with pytest.raises(RequestError, match="does not exist"):
        add_partitions(simulator, journal, "u", 2, later=False, who=WHO)


def test_a_pending_replica_of_a_topic_that_we_may_not_describe_stays_with_the_remedy() -> None:
    known = PendingReplicas((1, 2, -1), "id1")
    sentence = "t-0: Kafka does not let us describe its topic; grant our principal DESCRIBE on it."
    assert evaluate_pending(T0, known, None, age_ms=10**9, hidden=True) == PendingReplica(
        T0, known, PendingState.HIDDEN, sentence
    )
