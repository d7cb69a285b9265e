"""What is recorded of a call to Kafka, and how long it took, however it ended."""

from __future__ import annotations

from typing import Any, cast

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.errors import KafkaRefused, KafkaTimeout, LockLost
from kafka_steward.execution.effects import AuditedCalls
from kafka_steward.journal.audit import Action, Audit, AuditRecord, Outcome
from kafka_steward.journal.locks import Fence
from tests.memory_tables import MemoryAudit

NAMES = [TopicPartition("t", number) for number in range(3)]
ENTRIES = {
    name: [AuditRecord(Action.SUBMIT, "why", plan="p", topic=name.topic, partition=name.partition)] for name in NAMES
}


class Held:
    """A fence whose lock is held for `checks` checks; its clock is that of the last one, which took 2 s each."""

    def __init__(self, checks: int = 9) -> None:
        self.left, self.now_ms = checks, 0

    def check(self) -> None:
        if self.left == 0:
            raise LockLost("Another process has acquired the step lock.")
        self.left -= 1
        self.now_ms += 2_000


def calls_with(held: Held) -> tuple[AuditedCalls, Audit]:
    audit = Audit(cast(Any, MemoryAudit("c", lambda: 1)))
    return AuditedCalls(audit, cast(Fence, held)), audit


def outcomes(audit: Audit) -> list[tuple[Outcome, str]]:
    return [(row.outcome, row.detail) for row in audit.rows()]


def test_each_key_has_its_own_outcome() -> None:
    calls, audit = calls_with(Held())
    refused = KafkaRefused(42, "not now", "Kafka refused t-1: not now.")
    silent = KafkaTimeout("No answer for t-2.")
    answers = dict(zip(NAMES, (None, refused, silent), strict=True))
    assert calls.execute(ENTRIES, lambda keys: {key: answers[key] for key in keys}) == answers
    assert outcomes(audit) == [
        (Outcome.DONE, ""),
        (Outcome.REFUSED, "Kafka refused t-1: not now."),
        (Outcome.FAILED, "No answer for t-2."),
    ]


def test_the_answer_of_a_call_during_which_the_lock_was_lost_is_recorded() -> None:
    calls, audit = calls_with(Held(checks=1))
    late: list[list[TopicPartition]] = []
    with pytest.raises(LockLost):
        calls.execute(ENTRIES, dict.fromkeys, late=late.append)
    assert late == [NAMES]
    assert outcomes(audit) == [(Outcome.DONE, "")] * 3


def test_a_call_without_an_answer_is_unknown_and_its_time_counts() -> None:
    calls, audit = calls_with(Held())

    def ask(_: list[TopicPartition]) -> dict[TopicPartition, None]:
        raise KafkaTimeout("The controller did not answer.")

    with pytest.raises(KafkaTimeout):
        calls.execute(ENTRIES, ask, late=lambda _: None)
    assert outcomes(audit) == [(Outcome.UNKNOWN, "The controller did not answer.")] * 3
    assert calls.slowest_call_ms == 2_000
