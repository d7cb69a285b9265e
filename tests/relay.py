"""A way to a broker that holds back its answers to one kind of request."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial

__all__ = ["DESCRIBE_LOG_DIRS", "Relay", "relayed"]

DESCRIBE_LOG_DIRS = 35
_LENGTH, _REQUEST, _ANSWER = struct.Struct(">i"), struct.Struct(">hhi"), struct.Struct(">i")


@dataclass
class Relay:
    """Listens at `port`, and passes on to `broker`; answers to requests of the kind `api_key` come `late_s` later."""

    port: int
    broker: int
    api_key: int
    late_s: float = 0
    _open: list[socket.socket] = field(default_factory=list)

    def start(self) -> None:
        self._open.append(server := socket.create_server(("127.0.0.1", self.port)))
        threading.Thread(target=self._accept, args=(server,), daemon=True).start()

    def stop(self) -> None:
        for each in self._open:
            each.close()

    def _accept(self, server: socket.socket) -> None:
        while True:
            try:
                client = server.accept()[0]
                broker = socket.create_connection(("127.0.0.1", self.broker))
            except OSError:
                return
            self._open += [client, broker]
            asked: set[int] = set()
            note, hold = partial(self._note_request, asked), partial(self._hold_answer, asked)
            for source, to, look in ((client, broker, note), (broker, client, hold)):
                threading.Thread(target=_pass_on, args=(source, to, look), daemon=True).start()

    def _note_request(self, asked: set[int], frame: bytes) -> None:
        api_key, _, number = _REQUEST.unpack_from(frame)
        if api_key == self.api_key:
            asked.add(number)

    def _hold_answer(self, asked: set[int], frame: bytes) -> None:
        if _ANSWER.unpack_from(frame)[0] in asked:
            time.sleep(self.late_s)


@contextmanager
def relayed(*relays: Relay) -> Iterator[None]:
    """Pass on within the block."""
    for each in relays:
        each.start()
    try:
        yield
    finally:
        for each in relays:
            each.stop()


def _pass_on(source: socket.socket, to: socket.socket, look: Callable[[bytes], None]) -> None:
    """Frame by frame, each after a look at it, until an end closes; then the other end is closed, too."""
    with suppress(OSError), source, to:
        while head := _read(source, _LENGTH.size):
            frame = _read(source, _LENGTH.unpack(head)[0])
            look(frame)
            to.sendall(head + frame)


def _read(source: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        if not (more := source.recv(size - len(found))):
            return b""
        found += more
    return found
