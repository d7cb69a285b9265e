"""The base class of the journal's documents, and the reader of their fields.

A document is a dataclass whose annotations are its format: each field is read as its type says. A document that was not
changed is written as it was read. Unknown fields are kept. Each fault in a field has a message. No other
module parses the text of a node as JSON.

`Annotated` says what the type does not: a text is the key, if the name of the field is another one; a function reads
the value from `FieldReader` by its key; a `FieldPresence` says whether the key may be missing. A field that may be
None may be missing, and is not written if it is None.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cache, partial
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    NoReturn,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from kafka_steward.assignment import Assignment
from kafka_steward.errors import DocumentError
from kafka_steward.escaping import UNPRINTABLE, printable
from kafka_steward.journal.mailbox import MAX_BYTES, Node
from kafka_steward.journal.paths import DIGEST, MAX_ID, TOPIC, is_broker_or_partition_id, is_topic

if TYPE_CHECKING:
    from typing import Self


#: The maximum nesting depth of lists and objects in a document; the KIPs' own documents are 4 deep.
MAX_DEPTH = 20
#: The limit of times and counts: every JSON reader represents integers up to this one exactly.
MAX_NUMBER = 2**53 - 1
#: The maximum number of replicas that may be requested for one partition.
MAX_BROKERS = 1_000
#: Characters that are kept of a user's text; the rest is cut.
MAX_WORDS = 1_000
#: Characters of a value that a message quotes.
_SHOWN = 60

#: The separators with which Kafka writes JSON to ZooKeeper, and which KIP-236 prints.
COMPACT = (",", ":")

#: The separators that KIP-46 prints in its documents.
SPACED = (", ", ": ")

T = TypeVar("T")
D = TypeVar("D", bound="Document")


def is_printable_text(value: object) -> bool:
    """Return whether `value` is a string that can be stored and printed unchanged."""
    return isinstance(value, str) and UNPRINTABLE.search(value) is None


def sanitize_text(words: str, most: int = MAX_WORDS) -> str:
    """Return a user's text as it is stored: one printable line of at most `most` characters."""
    cut = words if len(words) <= most else f"{words[: most - 1]}…"
    return UNPRINTABLE.sub(lambda match: " " if match[0] in "\t\n\r\u2028\u2029" else "\ufffd", cut)


def json_excerpt(value: Any) -> str:
    """Return a JSON value as it is quoted in a message: in ASCII, and truncated."""
    if isinstance(value, str):
        value = value[:_SHOWN]
    text = json.dumps(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def parse_json(path: str, text: str) -> Any:
    """Return the JSON value of the document `text`, found at `path`.

    Raises DocumentError if the text is not JSON (RFC 8259: neither NaN nor Infinity), larger than MAX_BYTES, or nested
    deeper than MAX_DEPTH.
    """
    if len(text) > MAX_BYTES or len(text.encode(errors="replace")) > MAX_BYTES:
        raise DocumentError(
            f"{printable(path)} has more than the {MAX_BYTES} bytes of a document; split it into several."
        )
    try:
        value = json.loads(text, parse_constant=_refuse_nan, parse_float=_parse_finite_float)
    except (ValueError, RecursionError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else printable(str(error))[:200]
        raise DocumentError(f"{printable(path)} does not contain JSON ({why}); correct or delete it.") from error
    if _is_nested_deeper(value, MAX_DEPTH):
        raise DocumentError(
            f"{printable(path)} contains lists or objects more than {MAX_DEPTH} deep; correct or delete it."
        )
    return value


def _is_nested_deeper(value: Any, most: int) -> bool:
    # Level by level: a recursion would end with an error of Python where a document is nested deeply.
    level = [value]
    for _ in range(most + 1):
        level = [
            inner
            for container in level
            if isinstance(container, dict | list)
            for inner in (container.values() if isinstance(container, dict) else container)
        ]
        if not level:
            return False
    return True


def _refuse_nan(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


def _parse_finite_float(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError("a number is too large")
    return number


class NewerDocument(DocumentError):
    """A document that a later release wrote: it is not corrupt, and must be left unchanged."""


def read_fields(path: str, text: str, *, newest: int = 1) -> FieldReader:
    """Return the fields of the document `text`, found at `path`.

    Raises DocumentError unless it is a JSON object, NewerDocument if it has a `version` that is higher than `newest`.
    """
    fields = FieldReader(path, parse_json(path, text))
    version = fields.peek("version")
    if isinstance(version, int) and version > newest:
        raise NewerDocument(
            f"{printable(path)} was written by a newer Kafka Steward (version {json_excerpt(version)}; this one reads "
            f"up to {newest}); upgrade this one."
        )
    return fields


class FieldReader:
    """The fields of one JSON object. Each is read once; `remaining()` returns the remaining ones."""

    def __init__(self, path: str, value: Any) -> None:
        self._path = printable(path)
        if not isinstance(value, dict):
            kinds = {list: "a list", str: "a string", bool: "a truth value", int: "a number", float: "a number"}
            self.raise_error(f"holds {kinds.get(type(value), 'nothing')} where an object is expected")
        self._values: dict[str, Any] = dict(value)

    def raise_error(self, what: str) -> NoReturn:
        """Raise DocumentError; its message names the path, the fault, and the remedy."""
        raise DocumentError(f"{self._path} {what}; correct or delete it.")

    def peek(self, key: str) -> Any:
        """Return a field's value without removing the field; None if it is absent."""
        return self._values.get(key)

    def remaining(self) -> dict[str, Any]:
        """Return the fields that were not read: unknown ones, to be written back."""
        return self._values

    def optional(self, key: str, take: Callable[[str], T]) -> T | None:
        """Return the field as read by `take`; None if it is absent or null."""
        if self._values.get(key) is None:
            self._values.pop(key, None)
            return None
        return take(key)

    def integer(self, key: str, low: int = 0, high: int = MAX_NUMBER) -> int:
        """Read a whole number from `low` to `high`."""
        value = self._take_value(key)
        # To Python, a truth value is an int.
        whole = isinstance(value, int) and not isinstance(value, bool)
        self._require_valid(whole and value >= low, key, value, f"a whole number of at least {low}")
        self._require_valid(value <= high, key, value, f"a whole number of at most {high}")
        return int(value)

    def partition(self, key: str) -> int:
        """Read a partition number."""
        return self.integer(key, high=MAX_ID)

    def topic(self, key: str) -> str:
        """Read a topic name that is valid by Kafka's rule."""
        value = self._take_string(key)
        self._require_valid(is_topic(value), key, value, f"a {TOPIC.what}")
        return value

    def digest(self, key: str) -> str:
        """Read a string that is valid as a plan's digest."""
        value = self._take_string(key)
        self._require_valid(DIGEST.parse(value) is not None, key, value, f"a {DIGEST.what}")
        return value

    def text(self, key: str) -> str:
        """Read a string that is kept unchanged; unprintable characters are an error."""
        value = self._take_string(key)
        if not is_printable_text(value):
            self.raise_error(f"has {key!r} = {json_excerpt(value)}, which contains unprintable characters")
        return value

    def sanitized_text(self, key: str, most: int = MAX_WORDS) -> str:
        """Read a text of a user or of Kafka: cut to `most` characters, with unprintable characters replaced."""
        return sanitize_text(self._take_string(key), most)

    def flag(self, key: str) -> bool:
        """Read a boolean."""
        return self._take_typed(key, bool, "true or false")

    def brokers(self, key: str) -> Assignment:
        """Read a list of distinct broker ids, in order."""
        value = self._take_list(key)
        self._require_valid(all(map(is_broker_or_partition_id, value)), key, value, "a list of broker ids")
        if len(value) > MAX_BROKERS:
            self.raise_error(f"names {len(value)} brokers in {key!r} where at most {MAX_BROKERS} are expected")
        if len(set(value)) < len(value):
            self.raise_error(f"names a broker twice in {key!r} = {json_excerpt(value)}")
        return tuple(value)

    def texts(self, key: str) -> tuple[str, ...]:
        """Read a list of strings."""
        value = self._take_list(key)
        self._require_valid(all(map(is_printable_text, value)), key, value, "a list of strings")
        return tuple(value)

    def objects(self, key: str) -> list[FieldReader]:
        """Read a list of objects; each element is returned as `FieldReader`."""
        return [
            FieldReader(f"{self._path}, {key}[{place}]", element) for place, element in enumerate(self._take_list(key))
        ]

    def object(self, key: str) -> FieldReader:
        """Read a nested object."""
        return FieldReader(f"{self._path}, {key}", self._take_value(key))

    def _require_valid(self, valid: bool, key: str, value: Any, what: str) -> None:
        """Raise DocumentError unless `valid`; `what` belongs in the field."""
        if not valid:
            self.raise_error(f"has {key!r} = {json_excerpt(value)} where {what} is expected")

    def _take_typed(self, key: str, kind: type[T], what: str) -> T:
        value = self._take_value(key)
        if not isinstance(value, kind):
            self.raise_error(f"has {key!r} = {json_excerpt(value)} where {what} is expected")
        return value

    def _take_string(self, key: str) -> str:
        return self._take_typed(key, str, "a string")

    def _take_list(self, key: str) -> list[Any]:
        return self._take_typed(key, list, "a list")

    def _take_value(self, key: str) -> Any:
        if key not in self._values:
            self.raise_error(f"has no {key!r}")
        return self._values.pop(key)


class FieldPresence(Enum):
    """The presence of a field: whether it is written, and whether it may be missing when the document is read."""

    REQUIRED = auto()
    #: May be missing; its default then counts.
    OPTIONAL = auto()
    #: As OPTIONAL, and not written while it is empty, zero or false.
    OMITTED = auto()
    #: Not part of the format.
    NEVER = auto()


#: A plan's digest, a topic, a partition, and a text of a user or of Kafka, as `FieldReader` reads them.
Digest = Annotated[str, FieldReader.digest]
TopicName = Annotated[str, FieldReader.topic]
PartitionNumber = Annotated[int, FieldReader.partition]
Words = Annotated[str, FieldReader.sanitized_text]


_log = logging.getLogger(__name__)

#: Keys of the nodes that a warning was logged for, the newest last.
_warned: deque[str] = deque(maxlen=1000)


@dataclass(frozen=True, kw_only=True)
class Document:
    """A document of the mailbox.

    `extra` holds unknown fields, added by others: they are written back. `source` is the text that the document was
    read from: an unchanged document is written back byte for byte, whatever its spacing and order.
    """

    #: The newest version of this document that this code reads, and the version that it writes.
    VERSION: ClassVar[int] = 1
    #: Whether the document has its version as a field, which may be missing.
    VERSION_IS: ClassVar[FieldPresence] = FieldPresence.OPTIONAL
    #: The separators between fields, and between key and value.
    SEPARATORS: ClassVar[tuple[str, str]] = COMPACT

    extra: Mapping[str, Any] = field(default_factory=dict, hash=False, repr=False)
    source: str | None = field(default=None, compare=False, repr=False)

    @classmethod
    def from_json(cls, text: str, path: str = "the document") -> Self:
        """Read the document found at `path`. Raises DocumentError, naming the path and the fault."""
        return cls.from_fields(read_fields(path, text, newest=cls.VERSION), source=text)

    @classmethod
    def from_node(cls, node: Node) -> Self:
        """Read the document in `node`. Raises DocumentError."""
        return cls.from_json(node.data, node.path)

    def to_json(self) -> str:
        """Return the JSON text in which the document is stored."""
        if self.source is not None and type(self).from_json(self.source) == self:
            return self.source
        return json.dumps(self.as_object(), separators=self.SEPARATORS)

    @classmethod
    def from_fields(cls, fields: FieldReader, source: str | None) -> Self:
        """Build the document from its fields; `source` is the text that they were read from."""
        if cls.VERSION_IS is FieldPresence.OPTIONAL:
            fields.optional("version", fields.integer)
        known = {stored.name: stored.read_value(fields) for stored in cls._field_formats()}
        return cls(**known, extra=fields.remaining(), source=source)

    def values(self) -> dict[str, Any]:
        """Return the fields that this code knows, in the order in which they are written; None omits a field."""
        version = {} if self.VERSION_IS is FieldPresence.NEVER else {"version": self.VERSION}
        return version | {stored.key: stored.stored_value(self) for stored in self._field_formats()}

    @classmethod
    @cache
    def _field_formats(cls) -> tuple[_FieldFormat, ...]:
        hints = get_type_hints(cls, include_extras=True)
        base = {base_field.name for base_field in dataclasses.fields(Document)}
        own = (declared for declared in dataclasses.fields(cls) if declared.name not in base)
        return tuple(_FieldFormat.from_field(declared, hints[declared.name]) for declared in own)

    def as_object(self) -> dict[str, Any]:
        """Return the JSON object: the fields that are not None, followed by the unknown ones."""
        return {key: value for key, value in self.values().items() if value is not None} | dict(self.extra)


@dataclass(frozen=True, slots=True)
class _FieldFormat:
    """The way one field of a document is read and written."""

    name: str
    key: str
    read: Callable[[FieldReader, str], Any]
    presence: FieldPresence
    default: Any

    @classmethod
    def from_field(cls, declared: dataclasses.Field[Any], hint: Any) -> _FieldFormat:
        """Return the format of a field with this type."""
        key, presence, default = declared.name, FieldPresence.REQUIRED, declared.default
        read: Callable[[FieldReader, str], Any] | None = None
        while get_origin(hint) in {Annotated, Union, UnionType}:
            if get_origin(hint) is not Annotated:
                presence, default = FieldPresence.OPTIONAL, None
                hint = next(member for member in get_args(hint) if member is not type(None))
                continue
            hint, *marks = get_args(hint)
            key = next((mark for mark in marks if isinstance(mark, str)), key)
            presence = next((mark for mark in marks if isinstance(mark, FieldPresence)), presence)
            read = next((mark for mark in marks if callable(mark)), read)
        return cls(declared.name, key, read or _find_reader(hint), presence, default)

    def read_value(self, fields: FieldReader) -> Any:
        if self.presence is FieldPresence.REQUIRED:
            return self.read(fields, self.key)
        value = fields.optional(self.key, partial(self.read, fields))
        return self.default if value is None else value

    def stored_value(self, document: Document) -> Any:
        value = getattr(document, self.name)
        if isinstance(value, Document):
            return value.as_object()
        if isinstance(value, tuple) and value and isinstance(value[0], Document):
            return [part.as_object() for part in value]
        return None if self.presence is FieldPresence.OMITTED and not value else value


def _find_reader(kind: Any) -> Callable[[FieldReader, str], Any]:
    """Return the reader of a type: a simple one, a document, a tuple of documents, or one whose annotation reads it."""
    if isinstance(kind, type) and issubclass(kind, Document):
        return lambda fields, key: kind.from_fields(fields.object(key), None)
    return _READERS.get(kind) or (lambda fields, key: read_documents(get_args(kind)[0], fields, key))


def read_documents(kind: type[D], fields: FieldReader, key: str) -> tuple[D, ...]:
    """Read a list of documents of one kind."""
    return tuple(kind.from_fields(entry, None) for entry in fields.objects(key))


_READERS: dict[Any, Callable[[FieldReader, str], Any]] = {
    int: FieldReader.integer,
    str: FieldReader.text,
    bool: FieldReader.flag,
    Assignment: FieldReader.brokers,
    tuple[str, ...]: FieldReader.texts,
}


def parse_valid_nodes(nodes: Iterable[Node], read: Callable[[Node], T]) -> list[tuple[Node, T]]:
    """Return the readable documents with their nodes: one corrupt document must not hide the others."""
    documents = []
    for node in nodes:
        try:
            documents.append((node, read(node)))
        except DocumentError as error:
            warn_once(f"{node.path}@{node.modified_id}@{node.modified_ms}", f"Left out: {error}")
    return documents


def warn_once(path: str, sentence: str) -> None:
    """Log a warning about the node at `path`, unless this process has recently logged one with this `path`."""
    if path not in _warned:
        _warned.append(path)
        _log.warning("%s", printable(sentence))
