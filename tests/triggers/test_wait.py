"""What sensors ask, until the answer is yes: scripted, and on the simulator."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.errors import AuthenticationFailed, ClusterUnreachable, PlanError, RequestError
from kafka_steward.execution.topics.creation import TopicSpec, create_topic
from kafka_steward.journal.records import PlanStatus
from kafka_steward.settings import Settings
from kafka_steward.triggers.base import FIRST_EVENT_AFTER_S
from kafka_steward.triggers.wait import CheckResult, WaitTrigger, evaluate_check
from tests.simulated_plan import WHO, World, heal_moves, memory_journal, move
from tests.simulator import Simulator


class Scripted(WaitTrigger):
    """Gets its answers from a script; a wait costs no time."""

    def __init__(self, script: Sequence[CheckResult | Exception]) -> None:
        super().__init__("kafka", "caught_up", interval_s=5.0)
        self.script = list(script)
        self.waits: list[float] = []
        self._thread = self  # type: ignore[assignment]  # stands in for the thread: asks nothing but the script

    async def submit(self, _: Any) -> CheckResult:
        answer = self.script.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def _wait(self, seconds: float) -> None:
        self.waits.append(round(seconds))


def fired(script: Sequence[CheckResult | Exception]) -> tuple[list[Any], Scripted]:
    trigger = Scripted(script)

    async def events() -> list[Any]:
        return [event.payload async for event in trigger.run()]

    return asyncio.run(events()), trigger


def test_it_asks_until_yes_and_says_each_sentence_once(capsys: pytest.CaptureFixture[str]) -> None:
    no, yes = CheckResult(False, "Two are missing."), CheckResult(True, "All in sync.", {"partitions": 2})
    events, trigger = fired([no, no, ClusterUnreachable("Nobody answers."), no, yes])
    assert events == [{"done": True, "sentence": "All in sync.", "value": {"partitions": 2}}]
    assert trigger.waits == [5, 5, 5, 5, FIRST_EVENT_AFTER_S]
    logged = capsys.readouterr().out
    assert logged.count("Two are missing.") == 2
    assert logged.count("Nobody answers. Retrying.") == 1


@pytest.mark.parametrize("error", [AuthenticationFailed("Wrong password."), PlanError("No such plan.")])
def test_an_error_that_waiting_cannot_resolve_fires_as_a_failure(error: Exception) -> None:
    events, _ = fired([error])
    assert events == [{"done": False, "sentence": str(error), "value": None}]


def test_an_unknown_question_is_named() -> None:
    with pytest.raises(RequestError, match=r"no check 'why'; there are broker_joined, .*ready\."):
        evaluate_check("why", None, {})  # type: ignore[arg-type]  # it is not looked at


def opened(simulator: Simulator) -> Any:
    return SimpleNamespace(cluster=simulator, journal=memory_journal(simulator), settings=Settings())


def test_a_broker_has_joined_when_it_can_host_pending_replicas() -> None:
    simulator = Simulator.of("1a 2b 3c 4d", "other: 1234", mode="zookeeper")
    place = opened(simulator)
    simulator.kill(3)
    simulator.kill(4)
    create_topic(simulator, place.journal, TopicSpec("t", 1, 3), allowed=True, who=WHO)
    found = evaluate_check("broker_joined", place, {})
    assert found == CheckResult(False, "1 replica of 1 partition is pending; no live broker can host one.", [])
    simulator.restart(3)
    simulator.restart(4)
    found = evaluate_check("broker_joined", place, {"who": {"person": "ann"}})
    assert found == CheckResult(True, "1 replica of 1 partition is pending; brokers 3 and 4 can host some.", [3, 4])


@pytest.mark.parametrize(
    ("brokers", "named", "found"),
    [("1a 2b 3c", "Broker 3 holds", [3]), ("1a 2b 3c 4d", "Brokers 3 and 4 hold", [3, 4])],
)
def test_a_broker_that_holds_nothing_has_joined_too(brokers: str, named: str, found: list[int]) -> None:
    place = opened(Simulator.of(brokers, "t: 12"))
    assert evaluate_check("broker_joined", place, {}) == CheckResult(
        True, f"No replica is pending. {named} nothing yet.", found
    )


def test_named_brokers_have_joined_when_all_of_them_are_live() -> None:
    simulator = Simulator.of("1a 2b 3c 4d", "t: 1234")
    place = opened(simulator)
    simulator.kill(3)
    simulator.kill(4)
    wanted = [2, 3, 4]
    for sentence in ("Brokers 3 and 4 are not live.", "Broker 4 is not live."):
        assert evaluate_check("broker_joined", place, {"brokers": wanted}) == CheckResult(False, sentence, wanted)
        simulator.restart(3)
    simulator.restart(4)
    assert evaluate_check("broker_joined", place, {"brokers": wanted}) == CheckResult(
        True, "All requested brokers are live.", wanted
    )


def test_a_cluster_is_healthy_when_no_measure_is_above_its_limit() -> None:
    simulator = Simulator.of("1a 2b 3c", "t: 123")
    place = opened(simulator)
    assert evaluate_check("healthy", place, {}).met
    # Nothing spreads replicas over the racks by itself: only who asks for it waits.
    crowded = opened(Simulator.of("1a 2b 3a", "t: 13"))
    assert evaluate_check("healthy", crowded, {}).met
    assert not evaluate_check("healthy", crowded, {"limits": {"rack_violations": 0}}).met
    simulator.kill(3)
    told = evaluate_check("healthy", place, {})
    assert (told.met, told.value["under_replicated_partitions"]) == (False, 1)
    assert "Broker 3 is down." in told.sentence
    assert evaluate_check("healthy", place, {"limits": {"under_replicated_partitions": 1}}).met
    with pytest.raises(RequestError, match="There is no measure 'lag'"):
        evaluate_check("healthy", place, {"limits": {"lag": 0}})


def test_replicas_without_a_leader_to_copy_from_are_not_waited_for() -> None:
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123")
    world = World(simulator, memory_journal(simulator), [move("t-0", "123", "231")], Settings(throttle=0))
    simulator.kill(1)
    partition = simulator.topics[TopicPartition("t", 0)]
    partition.isr, partition.leader = {1}, None
    assert world.run().status is PlanStatus.COMPLETED
    place = SimpleNamespace(cluster=simulator, journal=world.journal, settings=world.settings)
    assert evaluate_check("caught_up", place, {"plan": world.digest}) == CheckResult(  # type: ignore[arg-type]
        True,
        "2 replicas of 1 of 1 partition are on brokers that are not live or have no leader to copy from, and are not "
        "waited for: t-0. All others are in sync.",
        {"partitions": 1, "missing": 1},
    )


def test_replicas_on_dead_brokers_are_not_waited_for_and_not_called_in_sync() -> None:
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123 231 312 234 123")
    moves = heal_moves(simulator, 1, 4)
    simulator.kill(1)
    simulator.kill(4)
    world = World(simulator, memory_journal(simulator), moves, Settings(throttle=0, max_attempts=2), failed=(1,))
    world.run()
    place = SimpleNamespace(cluster=simulator, journal=world.journal, settings=world.settings)
    assert evaluate_check("caught_up", place, {"plan": world.digest}) == CheckResult(  # type: ignore[arg-type]
        True,
        "4 replicas of 4 of 4 partitions are on brokers that are not live, and are not waited for: t-0, t-1, t-2 and 1 "
        "more. All others are in sync.",
        {"partitions": 4, "missing": 4},
    )
