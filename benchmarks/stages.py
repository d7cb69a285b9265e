"""One heal, in seconds by stage."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

Answer = TypeVar("Answer")

#: From the kill on, in order. `grace` is a setting, not a cost, and is left out.
STAGES = ("detect", "start", "find", "snapshot", "plan", "submit", "catch up", "elect", "schedule")


@dataclass
class Stages:
    """Seconds by stage; a stage that a way of healing does not have is missing."""

    way: str
    mode: str
    partitions: int
    seconds: dict[str, float] = field(default_factory=dict)
    replicas_moved: int = 0
    #: What the plan takes in a session that has planned before; no part of the sum.
    plan_warm_s: float | None = None

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.seconds[name] = time.monotonic() - began

    @property
    def total(self) -> float:
        return sum(self.seconds.values())


def ask_until(question: Callable[[], Answer | None], *, within_s: float, every_s: float = 0.05) -> Answer:
    """The first answer that is not None. Raises TimeoutError."""
    deadline = time.monotonic() + within_s
    while (answer := question()) is None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"no answer within {within_s} s")
        time.sleep(every_s)
    return answer
