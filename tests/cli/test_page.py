"""docs/command-line.md names every verb, as it promises."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from airflow.cli.cli_config import GroupCommand

from kafka_steward.cli import get_kafka_steward_commands

PAGE = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text()


def verbs() -> Iterator[str]:
    (group,) = get_kafka_steward_commands()
    for command in group.subcommands:
        if isinstance(command, GroupCommand):
            yield from (f"{command.name} {each.name}" for each in command.subcommands)
        else:
            yield command.name


@pytest.mark.parametrize("verb", verbs())
def test_each_verb_is_in_a_table_of_the_page(verb: str) -> None:
    cells = [re.split(r" (?<!\\)\| ", line)[0] for line in PAGE.splitlines() if line.startswith("| `")]
    group, _, name = verb.rpartition(" ")
    found = [cell for cell in cells if re.search(rf"`{group}\b", cell) and re.search(rf"[ `|]{name}\b", cell)]
    assert found, verb
