"""`python -m tests.chaos`: carry out schedules on the simulated cluster, and shrink those that break an invariant."""

from __future__ import annotations

import argparse
import hashlib
import logging
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import count, islice

from tests.chaos.schedule import Schedule, draw
from tests.chaos.simulated import Outcome, carry_out
from tests.sources import ROOT

__all__ = ["Failure", "main", "run", "shrink"]


@dataclass(frozen=True)
class Failure:
    """A seed that broke an invariant: the events that it needs for that, by their place, and what they break."""

    seed: int
    kept: tuple[int, ...]
    broken: tuple[str, ...]

    @property
    def command(self) -> str:
        """The command that replays it."""
        places = ",".join(map(str, self.kept)) or "none"
        return f".venv/bin/python -m tests.chaos --seed {self.seed} --keep {places}"


def shrink(schedule: Schedule, carry_out: Callable[[Schedule], Outcome]) -> tuple[tuple[int, ...], Outcome]:
    """Drop events, one after the other, as long as the first broken invariant is still broken in the same way.

    Returns the places of the events that are left, and the outcome with them.
    """
    kept, outcome = tuple(range(len(schedule.events))), carry_out(schedule)
    kind = _kind(outcome)
    for place in reversed(kept):
        fewer = tuple(each for each in kept if each != place)
        tried = carry_out(schedule.keeping(fewer))
        if kind and _kind(tried) == kind:
            kept, outcome = fewer, tried
    return kept, outcome


def _kind(outcome: Outcome) -> str:
    """Return what is the same in two sentences about the same broken invariant."""
    first = outcome.broken[0] if outcome.broken else ""
    return "".join(letter for letter in first.partition(":")[0] if not letter.isdigit())[:40]


def run(seeds: Iterator[int], *, until_s: float, workers: int) -> Iterator[tuple[int, Outcome]]:
    """Carry out the schedules of seeds in order, in so many processes, until a time of the monotonic clock."""
    with ProcessPoolExecutor(workers) as pool:
        while time.monotonic() < until_s and (batch := list(islice(seeds, 20 * workers))):
            yield from zip(batch, pool.map(_carry_out_seed, batch, chunksize=5), strict=True)


def _carry_out_seed(seed: int) -> Outcome:
    logging.disable(logging.CRITICAL)
    return carry_out(draw(seed))


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 1 if an invariant was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--rounds", type=int, help="how many seeds, one after the other; without it, as --minutes says")
    parser.add_argument("--minutes", type=float, default=10.0, help="no round begins later")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--keep", help="replay one seed with these of its events alone: 0,3,5, or none, or all")
    given = parser.parse_args(arguments)
    if given.keep is not None:
        return _replay(given.seed, given.keep)
    began_s, rounds, happened, steps, failures = time.monotonic(), 0, 0, 0, list[int]()
    seeds = count(given.seed) if given.rounds is None else iter(range(given.seed, given.seed + given.rounds))
    for seed, outcome in run(seeds, until_s=began_s + 60 * given.minutes, workers=given.workers):
        rounds, happened, steps = rounds + 1, happened + outcome.happened, steps + outcome.steps
        if outcome.broken:
            failures.append(seed)
            print(f"seed {seed}: {outcome.broken[0][:300]}", flush=True)
    took_s = time.monotonic() - began_s
    seeds_text = f"seeds {given.seed} to {given.seed + rounds - 1}"
    print(f"provider/execution is {_execution_tree()}.")
    print(f"{rounds} rounds, {seeds_text}, {steps} steps, {happened} events in {took_s:.0f} s.")
    print(f"{len(failures)} broke an invariant.")
    for seed in failures[:5]:
        kept, outcome = shrink(draw(seed), carry_out)
        print(f"{Failure(seed, kept, outcome.broken).command}\n  {outcome.broken[0] if outcome.broken else ''}")
    return int(bool(failures))


def _execution_tree() -> str:
    """Return a digest of the sources of the execution: a change to them voids the rounds before it."""
    folder = ROOT / "provider" / "execution"
    texts = [path.read_bytes() for path in sorted(folder.rglob("*.py"))]
    return hashlib.sha256(b"".join(texts)).hexdigest()[:12]


def _replay(seed: int, keep: str) -> int:
    schedule = draw(seed)
    if keep != "all":
        schedule = schedule.keeping([int(place) for place in keep.split(",") if place != "none"])
    print(schedule.scene)
    outcome = carry_out(schedule, say=print)
    print(f"trace {outcome.trace[:16]}")
    print("\n".join(outcome.broken) or "Nothing is broken.")
    return int(bool(outcome.broken))


if __name__ == "__main__":
    sys.exit(main())
