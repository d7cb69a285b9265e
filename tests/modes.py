"""A pytest plugin: the summary counts tests by mode, and a skipped test fails the session."""

from __future__ import annotations

from collections import Counter

import pytest

MODES = ("kraft", "zookeeper", "airflow", "spark")
_marks = pytest.StashKey[dict[str, list[str]]]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    config.stash[_marks] = {
        item.nodeid: [mode for mode in MODES if item.get_closest_marker(mode)] or ["other"] for item in items
    }


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    marks = config.stash.get(_marks, {})
    passed = Counter(mode for report in _reports(terminalreporter, "passed") for mode in marks.get(report.nodeid, []))
    counts = ", ".join(f"{mode} {passed[mode]}" for mode in (*MODES, "other"))
    skipped = len(terminalreporter.stats.get("skipped", []))
    terminalreporter.section("modes")
    terminalreporter.write_line(f"passed by mode (a test may count in two): {counts}; skipped {skipped}")
    if skipped:
        terminalreporter.write_line("A skipped test fails the run: what it needs must be there.", red=True)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    harmless = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    if reporter and reporter.stats.get("skipped") and session.exitstatus in harmless:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _reports(reporter: pytest.TerminalReporter, outcome: str) -> list[pytest.TestReport]:
    return [report for report in reporter.stats.get(outcome, []) if report.when == "call"]
