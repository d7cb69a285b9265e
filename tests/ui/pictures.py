"""Takes the pictures of docs/page.md from the running page: `python -m tests.ui.pictures docs/pictures`.

The clusters are those of tests/ui/scene.py, without its hostile names; the browser is that of tests/chromium.py.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests import airflow_home  # before Airflow
from tests.eventually import eventually
from tests.page import Page, browser
from tests.ui import scene as scenes
from tests.ui.conftest import everything
from tests.ui.scene import CONN_IDS, Scene, digest_of, fill_scene

__all__ = ["PICTURES", "VIEWS", "shown_scene", "take"]

FAILED, MOVING, QUIET = CONN_IDS
#: Each view: its page, width and height. A picture is taken of each in light, and one in dark.
VIEWS: dict[str, tuple[str, int, int]] = {
    "fleet": ("", 1200, 420),
    "cluster": (f"cluster?conn={MOVING}", 1200, 1000),
    "failed": (f"cluster?conn={FAILED}", 1200, 820),
    "plan": (f"plan?conn={MOVING}&digest={digest_of('running')}", 1200, 1000),
    "health": (f"health?conn={FAILED}", 1200, 900),
    "audit": (f"audit?conn={MOVING}", 1200, 620),
    "stop": (f"stop?conn={FAILED}", 1200, 420),
    "phone": (f"cluster?conn={FAILED}", 360, 760),
}
#: The names of the files, and whether each is dark.
PICTURES = {f"{view}{suffix}.png": (view, bool(suffix)) for view in VIEWS for suffix in ("", "-dark")}


@contextmanager
def shown_scene(folder: Path) -> Iterator[Scene]:
    """A scene in a journal below `folder`, with Airflow connections in the environment."""
    import json
    import os

    made = Scene(f"sqlite:///{folder}/journal.db", int(time.time() * 1000))
    fill_scene(made)
    names = {}
    for conn_id in CONN_IDS:
        extra = {"journal": made.url, "cluster_id": scenes.cluster_id(conn_id)}
        connection = {"conn_type": "kafka_steward", "host": airflow_home.NOWHERE, "extra": extra}
        names[f"AIRFLOW_CONN_{conn_id.upper()}"] = json.dumps(connection)
    os.environ |= names
    try:
        yield made
    finally:
        for name in names:
            del os.environ[name]


def take(page: Page, url: str, view: str, file: Path, *, dark: bool) -> None:
    """Take one picture."""
    path, width, height = VIEWS[view]
    page.emulate(width=width, height=height, dark=dark)
    page.go(url + path)
    page.shows("Times are in UTC")
    if view == "health":
        eventually(lambda: _assert_drawn(page), within=60)
    file.write_bytes(page.capture())


def _assert_drawn(page: Page) -> None:
    assert page.evaluate("document.querySelectorAll('.chart canvas').length")


def main(folder: Path) -> None:
    from tests.ui.serving import served

    folder.mkdir(parents=True, exist_ok=True)
    scenes.HOSTILE = "orders"
    with (
        tempfile.TemporaryDirectory() as work,
        shown_scene(Path(work)),
        served(everything()) as desk,
        browser(Path(work) / "browser") as page,
    ):
        for name, (view, dark) in PICTURES.items():
            take(page, desk.page, view, folder / name, dark=dark)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
