"""Answers on standard output, in the form that was asked for; everything else that is said goes to standard error."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka_steward.journal.render import Table

__all__ = ["Output", "complain"]


def complain(sentence: str) -> None:
    """Say what a person must know although it is not the answer."""
    print(sentence, file=sys.stderr, flush=True)


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
            print(*table.lines(), sep="\n")

    def facts(self, facts: Mapping[str, Any], lines: Iterable[str]) -> None:
        """One thing: `lines` for people; `facts` as a JSON object, or as CSV with one line under its headings."""
        if self.form == "json":
            print(json.dumps(facts))
        elif self.form == "csv":
            _print_csv([facts])
        else:
            print(*lines, sep="\n")


def _print_csv(rows: Sequence[Mapping[str, Any]]) -> None:
    if not rows:
        return
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(rows[0])
    writer.writerows([_cell(value) for value in row.values()] for row in rows)


def _cell(value: Any) -> Any:
    """Lists and objects as JSON; what is unknown is empty."""
    return json.dumps(value) if isinstance(value, list | dict | tuple) else value
