"""A watch keeps Python's garbage collector off what the triggerer has loaded."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from typing import NoReturn

import pytest

from kafka_steward.triggers.base import ClusterWorker
from kafka_steward.triggers.collector import freeze_gc


@pytest.fixture
def thawing() -> Iterator[None]:
    freeze_gc.cache_clear()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("thawing")
def test_what_is_loaded_is_not_gone_through_again() -> None:
    gc.unfreeze()
    before = len(gc.get_objects())
    freeze_gc("airflow")
    assert len(gc.get_objects()) < before / 10
    assert gc.get_freeze_count() > before / 2


@pytest.mark.usefixtures("thawing")
def test_only_once_so_that_what_later_watches_drop_is_collected() -> None:
    freeze_gc("airflow")
    frozen = gc.get_freeze_count()
    later: list[list[int]] = [[] for _ in range(1000)]
    freeze_gc("airflow")
    assert gc.get_freeze_count() <= frozen
    assert later


@pytest.mark.usefixtures("thawing")
def test_a_thread_that_is_to_load_kafkas_clients_begins_after_that() -> None:
    gc.unfreeze()
    before = len(gc.get_objects())
    worker = ClusterWorker("kafka_test", {})
    worker._create_hook = raising  # type: ignore[method-assign]  # it would connect
    with pytest.raises(ZeroDivisionError):
        asyncio.run(worker.submit(lambda _: None))
    worker.close()
    assert gc.get_freeze_count() > before / 2


def raising(_: object) -> NoReturn:
    raise ZeroDivisionError
