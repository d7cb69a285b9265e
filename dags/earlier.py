"""The result of an earlier task, passed on without an edge of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from airflow.sdk import BaseOperator, XComArg

__all__ = ["EarlierResult"]


class EarlierResult(XComArg):
    """The result of a task that is upstream anyway, through the tasks between: it draws no further edge.

    An XComArg draws one to each task that takes the result, which makes a braid of a graph that is a line.
    """

    def __init__(self, task: BaseOperator, key: str = "return_value") -> None:
        self.task = task
        self._result = XComArg(task, key)

    def iter_references(self) -> Iterator[Any]:
        """Return no task: Airflow draws the edges from this."""
        return iter(())

    def resolve(self, context: Mapping[str, Any]) -> Any:
        """Return the result, in a run."""
        return self._result.resolve(context)

    def __str__(self) -> str:
        # Airflow serializes the argument with it: the same text at each parse, else each parse is a new version.
        return str(self._result)

    __repr__ = __str__
