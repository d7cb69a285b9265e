"""`airflow kafka-steward watch` as a process, on a real cluster: what it finds, and that no outage ends it."""

from __future__ import annotations

import signal
from functools import partial
from pathlib import Path

import pytest

from kafka_steward.hooks.steward import StewardHook
from kafka_steward.journal import paths
from kafka_steward.journal.store import Journal
from kafka_steward.sandbox import Sandbox
from tests.airflow_home import Connect
from tests.cli.airflow_command import assignments, begin
from tests.eventually import eventually
from tests.protocol.simulated_watch import document

pytestmark = pytest.mark.apart


@pytest.mark.ci
def test_watch_enters_a_killed_broker_and_goes_on_after_an_outage_of_every_broker(
    kraft_sandbox: Sandbox, connect: Connect, topic: str, tmp_path: Path
) -> None:
    sandbox = kraft_sandbox
    sandbox.create_topics(topic, assignments={0: (1, 2, 3)})
    conn_id = connect(host=sandbox.bootstrap, extra={"bootstrap_timeout_ms": 5_000, "step_interval": 0.5})
    with (
        StewardHook(conn_id).open() as opened,
        (tmp_path / "out").open("w") as out,
        (tmp_path / "err").open("w") as err,
    ):
        watching = begin("watch", "--cluster", conn_id, to=(out, err))
        try:
            sandbox.kill(3)
            eventually(partial(failed, opened.journal, 3, there=True), within=120)
            sandbox.restart(3)
            eventually(partial(failed, opened.journal, 3, there=False), within=120)
            for broker in sandbox.brokers:
                sandbox.kill(broker)
            eventually(partial(said, tmp_path / "err", "and tries again: "), within=120)
            for broker in sandbox.brokers:
                sandbox.restart(broker)
            eventually(partial(said, tmp_path / "out", f"The watch of {conn_id} works again."), within=180)
            opened.journal.tree.create_sequential(paths.REQUEST_PREFIX, document([f"{topic}-0 421"]))
            eventually(lambda: moved(sandbox, topic), within=120)
            assert watching.poll() is None
            watching.send_signal(signal.SIGINT)
            assert watching.wait(60) == 130
        finally:
            watching.kill()
            watching.wait(30)


def failed(journal: Journal, broker: int, *, there: bool) -> None:
    assert (journal.tree.get(paths.failed_broker(broker)) is not None) is there


def said(file: Path, words: str) -> None:
    assert words in file.read_text()


def moved(sandbox: Sandbox, topic: str) -> None:
    assert assignments(sandbox, topic)[topic] == {0: (4, 2, 1)}
