"""Verbs for the KIPs' documents: disable and enable, announced restarts, the queue, and a watch that executes them."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from airflow.cli.cli_config import ActionCommand, Arg, GroupCommand

from kafka_steward.cli.foreground import interruptible, with_retries
from kafka_steward.cli.verb import REASON, CommandContext, Exit, Table, print_error, verb
from kafka_steward.errors import RequestError
from kafka_steward.escaping import printable

if TYPE_CHECKING:
    from kafka_steward.journal.kip_documents import ChunkPartition


_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_ON = "--cluster kafka_production"
#: Maximum number of seconds between two polls of the watch.
_POLL_S = 5.0


def _span(text: str) -> int:
    found = re.fullmatch(r"(\d+)([smhd])", text)
    if not found or not int(found[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is no length of time, such as 90s, 30m or 2h")
    return int(found[1]) * _SECONDS[found[2]] * 1000


def verbs() -> tuple[ActionCommand | GroupCommand, ...]:
    """Return the verbs of this module."""
    #: Required, because operators who are blocked by the disabled reassignments need the reason.
    needed = Arg(("--reason",), help="Why, for whoever is held up by it", required=True)
    broker = Arg(("broker",), help="Its id", type=int, metavar="BROKER")
    span = Arg(("--for",), help="How long it may be away, such as 2h; without: its grace period", type=_span, dest="ms")
    bounced = [f"bounce 3 --for 2h {_ON}"]
    watched = (
        "Carry out what documents ask for, until Ctrl-C; the triggerer does it while a DAG that listens is unpaused"
    )
    return (
        verb("disable", "Let no reassignment start; what runs is let finish", _disable, (needed,), examples=[
            f"disable {_ON} --reason 'moving racks'"
        ]),
        verb("enable", "Let reassignments start again", _enable, (REASON,), examples=[f"enable {_ON}"]),
        verb("bounce", "Announce that a broker is about to be restarted", _bounce, (broker, span), examples=bounced),
        verb("watch", watched, _watch, examples=[f"watch {_ON}"]),
        GroupCommand("queue", "What waits until it starts (KIP-236)", _queue_verbs()),
    )  # fmt: skip


def _queue_verbs() -> tuple[ActionCommand, ...]:
    file = Arg(("file",), help="What kafka-reassign-partitions takes", metavar="FILE.json")
    return (
        verb("add", "Queue a reassignment", _add, (file,), examples=[f"queue add reassignment.json {_ON}"]),
        verb("list", "What is queued and has not started", _list, examples=[f"queue list {_ON}"]),
        verb("remove", "Take the queue away; what has started goes on", _remove, examples=[f"queue remove {_ON}"]),
    )


def _disable(call: CommandContext) -> None:
    from kafka_steward.execution.readiness import disable_reassignment

    with call.hook.journal(call.hook.cluster_id()) as journal:
        sentence = disable_reassignment(journal, who=call.who, reason=call.arguments.reason)
    call.out.facts({"enabled": False, "sentence": sentence}, [sentence])


def _enable(call: CommandContext) -> None:
    from kafka_steward.execution.readiness import enable_reassignment

    with call.hook.journal(call.hook.cluster_id()) as journal:
        sentence = enable_reassignment(journal, who=call.who, reason=call.arguments.reason)
    call.out.facts({"enabled": True, "sentence": sentence}, [sentence])


def _bounce(call: CommandContext) -> None:
    from kafka_steward.execution.readiness import announce_restart

    with call.hook.journal(call.hook.cluster_id()) as journal:
        sentence = announce_restart(journal, call.arguments.broker, who=call.who, lasts_ms=call.arguments.ms)
    call.out.facts({"broker": call.arguments.broker, "sentence": sentence}, [sentence])


def _add(call: CommandContext) -> None:
    from kafka_steward.document_api.documents import queue_add

    try:
        text = Path(call.arguments.file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"The reassignment file {call.arguments.file} cannot be read: {error}.") from error
    with call.hook.journal(call.hook.cluster_id()) as journal:
        count = queue_add(journal, text, who=call.who)
    sentence = f"{count} partitions are queued; each leaves the queue when it starts."
    call.out.facts({"partitions": count, "sentence": sentence}, [sentence])


def _list(call: CommandContext) -> None:
    from kafka_steward.document_api.documents import queue_list

    with call.hook.journal(call.hook.cluster_id()) as journal:
        queued = queue_list(journal)
    rows = [{"topic": each.topic, "partition": each.partition, "replicas": list(each.replicas)} for each in queued]
    call.out.rows(rows, Table(("partition", "replicas"), [_line(each) for each in queued]))


def _line(queued: ChunkPartition) -> tuple[str, str]:
    return str(queued.topic_partition), ",".join(map(str, queued.replicas))


def _remove(call: CommandContext) -> None:
    from kafka_steward.document_api.documents import queue_remove

    with call.hook.journal(call.hook.cluster_id()) as journal:
        removed = queue_remove(journal, who=call.who)
    sentence = "The queue was taken away; what has started goes on." if removed else "Nothing is queued."
    call.out.facts({"removed": removed, "sentence": sentence}, [sentence])


def _watch(call: CommandContext) -> Exit:
    from kafka_steward.document_api.controller import DocumentController

    with call.hook.open() as opened, interruptible() as interrupt:
        zookeeper = opened.access.zookeeper is not None
        protocol = DocumentController(opened.cluster, opened.journal, opened.settings, call.who, zookeeper=zookeeper)
        print_error(f"Watching cluster {opened.cluster.cluster_id}.")
        told: set[str] = set()
        while True:
            result = with_retries(protocol.poll, interrupt.wait, stays="Ctrl-C stops.")
            for sentence in result.sentences:
                if sentence not in told:
                    print(printable(sentence), flush=True)
            told = set(result.sentences)
            interrupt.wait(_POLL_S if result.pause_s is None else min(_POLL_S, result.pause_s))
