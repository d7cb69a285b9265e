"""Text from outside is escaped where it is logged: each text that a log call formats, and each error of a task."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import pytest

from kafka_steward.errors import (
    ClusterUnreachable,
    JournalUnreachable,
    KafkaRefused,
    PlanError,
    SandboxFailed,
    StewardError,
)
from kafka_steward.escaping import printable_lines
from tests.sources import ROOT, nodes

FOLDERS = ("operators", "sensors", "dags", *(f"provider/{name}" for name in ("cluster", "document_api", "execution")))
FOLDERS += tuple(f"provider/{name}" for name in ("cli", "hooks", "journal", "planning", "triggers"))
LEVELS = {"debug", "info", "warning", "error", "exception"}
ESCAPING = {"printable", "printable_lines"}
FAILURES = {"AirflowException", "AirflowFailException", "AirflowSkipException"}
HOSTILE = "orders\n2026 INFO all is well \x1b[2J\u202e"
ESCAPED = r"orders\x0a2026 INFO all is well \x1b[2J\u202e"


def sources() -> Iterator[tuple[str, Sequence[ast.AST]]]:
    for folder in FOLDERS:
        assert (ROOT / folder).is_dir(), f"{folder} has moved"
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield str(path.relative_to(ROOT)), nodes(path)


def is_safe(node: ast.expr) -> bool:
    """Constants and their choices, numbers, beginnings of digests, names of our own, and what is escaped."""
    match node:
        case ast.Constant() | ast.Subscript(slice=ast.Slice()):
            return True
        case ast.Call(func=ast.Name(id=name)):
            return name in ESCAPING | {"len", "int"}
        case ast.Attribute(attr="value"):  # of an enum
            return True
        case ast.Attribute(value=ast.Attribute(attr="_options")):  # settings of our own
            return True
        case ast.Name(id=name):
            return name.isupper() or name.endswith("_s")
    return False


def is_log_call(node: ast.AST) -> bool:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LEVELS):
        return False
    on = node.func.value
    return (on.attr if isinstance(on, ast.Attribute) else on.id if isinstance(on, ast.Name) else "") in {"log", "_log"}


def texts_of(call: ast.Call) -> list[ast.expr]:
    """The arguments of a log call that it formats with %s, and those after a format that is not constant."""
    form = call.args[0]
    if not isinstance(form, ast.Constant):
        return call.args
    kinds = [part[0] for part in str(form.value).replace("%%", "").split("%")[1:]]
    return [given for kind, given in zip(kinds, call.args[1:], strict=True) if kind == "s"]


@pytest.mark.project
def test_each_text_that_is_logged_is_escaped() -> None:
    calls = [(path, node) for path, found in sources() for node in found if is_log_call(node)]
    assert len(calls) > 30
    raw = [
        f"{path}:{given.lineno} {ast.unparse(given)}"
        for path, call in calls
        if isinstance(call, ast.Call)
        for given in texts_of(call)
        if not is_safe(given)
    ]
    assert raw == []


@pytest.mark.project
def test_each_text_with_which_a_task_fails_is_escaped() -> None:
    raised = [
        (path, node)
        for path, found in sources()
        for node in found
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FAILURES
    ]
    assert len(raised) > 5
    assert [f"{path}:{node.lineno}" for path, node in raised if not is_safe_message(node.args[0])] == []


def is_safe_message(node: ast.expr) -> bool:
    """Also the text of our own errors, which escape it, and messages that contain nothing else from outside."""
    if isinstance(node, ast.JoinedStr):
        quoted = [part.value for part in node.values if isinstance(part, ast.FormattedValue)]
        return all(is_safe(part) or ast.unparse(part) == "self.task_id" for part in quoted)
    return is_safe(node) or ast.unparse(node) == "str(error)"


@pytest.mark.parametrize(
    "error",
    [
        PlanError(HOSTILE),
        ClusterUnreachable(HOSTILE),
        JournalUnreachable(HOSTILE),
        KafkaRefused(3, HOSTILE, HOSTILE),
    ],
    ids=lambda error: type(error).__name__,
)
def test_the_message_of_an_error_is_one_printable_line(error: StewardError) -> None:
    assert str(error) == ESCAPED
    assert HOSTILE not in f"{error}"


def test_the_message_of_a_local_cluster_keeps_the_lines_of_its_process() -> None:
    assert str(SandboxFailed("broker-1 ended:\n  first\n  second")) == "broker-1 ended:\n  first\n  second"


def test_the_line_feeds_of_a_page_stay_and_nothing_else_that_moves_a_cursor() -> None:
    assert printable_lines("a\x1b[2J\r\n| b |\n\n\u2028c") == "a\\x1b[2J\\x0d\n| b |\n\n\\u2028c"
