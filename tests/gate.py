"""Two steppers in a written order: one is stopped before call n, the other does what it does, and the first goes on.

That is SIGSTOP and SIGCONT, without threads: between two calls of the first, the whole work of the second. Exhaustive
for every n; two steppers that alternate more finely are kept apart by the step lock, which is tested by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.crash import FREE


@dataclass
class Gate:
    """Before call number `at` (from 0) of one process, `meanwhile` happens; once."""

    at: int | None = None
    meanwhile: Callable[[], None] = lambda: None
    calls: list[str] = field(default_factory=list)

    def around(self, seam: str, target: Any) -> Any:
        """The target, with its calls counted and the gate before one of them."""
        return _Gated(self, seam, target)

    def call(self, name: str, act: Callable[[], Any]) -> Any:
        here = len(self.calls) == self.at
        self.calls.append(name)
        if here:
            self.meanwhile()
        return act()


class _Gated:
    def __init__(self, gate: Gate, seam: str, target: Any) -> None:
        self._gate, self._seam, self._target = gate, seam, target

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._target, name)
        if name in FREE or not callable(attribute):
            return attribute
        return lambda *args, **more: self._gate.call(f"{self._seam}.{name}", lambda: attribute(*args, **more))
