"""Answers of ZooKeeper that are kept until it notifies us of their change: a poll that finds nothing new reads nothing.

Each answer is read with a watch, and is not used any more once that has fired. ZooKeeper sends the event of a change
before the response to any later request of the same session, and the client's thread for events runs them in order. So
after an `EventFlush`, which follows a request, no answer is older than that request. The client fires all watches when
the connection is lost or the session ends: nothing is kept beyond that.

A missing node has no watch on its data or its children, only one on its existence. And the watch on data does not fire
when a child comes or goes, which matters for empty data: it is a document only if the node has no children.

ZooKeeper sends no event of a node that its ACL has come to hide from us, and a change of the ACL is no event either.
So nothing is kept for longer than `KEPT_S`: then everything is read again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kazoo.exceptions import NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import Callback

#: Seconds after which an answer is read again, although no change of it was notified.
KEPT_S = 60.0

#: The limits on watches that may still fire, and on kept bytes: beyond them, nothing more is watched.
_MOST, _MOST_BYTES = 10_000, 10_000_000


class EventFlush:
    """The end of all events that the client has received. It has the `get` of a kazoo async result."""

    def __init__(self, client: Any) -> None:
        self._flushed = threading.Event()
        client.handler.dispatch_callback(Callback("watch", self._flushed.set, ()))

    def get(self, timeout: float) -> None:
        """Wait for it. Raises KazooTimeoutError."""
        if not self._flushed.wait(timeout):
            raise KazooTimeoutError("the events of the client were not processed")


@dataclass(frozen=True)
class _Question:
    """One read by one client: `kind` is "data" or "children".

    It is the callback of its watches, too. Equal ones are the same watch for the client, which lists each only once,
    however often it is asked for.
    """

    kept_in: WatchedReads
    client: Any
    kind: str
    path: str

    def __call__(self, _: object) -> None:
        """Forget the answer: it changed, or the connection was lost. Called on the client's thread for events."""
        self.kept_in.forget(self)

    def request(self, watch: _Question | None) -> Any:
        """Send the request, with a watch, which is this one, or without."""
        ask = self.client.get_async if self.kind == "data" else self.client.get_children_async
        return ask(self.path, watch=watch)


class WatchedReads:
    """The kept answers of one client at a time. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._start(None)

    def _start(self, client: Any) -> None:
        self._client = client
        self._watches: set[_Question] = set()
        self._events = 0
        self._drop_answers()

    def _drop_answers(self) -> None:
        self._since_s = self._clock()
        self._answers: dict[_Question, Any] = {}
        self._bytes = 0

    def data(self, client: Any, path: str) -> Any:
        """Return the kept data and stat of a node, or request them; it has the `get` of a kazoo async result."""
        return self._answer_or_request(_Question(self, client, "data", path))

    def children(self, client: Any, path: str) -> Any:
        """Return the kept names of a node's children, or request them; it has the `get` of a kazoo async result."""
        return self._answer_or_request(_Question(self, client, "children", path))

    def _answer_or_request(self, asked: _Question) -> Any:
        with self._lock:
            if self._client is not asked.client:
                self._start(asked.client)
            elif self._clock() - self._since_s >= KEPT_S:
                self._drop_answers()
            if asked in self._answers:
                return _Kept(self._answers[asked])
            # What is watched already may be asked for again: the client lists an equal watch only once.
            is_full = len(self._watches) >= _MOST and asked not in self._watches
            if is_full or self._bytes >= _MOST_BYTES:
                return asked.request(watch=None)
            self._watches.add(asked)
            # If an event comes before the answer, that may be from before the change, and is not kept.
            events = self._events
        return _Request(asked, events)

    def keep(self, asked: _Question, value: Any, events: int) -> None:
        """Keep an answer that was requested after so many events, unless there was one since then."""
        with self._lock:
            if asked.client is self._client and events == self._events and asked not in self._answers:
                self._answers[asked] = value
                self._bytes += _size(asked, value)

    def forget(self, asked: _Question) -> None:
        """Keep an answer no longer, nor one that is being requested."""
        with self._lock:
            if asked.client is not self._client:
                return
            self._events += 1
            self._watches.discard(asked)
            if asked in self._answers:
                self._bytes -= _size(asked, self._answers.pop(asked))


def _size(asked: _Question, value: Any) -> int:
    """Return the bytes that are kept, about."""
    return 0 if value is None else len(value[0]) if asked.kind == "data" else sum(map(len, value))


class _Kept:
    """A kept answer. It has the `get` of a kazoo async result."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def get(self, timeout: float) -> Any:
        """Return the answer. Raises NoNodeError if there was no node."""
        del timeout  # nothing is waited for
        if self._value is None:
            raise NoNodeError
        return self._value


class _Request:
    """A request whose answer may be kept. It has the `get` of a kazoo async result."""

    def __init__(self, asked: _Question, events: int) -> None:
        self._question, self._events = asked, events
        self._asked = asked.request(watch=asked)

    def get(self, timeout: float) -> Any:
        """Return the answer, each request within `timeout` seconds. Raises NoNodeError and kazoo's other errors."""
        value, is_watched = self._read(timeout)
        if is_watched:
            self._question.kept_in.keep(self._question, value, self._events)
        return _Kept(value).get(timeout)

    def _read(self, timeout: float) -> tuple[Any, bool]:
        """Return the value, None for a missing node, and whether every change of it will be notified."""
        client, path = self._question.client, self._question.path
        try:
            value = self._asked.get(timeout=timeout)
        except NoNodeError:
            return None, client.exists_async(path, watch=self._question).get(timeout=timeout) is None
        if self._question.kind == "data" and not value[0]:
            return value, self._watch_children(value[1].numChildren, timeout)
        return value, True

    def _watch_children(self, count: int, timeout: float) -> bool:
        """Return whether the node has so many children, whose change will be notified."""
        asked = self._question
        try:
            names = asked.client.get_children_async(asked.path, watch=asked).get(timeout=timeout)
        except NoNodeError:
            return False
        return len(names) == count
