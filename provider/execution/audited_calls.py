"""Audited changes to Kafka, a batch at a time: write the intent, check the fence, call Kafka, write the outcome."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from kafka_steward.errors import ClusterError, KafkaRefused, LockLost
from kafka_steward.journal.audit import Audit, AuditRecord, Outcome
from kafka_steward.journal.locks import Fence

__all__ = ["BATCH", "AuditedCalls"]

Key = TypeVar("Key")
#: Changes in one request: a ZooKeeper-mode controller takes some 15 ms for each. The fence is read between batches.
BATCH = 50


class AuditedCalls:
    """The single path by which the steps of a plan change Kafka.

    A crash before or after the call leaves rows in the state `intended`; the next step reads from Kafka what became of
    them. The fence is checked directly before each call, and again directly after it. A process that was suspended in
    between, for longer than the lifetime of its lock, has sent a request that the next process did not know of when it
    resumed the plan. In that case `late` is called with the keys of the batch, to undo the request or to record it,
    before LockLost is raised. `fence` is None for changes that need none, such as elections.
    """

    def __init__(self, audit: Audit, fence: Fence | None) -> None:
        self._audit = audit
        self._fence = fence

    def execute(
        self,
        entries: Mapping[Key, Sequence[AuditRecord]],
        call: Callable[[list[Key]], Mapping[Key, ClusterError | None]],
        *,
        late: Callable[[list[Key]], None] | None = None,
    ) -> dict[Key, ClusterError | None]:
        """Execute `call` on the keys of `entries`; return None or the error of each key.

        Raises LockLost before a batch if the lock is no longer held, or after a batch during which it was lost. Errors
        of `call` propagate: the outcome of that batch is then unknown, and the batches after it were not submitted.
        """
        results: dict[Key, ClusterError | None] = {}
        keys = list(entries)
        for start in range(0, len(keys), BATCH):
            batch = {key: entries[key] for key in keys[start : start + BATCH]}
            try:
                results.update(self._execute_batch(batch, call))
            except ClusterError:
                self._read_outcomes(list(batch), late)
                raise
            self._read_outcomes(list(batch), late)
        return results

    def check(self) -> None:
        """Check the fence. Raises LockLost if the step lock is no longer held."""
        if self._fence is not None:
            self._fence.check()

    def _execute_batch(
        self,
        batch: Mapping[Key, Sequence[AuditRecord]],
        call: Callable[[list[Key]], Mapping[Key, ClusterError | None]],
    ) -> Mapping[Key, ClusterError | None]:
        together = [entry for several in batch.values() for entry in several]
        self._audit.record_intent(together)
        self.check()
        try:
            answers = call(list(batch))
        except ClusterError as error:
            self._audit.record_outcome(together, Outcome.UNKNOWN, str(error))
            raise
        done = [entry for key, several in batch.items() if answers.get(key) is None for entry in several]
        self._audit.record_outcome(done, Outcome.DONE)
        for key, refusal in answers.items():
            if refusal is not None:
                outcome = Outcome.REFUSED if isinstance(refusal, KafkaRefused) else Outcome.FAILED
                self._audit.record_outcome(batch[key], outcome, str(refusal))
        return answers

    def _read_outcomes(self, keys: list[Key], late: Callable[[list[Key]], None] | None) -> None:
        if late is None:
            return
        try:
            self.check()
        except LockLost:
            late(keys)
            raise
