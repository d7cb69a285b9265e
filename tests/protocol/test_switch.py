"""KIP-236's switch, simulated: nothing starts while it is there, whoever asks, and what runs is let finish."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.errors import RequestError
from kafka_steward.execution.lifecycle import request_cancel
from kafka_steward.execution.readiness import disable_reassignment, disabled_reason, enable_reassignment
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Actor
from kafka_steward.journal.records import PlanStatus
from kafka_steward.settings import Settings
from tests.simulated_plan import WHO, World, memory_journal, move
from tests.simulator import Simulator

MOVES = [move("t-0", "123", "423"), move("t-1", "123", "143", position=1)]
UNTHROTTLED = Settings(throttle=0)


def world(settings: Settings = UNTHROTTLED) -> World:
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123 123", bandwidth=30)
    return World(simulator, memory_journal(simulator), MOVES, settings, auto_generated=False)


def test_nothing_starts_while_it_is_off_and_everything_once_it_is_on() -> None:
    place = world()
    told = disable_reassignment(place.journal, who=WHO, reason="the racks are being moved")
    assert told.startswith("Reassignments are disabled by ada since 1970-01-01 00:16:40 UTC (the racks are being")
    for _ in range(150):
        progress = place.step()
    assert progress.status is PlanStatus.RUNNING  # people's choice is no failed attempt
    assert progress.held[0].sentence == (
        "t-0 was not moved: reassignments are disabled for this cluster by ada since 1970-01-01 00:16:40 UTC "
        "(the racks are being moved); to enable them, delete /admin/reassign_cancel."
    )
    assert place.simulator.reassignments() == {}
    assert enable_reassignment(place.journal, who=WHO).startswith(
        "Reassignments are enabled again; they were disabled by ada"
    )
    assert place.run().status is PlanStatus.COMPLETED


def test_what_runs_is_let_finish_and_nothing_more_begins() -> None:
    place = world(replace(UNTHROTTLED, max_in_flight=1))
    place.step()
    assert list(place.simulator.reassignments()) == [TopicPartition("t", 0)]
    place.journal.tree.create(paths.REASSIGN_CANCEL, "")
    for _ in range(10):
        place.simulator.tick()
        place.step()
    assert place.states() == {"t-0": "completed", "t-1": "held"}
    assert "disabled for this cluster by an unnamed user since" in place.row("t-1").detail


def test_a_cancel_works_while_it_is_off() -> None:
    place = world()
    place.step()
    disable_reassignment(place.journal, who=WHO, reason="stop")
    request_cancel(place.journal, place.digest, who=WHO, reason="back")
    assert place.run().status is PlanStatus.CANCELLED
    assert [place.replicas(name) for name in ("t-0", "t-1")] == [(1, 2, 3), (1, 2, 3)]


@pytest.mark.parametrize("garbage", ["", "  ", "{", "[]", '{"version": 9}', "off!"])
def test_whatever_it_holds_its_presence_counts(garbage: str) -> None:
    place = world()
    place.journal.tree.create(paths.REASSIGN_CANCEL, garbage)
    assert disabled_reason(place.journal.tree) == "by an unnamed user since 1970-01-01 00:16:40 UTC"
    place.step()
    assert place.simulator.reassignments() == {}


def test_the_second_to_switch_off_is_told_of_the_first() -> None:
    place = world()
    disable_reassignment(place.journal, who=WHO, reason="first")
    told = disable_reassignment(place.journal, who=Actor(person="bob"), reason="second")
    assert told == "Reassignments are already disabled, by ada since 1970-01-01 00:16:40 UTC (first)."
    enable_reassignment(place.journal, who=WHO)
    assert enable_reassignment(place.journal, who=WHO) == "Reassignments are already enabled."
    assert [row.entry.after for row in place.journal.audit.rows()] == ["disabled", "enabled"]


def test_nobody_switches_off_without_a_reason() -> None:
    with pytest.raises(RequestError, match="Give a reason why reassignments are disabled"):
        disable_reassignment(world().journal, who=WHO, reason=" ")
