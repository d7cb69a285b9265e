"""HTML from the templates: everything is escaped, and a page that is unchanged is not sent again."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from fastapi import Request
from fastapi.responses import HTMLResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined

import kafka_steward
from kafka_steward.escaping import printable
from kafka_steward.page_address import MOUNT
from kafka_steward.ui import words

FOLDER = Path(__file__).parent
#: The files that the page may load, and their types.
STATIC_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@cache
def static_files() -> Mapping[str, tuple[bytes, str]]:
    """Return the content and type of each static file, by name."""
    paths = sorted((FOLDER / "static").iterdir())
    return {path.name: (path.read_bytes(), STATIC_TYPES[path.suffix]) for path in paths if path.suffix in STATIC_TYPES}


@cache
def static_version(name: str) -> str:
    """Return what changes when the file changes: part of its URL, so that browsers may keep it."""
    return sha256(static_files()[name][0]).hexdigest()[:12]


@cache
def environment() -> Environment:
    """Return the templates' environment."""
    made = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_show_unprintable,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = ("whole", "size", "rate", "throttle", "span", "percent", "moment", "replicas", "breakable", "until")
    made.filters.update({name: getattr(words, name) for name in filters})
    made.globals.update(words=words, version=kafka_steward.__version__)
    return made


def _show_unprintable(value: Any) -> Any:
    # Markup is a subclass of str, and is ours.
    return printable(value) if type(value) is str else value


class PageUrls:
    """The URLs of the page and of Airflow, below the path under which the api-server is reached."""

    def __init__(self, request: Request) -> None:
        self._mount = str(request.scope.get("root_path", "")).rstrip("/")
        self.airflow = self._mount.removesuffix(MOUNT)

    def __call__(self, page: str = "", **query: Any) -> str:
        """Return the URL of a page; parameters that are None or empty are left out."""
        given = {name: value for name, value in query.items() if value not in (None, "")}
        return f"{self._mount}/{page}" + (f"?{urlencode(given)}" if given else "")

    def static(self, name: str) -> str:
        """Return the URL of a static file."""
        return f"{self._mount}/static/{name}?v={static_version(name)}"


def render(request: Request, template: str, /, status: int = 200, **values: Any) -> Response:
    """Return a page, or with the parameter `fragment` only what its refresh replaces; 304 if the browser has it."""
    fragment = "fragment" in request.query_params
    html = (
        environment()
        .get_template(template)
        .render(
            layout="fragment.html" if fragment else "base.html",
            url=PageUrls(request),
            here=str(request.url.path),
            status=status,
            **{"user": None, **values},
        )
    )
    body = html.encode("utf-8", errors="backslashreplace")
    etag = f'W/"{sha256(body).hexdigest()[:24]}"'
    headers = {"ETag": etag, "Cache-Control": "private, no-cache", "Vary": "Cookie"}
    if status == 200 and etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return HTMLResponse(body, status, headers)
