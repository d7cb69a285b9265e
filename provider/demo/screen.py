"""The demo's terminal output: numbered steps, a bar during operations, tables at the end."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from itertools import groupby

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Table

from kafka_steward.cluster.state import Snapshot
from kafka_steward.journal.audit import AuditRecord, StoredAuditRecord

_WIDTH = 140


class Bar:
    """A progress bar. Without a terminal it prints a line whenever its text changes."""

    def __init__(self, progress: Progress, task: TaskID, console: Console) -> None:
        self._progress = progress
        self._task = task
        self._console = console
        self._shown = ""

    def show(self, done: float, total: float, text: str) -> None:
        """Set the progress and the text beside the bar."""
        self._progress.update(self._task, completed=done, total=max(total, 1e-9), text=text)
        if not self._console.is_terminal and text != self._shown:
            self._console.print(f"             {text}")
        self._shown = text


class Screen:
    """Prints the demo's output. Times are seconds since `begin()`."""

    def __init__(self, console: Console | None = None) -> None:
        # Without a terminal the line width is unknown.
        width = None if sys.stdout.isatty() else _WIDTH
        self._console = console or Console(highlight=False, width=width)
        self._began = time.monotonic()

    def begin(self, title: str) -> None:
        """Print the title and start the clock."""
        self._began = time.monotonic()
        self._console.print(f"\n[bold]{title}[/bold]\n")

    def step(self, name: str, text: str) -> None:
        """Print one event: the second, a short name, a message."""
        self._console.print(f"{time.monotonic() - self._began:6.1f} s  [bold cyan]{name:<11}[/bold cyan] {text}")

    def say(self, text: str) -> None:
        """Print a line outside the steps; it is never wrapped, so that an address or a path in it can be copied."""
        self._console.print(text, soft_wrap=True)

    @contextmanager
    def bar(self, name: str) -> Iterator[Bar]:
        """Yield a bar for the duration of the block; on a terminal it is removed afterwards."""
        columns = (
            TextColumn(f"          [cyan]{name:<11}[/cyan]"),
            BarColumn(bar_width=30),
            TextColumn("{task.fields[text]}"),
        )
        with Progress(
            *columns, console=self._console, transient=True, disable=not self._console.is_terminal
        ) as progress:
            yield Bar(progress, progress.add_task(name, total=1.0, text=""), self._console)

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print a table with a title above it."""
        table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
        for column in columns:
            table.add_column(column, overflow="fold")
        for row in rows:
            table.add_row(*row)
        self._console.print()
        self._console.print(table)

    def last(self, line: str) -> None:
        """Print the line that scripts read: never wrapped, coloured or marked up."""
        self._console.print()
        self._console.file.write(line + "\n")
        self._console.file.flush()


TRAIL_COLUMNS = ("UTC", "action", "what", "outcome", "why", "who")

BROKER_COLUMNS = ("broker", "rack", "replicas before", "replicas after", "leaders before", "leaders after", "now")


def broker_rows(before: Snapshot, after: Snapshot) -> list[tuple[str, ...]]:
    """Return a row for each broker of `before`: its replicas and leaders, before and after."""
    counts = [_replicas(before), _replicas(after), _leaders(before), _leaders(after)]
    return [
        (
            str(broker.id),
            broker.rack or "-",
            *(str(count.get(broker.id, 0)) for count in counts),
            "live" if broker.id in after.live else "dead",
        )
        for broker in sorted(before.brokers.values(), key=lambda broker: broker.id)
    ]


def cluster_rows(moments: Sequence[tuple[str, Snapshot]]) -> list[tuple[str, ...]]:
    """Return one row per snapshot: its name, under-replicated and offline partitions, racks of the narrowest one."""
    return [
        (name, str(under_replicated(snapshot)), str(_offline(snapshot)), str(_narrowest(snapshot)))
        for name, snapshot in moments
    ]


def trail_rows(trail: Sequence[StoredAuditRecord]) -> list[tuple[str, ...]]:
    """Return the audit trail in its order; consecutive rows of one operation are merged into one line."""
    together = groupby(trail, key=lambda row: (row.entry.action, row.outcome, row.entry.who, row.entry.broker is None))
    return [_trail_row(list(rows)) for _, rows in together]


def under_replicated(snapshot: Snapshot) -> int:
    """Return the number of partitions that have fewer in-sync replicas than assigned ones."""
    return sum(partition.under_replicated for partition in snapshot.partitions.values())


def _replicas(snapshot: Snapshot) -> Mapping[int, int]:
    return _count_by_broker([broker for partition in snapshot.partitions.values() for broker in partition.replicas])


def _leaders(snapshot: Snapshot) -> Mapping[int, int]:
    return _count_by_broker(
        [partition.leader for partition in snapshot.partitions.values() if partition.leader is not None]
    )


def _count_by_broker(brokers: Sequence[int]) -> Mapping[int, int]:
    return {broker: brokers.count(broker) for broker in set(brokers)}


def _offline(snapshot: Snapshot) -> int:
    return sum(partition.leader is None for partition in snapshot.partitions.values())


def _narrowest(snapshot: Snapshot) -> int:
    racks = {broker.id: broker.rack for broker in snapshot.brokers.values()}
    spans = [len({racks.get(broker) for broker in partition.replicas}) for partition in snapshot.partitions.values()]
    return min(spans, default=0)


def _trail_row(rows: Sequence[StoredAuditRecord]) -> tuple[str, ...]:
    first = rows[0]
    when = datetime.fromtimestamp(first.when_ms / 1000, tz=timezone.utc)
    others = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
    return (
        when.strftime("%H:%M:%S"),
        first.entry.action.value,
        _what(first.entry) + others,
        first.outcome.value,
        first.entry.reason,
        str(first.entry.who),
    )


def _what(entry: AuditRecord) -> str:
    if entry.topic is not None:
        change = f" {_text(entry.before)} → {_text(entry.after)}" if isinstance(entry.after, list) else ""
        return f"{entry.topic}-{entry.partition}{change}"
    return f"broker {entry.broker}" if entry.broker is not None else "the plan" if entry.plan else "the cluster"


def _text(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
