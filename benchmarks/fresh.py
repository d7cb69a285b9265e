"""`python -m benchmarks.fresh`: minutes and peak memory of `make demo` and `make test` on a fresh clone, caches empty.

The first target pays for everything: packages, Kafka's jars, perhaps Java. Memory is what the machine had less of, at
the worst, than before the start: run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from benchmarks.report import table

_ROOT = Path(__file__).parent.parent
_TARGETS = ("demo", "demo MODE=zookeeper", "test")


@dataclass(frozen=True)
class Run:
    """One target: minutes, gibibytes at the worst, exit code, the last line that it printed."""

    target: str
    minutes: float
    peak_gib: float
    code: int


class Memory:
    """Watches how much less memory is available than when it began."""

    def __init__(self, every_s: float = 0.5) -> None:
        self._every_s = every_s
        self._before = self._least = _available_bytes()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def peak_gib(self) -> float:
        """The most that was taken."""
        return (self._before - self._least) / 2**30

    def _watch(self) -> None:
        while not self._ended.wait(self._every_s):
            self._least = min(self._least, _available_bytes())


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fresh", description=__doc__)
    parser.add_argument("--targets", nargs="+", default=_TARGETS, help="in this order; the first one finds no caches")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fresh-") as name:
        clone, caches = Path(name) / "clone", Path(name) / "caches"
        subprocess.run(["git", "clone", "--quiet", str(_ROOT), str(clone)], check=True)
        runs = [_run(target, clone, caches) for target in options.targets]
    print(
        table(
            ["target", "minutes", "peak memory, GiB", "exit code"],
            [[f"`make {run.target}`", f"{run.minutes:.1f}", f"{run.peak_gib:.1f}", str(run.code)] for run in runs],
        )
    )
    sys.exit(max(run.code for run in runs))


def _run(target: str, clone: Path, caches: Path) -> Run:
    environment = {**os.environ, "XDG_CACHE_HOME": str(caches), "PIP_CACHE_DIR": str(caches / "pip")}
    environment.pop("KAFKA_STEWARD_CACHE", None)
    began = time.monotonic()
    with Memory() as memory:
        done = subprocess.run(
            ["make", *target.split()], cwd=clone, env=environment, capture_output=True, text=True, check=False
        )
    sys.stderr.write(done.stdout[-20_000:] + done.stderr[-5_000:])
    return Run(target, (time.monotonic() - began) / 60, memory.peak_gib, done.returncode)


def _available_bytes() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    kib = next(line.split()[1] for line in lines if line.startswith("MemAvailable:"))
    return int(kib) * 1024


if __name__ == "__main__":
    main()
