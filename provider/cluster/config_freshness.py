"""Recognition of topic settings that a broker shows from before a change of ours. No I/O; the clock is the caller's.

A KRaft broker answers from the metadata that it has fetched, a moment after the controller has accepted a change: it
may show a setting as it was before. A list of throttled replicas that is decided on such a value keeps entries that
should have been removed, or is left empty instead of deleted. A ZooKeeper-mode broker reads settings from ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from kafka_steward.cluster.configs import ConfigChange, ConfigOp, parse_list

#: Seconds that a broker may need until it shows an accepted change. Afterwards another client has changed the setting.
SHOWN_WITHIN_S = 5.0

#: Topic and setting.
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
        self._forget(now_s)
        asked = set(names)
        return sorted(
            {
                topic
                for (topic, name), recent in self._changes.items()
                if topic in values and name in asked and not _is_shown(recent, values[topic].get(name))
            }
        )

    def _forget(self, now_s: float) -> None:
        kept = {
            key: [each for each in recent if now_s - each[1] < SHOWN_WITHIN_S] for key, recent in self._changes.items()
        }
        self._changes = {key: recent for key, recent in kept.items() if recent}


def _is_shown(recent: Sequence[tuple[ConfigChange, float]], value: str | None) -> bool:
    """Return whether `value` is a setting's after all of these changes, as far as they tell.

    Of a list, they tell which entries are present and which are absent, and after a SET or DELETE the whole.
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
