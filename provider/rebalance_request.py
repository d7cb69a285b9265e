"""The form of a rebalance: its fields, and the rules between them. Light, because DAG files import it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kafka_steward.assignment import Operation
from kafka_steward.errors import RequestError, SettingError
from kafka_steward.planning.options import GIVEN_OPTIONS
from kafka_steward.value_parsing import parse_broker_ids, shorten_value

if TYPE_CHECKING:
    from typing import Self

#: The operations of a rebalance, as named in its form.
REBALANCE_OPERATIONS = (
    *("rebalance", "expand", "drain", "relieve"),
    *("set-replication-factor", "leaders", "demote", "promote"),
)

#: The fields of the form that define the plan.
REQUEST_FIELDS = ("operation", "brokers", *GIVEN_OPTIONS)

_WITH_BUDGET = tuple(operation for operation in REBALANCE_OPERATIONS if operation in GIVEN_OPTIONS["max_moves"].of)
#: The operations that are about brokers; a demotion without any is of those that are demoted already.
_NEEDS_BROKERS = (Operation.DRAIN.value, Operation.PROMOTE.value)
#: The one operation that takes a value of `balance`.
_ONLY_FOR = {"racks": Operation.REBALANCE.value, "none": Operation.DRAIN.value}
_TAKES_BROKERS = (*_NEEDS_BROKERS, Operation.DEMOTE.value)


@dataclass(frozen=True, slots=True)
class RebalanceRequest:
    """The fields of the form: the operation, the brokers that it is about, and the options that are set, by name.

    The options `topics` and `exclude` are regular expressions of names. One of `topics` that is exactly a topic's name
    means this topic alone.
    """

    operation: str
    brokers: Sequence[int] = ()
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Return the request with these fields; an empty list may be None, and brokers may be text such as "3, 4".

        Raises SettingError for an unknown field, and for brokers that are none.
        """
        for name in given:
            if name not in REQUEST_FIELDS:
                raise SettingError(f"Unknown rebalance option {name!r}. Valid options: {', '.join(REQUEST_FIELDS)}.")
        options = {
            name: parse_broker_ids(given[name]) if option.items is int else given[name]
            for name, option in GIVEN_OPTIONS.items()
            if given.get(name) is not None
        }
        return cls(
            given["operation"],
            tuple(parse_broker_ids(given.get("brokers"))),
            {name: value for name, value in options.items() if value or not GIVEN_OPTIONS[name].items},
        )

    @property
    def topics(self) -> Sequence[str]:
        """The regular expressions of the topics to plan; empty for all."""
        patterns: Sequence[str] = self.options.get("topics", ())
        return patterns

    @property
    def exclude(self) -> Sequence[str]:
        """The regular expressions of the topics to leave out."""
        patterns: Sequence[str] = self.options.get("exclude", ())
        return patterns

    def validate(self) -> None:
        """Raise RequestError for invalid or conflicting fields; the cluster is not considered."""
        factor = Operation.SET_REPLICATION_FACTOR.value
        self._validate_brokers()
        given = self.options.get
        compile_patterns(self.topics)
        compile_patterns(self.exclude)
        if self.operation not in REBALANCE_OPERATIONS:
            raise RequestError(
                f"There is no operation {self.operation!r}; there are {', '.join(REBALANCE_OPERATIONS)}."
            )
        if (self.operation == factor) != bool(given("replication_factor")):
            wrong = "Give the replication_factor to set." if self.operation == factor else ""
            raise RequestError(wrong or self._wrong_operation_message("replication_factor", factor))
        if self.operation == factor and not self.topics:
            raise RequestError("Name the topics whose replication factor is to be set; .* is all of them.")
        if self.operation not in _WITH_BUDGET and (given("max_moves") or given("max_bytes")):
            raise RequestError(self._wrong_operation_message("max_moves or max_bytes", ", ".join(_WITH_BUDGET)))
        only = _ONLY_FOR.get(str(given("balance")), self.operation)
        if self.operation != only:
            raise RequestError(self._wrong_operation_message(f"balance, with the value {given('balance')},", only))
        if str(given("topic_spread") or 1) != "1" and given("balance") not in (None, "replicas"):
            raise RequestError("topic_spread is about numbers of replicas; let balance be replicas, or topic_spread 1.")

    def _validate_brokers(self) -> None:
        if self.operation in _NEEDS_BROKERS and not self.brokers:
            raise RequestError(f"Name the brokers to {self.operation}.")
        if self.brokers and self.operation in REBALANCE_OPERATIONS and self.operation not in _TAKES_BROKERS:
            raise RequestError(self._wrong_operation_message("brokers", ", ".join(_TAKES_BROKERS)))

    def _wrong_operation_message(self, field: str, operation: str) -> str:
        return (
            f"The field {field} is only for {operation}, and the operation is {self.operation}; leave the field "
            "empty, or change the operation."
        )


def compile_patterns(patterns: Collection[Any]) -> list[re.Pattern[str]]:
    """Return the compiled regular expressions of topic names. Raises RequestError for an invalid one."""
    wrong = [pattern for pattern in patterns if not isinstance(pattern, str)]
    if wrong or isinstance(patterns, str):
        raise RequestError(
            f'topics or exclude is {shorten_value(patterns)}; it takes a list of texts, such as ["orders", "logs-.*"].'
        )
    try:
        return [re.compile(pattern) for pattern in patterns]
    except re.error as error:
        raise RequestError(
            f"{error.pattern!r} is not a regular expression: {error}; correct topics or exclude."
        ) from error
