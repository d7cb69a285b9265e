"""What the demo shows on the terminal: numbered steps, a bar while something is under way, tables at the end."""

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
    """A bar that is under way. Without a terminal it prints a line whenever its text changes."""

    def __init__(self, progress: Progress, task: TaskID, console: Console) -> None:
        self._progress = progress
        self._task = task
        self._console = console
        self._shown = ""

    def show(self, done: float, total: float, text: str) -> None:
        """Set how far it is, and what stands beside it."""
        self._progress.update(self._task, completed=done, total=max(total, 1e-9), text=text)
        if not self._console.is_terminal and text != self._shown:
            self._console.print(f"             {text}")
        self._shown = text


class Screen:
    """Prints the story. Times are seconds since `begin()`."""

    def __init__(self, console: Console | None = None) -> None:
        # Where there is no terminal nobody says how wide a line may be.
        width = None if sys.stdout.isatty() else _WIDTH
        self._console = console or Console(highlight=False, width=width)
        self._began = time.monotonic()

    def begin(self, title: str) -> None:
        """Print the title and start the clock."""
        self._began = time.monotonic()
        self._console.print(f"\n[bold]{title}[/bold]\n")

    def step(self, name: str, text: str) -> None:
        """One thing that happened: the second, a short name, a sentence."""
        self._console.print(f"{time.monotonic() - self._began:6.1f} s  [bold cyan]{name:<11}[/bold cyan] {text}")

    def say(self, text: str) -> None:
        """A line that belongs to no step; never broken, so that an address or a path in it can be copied."""
        self._console.print(text, soft_wrap=True)

    @contextmanager
    def bar(self, name: str) -> Iterator[Bar]:
        """A bar for as long as the block lasts; it leaves no trace on a terminal."""
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
        """A table with a title above it."""
        table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
        for column in columns:
            table.add_column(column, overflow="fold")
        for row in rows:
            table.add_row(*row)
        self._console.print()
        self._console.print(table)

    def last(self, line: str) -> None:
        """The line that scripts read: never wrapped, coloured or marked up."""
        self._console.print()
        self._console.file.write(line + "\n")
        self._console.file.flush()
