"""Somebody who types the tutorial, and looks at the page of Kafka Steward at a desk and on a phone meanwhile."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from tests.eventually import eventually
from tests.install.typed_page import Block
from tests.page import Page

__all__ = ["Person", "Viewer"]

#: What the page shows. Within Airflow, it is in a frame.
_SHOWN = """
(() => {
  const view = document.querySelector("iframe")?.contentWindow ?? window;
  const facts = [...view.document.querySelectorAll(".facts > div")];
  return {
    text: view.document.body?.innerText ?? "",
    word: view.document.querySelector("p.state .word")?.textContent ?? "",
    due: facts.find(each => each.firstElementChild.textContent === "Heals in")?.lastElementChild.textContent ?? "",
    fits: view.document.documentElement.scrollWidth <= view.innerWidth,
    row: !!view.document.querySelector("th a[href*='cluster?conn=']"),
  };
})()
"""
_OPEN_CLUSTER = """
(document.querySelector("iframe")?.contentDocument ?? document).querySelector("th a[href*='cluster?conn=']").click()
"""
#: The entry that the provider adds to Airflow's navigation.
_ENTRY = "a[href$='plugin/kafka-steward']"


@dataclass
class Viewer:
    """A browser with one width, and what the page showed in it, in order: states, countdowns, texts wider than it.

    In Airflow's frame, or by itself at the address of the page, as on a phone.
    """

    browser: Page
    framed: bool
    words: list[str] = field(default_factory=list)
    countdowns: list[str] = field(default_factory=list)
    too_wide: list[str] = field(default_factory=list)
    text: str = ""

    def sign_in(self, address: str, password: str) -> None:
        """Sign in to Airflow as its administrator, and open the page."""
        self.browser.go(address)
        self.browser.type("input[name=username]", "admin")
        self.browser.type("input[name=password]", password)
        self.browser.click("button[type=submit]")
        eventually(self._assert_signed_in, within=60)
        if self.framed:
            self.browser.click(_ENTRY)
        else:
            self.browser.go(f"{address}/kafka-steward/")

    def look(self) -> str:
        """Note what the page shows, open the cluster once it is listed, and return the `text`."""
        # A page that is being replaced by the next one has no answer.
        shown: dict[str, Any] = eventually(lambda: self.browser.evaluate(_SHOWN), within=30)
        for noted, value in ((self.words, shown["word"]), (self.countdowns, shown["due"])):
            if value and value not in noted[-1:]:
                noted.append(value)
        if not shown["fits"]:
            self.too_wide.append(shown["text"])
        if shown["row"]:
            eventually(lambda: self.browser.evaluate(_OPEN_CLUSTER), within=30)
        self.text = str(shown["text"])
        return self.text

    def _assert_signed_in(self) -> None:
        path = self.browser.evaluate("location.pathname")
        assert not path.startswith("/auth"), self.browser.text


@dataclass
class Person:
    """Reads on the page what the tutorial says, before typing on: `expected` is a text by a command of the block.

    The tutorial is typed in `folder`, and Airflow is at `address`.
    """

    folder: Path
    address: str
    viewers: Sequence[Viewer]
    expected: Sequence[tuple[str, str]]
    _signed_in: bool = False
    _ended: bool = False

    def beside(self, block: Block) -> bool:
        """Look at the page; return whether it shows what it has to before this block is typed."""
        expected = next((text for command, text in self.expected if command in block.typed), "")
        if expected and not self._signed_in:
            self._sign_in()
        if not self._signed_in or self._ended:
            return True
        texts = [viewer.look() for viewer in self.viewers]
        reached = all(expected in text for text in texts)
        # The last of them ends Airflow.
        self._ended = reached and self.expected[-1][0] in block.typed
        return reached

    def _sign_in(self) -> None:
        eventually(lambda: urlopen(self.address, timeout=30).close(), within=120, errors=(OSError,))  # noqa: S310 - http
        passwords = json.loads((self.folder / "airflow" / "simple_auth_manager_passwords.json.generated").read_text())
        for viewer in self.viewers:
            viewer.sign_in(self.address, passwords["admin"])
        self._signed_in = True
