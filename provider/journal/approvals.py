"""Approvals: who said yes to exactly which plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafka_steward.journal.document import Document
from kafka_steward.journal.fields import Fields

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Approval"]


@dataclass(frozen=True)
class Approval(Document):
    """`/steward/approvals/<digest>`: the plan with this digest, and no other, may be carried out.

    `person` is who approved it; None where a rule did, which `reason` then tells. `answered_ms` is when they did, by
    Airflow's clock, in milliseconds since 1970.
    """

    plan: str
    person: str | None = None
    reason: str | None = None
    answered_ms: int | None = None

    @classmethod
    def read(cls, fields: Fields, source: str | None) -> Self:
        """The plan is required."""
        fields.maybe("version", fields.integer)
        plan = fields.digest("plan")
        person, reason = (fields.maybe(key, fields.words) for key in ("person", "reason"))
        answered_ms = fields.maybe("answered_ms", fields.integer)
        return cls(plan, person, reason, answered_ms, extra=fields.rest(), source=source)

    def values(self) -> dict[str, Any]:
        """Our own fields."""
        fields = {"plan": self.plan, "person": self.person, "reason": self.reason, "answered_ms": self.answered_ms}
        return {"version": self.VERSION, **fields}
