"""Which brokers failed, which are due, and which are seen to: each rule on one look, with the times given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from kafka_steward.execution.failures.rules import (
    FailureDecision,
    LivenessView,
    NotCounted,
    decide_broker_failures,
    healed_brokers,
    is_plan_abandoned,
    is_plan_idle,
)
from kafka_steward.journal.records import PlanRecord, PlanStatus
from kafka_steward.settings import Settings

#: A grace period of 10 s, and an announcement each 60 s.
RULES: dict[str, Any] = {
    "heal_failure_interval": 10, "heal_retry_interval": 60, "max_failed_brokers": 3, "max_failed_fraction": 0.5,
    "abandoned_after": 30,
}  # fmt: skip


def ids(*brokers: int) -> frozenset[int]:
    return frozenset(brokers)


def sight(*failed: int, of: int = 6, holding: Mapping[int, int] | None = None) -> LivenessView:
    known = frozenset(range(1, of + 1))
    return LivenessView(frozenset(failed), known - set(failed), known, holding or {})


def judged(look: LivenessView, *, rules: Mapping[str, Any] | None = None, **given: Any) -> FailureDecision:
    usual = {
        "first_seen_ms": {}, "entries": (), "noted": (), "announced_ms": {}, "handled": ids(), "bouncing": ids(),
        "now_ms": 50_000,
    }  # fmt: skip
    return decide_broker_failures(look, settings=Settings(**{**RULES, **(rules or {})}), **{**usual, **given})


def judgement(**given: Any) -> FailureDecision:
    nothing: dict[str, Any] = {
        "write": (), "clear": (), "announce": (), "due": (), "waiting": {}, "handled": (), "outage": False,
    }  # fmt: skip
    return FailureDecision(**{**nothing, **given})


def test_a_failure_is_over_when_the_broker_lives_or_has_nothing_left() -> None:
    look = LivenessView(ids(1), ids(2, 3), ids(1, 2))
    assert [look.is_recovered(broker) for broker in (1, 2, 3, 4)] == [False, True, True, True]
    assert LivenessView(ids(), ids(2), ids(1, 2)).is_recovered(1) is False, "there were not enough witnesses"


# what a look means


def test_a_failure_that_is_new_is_written_and_waits_for_the_grace_period() -> None:
    assert judged(sight(2, 1)) == judgement(write=(1, 2), waiting={1: 60_000, 2: 60_000})


@pytest.mark.parametrize(("entries", "noted"), [((1,), ()), ((), (1,)), ((), ())])
def test_a_failure_is_written_until_both_documents_are_there(entries: tuple[int, ...], noted: tuple[int, ...]) -> None:
    assert judged(sight(1), entries=entries, noted=noted, first_seen_ms={1: 45_000}) == judgement(
        write=(1,), waiting={1: 55_000}
    )
    assert judged(sight(1), entries=(1,), noted=(1,), first_seen_ms={1: 45_000}) == judgement(waiting={1: 55_000})


def test_a_failure_is_due_once_its_grace_period_has_passed_and_announced_at_once() -> None:
    first_seen_ms = {1: 40_000, 2: 40_001, 3: 100}
    assert judged(sight(3, 2, 1), entries=(1, 2, 3), noted=(1, 2, 3), first_seen_ms=first_seen_ms) == judgement(
        announce=(1, 3), due=(1, 3), waiting={2: 50_001}
    )


@pytest.mark.parametrize(("announced_ms", "announce"), [({}, (1,)), ({1: 20_000}, (1,)), ({1: 20_001}, ())])
def test_what_is_due_is_repeated_after_the_retry_interval(
    announced_ms: dict[int, int], announce: tuple[int, ...]
) -> None:
    given: dict[str, Any] = {"entries": (1,), "noted": (1,), "first_seen_ms": {1: 0}, "announced_ms": announced_ms}
    assert judged(sight(1), now_ms=80_000, **given) == judgement(announce=announce, due=(1,))


def test_entries_of_brokers_that_are_back_gone_for_good_or_seen_to_are_cleared_in_order() -> None:
    assert judged(sight(1, 2), entries=(9, 5, 2, 1), noted=(1, 2), first_seen_ms={1: 0, 2: 0}, handled=ids(2, 4)) == (
        judgement(clear=(2, 5, 9), announce=(1,), due=(1,), handled=(2,))
    )


@pytest.mark.parametrize(
    ("rules", "bouncing", "stated_ms", "seen_ms", "due_ms"),
    [
        pytest.param({}, ids(), None, 48_000, 58_000, id="the grace period"),
        pytest.param({}, ids(1), {}, 48_000, 58_000, id="without fast detection, announced or not"),
        pytest.param({}, ids(), {1: 99_000, 2: 98_000}, 48_000, 99_000, id="as long as it said"),
        pytest.param({}, ids(), {1: 51_000}, 48_000, 51_000, id="shorter than the grace period, as it said"),
        pytest.param({}, ids(), {1: 47_999}, 48_000, 58_000, id="what it said was for another time"),
        pytest.param({"heal_failure_interval": 2.5}, ids(), None, 48_000, 50_500, id="parts of a second"),
        pytest.param({"heal_fast_detection": True}, ids(1), None, 48_000, 58_000, id="fast, and announced"),
        pytest.param({"heal_fast_detection": True}, ids(2), None, 50_001, 50_001, id="fast, and not announced"),
        pytest.param({"heal_fast_detection": True}, ids(), {1: 51_000}, 48_000, 51_000, id="fast, as it said"),
    ],
)
def test_when_a_failure_is_due_is_a_matter_of_what_the_broker_announced(
    rules: dict[str, Any], bouncing: frozenset[int], stated_ms: dict[int, int] | None, seen_ms: int, due_ms: int
) -> None:
    given: dict[str, Any] = {"entries": (1,), "noted": (1,), "first_seen_ms": {1: seen_ms}, "bouncing": bouncing}
    assert judged(sight(1), rules=rules, stated_ms=stated_ms, **given) == judgement(waiting={1: due_ms})


def test_a_broker_that_said_it_would_be_back_by_now_is_due() -> None:
    given: dict[str, Any] = {"entries": (1,), "noted": (1,), "first_seen_ms": {1: 45_000}}
    assert judged(sight(1), stated_ms={1: 45_000}, **given) == judgement(announce=(1,), due=(1,))


@pytest.mark.parametrize("rules", [{"heal_failure_interval": 0}, {"heal_fast_detection": True}])
def test_without_a_grace_period_a_new_failure_is_due_at_once(rules: dict[str, Any]) -> None:
    assert judged(sight(1), rules=rules) == judgement(write=(1,), announce=(1,), due=(1,))


@pytest.mark.parametrize(
    ("look", "outage"),
    [
        (sight(1, 2, 3), False),
        (sight(1, 2, 3, 4, of=9), True),
        (sight(1, 2, of=4), False),
        (sight(1, 2, of=3), True),
        (sight(), False),
    ],
)
def test_more_than_so_many_or_such_a_part_is_an_outage_and_nothing_is_due(look: LivenessView, outage: bool) -> None:
    down = tuple(sorted(look.failed))
    due = () if outage else down
    given: dict[str, Any] = {"first_seen_ms": dict.fromkeys(down, 0), "entries": down, "noted": down}
    assert judged(look, **given) == judgement(announce=due, due=due, outage=outage)
    assert judged(look, rules={"heal_failure_interval": -1}, **given) == judgement(outage=outage)


# who is seen to


def plan(operation: str = "heal", **given: Any) -> PlanRecord:
    usual: dict[str, Any] = {"failed_brokers": (1, 2), "stepped_ms": 10_000, "live_brokers": (2, 3)}
    return PlanRecord("d", "c", operation, **{**usual, "status": PlanStatus.RUNNING, **given})


@pytest.mark.parametrize(
    ("status", "age_ms", "idle", "abandoned"),
    [
        (PlanStatus.RUNNING, 30_000, False, False),
        (PlanStatus.RUNNING, 30_001, True, True),
        (PlanStatus.STUCK, 30_001, True, False),
        (PlanStatus.COMPLETED, 30_001, False, False),
    ],
)
def test_an_unfinished_plan_that_nobody_steps_is_idle_and_abandoned_unless_it_is_stuck(
    status: PlanStatus, age_ms: int, *, idle: bool, abandoned: bool
) -> None:
    one, rules = plan(status=status), Settings(**RULES)
    assert (is_plan_idle(one, 10_000 + age_ms, rules), is_plan_abandoned(one, 10_000 + age_ms, rules)) == (
        idle,
        abandoned,
    )


DONE: dict[str, Any] = {"status": PlanStatus.COMPLETED, "left": 4}


@pytest.mark.parametrize(
    ("plans", "given", "handled", "finished"),
    [
        pytest.param([], {}, (), (), id="no plan"),
        pytest.param([plan()], {}, (1, 2), (), id="a heal is under way"),
        pytest.param([plan("drain")], {}, (), (), id="a plan of another kind"),
        pytest.param([plan(stepped_ms=9_999)], {}, (), (), id="nobody steps it"),
        pytest.param([plan(stepped_ms=9_999, status=PlanStatus.STUCK)], {}, (1, 2), (), id="it waits for a person"),
        pytest.param(
            [plan(**DONE)], {"seen_ms": {1: 10_000, 2: 10_001}}, (1,), (1,), id="what is left cannot be healed"
        ),
        pytest.param([plan(**DONE)], {}, (), (), id="first seen now: it has been back"),
        pytest.param(
            [plan(**DONE)], {"seen_ms": {1: 0, 2: 0}, "holding": {1: 4, 2: 5}}, (1,), (1,), id="it holds more"
        ),
        pytest.param([plan(**DONE)], {"seen_ms": {1: 0}, "reported_ms": {1: 10_000}}, (), (1,), id="reported since"),
        pytest.param([plan(**DONE)], {"seen_ms": {1: 0}, "reported_ms": {1: 9_999}}, (1,), (1,), id="reported before"),
        pytest.param([plan(**{**DONE, "left": 1})], {"seen_ms": {1: 0, 2: 0}}, (1, 2), (1, 2), id="one is left"),
        pytest.param([plan(**{**DONE, "left": 0})], {"seen_ms": {1: 0, 2: 0}}, (), (), id="nothing was left"),
        pytest.param([plan(**DONE, live_brokers=(2, 3, 4))], {"seen_ms": {1: 0}}, (1,), (1,), id="a further one died"),
        pytest.param([plan(**DONE, live_brokers=(3,))], {"seen_ms": {1: 0}}, (), (1,), id="one has joined"),
        pytest.param(
            [plan(**DONE, live_brokers=(3,))], {"seen_ms": {1: 0}, "hopeless": (1,)}, (1,), (1,), id="in vain"
        ),
        pytest.param([plan(**DONE, live_brokers=())], {"seen_ms": {1: 0}}, (), (), id="another plan could do more"),
        pytest.param(
            [plan(**DONE, postponed=(1,))], {"seen_ms": {1: 0}, "in_flight": (1,)}, (1,), (1,), id="postponed"
        ),
        pytest.param(
            [plan(**DONE, postponed=(1,))], {"seen_ms": {1: 0}}, (), (), id="what it was postponed for has ended"
        ),
        pytest.param([plan(**DONE, postponed=(2,))], {"seen_ms": {1: 0}}, (1,), (1,), id="another was postponed"),
        pytest.param([plan("drain"), plan(failed_brokers=(2,)), plan()], {}, (1, 2), (), id="each by its newest heal"),
        pytest.param(
            [plan(status=PlanStatus.COMPLETED, failed_brokers=(2,)), plan()], {}, (1,), (), id="not by an older heal"
        ),
    ],
)
def test_a_broker_is_seen_to_by_an_unfinished_heal_or_by_one_that_did_what_can_be_done(
    plans: list[PlanRecord], given: dict[str, Any], handled: tuple[int, ...], finished: tuple[int, ...]
) -> None:
    sets: dict[str, Any] = {name: ids(*given.get(name, ())) for name in ("hopeless", "in_flight")}
    look = LivenessView(ids(1), ids(2, 3), ids(1, 2, 3), given.get("holding", {}), **sets)
    healed = healed_brokers(
        plans, look, 40_000, Settings(**RULES),
        first_seen_ms=given.get("seen_ms", {}), reported_ms=given.get("reported_ms"),
    )  # fmt: skip
    assert (healed.handled, healed.finished) == (ids(*handled), ids(*finished))


@pytest.mark.parametrize(
    ("given", "due", "not_counted"),
    [
        ({}, (), {}),
        ({"finished": ids(5, 6)}, (4,), {5: NotCounted.HEALED, 6: NotCounted.HEALED}),
        ({"called_off": ids(5, 6)}, (4,), {5: NotCounted.CALLED_OFF, 6: NotCounted.CALLED_OFF}),
        ({"hopeless": ids(5, 6)}, (4,), {5: NotCounted.HOPELESS, 6: NotCounted.HOPELESS}),
        ({"hopeless": ids(5, 6), "first_seen_ms": {4: 0, 5: 0, 6: 49_000}}, (), {5: NotCounted.HOPELESS}),
        ({"reported": ids(4)}, (4,), {}),
        ({"named": ids(4)}, (4,), {}),
        ({"named": ids(4), "rules": {"heal_failure_interval": -1}}, (), {}),
        ({"named": ids(4), "called_off": ids(4)}, (), {4: NotCounted.CALLED_OFF}),
    ],
)
def test_what_no_plan_can_mend_is_no_outage_and_a_person_is_taken_at_their_word(
    given: dict[str, Any], due: tuple[int, ...], not_counted: dict[int, NotCounted]
) -> None:
    look = replace(sight(4, 5, 6), hopeless=given.pop("hopeless", ids()))
    down: dict[str, Any] = {"first_seen_ms": {4: 0, 5: 0, 6: 0}, "rules": {"max_failed_fraction": 0.3}}
    found = judged(look, **{**down, "handled": given.get("finished", ids()), **given})
    assert (tuple(each for each in found.due if each == 4), found.not_counted) == (due, not_counted)
