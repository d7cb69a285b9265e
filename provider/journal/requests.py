"""KIP-236's requests: reassignment requests, the cancel request, and the node that disables reassignments."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kafka_steward.journal import codec
from kafka_steward.journal.document import Document
from kafka_steward.journal.documents import ChunkPartition, partition_values, read_partitions
from kafka_steward.journal.fields import Fields, read_object

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["CancelRequest", "Request", "SwitchedOff"]


@dataclass(frozen=True)
class Request(Document):
    """KIP-236, a reassignment request of any client: `/admin/reassignment_requests/request_<n>`, and the queue.

    Both formats of KIP-236 can be read: `partitions` as Kafka's own tool writes it, or `assignments` by topic and
    partition. The document is written with `partitions`.
    """

    partitions: tuple[ChunkPartition, ...]
    legacy: bool = False

    @classmethod
    def read(cls, fields: Fields, source: str | None) -> Self:
        """Read either format."""
        fields.maybe("version", fields.integer)
        mapped = fields.maybe("assignments", fields.object)
        partitions = read_partitions(fields) if mapped is None else _read_assignments(mapped)
        legacy = fields.maybe("legacy", fields.flag) or False
        return cls(partitions, legacy, extra=fields.rest(), source=source)

    def values(self) -> dict[str, Any]:
        """Return Kafka's reassignment JSON, with KIP-236's `legacy` if it is set."""
        partitions = partition_values(self.partitions)
        return {"version": self.VERSION, "partitions": partitions, "legacy": self.legacy or None}


def _read_assignments(topics: Fields) -> tuple[ChunkPartition, ...]:
    found = []
    for topic in sorted(topics.rest()):
        if not codec.is_topic(topic):
            topics.refuse(f"names {codec.shown(topic)} where a {codec.TOPIC.what} belongs")
        by_number = topics.object(topic)
        for number in sorted(by_number.rest(), key=lambda text: (len(text), text)):
            partition = codec.PARTITION.parse(number)
            if partition is None:
                by_number.refuse(f"names the partition {number[:20]!r}, which is no number of a partition")
            found.append(ChunkPartition(topic, partition, by_number.brokers(number)))
    return tuple(found)


class _Signal(Document):
    """A document that may be empty: its existence is the signal."""

    @classmethod
    def from_json(cls, text: str, path: str = "the document") -> Self:
        """Read the document found at `path`, like any other; an empty text is valid: it is the KIP's own format."""
        return cls.read(read_object(path, text if text.strip() else "{}", newest=cls.VERSION), source=text)


@dataclass(frozen=True)
class CancelRequest(_Signal):
    """KIP-236, `/admin/cancel_reassignment_in_progress`: cancel pending reassignments; in the KIP an empty node.

    `plan` restricts the request to one plan. `scope` "pending" is KIP-236's own cancel; "plan" requests that completed
    moves of the plan are rolled back too. With `even_if_disabled`, that is also done while reassignments are disabled.
    `person` and `reason` are the actor and the reason for the audit trail. The request is also stored in the record of
    the plan that it applies to.
    """

    plan: str | None = None
    scope: str = "pending"
    person: str | None = None
    reason: str | None = None
    even_if_disabled: bool = False

    @classmethod
    def read(cls, fields: Fields, source: str | None) -> Self:
        """Read the document; all fields are optional."""
        fields.maybe("version", fields.integer)
        scope = fields.maybe("scope", fields.text) or "pending"
        if scope not in {"pending", "plan"}:
            fields.refuse(f"has 'scope' = {scope[:20]!r} where pending or plan belongs")
        plan = fields.maybe("plan", fields.text)
        person, reason = (fields.maybe(key, fields.words) for key in ("person", "reason"))
        anyway = fields.maybe("even_if_disabled", fields.flag) or False
        return cls(plan, scope, person, reason, anyway, extra=fields.rest(), source=source)

    def values(self) -> dict[str, Any]:
        """Return the fields in the order in which they are written."""
        fields = {"plan": self.plan, "scope": self.scope, "person": self.person, "reason": self.reason}
        return {"version": self.VERSION, **fields, "even_if_disabled": self.even_if_disabled or None}

    def with_(self, other: CancelRequest) -> CancelRequest:
        """Return the union of both requests, with the other fields of the request that has the larger scope."""
        more = other if other.scope == "plan" != self.scope else self
        anyway = self.even_if_disabled or other.even_if_disabled
        return self if more is self and anyway == self.even_if_disabled else replace(more, even_if_disabled=anyway)


@dataclass(frozen=True)
class SwitchedOff(_Signal):
    """KIP-236, `/admin/reassign_cancel`: while this node exists, no reassignment may start; in the KIP an empty node.

    `person` and `reason` are the user who disabled reassignments and the reason. The time is the node's own time.
    """

    person: str | None = None
    reason: str | None = None

    @classmethod
    def read(cls, fields: Fields, source: str | None) -> Self:
        """Read the document; all fields are optional."""
        fields.maybe("version", fields.integer)
        person, reason = fields.maybe("person", fields.words), fields.maybe("reason", fields.words)
        return cls(person, reason, extra=fields.rest(), source=source)

    def values(self) -> dict[str, Any]:
        """Return the fields in the order in which they are written."""
        return {"version": self.VERSION, "person": self.person, "reason": self.reason}
