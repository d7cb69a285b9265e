"""The document that lists empty new brokers, for DAG runs that expand the cluster to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafka_steward.assignment import Assignment
from kafka_steward.journal.document import Document
from kafka_steward.journal.fields import Fields

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["EmptyBrokersDocument"]


@dataclass(frozen=True)
class EmptyBrokersDocument(Document):
    """`/steward/joined_brokers`: brokers that were observed to be live and empty, and the state of their claims.

    `waiting` lists the brokers that no run has claimed, even if a fill has placed replicas on them since. `old` lists
    the brokers that a run claimed or that held replicas, as long as they are live. `announced_ms` is the time of the
    watch's last event for the waiting brokers, by the journal's clock, 0 if no event has included all of them yet.
    `run` is the last run that claimed brokers, and `told` lists the brokers that it claimed.
    """

    waiting: Assignment = ()
    old: Assignment = ()
    announced_ms: int = 0
    run: str = ""
    told: Assignment = ()

    @classmethod
    def read(cls, fields: Fields, source: str | None) -> Self:
        """Read our own format, version 1."""
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
        """Return the fields in the order in which they are written."""
        lists = {"waiting": list(self.waiting), "old": list(self.old)}
        last = {"run": self.run, "told": list(self.told)}
        return {"version": self.VERSION, **lists, "announced_ms": self.announced_ms, **last}
