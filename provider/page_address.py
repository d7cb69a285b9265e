"""The addresses of the page in Airflow's api-server, for links to it. Pure.

`base_url` is the value of Airflow's option `[api] base_url`, which may be missing.
"""

from __future__ import annotations

import re
from urllib.parse import urlencode, urlsplit

#: The path of the page below Airflow's own; its URLs are written into notifications and links, so it is public.
MOUNT = "/kafka-steward"
#: A plan's digest, or as much of its beginning as the page accepts.
_DIGEST = re.compile(r"[0-9a-f]{6,64}")


def base_path(base_url: str | None) -> str:
    """Return the path of Airflow's address, without a trailing slash: empty unless Airflow is below a path."""
    return urlsplit(base_url or "").path.rstrip("/")


def is_digest(text: object) -> bool:
    """Return whether `text` is a plan's digest, or a prefix of one that is long enough for the page."""
    return isinstance(text, str) and _DIGEST.fullmatch(text) is not None


def plan_path(conn_id: str, digest: str, base_url: str | None) -> str:
    """Return the path of a plan's page: a browser that shows Airflow adds the host. Empty without a digest."""
    if not (conn_id and is_digest(digest)):
        return ""
    return f"{base_path(base_url)}{MOUNT}/plan?{urlencode({'conn': conn_id, 'digest': digest}, errors='replace')}"


def plan_url(conn_id: str, digest: str, base_url: str | None) -> str:
    """Return the whole URL of a plan's page, for a message that is read outside Airflow.

    Empty without a digest, and unless `base_url` is an address of the web.
    """
    parts, path = urlsplit(base_url or ""), plan_path(conn_id, digest, base_url)
    return f"{parts.scheme}://{parts.netloc}{path}" if path and parts.scheme in ("http", "https") else ""
