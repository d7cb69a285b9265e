"""What producers bring into partitions is in the snapshot, in its digest, and in the proof of a plan."""

from __future__ import annotations

import json
import random
from typing import Any

import pyarrow as pa
import pytest

from kafka_steward.planning.files.formats import SnapshotFolder, snapshot_digest
from kafka_steward.planning.files.reassignment import snapshot_tables
from kafka_steward.planning.shards import PlanningJob
from tests.builders import cluster, planned, snapshot_of


def with_rates(snapshot: SnapshotFolder, *rates: float | None) -> SnapshotFolder:
    """The snapshot with the bytes per second of its partitions, in their order; of those beyond, none is known."""
    rows = snapshot.partitions.to_pylist()
    given = [*rates, *[None] * (len(rows) - len(rates))]
    return snapshot_of(
        snapshot.brokers.to_pylist(), [row | {"bytes_per_s": rate} for row, rate in zip(rows, given, strict=True)]
    )


def by_broker(snapshot: SnapshotFolder, what: str = "replicas", when: str = "before") -> dict[str, int]:
    return dict(planned(snapshot, "heal").proof["load"][what][when]["by_broker"])


def test_the_digest_of_a_snapshot_covers_the_rates() -> None:
    quiet, busy = (with_rates(cluster("1 2", "t: 12 21"), rate, 7.0) for rate in (None, 8.0))
    assert quiet.digest != busy.digest
    parts = busy.partitions.to_pylist()
    assert busy.digest == snapshot_digest("c", 1, busy.brokers, pa.Table.from_pylist(parts, busy.partitions.schema))


def test_each_replica_takes_what_producers_bring_in_and_the_first_one_leads() -> None:
    snapshot = with_rates(cluster("1 2 3", "t: 12 23", "u: 31"), 100.0, 20.0, 3.0)
    assert by_broker(snapshot) == {"1": 103, "2": 120, "3": 23}
    assert by_broker(snapshot, "leaders") == {"1": 100, "2": 20, "3": 3}
    load = planned(snapshot, "heal").proof["load"]
    assert (load["assumed"], load["replicas"]["before"]["highest_over_mean"]) == (0, round(120 / 82, 3))


def test_a_partition_without_a_rate_counts_as_its_topics_mean_or_as_the_clusters() -> None:
    snapshot = with_rates(cluster("1 2 3", "t: 1 1 2", "u: 3", "v: 3"), 100.0, 20.0, None, None, 300.0)
    assert by_broker(snapshot) == {"1": 120, "2": 60, "3": 140 + 300}
    assert planned(snapshot, "heal").proof["load"]["assumed"] == 2


def test_no_rate_is_known() -> None:
    assert planned(cluster("1 2", "t: 12 21"), "rebalance").proof["load"] is None


def test_nothing_comes_in() -> None:
    load = planned(with_rates(cluster("1 2", "t: 12"), 0.0), "heal").proof["load"]
    assert load["replicas"]["after"] == {"by_broker": {"1": 0, "2": 0}, "highest_over_mean": None}


@pytest.mark.parametrize("rate", [-1.0, float("nan"), float("inf"), 1e300])
def test_a_rate_that_cannot_be_counts_as_unknown(rate: float) -> None:
    assert by_broker(with_rates(cluster("1 2", "t: 1 2"), rate, 8.0)) == {"1": 8, "2": 8}
    assert planned(with_rates(cluster("1 2", "t: 1 2"), rate), "heal").proof["load"] is None


def test_a_broker_of_twice_the_capacity_may_take_twice_as_much() -> None:
    snapshot = with_rates(cluster("1 2", "t: 1 2"), 50.0, 100.0)
    brokers = [row | {"capacity": float(row["broker"])} for row in snapshot.brokers.to_pylist()]
    load = planned(snapshot_of(brokers, snapshot.partitions.to_pylist()), "heal").proof["load"]
    assert load["replicas"]["after"]["highest_over_mean"] == 1.0


def test_shards_count_as_one_does() -> None:
    dice = random.Random(5)
    topics = [f"t{number}: " + " ".join("".join(dice.sample("12345", 2)) for _ in range(9)) for number in range(6)]
    rates = [dice.choice([None, None, dice.uniform(0, 1e6)]) for _ in range(54)]
    snapshot = with_rates(cluster("1 2 3 4! 5", *topics), *rates)
    one, several = (planned(snapshot, "heal", shard_rows=rows).proof["load"] for rows in (100, 10))
    for name in ("replicas", "leaders"):
        assert one[name]["before"] == several[name]["before"]
    assert one["assumed"] == several["assumed"] == rates.count(None)
    assert PlanningJob.of(snapshot, "heal", {}).mean_rate is not None


def test_a_written_assignment_may_say_rates() -> None:
    entry: dict[str, Any] = {"topic": "t", "partition": 0, "replicas": [1], "bytes_per_s": 8}
    current = json.loads(json.dumps({"version": 1, "partitions": [entry]}))
    assert snapshot_tables(current, [{"id": 1}])[1]["bytes_per_s"].to_pylist() == [8.0]
