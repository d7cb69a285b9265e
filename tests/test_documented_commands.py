"""Every command that the documentation, the alert rules, the page and our messages name is one that the parser takes.

What stands in a block, or is made for a person to copy, has to be complete. A sentence may leave required arguments
out. Placeholders, in capitals or angle brackets, stand for any value.
"""

from __future__ import annotations

import argparse
import ast
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NoReturn

import pytest
import yaml

from kafka_steward.cli import declare_commands
from kafka_steward.cli.declarations import add_to_parser
from kafka_steward.monitoring import list_files
from tests.sources import ROOT, nodes

pytestmark = pytest.mark.project

PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
COMMAND = "airflow kafka-steward"
_PLACEHOLDER = re.compile(r"[A-Z][A-Z_]*(\.[\w.]+)?|<[^>]*>|\$\w+|…|\.\.\.")
#: Placeholders for one of several values that the parser knows.
_STANDS_FOR = {"FILTER": "--under-replicated", "ACTION": "approve"}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise AssertionError(message)


def parser(*, complete: bool) -> argparse.ArgumentParser:
    """The parser of the verbs; one that is not `complete` lets arguments, and values of options, be left out."""
    made = _Parser(prog=COMMAND, add_help=False)
    add_to_parser(made, declare_commands().subcommands)
    _relax(made, complete=complete)
    return made


def _relax(made: argparse.ArgumentParser, *, complete: bool) -> None:
    for action in made._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                _relax(below, complete=complete)
        elif callable(action.type):
            action.type = _or_placeholder(action.type)
        if not complete:
            action.required = False
            if action.nargs is None:
                action.nargs = "?"


def _or_placeholder(convert: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda text: text if _PLACEHOLDER.fullmatch(text) else convert(text)


WHOLE, PART = parser(complete=True), parser(complete=False)


def refusal(words: Sequence[str], *, complete: bool) -> str:
    """What argparse says of the words behind `airflow kafka-steward`; empty if it takes them."""
    try:
        (WHOLE if complete else PART).parse_args(words)
    except AssertionError as error:
        return str(error)
    return ""


def split(text: str) -> list[str]:
    """The words of one command of a shell, up to a comment, a pipe or the next command."""
    text = re.sub(r"<[^>\s]*>", "PLACEHOLDER", text)
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words = list(lexer)
    return words[: next((at for at, word in enumerate(words) if word[:1] and word[0] in ";|&<>"), len(words))]


def blocks(text: str) -> Iterator[str]:
    """The commands in the blocks of a page. A line that ends in a backslash is continued by the next one."""
    for block in re.findall(r"^ *```[^\n]*\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            if found := re.search(r"(?:^|(?<=[\s(]))(?:airflow )?kafka-steward ([a-z].*)", line):
                yield found[1]


def outside_blocks(text: str) -> str:
    return re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL)


def spans(text: str) -> Iterator[str]:
    """The commands that stand in backquotes: behind the name of our program, or beginning with a verb."""
    verbs = {each.name for each in declare_commands().subcommands}
    paragraphs = re.split(r"\n\n+|\n(?=\|)", outside_blocks(text))
    for quoted in (span for each in paragraphs for span in re.findall(r"`([^`]+)`", each)):
        span = " ".join(quoted.split())
        if found := re.fullmatch(r"(?:airflow )?kafka-steward (.+)", span):
            yield found[1]
        elif " " in span and span.split()[0] in verbs:
            yield span


def variants(usage: str) -> Iterator[str]:
    """What a usage such as `cancel [PLAN] [--scope pending|plan]` allows: all that is optional, for each choice."""
    words = usage.replace("\\|", "|")
    words = re.sub(r"[\[\]]|(?<=\w)\.\.\.| \.\.\.$", "", words)
    for chosen in product(*(word.split("|") for word in shlex.split(words, posix=False))):
        yield " ".join(_STANDS_FOR.get(word, word) for word in chosen)


def sentences(text: str) -> Iterator[list[str]]:
    """The commands that stand in plain sentences: their verbs, and the options that follow at once."""
    for found in re.findall(rf"(?<!`){COMMAND}((?: +-{{0,2}}[a-z][\w-]*)+)", " ".join(text.split())):
        words = found.split()
        verb = words[: 1 + (words[0] in GROUPS)]
        options = words[len(verb) :]
        yield verb + options[: next((at for at, word in enumerate(options) if word[:2] != "--"), len(options))]


GROUPS = {each.name for each in declare_commands().subcommands if hasattr(each, "subcommands")}


def refused(commands: Iterable[tuple[Path, Sequence[str]]], *, complete: bool) -> list[str]:
    """The commands that the parser refuses, with their files, and what it says."""
    return [
        f"{path}: {' '.join(words)}: {message}"
        for path, words in commands
        if (message := refusal(words, complete=complete))
    ]


def in_pages(find: Callable[[str], Iterable[Any]]) -> list[tuple[Path, Any]]:
    return [(page, found) for page in PAGES for found in find(page.read_text())]


def test_a_command_in_a_block_is_taken_as_it_stands() -> None:
    commands = [(page, split(command)) for page, command in in_pages(blocks)]
    assert commands
    assert refused(commands, complete=True) == []


def test_a_command_in_a_sentence_has_verbs_and_options_that_there_are() -> None:
    usages = [(page, usage) for page, usage in in_pages(spans) if not usage.startswith(("<", "-"))]
    commands = [(page, split(each)) for page, usage in usages for each in variants(usage)]
    assert commands
    assert refused(commands, complete=False) == []


def test_a_command_is_one_that_there_is_also_without_backquotes() -> None:
    found = in_pages(lambda text: sentences(outside_blocks(text).replace("`", "")))
    commands = [(page, words) for page, words in found if words[0] != "--help"]
    assert commands
    assert refused(commands, complete=False) == []


def test_a_command_that_there_is_not_is_noticed() -> None:
    assert refused([(ROOT, ["heel"])], complete=False) != []
    assert refused([(ROOT, ["cancel", "--everything"])], complete=False) != []


def test_each_command_of_an_alert_a_dashboard_or_a_template_is_one_that_there_is() -> None:
    (path,) = (path for path in list_files() if path.name == "prometheus-rules.yaml")
    rules = yaml.safe_load(path.read_text())
    texts = [(path, text) for rule in rules["groups"][0]["rules"] for text in rule["annotations"].values()]
    others = [
        *(ROOT / "provider" / "ui" / "templates").glob("*.html"),
        *(p for p in list_files() if p.suffix == ".json"),
    ]
    texts += [(other, other.read_text()) for other in others]
    named = [(path, words) for path, text in texts for words in sentences(text)]
    assert len(named) > 5
    assert refused(named, complete=False) == []


OWN = re.findall(r"^ *(airflow (?!kafka-steward).*)$", (ROOT / "docs" / "how-to.md").read_text(), re.MULTILINE)


@pytest.mark.parametrize("command", OWN)
def test_each_command_of_airflows_own_among_the_recipes_is_taken(command: str) -> None:
    from airflow.cli.cli_parser import get_parser

    assert get_parser().parse_args(split(command)[1:]).func


def literals(path: Path) -> Iterator[tuple[str, bool]]:
    """The texts of a module that name a command, and whether it is made for a person to copy."""
    for node in nodes(path):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            if node.func.attr in {"steward", "command_line"} and (text := _text(node.args[0])):
                yield text, True
        elif isinstance(node, ast.JoinedStr | ast.Constant) and f"{COMMAND} " in (text := _text(node)):
            yield text, False


def _text(node: ast.expr) -> str:
    """The text of a literal; what is put into it is a placeholder. Empty for anything else."""
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(each) or "PLACEHOLDER" for each in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def test_each_command_of_a_message_is_one_that_there_is() -> None:
    sources = (path for name in ("provider", "operators", "sensors", "dags") for path in (ROOT / name).rglob("*.py"))
    found = [(path, *literal) for path in sources for literal in literals(path)]
    copied = [(path, split(text)) for path, text, is_copied in found if is_copied]
    named = [
        (path, words) for path, text, is_copied in found if not is_copied for words in sentences(text.replace("`", ""))
    ]
    assert (bool(copied), bool(named)) == (True, True)
    assert (refused(copied, complete=True), refused(named, complete=False)) == ([], [])
