"""disable, enable, bounce, failed and watch, on a simulated cluster."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import signal
from collections.abc import Sequence
from typing import Any

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.cli import Exit
from kafka_steward.errors import ClusterUnreachable, JournalUnreachable, SettingError
from kafka_steward.execution.announcements import disabled_advice
from kafka_steward.execution.watch.failure_detector import FailureDetector
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action, AuditRecord
from kafka_steward.journal.listing import quarantine_unreadable
from kafka_steward.journal.mailbox import Node, read_one
from kafka_steward.journal.records import EMPTY_BROKERS, FILL_EVENT, PENDING_REPLICAS, WRITTEN, PendingReplicas
from kafka_steward.journal.state import ONLY
from kafka_steward.settings import Settings
from tests.cli.scene import CLUSTER, Scene
from tests.documents import create_document
from tests.protocol.simulated_watch import document
from tests.simulated_plan import WHO


def test_disable_and_enable(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    assert scene.call("disable", "--reason", "moving racks") == Exit.DONE
    assert "moves in flight complete" in capsys.readouterr().out
    assert read_one(scene.journal.mailbox, paths.REASSIGN_CANCEL) is not None
    assert scene.call("enable", "--output", "json") == Exit.DONE
    assert json.loads(capsys.readouterr().out)["enabled"] is True
    assert read_one(scene.journal.mailbox, paths.REASSIGN_CANCEL) is None
    assert scene.call("disable") == Exit.USAGE


@pytest.mark.parametrize(("words", "lasts_ms"), [((), None), (("--for", "2h"), 7_200_000), (("--for", "90s"), 90_000)])
def test_bounce(scene: Scene, words: tuple[str, ...], lasts_ms: int | None) -> None:
    assert scene.call("bounce", "3", *words) == Exit.DONE
    node = read_one(scene.journal.mailbox, paths.rolling_bounce(3))
    assert node is not None
    written = json.loads(node.data)
    assert written.get("expiry") == (None if lasts_ms is None else written["timestamp"] + lasts_ms)


def test_a_bounce_is_shown_and_withdrawn(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    assert scene.call("bounce", "3") == Exit.DONE
    assert scene.call("status") == Exit.DONE
    assert "Broker 3 announced a restart." in capsys.readouterr().out.splitlines()
    assert scene.call("bounce", "3", "--withdraw") == Exit.DONE
    assert capsys.readouterr().out.startswith("The announced restart of broker 3 is withdrawn")
    assert read_one(scene.journal.mailbox, paths.rolling_bounce(3)) is None
    assert scene.call("bounce", "3", "--withdraw") == Exit.FAILED
    assert "no restart of the broker is announced" in capsys.readouterr().err
    assert [row.entry.broker for row in scene.journal.audit.rows(action=Action.CLEAR)] == [3]


@pytest.mark.parametrize("words", [("x",), ("3", "--for", "soon"), ("3", "--for", "0s"), ()])
def test_what_is_no_bounce(scene: Scene, words: tuple[str, ...]) -> None:
    assert scene.call("bounce", *words) == Exit.USAGE


def test_of_a_broker_that_hosts_only_what_is_lost_no_heal_is_announced(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.simulator.create("lost", [(9,)])
    assert scene.call("failed", "9") == Exit.DONE
    assert capsys.readouterr().out.startswith(
        "Broker 9 is reported as failed: no heal can move what it hosts, of which no replica is live; bring it back"
    )
    detector = FailureDetector(scene.simulator, scene.journal, Settings(), WHO)
    looked = detector.poll()
    assert "no heal can move what broker 9 hosted: no replica of it is live" in looked.sentence
    assert "will be healed" not in looked.sentence


def test_each_command_that_a_message_suggests_names_the_cluster(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of an outage, a report in it, a report that cannot be withdrawn, no plan, an unknown one, and held moves."""
    scene.simulator.kill(1)
    scene.simulator.kill(2)
    told = []
    for words in ("status", "failed 1 --reason x", "failed 4 --withdraw", "resume", "verify beef"):
        scene.call(*words.split())
        told += re.findall(r"airflow kafka-steward [^`.,;\n]*", "".join(capsys.readouterr()))
    assert scene.call("disable", "--reason", "racks") == Exit.DONE
    told += re.findall(r"airflow kafka-steward [^`.,;\n]*", disabled_advice(scene.journal))
    suggested = ["failed 1", "failed 2", "cancel", "plans", "plans", "enable"]
    assert told == [f"airflow kafka-steward {each} --cluster {CLUSTER}" for each in suggested]


def test_a_failure_is_reported_and_withdrawn(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    scene.simulator.kill(3)
    assert scene.call("failed", "3", "--reason", "its host burnt down") == Exit.DONE
    assert capsys.readouterr().out.startswith("Broker 3 is reported as failed: its heal is due at once")
    node = read_one(scene.journal.mailbox, paths.failed_broker(3))
    assert node is not None
    assert json.loads(node.data)["reason"] == "its host burnt down"
    assert scene.call("failed", "3", "--withdraw", "--output", "json") == Exit.DONE
    said = "The heal of broker 3 is called off until the broker is live again."
    assert json.loads(capsys.readouterr().out) == {"broker": 3, "sentence": said}
    assert scene.call("status", "--output", "json") == Exit.DONE
    facts = json.loads(capsys.readouterr().out)
    assert (facts["failures_written_down"], facts["heals_called_off"]) == ([], [3])
    assert scene.call("failed", "3", "--withdraw") == Exit.FAILED


def test_a_failed_disk_is_reported_and_withdrawn(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    scene.simulator.fail_disk(2, next(iter(scene.simulator.topics)))
    assert scene.call("failed", "2", "--disk", "/disk-2") == Exit.DONE
    assert capsys.readouterr().out.startswith("The log directory /disk-2 of broker 2 is reported as failed")
    assert scene.call("failed", "2", "--disk", "/disk-2", "--withdraw") == Exit.DONE
    assert "is withdrawn" in capsys.readouterr().out
    assert scene.call("failed", "2", "--disk", "/disk-1") == Exit.FAILED
    assert "Kafka reports /disk-2 of it as failed" in capsys.readouterr().err


def test_a_live_broker_is_not_reported_and_what_to_do_is_said(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    assert scene.call("failed", "3") == Exit.FAILED
    assert "Broker 3 was not reported as failed: it is live; to move its replicas" in capsys.readouterr().err
    assert scene.call("failed") == Exit.USAGE
    assert scene.call("failed", "x") == Exit.USAGE


def test_watch_carries_documents_out_until_it_is_interrupted(
    scene: Scene, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name, partition = next(iter(scene.simulator.topics.items()))
    target = (*partition.replicas[1:], partition.replicas[0])
    create_document(
        scene.journal.mailbox,
        f"{paths.REASSIGNMENT_REQUESTS}/by-hand",
        document([f"{name} {''.join(map(str, target))}"]),
    )

    def interfere(pauses: int) -> None:
        if scene.simulator.topics[name].replicas == target:
            os.kill(os.getpid(), signal.SIGINT)

    scene.interfere = interfere
    assert scene.call("watch") == Exit.INTERRUPTED
    assert "requested by /admin/reassignment_requests/by-hand" in capsys.readouterr().out


@pytest.mark.parametrize("away", ["cluster", "journal"])
def test_watch_outlives_an_outage_of_any_length_and_says_so_once_and_when_it_is_over(
    scene: Scene, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, away: str
) -> None:
    error = ClusterUnreachable("No bootstrap server answers.") if away == "cluster" else JournalUnreachable("No SQL.")
    scene.journal.mailbox.append(paths.REQUEST_PREFIX, document(["t-0 124"]))
    of_journal = type(scene.journal.mailbox).read

    def read(mailbox: Any, paths: Sequence[str]) -> Any:
        if away == "journal" and not 3 < scene.pauses < 6 and scene.pauses < 300:
            raise error
        return of_journal(mailbox, paths)

    monkeypatch.setattr(type(scene.journal.mailbox), "read", read)

    def interfere(pauses: int) -> None:
        if away == "cluster":
            scene.simulator.reachable = 3 < pauses < 6 or pauses >= 300
        if scene.replicas()[0] == (1, 2, 4) and pauses > 400:
            os.kill(os.getpid(), signal.SIGINT)

    scene.simulator.reachable = away == "journal"
    scene.interfere = interfere
    assert scene.call("watch") == Exit.INTERRUPTED
    assert scene.replicas()[0] == (1, 2, 4)
    out, err = capsys.readouterr()
    told = [line for line in err.splitlines() if str(error) in line]
    assert "requested by" in out
    assert 1 <= len(told) <= 2, "once for each outage"
    assert all("tries again" in line for line in told)
    assert out.count("works again.") == len(told)


def test_watch_at_a_broken_connection_ends_with_a_sentence(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    scene.down = SettingError("The connection has no bootstrap servers; name some.")
    assert scene.call("watch") == Exit.FAILED
    assert capsys.readouterr().err.splitlines()[-1] == "The connection has no bootstrap servers; name some."


def test_watch_finds_failed_and_joined_brokers_and_leaves_their_events_to_the_watch_of_a_dag(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.simulator.create("small", [(1,)])
    pending = PendingReplicas.from_brokers((1,), 2)
    scene.journal.rows(PENDING_REPLICAS).put(TopicPartition("small", 0), pending, None)

    def interfere(pauses: int) -> None:
        if pauses == 2:
            scene.simulator.kill(3)
        if pauses > 2_400:  # more seconds than the grace period
            os.kill(os.getpid(), signal.SIGINT)

    scene.interfere = interfere
    assert scene.call("watch") == Exit.INTERRUPTED
    assert read_one(scene.journal.mailbox, paths.failed_broker(3)) is not None
    assert scene.journal.rows(EMPTY_BROKERS).get(ONLY) is not None
    out = capsys.readouterr().out
    assert "1 replica of 1 partition is pending; brokers 2 and 4 can host some." in out
    assert "Broker 3 is down longer than the grace period: it will be healed." in out
    assert scene.journal.audit.rows(action=Action.ANNOUNCE) == []
    assert scene.journal.rows(FILL_EVENT).get(ONLY) is None


def test_watch_prints_what_others_wrote_as_one_printable_line(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    wild = json.dumps({"plan": "x\x1b[2J\nPlan abc is complete.\u202e", "reason": "\x1b[31m"})
    create_document(scene.journal.mailbox, paths.CANCEL_IN_PROGRESS, wild)
    scene.interfere = lambda _: os.kill(os.getpid(), signal.SIGINT)
    assert scene.call("watch") == Exit.INTERRUPTED
    told = capsys.readouterr().out
    assert told.strip()
    assert all(line.isprintable() for line in told.splitlines())
    assert not any(line.startswith("Plan abc") for line in told.splitlines())


def test_status_names_the_newest_document_in_quarantine(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    def quarantined() -> list[str]:
        assert scene.call("status") == Exit.DONE
        return [each for each in capsys.readouterr().out.splitlines() if each.startswith("in quarantine")]

    assert quarantined() == []
    for name in ("x", "y"):
        create_document(scene.journal.mailbox, f"{paths.FAILED_BROKERS}/{name}", "1")
        quarantine_unreadable(scene.journal, WRITTEN, WHO)
    (line,) = quarantined()
    assert line.startswith(f"in quarantine: {paths.FAILED_BROKERS}/y, in row ")
    assert "steward_state (and 1 before it): " in line
    assert line.endswith(" It has no effect: correct what wrote it, and write it again.")
    scene.call("status", "--output", "json")
    aside = json.loads(capsys.readouterr().out)["documents_in_quarantine"]
    names = [each["path"].rpartition("/")[2] for each in aside["newest"]]
    assert (aside["count"], names) == (2, ["y", "x"])


def test_status_names_the_documents_that_cannot_be_read(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("3", "foo\x1b[2J", "0003"):
        mailbox: Any = scene.journal.mailbox
        mailbox._nodes[f"{paths.FAILED_BROKERS}/{name}"] = Node(f"{paths.FAILED_BROKERS}/{name}", "{}", 0, 7, 7, 7, 7)
    assert scene.call("status") == Exit.DONE
    lines = capsys.readouterr().out.splitlines()
    assert "failures written down: 3" in lines
    (line,) = [each for each in lines if each.startswith("documents that cannot be read: ")]
    assert "/admin/failed_brokers/0003" in line
    assert r"/admin/failed_brokers/foo\x1b[2J" in line


def test_cells_that_a_spreadsheet_would_calculate_are_text(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    scene.journal.audit.record(AuditRecord(Action.HOLD, "=HYPERLINK(1)", "ab", topic="t", partition=0, attempt=-1))
    scene.call("audit", "--output", "csv")
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert (row["reason"], row["attempt"]) == ("'=HYPERLINK(1)", "-1")
