"""The base class of the journal's documents: an unchanged document is written as read, unknown fields are kept."""

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

__all__ = ["Document", "parse_valid", "warn_once"]

_log = logging.getLogger(__name__)
#: Keys of the nodes that a warning was logged for, the newest last.
_warned: deque[str] = deque(maxlen=1000)

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Document(ABC):
    """A document of the tree.

    `extra` holds unknown fields, added by others: they are written back. `source` is the text that the document was
    read from: an unchanged document is written back byte for byte, whatever its spacing and order.
    """

    #: The newest version of this document that this code reads, and the version that it writes.
    VERSION: ClassVar[int] = 1
    #: The separators between fields, and between key and value.
    SEPARATORS: ClassVar[tuple[str, str]] = COMPACT

    extra: Mapping[str, Any] = field(default_factory=dict, hash=False, repr=False)
    source: str | None = field(default=None, compare=False, repr=False)

    @classmethod
    def from_json(cls, text: str, path: str = "the document") -> Self:
        """Read the document found at `path`. Raises DocumentError, naming the path and the fault."""
        fields = read_object(path, text, newest=cls.VERSION)
        return cls.read(fields, source=text)

    @classmethod
    def from_node(cls, node: Node) -> Self:
        """Read the document in `node`. Raises DocumentError."""
        return cls.from_json(node.data, node.path)

    def to_json(self) -> str:
        """Return the JSON text in which the document is stored."""
        if self.source is not None and type(self).from_json(self.source) == self:
            return self.source
        return render(self.values(), self.extra, self.SEPARATORS)

    @classmethod
    @abstractmethod
    def read(cls, fields: Fields, source: str | None) -> Self:
        """Build the document from its fields; `source` is the text that they were read from."""

    @abstractmethod
    def values(self) -> dict[str, Any]:
        """Return the fields that this code knows, in the order in which they are written; None omits a field."""


def parse_valid(nodes: Iterable[Node], read: Callable[[Node], T]) -> list[tuple[Node, T]]:
    """Return the readable documents with their nodes: one corrupt document must not hide the others."""
    found = ((node, _read_or_none(node, read)) for node in nodes)
    return [(node, document) for node, document in found if document is not None]


def warn_once(path: str, sentence: str) -> None:
    """Log a warning about the node at `path`, unless this process has recently logged one with this `path`."""
    if path not in _warned:
        _warned.append(path)
        _log.warning("%s", printable(sentence))


def _read_or_none(node: Node, read: Callable[[Node], T]) -> T | None:
    try:
        return read(node)
    except DocumentError as error:
        warn_once(f"{node.path}@{node.modified_id}@{node.modified_ms}", f"Left out: {error}")
        return None
