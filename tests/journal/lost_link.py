"""What a link that drops every packet does to a journal: a program for a network namespace of its own.

`unshare --net python -m tests.journal.lost_link postgres|zookeeper` prints one JSON object: the seconds until each call
was given up, and until the journal answered again once packets passed. Nothing outside the namespace notices.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kafka_steward.errors import JournalUnreachable, LockLost
from kafka_steward.journal.mailbox import read_one
from kafka_steward.journal.store import Journal, open_journal
from kafka_steward.journal.zookeeper.options import ZooKeeperOptions
from tests.documents import create_document
from tests.journal.certificate import Certificate
from tests.journal.zookeeper import ZooKeeperServer
from tests.postgres import PostgresServer

#: No packet fits into a bucket of so few bytes, and so each is dropped; a silent link sends no refusal either.
_DROP = ("tc", "qdisc", "add", "dev", "lo", "root", "tbf", "rate", "8bit", "burst", "10", "latency", "1ms")
_PASS = ("tc", "qdisc", "del", "dev", "lo", "root")
_GIVEN_UP_S = 120.0

Opener = Callable[[], Journal]


@contextmanager
def _dropping() -> Iterator[None]:
    subprocess.run(_DROP, check=True)
    try:
        yield
    finally:
        subprocess.run(_PASS, check=True)


def _seconds(call: Callable[[], object]) -> float:
    """How long it takes until the call is given up. Raises AssertionError when it is answered."""
    began_s = time.monotonic()
    try:
        call()
    except (JournalUnreachable, LockLost):
        return time.monotonic() - began_s
    raise AssertionError("It was answered over a link that drops everything.")


def _measured(opener: Opener, *, with_lock: bool = True) -> dict[str, float]:
    found = {}
    with opener() as journal:
        create_document(journal.mailbox, "/a/b", "x")
        with journal.step_lock("one") as fence, _dropping():
            if with_lock:
                found["a fence"] = _seconds(fence.check)
            found["a read"] = _seconds(lambda: read_one(journal.mailbox, "/a/b"))
            found["a write"] = _seconds(lambda: create_document(journal.mailbox, "/a/c", "x"))
            found["a new connection"] = _seconds(lambda: opener().close())
        began_s = time.monotonic()
        while time.monotonic() - began_s < _GIVEN_UP_S:
            with suppress(JournalUnreachable):
                read_one(journal.mailbox, "/a/b")
                break
        found["back"] = time.monotonic() - began_s
    return found


def _postgres() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder, PostgresServer(Certificate(Path(folder))) as server:
        url = f"postgresql+psycopg://steward@{server.host}:{server.port}/postgres?sslmode=require"
        return _measured(lambda: open_journal(url, "one"))


def _zookeeper() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder, ZooKeeperServer() as server:
        options = ZooKeeperOptions(server.at("journal"))
        url = f"sqlite:///{folder}/journal.db"
        return _measured(lambda: open_journal(url, "one", zookeeper=options), with_lock=False)


if __name__ == "__main__":
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    print(json.dumps({"postgres": _postgres, "zookeeper": _zookeeper}[sys.argv[1]]()))
