"""What is asked of the planner: an operation and its options, each validated and named when it is wrong."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from kafka_steward.assignment import Operation
from kafka_steward.errors import PlanError

__all__ = ["BALANCING", "EVEN", "INTERNAL_TOPICS", "Options", "operation_of"]

#: Kafka's own topics.
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__share_group_state", "__transaction_state"})
#: Operations for balance's sake alone: what they leave alone is in no danger.
BALANCING = frozenset({Operation.REBALANCE, Operation.EXPAND})

_EVERY = frozenset(Operation)
#: Operations that make everything even, by one plan for the whole cluster.
EVEN = frozenset({Operation.REBALANCE, Operation.EXPAND, Operation.DRAIN})


def _option(
    default: Any,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    items: type | None = None,
    kind: type | None = None,
    of: frozenset[Operation] = _EVERY,
) -> Any:
    default_of = {"default_factory": dict} if isinstance(default, dict) else {"default": default}
    facts = {
        "low": low,
        "high": high,
        "choices": choices,
        "items": items,
        "of": of,
        "default": default,
        "kind": kind or type(default),
    }
    return field(metadata=facts, **default_of)


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a plan. Construct through `Options.of`, which validates."""

    #: Partitions in one chunk, the unit of record (KIP-46's kafka.heal.chunk.size).
    chunk_size: int = _option(50, low=1, high=5000)
    #: Whether a partition's replicas must be spread over the racks.
    rack_aware: bool = _option(True)
    #: Brokers without a rack: bound by no rack rule ("free"), or each a rack of its own ("own-rack").
    rackless: str = _option("free", choices=("free", "own-rack"))
    #: Only topics of which one of these regular expressions matches the whole name; empty: all.
    include: tuple[str, ...] = _option((), items=str)
    #: No topic of which one of these regular expressions matches the whole name.
    exclude: tuple[str, ...] = _option((), items=str)
    #: Partitions that stay as they are, as `topic-number`; those still moving always do.
    pin: tuple[str, ...] = _option((), items=str)
    #: Brokers that must not receive a replica.
    exclude_brokers: tuple[int, ...] = _option((), items=int)
    #: Replicas that one broker may be receiving at once; shapes the order.
    max_in_per_broker: int = _option(5, low=1)
    #: Replicas that one broker may be sending at once; shapes the order.
    max_out_per_broker: int = _option(5, low=1)
    #: Bytes per second into one broker, for the predicted duration; 0: unthrottled, and none is predicted.
    throttle: int = _option(50_000_000, low=0)

    #: Whether Kafka's own topics take part.
    internal_topics: bool = _option(False, of=BALANCING)
    #: What is to be even: the number of replicas, of every topic too, or the bytes on the brokers' disks.
    balance: str = _option("replicas", choices=("replicas", "bytes"), of=EVEN)
    #: How far from its share of the bytes a broker may stay, as a fraction.
    tolerance: float = _option(0.05, low=0, high=1, of=EVEN)
    #: Replicas that may be moved at most; what improves most comes first, and later plans go on from there.
    max_moves: int | None = _option(None, low=1, kind=int, of=EVEN)
    #: The same in bytes.
    max_bytes: int | None = _option(None, low=1, kind=int, of=EVEN)
    #: The replication factor that the named topics are to have.
    replication_factor: int = _option(0, low=1, high=1000, of=frozenset({Operation.SET_REPLICATION_FACTOR}))
    #: The topics that are to have it, by their whole names.
    topics: tuple[str, ...] = _option((), items=str, of=frozenset({Operation.SET_REPLICATION_FACTOR}))
    #: The reassignment to apply, as `kafka-reassign-partitions` takes it.
    reassignment: Mapping[str, Any] = _option({}, of=frozenset({Operation.APPLY}))

    @classmethod
    def of(cls, operation: Operation, given: Mapping[str, Any]) -> Options:
        """Options from what a person wrote. Raises PlanError naming the option that is unknown or wrong."""
        known = {option.name: option.metadata for option in fields(cls) if operation in option.metadata["of"]}
        for name in given:
            if name not in known:
                raise PlanError(_unknown(name, list(known), f"The operation {operation.value} has no option {name!r}"))
        _refuse_lacking(operation, given)
        return cls(**{name: _checked(name, value, known[name]) for name, value in given.items()})

    def sparing(self, brokers: Collection[int]) -> Options:
        """These options, by which none of `brokers` receives a replica either: those that are cordoned (KIP-1066)."""
        return replace(self, exclude_brokers=tuple(sorted({*self.exclude_brokers, *brokers}))) if brokers else self

    def to_json(self, operation: Operation) -> dict[str, Any]:
        """Every option that the operation takes, defaults included, as JSON values: what the digest covers."""
        taken = {option.name for option in fields(self) if operation in option.metadata["of"]}
        values = {name: value for name, value in asdict(self).items() if name in taken}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


_REQUIRED = {
    Operation.SET_REPLICATION_FACTOR: ("replication_factor", "topics"),
    Operation.APPLY: ("reassignment",),
}


def _refuse_lacking(operation: Operation, given: Mapping[str, Any]) -> None:
    for name in _REQUIRED.get(operation, ()):
        if not given.get(name):
            raise PlanError(f"The operation {operation.value} needs the option {name}.")


def operation_of(name: str) -> Operation:
    """The operation of that name. Raises PlanError with the one that was probably meant."""
    try:
        return Operation(name)
    except ValueError:
        names = [operation.value for operation in Operation]
        raise PlanError(_unknown(name, names, f"There is no operation {name!r}")) from None


def _unknown(name: str, known: list[str], sentence: str) -> str:
    near = difflib.get_close_matches(name, known, 1)
    return f"{sentence}; did you mean {near[0]}?" if near else f"{sentence}; there are {', '.join(known)}."


def _checked(name: str, value: Any, facts: Mapping[str, Any]) -> Any:
    if value is None and facts["default"] is None:
        return None
    if facts["items"] is not None:
        return _checked_items(name, value, facts["items"])
    if not _is_a(value, facts["kind"]):
        raise PlanError(f"The option {name} is {value!r}; it takes {_KINDS[facts['kind']]}.")
    if facts["choices"] and value not in facts["choices"]:
        raise PlanError(f"The option {name} is {value!r}; it takes one of {', '.join(facts['choices'])}.")
    if facts["low"] is not None and value < facts["low"]:
        raise PlanError(f"The option {name} is {value!r}; it must be at least {facts['low']}.")
    if facts["high"] is not None and value > facts["high"]:
        raise PlanError(f"The option {name} is {value!r}; it must be at most {facts['high']}.")
    return value


_KINDS: dict[type, str] = {
    int: "a whole number",
    bool: "true or false",
    str: "a word",
    float: "a number",
    dict: "an object",
}


def _is_a(value: Any, kind: type) -> bool:
    if isinstance(value, bool):
        return kind is bool
    # NaN passes every bound.
    return isinstance(value, (int, float)) and math.isfinite(value) if kind is float else isinstance(value, kind)


def _checked_items(name: str, value: Any, kind: type) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)) or not all(_is_a(item, kind) for item in value):
        raise PlanError(f"The option {name} is {value!r}; it takes a list of {_KINDS[kind].split()[-1]}s.")
    if name in ("include", "exclude"):
        for pattern in value:
            _compiled(name, pattern)
    return tuple(value)


def _compiled(name: str, pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise PlanError(f"The option {name} holds {pattern!r}, which is no regular expression: {error}.") from error
