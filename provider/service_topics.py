"""Topics of the service that runs a cluster: canaries, and those of tools beside it. Light, as the forms need it.

A canary has replicas on every broker, of its own choice. Like Kafka's own topics, such topics take no part in an even
plan, and a broker that holds nothing else is new.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Sequence

from kafka_steward.errors import SettingError

#: Kafka's internal topics.
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__share_group_state", "__transaction_state"})

#: Regular expressions of whole names: the canaries of Amazon MSK, Strimzi, KMinion and Xinfra Monitor, the topics of
#: Cruise Control, also those that Strimzi names, and that of tiered storage (KIP-405), which Kafka lists as external.
SERVICE_TOPICS = (
    "__amazon_msk_.*",
    "__strimzi.*canary",
    "kminion-end-to-end",
    "xinfra-monitor-topic",
    "__(Kafka)?CruiseControl.*",
    r"strimzi\.cruisecontrol\..*",
    "__remote_log_metadata",
)


def parse_service_topics(text: str) -> tuple[str, ...]:
    """Return the regular expressions of the setting. Raises SettingError that names an invalid one."""
    patterns = tuple(filter(None, map(str.strip, text.split(";"))))
    try:
        for pattern in patterns:
            re.compile(pattern)
    except re.error as error:
        raise SettingError(
            f"The setting service_topics has {error.pattern!r}, which is not a regular expression: {error}."
        ) from error
    return patterns


def matches_any(topic: str, patterns: Collection[str]) -> bool:
    """Return whether the whole name of a topic matches one of the regular expressions."""
    return any(pattern.fullmatch(topic) for pattern in _compile_all(tuple(patterns)))


@functools.cache
def _compile_all(patterns: tuple[str, ...]) -> tuple[re.Pattern[str], ...]:
    # `re.fullmatch` looks each one up again, which takes seconds for a million topics.
    return tuple(map(re.compile, patterns))


def split_topics(entries: Sequence[str], topics: Collection[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the entries that are regular expressions, and those that name one of `topics` in full.

    An entry that is exactly the name of a topic means that topic and no other, also if it matches others.
    """
    named = frozenset(topics).intersection(entries)
    return tuple(entry for entry in entries if entry not in named), tuple(sorted(named))
