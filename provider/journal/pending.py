"""Documents for deferred work: pending replicas (KIP-409), and partitions that wait for brokers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafka_steward.assignment import Assignment
from kafka_steward.journal.codec import MAX_ID
from kafka_steward.journal.document import Document
from kafka_steward.journal.fields import Fields

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["DeferredPartitions", "FillEvent", "PendingReplicas"]


@dataclass(frozen=True)
class PendingReplicas(Document):
    """`/steward/owed/<topic>/<partition>`: a partition's replicas, with a placeholder -1, -2, … per pending replica.

    The placeholders are those of KIP-409, which proposes that Kafka itself keeps them in the assignment. Without a
    `topic_id`, the topic was about to be created, or Kafka is too old to have topic ids.
    """

    #: Brokers that had a replica when the document was written, then the placeholders.
    replicas: Assignment
    topic_id: str | None = None

    @classmethod
    def of(cls, brokers: Assignment, target_rf: int, topic_id: str | None = None) -> Self:
        """Make the document for a partition that has replicas on `brokers` and a target of `target_rf` replicas."""
        missing = max(0, target_rf - len(brokers))
        return cls((*brokers, *range(-1, -1 - missing, -1)), topic_id)

    @property
    def brokers(self) -> Assignment:
        """The brokers that had a replica."""
        return tuple(broker for broker in self.replicas if broker >= 0)

    @property
    def target_rf(self) -> int:
        """The target replication factor."""
        return len(self.replicas)

    @classmethod
    def read(cls, fields: Fields, source: str | None) -> Self:
        """Read `{"version": 1, "replicas": [2, 1, -1], "topic_id": "…"}`."""
        fields.integer("version", 1)
        replicas = fields.replicas("replicas")
        return cls(replicas, fields.maybe("topic_id", fields.text), extra=fields.rest(), source=source)

    def values(self) -> dict[str, Any]:
        """Return the fields in the order in which they are written."""
        return {"version": self.VERSION, "replicas": list(self.replicas), "topic_id": self.topic_id}


@dataclass(frozen=True)
class DeferredPartitions(Document):
    """`/steward/partitions_asked/<topic>`: a deferred request for partitions, until there are brokers for them.

    `count` is the total number of partitions that the topic will then have.
    """

    count: int
    topic_id: str | None = None
    asked_by: str = ""

    @classmethod
    def read(cls, fields: Fields, source: str | None) -> Self:
        """Read `{"version": 1, "count": 12, "topic_id": "…", "asked_by": "ada"}`."""
        fields.integer("version", 1)
        count, topic_id = fields.integer("count", 1, MAX_ID), fields.maybe("topic_id", fields.text)
        asked_by = fields.maybe("asked_by", fields.words) or ""
        return cls(count, topic_id, asked_by, extra=fields.rest(), source=source)

    def values(self) -> dict[str, Any]:
        """Return the fields in the order in which they are written."""
        asked_by = self.asked_by or None
        return {"version": self.VERSION, "count": self.count, "topic_id": self.topic_id, "asked_by": asked_by}


@dataclass(frozen=True)
class FillEvent(Document):
    """`/steward/fill_announced`: the watch's last event for pending replicas, and the brokers eligible for them then.

    `announced_ms` is the time of the event in milliseconds, by the journal's clock.
    """

    announced_ms: int
    brokers: Assignment = ()

    @classmethod
    def read(cls, fields: Fields, source: str | None) -> Self:
        """Read `{"version": 1, "announced_ms": ms, "brokers": [4]}`."""
        fields.integer("version", 1)
        announced_ms, brokers = fields.integer("announced_ms"), fields.brokers("brokers")
        return cls(announced_ms, brokers, extra=fields.rest(), source=source)

    def values(self) -> dict[str, Any]:
        """Return the fields in the order in which they are written."""
        return {"version": self.VERSION, "announced_ms": self.announced_ms, "brokers": list(self.brokers)}
