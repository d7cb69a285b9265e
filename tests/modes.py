"""A pytest plugin: the summary counts tests by mode, a skipped test fails the session, and processes share the work.

With pytest-xdist (`-n 4 --dist loadgroup --no-loadscope-reorder`), tests that share something costly stay in one
process: those of one kind of cluster, those of one Airflow, those of Spark, and otherwise those of one folder. A file
that is marked `apart` takes so long that it has a process to itself, and the clusters or the Airflow that it needs.
What takes longest comes first, so that the small ones fill the time that is left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

MODES = ("kraft", "zookeeper", "airflow", "spark")
#: What a test that has several of these marks is grouped by.
_FIRST = ("airflow", "zookeeper", "kraft", "spark")
#: Groups are handed out in this order, by the beginnings of their names.
_ORDER = (
    "tests/airflow/test_workflows",
    "airflow",
    "zookeeper",
    "kraft",
    # Its tests mostly wait: for servers that do not answer.
    "tests/journal",
    "tests/airflow/test_crashes",
    "tests/airflow/test_two_hosts",
    "tests/demo/test_demo",
    "tests/kafka",
    "tests/protocol/test_on_kafka",
    "tests/cli/test_killed",
    "spark",
    "tests/cli",
    "tests/install/test_versions",
)
_PROPERTY = "modes"
_GROUP = pytest.StashKey[str]()


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    for item in items:
        marks = {mark.name for mark in item.iter_markers()}
        item.user_properties.append((_PROPERTY, " ".join(mode for mode in MODES if mode in marks) or "other"))
        item.stash[_GROUP] = _group(item, marks)
        # Before pytest-xdist's own hook, which looks for it.
        item.add_marker(pytest.mark.xdist_group(item.stash[_GROUP]))
    yield
    items.sort(key=lambda item: _place(item.stash[_GROUP]))


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "xdist_group(name): these run in one process")
    config.addinivalue_line("markers", "apart: its file has a process to itself")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    passed = Counter(mode for report in _reports(terminalreporter, "passed") for mode in _modes(report))
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


def _group(item: pytest.Item, marks: set[str]) -> str:
    file = item.nodeid.split("::")[0]
    shared = next((mode for mode in _FIRST if mode in marks), None)
    if "apart" in marks:
        return f"{file} {shared}"
    return shared or file.rpartition("/")[0]


def _place(group: str) -> int:
    """Longest first, but one Airflow at a time beside clusters, as long as there are clusters."""
    return next((at for at, name in enumerate(_ORDER) if group.startswith(name)), len(_ORDER))


def _modes(test: pytest.TestReport) -> list[str]:
    return [mode for name, value in test.user_properties if name == _PROPERTY for mode in str(value).split()]


def _reports(reporter: pytest.TerminalReporter, outcome: str) -> list[pytest.TestReport]:
    return [report for report in reporter.stats.get(outcome, []) if report.when == "call"]
