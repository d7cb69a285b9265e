"""queue, requests and signal, and what `status` says of the documents, on a simulated cluster."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from kafka_steward.cli import Exit, declare_commands
from kafka_steward.cli.declarations import GroupCommand
from kafka_steward.document_api.controller import DocumentController
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action, Actor
from kafka_steward.journal.mailbox import MAX_BYTES, read_one
from kafka_steward.journal.records import CORDONS, DEMOTIONS, Cordon, CordonPhase, Demotion, PlanStatus
from kafka_steward.settings import Settings
from tests.cli.scene import Scene
from tests.documents import create_document
from tests.protocol.simulated_watch import document
from tests.tool_output import generate_output

WATCH = Actor(task_id="watch")
MOVED = {"topic": "t", "partition": 0, "replicas": [4, 2, 3]}


def poll(scene: Scene, times: int = 1) -> DocumentController:
    watch = DocumentController(scene.simulator, scene.journal, Settings.of({"throttle": 0}), WATCH)
    for number in range(times):
        watch.poll()
        if number < times - 1:
            scene.simulator.tick()
    return watch


def output_of(scene: Scene, capsys: pytest.CaptureFixture[str], *words: str, code: Exit = Exit.DONE) -> Any:
    """The JSON that a verb prints."""
    capsys.readouterr()
    assert scene.call(*words, "--output", "json") == code
    return json.loads(capsys.readouterr().out)


def test_the_queue_is_listed_as_the_document_that_is_added(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    file = scene.file("t-0: 423", {**MOVED, "partition": 1, "log_dirs": ["any", "any", "any"]})
    assert scene.call("queue", "add", file) == Exit.DONE
    assert scene.call("queue", "add", file) == Exit.FAILED
    assert "/admin/reassign_partitions_queue exists" in capsys.readouterr().err
    listed = output_of(scene, capsys, "queue", "list")
    assert listed["partitions"][0] == MOVED
    assert scene.call("queue", "remove") == Exit.DONE
    again = Path(scene.file())
    again.write_text(json.dumps(listed))
    assert scene.call("queue", "add", str(again)) == Exit.DONE
    assert output_of(scene, capsys, "queue", "list") == listed
    assert scene.call("queue", "list", "--output", "csv") == Exit.DONE
    assert list(csv.reader(io.StringIO(capsys.readouterr().out)))[1] == ["t", "0", "[4, 2, 3]"]
    assert scene.call("queue", "remove") == Exit.DONE
    assert scene.call("queue", "list") == Exit.DONE
    assert capsys.readouterr().out.endswith("partition  replicas\n")
    assert scene.call("queue", "remove") == Exit.DONE
    assert output_of(scene, capsys, "queue", "list") == {"version": 1, "partitions": []}


@pytest.mark.parametrize("verb", ["queue", "requests"])
def test_a_submission_may_name_directories_and_be_what_kafkas_tool_printed(
    scene: Scene, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    file = Path(scene.file({**MOVED, "log_dirs": ["/disk-2", "/disk-1", "/disk-1"]}))
    file.write_text(f"Current partition replica assignment\n\n{file.read_text()}\n\nSave this to use")
    assert scene.call(verb, "add", str(file)) == Exit.DONE
    said = capsys.readouterr().err
    assert 'names a log directory (KIP-113) for t-0 on broker 4; it is taken as "any"' in said
    poll(scene, 30)
    assert scene.replicas()[0] == (4, 2, 3)


@pytest.mark.parametrize("verb", ["queue", "requests"])
def test_a_submission_that_moves_a_replica_within_a_broker_is_refused(
    scene: Scene, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    file = scene.file({**MOVED, "log_dirs": ["any", "/disk-2", "any"]})
    assert scene.call(verb, "add", file) == Exit.FAILED
    error = capsys.readouterr().err
    assert 'it names the log directory "/disk-2" (KIP-113) for t-0 on broker 2, which has it in "/disk-1"' in error
    assert error.count("\n") == 1
    printed = scene.folder / "generated.txt"
    printed.write_text(generate_output("4.3"))
    assert scene.call(verb, "add", str(printed)) == Exit.FAILED
    assert "has two assignments, in the lines 2 and 5; keep one" in capsys.readouterr().err
    assert read_one(scene.journal.mailbox, paths.REASSIGN_QUEUE) is None
    assert scene.journal.mailbox.children(paths.REASSIGNMENT_REQUESTS) == []


@pytest.mark.parametrize("verb", ["queue", "requests"])
def test_a_submission_is_read_as_apply_reads_a_file(
    scene: Scene, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    assert (
        scene.call(verb, "add", scene.file({**MOVED, "replicas": [4, 4]}, {**MOVED, "replicas": []}, "t-1: 231")) == 1
    )
    assert capsys.readouterr().err == (
        "The reassignment of t-0 names broker 4 twice. The reassignment of t-0 names no broker.\n"
    )
    file = scene.file(*({**MOVED, "partition": number, "log_dirs": ["any"] * 3} for number in range(12_000)))
    printed = Path(file)
    printed.write_text(f"Current partition replica assignment\n\n{printed.read_text()}\n\nSave this to use")
    assert printed.stat().st_size > MAX_BYTES
    assert scene.call(verb, "add", file) == Exit.DONE


@pytest.mark.parametrize("output", [(), ("--output", "json"), ("--output", "csv")])
def test_an_empty_queue_is_verified(scene: Scene, capsys: pytest.CaptureFixture[str], output: tuple[str, ...]) -> None:
    assert scene.call("queue", "verify", *output) == Exit.DONE
    assert capsys.readouterr().err == "Nothing is queued.\n"


def test_each_partition_of_a_file_is_verified(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    file = scene.file("t-0: 423", "t-1: 231", "t-2: 912")
    found = output_of(scene, capsys, "queue", "verify", file, code=Exit.FAILED)
    assert [each["state"] for each in found] == ["incomplete", "complete", "incomplete"]
    assert scene.call("queue", "add", file) == Exit.DONE
    assert [each["state"] for each in output_of(scene, capsys, "queue", "verify", file, code=Exit.UNFINISHED)] == [
        "waiting", "complete", "waiting",
    ]  # fmt: skip
    poll(scene)
    assert scene.call("queue", "verify", file) == Exit.UNFINISHED
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "Reassignment of partition t-0 is still in progress.",
        "Reassignment of partition t-1 is completed.",
        "Reassignment of partition t-2 was refused: the cluster has no broker 9.",
    ]
    assert err == "2 of 3 partitions do not have their requested replicas.\n"
    poll(scene, 30)
    found = output_of(scene, capsys, "queue", "verify", file, code=Exit.FAILED)
    assert [each["state"] for each in found] == ["complete", "complete", "refused"]
    assert scene.call("queue", "verify", scene.file("t-0: 423")) == Exit.DONE
    assert capsys.readouterr().err == ""


def test_the_queue_itself_is_verified_until_all_of_it_is_complete(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.call("queue", "add", scene.file("t-0: 423"))
    (status,) = output_of(scene, capsys, "queue", "verify", code=Exit.UNFINISHED)
    assert (status["state"], status["replicas"], status["plan"]) == ("waiting", [4, 2, 3], None)
    poll(scene)
    (status,) = output_of(scene, capsys, "queue", "verify", code=Exit.UNFINISHED)
    assert (status["state"], status["plan"]) == ("started", scene.plan.digest)


def test_a_request_is_added_listed_and_withdrawn(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    added = output_of(scene, capsys, "requests", "add", scene.file("t-0: 423", "t-1: 241", "t-2: 412", "t-3: 342"))
    name = added["request"]
    assert (name, added["partitions"]) == ("request_0000000000", 4)
    (listed,) = output_of(scene, capsys, "requests", "list")
    assert (listed["request"], listed["path"]) == (name, f"/admin/reassignment_requests/{name}")
    assert (listed["partitions"][0], len(listed["partitions"])) == (MOVED, 4)
    assert listed["waits"] == "for the next poll of a watch"
    assert scene.call("requests", "list") == Exit.DONE
    (_, line) = capsys.readouterr().out.splitlines()
    assert "t-0 to [4, 2, 3], t-1 to [2, 4, 1], t-2 to [4, 1, 2] and 1 more  waits for the next poll" in line
    assert scene.call("requests", "remove", name) == Exit.DONE
    assert scene.call("requests", "remove", name) == Exit.FAILED
    assert output_of(scene, capsys, "requests", "list") == []
    poll(scene)
    assert scene.journal.plans.latest(1) == []


def test_chunks_that_people_wrote_are_listed_with_the_requests_and_shown_by_status(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.call("requests", "add", scene.file("t-0: 423"))
    for number in range(1, 5):
        chunk = {"partitions": [{**MOVED, "partition": number % 4}], "isAutoGenerated": False}
        scene.journal.mailbox.append(paths.CHUNK_PREFIX, json.dumps(chunk))
    listed = output_of(scene, capsys, "requests", "list")
    assert [(each["kind"], each["request"]) for each in listed] == [
        ("request", "request_0000000000"), *(("chunk", f"chunk_000000000{number}") for number in range(4)),
    ]  # fmt: skip
    assert listed[1]["partitions"] == [{**MOVED, "partition": 1}]
    before = "for /admin/reassign_chunks/chunk_0000000000, the chunk before it"
    assert [each["waits"] for each in listed[1:3]] == ["for the next poll of a watch", before]
    assert scene.call("requests", "list") == Exit.DONE
    assert f"t-2 to [4, 2, 3]  waits {before}" in capsys.readouterr().out
    found = lines(scene, capsys)
    assert f"chunk: chunk_0000000001, 1 partition waits {before}: t-2 to [4, 2, 3]" in found
    assert "chunks: 4 in all" in found
    facts = output_of(scene, capsys, "status")["chunks"]
    assert [(each["chunk"], each["waits"]) for each in facts[:2]] == [
        ("chunk_0000000000", "for the next poll of a watch"), ("chunk_0000000001", before),
    ]  # fmt: skip


def test_a_request_is_executed_by_watch(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    file = scene.file("t-0: 423")
    scene.call("requests", "add", file)

    def interfere(_: int) -> None:
        if scene.replicas()[0] == (4, 2, 3):
            os.kill(os.getpid(), signal.SIGINT)

    scene.interfere = interfere
    assert scene.call("watch") == Exit.INTERRUPTED
    assert scene.call("queue", "verify", file) == Exit.DONE
    assert capsys.readouterr().out.endswith("Reassignment of partition t-0 is completed.\n")


def test_the_signal_cancels_a_plan_that_runs(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    before = scene.replicas()

    def interfere(pause: int) -> None:
        if pause == 1:
            assert scene.call("signal", "cancel", "--plan", scene.plan.digest[:8], "--reason", "peak") == Exit.DONE
            assert scene.call("signal", "cancel") == Exit.FAILED
            assert scene.call("status") == Exit.DONE

    scene.interfere = interfere
    assert scene.call("apply", scene.file("t-0: 423", "t-1: 241")) == Exit.FAILED
    assert scene.plan.status is PlanStatus.CANCELLED
    assert scene.replicas() == before
    assert read_one(scene.journal.mailbox, paths.CANCEL_IN_PROGRESS) is None
    out, err = capsys.readouterr()
    assert f"cancel signal: plan {scene.plan.digest[:12]}, requested by " in out
    assert "an earlier signal has not been executed yet" in err
    asked = scene.journal.audit.rows(plan=scene.plan.digest, action=Action.REQUEST)
    assert asked[0].entry.reason == f"The cancel of plan {scene.plan.digest[:12]} is signalled: peak."


def test_a_signal_for_an_unknown_plan_is_not_written(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    assert scene.call("signal", "cancel", "--plan", "beef") == Exit.FAILED
    assert "no plan begins with beef" in capsys.readouterr().err
    assert read_one(scene.journal.mailbox, paths.CANCEL_IN_PROGRESS) is None


def test_what_is_generated_can_be_queued_and_taken_back(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("queue", "generate", "--topic", "t", "--brokers", "2,3,4")
    assert scene.call(*words) == Exit.DONE
    out, err = capsys.readouterr()
    head, current, _, second, proposed = out.splitlines()
    assert (head, second) == ("Current assignment:", "Proposed assignment:")
    was = {each["partition"]: tuple(each["replicas"]) for each in json.loads(current)["partitions"]}
    assert was == dict(enumerate(scene.replicas()))
    assert "4 of 4 partitions of t change; 4 replicas, 0.0 MB to copy. Nothing was changed." in err
    assert output_of(scene, capsys, *words) == json.loads(proposed)
    assert scene.call("queue", "list") == Exit.DONE
    assert scene.journal.audit.rows() == []

    file = scene.folder / "proposed.json"
    file.write_text(proposed)
    assert scene.call("queue", "add", str(file)) == Exit.DONE
    poll(scene, 40)
    assert scene.call("queue", "verify", str(file)) == Exit.DONE
    assert {broker for replicas in scene.replicas() for broker in replicas} == {2, 3, 4}
    capsys.readouterr()
    assert output_of(scene, capsys, *words) == {"version": 1, "partitions": []}
    assert scene.call(*words) == Exit.DONE
    out, err = capsys.readouterr()
    assert (out, err) == ("", "No partition of t has to move: all are even over the brokers 2, 3, 4 already.\n")


def test_the_topics_may_be_those_of_a_file_of_kafkas_tool(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    file = scene.folder / "topics.json"
    file.write_text('{"version": 1, "topics": [{"topic": "t"}]}')
    words = ("queue", "generate", "--brokers", "2,3,4")
    named = output_of(scene, capsys, *words, "--topic", "t")
    assert output_of(scene, capsys, *words, "--topics-to-move-json-file", str(file)) == named
    assert len(named["partitions"]) == 4


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "cannot be read: No such file"),
        ("{", "does not contain JSON"),
        ("[]", "a list where an object is expected"),
        ('{"version": 1}', "topics"),
        ('{"topics": ["t"]}', "topics"),
        ('{"topics": []}', "The topics file names no topic; it should be"),
        ('{"topics": [{"topic": "my topic"}]}', "where a topic"),
        ('{"topics": [{"topic": "t"}, {"topic": "t"}]}', "The topics file names t twice; keep one of the two."),
        ('{"version": 2, "topics": [{"topic": "t"}]}', "newer Kafka Steward"),
        ('{"topics": [{"topic": "t"}, {"topic": "u"}]}', "The cluster has no topic u."),
    ],
)
def test_a_topics_file_that_cannot_be_used_is_one_sentence(
    scene: Scene, capsys: pytest.CaptureFixture[str], text: str | None, says: str
) -> None:
    file = scene.folder / "topics.json"
    if text is not None:
        file.write_text(text)
    words = ("queue", "generate", "--brokers", "1,2,3", "--topics-to-move-json-file", str(file))
    assert scene.call(*words) == Exit.FAILED
    out, err = capsys.readouterr()
    assert (out, says in err, err.count("\n")) == ("", True, 1), err


def test_topics_are_named_in_one_way(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("queue", "generate", "--brokers", "1,2,3", "--topic", "t", "--topics-to-move-json-file", scene.file())
    assert scene.call(*words) == Exit.USAGE
    expected = "Name the topics either with --topic or with --topics-to-move-json-file.\n"
    assert capsys.readouterr().err == expected


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--topic", "my topic", "--brokers", "1,2,3"), "The cluster has no topic my topic."),
        (("--topic", "\x1b[2J\udc80", "--brokers", "1,2,3"), r"The cluster has no topic \x1b[2J\udc80."),
        (("--topic", "t", "--topic", "u", "--brokers", "1,2,3"), "The cluster has no topic u."),
        (("--topic", "t", "--brokers", "1,2,9"), "Broker 9 is not live; live are 1, 2, 3, 4."),
        (("--topic", "t", "--brokers", "1,2"), "is to have 3 replicas, and only 2"),
    ],
)
def test_what_cannot_be_generated_is_one_sentence(
    scene: Scene, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], says: str
) -> None:
    assert scene.call("queue", "generate", *words) == Exit.FAILED
    out, err = capsys.readouterr()
    assert (out, says in err, err.count("\n")) == ("", True, 1), err


def test_a_partition_that_is_being_reassigned_is_left_out_and_named(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    name = next(iter(scene.simulator.topics))
    scene.simulator.alter({name: (4, 2, 3)})
    assert scene.call("queue", "generate", "--topic", "t", "--brokers", "2,3,4") == Exit.DONE
    out, err = capsys.readouterr()
    assert "Left as it is: t-0: a reassignment of it is in flight;" in err
    assert [each["partition"] for each in json.loads(out.splitlines()[-1])["partitions"]] == [1, 2, 3]


@pytest.mark.parametrize(
    "words",
    [
        ("queue", "generate", "--topic", "t"),
        ("queue", "generate", "--brokers", "1,2"),
        ("queue", "generate", "--topic", "t", "--brokers", "1,x"),
        ("queue", "generate", "--topic", "t", "--brokers", "1,1"),
        ("queue", "generate", "--topic", "t", "--brokers", ""),
        ("queue", "add"),
        ("requests", "add"),
        ("requests", "remove"),
        ("signal", "cancel", "--scope", "all"),
    ],
)
def test_what_is_no_command_line(scene: Scene, words: tuple[str, ...]) -> None:
    assert scene.call(*words) == Exit.USAGE


@pytest.mark.parametrize("verb", [("queue", "add"), ("requests", "add"), ("queue", "verify")], ids=" ".join)
@pytest.mark.parametrize("content", [None, b"", b"{", b"\xff\xfe", b'{"partitions": []}', b"folder", b"missing"])
def test_a_file_that_is_no_reassignment_is_one_sentence_and_nothing_is_written(
    scene: Scene, capsys: pytest.CaptureFixture[str], verb: tuple[str, ...], content: bytes | None
) -> None:
    file = scene.folder / "strange\x1b[2J.json"
    if content == b"folder":
        file.mkdir()
    elif content is None:
        file.write_text(json.dumps({"partitions": [{**MOVED, "topic": "my topic\udc80"}]}))
    elif content != b"missing":
        file.write_bytes(content)
    assert scene.call(*verb, str(file)) == Exit.FAILED
    out, err = capsys.readouterr()
    assert (out, err.count("\n"), err.strip().isprintable()) == ("", 1, True), err
    if content in {b"folder", b"missing"}:
        assert "cannot be read: " in err
        assert "Errno" not in err
    assert read_one(scene.journal.mailbox, paths.REASSIGN_QUEUE) is None
    assert scene.journal.mailbox.children(paths.REASSIGNMENT_REQUESTS) == []


def lines(scene: Scene, capsys: pytest.CaptureFixture[str]) -> list[str]:
    capsys.readouterr()
    assert scene.call("status") == Exit.DONE
    return capsys.readouterr().out.splitlines()


def test_status_says_that_reassignments_are_enabled_and_nothing_is_queued(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    assert {"reassignments: enabled", "queue: empty"} <= {*lines(scene, capsys)}
    facts = output_of(scene, capsys, "status")
    empty = ("reassignments_disabled", "cancel_signal", "queue", "requests", "chunks", "cancels", "waiting_plans")
    assert [facts[name] for name in empty] == [None, None, None, [], [], [], []]


def test_status_names_demoted_brokers_and_what_they_lead(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    scene.journal.rows(DEMOTIONS).put(1, Demotion(("a" * 64,), "ada", 1_000), None)
    scene.journal.rows(DEMOTIONS).put(2, Demotion(("b" * 64,), "ada", 1_000, promoted_by="c" * 64), None)
    (told,) = [line for line in lines(scene, capsys) if "is demoted" in line]
    assert told.startswith("Broker 1 is demoted since 1970-01-01")
    assert ", by plan aaaaaaaaaaaa, and leads " in told
    (facts,) = output_of(scene, capsys, "status")["demoted_brokers"]
    assert (facts["broker"], facts["plan"]) == (1, "a" * 64)


def test_status_names_the_brokers_that_a_drain_has_cordoned(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    scene.journal.rows(CORDONS).put(1, Cordon("a" * 64, 1_000, CordonPhase.SET), None)
    scene.journal.rows(CORDONS).put(2, Cordon("b" * 64, 1_000), None)
    (told,) = [line for line in lines(scene, capsys) if "was cordoned" in line]
    assert told.startswith("Broker 1 was cordoned 1970-01-01")
    assert "by plan aaaaaaaaaaaa, which empties it; to use it again, roll that plan back" in told
    (facts,) = output_of(scene, capsys, "status")["cordoned_by_drains"]
    assert (facts["broker"], facts["plan"]) == (1, "a" * 64)


def test_status_shows_who_disabled_reassignments_and_what_waits_for_it(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    create_document(
        scene.journal.mailbox, paths.REASSIGN_CANCEL, '{"person": "ada", "reason": "racks\\u001b[2J\\u202e"}'
    )
    scene.call("queue", "add", scene.file("t-0: 423", "t-1: 241"))
    for number in range(4):
        scene.call("requests", "add", scene.file(f"t-{number}: 124"))
    found = lines(scene, capsys)
    (off,) = [line for line in found if line.startswith("reassignments:")]
    assert off.startswith("reassignments: disabled by ada since ")
    assert off.isprintable()
    until = "until reassignments are enabled"
    assert f"queue: 2 partitions wait {until}: t-0 to [4, 2, 3], t-1 to [2, 4, 1]" in found
    assert f"request: request_0000000000, 1 partition waits {until}: t-0 to [1, 2, 4]" in found
    assert len([line for line in found if line.startswith("request: ")]) == 3
    assert "requests: 4 in all" in found
    facts = output_of(scene, capsys, "status")
    assert (facts["reassignments_disabled"]["person"], facts["queue"]["partitions"]) == ("ada", 2)
    assert [each["waits"] for each in facts["requests"]] == [until] * 4


def test_status_shows_what_waits_for_a_plan_and_which_cancels_are_in_progress(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[list[str]] = []
    facts: list[dict[str, Any]] = []

    def interfere(pause: int) -> None:
        if pause == 1:
            scene.call("requests", "add", scene.file("t-0: 342"))
            seen.append(lines(scene, capsys))
            scene.call("signal", "cancel", "--reason", "peak")
            poll(scene)
            seen.append(lines(scene, capsys))
            facts.append(output_of(scene, capsys, "status"))

    scene.interfere = interfere
    scene.simulator.bandwidth = 1
    assert scene.call("apply", scene.file("t-0: 423")) == Exit.FAILED
    plan = next(each.digest for each in scene.journal.plans.latest(5) if each.who.person)
    (line,) = [line for line in seen[0] if line.startswith("request: ")]
    assert f"because t-0 is moved by plan {plan[:12]} (apply) until it ends: t-0" in line
    (line,) = [line for line in seen[1] if line.startswith("cancel: ")]
    assert line.startswith(f"cancel: plan {plan[:12]} (running) is being cancelled, requested by ")
    assert line.endswith("(peak)")
    assert facts[0]["cancels"][0]["plan"] == plan
    assert facts[0]["cancels"][0]["reason"] == "peak"


def test_status_shows_the_plans_that_wait(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    scene.interfere = lambda pause: os.kill(os.getpid(), signal.SIGINT) if pause == 1 else None
    scene.simulator.bandwidth = 1
    assert scene.call("apply", scene.file("t-0: 423")) == Exit.INTERRUPTED
    scene.call("disable", "--reason", "racks")
    plan = scene.plan.digest
    assert f"waits: plan {plan[:12]} (apply) waits until reassignments are enabled" in lines(scene, capsys)
    assert output_of(scene, capsys, "status")["waiting_plans"] == [
        {"plan": plan, "waits": "until reassignments are enabled"}
    ]


def test_status_says_that_an_unreadable_request_will_be_refused(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    create_document(scene.journal.mailbox, f"{paths.REASSIGNMENT_REQUESTS}/by-hand", "{")
    create_document(scene.journal.mailbox, paths.CANCEL_IN_PROGRESS, "{")
    found = lines(scene, capsys)
    assert "request: by-hand, 0 partitions wait to be refused, because it cannot be read" in found
    assert any(line.startswith("cancel signal: everything that is pending, requested by an unnamed") for line in found)
    (listed,) = output_of(scene, capsys, "requests", "list")
    assert "does not contain JSON" in listed["error"]


def test_each_verb_of_the_documents_teaches_with_an_example() -> None:
    group = declare_commands()
    for name, verbs in (("queue", 5), ("requests", 3), ("signal", 1)):
        (found,) = [each for each in group.subcommands if each.name == name]
        assert isinstance(found, GroupCommand)
        commands = list(found.subcommands)
        assert len(commands) == verbs
        for each in commands:
            assert f"airflow kafka-steward {name} {each.name}" in (each.epilog or "")
            assert each.name == "remove" or each.description


def test_the_document_of_a_request_is_as_the_kip_has_it(scene: Scene) -> None:
    scene.call("requests", "add", scene.file("t-0: 423"))
    node = read_one(scene.journal.mailbox, f"{paths.REASSIGNMENT_REQUESTS}/request_0000000000")
    assert node is not None
    assert json.loads(node.data) == json.loads(document(["t-0 423"]))
