"""Parsers for untrusted tree content: names of nodes, JSON, and the values in it. No I/O.

No other module parses the name of a node to a number, or its text as JSON. A node is untrusted until it was parsed
here: a name becomes part of a path, a statement or a request to Kafka only after its parser has returned it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, NoReturn, TypeVar

from kafka_steward.errors import DocumentError
from kafka_steward.escaping import UNPRINTABLE, printable

#: The largest document that every backend accepts, in bytes: ZooKeeper's jute.maxbuffer less room for the request.
MAX_BYTES = 1_000_000
#: The longest path that every backend accepts, in characters.
MAX_PATH = 1024
#: The maximum nesting depth of lists and objects in a document; the KIPs' own documents are 4 deep.
MAX_DEPTH = 20
#: Broker ids and partition numbers are int32 in Kafka.
MAX_ID = 2**31 - 1
#: The limit of times and counts: every JSON reader represents integers up to this one exactly.
MAX_NUMBER = 2**53 - 1
#: The maximum number of replicas that may be requested for one partition.
MAX_BROKERS = 1_000
#: Characters that are kept of a user's text; the rest is cut.
MAX_WORDS = 1_000

T = TypeVar("T")

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,9}")
_NUMBERED = re.compile(r"request_([0-9]{1,19})")
#: The path of a request, parent included, must not exceed the maximum length of a path.
_LONGEST_REQUEST = 900
#: Characters that ZooKeeper accepts in no path.
_UNNAMEABLE = re.compile("[\ud800-\uf8ff\ufff0-\uffff]")
_SHOWN = 60


@dataclass(frozen=True)
class Name(Generic[T]):
    """A kind of node name: `what` is a description of it for messages; `parse` returns None for any other name."""

    what: str
    parse: Callable[[str], T | None]


def _id_of(name: str) -> int | None:
    # Each number has exactly one name: `0003` would be a different node from `3`, which is created and deleted.
    number = int(name) if _NUMBER.fullmatch(name) else None
    return number if number is not None and number <= MAX_ID else None


def _topic_of(name: str) -> str | None:
    return name if is_topic(name) else None


def _request_of(name: str) -> str | None:
    fits = 0 < len(name) <= _LONGEST_REQUEST and name not in {".", ".."} and "/" not in name
    return name if fits and is_text(name) and _UNNAMEABLE.search(name) is None else None


def request_number(name: str) -> int | None:
    """Return the number in `request_<n>`, which orders the requests; None if the name has no number."""
    found = _NUMBERED.fullmatch(name)
    return None if found is None else int(found[1])


BROKER: Name[int] = Name("broker id, a whole number from 0 to 2147483647 without leading zeros", _id_of)
PARTITION: Name[int] = Name("partition, a whole number from 0 to 2147483647 without leading zeros", _id_of)
TOPIC: Name[str] = Name("topic: at most 249 letters, digits, dots, underscores and hyphens", _topic_of)
REQUEST: Name[str] = Name("request: at most 900 printable characters", _request_of)
DIGEST: Name[str] = Name("plan: at most 249 letters, digits, dots, underscores and hyphens", _topic_of)


def is_topic(value: object) -> bool:
    """Return whether `value` is a valid topic name by Kafka's own rule (org.apache.kafka.common.internals.Topic)."""
    return isinstance(value, str) and _TOPIC.fullmatch(value) is not None and value not in {".", ".."}


def is_id(value: object) -> bool:
    """Return whether `value` is a valid broker id or partition number."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_ID


def is_text(value: object) -> bool:
    """Return whether `value` is a string that can be stored and printed unchanged."""
    return isinstance(value, str) and UNPRINTABLE.search(value) is None


def cleaned(words: str, most: int = MAX_WORDS) -> str:
    """Return a user's text as it is stored: one printable line of at most `most` characters."""
    cut = words if len(words) <= most else f"{words[: most - 1]}…"
    return UNPRINTABLE.sub(lambda found: " " if found[0] in "\t\n\r\u2028\u2029" else "\ufffd", cut)


def parse_json(path: str, text: str) -> Any:
    """Return the JSON value of the document `text`, found at `path`.

    Raises DocumentError if the text is not JSON (RFC 8259: neither NaN nor Infinity), larger than MAX_BYTES, or nested
    deeper than MAX_DEPTH.
    """
    if len(text) > MAX_BYTES or len(text.encode(errors="replace")) > MAX_BYTES:
        raise DocumentError(
            f"{printable(path)} has more than the {MAX_BYTES} bytes of a document; cut it into several."
        )
    try:
        value = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else _brief(error)
        raise DocumentError(f"{printable(path)} does not hold JSON ({why}); mend or delete it.") from error
    if _is_deeper(value, MAX_DEPTH):
        raise DocumentError(f"{printable(path)} holds lists or objects more than {MAX_DEPTH} deep; mend or delete it.")
    return value


def shown(value: Any) -> str:
    """Return a JSON value as it is quoted in a message: in ASCII, and truncated."""
    if isinstance(value, str):
        value = value[:_SHOWN]
    text = json.dumps(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def _is_deeper(value: Any, most: int) -> bool:
    level = [value]
    for _ in range(most + 1):
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return False
    return True


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError("a number is larger than any that is kept")
    return number


def _brief(error: Exception) -> str:
    return printable(str(error))[:200]
