"""The polled documents of a tree, as one statement read them: a poll that finds nothing new needs no other.

With them come the versions of the polled plans, whose rows are read again only when they have changed.

A view is of one thread, and lasts for the block that opened it, at most `LIFETIME_S`, and until the first change that
the thread makes. From then on, reads are statements of their own. Every change compares the version that was read, so
an outdated view changes nothing.

Quarantined documents, which grow with the past, are in no view. Neither is a text of more than `LONGEST` characters;
and of more than `MOST` documents there is no view at all.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from kafka_steward.journal.listing import QUARANTINE
from kafka_steward.journal.sql.plans import PlanVersion
from kafka_steward.journal.tree import Node

#: Seconds after which a view is not used any more: what Kafka takes in a poll must not outdate what is read later.
LIFETIME_S = 5.0
#: The limits of a view.
MOST, LONGEST = 1_000, 4_000

_ROOTS = ("/admin", "/steward")
_LEFT_OUT = (QUARANTINE,)


def covers(path: str) -> bool:
    """Return whether a view has all documents at and below `path`."""
    return path.startswith(tuple(f"{root}/" for root in _ROOTS)) and not any(
        path == each or path.startswith(f"{each}/") for each in _LEFT_OUT
    )


def ranges() -> list[tuple[str, str]]:
    """Return the ranges of paths of a view, both ends excluded: "0" is the character that follows "/"."""
    found = []
    for root in _ROOTS:
        after = f"{root}/"
        for left_out in sorted(each for each in _LEFT_OUT if each.startswith(f"{root}/")):
            found.append((after, f"{left_out}/"))
            after = f"{left_out}0"
        found.append((after, f"{root}0"))
    return found


@dataclass(frozen=True)
class TreeView:
    """The documents by path. `read_ms` is the database's clock, `read_s` a clock of this process, `changes` a count.

    A node whose text is longer than `LONGEST` has only the beginning of it. `plans` are the versions of the plans that
    a poll reads.
    """

    nodes: Mapping[str, Node]
    plans: Collection[PlanVersion]
    read_ms: int
    read_s: float
    changes: int

    def now_ms(self, now_s: float) -> int:
        """Return the database's time, by the clock of this process since it was read."""
        return self.read_ms + int((now_s - self.read_s) * 1000)

    def is_valid(self, now_s: float, changes: int) -> bool:
        """Return whether it may be used still, after so many changes by this thread."""
        return changes == self.changes and now_s - self.read_s < LIFETIME_S

    def below(self, prefix: str) -> list[Node]:
        """Return the nodes whose paths begin with `prefix`."""
        return [node for path, node in self.nodes.items() if path.startswith(prefix)]

    @staticmethod
    def is_complete(node: Node | None) -> bool:
        """Return whether the view has the whole text of a node."""
        return node is None or len(node.data) <= LONGEST
