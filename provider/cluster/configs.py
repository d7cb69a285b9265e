"""Requests that read topic and broker configurations with their source, and change one key at a time (KIP-339). No I/O.

A value can be set on the topic or broker itself, or come from the cluster's defaults or a file. A client that changes a
value temporarily has to know the source: a value that was not set before is deleted afterwards, not set to the default.

`RecentConfigChanges` recognizes topic settings that a broker shows from before a change of ours. A KRaft broker answers
from the metadata that it has fetched, a moment after the controller has accepted a change. A list of throttled replicas
that is decided on such a value would keep entries that should have been removed, or would be left empty instead of
deleted. A ZooKeeper-mode broker reads settings from ZooKeeper, and shows no old ones.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeAlias

from kafka.protocol.admin import DescribeConfigsRequest, IncrementalAlterConfigsRequest

from kafka_steward.cluster import requests
from kafka_steward.errors import KafkaRefused, KafkaTimeout

TOPIC, BROKER = 2, 4
#: DescribeConfigs' sources: DYNAMIC_TOPIC_CONFIG, DYNAMIC_BROKER_CONFIG, DYNAMIC_DEFAULT_BROKER_CONFIG,
#: STATIC_BROKER_CONFIG.
_ON_TOPIC, _ON_BROKER, _FOR_ALL_BROKERS, _IN_FILE = 1, 2, 3, 4
#: The sources that mean "set on this very resource".
_OWN_SOURCES = frozenset({_ON_TOPIC, _ON_BROKER})
#: A rate that Kafka applies, a number of 64 bits. Kafka shows it with the spaces with which it was set.
_RATE = re.compile(r"\s*\+?([0-9]{1,19})\s*")


class ConfigOp(IntEnum):
    """The operation on a configuration key, by Kafka's code."""

    SET = 0
    #: Reset the key to the default.
    DELETE = 1
    #: Add comma-separated entries to a list; existing entries are not duplicated.
    APPEND = 2
    #: Remove entries from a list; missing entries are not an error.
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """One change to one key. `value` is None for DELETE only."""

    name: str
    op: ConfigOp
    value: str | None = None


@dataclass(frozen=True, slots=True)
class BrokerRate:
    """A broker's rate in whole bytes per second: its `own`, and the one `inherited` without that. None means unset.

    The one `in_file`, server.properties, is shown by Kafka, and not applied to replication.
    """

    own: str | None = None
    inherited: str | None = None
    in_file: str | None = None


def parse_list(value: str | None) -> tuple[str, ...]:
    """Return the entries of a list as Kafka stores it, a comma-separated string."""
    return tuple(entry.strip() for entry in (value or "").split(",") if entry.strip())


def describe_configs_request(
    kind: int, names: Collection[str], keys: Collection[str], *, synonyms: bool = False
) -> Any:
    """Return the request that reads `keys` of the resources `names`, with `synonyms` also values that others hide."""
    return DescribeConfigsRequest(
        resources=[(kind, name, sorted(keys)) for name in names], include_synonyms=synonyms, include_documentation=False
    )


def parse_config_values(
    response: Any, *, own_only: bool, missing: Collection[int] = frozenset()
) -> dict[str, dict[str, str]]:
    """Return values by resource and key; leave out keys without a value, and resources with an error in `missing`."""
    return {
        name: {
            str(entry.name): str(entry.value)
            for entry in entries
            if entry.value is not None and (not own_only or entry.config_source in _OWN_SOURCES)
        }
        for name, entries in _described_entries(response, missing).items()
    }


def parse_broker_rate(response: Any, key: str, *, defaults_apply: bool) -> BrokerRate:
    """Return the rate `key` of the one broker in the response to a request with `synonyms`.

    Without `defaults_apply`, the value that is set for all brokers is left out. A value that is no rate counts as
    unset.
    """
    (entries,) = _described_entries(response).values()
    of_key = [entry for entry in entries if entry.name == key]
    shown = {entry.config_source: entry.value for entry in of_key}
    # The synonyms of an entry are the values that its own one hides, each with its source.
    shown |= {
        synonym.source: synonym.value for entry in of_key for synonym in entry.synonyms or () if synonym.name == key
    }
    inherited = shown.get(_FOR_ALL_BROKERS) if defaults_apply else None
    return BrokerRate(*map(_parse_rate, (shown.get(_ON_BROKER), inherited, shown.get(_IN_FILE))))


def _parse_rate(value: Any) -> str | None:
    matched = _RATE.fullmatch(str(value))
    return str(int(matched[1])) if matched else None


def _described_entries(response: Any, missing: Collection[int] = frozenset()) -> dict[str, Any]:
    """Return the entries by resource; leave out resources with an error in `missing`. Raises KafkaRefused."""
    entries = {}
    for result in response.results:
        name, code = str(result.resource_name), int(result.error_code)
        if code and code not in missing:
            raise requests.refusal_error(code, result.error_message, f"reading the settings of {name}")
        if not code:
            entries[name] = result.configs
    return entries


def change_configs_request(
    kind: int, changes: Mapping[str, Sequence[ConfigChange]], *, validate_only: bool = False
) -> Any:
    """Return the request that performs `changes`, by resource; with `validate_only` Kafka checks them alone."""
    resources = [
        (kind, name, [(change.name, int(change.op), change.value) for change in resource_changes])
        for name, resource_changes in changes.items()
    ]
    return IncrementalAlterConfigsRequest(resources=resources, validate_only=validate_only)


def parse_config_changes(response: Any) -> dict[str, KafkaRefused | None]:
    """Return None, or Kafka's refusal, by resource. Raises KafkaTimeout when a change was not confirmed in time."""
    outcomes = {
        str(result.resource_name): (int(result.error_code), result.error_message) for result in response.responses
    }
    late = sorted(name for name, (code, _) in outcomes.items() if code == requests.TIMED_OUT)
    if late:
        raise KafkaTimeout(
            f"Kafka did not confirm the changed settings of {late[0]} in time (request_timeout_ms); read them before "
            "changing them again."
        )
    return {
        name: requests.refusal_error(code, message, f"changing the settings of {name}") if code else None
        for name, (code, message) in outcomes.items()
    }


def are_changes_shown(changes: Sequence[ConfigChange], values: Mapping[str, str]) -> bool:
    """Return whether a broker's own `values` show its changes; changes of lists are not compared."""
    wanted = {change.name: change.value for change in changes if change.op in {ConfigOp.SET, ConfigOp.DELETE}}
    return all(values.get(name) == value for name, value in wanted.items())


#: Seconds that a broker may need until it shows an accepted change. Another value after that time is another client's.
SHOWN_WITHIN_S = 5.0

#: A topic, and the name of a setting.
_Key: TypeAlias = tuple[str, str]


class RecentConfigChanges:
    """The changes to topics' settings that Kafka has accepted from one client. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._changes: dict[_Key, list[tuple[ConfigChange, float]]] = {}

    def on_accepted(self, topic: str, changes: Sequence[ConfigChange], now_s: float) -> None:
        """Record changes to one topic, in the order in which Kafka has made them."""
        for change in changes:
            self._changes.setdefault((topic, change.name), []).append((change, now_s))

    def find_stale(self, values: Mapping[str, Mapping[str, str]], names: Iterable[str], now_s: float) -> list[str]:
        """Return the topics whose `values`, by topic and setting, are from before one of the changes, sorted.

        `values` are the topics' own settings `names`; one that is absent is not set.
        """
        # A change that is older has been shown by now: another value is of another client.
        in_time = {
            key: [(change, at_s) for change, at_s in changes if now_s - at_s < SHOWN_WITHIN_S]
            for key, changes in self._changes.items()
        }
        self._changes = {key: changes for key, changes in in_time.items() if changes}
        asked = set(names)
        return sorted(
            {
                topic
                for (topic, name), recent in self._changes.items()
                if topic in values and name in asked and not _is_shown(recent, values[topic].get(name))
            }
        )


def _is_shown(recent: Sequence[tuple[ConfigChange, float]], value: str | None) -> bool:
    """Return whether `value` may be a setting's value after the `recent` changes.

    APPEND and SUBTRACT determine only single entries of a list. SET and DELETE determine the whole value.
    """
    whole: str | None = None
    replaced, present = False, dict[str, bool]()
    for change, _ in recent:
        if change.op in {ConfigOp.SET, ConfigOp.DELETE}:
            whole, replaced, present = change.value, True, {}
        else:
            present |= dict.fromkeys(parse_list(change.value), change.op is ConfigOp.APPEND)
    if replaced and not present:
        return value == whole
    shown = set(parse_list(value))
    return all((entry in shown) is wanted for entry, wanted in present.items())
