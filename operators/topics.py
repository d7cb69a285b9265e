"""New topics, and new partitions of topics, also while brokers are away (KIP-409)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kafka_steward.hooks.context import who_of
from kafka_steward.operators.base import StewardOperator, told_at_once

if TYPE_CHECKING:
    from airflow.sdk import Context

__all__ = ["CreatePartitionsOperator", "CreateTopicOperator"]


class CreateTopicOperator(StewardOperator):
    """Creates a topic; with `enable_under_replicated_topic_creation`, also with fewer brokers than replicas.

    KIP-409: as long as min(`min.insync.replicas`, `replication_factor`) brokers are live, the topic is created on
    those, and the replicas that are missing are written down as owed: the `fill` DAG adds them when brokers join.
    `config` are the topic's own settings. A topic that is there already, with the same numbers, is left as it is;
    with others, the task fails for good. Returns `{"topic", "existed", "owed", "sentence"}`; `owed` counts replicas.

    >>> CreateTopicOperator(
    ...     task_id="orders", topic="orders", partitions=12, config={"min.insync.replicas": "2"},
    ...     settings={"enable_under_replicated_topic_creation": True},
    ... )
    <Task(CreateTopicOperator): orders>
    """

    template_fields: Sequence[str] = (*StewardOperator.template_fields, "topic", "config")

    def __init__(
        self,
        *,
        topic: str,
        partitions: int = 1,
        replication_factor: int = 3,
        config: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.topic = topic
        self.partitions = partitions
        self.replication_factor = replication_factor
        self.config = dict(config or {})

    def execute(self, context: Context) -> dict[str, Any]:
        """Create it, or find it."""
        from kafka_steward.execution.filling.creating import WantedTopic, create_topic
        from kafka_steward.execution.filling.unwatched import why_unwatched

        config = {name: str(value) for name, value in self.config.items()}
        with told_at_once(), self.open(context) as opened:
            wanted = WantedTopic(self.topic, int(self.partitions), int(self.replication_factor), config)
            allowed = opened.settings.enable_under_replicated_topic_creation
            made = create_topic(opened.cluster, opened.journal, wanted, allowed=allowed, who=who_of(context))
            notice = why_unwatched(opened.journal) if made.owed else ""
        sentence = _told(self, made.sentence, notice)
        return {"topic": self.topic, "existed": made.existed, "owed": made.owed, "sentence": sentence}


class CreatePartitionsOperator(StewardOperator):
    """Lets a topic have `count` partitions in all.

    Kafka wants as many replicas of new partitions as the others have. On KRaft, brokers that are registered and away
    may take their place, and Kafka fills them when they are back. With too few even so, the task fails for good; with
    `later=True` it leaves a request in the journal, which the `fill` DAG carries out when a broker joins. A request
    for a topic that was deleted or created anew meanwhile is dropped, with a reason in the audit trail.
    Returns `{"topic", "done", "waits", "sentence"}`.

    >>> CreatePartitionsOperator(task_id="grow", topic="orders", count=24, later=True)
    <Task(CreatePartitionsOperator): grow>
    """

    template_fields: Sequence[str] = (*StewardOperator.template_fields, "topic", "count")

    def __init__(self, *, topic: str, count: int, later: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.topic = topic
        self.count = count
        self.later = later

    def execute(self, context: Context) -> dict[str, Any]:
        """Add them, or leave the request."""
        from kafka_steward.execution.filling.adding import add_partitions
        from kafka_steward.execution.filling.unwatched import why_unwatched

        with told_at_once(), self.open(context) as opened:
            added = add_partitions(
                opened.cluster, opened.journal, self.topic, int(self.count), later=self.later, who=who_of(context)
            )
            notice = why_unwatched(opened.journal) if added.waits else ""
        sentence = _told(self, added.sentence, notice)
        return {"topic": self.topic, "done": added.done, "waits": added.waits, "sentence": sentence}


def _told(operator: StewardOperator, sentence: str, notice: str) -> str:
    """Log what came of it and, if so, that nobody comes for what is left; returns both."""
    operator.log.info("%s", sentence)
    if notice:
        operator.log.warning("%s", notice)
    return f"{sentence} {notice}".rstrip()
