"""Approvals of plans, each bound to one plan by its digest."""

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
    """`/steward/approvals/<digest>`: the plan with this digest, and no other, may be executed.

    `person` is the user who approved it. It is None if a rule approved the plan; `reason` then names the rule.
    `answered_ms` is the time of the approval by Airflow's clock, in milliseconds since 1970.
    """

    plan: str
    person: str | None = None
    reason: str | None = None
    answered_ms: int | None = None

    @classmethod
    def read(cls, fields: Fields, source: str | None) -> Self:
        """Read the document; only `plan` is required."""
        fields.maybe("version", fields.integer)
        plan = fields.digest("plan")
        person, reason = (fields.maybe(key, fields.words) for key in ("person", "reason"))
        answered_ms = fields.maybe("answered_ms", fields.integer)
        return cls(plan, person, reason, answered_ms, extra=fields.rest(), source=source)

    def values(self) -> dict[str, Any]:
        """Return the fields in the order in which they are written."""
        fields = {"plan": self.plan, "person": self.person, "reason": self.reason, "answered_ms": self.answered_ms}
        return {"version": self.VERSION, **fields}
