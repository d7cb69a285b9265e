"""The throttles of a plan on a simulated cluster: there while something moves, gone after, others' left alone."""

from __future__ import annotations

from typing import Any

from kafka_steward.settings import Settings
from tests.execution.runs import heal, simulator
from tests.simulator import Simulator
from tests.worlds import FOLLOWERS, RATE

__all__ = ["simulator"]


def test_the_throttle_is_there_while_it_moves_and_gone_after(simulator: Simulator) -> None:
    world = heal(simulator, settings=Settings(throttle=50))
    world.step()
    assert simulator.topic_settings["t"][FOLLOWERS] == "0:4,1:4,2:4,4:4,5:4"
    assert simulator.broker_settings[4] == {RATE: "50"}
    simulator.tick(2)
    world.step()
    assert simulator.topic_settings["t"][FOLLOWERS] == "1:4,2:4,4:4,5:4"
    world.run()
    assert world.throttles() == []
    assert world.borrowed() == []


class Behind:
    """A cluster whose brokers tell of their settings as they were at first: a change is seen a moment later."""

    def __init__(self, simulator: Simulator) -> None:
        self._simulator = simulator

    def __getattr__(self, name: str) -> Any:
        return getattr(self._simulator, name)

    def broker_configs(self, brokers: Any, *_: Any, **__: Any) -> Any:
        return {broker: {} for broker in brokers}


def test_a_rate_that_no_broker_shows_yet_is_given_back_too(simulator: Simulator) -> None:
    world = heal(simulator, settings=Settings(throttle=50))
    world.cluster = Behind(simulator)
    world.runner = world.new_runner()
    world.step()
    assert f"4:{50}" in world.throttles()
    assert world.run().ended
    assert world.throttles() == []


def test_a_rate_kept_for_moves_to_come_is_given_back_when_they_turn_out_to_need_nothing(simulator: Simulator) -> None:
    world = heal(simulator, settings=Settings(throttle=50, max_in_flight=1))
    assert world.step().in_flight == 1
    simulator.restart(1)
    simulator.tick(5)  # the first has arrived, and broker 1 is in sync with all the others
    progress = world.step()  # in one step the first ends, and nothing is left to do
    assert (progress.ended, progress.completed, progress.satisfied) == (True, 1, 4)
    assert world.throttles() == []
    assert world.borrowed() == []


def test_what_others_throttle_stays(simulator: Simulator) -> None:
    simulator.topic_settings["t"][FOLLOWERS] = "0:4,3:2"
    simulator.broker_settings[4][RATE] = "70"
    world = heal(simulator, settings=Settings(throttle=50))
    world.step()
    assert simulator.broker_settings[4][RATE] == "50"
    world.run()
    assert simulator.topic_settings["t"][FOLLOWERS] == "0:4,3:2"
    assert simulator.broker_settings[4][RATE] == "70"


def test_a_rate_that_someone_changed_meanwhile_is_theirs(simulator: Simulator) -> None:
    world = heal(simulator, settings=Settings(throttle=50))
    world.step()
    simulator.broker_settings[4][RATE] = "99"
    world.run()
    assert simulator.broker_settings[4][RATE] == "99"
    assert world.borrowed() == []


def test_a_topic_that_throttles_everything_is_left_alone(simulator: Simulator) -> None:
    simulator.topic_settings["t"][FOLLOWERS] = "*"
    world = heal(simulator, settings=Settings(throttle=50))
    world.run()
    assert simulator.topic_settings["t"][FOLLOWERS] == "*"


def test_the_leaders_side_is_throttled_when_asked_for(simulator: Simulator) -> None:
    world = heal(simulator, settings=Settings(throttle=50, throttle_leaders=True))
    world.step()
    assert "0:2" in simulator.topic_settings["t"]["leader.replication.throttled.replicas"]
    world.run()
    # Broker 1 is dead: what was lent there is written down until it is back.
    assert simulator.topic_settings["t"] == {}
    assert [of for broker, of in simulator.broker_settings.items() if broker != 1] == [{}, {}, {}]
