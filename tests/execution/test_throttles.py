"""The throttles of a plan on a simulated cluster: there while something moves, gone after, others' left alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.configs import BrokerRate
from kafka_steward.errors import PlanError, VersionConflict
from kafka_steward.execution.plans.lifecycle import change_plan_throttle, read_stricter_rates, throttle_message
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.throttles.leases import list_external_rates
from kafka_steward.execution.throttles.rates import ExternalRate, ThrottleSide, ineffective_message
from kafka_steward.execution.watch.upkeep import pause_idle_plans
from kafka_steward.journal.audit import Action, Outcome
from kafka_steward.journal.records import PlanStatus
from kafka_steward.settings import Settings
from tests.execution.runs import apply, heal, simulator
from tests.simulated_plan import FOLLOWERS, RATE, WHO, World, move
from tests.simulator import Simulator

__all__ = ["simulator"]

FOLLOWER, LEADER = ThrottleSide.FOLLOWER, ThrottleSide.LEADER


def test_the_throttle_is_there_while_it_moves_and_gone_after(simulator: Simulator) -> None:
    world = heal(simulator, settings=Settings(throttle=50))
    world.step()
    assert simulator.topic_settings["t"][FOLLOWERS] == "0:4,1:4,2:4,4:4,5:4"
    assert simulator.broker_settings[4] == {RATE: "50"}
    simulator.tick(4)
    world.step()
    assert simulator.topic_settings["t"][FOLLOWERS] == "0:4,1:4,2:4,4:4,5:4", "not for each that arrives"
    simulator.tick()
    world.step()
    assert simulator.topic_settings["t"][FOLLOWERS] == "2:4,4:4,5:4"
    world.run()
    assert world.throttles() == []
    assert world.leases() == []


def test_a_rate_that_no_broker_shows_yet_is_released_too(simulator: Simulator, monkeypatch: pytest.MonkeyPatch) -> None:
    world = heal(simulator, settings=Settings(throttle=50))
    monkeypatch.setattr(
        simulator, "broker_rates", lambda brokers, keys: {key: {each: BrokerRate() for each in brokers} for key in keys}
    )
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
    assert world.leases() == []


def test_the_leaders_side_is_throttled_when_asked_for(simulator: Simulator) -> None:
    world = heal(simulator, settings=Settings(throttle=50, throttle_leaders=True))
    world.step()
    assert "0:2" in simulator.topic_settings["t"]["leader.replication.throttled.replicas"]
    world.run()
    # Broker 1 is dead: what was lent there is written down until it is back.
    assert simulator.topic_settings["t"] == {}
    assert [of for broker, of in simulator.broker_settings.items() if broker != 1] == [{}, {}, {}]


def test_a_dead_broker_whose_controllers_are_known_gets_its_rate_back_at_once(simulator: Simulator) -> None:
    simulator.changes_dead_brokers = True
    world = heal(simulator, settings=Settings(throttle=50, throttle_leaders=True))
    world.run()
    assert simulator.topic_settings["t"] == {}
    assert all(of == {} for of in simulator.broker_settings.values())
    assert world.leases() == []


def slow(simulator: Simulator, **rules: Any) -> World:
    """Two moves in flight to brokers 4 and 1, which take their time, and one that waits."""
    for partition in simulator.topics.values():
        partition.size = 10_000
    simulator.restart(1)
    moves = [move("t-0", "123", "423", size=1), move("t-1", "231", "241", size=1, position=1)]
    return apply(simulator, *moves, settings=Settings(throttle=50, max_in_per_broker=1, **rules))


def rates(world: World) -> dict[int, str]:
    return {broker: of[RATE] for broker, of in world.simulator.broker_settings.items() if RATE in of}


@pytest.mark.parametrize("rate", [5, 500])
def test_a_rate_that_the_connection_changes_is_set_at_the_next_step(simulator: Simulator, rate: int) -> None:
    world = slow(simulator)
    world.step()
    assert rates(world) == {4: "50"}
    world.settings = replace(world.settings, throttle=rate)
    world.runner = world.new_runner()
    world.step()
    assert rates(world) == {4: str(rate)}
    end(world)
    assert (world.throttles(), world.leases()) == ([], [])


def end(world: World) -> None:
    for partition in world.simulator.topics.values():
        partition.size = 1
    assert world.run().status is PlanStatus.COMPLETED


def test_the_rate_that_was_requested_for_a_plan_wins_over_all_settings_and_is_recorded(simulator: Simulator) -> None:
    world = slow(simulator)
    world.step()
    changed = change_plan_throttle(world.journal, world.digest, 20, WHO, "peak hour")
    assert changed.throttle == 20
    assert change_plan_throttle(world.journal, world.digest, 20, WHO, "again") == changed
    for throttle in (50, 0, 700):
        world.settings = replace(world.settings, throttle=throttle)
        world.runner = world.new_runner()
        world.step()
        assert rates(world) == {4: "20"}
    told, again = [row.entry for row in world.journal.audit.rows(plan=world.digest, action=Action.REQUEST)]
    assert (told.reason, told.before, told.after, told.who) == ("throttle: peak hour", None, {"throttle": 20}, WHO)
    assert (again.reason, again.before, again.after) == ("throttle: again", 20, {"throttle": 20})
    end(world)
    assert (world.throttles(), world.leases()) == ([], [])
    with pytest.raises(PlanError, match="has already ended"):
        change_plan_throttle(world.journal, world.digest, 5, WHO, "too late")


def test_a_rate_is_requested_again_after_a_conflict(simulator: Simulator, monkeypatch: pytest.MonkeyPatch) -> None:
    world = slow(simulator)
    update, conflicts = world.journal.plans.update, [0]

    def contested(*args: Any, **changes: Any) -> Any:
        conflicts[0] -= 1
        if conflicts[0] >= 0:
            raise VersionConflict("a step was quicker")
        return update(*args, **changes)

    monkeypatch.setattr(world.journal.plans, "update", contested)
    conflicts[0] = 3
    assert change_plan_throttle(world.journal, world.digest, 20, WHO, "why").throttle == 20
    conflicts[0] = 99
    with pytest.raises(VersionConflict, match="its throttle was not changed; try again"):
        change_plan_throttle(world.journal, world.digest, 30, WHO, "why")


def test_a_throttle_that_is_taken_off_or_put_on_in_the_middle(simulator: Simulator) -> None:
    world = slow(simulator)
    world.step()
    change_plan_throttle(world.journal, world.digest, 0, WHO, "off")
    world.step()
    assert (world.throttles(), world.leases()) == ([], [])
    change_plan_throttle(world.journal, world.digest, 30, WHO, "on")
    world.step()
    assert world.throttles() == ["t:0:4", "4:30"]
    end(world)
    assert (world.throttles(), world.leases()) == ([], [])


class Killed(BaseException):
    """The end of a process in the middle."""


@pytest.mark.parametrize("rate", [50, 20])
def test_a_rate_is_recorded_as_it_was_set_if_it_changed_after_a_process_was_killed(
    simulator: Simulator, monkeypatch: pytest.MonkeyPatch, rate: int
) -> None:
    world = slow(simulator)
    with monkeypatch.context() as dying:
        dying.setattr(simulator, "change_broker_configs", Mock(side_effect=Killed))
        with pytest.raises(Killed):
            world.step()
    change_plan_throttle(world.journal, world.digest, rate, WHO, "why")
    world.step()
    rows = [row for row in world.journal.audit.rows(plan=world.digest, action=Action.THROTTLE) if not row.entry.topic]
    wanted = [(0, "50", Outcome.DONE if rate == 50 else Outcome.INTENDED), (1, str(rate), Outcome.DONE)]
    assert [(row.entry.attempt, row.entry.after, row.outcome) for row in rows] == wanted[: 1 + (rate != 50)]


def clear_all(simulator: Simulator) -> None:
    """What `kafka-reassign-partitions --verify` does at the end of somebody's own reassignment."""
    for of in (*simulator.topic_settings.values(), *simulator.broker_settings.values()):
        of.clear()


def test_what_someone_clears_is_set_again_and_given_back_in_the_end(simulator: Simulator) -> None:
    simulator.topic_settings["t"][FOLLOWERS] = "3:2"
    simulator.broker_settings[4][RATE] = "70"
    world = slow(simulator)
    world.step()
    assert world.throttles() == ["t:3:2,0:4", "4:50"]
    clear_all(simulator)
    world.step()
    assert world.throttles() == ["t:0:4", "4:50"]
    end(world)
    # Whoever cleared what had been there before us has spoken last: it is not put back.
    assert (world.throttles(), world.leases()) == ([], [])


@pytest.mark.parametrize("before", ["3:2", ""])
def test_a_list_of_which_only_ours_is_left_is_deleted_unless_it_was_empty_before(
    simulator: Simulator, before: str
) -> None:
    simulator.topic_settings["t"][FOLLOWERS] = before
    world = slow(simulator)
    world.step()
    simulator.topic_settings["t"][FOLLOWERS] = "0:4"
    end(world)
    assert simulator.topic_settings["t"] == ({} if before else {FOLLOWERS: ""})
    assert world.leases() == []


def test_a_stricter_rate_of_someone_else_stays_while_it_is_there(simulator: Simulator) -> None:
    simulator.broker_settings[4][RATE] = "7"
    world = slow(simulator)
    for _ in range(3):
        world.step()
        assert rates(world) == {4: "7"}
    simulator.broker_settings[4].clear()
    world.step()
    assert rates(world) == {4: "50"}
    simulator.broker_settings[4][RATE] = "9"
    world.step()
    assert rates(world) == {4: "9"}
    end(world)
    assert (rates(world), world.leases()) == ({4: "9"}, [])


LEADER_RATE = "leader.replication.throttled.rate"


def applying(world: World, broker: int, key: str = RATE) -> str | None:
    """The rate that Kafka applies."""
    return {**world.simulator.broker_defaults, **world.simulator.broker_settings[broker]}.get(key)


@pytest.mark.parametrize("leaders", [False, True])
def test_a_stricter_rate_for_all_brokers_applies_whenever_it_is_set(simulator: Simulator, leaders: bool) -> None:
    """And where it is looser, or there is none, the plan's own: each step follows."""
    simulator.broker_defaults[RATE] = simulator.broker_defaults[LEADER_RATE] = "7"
    world = slow(simulator, throttle_leaders=leaders)
    keys = [RATE, LEADER_RATE] if leaders else [RATE]
    for default in ("7", "9", "70", "3", "50", None, "49", "51", None, "0"):
        simulator.broker_defaults = {} if default is None else dict.fromkeys((RATE, LEADER_RATE), default)
        for _ in range(2):
            world.step()
            for key in keys:
                strict = default is not None and int(default) <= 50
                assert applying(world, 4 if key is RATE else 2, key) == (default if strict else "50")
                assert key in simulator.broker_settings[4 if key is RATE else 2] or strict, "ours hides it"
    simulator.broker_defaults = dict.fromkeys((RATE, LEADER_RATE), "70")
    world.step()
    end(world)
    assert (rates(world), world.leases(), applying(world, 4)) == ({}, [], "70")


def test_a_rate_that_is_released_is_recorded_with_its_reason(simulator: Simulator) -> None:
    world = slow(simulator)
    world.step()
    simulator.broker_defaults[RATE] = "7"
    world.step()
    rows = [row.entry for row in world.journal.audit.rows(plan=world.digest, action=Action.UNTHROTTLE)]
    assert [(entry.broker, entry.before, entry.after, entry.reason) for entry in rows] == [
        (4, "50", None, "the rate that applies without it is at least as strict")
    ]


def test_the_rate_of_a_plan_is_compared_with_the_one_for_all_brokers_when_it_is_changed(simulator: Simulator) -> None:
    simulator.broker_defaults[RATE] = "50"
    world = slow(simulator)
    world.step()
    entries = [row.entry for row in world.journal.audit.rows(plan=world.digest)]
    assert {each.topic for each in entries} == {"t"}, "no rate is set that is the same as the one for all brokers"
    simulator.broker_defaults[RATE] = "30"
    for rate, expected in ((20, {4: "20"}), (40, {}), (0, {}), (29, {4: "29"})):
        change_plan_throttle(world.journal, world.digest, rate, WHO, "why")
        world.step()
        assert rates(world) == expected
    end(world)
    assert (rates(world), world.leases()) == ({}, [])


def test_who_only_tends_a_plan_follows_the_rate_for_all_brokers_too(simulator: Simulator) -> None:
    world = slow(simulator, abandoned_after=20)
    world.step()
    simulator.tick(30)
    for default, expected in (("7", {}), ("70", {4: "50"})):
        simulator.broker_defaults[RATE] = default
        for _ in range(2):
            pause_idle_plans(simulator, world.journal, world.settings, WHO)
        assert rates(world) == expected


def test_a_rate_that_shows_again_after_it_was_taken_back_is_taken_back_again(simulator: Simulator) -> None:
    """A request of ours came late, or another tool has put back what it found."""
    world = slow(simulator)
    world.step()
    simulator.broker_defaults[RATE] = "7"
    for _ in range(2):
        world.step()
        assert rates(world) == {}
        simulator.broker_settings[4][RATE] = "50"
    end(world)
    assert (rates(world), world.leases()) == ({}, [])


def test_another_tools_rate_that_was_put_over_ours_and_taken_off_again_does_not_come_back(simulator: Simulator) -> None:
    world = slow(simulator)
    world.step()
    found = rates(world)[4]
    simulator.broker_settings[4][RATE] = "60"
    world.step()
    assert rates(world) == {4: "60"}
    simulator.broker_settings[4][RATE] = found  # it puts back what it found: ours
    world.step()
    end(world)
    assert (world.throttles(), world.leases()) == ([], [])


def test_who_only_tends_a_plan_leaves_it_the_rate_that_it_has(simulator: Simulator) -> None:
    world = slow(simulator, abandoned_after=20)
    world.step()
    simulator.tick(30)
    watch = replace(world.settings, throttle=900)
    for _ in range(4):
        pause_idle_plans(simulator, world.journal, watch, WHO)
        clear_all(simulator)
    pause_idle_plans(simulator, world.journal, watch, WHO)
    assert world.throttles() == ["t:0:4", "4:50"]


def test_a_broker_that_dies_while_throttled_fails_no_step(
    simulator: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = slow(simulator)
    world.step()
    seen = simulator.snapshot()
    monkeypatch.setattr(simulator, "snapshot", lambda *_: seen)  # the controller has not noticed
    simulator.alive.discard(4)
    change_plan_throttle(world.journal, world.digest, 20, WHO, "slower")
    assert "does not answer" not in world.step().sentence


@pytest.mark.parametrize("for_all", [False, True])
def test_a_stricter_rate_of_someone_else_is_named_in_the_progress_and_wherever_the_rate_is_changed(
    simulator: Simulator, for_all: bool
) -> None:
    world, settings = slow(simulator), simulator.broker_defaults if for_all else simulator.broker_settings[4]
    where, entity = ("set for all brokers", "default") if for_all else ("set", "name 4")
    servers, context = "127.0.0.1:9001,127.0.0.1:9002", ClusterContext(simulator, world.journal, world.settings, WHO)
    named = (
        f"roker 4 has {RATE} {{}} bytes/s, {where} by someone else: this plan's {{}} bytes/s do not apply there; to "
        f"end that: kafka-configs.sh --bootstrap-server {servers} --alter --entity-type brokers --entity-{entity} "
        f"--delete-config {RATE}."
    )
    for rate, applies in (("7", True), ("70", False), ("49", True)):
        settings[RATE] = rate
        world.step()
        progress = world.step()
        assert progress.external_rates == (ExternalRate(4, FOLLOWER, int(rate), for_all),)[: int(applies)]
        assert (named.format(rate, 50) in progress.sentence) == applies == (RATE in world.record().reason)
        changed = change_plan_throttle(world.journal, world.digest, 50, WHO, "why")
        external = read_stricter_rates(context, changed)
        said = throttle_message(world.journal, changed, external, connection=f"--bootstrap-server {servers}")
        assert (
            f"at most 50 bytes/s into one broker, from its next step on, because b{named.format(rate, 50)}" in said
        ) == applies
    settings[RATE] = "70"
    world.step()
    changed = change_plan_throttle(world.journal, world.digest, 3_000_000, WHO, "too slow")
    external = read_stricter_rates(context, changed)
    said = throttle_message(world.journal, changed, external, connection=f"--bootstrap-server {servers}")
    assert said.endswith(named.format("70", "3,000,000"))
    end(world)
    assert list_external_rates(world.journal, world.record()) == []


@pytest.mark.parametrize(
    ("found_there", "named"),
    [
        (("0:1", "7", "20", False), (LEADER, 1, 7)),
        (("*", "7", "20", False), (LEADER, 1, 7)),
        (("", "7", "20", True), (LEADER, 1, 7)),  # our own throttle lists it
        (("", "7", "20", False), (FOLLOWER, 4, 20)),
        (("0:2,1:1", "7", "20", False), (FOLLOWER, 4, 20)),  # another leads, or is not moved
        (("0:1", "30", "20", False), (FOLLOWER, 4, 20)),
        (("0:1", "7", "70", False), (LEADER, 1, 7)),
        (("0:1", "60", "70", False), None),
    ],
)
def test_of_the_rates_of_others_at_both_ends_of_a_copy_the_strictest_is_named_at_once_and_where_a_plan_is_shown(
    simulator: Simulator,
    monkeypatch: pytest.MonkeyPatch,
    found_there: tuple[str, str, str, bool],
    named: tuple[ThrottleSide, int, int] | None,
) -> None:
    listed, rate, follower, leaders = found_there
    simulator.topics[TopicPartition("t", 0)].size = 10_000
    if listed:
        simulator.topic_settings["t"][LEADER.replicas_key] = listed
    simulator.broker_settings[1][LEADER.rate_key], simulator.broker_defaults[RATE] = rate, follower
    rules = Settings(throttle=50, throttle_leaders=leaders)
    world = apply(simulator, move("t-0", "123", "423", size=10_000), settings=rules)
    world.step()
    asked = Mock(wraps=simulator.broker_rates)
    monkeypatch.setattr(simulator, "broker_rates", asked)
    for _ in range(3):
        simulator.tick()
        progress = world.step()
    found = [] if named is None else [ExternalRate(named[1], named[0], named[2], named[0] is FOLLOWER)]
    assert (list(progress.external_rates), list_external_rates(world.journal, world.record())) == (found, found)
    said = {FOLLOWER: "this plan's 50 bytes/s do not apply there", LEADER: "it slows this plan's copies from there"}
    assert ("by someone else" in progress.sentence) == (named is not None)
    assert named is None or f"{named[0].rate_key} {named[2]} bytes/s" in progress.sentence
    assert named is None or f"by someone else: {said[named[0]]}" in progress.sentence
    assert (progress.eta_s is None) == (named is not None and named[0] is LEADER), "a leader's rate may stop the copy"
    assert asked.call_count == 3 * (1 + leaders), "one request per step"
    end(world)
    assert list_external_rates(world.journal, world.record()) == []


@pytest.mark.parametrize(
    ("throttle", "side", "broker"), [(50, LEADER, 2), (0, LEADER, 2), (0, FOLLOWER, 4), (50, FOLLOWER, None)]
)
@pytest.mark.parametrize("entry", ["*", "0:{}", "1:{}"])
def test_the_rate_of_someone_else_that_stops_a_stalled_move_is_named(
    simulator: Simulator, throttle: int, side: ThrottleSide, broker: int | None, entry: str
) -> None:
    """Also one at the leader, which is looked at when a move stalls."""
    simulator.topic_settings["t"][side.replicas_key] = entry.format(broker)
    for each in simulator.broker_settings.values():
        each[side.rate_key] = "60"
    simulator.bandwidth = 0
    world = apply(simulator, move("t-0", "123", "423"), settings=Settings(throttle=throttle, stall_after=3))
    simulator.restart(1)
    simulator.topics[TopicPartition("t", 0)].leader = 2
    for _ in range(6):
        progress = world.step()
        simulator.tick()
    assert "t-0 made no progress for 3 s" in progress.sentence
    named = f"Broker {broker} has {side.rate_key} 60 bytes/s, set by someone else: it slows moves of this plan;"
    assert (named in progress.sentence) == (broker is not None and entry != "1:{}")


@pytest.mark.parametrize(("of_leader", "of_follower"), [("7", "60"), ("60", "7"), ("7", "7")])
def test_without_a_throttle_too_only_the_stricter_rate_of_both_ends_is_said_to_slow_a_stalled_move(
    simulator: Simulator, of_leader: str, of_follower: str
) -> None:
    simulator.topic_settings["t"] = {side.replicas_key: "*" for side in ThrottleSide}
    simulator.broker_defaults = {LEADER.rate_key: of_leader, FOLLOWER.rate_key: of_follower}
    simulator.bandwidth = 0
    world = apply(simulator, move("t-0", "123", "423"), settings=Settings(throttle=0, stall_after=3))
    for _ in range(6):
        progress = world.step()
        simulator.tick()
    named = {(rate.broker, rate.side) for rate in progress.external_rates}
    least = min(int(of_leader), int(of_follower))
    ends = ((1, LEADER, of_leader), (4, FOLLOWER, of_follower))
    assert named == {(broker, side) for broker, side, rate in ends if int(rate) == least}


def test_a_throttle_that_limits_nothing_is_said_to() -> None:
    for rate, at_once, said in ((0, 9, 0), (1, 0, 1), (89_999, 1, 1), (90_000, 1, 0), (90_000, 2, 1), (180_000, 2, 0)):
        assert ("limit nothing" in ineffective_message(rate, at_once)) == bool(said)
