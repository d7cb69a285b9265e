"""Settings: who wins, which names are taken, and what is refused."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from kafka_steward.errors import SettingError
from kafka_steward.settings import Settings
from tests.settings_page import page


@pytest.mark.project
def test_the_page_of_settings_is_made_of_the_settings() -> None:
    written = (Path(__file__).parents[1] / "docs/reference/settings.md").read_text()
    assert written == page(), "python -m tests.settings_page > docs/reference/settings.md"


def test_the_first_source_that_names_a_setting_wins_and_one_that_leaves_it_open_hides_nothing() -> None:
    settings = Settings.of({"throttle": 1}, {"throttle": 2, "heal_chunk_size": 20}, {"heal_chunk_size": 30})
    assert (settings.throttle, settings.heal_chunk_size) == (1, 20)
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
        ({"throttle": "fast"}, "The setting throttle is 'fast'; it takes a whole number."),
        ({"window": 5}, "The setting window is 5; it takes a text."),
        (
            {"heal_failure_interval": -0.5},
            "The setting heal_failure_interval is -0.5; it must be at least 0, or -1 for never.",
        ),
        ({"stall_after": 1e12}, "The setting stall_after is 1000000000000.0; it must be at most 315360000."),
        ({"throttle": 2**63}, "The setting throttle is 9223372036854775808; it must be at most 9223372036854775807."),
        ({"throttle_leaders": "maybe"}, "The setting throttle_leaders is 'maybe'; it takes true or false."),
    ],
)
def test_a_value_out_of_range_is_refused_with_its_name(source: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingError) as refusal:
        Settings.of(source)
    assert str(refusal.value) == sentence


@pytest.mark.parametrize("value", [50, 50.0, "50", " 50 ", "5e1", "50.0"])
def test_a_whole_number_may_be_written_in_any_way(value: object) -> None:
    found = Settings.of({"throttle": value}).throttle
    assert (found, type(found)) == (50, int)


NO_NUMBERS = [
    True,
    False,
    float("nan"),
    float("inf"),
    -float("inf"),
    "nan",
    "sNaN",
    "inf",
    "Infinity",
    "none",
    [50],
    "",
]


@pytest.mark.parametrize(
    ("kind", "takes", "value"),
    [
        *((int, "a whole number", value) for value in (*NO_NUMBERS, 0.5, 50.9, "50.9", "1e999999999", 10**5000)),
        *((float, "a number", value) for value in (*NO_NUMBERS, 10**400, "1e400")),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_number_is_refused_where_one_is_taken(kind: type, takes: str, value: object) -> None:
    for name in (knob.name for knob in fields(Settings) if type(knob.default) is kind):
        with pytest.raises(SettingError, match=rf"^The setting {name} is .{{,90}}; it takes {takes}\.$"):
            Settings.of({name: value})


@pytest.mark.parametrize("value", [-(10**30), 10**30])
def test_every_number_has_a_bound_on_both_sides(value: int) -> None:
    for name in (knob.name for knob in fields(Settings) if type(knob.default) in (int, float)):
        with pytest.raises(SettingError, match=f"^The setting {name} is .* it must be at (least|most) "):
            Settings.of({name: value})


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ({"abandoned_after": 30, "step_interval": 20}, "set abandoned_after to at least twice step_interval"),
        ({"step_interval": 400}, "set abandoned_after to at least twice step_interval"),
        (
            {"stall_after": 5, "step_interval": 4, "abandoned_after": 9},
            "set stall_after to at least twice step_interval",
        ),
        ({"chunk_pause": 60}, "set window to chunk, or chunk_pause to 0"),
        ({"health_retention": 0.5, "health_interval": 86_400}, "raise health_retention"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(source: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        Settings.of(source)
    with pytest.raises(SettingError, match=sentence):
        Settings.of(*({name: value} for name, value in source.items()))  # wherever they come from


@pytest.mark.parametrize(
    "source",
    [
        {"abandoned_after": 40, "stall_after": 40, "step_interval": 20},
        {"chunk_pause": 60, "window": "chunk"},
        {"health_retention": 1, "health_interval": 86_400},
        {"health_retention": 0},
        {"heal_failure_interval": -1},
        {"heal_failure_interval": 0},
    ],
)
def test_settings_that_fit_are_taken(source: dict[str, Any]) -> None:
    settings = Settings.of(source)
    assert {name: getattr(settings, name) for name in source} == source


def test_one_source_alone_is_held_against_itself_only() -> None:
    Settings.refuse_wrong({"step_interval": 400})
    Settings.refuse_wrong({"throttle_fraction": 0.1})
    for wrong in ({"step_interval": 0}, {"step_interval": 400, "stall_after": 500}, {"maintenance_window": "never"}):
        with pytest.raises(SettingError):
            Settings.refuse_wrong(wrong)


def test_a_setting_under_both_of_its_names_has_one_value() -> None:
    assert Settings.of({"heal_chunk_size": 7, "kafka.heal.chunk.size": 7}).heal_chunk_size == 7
    with pytest.raises(SettingError, match=r"^The setting heal_chunk_size is given twice, as 7 and as '8'\.$"):
        Settings.of({"heal_chunk_size": 7, "kafka.heal.chunk.size": "8"})


@pytest.mark.parametrize(("word", "value"), [("true", True), ("off", False), (True, True), ("1", True)])
def test_switches_take_the_words_of_configuration_files(word: object, value: bool) -> None:
    assert Settings.of({"heal_fast_detection": word}).heal_fast_detection is value
