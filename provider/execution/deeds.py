"""How Kafka is changed: written down, fenced, done, and what came of it written down; a batch at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from kafka_steward.errors import ClusterError, KafkaRefused
from kafka_steward.journal.audit import Audit, Entry, Outcome
from kafka_steward.journal.locks import Fence

__all__ = ["BATCH", "Deeds"]

Key = TypeVar("Key")
#: Changes in one request: a ZooKeeper-mode controller takes some 15 ms for each, and the fence is read between batches.
BATCH = 50


class Deeds:
    """The one way by which execution changes Kafka.

    A crash before the call leaves rows that stay `intended`, and so does one after it: what became of them is read
    from Kafka by the next step. The fence is read right before each call; the moment between that and the call is
    closed only by looking first and settling later. Without a fence, for what needs none: elections.
    """

    def __init__(self, audit: Audit, fence: Fence | None) -> None:
        self._audit = audit
        self._fence = fence

    def do(
        self,
        entries: Mapping[Key, Sequence[Entry]],
        call: Callable[[list[Key]], Mapping[Key, ClusterError | None]],
    ) -> dict[Key, ClusterError | None]:
        """Perform `call` on the keys of `entries`; None or the refusal of each.

        Raises LockLost before a batch that is no longer ours to do, and what `call` raises: then the outcome of that
        batch is unknown, and those after it were not asked for.
        """
        results: dict[Key, ClusterError | None] = {}
        keys = list(entries)
        for start in range(0, len(keys), BATCH):
            batch = {key: entries[key] for key in keys[start : start + BATCH]}
            results.update(self._do_batch(batch, call))
        return results

    def _do_batch(
        self,
        batch: Mapping[Key, Sequence[Entry]],
        call: Callable[[list[Key]], Mapping[Key, ClusterError | None]],
    ) -> Mapping[Key, ClusterError | None]:
        together = [entry for several in batch.values() for entry in several]
        self._audit.intend(together)
        if self._fence is not None:
            self._fence.check()
        try:
            answers = call(list(batch))
        except ClusterError as error:
            self._audit.complete(together, Outcome.UNKNOWN, str(error))
            raise
        done = [entry for key, several in batch.items() if answers.get(key) is None for entry in several]
        self._audit.complete(done, Outcome.DONE)
        for key, refusal in answers.items():
            if refusal is not None:
                outcome = Outcome.REFUSED if isinstance(refusal, KafkaRefused) else Outcome.FAILED
                self._audit.complete(batch[key], outcome, str(refusal))
        return answers
