from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kafka_steward.errors import LockLost, SlotTaken
from kafka_steward.journal import locks
from kafka_steward.journal.locks import (
    DEAD_MS,
    STEP_LOCK,
    TTL_MS,
    Fence,
    PlanSlot,
    StepLock,
    is_dead_process,
    new_holder_name,
)
from kafka_steward.journal.state import ONLY, Rows, State, StoredRow
from kafka_steward.journal.store import Journal
from tests.eventually import eventually
from tests.journal.dead import dead_process
from tests.memory_state import MemoryState
from tests.present import present

#: Linux gives none above 2**22.
PID_OF_NO_PROCESS = 2**22 + 1


class Clock:
    def __init__(self) -> None:
        self.ms = 1_000_000

    def __call__(self) -> int:
        return self.ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def timed(clock: Clock) -> MemoryState:
    """State whose time the test sets."""
    return MemoryState(clock)


@pytest.fixture
def slot(state: State) -> PlanSlot:
    return PlanSlot(state)


# The slot


def test_a_free_cluster_is_taken_once(slot: PlanSlot) -> None:
    assert slot.holders() == ()
    slot.acquire("d1")
    slot.acquire("d1")
    assert (slot.holders(), slot.preempted_plans()) == (("d1",), ())
    with pytest.raises(SlotTaken, match="Plan d2 cannot start: plan d1 holds the plan slot; wait until") as refused:
        slot.acquire("d2")
    assert refused.value.owner == "d1"


def test_a_freed_cluster_is_taken_by_another_and_freeing_what_one_does_not_have_is_harmless(slot: PlanSlot) -> None:
    assert slot.release("d1") is None
    slot.acquire("d1")
    assert slot.release("d2") == "d1"
    assert slot.holders() == ("d1",)
    assert slot.release("d1") is None
    slot.acquire("d2")
    assert slot.holders() == ("d2",)


def test_the_slot_never_expires(timed: MemoryState, clock: Clock) -> None:
    PlanSlot(timed).acquire("d1")
    clock.ms += 10**12
    with pytest.raises(SlotTaken):
        PlanSlot(timed).acquire("d2")


def test_a_heal_goes_first_and_gives_the_slot_back(slot: PlanSlot) -> None:
    slot.acquire("rebalance")
    assert slot.preempt_with("heal") == ("rebalance",)
    assert (slot.holders(), slot.preempted_plans()) == (("heal",), ("rebalance",))
    assert slot.preempt_with("heal") == ()
    assert (slot.holders(), slot.preempted_plans()) == (("heal",), ("rebalance",))
    with pytest.raises(SlotTaken):
        slot.acquire("rebalance")
    assert slot.release("heal") == "rebalance"
    assert (slot.holders(), slot.preempted_plans()) == (("rebalance",), ())
    assert slot.release("rebalance") is None
    assert slot.preempt_with("heal") == (), "of a free cluster too"
    assert slot.release("heal") is None


def test_a_paused_plan_that_is_cancelled_gets_nothing_back(slot: PlanSlot) -> None:
    slot.acquire("rebalance")
    slot.preempt_with("heal-1")
    slot.preempt_with("heal-2")
    assert slot.preempted_plans() == ("rebalance", "heal-1")
    assert slot.release("heal-1") == "heal-2"
    assert slot.release("rebalance") == "heal-2"
    assert slot.release("heal-2") is None


def test_plans_share_the_slot_and_each_goes_by_itself(slot: PlanSlot) -> None:
    slot.acquire("first")
    slot.acquire("second", beside=["first"])
    assert slot.holders() == ("first", "second")
    with pytest.raises(SlotTaken) as refused:
        slot.acquire("third", beside=["first"])
    assert refused.value.owner == "second"
    slot.acquire("third", beside=["first", "second"])
    assert slot.release("first") == "second"
    assert slot.holders() == ("second", "third")


def test_a_heal_preempts_all_that_share_the_slot_and_the_first_gets_it_back(slot: PlanSlot) -> None:
    slot.acquire("first")
    slot.acquire("second", beside=["first"])
    assert slot.preempt_with("heal") == ("first", "second")
    assert (slot.holders(), slot.preempted_plans()) == (("heal",), ("second", "first"))
    assert slot.release("heal") == "first"
    slot.acquire("second", beside=["first"])
    assert (slot.holders(), slot.preempted_plans()) == (("first", "second"), ())


def test_of_many_plans_one_gets_the_slot(state: State) -> None:
    def try_it(number: int) -> str | None:
        try:
            PlanSlot(state).acquire(f"d{number}")
        except SlotTaken:
            return None
        return f"d{number}"

    with ThreadPoolExecutor(8) as pool:
        winners = [digest for digest in pool.map(try_it, range(8)) if digest]
    assert tuple(winners) == PlanSlot(state).holders()


class Interleaved:
    """State in which others act between a process's read and its write."""

    def __init__(self, state: State, between: Callable[[], object]) -> None:
        self._state = state
        self._between: list[Callable[[], object]] = [between]

    def select(self, wanted: Collection[tuple[str, str | None]]) -> list[StoredRow]:
        rows = self._state.select(wanted)
        if self._between:
            self._between.pop()()
        return rows

    def __getattr__(self, name: str) -> object:
        return getattr(self._state, name)


def test_a_late_free_takes_nothing_from_the_next_owner(timed: MemoryState) -> None:
    """Two processes end plan d1; before the slower one writes, plan d2 has taken the cluster."""
    PlanSlot(timed).acquire("d1")

    def quicker() -> None:
        PlanSlot(timed).release("d1")
        PlanSlot(timed).acquire("d2")

    slower = PlanSlot(Interleaved(timed, quicker))  # type: ignore[arg-type]  # a State by __getattr__
    assert slower.release("d1") == "d2"
    assert PlanSlot(timed).holders() == ("d2",)


# The step lock


def test_a_late_taker_takes_nothing_from_a_quicker_one(timed: MemoryState, clock: Clock) -> None:
    StepLock(timed, "dead").acquire()
    clock.ms += TTL_MS
    fences: list[Fence] = []
    slower = StepLock(
        Interleaved(timed, lambda: fences.append(StepLock(timed, "quick").acquire())),  # type: ignore[arg-type]  # as above
        "slow",
    )
    with pytest.raises(LockLost, match="Another process acquired the step lock first"):
        slower.acquire()
    fences[0].check()


def test_a_late_release_takes_nothing_from_the_next_process(timed: MemoryState, clock: Clock) -> None:
    late = StepLock(timed, "late").acquire()
    clock.ms += TTL_MS
    fence = StepLock(timed, "next").acquire()
    late.release()
    fence.check()


def test_a_renewal_that_was_rolled_back_loses_nothing(sql_journal: Journal) -> None:
    fence = sql_journal.step_lock("one", ttl_ms=1).acquire()

    def renew_and_fail() -> None:
        with sql_journal.transaction():
            for _ in range(5):
                fence.check()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        renew_and_fail()
    fence.check()


def test_one_process_steps_at_a_time(state: State) -> None:
    with StepLock(state, "one") as fence:
        fence.check()
        with pytest.raises(LockLost, match=r"is being stepped by one; .* its lock expires in 60 s"):
            StepLock(state, "two").acquire()
        fence.check()
    with StepLock(state, "two") as fence:
        fence.check()


def test_tokens_grow_and_the_lock_is_given_back_on_an_error_too(state: State) -> None:
    tokens = []

    def fail() -> None:
        with StepLock(state, "one") as fence:
            tokens.append(fence.token)
            raise ZeroDivisionError

    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            fail()
    assert tokens == sorted(set(tokens))


@pytest.mark.parametrize("ttl_ms", [TTL_MS, 1000])
def test_a_lock_lives_for_a_minute_or_its_own_time_and_is_then_taken_over(
    timed: MemoryState, clock: Clock, ttl_ms: int
) -> None:
    dead = StepLock(timed, "dead", ttl_ms=ttl_ms).acquire()
    clock.ms += ttl_ms - 1
    with pytest.raises(LockLost):
        StepLock(timed, "next").acquire()
    clock.ms += 1
    fence = StepLock(timed, "next").acquire()
    assert fence.token > dead.token
    with pytest.raises(LockLost, match="was acquired by next: this process must change nothing more"):
        dead.check()


@pytest.mark.process
def test_who_was_killed_on_this_machine_holds_the_lock_for_seconds(timed: MemoryState, clock: Clock) -> None:
    with dead_process() as name:
        StepLock(timed, name).acquire()
    clock.ms += DEAD_MS - 1
    with pytest.raises(LockLost, match=r"its lock expires in 0 s"):
        StepLock(timed, "b").acquire()
    clock.ms += 1
    assert StepLock(timed, "b").acquire().token == 2


@pytest.mark.parametrize(("ttl_ms", "held_ms"), [(TTL_MS, DEAD_MS), (1000, 1000)])
def test_a_process_of_this_machine_that_is_no_more_holds_the_lock_for_seconds_at_most(
    timed: MemoryState, clock: Clock, ttl_ms: int, held_ms: int
) -> None:
    host, _, place = new_holder_name().rsplit(":", 2)
    StepLock(timed, f"{host}:{PID_OF_NO_PROCESS}:{place}", ttl_ms=ttl_ms).acquire()
    clock.ms += held_ms - 1
    with pytest.raises(LockLost, match=r"its lock expires in 0 s"):
        StepLock(timed, "next").acquire()
    clock.ms += 1
    assert StepLock(timed, "next").acquire().token == 2


def test_who_lives_holds_the_lock_for_all_its_life(timed: MemoryState, clock: Clock) -> None:
    StepLock(timed, new_holder_name()).acquire()
    clock.ms += TTL_MS - 1
    with pytest.raises(LockLost):
        StepLock(timed, "b").acquire()


def test_a_process_that_wakes_up_after_all_others_are_done_is_refused_too(timed: MemoryState, clock: Clock) -> None:
    late = StepLock(timed, "late").acquire()
    clock.ms += TTL_MS
    with StepLock(timed, "next"):
        pass
    with pytest.raises(LockLost, match="The step lock was released"):
        late.check()
    late.release()


def test_the_same_name_is_no_way_in_and_releases_nothing(timed: MemoryState, clock: Clock) -> None:
    first = StepLock(timed, "same").acquire()
    with pytest.raises(LockLost):
        StepLock(timed, "same").acquire()
    clock.ms += TTL_MS
    fence = StepLock(timed, "same").acquire()
    with pytest.raises(LockLost):
        first.check()
    first.release()
    fence.check()


@pytest.mark.parametrize("anew", [False, True])
def test_a_lock_that_someone_deleted_is_lost_even_when_it_is_made_anew_as_it_was(
    timed: MemoryState, anew: bool
) -> None:
    fence = StepLock(timed, "one").acquire()
    row = timed.rows[STEP_LOCK.name, ONLY]
    timed.delete(row.noun, [row])
    if anew:
        timed.write(row.noun, {row.key: row.text}, {})
    with pytest.raises(LockLost):
        fence.check()


def test_a_long_step_keeps_its_lock_by_checking_and_an_expired_one_while_nobody_took_it_over(
    timed: MemoryState, clock: Clock
) -> None:
    fence = StepLock(timed, "slow").acquire()
    for waited_ms in [*[TTL_MS - 1] * 10, 10 * TTL_MS]:
        clock.ms += waited_ms
        fence.check()
        clock.ms += TTL_MS - 1
        with pytest.raises(LockLost):
            StepLock(timed, "next").acquire()
        fence.check()


def test_a_clock_that_was_set_back_locks_nobody_out(timed: MemoryState, clock: Clock) -> None:
    early = StepLock(timed, "early").acquire()
    clock.ms -= TTL_MS
    with pytest.raises(LockLost):
        StepLock(timed, "next").acquire()
    clock.ms -= 1
    StepLock(timed, "next").acquire()
    with pytest.raises(LockLost):
        early.check()


def test_of_many_processes_one_takes_over(state: State) -> None:
    StepLock(state, "dead", ttl_ms=1).acquire()

    def try_it(number: int) -> int | None:
        try:
            return StepLock(state, f"p{number}").acquire().token
        except LockLost:
            return None

    while state.now_ms() == _locked_ms(state):
        pass
    with ThreadPoolExecutor(8) as pool:
        winners = [token for token in pool.map(try_it, range(8)) if token is not None]
    assert winners == [2]


def _locked_ms(state: State) -> int:
    return present(Rows(state, STEP_LOCK).get(ONLY)).at_ms


# Which process is dead


def named(pid: int) -> str:
    """The name of a process of this machine."""
    return new_holder_name().replace(f":{os.getpid()}:", f":{pid}:")


def test_each_name_is_another_and_begins_with_host_and_process() -> None:
    one, other = new_holder_name(), new_holder_name()
    beginning = re.escape(f"{platform.node()}:{os.getpid()}:")
    assert one != other
    assert re.fullmatch(beginning + "[0-9a-f]{16}", one)
    assert one[:-8] == other[:-8]  # where process ids mean the same


@pytest.mark.process
def test_a_killed_process_is_dead() -> None:
    with dead_process() as name:
        assert not is_dead_process(name)
    assert is_dead_process(name)


@pytest.mark.process
def test_a_killed_process_is_dead_before_its_parent_collects_it() -> None:
    script = "from kafka_steward.journal.locks import new_holder_name; print(new_holder_name(), flush=True)"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        name = child.stdout.readline().strip()

        def ended() -> None:
            assert is_dead_process(name)

        eventually(ended, within=20)


@pytest.mark.parametrize(
    ("stat", "dead"),
    [
        ("7 (python) Z 1 7", True),
        ("7 (python) X 1 7", True),
        ("7 (python) S 1 7", False),
        ("7 (Z) (Z) R 1 7", False),
        ("7 (S) S) Z 1 7", True),
        ("7 (Z S", False),
    ],
)
def test_a_zombie_is_known_by_its_state_whatever_its_name(
    stat: str, dead: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = new_holder_name()
    monkeypatch.setattr(locks, "_PROC", tmp_path)
    (tmp_path / str(os.getpid())).mkdir()
    (tmp_path / str(os.getpid()) / "stat").write_text(stat)
    assert is_dead_process(name) == dead


def test_a_process_whose_state_is_unknown_is_not_dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = new_holder_name()
    monkeypatch.setattr(locks, "_PROC", tmp_path)
    assert not is_dead_process(name)


def test_another_users_process_is_not_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_pid: int, _signal: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuse)
    assert not is_dead_process(new_holder_name())


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A system that tells neither its boot nor its namespaces."""
    locks._host_boot_id.cache_clear()
    monkeypatch.setattr(locks, "_PROC", tmp_path)
    yield
    locks._host_boot_id.cache_clear()


@pytest.mark.usefixtures("nowhere")
def test_where_neither_boot_nor_namespaces_are_known_no_process_is_dead() -> None:
    assert not is_dead_process(named(PID_OF_NO_PROCESS))


@pytest.mark.parametrize(
    "change", ["elsewhere:{pid}:{mark}", "{host}:{pid}:ffffffff{tail}", "{host}:{huge}:{mark}", "a", "a:b:c", ""]
)
def test_of_what_is_not_known_nothing_is_said(change: str) -> None:
    host, pid, mark = named(PID_OF_NO_PROCESS).rsplit(":", 2)
    assert not is_dead_process(change.format(host=host, pid=pid, mark=mark, tail=mark[8:], huge=10**30))


def test_after_a_request_that_took_long_the_lock_is_renewed_and_after_others_not(
    timed: MemoryState, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 0.0
    monkeypatch.setattr("kafka_steward.journal.locks.time.monotonic", lambda: now_s)
    with StepLock(timed, "one:1:0000000000000000") as fence:
        for waited_s, renewed in ((19, False), (1, True), (19, False), (45, True)):
            clock.ms, now_s, before_ms = clock.ms + waited_s * 1000, now_s + waited_s, fence.now_ms
            fence.check_after_wait()
            assert (fence.now_ms > before_ms) is renewed
