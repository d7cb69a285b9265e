"""`throttles`: the throttles of others in Kafka, each with the command that removes it; removal of those left over."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from time import sleep
from typing import Any

from kafka_steward.cli import Exit
from kafka_steward.cli.verb import CommandContext, print_error
from kafka_steward.errors import ClusterError, LockLost
from kafka_steward.execution.throttles.leftovers import (
    ExternalThrottle,
    ThrottleSurvey,
    remove_leftover_throttles,
    survey_throttles,
)
from kafka_steward.hooks.session import ClusterSession
from kafka_steward.journal.render import Table

#: While a plan is stepped: seconds between attempts to remove, and their number.
_RETRY_S, _ATTEMPTS = 0.5, 20


def list_leftover_throttles(call: CommandContext) -> Exit | None:
    """Print the throttles of others; with --remove, remove those that no reassignment in flight and no plan needs."""
    with call.open() as opened:
        survey = survey_throttles(opened.cluster, opened.journal)
        connection = call.connection(opened.cluster.live_brokers())
        shown = survey.leftovers
        print_error(*filter(None, [survey.unread_sentence]))
        if not call.arguments.remove:
            _print_all(call, survey, connection)
            return None
        if not shown:
            if call.out.form != "table":
                call.out.print_rows([], _result_table([], []))
            print_error("No throttle is left over, so nothing was changed.")
            return None
        if not call.arguments.yes:
            commands = [(*_cells(throttle), throttle.command(connection)) for throttle in shown]
            print_error(*Table((*_COLUMNS, "command"), commands).lines())
            if not _is_confirmed(len(shown)):
                print_error("Nothing was changed.")
                return Exit.FAILED
        answers = _remove_between_steps(call, opened, shown)
        rows = [{**throttle.to_json(connection), "result": _result(throttle, answers)} for throttle in shown]
        call.out.print_rows(rows, _result_table(shown, rows))
        return Exit.FAILED if any(error is not None for error in answers.values()) else Exit.DONE


def _print_all(call: CommandContext, survey: ThrottleSurvey, connection: str) -> None:
    used = {*survey.in_use}
    all_of = [(throttle, throttle in used) for throttle in (*survey.leftovers, *survey.in_use, *survey.in_files)]
    rows = [{**throttle.to_json(connection), "in_use": needed} for throttle, needed in all_of]
    cells: list[tuple[str, ...]] = [
        (*_cells(throttle), "yes" if needed else "no", throttle.command(connection) or "none: see below")
        for throttle, needed in all_of
    ]
    call.out.print_rows(rows, Table((*_COLUMNS, "in use", "command"), cells))
    if survey.in_use:
        print_error(
            "Those in use may limit a reassignment in flight, a rate only where a list names it; --remove leaves them."
        )
    print_error(*filter(None, [survey.file_sentence]))
    if survey.leftovers:
        print_error("To remove all that are left over:", f"  {call.command_line('throttles --remove')}")
    else:
        print_error("No throttle is left over.")


def _is_confirmed(count: int) -> bool:
    if not sys.stdin.isatty():
        print_error("There is no terminal to ask at: give --yes to remove them.")
        return False
    what = "this setting" if count == 1 else f"these {count} settings"
    print(f"Remove {what}? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def _remove_between_steps(
    call: CommandContext, opened: ClusterSession, shown: Sequence[ExternalThrottle]
) -> dict[ExternalThrottle, ClusterError | None]:
    """Remove them, and wait while a plan is stepped. Raises LockLost after ten seconds."""
    for _ in range(_ATTEMPTS - 1):
        with suppress(LockLost):
            return remove_leftover_throttles(opened.cluster, opened.journal, shown, call.who, call.reason)
        sleep(_RETRY_S)
    return remove_leftover_throttles(opened.cluster, opened.journal, shown, call.who, call.reason)


def _result(throttle: ExternalThrottle, answers: dict[ExternalThrottle, ClusterError | None]) -> str:
    if throttle not in answers:
        return "not left over any more"
    return "removed" if answers[throttle] is None else f"not removed: {answers[throttle]}"


def _result_table(shown: Sequence[ExternalThrottle], rows: Sequence[dict[str, Any]]) -> Table:
    cells: list[tuple[str, ...]] = [
        (*_cells(throttle), row["result"]) for throttle, row in zip(shown, rows, strict=True)
    ]
    return Table((*_COLUMNS, "result"), cells)


_COLUMNS = ("level", "entity", "key", "value")


def _cells(throttle: ExternalThrottle) -> tuple[str, ...]:
    return throttle.level.value, throttle.entity or "default", throttle.key, throttle.value or "(empty)"
