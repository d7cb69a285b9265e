"""A Maven repository on 127.0.0.1 that serves the files of a folder, with the failures that a test sets."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class Fault(Enum):
    """How a mirror fails one request for a jar."""

    BUSY = "the answer is 503"
    CUT = "the connection ends in the middle of the jar"
    LATE = "the answer is 429, with a date after which to ask again"


class Mirror(ThreadingHTTPServer):
    """`requested` are the paths of the jars in the order of the requests; `faults` are the next failures, by path."""

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder = folder
        self.requested: list[str] = []
        self.faults: dict[str, list[Fault]] = {}

    @property
    def address(self) -> str:
        """Where clients find it: below a path, and with a slash at the end."""
        return f"http://127.0.0.1:{self.server_address[1]}/maven2/"


class _Handler(SimpleHTTPRequestHandler):
    server: Mirror

    def __init__(self, request: Any, client_address: Any, server: Mirror) -> None:
        super().__init__(request, client_address, server, directory=str(server.folder))

    def do_GET(self) -> None:
        self.path = self.path.removeprefix("/maven2")
        path = self.path.removeprefix("/")
        if not path.endswith(".jar"):
            return super().do_GET()
        self.server.requested.append(path)
        faults = self.server.faults.get(path)
        return self._fail(faults.pop(0)) if faults else super().do_GET()

    def _fail(self, fault: Fault) -> None:
        if fault is Fault.CUT:
            whole = Path(self.translate_path(self.path)).read_bytes()
            self.send_response(200)
            self.send_header("Content-Length", str(len(whole)))
            self.end_headers()
            self.wfile.write(whole[: len(whole) // 2])
        else:
            self.send_response(503 if fault is Fault.BUSY else 429)
            self.send_header("Retry-After", "Wed, 21 Oct 2015 07:28:00 GMT")
            self.end_headers()

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
        pass


@contextmanager
def run_mirror(folder: Path) -> Iterator[Mirror]:
    """Serve the folder until the block ends."""
    with Mirror(folder) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
