"""Print results to standard output, in the requested format; all other messages go to standard error."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka_steward.escaping import csv_cell, printable
from kafka_steward.journal.render import Table

__all__ = ["Output", "print_error"]


def print_error(*lines: str) -> None:
    """Print messages that are not part of the result to standard error."""
    print(*map(printable, lines), sep="\n", file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Output:
    """Prints results in the format `form`: table, json or csv."""

    form: str

    def rows(self, rows: Sequence[Mapping[str, Any]], table: Table) -> None:
        """Print several items: `table` as text; `rows` as a JSON list, or as CSV with a header line."""
        if self.form == "json":
            print(json.dumps(rows))
        elif self.form == "csv":
            _print_csv(rows)
        else:
            _print_lines(table.lines())

    def facts(self, facts: Mapping[str, Any], lines: Iterable[str]) -> None:
        """Print one item: `lines` as text; `facts` as a JSON object, or as CSV with a header and one line."""
        if self.form == "json":
            print(json.dumps(facts))
        elif self.form == "csv":
            _print_csv([facts])
        else:
            _print_lines(lines)


def _print_lines(lines: Iterable[str]) -> None:
    print(*map(printable, lines), sep="\n")


def _print_csv(rows: Sequence[Mapping[str, Any]]) -> None:
    if not rows:
        return
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(rows[0])
    writer.writerows([_cell(value) for value in row.values()] for row in rows)


def _cell(value: Any) -> Any:
    """Return the CSV cell for a value: lists and objects become JSON; None stays None, which is an empty cell."""
    text = json.dumps(value) if isinstance(value, list | dict | tuple) else value
    return csv_cell(text) if isinstance(text, str) else text
