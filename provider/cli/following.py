"""Progress display while a plan is stepped, on standard error: a bar on a terminal, periodic lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kafka_steward.cli.output import print_error
from kafka_steward.escaping import printable
from kafka_steward.triggers.progress import ProgressLog

if TYPE_CHECKING:
    from kafka_steward.execution.decisions.progress import Progress

__all__ = ["bar_text", "followed"]

Report = Callable[["Progress"], None]
_UNITS = ("B", "kB", "MB", "GB", "TB")


@contextmanager
def followed() -> Iterator[Report]:
    """Yield a function to call with each step's progress."""
    if not sys.stderr.isatty():
        yield ProgressLog(print_error, time.monotonic).report
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bars

    columns = (BarColumn(bar_width=30), TextColumn("{task.fields[text]}", markup=False))
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task("plan", total=1.0, text="")
        yield lambda progress: bars.update(task, completed=_share(progress), text=bar_text(progress))


def _share(progress: Progress) -> float:
    """Return the completed fraction, from 0 to 1: by bytes if there are any, because partitions differ in size."""
    if progress.bytes_total:
        return progress.bytes_done / progress.bytes_total
    return progress.partitions_settled / progress.partitions_total if progress.partitions_total else 1.0


def bar_text(progress: Progress) -> str:
    """Return the text beside the bar: `12 of 60 partitions, 1.2 of 8.0 GB at 48.1 MB/s, 2 min 21 s left. ...`."""
    parts = [f"{progress.partitions_settled} of {progress.partitions_total} partitions"]
    if progress.bytes_total:
        parts.append(_bytes_text(progress))
    if progress.eta_s is not None:
        parts.append(f"{_duration(progress.eta_s)} left")
    told = f"{', '.join(parts)}."
    worth_telling = progress.held or progress.busy or progress.stalled or not progress.in_flight
    return f"{told} {printable(progress.sentence)}" if worth_telling else told


def _bytes_text(progress: Progress) -> str:
    power = 0
    while power < len(_UNITS) - 1 and progress.bytes_total >= 1000 ** (power + 1):
        power += 1
    unit = 1000**power
    told = f"{progress.bytes_done / unit:.1f} of {progress.bytes_total / unit:.1f} {_UNITS[power]}"
    return f"{told} at {progress.bytes_per_s / 1e6:.1f} MB/s" if progress.bytes_per_s else told


def _duration(seconds: float) -> str:
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {left} s" if minutes else f"{left} s"
