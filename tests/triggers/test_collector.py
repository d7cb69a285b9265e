"""A watch keeps Python's garbage collector off what the triggerer has loaded."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from kafka_steward.triggers.watch import freeze_gc


@pytest.fixture
def thawing() -> Iterator[None]:
    freeze_gc.cache_clear()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("thawing")
def test_what_is_loaded_is_not_gone_through_again() -> None:
    gc.unfreeze()
    before = len(gc.get_objects())
    freeze_gc()
    assert len(gc.get_objects()) < before / 10
    assert gc.get_freeze_count() > before / 2


@pytest.mark.usefixtures("thawing")
def test_only_once_so_that_what_later_watches_drop_is_collected() -> None:
    freeze_gc()
    frozen = gc.get_freeze_count()
    later: list[list[int]] = [[] for _ in range(1000)]
    freeze_gc()
    assert gc.get_freeze_count() <= frozen
    assert later
