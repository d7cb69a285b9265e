"""How Kafka is changed: written down, fenced, done, and what came of it written down; a batch at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from kafka_steward.errors import ClusterError, KafkaRefused, LockLost
from kafka_steward.journal.audit import Audit, Entry, Outcome
from kafka_steward.journal.locks import Fence

__all__ = ["BATCH", "Deeds"]

Key = TypeVar("Key")
#: Changes in one request: a ZooKeeper-mode controller takes some 15 ms for each, and the fence is read between batches.
BATCH = 50


class Deeds:
    """The one way by which execution changes Kafka.

    A crash before the call leaves rows that stay `intended`, and so does one after it: what became of them is read
    from Kafka by the next step. The fence is read right before each call, and again right after it. A process that was
    stopped in between, for longer than its lock lives, has asked for something that the next one knew nothing of when
    it went on: then `late` is called with what was asked, to take it back or to write it down, before LockLost is
    raised. Without a fence, for what needs none: elections.
    """

    def __init__(self, audit: Audit, fence: Fence | None) -> None:
        self._audit = audit
        self._fence = fence

    def do(
        self,
        entries: Mapping[Key, Sequence[Entry]],
        call: Callable[[list[Key]], Mapping[Key, ClusterError | None]],
        *,
        late: Callable[[list[Key]], None] | None = None,
    ) -> dict[Key, ClusterError | None]:
        """Perform `call` on the keys of `entries`; None or the refusal of each.

        Raises LockLost before a batch that is no longer ours to do, or after one that was not any more; and what `call`
        raises: then the outcome of that batch is unknown, and those after it were not asked for.
        """
        results: dict[Key, ClusterError | None] = {}
        keys = list(entries)
        for start in range(0, len(keys), BATCH):
            batch = {key: entries[key] for key in keys[start : start + BATCH]}
            try:
                results.update(self._do_batch(batch, call))
            except ClusterError:
                self._look_back(list(batch), late)
                raise
            self._look_back(list(batch), late)
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

    def _look_back(self, keys: list[Key], late: Callable[[list[Key]], None] | None) -> None:
        if self._fence is None or late is None:
            return
        try:
            self._fence.check()
        except LockLost:
            late(keys)
            raise
