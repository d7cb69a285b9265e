"""The demo's terminal output: numbered steps, a bar during operations, tables at the end."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Table

__all__ = ["Bar", "Screen"]

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
