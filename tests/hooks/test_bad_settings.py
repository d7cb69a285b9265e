"""Settings that make no sense are one sentence, wherever they are given: in code, the section, the extra, a run."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_steward.errors import SettingError
from kafka_steward.hooks.cluster_config import ConnectionFields
from kafka_steward.settings import SETTINGS, Settings
from tests.hooks.test_access import access

CAPS = ("max_in_per_broker", "max_out_per_broker", "max_in_flight", "heal_chunk_size", "max_attempts")

#: Settings that are refused together, and the sentence.
CONTRADICTIONS = [
    ({"chunk_pause": 60}, "set window to chunk, or chunk_pause to 0"),
    ({"chunk_pause": 60, "window": "sliding"}, "set window to chunk, or chunk_pause to 0"),
    ({"throttle_fraction": 0.5}, "network_bandwidth, which is not set"),
    ({"stall_after": 3}, "set stall_after to at least twice step_interval"),
]


@pytest.mark.parametrize("name", CAPS)
@pytest.mark.parametrize("value", [0, -1, "0", -(2**63)])
def test_a_cap_below_one_is_refused_from_every_source(name: str, value: object) -> None:
    sentence = rf"^The setting {name} is .*; it must be at least 1\.$"
    with pytest.raises(SettingError, match=sentence):
        Settings.of({name: value})
    with pytest.raises(SettingError, match=sentence):
        Settings.refuse_wrong({name: value})
    for given in ({"section": {name: value}}, {"overrides": {name: value}}):
        with pytest.raises(SettingError, match=sentence):
            access(ConnectionFields("kafka", host="a:9092"), **given)  # type: ignore[arg-type]
    with pytest.raises(SettingError, match=sentence):
        access(ConnectionFields("kafka", host="a:9092", extra={name: value}))


@pytest.mark.parametrize("name", CAPS)
@pytest.mark.parametrize("value", [0.5, "0.9", "", "none", None])
def test_a_cap_that_is_no_whole_number_is_refused_and_none_is_no_cap_of_zero(name: str, value: object) -> None:
    if value is None:
        assert getattr(Settings.of({name: None}), name) == SETTINGS[name].default >= 1
        return
    with pytest.raises(SettingError, match=rf"^The setting {name} is .*; it takes a whole number\.$"):
        access(ConnectionFields("kafka", host="a:9092", extra={name: value}))


@pytest.mark.parametrize(("given", "sentence"), CONTRADICTIONS)
def test_settings_that_contradict_each_other_are_refused_in_the_extra_and_in_a_run(
    given: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(SettingError, match=sentence):
        access(ConnectionFields("kafka", host="a:9092", extra=given))
    with pytest.raises(SettingError, match=sentence):
        access(ConnectionFields("kafka", host="a:9092"), overrides=given)


def test_a_run_that_leaves_the_chunks_of_the_connection_is_refused_and_not_run_without_its_pause() -> None:
    """KIP-46's pause is kept or refused, and never ignored."""
    given = ConnectionFields("kafka", host="a:9092", extra={"window": "chunk", "chunk_pause": 60})
    assert access(given).settings.chunk_pause == 60
    with pytest.raises(SettingError, match="set window to chunk, or chunk_pause to 0"):
        access(given, overrides={"window": "sliding"})
    assert access(given, overrides={"window": "sliding", "chunk_pause": 0}).settings.window == "sliding"


def test_a_throttle_that_is_not_there_is_refused_and_not_taken_for_none() -> None:
    for value in (-1, "-1", 0.5, "unlimited", [1]):
        with pytest.raises(SettingError, match=r"^The setting throttle is "):
            access(ConnectionFields("kafka", host="a:9092", extra={"throttle": value}))
