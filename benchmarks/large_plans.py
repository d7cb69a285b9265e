"""`python -m benchmarks.large_plans`: what concerns each move of a large plan, by where the journal is.

**Steps**: a plan of so many moves, of which 100 may be in flight: a step in which nothing changes, and one in which 100
moves end and 100 start. Both are taken by a process that has stepped the plan before. The simulated cluster's own time
counts too.

**All at once**: a plan of so many moves waits; the broker that all of them go to dies (they are held), comes back (they
are released), and the plan is cancelled (they are dropped): one step each, on a simulated cluster, with a real journal.
Meanwhile another process writes a row of the audit trail every tenth of a second: how long it waits is how long
anyone's cancel would.

**Whole plans**: plans of so many moves, of one topic or of a topic each, from the first step to their end, with the
default limits and a throttle, on a simulated cluster that copies all that is in flight between two steps. It shows what
a move costs in a small plan and in a large one.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import sqlalchemy as sa

from benchmarks.report import merge_between
from kafka_steward.assignment import Move
from kafka_steward.journal.audit import Action, AuditRecord
from kafka_steward.journal.records import MoveState
from kafka_steward.journal.store import Journal, open_journal
from kafka_steward.journal.zookeeper.options import ZooKeeperOptions
from kafka_steward.settings import Settings
from tests.cancelling import CancelRunner
from tests.journal.zookeeper import ZooKeeperServer
from tests.postgres import PostgresServer
from tests.simulated_plan import WHO, World
from tests.simulator import Simulator

_NAMES = {"sqlite": "SQLite", "postgres": "PostgreSQL", "zookeeper": "ZooKeeper, rows in SQLite"}
_PLACES = tuple(_NAMES)
_EVERY_S = 0.1
#: The sizes of whole plans.
_WHOLE = (200, 2000, 20_000)
#: The moves in flight of a plan that is stepped.
_STEPPED = 100
_HEAD = ("journal", "what", "moves", "s", "longest transaction, s", "others waited, s")
_WHOLE_HEAD = ("journal", "topics", "moves", "steps", "s", "ms for a move")
Opener = Callable[[str], Journal]


@dataclass(frozen=True)
class Took:
    """One of the steps: the moves that it concerned, seconds, the longest transaction, the longest wait of others."""

    place: str
    what: str
    moves: int
    seconds: float
    longest_s: float
    others_s: float

    @property
    def cells(self) -> tuple[str, ...]:
        seconds = (self.seconds, self.longest_s, self.others_s)
        return _NAMES[self.place], self.what, str(self.moves), *(f"{each:.2f}" for each in seconds)


def main() -> None:
    options = _parser().parse_args()
    measured = (_measured_steps, _measured)
    steps = (
        took.cells
        for place in options.places
        for moves in options.moves
        for each in measured
        for took in each(place, moves)
    )
    whole = (
        _run_whole(place, moves, topics=topics)
        for place in options.places
        for topics in (False, True)
        for moves in options.whole
    )
    for name, head, rows in (("large plans", _HEAD, steps), ("whole plans", _WHOLE_HEAD, whole)):
        for cells in rows:
            print(*cells, sep=" | ", flush=True)
            if options.write:
                merge_between(name, head, [cells], keys=3)


def _measured_steps(place: str, moves: int) -> Iterator[Took]:
    simulator = Simulator.of("1a 2b 3c 4a 5b", "t: " + " ".join(["123"] * moves), bandwidth=0)
    with _opener(place) as opener, opener(simulator.cluster_id) as journal, opener(simulator.cluster_id) as other:
        settings = Settings(throttle=0, max_in_flight=_STEPPED, min_free=0)
        world = World(simulator, journal, _moves_to_4(simulator), settings, auto_generated=False)
        for _ in range(3):
            world.step()
            simulator.tick()
        took = partial(_timed, place, journal=journal, other=other, count=lambda: moves)
        yield took("step, nothing changes", world.step)
        simulator.bandwidth = _STEPPED * 100
        simulator.tick()
        yield took(f"step, {_STEPPED} end, {_STEPPED} start", world.step)


def _run_whole(place: str, moves: int, *, topics: bool) -> tuple[str, ...]:
    named = [f"t{number}: 123" for number in range(moves)] if topics else ["t: " + " ".join(["123"] * moves)]
    simulator = Simulator.of("1a 2b 3c 4a 5b", *named, bandwidth=10**9)
    with _opener(place) as opener, opener(simulator.cluster_id) as journal:
        world = World(simulator, journal, _moves_to_4(simulator), Settings(min_free=0), auto_generated=False)
        began_s, steps = time.monotonic(), 1
        while not world.step().ended:
            simulator.tick()
            steps += 1
        seconds = time.monotonic() - began_s
    each = f"{1000 * seconds / moves:.1f}"
    return _NAMES[place], str(moves if topics else 1), str(moves), str(steps), f"{seconds:.1f}", each


def _moves_to_4(simulator: Simulator) -> list[Move]:
    return [
        Move(*name, (1, 2, 3), (4, 2, 3), at // 500, at % 500, "benchmark", None, 100)
        for at, name in enumerate(sorted(simulator.topics))
    ]


def _measured(place: str, moves: int) -> Iterator[Took]:
    simulator = Simulator.of("1a 2b 3c 4a 5b", "t: " + " ".join(["123"] * moves))
    with _opener(place) as opener, opener(simulator.cluster_id) as journal, opener(simulator.cluster_id) as other:
        world = World(
            simulator, journal, _moves_to_4(simulator), Settings(throttle=0, max_in_per_broker=1), auto_generated=False
        )
        world.step()
        simulator.kill(4)
        simulator.tick()
        took = partial(_timed, place, journal=journal, other=other)
        yield took("hold", world.step, count=_counted(world, MoveState.HELD))
        simulator.restart(4)
        simulator.tick()
        yield took("release", world.step, count=_counted(world, MoveState.WAITING))
        undo = CancelRunner(simulator, journal, world.digest, world.settings, WHO, scope="pending", reason="enough")
        yield took("cancel", undo.step, count=_counted(world, MoveState.DROPPED))


def _counted(world: World, state: MoveState) -> Callable[[], int]:
    return lambda: sum(row.state is state for row in world.rows())


def _timed(
    place: str, what: str, act: Callable[[], object], *, count: Callable[[], int], journal: Journal, other: Journal
) -> Took:
    engine = journal.plans._table.database.engine  # noqa: SLF001 - the transactions of this journal are its engine's
    began: dict[int, float] = {}
    lasted = [0.0]

    def begin(connection: sa.Connection) -> None:
        began[id(connection)] = time.monotonic()

    def end(connection: sa.Connection) -> None:
        lasted.append(time.monotonic() - began.pop(id(connection), time.monotonic()))

    listeners = (("begin", begin), ("commit", end), ("rollback", end))
    for name, listener in listeners:
        sa.event.listen(engine, name, listener)
    with _another_writer(other) as waited:
        began_s = time.monotonic()
        act()
        seconds = time.monotonic() - began_s
    for name, listener in listeners:
        sa.event.remove(engine, name, listener)
    return Took(place, what, count(), seconds, max(lasted), max(waited))


@contextmanager
def _another_writer(journal: Journal) -> Iterator[list[float]]:
    """Another process' writes, in a thread and by a connection of its own; the seconds that each took."""
    waited, over = [0.0], threading.Event()

    def write() -> None:
        while not over.wait(_EVERY_S):
            began_s = time.monotonic()
            journal.audit.record(AuditRecord(Action.REQUEST, "another one"))
            waited.append(time.monotonic() - began_s)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield waited
    finally:
        over.set()
        thread.join()


@contextmanager
def _opener(place: str) -> Iterator[Opener]:
    with tempfile.TemporaryDirectory() as name:
        file = f"sqlite:///{Path(name)}/journal.db"
        if place == "postgres":
            with PostgresServer() as server:
                url = server.new_database()
                yield lambda cluster_id: open_journal(url, cluster_id)
        elif place == "zookeeper":
            with ZooKeeperServer() as zookeeper:
                options = ZooKeeperOptions(zookeeper.at("journal"))
                yield lambda cluster_id: open_journal(file, cluster_id, zookeeper=options)
        else:
            yield lambda cluster_id: open_journal(file, cluster_id)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--places", nargs="+", default=list(_PLACES), choices=_PLACES, help="where the journal is")
    parser.add_argument("--moves", nargs="+", type=int, default=[1000, 20_000], help="sizes of the plan")
    parser.add_argument("--whole", nargs="+", type=int, default=list(_WHOLE), help="sizes of whole plans")
    parser.add_argument("--write", action="store_true", help="put each row into docs/benchmarks.md")
    return parser


if __name__ == "__main__":
    main()
