"""The blocks of `Mailbox.one_read`, as each thread of a mailbox has them: what both backends share."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

ViewT = TypeVar("ViewT")


class OneRead(Generic[ViewT]):
    """The base of a mailbox that answers the reads of a block from a view, which it opens and judges."""

    def __init__(self) -> None:
        self._here = threading.local()

    @contextmanager
    def one_read(self, *, again: bool = False) -> Iterator[None]:
        """Answer the reads of the block from a view, as specified by `Mailbox.one_read`."""
        if again or self._view() is None:
            self._here.view = self._open_view()
        depth = getattr(self._here, "depth", 0)
        self._here.depth = depth + 1
        try:
            yield
        finally:
            self._here.depth = depth
            if not depth:
                self._here.view = None

    def _view(self) -> ViewT | None:
        """Return the view of this thread while it may be used."""
        view: ViewT | None = getattr(self._here, "view", None)
        return view if view is not None and self._is_usable(view) else None

    def _open_view(self) -> ViewT | None:
        """Return a view of now; None if a view would not pay."""
        raise NotImplementedError

    def _is_usable(self, view: ViewT) -> bool:
        """Return whether a view may answer still."""
        raise NotImplementedError
