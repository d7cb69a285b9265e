"""A live producer and consumer beside a benchmark, each in a process of its own, and what became of each message.

The producer waits for the whole ISR (acks=all) and sends on a timetable: a message is as late as its acknowledgement is
behind the timetable, so that a time in which the client itself could not send is counted, too. It is idempotent, as
kafka-python's is by default: what it sends again by itself, Kafka writes once, so that every duplicate counts.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError

if TYPE_CHECKING:
    from typing import Self

__all__ = ["BYTES_PER_S", "Delivered", "Producing", "Sent", "Traffic"]

_PER_S, _BYTES = 100, 2_000
#: What the producer writes.
BYTES_PER_S = _PER_S * _BYTES
_PATIENCE_S = 120.0


@dataclass(frozen=True)
class Sent:
    """What became of the messages at the producer, by number: when each was due, when it was acknowledged."""

    due_s: Sequence[float]
    acked_s: Mapping[int, float]

    @property
    def unacknowledged(self) -> int:
        """Messages of which the producer knows that it does not know."""
        return len(self.due_s) - len(self.acked_s)

    def p99_ms(self, *spans: tuple[float, float]) -> float:
        """Of the messages due in these times (of time.monotonic), in milliseconds.

        One that got no answer never ends. Raises nothing: NaN when no message was due.
        """
        late = sorted(
            self.acked_s.get(number, math.inf) - due_s
            for number, due_s in enumerate(self.due_s)
            if any(from_s <= due_s < to_s for from_s, to_s in spans)
        )
        return 1000 * late[math.ceil(0.99 * len(late)) - 1] if late else math.nan


@dataclass(frozen=True)
class Delivered(Sent):
    """What became of the messages at both ends: `arrived` is how often each was consumed."""

    arrived: Mapping[int, int]

    @property
    def lost(self) -> int:
        """Acknowledged, and never arrived."""
        return sum(number not in self.arrived for number in self.acked_s)

    @property
    def duplicated(self) -> int:
        """Arrivals of what had arrived already."""
        return sum(times - 1 for times in self.arrived.values())


class _Clients:
    """Processes that work on all partitions of `topic`. A context manager: they run inside."""

    _works: ClassVar[Sequence[Callable[..., None]]]

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._about = (bootstrap.split(","), topic, partitions)
        self._children: list[_Child] = []

    def __enter__(self) -> Self:
        for work in self._works:
            self._children.append(_Child(work, *self._about))
            self._children[-1].answer()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for child in self._children:
            child.kill()


class _Child:
    """A process that says when it is ready, works until it is told to end, and then says what it saw.

    It has a session of its own: Linux shares the cores out among sessions (sched_autogroup), and a client that shared
    its part with the benchmark would wait for the benchmark's work, which no client of another host does.
    """

    def __init__(self, work: Callable[..., None], *about: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self._talk, theirs = context.Pipe()
        self._process = context.Process(target=_in_own_session, args=(work, theirs, *about), daemon=True)
        self._process.start()
        theirs.close()

    def answer(self) -> Any:
        if not self._talk.poll(_PATIENCE_S):
            raise TimeoutError(f"the producer or the consumer said nothing for {_PATIENCE_S:.0f} s")
        return self._talk.recv()

    def end(self) -> Any:
        self._talk.send("end")
        return self.answer()

    def kill(self) -> None:
        self._process.kill()
        self._process.join()


def _in_own_session(work: Callable[..., None], *about: Any) -> None:
    os.setsid()
    work(*about)


def _produce(talk: Connection, bootstrap: list[str], topic: str, partitions: int) -> None:
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all")
    producer.partitions_for(topic)
    value, due_s, acked_s = os.urandom(_BYTES), list[float](), dict[int, float]()
    talk.send("ready")
    began_s = time.monotonic()
    for number in itertools.count():
        due_s.append(began_s + number / _PER_S)
        if talk.poll(max(0.0, due_s[-1] - time.monotonic())):
            due_s.pop()
            break
        # One that could not be handed over is one without an acknowledgement.
        with contextlib.suppress(KafkaError):
            sent = producer.send(topic, value, key=number.to_bytes(8, "big"), partition=number % partitions)
            sent.add_callback(partial(_acknowledged, acked_s, number))
    with contextlib.suppress(KafkaError):
        producer.flush(timeout=_PATIENCE_S / 2)
    talk.send((due_s, dict(acked_s)))


def _acknowledged(acked_s: dict[int, float], number: int, _: Any) -> None:
    acked_s[number] = time.monotonic()


def _consume(talk: Connection, bootstrap: list[str], topic: str, partitions: int) -> None:
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    # Where the client loses its place, it begins anew, which is seen as duplicates: it must not skip what is missing.
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, auto_offset_reset="earliest")
    mine = [TopicPartition(topic, number) for number in range(partitions)]
    consumer.assign(mine)
    consumer.seek_to_end(*mine)
    for each in mine:
        consumer.position(each)
    talk.send("ready")
    arrived = Counter[int]()
    while not talk.poll():
        _read(consumer, arrived)
    ends = consumer.end_offsets(mine)
    deadline_s = time.monotonic() + _PATIENCE_S / 2
    while any(consumer.position(each) < ends[each] for each in mine) and time.monotonic() < deadline_s:
        _read(consumer, arrived)
    talk.send(dict(arrived))


def _read(consumer: Any, arrived: Counter[int]) -> None:
    for records in consumer.poll(timeout_ms=200).values():
        # What was in the topic before has no key.
        arrived.update(int.from_bytes(record.key, "big") for record in records if record.key)


class Producing(_Clients):
    """A producer alone."""

    _works = (_produce,)

    def end(self) -> Sent:
        """Stop producing. Raises TimeoutError, EOFError when the producer does not answer."""
        return Sent(*self._children[0].end())


class Traffic(_Clients):
    """A producer and a consumer. The consumer first: it stands at the end of each log before anything is written."""

    _works = (_consume, _produce)

    def end(self) -> Delivered:
        """Stop producing, and read to the end. Raises TimeoutError, EOFError when one of them does not answer."""
        consumer, producer = self._children
        due_s, acked_s = producer.end()
        return Delivered(due_s, acked_s, consumer.end())
