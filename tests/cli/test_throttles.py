"""`throttles`: what is left over is shown with the command that removes it, and removed when a person says so."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.doctor.findings import Commands, Level
from kafka_steward.doctor.kafka import throttle_finding
from kafka_steward.execution.throttles.leftovers import ThrottleSurvey, survey_throttles
from kafka_steward.execution.throttles.rates import ExternalRate, ThrottleSide, external_rates_message
from kafka_steward.journal.audit import Action, Outcome
from kafka_steward.journal.records import THROTTLE_LEASES, LeaseKey, ThrottleLease
from tests.cli.scene import Scene, new_scene
from tests.simulated_plan import FOLLOWERS, RATE, memory_journal
from tests.simulator import Simulator

LEADER_RATE, LEADERS = "leader.replication.throttled.rate", "leader.replication.throttled.replicas"
ALTER = "kafka-configs.sh --bootstrap-server 127.0.0.1:9001,127.0.0.1:9002 --alter --entity-type"


@pytest.fixture(params=("kraft", "zookeeper"))
def scene(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Scene:
    """Rates and lists at every level; somebody moves u-0 from 3 to 4, and t has a list with one duplicated entry."""
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123 231", "u: 123", "v: 12", "w: 12", mode=request.param, bandwidth=0)
    made = new_scene(monkeypatch, tmp_path)
    made.simulator, made.journal = simulator, memory_journal(simulator)
    simulator.broker_settings[3].update({RATE: "10", LEADER_RATE: "5"})
    simulator.broker_settings[4].update({RATE: "20", LEADER_RATE: "6"})
    simulator.topic_settings["t"].update({FOLLOWERS: "*"})
    simulator.topic_settings["u"].update({FOLLOWERS: "0:4,1:2,1:3", LEADERS: "*"})
    simulator.topic_settings["v"].update({LEADERS: ""})
    simulator.alter({next(name for name in simulator.topics if name.topic == "u"): (1, 2, 4)})
    return made


SHOWN = [
    ("broker", "3", RATE, "10", f"{ALTER} brokers --entity-name 3 --delete-config {RATE}"),
    ("broker", "4", LEADER_RATE, "6", f"{ALTER} brokers --entity-name 4 --delete-config {LEADER_RATE}"),
    ("topic", "t", FOLLOWERS, "*", f"{ALTER} topics --entity-name t --delete-config {FOLLOWERS}"),
    ("topic", "u", FOLLOWERS, "1:2,1:3", f"{ALTER} topics --entity-name u --add-config '{FOLLOWERS}=[0:4]'"),
    ("topic", "v", LEADERS, "", f"{ALTER} topics --entity-name v --delete-config {LEADERS}"),
]


def shown(scene: Scene, capsys: pytest.CaptureFixture[str], *words: str) -> list[tuple[Any, ...]]:
    capsys.readouterr()
    assert scene.call("throttles", *words, "--output", "json") == 0
    rows = json.loads(capsys.readouterr().out)
    return [tuple(row.values())[:5] for row in rows if not row.get("in_use")]


def used(scene: Scene, capsys: pytest.CaptureFixture[str]) -> list[tuple[Any, ...]]:
    """The throttles of others that limit a reassignment in flight, which the table marks, too."""
    capsys.readouterr()
    assert scene.call("throttles", "--output", "json") == 0
    rows = [row for row in json.loads(capsys.readouterr().out) if row["in_use"]]
    assert scene.call("throttles") == 0
    output = capsys.readouterr()
    assert sum(re.split(r"  +", line)[4] == "yes" for line in output.out.splitlines()) == len(rows)
    assert ("Those in use may limit" in output.err) == bool(rows)
    return [(row["level"], row["entity"], row["key"], row["value"]) for row in rows]


USED = [
    ("broker", "3", LEADER_RATE, "5"),
    ("broker", "4", RATE, "20"),
    ("topic", "u", FOLLOWERS, "0:4"),
    ("topic", "u", LEADERS, "*"),
]


def test_what_no_reassignment_needs_is_shown_and_removed_when_a_person_says_so(
    scene: Scene, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    simulator = scene.simulator
    assert shown(scene, capsys) == SHOWN
    before = [dict(of) for of in (*simulator.broker_settings.values(), *simulator.topic_settings.values())]
    for answer, code in ((None, 1), ("", 1), ("n\n", 1), ("y\n", 0)):
        stdin = io.StringIO(answer or "")
        monkeypatch.setattr(stdin, "isatty", lambda answer=answer: answer is not None)
        monkeypatch.setattr(sys, "stdin", stdin)
        capsys.readouterr()
        assert scene.call("throttles", "--remove", "--reason", "of May") == code
        output = capsys.readouterr()
        assert "--delete-config" in output.err
        now = [dict(of) for of in (*simulator.broker_settings.values(), *simulator.topic_settings.values())]
        assert (now == before) == (code == 1) == ("Nothing was changed." in output.err)
    assert [line.split()[-1] for line in output.out.splitlines()[1:]] == ["removed"] * len(SHOWN)
    assert simulator.broker_settings == {1: {}, 2: {}, 3: {LEADER_RATE: "5"}, 4: {RATE: "20"}}
    assert simulator.topic_settings == {"t": {}, "u": {FOLLOWERS: "0:4", LEADERS: "*"}, "v": {}, "w": {}}
    rows = scene.journal.audit.rows(action=Action.UNTHROTTLE)
    assert [row.outcome for row in rows] == [Outcome.DONE] * len(SHOWN)
    assert {(row.entry.reason, bool(row.entry.who.person)) for row in rows} == {
        ("no reassignment needs it: of May", True)
    }
    assert shown(scene, capsys) == shown(scene, capsys, "--remove") == []
    assert used(scene, capsys) == USED
    assert scene.call("throttles", "--remove", "--yes") == 0
    output = capsys.readouterr()
    assert ("nothing was changed" in output.err, output.out) == (True, "")


def test_a_rate_that_somebody_set_over_a_plans_is_shown_and_the_plans_is_not(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    lease = ThrottleLease(None, "50", {"p" * 64: ("50",)})
    for broker in (1, 2):
        scene.journal.rows(THROTTLE_LEASES).put(LeaseKey(str(broker), RATE), lease, None)
    scene.simulator.broker_settings[1][RATE] = "50"
    scene.simulator.broker_settings[2][RATE] = "1"
    assert shown(scene, capsys) == SHOWN, "what a plan has a lease on is not left over"
    assert used(scene, capsys) == [("broker", "2", RATE, "1"), *USED]
    found = throttle_finding(survey_throttles(scene.simulator, scene.journal), 50, Commands("kafka"))
    assert "Brokers 1 and 2" not in found.sentence
    assert f"Broker 2 has {RATE} 1 byte/s, set by someone else" in found.sentence


def test_a_rate_in_a_file_is_named_with_what_takes_it_away(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    scene.simulator.broker_files[2] = {RATE: "7"}
    said = (
        f"In server.properties: {RATE} 7 bytes/s of broker 2. Kafka shows such a rate and does not apply it to "
        "replication; only a change of the file and a restart of the broker take it away."
    )
    assert scene.call("throttles") == 0
    told = capsys.readouterr()
    assert said in told.err.splitlines()
    (line,) = [line for line in told.out.splitlines() if line.startswith("file ")]
    assert re.split(r"  +", line) == ["file", "2", RATE, "7", "no", "none: see below"]
    assert shown(scene, capsys)[-1] == ("file", "2", RATE, "7", None)
    assert said in throttle_finding(survey_throttles(scene.simulator, scene.journal), 50, Commands("kafka")).sentence
    assert scene.call("throttles", "--remove", "--yes") == 0
    assert scene.simulator.broker_files[2] == {RATE: "7"}


def test_brokers_whose_rates_were_not_read_are_named(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    scene.simulator.kill(4)
    unread = "The rates set on broker 4 were not read: it is not live, or does not answer."
    for words in ((), ("--remove", "--yes")):
        scene.call("throttles", *words)
        assert unread in capsys.readouterr().err.splitlines()
    found = throttle_finding(ThrottleSurvey((), (), unread=(4,)), 0, Commands("kafka"))
    assert (found.level, found.sentence) == (
        Level.NOTE, f"No throttle is left over, and no rate is stricter than that of plans. {unread}",
    )  # fmt: skip


def test_the_strictest_rates_are_named_and_the_others_counted() -> None:
    rates = [ExternalRate(broker, ThrottleSide.FOLLOWER, 10 - broker) for broker in range(1, 6)]
    said = external_rates_message(rates, 50)
    assert said.startswith(f"Broker 5 has {RATE} 5 bytes/s")
    assert f"Broker 4 has {RATE} 6 bytes/s" in said
    assert said.endswith(" 3 more such rates apply.")


def test_the_default_of_all_brokers_is_left_over_once_nothing_moves(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    simulator = scene.simulator
    simulator.broker_defaults[RATE] = "30"
    assert shown(scene, capsys) == SHOWN
    assert used(scene, capsys) == [("all brokers", None, RATE, "30"), *USED]
    moving = throttle_finding(survey_throttles(simulator, scene.journal), 8, Commands("kafka")).sentence
    assert LEADER_RATE not in moving, "neither broker leads what the list names"
    simulator.topics[TopicPartition("u", 0)].leader = 3
    moving = throttle_finding(survey_throttles(simulator, scene.journal), 8, Commands("kafka")).sentence
    assert f"Broker 3 has {LEADER_RATE} 5 bytes/s, set by someone else: it slows a plan's copies from there" in moving
    assert "A leader's rate slows only what a list names: u-0." in moving
    every = survey_throttles(simulator, scene.journal, leaders=True).rates
    assert {rate.broker for rate in every if rate.side is ThrottleSide.LEADER} == {3}, "4 leads nothing"
    simulator.cancel(list(simulator.topics))
    rows = shown(scene, capsys)
    assert ("all brokers", None, RATE, "30", f"{ALTER} brokers --entity-default --delete-config {RATE}") in rows
    assert len(rows) == 9
    survey = survey_throttles(simulator, scene.journal)
    found = throttle_finding(survey, 15, Commands("kafka", "k:1", secured=True))
    assert found.level is Level.NOTE
    assert found.command == "airflow kafka-steward throttles --cluster kafka"
    assert found.sentence.startswith("5 rates and 4 lists of throttled replicas are left over: no reassignment in")
    assert "15 bytes/s limit nothing" in found.sentence
    assert "kafka-configs.sh --bootstrap-server k:1 --command-config admin.properties --alter" in found.sentence
    assert throttle_finding(ThrottleSurvey((), survey.rates), 0, Commands("kafka")).level is Level.OK
    assert scene.call("throttles", "--remove", "--yes") == 0
    assert (simulator.broker_defaults, shown(scene, capsys), used(scene, capsys)) == ({}, [], [])
    simulator.broker_settings[3][LEADER_RATE] = "5"
    assert survey_throttles(simulator, scene.journal).rates == ()  # no topic lists a leader
