"""The description of one value that people give: a setting of a cluster, or an option of the planner.

Forms, the command line, the section of `airflow.cfg` and the reference are made of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_JSON_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A value with its default, its description, and the values that it takes. `pattern` is checked in forms."""

    default: Any
    description: str = ""
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    pattern: str | None = None

    @property
    def kind(self) -> type:
        """The type of its values in Python."""
        return type(self.default)

    @property
    def json_type(self) -> str:
        """The type of its values in JSON."""
        return _JSON_TYPES[self.kind]

    @property
    def json_limits(self) -> dict[str, Any]:
        """The limits of its values, in the words of JSON Schema."""
        limits = {"minimum": self.low, "maximum": self.high, "pattern": self.pattern}
        return {name: limit for name, limit in limits.items() if limit is not None}

    def explain_refusal(self, value: Any) -> str:
        """Return what is required of a value of the right type that is not accepted; empty if it is accepted."""
        if self.choices and value not in self.choices:
            return f"it takes one of {', '.join(self.choices)}"
        if self.low is not None and value < self.low:
            return f"it must be at least {self.low}"
        if self.high is not None and value > self.high:
            return f"it must be at most {self.high}"
        return ""
