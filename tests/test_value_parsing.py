"""Values as forms, JSON and configuration files spell them."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_steward.errors import SettingError
from kafka_steward.value_parsing import parse_broker_ids


@pytest.mark.parametrize(
    ("value", "brokers"),
    [
        (None, []),
        ("", []),
        ([], []),
        ([4, 3], [4, 3]),
        (["4", 3.0], [4, 3]),
        ("4", [4]),
        (" 4, 3,,5\n6 4", [4, 3, 5, 6]),
        ((0,), [0]),
    ],
)
def test_brokers_are_a_list_or_a_text(value: Any, brokers: list[int]) -> None:
    assert parse_broker_ids(value) == brokers


@pytest.mark.parametrize("value", ["four", "3-4", "-1", [-1], [True], [1.5], 4, [None], ["x" * 500]])
def test_what_names_no_brokers_is_refused_with_a_sentence(value: Any) -> None:
    with pytest.raises(SettingError, match=r"names no brokers; give their ids, such as 3, 4\.$") as error:
        parse_broker_ids(value)
    assert len(str(error.value)) < 200
