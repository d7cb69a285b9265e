"""Faults at the seams: the process dies before call n or after it, or lives on with the call failed or its reply lost.

The seams are the cluster and the journal's tree and tables. No hook is in the code under test: the calls are counted
here, as they come, so a call that is new has its crash point without anyone writing it down. A process that has died
makes no further call, whatever `finally` it runs through on its way out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

from kafka_steward.errors import ClusterUnreachable, JournalUnreachable, KafkaTimeout

#: Reads change nothing: dying after one is dying before the next call.
READS = {
    "children",
    "get",
    "read",
    "rows",
    "unfinished",
    "latest",
    "by_source",
    "digests",
    "ended",
    "approval",
    "rows_of",
    "unsettled_rows",
    "count_states",
    "submissions_by_others",
    "unsettled_chunks",
    "unsettled_partitions",
    "in_flight",
    "select",
    "everything",
    "snapshot",
    "live_brokers",
    "live_views",
    "reassignments",
    "log_dirs",
    "log_sizes",
    "directories",
    "hidden_topics",
    "topic_configs",
    "broker_configs",
    "broker_rates",
}
#: Writes that are not one change: some of it may be made, and the rest not.
IN_PARTS = {"mailbox.put", "mailbox.delete"}
#: Clocks and closing are no points at which anything can be lost.
FREE = {
    "now_ms",
    "close",
    "cluster_id",
    "log_dirs_failures",
    "secured",
    "zookeeper_mode",
    "changes_dead_brokers",
    "in_migration",
    "mode_text",
    "place",
    "one_read",
}


class Died(BaseException):
    """The process was killed. No `except Exception` may stop it."""


@dataclass
class Faults:
    """At call number `at` (from 0) of one process, something happens.

    `kind` is "dies before", "dies half-way", "dies after", "fails" or "reply lost"; without `at` nothing happens but
    counting.
    """

    at: int | None = None
    kind: str = ""
    calls: list[str] = field(default_factory=list)
    dead: bool = False

    def around(self, seam: str, target: Any) -> Any:
        """The target, with its calls counted and ours to end."""
        return _Seam(self, seam, target)

    def call(self, name: str, act: Callable[[], Any], half: Callable[[], Any] | None = None) -> Any:
        if self.dead:
            raise Died
        here = len(self.calls) == self.at
        self.calls.append(name)
        if not here:
            return act()
        if self.kind == "dies before":
            self._die()
        if self.kind == "fails":
            raise self._error(name, KafkaTimeout if name.startswith("cluster") else JournalUnreachable)
        if self.kind == "dies half-way" and half is not None:
            half()
            self._die()
        answer = act()
        if self.kind in {"dies after", "dies half-way"}:
            self._die()
        del answer
        raise self._error(name, KafkaTimeout if name.startswith("cluster") else JournalUnreachable)

    def _die(self) -> None:
        self.dead = True
        raise Died

    def _error(self, name: str, kind: type[Exception]) -> Exception:
        reads = name.split(".")[1] in READS
        return ClusterUnreachable("gone") if kind is KafkaTimeout and reads else kind(f"{name} gave no answer")


class _Seam:
    def __init__(self, faults: Faults, seam: str, target: Any) -> None:
        self._faults, self._seam, self._target = faults, seam, target

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._target, name)
        if name in FREE or not callable(attribute):
            return attribute

        def act(*args: Any, **more: Any) -> Any:
            called = f"{self._seam}.{name}"
            if called not in IN_PARTS or len(args[0]) < 2:
                return self._faults.call(called, lambda: attribute(*args, **more))
            half = partial(attribute, _first_half(args[0]))
            return self._faults.call(f"{called}.several", lambda: attribute(*args, **more), half)

        return act


def _first_half(items: Any) -> Any:
    chosen = list(items)[: len(items) // 2]
    return {item: items[item] for item in chosen} if isinstance(items, dict) else chosen


def points(calls: list[str], *, every: int = 1) -> Iterator[tuple[int, str, str]]:
    """Yield every fault of a recorded run, or each one of `every`: call number, kind, name."""
    return islice(_points(calls), 0, None, every)


def _points(calls: list[str]) -> Iterator[tuple[int, str, str]]:
    """Yield two faults for a read, four or five for a write."""
    for number, name in enumerate(calls):
        kinds = ["dies before", "fails"]
        if name.split(".")[1] not in READS:
            kinds += ["dies after", "reply lost"]
        if name.endswith(".several"):
            kinds += ["dies half-way"]
        for kind in kinds:
            yield number, kind, name
