"""The assets of documents: each has a watch of its own, which rings for it alone."""

from __future__ import annotations

from kafka_steward.dags.documents import cancel_requested, reassignment_requested
from kafka_steward.dags.heal import broker_failed


def test_each_asset_has_a_watch_of_its_own() -> None:
    assets = [broker_failed("kafka"), cancel_requested("kafka"), reassignment_requested("kafka")]
    assert len({asset.name for asset in assets}) == len({asset.uri for asset in assets}) == 3
    events = [asset.watchers[0].trigger.serialize()[1].get("event") for asset in assets]
    assert events == [None, "cancel", "request"]
