"""Declare and validate the options of a request to the planner. An error names the option that is wrong."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from kafka_steward.assignment import BALANCING_OPERATIONS, EVEN_OPERATIONS, OPERATIONS, REORDERING_OPERATIONS, Operation
from kafka_steward.errors import PlanError
from kafka_steward.service_topics import INTERNAL_TOPICS, SERVICE_TOPICS, matches_any, split_topics
from kafka_steward.value_parsing import Option

_SETS_FACTOR = frozenset({Operation.SET_REPLICATION_FACTOR})
_PLACES_REPLICAS = frozenset(OPERATIONS) - REORDERING_OPERATIONS
_HAS_BUDGET = EVEN_OPERATIONS | {Operation.RELIEVE}
#: The options without which an operation cannot be planned.
REQUIRED: Mapping[Operation, tuple[str, ...]] = {
    Operation.SET_REPLICATION_FACTOR: ("replication_factor", "topics"),
    Operation.PROMOTE: ("promote",),
    Operation.APPLY: ("reassignment",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerOption(Option):
    """An option of the planner: the operations that take it, and where a user may give it.

    One without a `section` is in no form, and one without a `flag` not on the command line.
    """

    of: frozenset[str] = frozenset(OPERATIONS)
    #: The type of the values of a list.
    items: type | None = None
    #: The type of a value whose default is None.
    value_type: type | None = None
    #: The part of the form of a rebalance that has it; the first part has no title.
    section: str | None = None
    flag: str | None = None
    #: The name that users know it by, if it is another one.
    given_as: str = ""
    #: What the form says of an empty field.
    when_empty: str = ""
    #: The defaults of operations for which it is another one.
    defaults_of: Mapping[str, Any] = field(default_factory=dict)
    #: True for a number of bytes, which the command line also takes as 50G.
    in_bytes: bool = False
    #: True if every verb that plans takes the flag, even one whose operation does what the option asks for anyway.
    in_every_verb: bool = False

    @property
    def kind(self) -> type:
        """The type of its values in Python."""
        return self.value_type or type(self.default)

    def default_of(self, operation: str) -> Any:
        """Return the default for an operation."""
        return self.defaults_of.get(operation, self.default)


def _declare_option(default: Any, description: str = "", **facts: Any) -> Any:
    option = PlannerOption(default=default, description=description, **facts)
    if isinstance(default, dict):
        return field(default_factory=dict, metadata={"option": option})
    return field(default=default, metadata={"option": option})


_FIRST, _GOALS, _BUDGET = "", "Goals", "Budget"


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a plan. Construct through `Options.of`, which validates.

    A new option is declared here alone: the fields of the form of a rebalance, the arguments of the verbs that plan,
    and the way of both to the planner are made of this, in this order. The solver, and the checker, read it.
    """

    replication_factor: int = _declare_option(
        0, "Replicas of each partition.", low=1, high=1000, of=_SETS_FACTOR, section=_FIRST, flag="--factor"
    )
    #: An entry that is exactly the name of a topic becomes one of `named_topics`.
    include: tuple[str, ...] = _declare_option(
        (),
        "Only topics whose full name matches one of these regular expressions; a full name means this topic alone, "
        "even an internal one.",
        items=str,
        section=_FIRST,
        flag="--topics",
        given_as="topics",
        when_empty="all",
    )
    exclude: tuple[str, ...] = _declare_option(
        (),
        "No topic whose full name matches one of these regular expressions.",
        items=str,
        section=_FIRST,
        flag="--exclude",
    )
    exclude_brokers: tuple[int, ...] = _declare_option(
        (),
        "Ids of brokers that must not receive a replica.",
        items=int,
        of=_PLACES_REPLICAS,
        section=_FIRST,
        flag="--exclude-brokers",
    )
    rack_aware: bool = _declare_option(True, "Spread replicas over the racks.", of=_PLACES_REPLICAS, section=_GOALS)
    rackless: str = _declare_option(
        "free",
        "Brokers without a rack. free: a fair share, and no partition is spread worse. own-rack: each a rack.",
        choices=("free", "own-rack"),
        of=_PLACES_REPLICAS,
        section=_GOALS,
    )
    #: The number of replicas is balanced also per topic.
    balance: str = _declare_option(
        "replicas",
        "The measure to balance: the number of replicas, or the bytes on the disks; load: these and the bytes that "
        "producers bring, at once. racks, only for rebalance: only partitions move that are not spread over the racks "
        "as well as can be. none, only for drain: only what is on the drained brokers moves, and nothing else.",
        choices=("replicas", "bytes", "load", "racks", "none"),
        defaults_of={Operation.DRAIN: "none"},
        of=EVEN_OPERATIONS,
        section=_GOALS,
        flag="--balance",
    )
    topic_spread: str = _declare_option(
        "1",
        "How even each topic is to be: 1, as even as can be; 2, a broker may hold one replica of a topic more or less "
        "than that, and so on; any, only the whole cluster is to be even. The wider, the fewer replicas move.",
        choices=("1", "2", "3", "4", "5", "any"),
        of=EVEN_OPERATIONS,
        section=_GOALS,
        flag="--topic-spread",
    )
    compare_spreads: bool = _declare_option(
        False,
        "Work out what each topic_spread would move above 30,000 partitions, too: each takes as long as a plan.",
        of=EVEN_OPERATIONS,
        section=_GOALS,
        flag="--compare-spreads",
    )
    max_used: float = _declare_option(
        0.85,
        "The fraction of each log directory's volume that may be used; what is beyond it moves to other brokers.",
        low=0,
        high=1,
        of=frozenset({Operation.RELIEVE}),
        section=_GOALS,
        flag="--max-used",
    )
    tolerance: float = _declare_option(
        0.05,
        "Accepted deviation of a broker from its share of the bytes, or of the load, as a fraction.",
        low=0,
        high=1,
        of=EVEN_OPERATIONS,
        section=_GOALS,
        flag="--tolerance",
    )
    #: An even failover is KAFKA-19048's ranking.
    prefer: str = _declare_option(
        "leader-stability",
        "The goal that comes first: leaders that stay, or an even failover, for which leaders change.",
        choices=("leader-stability", "isr-order"),
        of=EVEN_OPERATIONS,
        section=_GOALS,
        flag="--prefer",
    )
    internal_topics: bool = _declare_option(
        False,
        "Include Kafka's internal topics and the service topics; a heal, a fill and a drain always do, and racks the "
        "internal ones.",
        of=BALANCING_OPERATIONS,
        section=_GOALS,
        flag="--internal-topics",
        in_every_verb=True,
    )
    #: Moves that improve most come first; later plans continue from there.
    max_moves: int | None = _declare_option(
        None,
        "The most replicas to move.",
        low=1,
        value_type=int,
        of=_HAS_BUDGET,
        section=_BUDGET,
        flag="--max-moves",
        when_empty="no limit",
    )
    max_bytes: int | None = _declare_option(
        None,
        "The most bytes to move.",
        low=1,
        value_type=int,
        of=_HAS_BUDGET,
        section=_BUDGET,
        flag="--max-bytes",
        when_empty="no limit; in a scheduled run, a tenth of the cluster's bytes",
        in_bytes=True,
    )

    # The options that no user gives by name: they come from the settings, the cluster, or other fields.

    #: Partitions per chunk, which is the unit of record (KIP-46's kafka.heal.chunk.size).
    chunk_size: int = _declare_option(50, low=1, high=5000)
    #: Full names of topics to plan beside those that `include` matches, even internal ones.
    named_topics: tuple[str, ...] = _declare_option((), items=str)
    #: The brokers to demote, beside those that are demoted already.
    demote: tuple[int, ...] = _declare_option((), items=int, of=frozenset({Operation.DEMOTE}))
    #: The demoted brokers that are to lead again.
    promote: tuple[int, ...] = _declare_option((), items=int, of=frozenset({Operation.PROMOTE}))
    #: Partitions that stay unchanged, as `topic-number`. Partitions that are being reassigned always stay unchanged.
    pin: tuple[str, ...] = _declare_option((), items=str)
    #: Replicas that one broker may receive at the same time. Determines the order of the moves.
    max_in_per_broker: int = _declare_option(5, low=1)
    #: Replicas that one broker may send at the same time. Determines the order of the moves.
    max_out_per_broker: int = _declare_option(5, low=1)
    #: Throttle in bytes per second into one broker, used for the predicted duration. 0 means unthrottled, without a
    #: prediction.
    throttle: int = _declare_option(50_000_000, low=0)
    #: The most bytes per second that `balance="load"` brings into the replicas of one broker; 0 means no limit.
    network_bandwidth: int = _declare_option(0, low=0, of=EVEN_OPERATIONS)
    #: Regular expressions of topics that, like Kafka's internal ones, take no part in a rebalance or an expand.
    service_topics: tuple[str, ...] = _declare_option(SERVICE_TOPICS, items=str)
    #: Full names of the topics that are to have `replication_factor`.
    topics: tuple[str, ...] = _declare_option((), items=str, of=_SETS_FACTOR)
    #: Reassignment to apply, in the format of `kafka-reassign-partitions`.
    reassignment: Mapping[str, Any] = _declare_option({}, of=frozenset({Operation.APPLY}))

    @classmethod
    def of(cls, operation: Operation, given: Mapping[str, Any]) -> Options:
        """Return validated options from user input.

        Raises PlanError that names the option that is unknown, missing or invalid.
        """
        known = {name: option for name, option in OPTIONS.items() if operation in option.of}
        for name in given:
            if name not in known:
                raise PlanError(
                    _suggestion_message(name, list(known), f"The operation {operation.value} has no option {name!r}")
                )
        for name in REQUIRED.get(operation, ()):
            if not given.get(name):
                raise PlanError(f"The operation {operation.value} needs the option {name}.")
        values = {name: _check_value(name, value, known[name]) for name, value in given.items()}
        if "balance" in known and values.get("topic_spread", "1") == "1":
            # Who says how even the topics are to be asks for evenness.
            values.setdefault("balance", known["balance"].default_of(operation))
        chosen = cls(**values)
        chosen._refuse_wrong_balance(operation)
        return chosen

    def _refuse_wrong_balance(self, operation: Operation) -> None:
        """Raise PlanError for a measure of balance that the operation, or another option, contradicts."""
        if self.balance == "racks" and (operation is not Operation.REBALANCE or not self.rack_aware):
            raise PlanError(
                "The option balance is 'racks', which is only for the operation rebalance, with rack_aware; change one "
                "of them."
            )
        if self.balance == "none" and operation is not Operation.DRAIN:
            raise PlanError("The option balance is 'none', which is only for the operation drain; change one of them.")
        if self.topic_spread != "1" and self.balance != "replicas":
            raise PlanError(
                f"The option topic_spread is {self.topic_spread!r}, which is about numbers of replicas, and balance "
                f"is {self.balance!r}; change one of them."
            )

    @property
    def has_budget(self) -> bool:
        """Return True if a budget may leave moves to later plans."""
        return self.max_moves is not None or self.max_bytes is not None

    @property
    def balances_bytes(self) -> bool:
        """Return True if an even operation balances the bytes of brokers, whatever the number of replicas."""
        return self.balance in ("bytes", "load")

    @property
    def topic_slack(self) -> int | None:
        """How far a broker may be beyond its share of a topic, in replicas; None without a limit."""
        return None if self.topic_spread == "any" else int(self.topic_spread) - 1

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
        if operation in BALANCING_OPERATIONS and not self.internal_topics:
            # The repair of racks treats Kafka's internal topics like any other.
            internal = topic in INTERNAL_TOPICS and self.balance != "racks"
            if internal or matches_any(topic, self.service_topics):
                return False
        return not (self.include or self.named_topics) or matches_any(topic, self.include)

    def with_excluded(self, brokers: Collection[int]) -> Options:
        """Return these options with `brokers` excluded from receiving replicas: the cordoned brokers (KIP-1066)."""
        return replace(self, exclude_brokers=tuple(sorted({*self.exclude_brokers, *brokers}))) if brokers else self

    def to_json(self, operation: Operation) -> dict[str, Any]:
        """Return every option that the operation takes, defaults included, as JSON values. The digest covers them."""
        values = {name: value for name, value in asdict(self).items() if operation in OPTIONS[name].of}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


#: Every option by its name.
OPTIONS: Mapping[str, PlannerOption] = {declared.name: declared.metadata["option"] for declared in fields(Options)}

#: The options that a user gives, by the name that users know them by, in the order of the form.
GIVEN_OPTIONS: Mapping[str, PlannerOption] = {
    option.given_as or name: option for name, option in OPTIONS.items() if option.section is not None
}


def select_options(operation: Operation, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the planner's options of an operation from what a user gave by the names of GIVEN_OPTIONS.

    What is unset is left out, and so is what the operation does not take.
    """
    known = {name: option for name, option in OPTIONS.items() if option.section is not None and operation in option.of}
    values = {name: given.get(option.given_as or name) for name, option in known.items()}
    chosen = {name: value for name, value in values.items() if value is not None and value not in ((), [])}
    return {name: list(value) if known[name].items else value for name, value in chosen.items()}


def no_topic_message(asked: Collection[str], known: Collection[str], exclude: Collection[str]) -> str:
    """Return why none of the `known` topics that match `asked` takes part, and what to do."""
    names = ", ".join(asked)
    matching = sorted(topic for topic in known if topic in asked or matches_any(topic, asked))
    if not matching:
        return f"No topic has a full name that matches {names}; correct topics."
    left = [topic for topic in matching if not matches_any(topic, exclude)]
    if not left:
        return f"Each topic that matches {names} is left out by exclude; correct one of them."
    own = "Kafka's own topics" if left[0] in INTERNAL_TOPICS else "the service topics"
    which = f"{left[0]} is one of" if len(left) == 1 else f"{left[0]} and {len(left) - 1} more are among"
    return f"{which} {own}; switch internal_topics on."


def find_operation(name: str) -> Operation:
    """Return the planner's operation of that name. Raises PlanError that suggests the name that was probably meant."""
    planned = [operation.value for operation in Operation if OPERATIONS[operation].rule]
    if name not in planned:
        raise PlanError(_suggestion_message(name, planned, f"There is no operation {name!r}"))
    return Operation(name)


def _suggestion_message(name: str, known: list[str], message: str) -> str:
    near = difflib.get_close_matches(name, known, 1)
    return f"{message}; did you mean {near[0]}?" if near else f"{message}; there are {', '.join(known)}."


def _check_value(name: str, value: Any, option: PlannerOption) -> Any:
    if value is None and option.default is None:
        return None
    if option.items is not None:
        return _check_items(name, value, option.items)
    if option.choices and type(value) is int:
        # One of the words may be a number, which people write without quotes.
        value = str(value)
    refusal = option.explain_refusal(value) if _is_of_type(value, option.kind) else f"it takes {_KINDS[option.kind]}"
    if refusal:
        raise PlanError(f"The option {name} is {value!r}; {refusal}.")
    return value


_KINDS: dict[type, str] = {
    int: "a whole number",
    bool: "true or false",
    str: "a word",
    float: "a number",
    dict: "an object",
}


def _is_of_type(value: Any, kind: type) -> bool:
    # In Python, True and False are whole numbers, too.
    if isinstance(value, bool):
        return kind is bool
    # NaN would pass every bound check.
    return isinstance(value, (int, float)) and math.isfinite(value) if kind is float else isinstance(value, kind)


def _check_items(name: str, value: Any, kind: type) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)) or not all(_is_of_type(item, kind) for item in value):
        raise PlanError(f"The option {name} is {value!r}; it takes a list of {_KINDS[kind].split()[-1]}s.")
    if name in ("include", "exclude", "service_topics"):
        try:
            for pattern in value:
                re.compile(pattern)
        except re.error as error:
            raise PlanError(
                f"The option {name} holds {pattern!r}, which is not a regular expression: {error}."
            ) from error
    return tuple(value)
