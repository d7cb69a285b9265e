"""The page on a port of 127.0.0.1, as the api-server mounts it, for a visitor in place of Airflow's user."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.middleware.gzip import GZipMiddleware
from fastapi.responses import HTMLResponse, JSONResponse

from kafka_steward.page_address import MOUNT
from kafka_steward.sandbox.cluster_layout import pick_ports
from kafka_steward.ui.app import create_app, get_access
from tests.eventually import eventually
from tests.ui.conftest import Visitor

__all__ = ["Served", "served"]

#: What Airflow's own page puts around a view.
FRAME = """<!doctype html><html lang="en"><head><title>Airflow</title></head>
<body><iframe title="Kafka" width="1200" height="800" src="{mount}/"
sandbox="allow-scripts allow-same-origin allow-forms allow-downloads"></iframe></body></html>"""


class Served:
    """The address of the page, and the requests that its buttons sent: method, path and body."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.page = f"{url}{MOUNT}/"
        self.requests: list[tuple[str, str, Any]] = []
        #: The status and the answer of Airflow to the next requests.
        self.answer: tuple[int, Mapping[str, Any]] = (200, {"dag_run_id": "manual__1"})


@contextmanager
def served(visitor: Visitor) -> Iterator[Served]:
    """Serve the page until the end of the block."""
    (port,) = pick_ports(1)
    made = Served(f"http://127.0.0.1:{port}")
    page = create_app()
    page.dependency_overrides[get_access] = lambda: visitor
    server = FastAPI()
    server.mount(MOUNT, page)
    server.add_middleware(GZipMiddleware, minimum_size=1024, compresslevel=5)  # as in Airflow

    async def take(request: Request) -> JSONResponse:
        made.requests.append((request.method, request.url.path, await request.json()))
        return JSONResponse(made.answer[1], made.answer[0])

    server.api_route("/api/v2/{path:path}", methods=["POST", "PATCH"])(take)
    server.get("/frame")(lambda: HTMLResponse(FRAME.format(mount=MOUNT)))
    running = uvicorn.Server(uvicorn.Config(server, host="127.0.0.1", port=port, log_level="warning"))
    thread = threading.Thread(target=running.run, daemon=True)
    thread.start()
    try:
        eventually(lambda: _assert_started(running), within=30)
        yield made
    finally:
        running.should_exit = True
        thread.join(30)
        page.state.journals.close()


def _assert_started(server: uvicorn.Server) -> None:
    assert server.started
