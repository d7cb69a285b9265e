"""A pytest plugin: with `--retry-real`, a failed test on real brokers, Airflow or Spark is run once more, alone.

It gets a process of its own, and so a fresh cluster, after all other tests have ended. If it passes, it is listed as
*unstable* with both outputs, and does not fail the run; if it fails again, it has failed. No other test is run twice.
More than a few failures are no instability: then none is.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass

import pytest

__all__ = ["RETRIED"]

#: The marks of tests that may be run once more.
RETRIED = ("kraft", "zookeeper", "airflow", "spark")
_MOST = 4
_LONGEST_S = 1200
#: Characters of an error that are shown at once.
_LONGEST_REASON = 600
_NODE, _REAL = "node", "real"


@dataclass(frozen=True)
class _Retried:
    node: str
    first: str
    second: str
    passed: bool


_retried: pytest.StashKey[list[_Retried]] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    help_text = f"run failed tests that are marked {', '.join(RETRIED)} once more, alone"
    parser.addoption("--retry-real", action="store_true", help=help_text)


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_FailureNamer(config), "failure-namer")


class _FailureNamer:
    """Names each failed test at once: the run may go on for half an hour, or never end."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and reporter is not None:
            reporter.write_line(f"\nfailed: {report.nodeid} ({report.when}, {report.duration:.0f} s): {_why(report)}")


def _why(report: pytest.TestReport) -> str:
    """Return the beginning of the error's own text."""
    crash = getattr(report.longrepr, "reprcrash", None)
    return (crash.message if crash else report.longreprtext)[:_LONGEST_REASON]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        # As it is before pytest-xdist adds the group to it.
        item.user_properties.append((_NODE, item.nodeid))
        item.user_properties.append((_REAL, any(item.get_closest_marker(mark) for mark in RETRIED)))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Run what failed once more: by now, every other process of the session has ended."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or hasattr(session.config, "workerinput") or not session.config.getoption("--retry-real"):
        return
    failed = _failed(reporter)
    retried = session.config.stash.setdefault(_retried, [])
    for node, reports in failed.items():
        reporter.write_line(f"\nonce more, alone: {node}")
        passed, output = _run_alone(session.config, node)
        retried.append(_Retried(node, "\n".join(report.longreprtext for report in reports), output, passed))
        if passed:
            _move(reporter, reports)
    if retried and all(each.passed for each in retried):
        session.exitstatus = pytest.ExitCode.OK


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for each in config.stash.get(_retried, []):
        how, ended = ("unstable", "passed") if each.passed else ("failed twice", "failed too")
        terminalreporter.section(f"{how}: {each.node}", yellow=each.passed, red=not each.passed)
        terminalreporter.write_line(f"The first time it failed:\n{each.first}\n")
        terminalreporter.write_line(f"The second time, alone, it {ended}:\n{each.second}")


def _failed(reporter: pytest.TerminalReporter) -> dict[str, list[pytest.TestReport]]:
    """Return what failed, by test; nothing if something else went wrong too, so that the run fails in any case."""
    failed: dict[str, list[pytest.TestReport]] = {}
    for report in [*reporter.stats.get("failed", []), *reporter.stats.get("error", [])]:
        if not isinstance(report, pytest.TestReport) or not _property(report, _REAL):
            return {}
        failed.setdefault(str(_property(report, _NODE)), []).append(report)
    return failed if len(failed) <= _MOST else {}


def _move(reporter: pytest.TerminalReporter, reports: list[pytest.TestReport]) -> None:
    for kind in ("failed", "error"):
        reporter.stats[kind] = [each for each in reporter.stats.get(kind, []) if each not in reports]
    reporter.stats.setdefault("unstable", []).append(reports[0])


def _run_alone(config: pytest.Config, node: str) -> tuple[bool, str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n", "0", "--durations=0", node]
    done = subprocess.run(
        command,
        cwd=config.rootpath,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_LONGEST_S,
        check=False,
    )
    return done.returncode == 0, done.stdout


def _property(report: pytest.TestReport, name: str) -> object:
    return dict(report.user_properties).get(name)
