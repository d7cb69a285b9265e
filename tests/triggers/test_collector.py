"""A watch keeps Python's garbage collector off what the triggerer has loaded."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from kafka_steward.triggers.collector import spare_what_is_loaded


@pytest.fixture
def thawing() -> Iterator[None]:
    spare_what_is_loaded.cache_clear()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("thawing")
def test_what_is_loaded_is_not_gone_through_again() -> None:
    gc.unfreeze()
    before = len(gc.get_objects())
    spare_what_is_loaded()
    assert len(gc.get_objects()) < before / 10
    assert gc.get_freeze_count() > before / 2


@pytest.mark.usefixtures("thawing")
def test_only_once_so_that_what_later_watches_drop_is_collected() -> None:
    spare_what_is_loaded()
    frozen = gc.get_freeze_count()
    later: list[list[int]] = [[] for _ in range(1000)]
    spare_what_is_loaded()
    assert gc.get_freeze_count() <= frozen
    assert later
