"""The form of a rebalance, built from the fields that a caller gives."""

from __future__ import annotations

import pytest

from kafka_steward.errors import SettingError
from kafka_steward.rebalance_request import RebalanceRequest


def test_fields_that_are_not_given_are_unset() -> None:
    assert RebalanceRequest.of({"operation": "rebalance"}) == RebalanceRequest("rebalance")


def test_given_values_are_kept() -> None:
    given = {"operation": "drain", "brokers": [4, 5], "exclude": ("pay_.*",), "rack_aware": False, "max_moves": 3}
    assert RebalanceRequest.of(given) == RebalanceRequest(
        "drain", brokers=[4, 5], exclude=("pay_.*",), rack_aware=False, max_moves=3
    )


@pytest.mark.parametrize("empty", [None, [], ()])
@pytest.mark.parametrize("name", ["brokers", "topics", "exclude", "exclude_brokers"])
def test_a_list_that_is_none_or_empty_becomes_an_empty_tuple(name: str, empty: list[str] | None) -> None:
    assert getattr(RebalanceRequest.of({"operation": "expand", name: empty}), name) == ()


@pytest.mark.parametrize("name", ["replication_factor", "rack_aware", "balance", "tolerance", "max_bytes"])
def test_a_field_that_is_no_list_may_be_none(name: str) -> None:
    assert getattr(RebalanceRequest.of({"operation": "expand", name: None}), name) is None


def test_an_unknown_field_is_refused_with_all_valid_ones() -> None:
    with pytest.raises(SettingError) as refused:
        RebalanceRequest.of({"operation": "rebalance", "broker": [4]})
    assert str(refused.value) == (
        "Unknown rebalance option 'broker'. Valid options: operation, brokers, topics, exclude, exclude_brokers, "
        "replication_factor, rack_aware, internal_topics, rackless, balance, tolerance, prefer, max_moves, max_bytes."
    )
