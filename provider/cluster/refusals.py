"""Errors in Kafka's responses: an error for the whole request is raised, errors per partition are returned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster import requests
from kafka_steward.errors import KafkaRefused, KafkaTimeout

__all__ = ["raise_request_error", "partition_errors"]


def raise_request_error(response: Any, doing: str) -> None:
    """Raise KafkaRefused if the whole request was refused."""
    code = int(getattr(response, "error_code", 0) or 0)
    if code:
        raise requests.refusal(code, getattr(response, "error_message", None), doing)


def partition_errors(
    asked: Iterable[TopicPartition], outcomes: Mapping[TopicPartition, tuple[int, str | None]], what: str
) -> dict[TopicPartition, KafkaRefused | None]:
    """Return None, or Kafka's refusal, per requested partition. Raises KafkaTimeout when one error is a time-out."""
    late = sorted(partition for partition, (code, _) in outcomes.items() if code == requests.TIMED_OUT)
    if late:
        raise KafkaTimeout(
            f"Kafka did not confirm {what} of {late[0]} in time; it may have been applied all the same: list what is "
            "in flight before asking again."
        )
    results: dict[TopicPartition, KafkaRefused | None] = {}
    for partition in asked:
        code, message = outcomes.get(partition, (requests.UNKNOWN_ERROR, "the answer does not mention it"))
        results[partition] = requests.refusal(code, message, f"{what} of {partition}") if code else None
    return results
