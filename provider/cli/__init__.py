"""`airflow kafka-steward`: the command line for the operator on call, without a scheduler and without the UI.

This module defines the verbs, their arguments and their help: all that `airflow` reads whenever it starts. A verb's
function is imported when the verb is called::

    verb.py        the execution of a verb: one cluster, one message on failure, an exit code
    foreground.py  steps of a plan to its end, with a bar, and Ctrl-C
    show.py        status, plans, show, audit           manage.py    verify, throttle, abandon
    execute.py     apply, resume                        cancel.py    cancel
    documents.py   the KIPs' documents, and watch       journal.py   journal copy, pair, archive
"""

from __future__ import annotations

import argparse
import re
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import IntEnum
from importlib import import_module
from pathlib import Path

from airflow.cli.cli_config import ARG_VERBOSE, ActionCommand, Arg, GroupCommand, positive_int

__all__ = ["Exit", "get_kafka_steward_commands"]

_ABOUT = """Reassign the partitions of a Kafka cluster, watch it, stop it, and take it back.

Works without a scheduler and without the UI, beside the DAGs and in step with them: the same plans, the same journal,
the same locks, the same audit trail, in which your user name stands. Each verb takes the Airflow connection of one
cluster; give it in the environment (AIRFLOW_CONN_KAFKA_PRODUCTION) where Airflow's own database does not answer."""


class Exit(IntEnum):
    """The exit codes. Every code except DONE comes with a message on standard error."""

    #: The request was completed.
    DONE = 0
    #: The request failed, or was completed only in part.
    FAILED = 1
    #: The command line is invalid; argparse uses the same code.
    USAGE = 2
    #: The plan is in progress, or needs operator action: nothing is lost, and `resume` continues it.
    UNFINISHED = 3
    #: Ctrl-C or SIGTERM: the plan, if one was published, can be resumed or cancelled.
    INTERRUPTED = 130


_EXIT_CODES = """exit codes:
  0    done
  1    failed, or not all of it could be done; a sentence on standard error says why
  2    the command line is wrong
  3    still in progress, or it waits for a person
  130  interrupted by Ctrl-C or SIGTERM: the plan can be resumed or cancelled"""

_EPILOG = f"""examples:
  airflow kafka-steward status --cluster kafka_production
  airflow kafka-steward apply reassignment.json --throttle 20M --cluster kafka_production
  airflow kafka-steward cancel --scope plan --reason 'wrong racks' --cluster kafka_production
  airflow kafka-steward audit --plan 3f2a91c0 --output json

{_EXIT_CODES}"""


def get_kafka_steward_commands() -> list[GroupCommand]:
    """Return the command groups that `airflow` adds to its command line."""
    verbs = (*_show_verbs(), *_plan_verbs(), _journal_group(), *_document_verbs())
    return [GroupCommand("kafka-steward", "Keep Kafka clusters whole", verbs, _ABOUT, _EPILOG)]


_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}

_FACTORS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}


def _rate(text: str) -> int:
    found = re.fullmatch(r"(\d+)([kMG]?)", text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of bytes per second, such as 50000000 or 50M")
    return int(found[1]) * _FACTORS[found[2]]


def _duration_ms(text: str) -> int:
    found = re.fullmatch(r"(\d+)([smhd])", text)
    if not found or not int(found[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is no length of time, such as 90s, 30m or 2h")
    return int(found[1]) * _SECONDS[found[2]] * 1000


def _time(text: str) -> int | datetime:
    """Parse a duration, as milliseconds ago, or a point in time; a time without a time zone is UTC."""
    ago = re.fullmatch(r"(\d+)([smhd])", text)
    if ago:
        return int(ago[1]) * _SECONDS[ago[2]] * 1000
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither like 2h (s, m, h, d) nor like 2026-11-21T08:00"
        ) from error
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)


_PLAN = Arg(("plan",), help="Its digest, or the beginning of it", metavar="PLAN")

_PLAN_UNDER_WAY = Arg(
    ("plan",), help="Its digest, or the beginning of it; without: the plan under way", nargs="?", metavar="PLAN"
)

_FILE = Arg(("file",), help="What kafka-reassign-partitions takes", metavar="FILE.json")

_REASON = Arg(("--reason",), help="Why, for those who read the audit trail", default="")

_TOPIC = Arg(("--topic",), help="Only this topic")

_BYTES_PER_S = "Bytes per second into one broker: 50000000 or 50M; 0: none"

_THROTTLE = Arg(("--throttle",), help=_BYTES_PER_S, type=_rate, metavar="BYTES")

_CLUSTER = Arg(
    ("--cluster", "--conn-id"),
    help="Airflow connection of the cluster, of type kafka_steward (default: kafka_steward_default)",
    default="kafka_steward_default",
    metavar="CONN_ID",
    dest="cluster",
)

_OUTPUT = Arg(
    ("-o", "--output"),
    help="table for people (the default), json or csv for programs",
    choices=("table", "json", "csv"),
    default="table",
)


@dataclass(frozen=True)
class _Command:
    """The function `module.name` of this package, which is imported when it is called."""

    function: str

    def __call__(self, arguments: Namespace) -> None:
        from airflow.utils.cli import suppress_logs_and_warning

        try:
            # Airflow logs to standard output, which would mix log lines into the result.
            suppress_logs_and_warning(self._run)(arguments)
        except KeyboardInterrupt as error:
            raise SystemExit(Exit.INTERRUPTED) from error

    def _run(self, arguments: Namespace) -> None:
        from kafka_steward.cli.verb import run_verb

        module, name = self.function.split(".")
        run_verb(getattr(import_module(f"{__name__}.{module}"), name), arguments)


def _verb(
    name: str, about: str, function: str, args: Sequence[Arg] = (), *, examples: Sequence[str], details: str = ""
) -> ActionCommand:
    """Create a verb as an Airflow command. `args` precede the arguments that every verb has.

    `examples` omit `airflow kafka-steward`. `about` is the verb's line in the list of verbs; `details` follow it in the
    help of the verb.
    """
    message = f"{about}.\n\n{details}" if details else None
    epilog = "examples:" + "".join(f"\n  airflow kafka-steward {example}" for example in examples)
    return ActionCommand(name, about, _Command(function), (*args, _CLUSTER, _OUTPUT, ARG_VERBOSE), message, epilog)


_ON = "--cluster kafka_production"

_OWED = """\
A topic that was created while brokers were away has fewer replicas than it shall have (KIP-409); what is missing
is owed to each of its partitions, and the DAG `fill` adds it when a broker joins that can take it. `placeholders`
are the brokers that a partition has, and -1, -2, ... for each replica that is owed. A debt that is over (paid, or
dropped because someone else changed or deleted the topic) is shown until a fill or its watch has struck it out.
Exit code 0, whether or not anything is owed."""


def _show_verbs() -> tuple[ActionCommand, ...]:
    limit = Arg(("--limit",), help="How many of the newest", type=positive_int(allow_zero=False), default=50)
    plan = Arg(("--plan",), help="Only this plan: its digest, or the beginning of it")
    since = Arg(("--since",), help="Only since then: 30m, 2h, 1d, or 2026-11-21T08:00 (UTC)", type=_time)
    return (
        _verb(
            "status", "How the cluster is, and the plans under way", "show.status", examples=["status --output json"]
        ),
        _verb("plans", "The newest plans", "show.plans", (limit,), examples=[f"plans --limit 5 {_ON}"]),
        _verb("show", "One plan, partition by partition", "show.show", (_PLAN,), examples=["show 3f2a91c0"]),
        _verb(
            "audit",
            "What was done, why, and by whom",
            "show.audit",
            (plan, _TOPIC, since, limit),
            examples=[f"audit --plan 3f2a91c0 {_ON}", "audit --topic orders --since 2h --output csv"],
        ),
        _verb(
            "owed",
            "The replicas that are owed to under-replicated topics, by partition",
            "documents.owed",
            (_TOPIC,),
            examples=[f"owed {_ON}", "owed --topic orders --output json"],
            details=_OWED,
        ),
    )


_APPLY = """\
FILE.json is what kafka-reassign-partitions executes: {"version": 1, "partitions": [{"topic": "orders",
"partition": 0, "replicas": [4, 2, 3]}, ...]}. It is checked against the cluster first, and then carried out
within the throttle and the connection's other settings, a few partitions at a time. Ctrl-C stops it, and so does
a kill: what is in flight then goes on in Kafka, and the plan can be resumed or cancelled by anyone."""

_RESUME = """\
It goes on where it stopped, also in the middle of a cancel. Beside a process that steps the plan already it does
no harm: the two take turns, and if one dies the other goes on."""

_CANCEL = """\
What is in flight goes back to its original replicas, in their order, and its throttles are given back; what has
arrived stays. With --scope plan what has arrived goes back too, within the throttle, as a plan of its own; that
may be request of a plan that has ended. What someone else has changed since is left alone and listed. Works whoever
began the plan, a DAG or a terminal, and whether or not that process still lives. Interrupted, it is resumed or
simply repeated.

With --all, everything that is pending is cancelled: every plan that has not ended, and what others have in flight,
as by kafka-reassign-partitions or Cruise Control. Those go back to their replicas less the ones being added.

At the end it is looked up in Kafka whether everything is as it was. Each partition that went back is named, from
what to what; each that did not, with the reason, and then the exit code is 1."""

_VERIFY = """\
Prints the lines of kafka-reassign-partitions --verify, from the cluster's own word. Exit code 0: every partition
is where the plan puts it, or was taken back; 3: some are in progress, or a throttle is still owed; 1: some are
elsewhere."""

_THROTTLED = """\
The next step of the plan carries the rate to all brokers that its moves copy to, so within seconds while a run or
a terminal steps it. It holds for this plan until it ends, whatever the connection or a run says; a rate that someone
else has set on a broker, and that is stricter, is left alone. Only the journal is needed."""

_ABANDON = """\
What has arrived stays, what is in flight goes on in Kafka, and another plan may have the cluster. Only the
journal is needed: it works while the cluster does not answer. `verify` gives the throttles back once all has
arrived."""


def _plan_verbs() -> tuple[ActionCommand, ...]:
    last = Arg(
        ("plan",),
        help="Its digest, or the beginning of it; without: the plan under way, or the last",
        nargs="?",
        metavar="PLAN",
    )
    rate = Arg(("rate",), help=_BYTES_PER_S, type=_rate, metavar="RATE")
    scope = Arg(
        ("--scope",),
        help="pending: stop, and take back what is in flight. plan: take back all of it (default: pending)",
        choices=("pending", "plan"),
        default="pending",
    )
    everything = Arg(
        ("--all",), help="Cancel all that is pending, also what others have in flight", action="store_true"
    )
    anyway = Arg(
        ("--even-if-disabled",), help="Take a plan back although reassignments are disabled", action="store_true"
    )
    order = Arg(
        ("--restore-order",), help="Restore the order of replicas that someone else's cancel lost", action="store_true"
    )
    return (
        _verb(
            "apply",
            "Carry out a reassignment, watched over",
            "execute.apply",
            (_FILE, _THROTTLE),
            examples=[f"apply reassignment.json --throttle 20M {_ON}"],
            details=_APPLY,
        ),
        _verb(
            "resume",
            "Go on with a plan that nobody steps, or that is stuck",
            "execute.resume",
            (_PLAN_UNDER_WAY, _THROTTLE),
            examples=[f"resume 3f2a91c0 {_ON}"],
            details=_RESUME,
        ),
        _verb(
            "cancel",
            "Stop a plan, or take all of it back",
            "cancel.cancel",
            (_PLAN_UNDER_WAY, everything, scope, _REASON, anyway, order, _THROTTLE),
            examples=[
                f"cancel {_ON} --reason 'traffic peak'",
                f"cancel 3f2a91c0 --scope plan {_ON} --reason 'wrong racks'",
                f"cancel --all {_ON} --reason 'a broker is on fire'",
            ],
            details=_CANCEL,
        ),
        _verb(
            "verify",
            "Say where each partition of a plan is, and give back throttles that ended plans left",
            "manage.verify",
            (last,),
            examples=[f"verify {_ON}", f"verify 3f2a91c0 {_ON} --output json"],
            details=_VERIFY,
        ),
        _verb(
            "throttle",
            "Change how fast a plan may copy, while it runs",
            "manage.throttle",
            (_PLAN, rate, _REASON),
            examples=[f"throttle 3f2a91c0 200M {_ON} --reason 'the night is quiet'"],
            details=_THROTTLED,
        ),
        _verb(
            "abandon",
            "Give a plan up as it stands: nothing is taken back",
            "manage.abandon",
            (_PLAN, _REASON),
            examples=[f"abandon 3f2a91c0 {_ON} --reason 'broker 4 will not return'"],
            details=_ABANDON,
        ),
    )


_COPY = """Stop Airflow, or pause the DAGs, before: a process that has the old journal open goes on with it. Afterwards
the old journal is not opened any more, and says where the copy is. `journal pair`, for the connection of the old one,
goes back to it, without what the copy has recorded since."""

_PAIR = """The documents (in ZooKeeper, with the setting zookeeper) and the rows (in the database that the setting
journal names) carry one id, and a journal whose halves differ is refused. Only when one half is lost for good: stop
Airflow, set both settings as they are to stay, and call this once."""

_ARCHIVE = """Rows of plans that the journal still knows stay, whatever their age: a rollback reads them. Each line
of the file is a row as `audit --output json` prints it, with its number. The file is whole before a row is deleted, and
the audit trail names it."""


def _journal_group() -> GroupCommand:
    to = Arg(
        ("--to",), help="Another connection of the same cluster, with the new journal", required=True, metavar="CONN_ID"
    )
    file = Arg(("file",), help="A new file of JSON lines; with .gz at its end, compressed", type=Path)
    before = Arg(
        ("--before",), help="What is older: 90d, or 2026-01-01 (UTC)", type=_time, required=True, metavar="TIME"
    )
    copy = _verb(
        "copy",
        "Copy plans, documents and the audit trail into another journal, which replaces this one",
        "journal.copy",
        (to,),
        examples=[f"journal copy {_ON} --to kafka_production_new"],
        details=_COPY,
    )
    pair = _verb(
        "pair",
        "Tie the journal's rows and documents together again, after one half was lost or replaced",
        "journal.pair",
        examples=[f"journal pair {_ON}"],
        details=_PAIR,
    )
    archive = _verb(
        "archive",
        "Write old rows of the audit trail to a file, and delete them from the journal",
        "journal.archive",
        (file, before),
        examples=[f"journal archive audit-2025.jsonl.gz --before 2026-01-01 {_ON}"],
        details=_ARCHIVE,
    )
    about = "Move the journal to another database or out of ZooKeeper, tie its halves together, or archive its past"
    return GroupCommand("journal", about, (copy, pair, archive))


def _document_verbs() -> tuple[ActionCommand | GroupCommand, ...]:
    # Required, because operators who are blocked by the disabled reassignments need the reason.
    reason = Arg(("--reason",), help="Why, for whoever is held up by it", required=True)
    broker = Arg(("broker",), help="Its id", type=int, metavar="BROKER")
    away = Arg(
        ("--for",), help="How long it may be away, such as 2h; without: its grace period", type=_duration_ms, dest="ms"
    )
    queue = (
        _verb(
            "add",
            "Queue a reassignment",
            "documents.add_to_queue",
            (_FILE,),
            examples=[f"queue add reassignment.json {_ON}"],
        ),
        _verb("list", "What is queued and has not started", "documents.list_queue", examples=[f"queue list {_ON}"]),
        _verb(
            "remove",
            "Take the queue away; what has started goes on",
            "documents.remove_queue",
            examples=[f"queue remove {_ON}"],
        ),
    )
    return (
        _verb(
            "disable",
            "Let no reassignment start; what runs is let finish",
            "documents.disable",
            (reason,),
            examples=[f"disable {_ON} --reason 'moving racks'"],
        ),
        _verb("enable", "Let reassignments start again", "documents.enable", (_REASON,), examples=[f"enable {_ON}"]),
        _verb(
            "bounce",
            "Announce that a broker is about to be restarted",
            "documents.bounce",
            (broker, away),
            examples=[f"bounce 3 --for 2h {_ON}"],
        ),
        _verb(
            "watch",
            "Carry out what documents ask for, until Ctrl-C; the triggerer does it while a DAG that listens is "
            "unpaused",
            "documents.watch",
            examples=[f"watch {_ON}"],
        ),
        GroupCommand("queue", "What waits until it starts (KIP-236)", queue),
    )
