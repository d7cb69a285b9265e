"""Random clusters for property tests: small, odd, and printed in a form that can be pasted back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from kafka_steward.planning.files.formats import SnapshotFolder
from tests.builders import snapshot_of

RACKS = st.sampled_from(["a", "b", "c", None])


@st.composite
def clusters(
    draw: st.DrawFn,
    states: Sequence[str] = ("live", "live", "live", "new", "failed", "draining", "down"),
    max_partitions: int = 8,
) -> SnapshotFolder:
    """A snapshot: 1-7 brokers, at least one of them usable, 1-3 topics, any replica sets, a few oddities."""
    count = draw(st.integers(1, 7))
    state = ["live", *draw(st.lists(st.sampled_from(states), min_size=count - 1, max_size=count - 1))]
    racks = draw(st.lists(RACKS, min_size=count, max_size=count))
    brokers: list[dict[str, Any]] = [{"broker": 10 + n, "rack": racks[n], "state": state[n]} for n in range(count)]
    ids = [row["broker"] for row in brokers]
    rows = []
    for topic in range(draw(st.integers(1, 3))):
        for number in range(draw(st.integers(1, max_partitions))):
            replicas = draw(st.lists(st.sampled_from(ids), min_size=1, max_size=min(4, count), unique=True))
            rows.append(draw(partitions(f"t{topic}", number, replicas)))
    return snapshot_of(brokers, rows)


@st.composite
def partitions(draw: st.DrawFn, topic: str, number: int, replicas: list[int]) -> dict[str, Any]:
    in_sync = [one for one in replicas if draw(st.integers(0, 4))]
    return {
        "topic": topic,
        "partition": number,
        "replicas": replicas,
        "isr": in_sync,
        "leader": in_sync[0] if in_sync else -1,
        "target_rf": max(1, len(replicas) + draw(st.sampled_from([0, 0, 0, 1, -1]))),
        "bytes": draw(st.sampled_from([None, 0, 10, 10, 1_000_000])),
        "adding": draw(st.sampled_from([None] * 9 + [replicas[:1]])),
    }


OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "rack_aware": st.booleans(),
        "rackless": st.sampled_from(["free", "own-rack"]),
        "chunk_size": st.integers(1, 5),
        "exclude": st.just(["t1"]),
        "pin": st.just(["t0-0"]),
    },
)
