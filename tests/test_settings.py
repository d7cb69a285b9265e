"""Settings: who wins, which names are taken, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_steward.errors import SettingError
from kafka_steward.settings import Settings


def test_the_first_source_that_names_a_setting_wins() -> None:
    settings = Settings.of({"throttle": 1}, {"throttle": 2, "heal_chunk_size": 20}, {"heal_chunk_size": 30})
    assert (settings.throttle, settings.heal_chunk_size) == (1, 20)


def test_a_source_that_leaves_a_setting_open_does_not_hide_the_next() -> None:
    assert Settings.of({"throttle": None}, {"throttle": 2}).throttle == 2


def test_the_names_of_kip_46_are_taken() -> None:
    settings = Settings.of({"kafka.heal.chunk.size": "7", "kafka.heal.failure.interval": "-1"})
    assert (settings.heal_chunk_size, settings.heal_failure_interval) == (7, -1)


def test_names_of_other_things_are_left_alone() -> None:
    assert Settings.of({"bootstrap.servers": "127.0.0.1:9092", "journal": "zookeeper"}) == Settings()


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ({"heal_chunk_size": 0}, "The setting heal_chunk_size is 0; it must be at least 1."),
        ({"min_free": 1.5}, "The setting min_free is 1.5; it must be at most 1."),
        ({"window": "both"}, "The setting window is 'both'; it takes one of sliding, chunk."),
        ({"throttle": "fast"}, "The setting throttle is 'fast'; it takes int values."),
        ({"throttle_leaders": "maybe"}, "The setting throttle_leaders is 'maybe'; it takes true or false."),
    ],
)
def test_a_value_out_of_range_is_refused_with_its_name(source: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingError) as refusal:
        Settings.of(source)
    assert str(refusal.value) == sentence


@pytest.mark.parametrize(("word", "value"), [("true", True), ("off", False), (True, True), ("1", True)])
def test_switches_take_the_words_of_configuration_files(word: object, value: bool) -> None:
    assert Settings.of({"heal_fast_detection": word}).heal_fast_detection is value
