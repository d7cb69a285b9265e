"""The demo's terminal output: numbered steps, a bar during operations, tables at the end."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Table as Drawing

from kafka_steward.cluster.state import Snapshot
from kafka_steward.journal.audit import StoredAuditRecord
from kafka_steward.journal.render import Table, audit_table

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

    def print_step(self, name: str, text: str) -> None:
        """Print one event: the second, a short name, a message."""
        self._console.print(f"{time.monotonic() - self._began:6.1f} s  [bold cyan]{name:<11}[/bold cyan] {text}")

    def print_line(self, text: str) -> None:
        """Print a line outside the steps; it is never wrapped, so that an address or a path in it can be copied."""
        self._console.print(text, soft_wrap=True)

    @contextmanager
    def show_bar(self, name: str) -> Iterator[Bar]:
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

    def print_table(self, title: str, table: Table) -> None:
        """Print a table with a title above it."""
        drawn = Drawing(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
        for column in table.columns:
            drawn.add_column(column, overflow="fold")
        for row in table.rows:
            drawn.add_row(*map(escape, row))
        self._console.print()
        self._console.print(drawn)

    def print_last_line(self, line: str) -> None:
        """Print the line that scripts read: never wrapped, coloured or marked up."""
        self._console.print()
        self._console.file.write(line + "\n")
        self._console.file.flush()


def broker_table(before: Snapshot, after: Snapshot) -> Table:
    """Return a row for each broker of `before`: its replicas and leaders, before and after."""
    held = [list(snapshot.partitions.values()) for snapshot in (before, after)]
    counts: list[Counter[int | None]] = [
        Counter(broker for partition in partitions for broker in partition.replicas) for partitions in held
    ]
    counts += [Counter(partition.leader for partition in partitions) for partitions in held]
    rows: list[tuple[str, ...]] = [
        (
            str(broker.id),
            broker.rack or "-",
            *(str(count[broker.id]) for count in counts),
            "live" if broker.id in after.live else "dead",
        )
        for broker in sorted(before.brokers.values(), key=lambda broker: broker.id)
    ]
    columns = ("broker", "rack", "replicas before", "replicas after", "leaders before", "leaders after", "now")
    return Table(columns, rows)


def cluster_table(moments: Sequence[tuple[str, Snapshot]]) -> Table:
    """Return one row per snapshot: its name, under-replicated and offline partitions, racks of the narrowest one."""
    rows: list[tuple[str, ...]] = []
    for name, snapshot in moments:
        partitions = snapshot.partitions.values()
        offline = sum(partition.leader is None for partition in partitions)
        racks = {broker.id: broker.rack for broker in snapshot.brokers.values()}
        spreads = (len({racks.get(broker) for broker in partition.replicas}) for partition in partitions)
        narrowest = min(spreads, default=0)
        rows.append((name, str(count_under_replicated(snapshot)), str(offline), str(narrowest)))
    return Table(("", "under-replicated", "offline", "racks of the narrowest partition"), rows)


def merged_audit_table(trail: Sequence[StoredAuditRecord]) -> Table:
    """Return the audit trail in its order; consecutive rows of one operation are merged into one line."""
    together = groupby(trail, key=lambda row: (row.entry.action, row.outcome, row.entry.who, row.entry.broker is None))
    groups = [list(rows) for _, rows in together]
    table = audit_table([group[0] for group in groups])
    more = [f" and {len(group) - 1} more" if len(group) > 1 else "" for group in groups]
    rows = [(*row[:2], row[2] + rest, *row[3:]) for row, rest in zip(table.rows, more, strict=True)]
    return Table(table.columns, rows)


def count_under_replicated(snapshot: Snapshot) -> int:
    """Return the number of partitions that have fewer in-sync replicas than assigned ones."""
    return sum(partition.under_replicated for partition in snapshot.partitions.values())
