"""Topic and broker configurations: read with their source, changed one key at a time (KIP-339).

A value can be set on the topic or broker itself, or come from the cluster's defaults or a file. A client that changes a
value temporarily has to know the source: a value that was not set before is deleted afterwards, not set to the default.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

from kafka.protocol.admin import DescribeConfigsRequest, IncrementalAlterConfigsRequest

from kafka_steward.cluster import requests
from kafka_steward.cluster.transport import KafkaTransport, batches
from kafka_steward.errors import ClusterError, KafkaRefused, KafkaTimeout

_TOPIC, _BROKER = 2, 4
#: DescribeConfigs' sources that mean "set on this very resource": DYNAMIC_TOPIC_CONFIG, DYNAMIC_BROKER_CONFIG.
_OWN_SOURCES = frozenset({1, 2})
#: The time-out until a broker shows a change that it has accepted, and the interval of the polls, in seconds.
_SHOWN_WITHIN_S, _POLL_S = 5.0, 0.05


class ConfigOp(str, Enum):
    """The operation on a configuration key."""

    SET = "set"
    #: Reset the key to the default.
    DELETE = "delete"
    #: Add comma-separated entries to a list; existing entries are not duplicated.
    APPEND = "append"
    #: Remove entries from a list; missing entries are not an error.
    SUBTRACT = "subtract"


_OP_CODES = {ConfigOp.SET: 0, ConfigOp.DELETE: 1, ConfigOp.APPEND: 2, ConfigOp.SUBTRACT: 3}


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """One change to one key. `value` is None for DELETE only."""

    name: str
    op: ConfigOp
    value: str | None = None


def read_topics(
    transport: KafkaTransport, topics: Collection[str], keys: Collection[str], *, own_only: bool
) -> dict[str, dict[str, str]]:
    """Return values by topic and key; leave out topics that do not or cannot exist.

    Raises KafkaRefused for any other error.
    """
    values: dict[str, dict[str, str]] = {}
    for batch in batches(list(topics)):
        response = transport.any_broker(partial(describe_request, _TOPIC, batch, keys))
        values |= parse_values(response, own_only=own_only, missing=requests.NO_SUCH_TOPIC)
    return values


def read_brokers(
    transport: KafkaTransport,
    brokers: Collection[int],
    keys: Collection[str],
    *,
    own_only: bool,
    timeout_ms: int | None = None,
) -> dict[int, dict[str, str]]:
    """Return values by broker and key, requested from each broker itself; leave out brokers that do not respond."""
    asked = {broker: partial(describe_request, _BROKER, [str(broker)], keys) for broker in brokers}
    answers = transport.responding_brokers(asked, timeout_ms=timeout_ms)
    return {broker: parse_values(answer, own_only=own_only)[str(broker)] for broker, answer in answers.items()}


def change_topics(
    transport: KafkaTransport, changes: Mapping[str, Sequence[ConfigChange]]
) -> dict[str, KafkaRefused | None]:
    """Perform `changes`; return None, or Kafka's refusal, per topic."""
    results: dict[str, KafkaRefused | None] = {}
    for batch in batches(list(changes)):
        request = partial(change_request, _TOPIC, {topic: changes[topic] for topic in batch})
        results |= parse_changes(transport.on_controller(request, change=True))
    return results


def change_brokers(
    transport: KafkaTransport, changes: Mapping[int, Sequence[ConfigChange]]
) -> dict[int, ClusterError | None]:
    """Perform `changes`, each at its own broker; return None, or the error, per broker.

    Returns when the brokers show the changes that they accepted. A broker of a ZooKeeper-mode cluster applies a change
    a moment after it accepted it, and uses the old value until then: a copy that starts immediately would not be
    throttled.
    """
    answers = transport.each_broker(
        {broker: partial(change_request, _BROKER, {str(broker): several}) for broker, several in changes.items()}
    )
    results = {
        broker: answer if isinstance(answer, ClusterError) else parse_changes(answer)[str(broker)]
        for broker, answer in answers.items()
    }
    _wait_until_shown(transport, {broker: changes[broker] for broker, error in results.items() if error is None})
    return results


def _wait_until_shown(transport: KafkaTransport, changes: Mapping[int, Sequence[ConfigChange]]) -> None:
    """Wait until the responding brokers show the changes, with a short time-out, since the changes are already made."""
    deadline = time.monotonic() + _SHOWN_WITHIN_S
    keys = {change.name for several in changes.values() for change in several}
    late = dict(changes)
    while late:
        try:
            shown = read_brokers(transport, late, keys, own_only=True, timeout_ms=int(_SHOWN_WITHIN_S * 1000))
        except KafkaRefused:
            return  # a principal that may change a setting is not necessarily allowed to read it
        late = {broker: late[broker] for broker in shown if not _shows(shown[broker], late[broker])}
        if not late or time.monotonic() >= deadline:
            return
        time.sleep(_POLL_S)


def _shows(values: Mapping[str, str], changes: Sequence[ConfigChange]) -> bool:
    wanted = {change.name: change.value for change in changes if change.op in {ConfigOp.SET, ConfigOp.DELETE}}
    return all(values.get(name) == value for name, value in wanted.items())


def describe_request(kind: int, names: Collection[str], keys: Collection[str]) -> Any:
    """Return the request that reads `keys` of the resources `names`."""
    return DescribeConfigsRequest(
        resources=[(kind, name, sorted(keys)) for name in names], include_synonyms=False, include_documentation=False
    )


def parse_values(response: Any, *, own_only: bool, missing: Collection[int] = frozenset()) -> dict[str, dict[str, str]]:
    """Return values by resource and key; leave out keys without a value, and resources with an error in `missing`."""
    values: dict[str, dict[str, str]] = {}
    for result in response.results:
        name, code = str(result.resource_name), int(result.error_code)
        if code and code not in missing:
            raise requests.refusal(code, result.error_message, f"reading the settings of {name}")
        if not code:
            values[name] = {
                str(entry.name): str(entry.value)
                for entry in result.configs
                if entry.value is not None and (not own_only or entry.config_source in _OWN_SOURCES)
            }
    return values


def change_request(kind: int, changes: Mapping[str, Sequence[ConfigChange]]) -> Any:
    """Return the request that performs `changes`, by resource."""
    resources = [
        (kind, name, [(change.name, _OP_CODES[change.op], change.value) for change in several])
        for name, several in changes.items()
    ]
    return IncrementalAlterConfigsRequest(resources=resources, validate_only=False)


def parse_changes(response: Any) -> dict[str, KafkaRefused | None]:
    """Return None, or Kafka's refusal, by resource. Raises KafkaTimeout when a change was not confirmed in time."""
    outcomes = {
        str(result.resource_name): (int(result.error_code), result.error_message) for result in response.responses
    }
    late = sorted(name for name, (code, _) in outcomes.items() if code == requests.TIMED_OUT)
    if late:
        raise KafkaTimeout(
            f"Kafka did not confirm the changed settings of {late[0]} in time; read them before changing them again."
        )
    return {
        name: requests.refusal(code, message, f"changing the settings of {name}") if code else None
        for name, (code, message) in outcomes.items()
    }
