"""A topic's setting that a broker shows from before a change of ours is not taken for what another client has set."""

from __future__ import annotations

import pytest

from kafka_steward.cluster.config_freshness import SHOWN_WITHIN_S, RecentConfigChanges
from kafka_steward.cluster.configs import ConfigChange, ConfigOp

KEY = "follower.replication.throttled.replicas"
SET = ConfigChange(KEY, ConfigOp.SET, "0:1")
DELETE = ConfigChange(KEY, ConfigOp.DELETE)


def append(entries: str) -> ConfigChange:
    return ConfigChange(KEY, ConfigOp.APPEND, entries)


def subtract(entries: str) -> ConfigChange:
    return ConfigChange(KEY, ConfigOp.SUBTRACT, entries)


@pytest.mark.parametrize(
    ("changes", "shown", "stale"),
    [
        ([SET], "0:1", False),
        ([SET], None, True),
        ([SET], "0:2", True),
        ([DELETE], None, False),
        ([DELETE], "0:1", True),
        ([append("0:1,1:1")], "0:1,1:1", False),
        ([append("0:1,1:1")], "5:5,1:1,0:1", False),
        ([append("0:1,1:1")], "0:1", True),
        ([append("0:1")], None, True),
        ([subtract("0:1")], "1:1", False),
        ([subtract("0:1")], "", False),
        ([subtract("0:1")], None, False),
        ([subtract("0:1")], "0:1,1:1", True),
        ([append("0:1"), subtract("1:1")], "0:1", False),
        ([append("0:1"), subtract("1:1")], "0:1,1:1", True),
        ([append("0:1"), subtract("0:1")], "", False),
        ([append("0:1"), subtract("0:1")], "0:1", True),
        ([append("0:1"), DELETE], None, False),
        ([append("0:1"), DELETE], "0:1", True),
        ([DELETE, append("0:2")], "0:2", False),
        ([DELETE, append("0:2")], None, True),
        ([SET, DELETE], "0:1", True),
    ],
)
def test_what_a_broker_shows_is_stale_unless_it_shows_every_change(
    changes: list[ConfigChange], shown: str | None, stale: bool
) -> None:
    recent = RecentConfigChanges()
    for number, change in enumerate(changes):
        recent.on_accepted("t", [change], number / 100)
    values = {"t": {} if shown is None else {KEY: shown}, "other": {}}
    assert recent.find_stale(values, [KEY], 1) == (["t"] if stale else [])
    assert recent.find_stale(values, ["min.insync.replicas"], 1) == [], "only what is asked for"
    assert recent.find_stale({"other": {}}, [KEY], 1) == [], "a topic that is gone has nothing to show"


def test_what_is_not_shown_after_a_while_was_changed_by_another_client() -> None:
    recent = RecentConfigChanges()
    recent.on_accepted("t", [append("0:1")], 100)
    assert recent.find_stale({"t": {}}, [KEY], 100 + SHOWN_WITHIN_S - 0.1) == ["t"]
    assert recent.find_stale({"t": {}}, [KEY], 100 + SHOWN_WITHIN_S) == []
    assert recent.find_stale({"t": {}}, [KEY], 100) == [], "what was forgotten takes no memory"
