"""What is cut into shards: whole topics, in order, and about as many partitions in each."""

from __future__ import annotations

import random
from itertools import pairwise

import pyarrow as pa
import pytest

from kafka_steward.planning.shards import shard_boundaries


def sizes(counts: dict[str, int], rows: int) -> list[int]:
    topics = [topic for topic, count in counts.items() for _ in range(count)]
    random.Random(0).shuffle(topics)
    firsts = ["", *shard_boundaries(pa.chunked_array([topics], pa.string()), rows), "~"]
    assert firsts == sorted(set(firsts))
    ends = pairwise(firsts)
    return [sum(count for topic, count in counts.items() if first <= topic < after) for first, after in ends]


@pytest.mark.parametrize(("topics", "shards"), [(0, 1), (1, 1), (40, 2), (41, 3), (100, 5), (101, 6)])
def test_there_are_as_many_shards_as_needed_and_they_are_equal(topics: int, shards: int) -> None:
    found = sizes({f"t{number:03d}": 5 for number in range(topics)}, 100)
    assert len(found) == shards
    assert sum(found) == 5 * topics
    assert max(found) - min(found) <= 5


def test_a_topic_is_never_cut() -> None:
    assert sizes({"a": 10, "b": 500, "c": 10, "d": 10}, 100) == [10, 500, 20]
