"""Answers on standard output, in the form that was asked for; everything else that is said goes to standard error."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka_steward.escaping import csv_cell, printable
from kafka_steward.journal.render import Table

__all__ = ["Output", "complain"]


def complain(*lines: str) -> None:
    """Say what a person must know although it is not the answer."""
    print(*map(printable, lines), sep="\n", file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Output:
    """Prints in `form`: table, json or csv."""

    form: str

    def rows(self, rows: Sequence[Mapping[str, Any]], table: Table) -> None:
        """Several things of a kind: `table` for people; `rows` as a JSON list, or as CSV with a line of headings."""
        if self.form == "json":
            print(json.dumps(rows))
        elif self.form == "csv":
            _print_csv(rows)
        else:
            _print_lines(table.lines())

    def facts(self, facts: Mapping[str, Any], lines: Iterable[str]) -> None:
        """One thing: `lines` for people; `facts` as a JSON object, or as CSV with one line under its headings."""
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
    """Lists and objects as JSON; what is unknown is empty."""
    text = json.dumps(value) if isinstance(value, list | dict | tuple) else value
    return csv_cell(text) if isinstance(text, str) else text
