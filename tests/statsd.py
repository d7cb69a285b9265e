"""A StatsD that keeps what it received of ours."""

from __future__ import annotations

import socket
import threading
from types import TracebackType
from typing import Self

__all__ = ["StatsD"]


class StatsD:
    """Listens on a free UDP port of 127.0.0.1 for as long as it is open; `received` are our lines, oldest first."""

    def __init__(self) -> None:
        self.received: list[str] = []
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._listen, name="statsd", daemon=True)

    @property
    def environment(self) -> dict[str, str]:
        """What makes an Airflow send its metrics here."""
        options = {"ON": "True", "HOST": "127.0.0.1", "PORT": str(self._socket.getsockname()[1])}
        return {f"AIRFLOW__METRICS__STATSD_{name}": value for name, value in options.items()}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A socket that is closed under a waiting thread does not wake it: an empty message does.
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
            last.sendto(b"", self._socket.getsockname())
        self._thread.join(timeout=10)
        self._socket.close()

    def _listen(self) -> None:
        while message := self._socket.recv(65_536):
            self.received += [line for line in message.decode().splitlines() if "kafka_steward" in line]
