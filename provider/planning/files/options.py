"""A request to the planner: an operation and its options. Each option is validated, and an error names the option."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from kafka_steward.assignment import BALANCING_OPERATIONS, EVEN_OPERATIONS, OPERATIONS, Operation
from kafka_steward.errors import PlanError
from kafka_steward.service_topics import INTERNAL_TOPICS, SERVICE_TOPICS, matches_any, split_topics

_SETS_FACTOR = frozenset({Operation.SET_REPLICATION_FACTOR})
_REQUIRED = {
    Operation.SET_REPLICATION_FACTOR: ("replication_factor", "topics"),
    Operation.APPLY: ("reassignment",),
}


def _declare_option(
    default: Any,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    items: type | None = None,
    kind: type | None = None,
    of: frozenset[str] = frozenset(OPERATIONS),
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

    #: Partitions per chunk, which is the unit of record (KIP-46's kafka.heal.chunk.size).
    chunk_size: int = _declare_option(50, low=1, high=5000)
    #: If true, a partition's replicas must be spread over the racks.
    rack_aware: bool = _declare_option(True)
    #: Brokers without a rack: no rack rule applies to them ("free"), or each is a rack of its own ("own-rack").
    rackless: str = _declare_option("free", choices=("free", "own-rack"))
    #: Plan only topics whose whole name matches one of these regular expressions. Empty means all topics. An entry that
    #: is exactly the name of a topic means this topic alone, even an internal one: it becomes one of `named_topics`.
    include: tuple[str, ...] = _declare_option((), items=str)
    #: Full names of topics to plan beside those that `include` matches, even internal ones.
    named_topics: tuple[str, ...] = _declare_option((), items=str)
    #: Plan no topic whose whole name matches one of these regular expressions.
    exclude: tuple[str, ...] = _declare_option((), items=str)
    #: Partitions that stay unchanged, as `topic-number`. Partitions that are being reassigned always stay unchanged.
    pin: tuple[str, ...] = _declare_option((), items=str)
    #: Brokers that must not receive a replica.
    exclude_brokers: tuple[int, ...] = _declare_option((), items=int)
    #: Replicas that one broker may receive at the same time. Determines the order of the moves.
    max_in_per_broker: int = _declare_option(5, low=1)
    #: Replicas that one broker may send at the same time. Determines the order of the moves.
    max_out_per_broker: int = _declare_option(5, low=1)
    #: Throttle in bytes per second into one broker, used for the predicted duration. 0 means unthrottled, without a
    #: prediction.
    throttle: int = _declare_option(50_000_000, low=0)

    #: If true, Kafka's internal topics and the service topics take part.
    internal_topics: bool = _declare_option(False, of=BALANCING_OPERATIONS)
    #: Regular expressions of topics that, like Kafka's internal ones, take no part.
    service_topics: tuple[str, ...] = _declare_option(SERVICE_TOPICS, items=str, of=BALANCING_OPERATIONS)
    #: Quantity to balance: the number of replicas, also per topic ("replicas"), the bytes on the brokers' disks
    #: ("bytes"), or nothing but the racks of the partitions that break the rack rule ("racks", only for a rebalance).
    balance: str = _declare_option("replicas", choices=("replicas", "bytes", "racks"), of=EVEN_OPERATIONS)
    #: Tolerance around a broker's share of the bytes, as a fraction.
    tolerance: float = _declare_option(0.05, low=0, high=1, of=EVEN_OPERATIONS)
    #: Goal that comes first: leaders that stay ("leader-stability"), or an even failover ("isr-order", KAFKA-19048's
    #: ranking), for which leaders change.
    prefer: str = _declare_option("leader-stability", choices=("leader-stability", "isr-order"), of=EVEN_OPERATIONS)
    #: Maximum number of replicas to move. Moves that improve most come first; later plans continue from there.
    max_moves: int | None = _declare_option(None, low=1, kind=int, of=EVEN_OPERATIONS)
    #: Maximum number of bytes to move. Moves that improve most come first; later plans continue from there.
    max_bytes: int | None = _declare_option(None, low=1, kind=int, of=EVEN_OPERATIONS)
    #: Replication factor that the named topics are to have.
    replication_factor: int = _declare_option(0, low=1, high=1000, of=_SETS_FACTOR)
    #: Full names of the topics that are to have `replication_factor`.
    topics: tuple[str, ...] = _declare_option((), items=str, of=_SETS_FACTOR)
    #: Reassignment to apply, in the format of `kafka-reassign-partitions`.
    reassignment: Mapping[str, Any] = _declare_option({}, of=frozenset({Operation.APPLY}))

    @classmethod
    def of(cls, operation: Operation, given: Mapping[str, Any]) -> Options:
        """Return validated options from user input.

        Raises PlanError that names the option that is unknown, missing or invalid.
        """
        known = {option.name: option.metadata for option in fields(cls) if operation in option.metadata["of"]}
        for name in given:
            if name not in known:
                raise PlanError(
                    _suggestion_message(name, list(known), f"The operation {operation.value} has no option {name!r}")
                )
        for name in _REQUIRED.get(operation, ()):
            if not given.get(name):
                raise PlanError(f"The operation {operation.value} needs the option {name}.")
        chosen = cls(**{name: _check_value(name, value, known[name]) for name, value in given.items()})
        if chosen.balance == "racks" and (operation is not Operation.REBALANCE or not chosen.rack_aware):
            raise PlanError(
                "The option balance is 'racks', which is only for the operation rebalance, with rack_aware; change one "
                "of them."
            )
        return chosen

    @property
    def has_budget(self) -> bool:
        """Return True if a budget may leave moves to later plans."""
        return self.max_moves is not None or self.max_bytes is not None

    @property
    def leaves_uneven(self) -> bool:
        """Return True if an even operation does not make every topic and the whole cluster even."""
        return self.has_budget or self.balance != "replicas" or bool(self.exclude_brokers)

    def with_topics(self, known: Collection[str], operation: Operation) -> Options:
        """Return these options for a cluster with these topics, with the full names in `include` as `named_topics`.

        Raises PlanError if topics are asked for, and none of the cluster's takes part.
        """
        patterns, named = split_topics(self.include, known)
        chosen = replace(self, include=patterns, named_topics=tuple(sorted({*self.named_topics, *named})))
        if self.include and not any(chosen.takes(topic, operation) for topic in known):
            raise PlanError(no_topic_message(self.include, known, self.exclude))
        return chosen

    def takes(self, topic: str, operation: Operation) -> bool:
        """Return True if a topic takes part in the plan."""
        if matches_any(topic, self.exclude):
            return False
        if topic in self.named_topics:
            return True
        if operation in BALANCING_OPERATIONS and not self.internal_topics and self._is_reserved(topic):
            return False
        return not (self.include or self.named_topics) or matches_any(topic, self.include)

    def _is_reserved(self, topic: str) -> bool:
        """Return True for a topic that takes part only if asked. To repair racks, internal topics are as any other."""
        return (topic in INTERNAL_TOPICS and self.balance != "racks") or matches_any(topic, self.service_topics)

    def with_excluded(self, brokers: Collection[int]) -> Options:
        """Return these options with `brokers` excluded from receiving replicas: the cordoned brokers (KIP-1066)."""
        return replace(self, exclude_brokers=tuple(sorted({*self.exclude_brokers, *brokers}))) if brokers else self

    def to_json(self, operation: Operation) -> dict[str, Any]:
        """Return every option that the operation takes, defaults included, as JSON values. The digest covers them."""
        taken = {option.name for option in fields(self) if operation in option.metadata["of"]}
        values = {name: value for name, value in asdict(self).items() if name in taken}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def no_topic_message(asked: Collection[str], known: Collection[str], exclude: Collection[str]) -> str:
    """Return why none of the `known` topics that match `asked` takes part, and what to do."""
    names = ", ".join(asked)
    found = sorted(topic for topic in known if topic in asked or matches_any(topic, asked))
    if not found:
        return f"No topic has a full name that matches {names}; correct topics."
    left = [topic for topic in found if not matches_any(topic, exclude)]
    if not left:
        return f"Each topic that matches {names} is left out by exclude; correct one of them."
    own = "Kafka's own topics" if left[0] in INTERNAL_TOPICS else "the service topics"
    which = f"{left[0]} is one of" if len(left) == 1 else f"{left[0]} and {len(left) - 1} more are among"
    return f"{which} {own}; switch internal_topics on."


def find_operation(name: str) -> Operation:
    """Return the operation that the planner has by that name. Raises PlanError that suggests the one probably meant."""
    planned = [operation.value for operation in Operation if OPERATIONS[operation].rule]
    if name not in planned:
        raise PlanError(_suggestion_message(name, planned, f"There is no operation {name!r}"))
    return Operation(name)


def _suggestion_message(name: str, known: list[str], message: str) -> str:
    near = difflib.get_close_matches(name, known, 1)
    return f"{message}; did you mean {near[0]}?" if near else f"{message}; there are {', '.join(known)}."


def _check_value(name: str, value: Any, facts: Mapping[str, Any]) -> Any:
    if value is None and facts["default"] is None:
        return None
    if facts["items"] is not None:
        return _check_items(name, value, facts["items"])
    if not _is_of_type(value, facts["kind"]):
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


def _is_of_type(value: Any, kind: type) -> bool:
    if isinstance(value, bool):
        return kind is bool
    # NaN would pass every bound check.
    return isinstance(value, (int, float)) and math.isfinite(value) if kind is float else isinstance(value, kind)


def _check_items(name: str, value: Any, kind: type) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)) or not all(_is_of_type(item, kind) for item in value):
        raise PlanError(f"The option {name} is {value!r}; it takes a list of {_KINDS[kind].split()[-1]}s.")
    if name in ("include", "exclude", "service_topics"):
        for pattern in value:
            _compile_pattern(name, pattern)
    return tuple(value)


def _compile_pattern(name: str, pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise PlanError(f"The option {name} holds {pattern!r}, which is not a regular expression: {error}.") from error
