"""The trigger that repeats a check until it is met: the checks are the same in the worker and in the triggerer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafka_steward.errors import RequestError, StewardError
from kafka_steward.escaping import printable
from kafka_steward.triggers.base import ClusterTrigger

if TYPE_CHECKING:
    from kafka_steward.hooks.session import ClusterSession


@dataclass(frozen=True)
class CheckResult:
    """The result of a check: whether it is met, a message about the state or what is missing, a small JSON value."""

    met: bool
    sentence: str
    value: Any = None


def evaluate_check(question: str, opened: ClusterSession, arguments: Mapping[str, Any]) -> CheckResult:
    """Return the result of the named check. Raises RequestError for an unknown name, and the check's own errors."""
    # DAG files are parsed without what the checks need.
    from kafka_steward.triggers.wait_checks import CHECKS

    if question not in CHECKS:
        raise RequestError(f"There is no check {question!r}; there are {', '.join(CHECKS)}.")
    return CHECKS[question](opened, arguments)


class WaitTrigger(ClusterTrigger):
    """Runs the check `question` on the cluster behind `conn_id` every `interval_s` seconds; fires once, when it is met.

    The check runs in a thread. While the cluster or journal is unreachable, it is retried. An error that waiting cannot
    resolve (a wrong password, an unknown plan) fires as a failure. The sensor's timeout ends the wait. `journal` is the
    task's `ClusterSession.origin`.
    """

    KEYWORDS = ("conn_id", "question", "arguments", "interval_s", "overrides", "journal")

    def __init__(
        self,
        conn_id: str,
        question: str,
        arguments: Mapping[str, Any] | None = None,
        interval_s: float = 10.0,
        overrides: Mapping[str, Any] | None = None,
        *,
        journal: Mapping[str, Any] | None = None,
        **_: Any,  # a trigger outlives an upgrade: keywords of other versions are accepted
    ) -> None:
        super().__init__(conn_id, overrides, journal)
        self.question = question
        self.arguments = dict(arguments or {})
        self.interval_s = interval_s
        self._logged = ""

    async def payload(self) -> dict[str, Any]:
        """Check until met; return `{"done": bool, "sentence": str, "value": ...}`."""
        answer = await self._wait_until_met()
        return {"done": answer.met, "sentence": answer.sentence, "value": answer.value}

    async def _wait_until_met(self) -> CheckResult:
        while True:
            try:
                answer = await self._thread.submit(self._evaluate_check)
            except StewardError as error:
                if not error.retriable:
                    return CheckResult(False, str(error))
                answer = CheckResult(False, f"{error} Retrying.")
            if answer.sentence != self._logged:
                self.log.info("%s", printable(answer.sentence))
                self._logged = answer.sentence
            if answer.met:
                return answer
            await self._wait(self.interval_s)

    def _evaluate_check(self, opened: ClusterSession) -> CheckResult:
        return evaluate_check(self.question, opened, self.arguments)
