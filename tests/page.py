"""A page in a real browser, as a person uses it: look, click, type. Spoken to in Chromium's own protocol."""

from __future__ import annotations

import base64
import itertools
import json
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from websockets.sync.client import ClientConnection, connect

from kafka_steward.sandbox.processes import ProcessGroup
from tests.chromium import Chromium, chromium
from tests.eventually import eventually

__all__ = ["Page", "browser"]

#: The middle of the element that a selector, a text, and a text of its row in a table describe, scrolled into view.
FIND = """
(selector, text, exact, row) => {
  const shown = e => e.getClientRects().length > 0;
  const fits = e => exact ? e.textContent.trim() === text : e.textContent.includes(text);
  const inRow = e => !row || (e.closest("tr")?.textContent ?? "").includes(row);
  const all = [...document.querySelectorAll(selector)].filter(e => shown(e) && fits(e) && inRow(e));
  const found = all.at(text ? -1 : 0);
  if (!found) return null;
  found.scrollIntoView({block: "center", behavior: "instant"});
  const box = found.getBoundingClientRect();
  return [box.x + box.width / 2, box.y + box.height / 2];
}
"""


class Page:
    """One tab."""

    def __init__(self, socket: ClientConnection, folder: Path) -> None:
        self._socket = socket
        self._folder = folder
        self._numbers = itertools.count(1)
        for domain in ("Page", "Runtime", "Network"):
            self.tell(f"{domain}.enable")

    def tell(self, method: str, **parameters: Any) -> Any:
        """Send a command of the protocol; its result."""
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while (answer := json.loads(self._socket.recv(timeout=60))).get("id") != number:
            pass  # events, which nobody asked for
        assert "error" not in answer, answer["error"]
        return answer["result"]

    def log_in(self, url: str, token: str) -> None:
        """Be the user whose token this is."""
        self.tell("Network.setCookie", name="_token", value=token, url=url)

    def go(self, url: str) -> None:
        self.tell("Page.navigate", url=url)

    def evaluate(self, script: str) -> Any:
        told = self.tell("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    @property
    def text(self) -> str:
        """What the page shows."""
        return str(self.evaluate("document.body.innerText"))

    def shows(self, *texts: str, within: float = 60) -> None:
        """Wait until it shows all of these."""
        eventually(lambda: self._assert_shows(texts), within=within)

    def click(self, selector: str, text: str = "", *, exact: bool = False, row: str = "") -> None:
        """Click on the first such element, or on the last one with this text, or with `exact` with no other text.

        `row` is a text that the table's row has in which the element is.
        """
        x, y = eventually(lambda: self._still_place(selector, text, exact, row), within=60)
        for kind, buttons in (("mouseMoved", 0), ("mousePressed", 1), ("mouseReleased", 0)):
            self.tell("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=buttons, clickCount=1)

    def open(self, selector: str, text: str, shown: str) -> None:
        """Click on what opens a part of the page, until that part is shown: what is still growing moves away."""
        eventually(lambda: self._assert_open(selector, text, shown), within=60)

    def type(self, selector: str, text: str) -> None:
        """Replace what such an input holds."""
        self.click(selector)
        self.evaluate("document.activeElement.select?.()")
        self.tell("Input.insertText", text=text)

    def photograph(self, name: str, *, height: int = 900) -> Path:
        """What it looks like, as a PNG file."""
        self.tell("Emulation.setDeviceMetricsOverride", width=1400, height=height, deviceScaleFactor=1, mobile=False)
        path = self._folder / f"{name}.png"
        path.write_bytes(base64.b64decode(self.tell("Page.captureScreenshot", format="png")["data"]))
        return path

    def emulate(self, *, width: int, height: int, dark: bool = False) -> None:
        """Be a window of this size, on a system that prefers light or dark pages."""
        self.tell("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        preferred = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.tell("Emulation.setEmulatedMedia", features=preferred)

    def capture(self) -> bytes:
        """What the window shows, as a PNG."""
        return base64.b64decode(self.tell("Page.captureScreenshot", format="png")["data"])

    def _assert_shows(self, texts: tuple[str, ...]) -> None:
        shown = self.text
        assert not [text for text in texts if text not in shown], f"the page shows: {shown}"

    def _assert_open(self, selector: str, text: str, shown: str) -> None:
        if shown not in self.text:
            self.click(selector, text)
            self.shows(shown, within=5)

    def _still_place(self, *described: str | bool) -> tuple[float, float]:
        # A dialog slides in, and what is above grows when it is filled: a click would miss.
        before = self._place(*described)
        time.sleep(0.2)
        assert before == self._place(*described), f"{described} is moving"
        return before

    def _place(self, *described: str | bool) -> tuple[float, float]:
        place = self.evaluate(f"({FIND})({', '.join(map(json.dumps, described))})")
        assert place, f"there is no {described}; the page shows: {self.text}"
        return float(place[0]), float(place[1])


@contextmanager
def browser(folder: Path, program: Chromium | None = None) -> Iterator[Page]:
    """A browser with one empty page; it ends with the block. Photographs go to `folder`."""
    program = program or chromium()
    group = ProcessGroup(f"browser:{secrets.token_hex(8)}")
    profile = folder / "profile"
    profile.mkdir(parents=True)
    try:
        environment = {**os.environ, "HOME": str(profile), **program.environment}
        group.spawn(program.command(profile), env=environment, log=folder / "browser.log")
        port = eventually(lambda: int((profile / "DevToolsActivePort").read_text().split()[0]), errors=(OSError,))
        # Events queue up while nobody asks the tab for anything, and an answer to a ping would wait behind them.
        with connect(_new_page(port), max_size=None, max_queue=None, ping_interval=None) as socket:
            page = Page(socket, folder)
            page.photograph("empty")
            yield page
    finally:
        group.end(grace_s=3)


def _new_page(port: int) -> str:
    request = Request(f"http://127.0.0.1:{port}/json/new?about:blank", method="PUT")
    with urlopen(request, timeout=30) as answer:  # noqa: S310 - http on 127.0.0.1
        return str(json.load(answer)["webSocketDebuggerUrl"])
