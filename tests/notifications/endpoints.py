"""Servers on 127.0.0.1 that play the endpoints of Slack, Teams and PagerDuty, and one that takes mail."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from aiosmtpd.controller import Controller

__all__ = ["Endpoint", "mail_server", "web_endpoint"]


class Endpoint:
    """What has been posted: path and JSON; `status` is the answer from now on."""

    def __init__(self) -> None:
        self.posted: list[tuple[str, Any]] = []
        self.status, self.answer = 200, "ok"
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def web_endpoint() -> Iterator[Endpoint]:
    endpoint = Endpoint()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            endpoint.posted.append((self.path, json.loads(body)))
            self.send_response(endpoint.status)
            self.end_headers()
            self.wfile.write(endpoint.answer.encode())

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    endpoint.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield endpoint
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=10)


@contextmanager
def mail_server() -> Iterator[tuple[int, list[EmailMessage]]]:
    """Its port, and the mails that it has taken."""
    taken: list[EmailMessage] = []

    class Handler:
        async def handle_DATA(self, *given: Any) -> str:  # noqa: N802 - the library's name
            envelope = given[-1]
            mail: Any = message_from_bytes(envelope.content, policy=policy.default)
            taken.append(mail)
            return "250 OK"

    class AnyPort(Controller):
        def _trigger_server(self) -> None:
            listening: Any = self.server
            self.port = listening.sockets[0].getsockname()[1]
            super()._trigger_server()  # type: ignore[no-untyped-call]

    controller = AnyPort(Handler(), hostname="127.0.0.1", port=0)
    controller.start()
    try:
        yield controller.port, taken
    finally:
        controller.stop()
