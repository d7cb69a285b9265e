"""What all documents of the journal share: they print as they were read, and keep what they do not understand."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from kafka_steward.errors import DocumentError
from kafka_steward.escaping import printable
from kafka_steward.journal.fields import COMPACT, Fields, read_object, render
from kafka_steward.journal.tree import Node

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Document", "readable", "warn_once"]

_log = logging.getLogger(__name__)
#: What was warned of, the newest last.
_warned: deque[str] = deque(maxlen=1000)

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Document(ABC):
    """A document of the tree.

    `extra` holds fields that someone else added: they are written back. `source` is the text it was read from: while
    nothing was changed it is written back byte for byte, whatever its spacing and order.
    """

    #: The newest version of this document that this code reads, and the one that it writes.
    VERSION: ClassVar[int] = 1
    #: Between fields, and between key and value.
    SEPARATORS: ClassVar[tuple[str, str]] = COMPACT

    extra: Mapping[str, Any] = field(default_factory=dict, hash=False, repr=False)
    source: str | None = field(default=None, compare=False, repr=False)

    @classmethod
    def from_json(cls, text: str, path: str = "the document") -> Self:
        """Read the document found at `path`. Raises DocumentError, naming the path and what is wrong."""
        fields = read_object(path, text, newest=cls.VERSION)
        return cls.read(fields, source=text)

    @classmethod
    def from_node(cls, node: Node) -> Self:
        """Read the document that `node` holds. Raises DocumentError."""
        return cls.from_json(node.data, node.path)

    def to_json(self) -> str:
        """The document as it is stored."""
        if self.source is not None and type(self).from_json(self.source) == self:
            return self.source
        return render(self.values(), self.extra, self.SEPARATORS)

    @classmethod
    @abstractmethod
    def read(cls, fields: Fields, source: str | None) -> Self:
        """The document from its fields."""

    @abstractmethod
    def values(self) -> dict[str, Any]:
        """The fields that this code knows, in the order in which they are written; None leaves a field out."""


def readable(nodes: Iterable[Node], read: Callable[[Node], T]) -> list[tuple[Node, T]]:
    """The nodes whose documents can be read, with them: one broken document must not hide the others."""
    found = ((node, _read_or_none(node, read)) for node in nodes)
    return [(node, document) for node, document in found if document is not None]


def warn_once(path: str, sentence: str) -> None:
    """Log what is wrong with the node at `path`, unless it was said of it lately by this process."""
    if path not in _warned:
        _warned.append(path)
        _log.warning("%s", printable(sentence))


def _read_or_none(node: Node, read: Callable[[Node], T]) -> T | None:
    try:
        return read(node)
    except DocumentError as error:
        warn_once(f"{node.path}@{node.modified_id}@{node.modified_ms}", f"Left out: {error}")
        return None
