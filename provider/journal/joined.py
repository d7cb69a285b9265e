"""Brokers that joined and hold nothing, for whoever expands a cluster to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafka_steward.assignment import Assignment
from kafka_steward.journal.document import Document
from kafka_steward.journal.fields import Fields

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["JoinedBrokers"]


@dataclass(frozen=True)
class JoinedBrokers(Document):
    """`/steward/joined_brokers`: brokers that were seen live and empty, and whether anyone has taken them up.

    `waiting` are those for which no run has begun, also when a fill has given them something since; `old` those that a
    run took up or that held something, for as long as they live. `announced_ms` is when the watch last rang for what
    waits, 0 for not yet, by the journal's clock. `run` is the last run that took some up, and `told` which.
    """

    waiting: Assignment = ()
    old: Assignment = ()
    announced_ms: int = 0
    run: str = ""
    told: Assignment = ()

    @classmethod
    def read(cls, fields: Fields, source: str | None) -> Self:
        """From our own form, version 1."""
        fields.integer("version", 1)
        return cls(
            fields.brokers("waiting"),
            fields.brokers("old"),
            fields.integer("announced_ms"),
            fields.text("run"),
            fields.brokers("told"),
            extra=fields.rest(),
            source=source,
        )

    def values(self) -> dict[str, Any]:
        """The fields, in order."""
        lists = {"waiting": list(self.waiting), "old": list(self.old)}
        last = {"run": self.run, "told": list(self.told)}
        return {"version": self.VERSION, **lists, "announced_ms": self.announced_ms, **last}
