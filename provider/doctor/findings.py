"""Findings of checks, and checks at the same time with a common limit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from kafka_steward.errors import StewardError


class Level(str, Enum):
    """The consequence of a finding for the work of Kafka Steward."""

    #: It works.
    OK = "ok"
    #: It works, and a person should know this.
    NOTE = "note"
    #: Something will not work.
    FAULT = "fault"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: what was checked, and one sentence. `command` is what helps: one command a line; a fault has one."""

    subject: str
    level: Level
    sentence: str
    command: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the finding as JSON values."""
        return {**asdict(self), "level": self.level.value}


@dataclass(frozen=True, slots=True)
class Check:
    """A check; `subject` and `command` are those of its finding when it fails or takes too long."""

    subject: str
    run: Callable[[], Sequence[Finding]]
    command: str


def run_checks(checks: Sequence[Check], *, within_s: float) -> list[Finding]:
    """Run all checks at the same time, and return their findings in order, after `within_s` seconds at the latest.

    A check that has not ended by then is left behind in its thread, which does not keep the process from ending.
    """
    deadline = time.monotonic() + within_s
    runs = [_Run(check) for check in checks]
    for run in runs:
        run.start()
    for run in runs:
        run.join(max(0.0, deadline - time.monotonic()))
    return [finding for run in runs for finding in run.result(within_s)]


class _Run(threading.Thread):
    def __init__(self, check: Check) -> None:
        super().__init__(name=f"doctor-{check.subject}", daemon=True)
        self._check = check
        self._findings: Sequence[Finding] | None = None

    def run(self) -> None:
        try:
            self._findings = self._check.run()
        except StewardError as error:
            self._findings = [self._fault(str(error))]
        except Exception as error:  # noqa: BLE001 - one check that fails must not hide the others
            words = f"{type(error).__name__}: {error}".splitlines()[0]
            self._findings = [self._fault(f"The check failed: {words}.")]

    def result(self, within_s: float) -> Sequence[Finding]:
        if self._findings is not None:
            return self._findings
        return [self._fault(f"There was no answer within {within_s:g} s.")]

    def _fault(self, sentence: str) -> Finding:
        return Finding(self._check.subject, Level.FAULT, sentence, self._check.command)
