"""`kafka-steward`, and `airflow kafka-steward`: the command line for the operator on call, without the UI.

This module declares the verbs, their arguments and their help: all that is read whenever a command starts. A verb's
function is imported when the verb is called::

    verb.py        the execution of a verb: one cluster, one message on failure, an exit code
    foreground.py  steps of a plan to its end, with a bar, and Ctrl-C
    declarations.py, console.py    the form of the declarations, and the program `kafka-steward`
    direct.py      a cluster that is named by its brokers, for verbs that only look
    doctor.py      doctor, with doctor_connection.py for what a connection names, airflow_state.py for what Airflow's
                   own database says, and probe.py for its option --probe
    show.py        status, health, partitions, plans, show, audit
    manage.py      verify, throttle, abandon
    throttles.py   throttles
    plan.py        plan heal, fill, rebalance, expand, drain, relieve, set-replication-factor, leaders
    execute.py     apply, resume                        cancel.py    cancel
    requests.py    queue, requests, signal              document_facts.py  the documents, as status prints them
    documents.py   the other documents, watch, pending; journal copy, pair, archive
    archive.py     make-archive, prepare-spark
"""

from __future__ import annotations

import argparse
import logging
import re
import sys
import warnings
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import IntEnum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kafka_steward.assignment import Operation
from kafka_steward.cli.declarations import ActionCommand, Arg, GroupCommand, to_airflow
from kafka_steward.commands import JournalUse, is_console, journal_use
from kafka_steward.journal.audit import Action
from kafka_steward.planning.options import GIVEN_OPTIONS, REQUIRED, PlannerOption

if TYPE_CHECKING:
    from airflow.cli import cli_config

__all__ = ["Exit", "declare_commands", "get_kafka_steward_commands"]

_ABOUT = """Reassign the partitions of a Kafka cluster; monitor, cancel and roll back reassignments.

Needs neither a scheduler nor the UI. It shares plans, journal, locks and audit trail with the DAGs; the audit
trail records your user name. Each command takes the Airflow connection of one cluster; set it in the
environment (AIRFLOW_CONN_KAFKA_PRODUCTION) if Airflow's own database does not respond. What only looks takes
--bootstrap-server in its place."""


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
  1    failed, or could not be completed; a message on standard error gives the reason
  2    the command line is wrong
  3    still in progress, or operator action is needed
  130  interrupted by Ctrl-C or SIGTERM: the plan can be resumed or cancelled"""

_EPILOG = f"""examples:
  airflow kafka-steward doctor --cluster kafka_production
  airflow kafka-steward status --cluster kafka_production
  airflow kafka-steward partitions --under-replicated-partitions --cluster kafka_production
  airflow kafka-steward apply reassignment.json --throttle 20M --cluster kafka_production
  airflow kafka-steward cancel --scope plan --reason 'wrong racks' --cluster kafka_production
  airflow kafka-steward audit --plan 3f2a91c0 --output json --cluster kafka_production

{_EXIT_CODES}"""


def get_kafka_steward_commands() -> list[cli_config.ActionCommand | cli_config.GroupCommand]:
    """Return the command groups that `airflow` adds to its command line."""
    return [to_airflow(declare_commands())]


def declare_commands() -> GroupCommand:
    """Return the declaration of all verbs."""
    verbs: tuple[ActionCommand | GroupCommand, ...] = (
        *_build_show_verbs(),
        *_build_plan_verbs(),
        _build_planning_group(),
        _build_journal_group(),
        *_build_document_verbs(),
        *_build_request_groups(),
        _build_archive_verb(),
        _build_prepare_verb(),
    )
    return GroupCommand("kafka-steward", "Keep Kafka clusters fully replicated and balanced", verbs, _ABOUT, _EPILOG)


_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}

_FACTORS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def _parse_count(text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,9}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1")
    return int(text)


def _parse_rate(text: str) -> int:
    match = re.fullmatch(r"(\d+)([kMG]?)", text)
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of bytes per second, such as 50000000 or 50M")
    return int(match[1]) * _FACTORS[match[2]]


def _parse_duration_ms(text: str) -> int:
    match = re.fullmatch(r"(\d+)([smhd])", text)
    if not match or not int(match[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration, such as 90s, 30m or 2h")
    return int(match[1]) * _SECONDS[match[2]] * 1000


def _parse_brokers(text: str) -> tuple[int, ...]:
    parts = text.split(",")
    brokers = [int(part) for part in parts if re.fullmatch(r"[0-9]{1,10}", part)]
    if len(brokers) < len(parts) or len(set(brokers)) < len(brokers):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of different broker ids, such as 1,2,3")
    return tuple(brokers)


def _parse_bytes(text: str) -> int:
    match = re.fullmatch(r"(\d+)([kMGT]?)", text)
    if not match or not int(match[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of bytes from 1, such as 50000000000 or 50G")
    return int(match[1]) * _FACTORS[match[2]]


def _parse_time(text: str) -> int | datetime:
    """Parse a duration, as milliseconds ago, or a point in time; a time without a time zone is UTC."""
    ago = re.fullmatch(r"(\d+)([smhd])", text)
    if ago:
        return int(ago[1]) * _SECONDS[ago[2]] * 1000
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither a duration like 2h (s, m, h, d) nor a time like 2026-11-21T08:00"
        ) from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


_PLAN = Arg(("plan",), help="Its digest, or a prefix of it", metavar="PLAN")

_PLAN_SHOWN = Arg(
    ("plan",),
    help="Its digest, or a prefix of it, or a file; default: the newest that has not ended, else the newest",
    nargs="?",
    metavar="PLAN",
)

_PLAN_UNDER_WAY = Arg(
    ("plan",), help="Its digest, or a prefix of it; default: the plan in progress", nargs="?", metavar="PLAN"
)

_FILE = Arg(("file",), help="A file of kafka-reassign-partitions", metavar="FILE.json")

_REASON = Arg(("--reason",), help="The reason, for the audit trail", default="")

_TOPIC = Arg(("--topic",), help="Only this topic")

_SCOPE = Arg(
    ("--scope",),
    help="pending: stop, and cancel reassignments in flight. plan: roll back completed moves too (default: pending)",
    choices=("pending", "plan"),
    default="pending",
)

_ANYWAY = Arg(("--even-if-disabled",), help="Roll a plan back although reassignments are disabled", action="store_true")

_BYTES_PER_S = "Bytes per second into one broker: 50000000 or 50M; 0: no throttle"

_THROTTLE = Arg(("--throttle",), help=_BYTES_PER_S, type=_parse_rate, metavar="BYTES")

_DEFAULT_CONNECTION = "kafka_steward_default"

_CLUSTER = Arg(
    ("--cluster", "--conn-id"),
    help="Airflow connection of the cluster, of type kafka_steward "
    f"(default of airflow kafka-steward: {_DEFAULT_CONNECTION})",
    metavar="CONN_ID",
    dest="cluster",
)

_BOOTSTRAP = ("--bootstrap-server",)

_COMMAND_CONFIG = ("--command-config",)

_DIRECT = (
    Arg(
        _BOOTSTRAP,
        help="The cluster of these brokers, instead of a connection; no journal is used",
        metavar="HOST:PORT",
    ),
    Arg(
        _COMMAND_CONFIG,
        help="With it, a file of client settings, as Kafka's own tools take it",
        metavar="FILE.properties",
    ),
)

#: The verbs that need a connection accept the options all the same, to say why they need one.
#: The verb that shows a plan or a file; a file needs no connection.
_SHOW_FUNCTION = "show.show_plan"
_NOT_DIRECT = tuple(Arg(arg.flags, help=argparse.SUPPRESS) for arg in _DIRECT)

_VERBOSE = Arg(("-v", "--verbose"), help="Also show the log", action="store_true")

_OUTPUT = Arg(
    ("-o", "--output"),
    help="table (the default), or json or csv for programs",
    choices=("table", "json", "csv"),
    default="table",
)


@dataclass(frozen=True)
class _LazyCommand:
    """The function `module.name` of this package, which is imported when it is called."""

    function: str
    use: JournalUse

    def __call__(self, arguments: Namespace) -> None:
        arguments.shows_file = self.function == _SHOW_FUNCTION and self._names_file(arguments.plan or "")
        try:
            if self._needs_no_airflow(arguments):
                self._run_quietly(arguments)
            else:
                from airflow.utils.cli import suppress_logs_and_warning

                arguments.cluster = arguments.cluster or _DEFAULT_CONNECTION
                # Airflow logs to standard output, which would mix log lines into the result.
                suppress_logs_and_warning(self._run_verb)(arguments)
        except KeyboardInterrupt as error:
            raise SystemExit(Exit.INTERRUPTED) from error

    def _names_file(self, plan: str) -> bool:
        """Return whether what is to be shown is a file. Raises SystemExit for what is neither that nor a digest."""
        if not plan or Path(plan).is_file() or re.fullmatch("[0-9a-f]+", plan):
            return Path(plan).is_file()
        print(f"{plan} is neither a file nor the digest of a plan, or a prefix of one.", file=sys.stderr)
        raise SystemExit(Exit.USAGE)

    def _needs_no_airflow(self, arguments: Namespace) -> bool:
        if self.use is JournalUse.NO_CLUSTER or self._is_direct(arguments):
            return True
        return arguments.shows_file and not arguments.cluster

    def _is_direct(self, arguments: Namespace) -> bool:
        """Return whether the cluster is named by its brokers. Raises SystemExit if it cannot be."""
        given = arguments.bootstrap_server is not None
        fault = ""
        if given and not (self.use is JournalUse.NONE or arguments.shows_file):
            removes = self.use is JournalUse.OWN_THROTTLES and arguments.remove
            use = JournalUse.CHANGE if removes else self.use
            fault = (
                f"this command needs an Airflow connection, which names a journal: {use.value}. "
                "Create one (airflow connections add CONN_ID --conn-type kafka_steward --conn-host HOST --conn-port "
                "PORT), and give --cluster CONN_ID instead of --bootstrap-server"
            )
        elif given and arguments.cluster:
            fault = "--cluster and --bootstrap-server name a cluster twice; give one of them"
        elif given and getattr(arguments, "probe", False):
            fault = "--probe runs a DAG of the Airflow that has the connection; give --cluster CONN_ID"
        elif arguments.command_config is not None and not given:
            fault = "--command-config goes with --bootstrap-server; with --cluster, the connection has these settings"
        elif is_console() and not (given or arguments.cluster or arguments.shows_file):
            # `airflow kafka-steward` has a default, as every hook of Airflow has; here it would make a home of Airflow.
            look = "--bootstrap-server HOST:PORT, or " if self.use is JournalUse.NONE else ""
            fault = f"the cluster is not named: give {look}--cluster CONN_ID, the Airflow connection of the cluster"
        if fault:
            print(f"{fault[0].upper()}{fault[1:]}.", file=sys.stderr)
            raise SystemExit(Exit.USAGE)
        return given

    def _run_quietly(self, arguments: Namespace) -> None:
        if not arguments.verbose:
            logging.disable(logging.CRITICAL)
            warnings.simplefilter("ignore")
        self._run_verb(arguments)

    def _run_verb(self, arguments: Namespace) -> None:
        from kafka_steward.cli.verb import run_verb

        module, name = self.function.split(".")
        run_verb(getattr(import_module(f"{__name__}.{module}"), name), arguments)


def _build_verb(
    name: str, about: str, function: str, args: Sequence[Arg] = (), *, examples: Sequence[str], details: str = ""
) -> ActionCommand:
    """Create a verb as an Airflow command. `args` precede the arguments that every verb has.

    `examples` omit `airflow kafka-steward`. `about` is the verb's line in the list of verbs; `details` follow it in the
    help of the verb.
    """
    message = f"{about}.\n\n{details}" if details else None
    epilog = "examples:" + "".join(f"\n  airflow kafka-steward {example}" for example in examples)
    use = journal_use(examples[0])
    cluster = (_CLUSTER, *(_DIRECT if use is JournalUse.NONE or function == _SHOW_FUNCTION else _NOT_DIRECT))
    every = (*(() if use is JournalUse.NO_CLUSTER else cluster), _OUTPUT, _VERBOSE)
    return ActionCommand(name, about, _LazyCommand(function, use), (*args, *every), message, epilog)


_ON = "--cluster kafka_production"

_SHOW = """\
A file is read as `apply` reads it, and needs neither a connection nor a journal. With --cluster, or with
--bootstrap-server, the replicas that the partitions have now stand beside it, and what would change."""

_HEALTH = """\
What the DAG `health` measures: partitions that are under-replicated (replicas that a reassignment is adding do not
count, KIP-352), under min ISR, offline, or break the rack rule; failed log directories; topics that Kafka does not let
us describe; the balance of the brokers. It changes nothing.

Exit code 0: a healthy cluster; 1: at least one measure is above zero that a healthy cluster has at zero."""

_PARTITIONS = """\
Lists partitions as kafka-topics --describe does, by its filters; those of several filters together, without a
filter all. The beginning of a filter's name is enough if no other begins so: --under-replicated,
--under-min-isr, --unavailable.

A reassignment by itself does not make a partition under-replicated: replicas that it is adding do not count
(KIP-352). For min ISR they count, as in the brokers, which refuse acks=all with fewer replicas in sync than
min.insync.replicas, or than all replicas where those are fewer. kafka-topics does not apply the second part,
and adds partitions without a leader, which are listed by --unavailable-partitions here.

Exit code 0, whether or not a partition is listed; 1 if Kafka does not answer, if there is no such topic, or if
Kafka does not let us read min.insync.replicas of some: the message names them."""

_DOCTOR = """\
Checks the connection; Kafka, and by requests that change nothing whether it lets us move replicas, throttle and
read what we need; what its version does not offer; managed services with limits or a balancer of their own; topics
that an ACL hides; cordoned brokers; throttles that others have set; the journal, and who opened it; whether a watch
is alive; the workspace; the executor; Spark and Java, without starting them; the DAGs of this cluster, Airflow's
processes, and its metrics.
Each fault has the command that helps in the line below.

The checks run at the same time, within 25 s in all. The cluster is not changed; a journal of an earlier version
is upgraded, as by every command. With --probe, a run of the DAG `probe` also lets a worker and the triggerer write
and read a file in the workspace, within 120 s; that DAG is a file of two lines, which doctor prints if it is not
there.

Exit code 0: no fault; 1: at least one line is a fault. A note is no fault."""

_AUDIT = """\
Options together leave the rows that meet all of them. A plan has far more rows of its partitions and throttles than
of what users decided: --action approve, publish, request or cancel shows those alone.

`attempt` in JSON and CSV is the number of the submission of a partition; it is empty in other rows."""

_PENDING = """\
A topic that was created while brokers were down has fewer replicas than requested (KIP-409). The missing
replicas are pending; the DAG `fill` adds them when a broker that can host them joins. `placeholders` lists
the brokers of a partition, and -1, -2, ... for each pending replica. A record that is obsolete (the replicas
were added, or the topic was changed or deleted externally) is shown until a fill or its watch has removed it.
Exit code 0, whether or not replicas are pending."""


def _build_filter(condition: str, flag: str, about: str) -> Arg:
    return Arg((flag,), help=f"Partitions {about}", action="store_true", dest=condition)


def _build_show_verbs() -> tuple[ActionCommand, ...]:
    limit = Arg(
        ("--limit",),
        help="Only the newest (default: 50 in a table, all of them in JSON and CSV)",
        type=_parse_count,
        metavar="N",
    )
    plan = Arg(("--plan",), help="Only this plan: its digest, or a prefix of it")
    probe = Arg(
        ("--probe",),
        help="Also let a worker and the triggerer try the workspace, by a run of the DAG probe",
        action="store_true",
    )
    actions = tuple(action.value for action in Action)
    action = Arg(
        ("--action",), help=f"Only rows of this action: {', '.join(actions)}", choices=actions, metavar="ACTION"
    )
    person = Arg(
        ("--person",), help="Only what this user did or requested: the name as the rows have it", metavar="NAME"
    )
    since = Arg(("--since",), help="Only since then: 30m, 2h, 1d, or 2026-11-21T08:00 (UTC)", type=_parse_time)
    conditions = (
        _build_filter("under_replicated", "--under-replicated-partitions", "whose replicas are not all in sync"),
        _build_filter("under_min_isr", "--under-min-isr-partitions", "that do not accept acks=all"),
        _build_filter("at_min_isr", "--at-min-isr-partitions", "with just enough replicas in sync for acks=all"),
        _build_filter("offline", "--unavailable-partitions", "without a leader"),
        _build_filter("reassigning", "--reassigning-partitions", "with a reassignment in flight"),
    )
    return (
        _build_verb(
            "doctor",
            "Check everything between Airflow and Kafka: each line is ok, or says what helps",
            "doctor.diagnose",
            (probe,),
            examples=[f"doctor {_ON}", f"doctor --probe {_ON}", f"doctor {_ON} --output json"],
            details=_DOCTOR,
        ),
        _build_verb(
            "status",
            "The state of the cluster, and the plans in progress",
            "show.show_status",
            examples=["status --output json"],
        ),
        _build_verb(
            "health",
            "The health of the cluster in numbers, and the partitions that are not well",
            "show.show_health",
            examples=[f"health {_ON}", f"health {_ON} --output json"],
            details=_HEALTH,
        ),
        _build_verb(
            "partitions",
            "The partitions that are under-replicated, under or at min ISR, unavailable or reassigning; or all",
            "show.list_partitions",
            (*conditions, _TOPIC),
            examples=[
                f"partitions --under-replicated-partitions --unavailable-partitions {_ON}",
                f"partitions --topic orders {_ON} --output json",
            ],
            details=_PARTITIONS,
        ),
        _build_verb("plans", "The newest plans", "show.list_plans", (limit,), examples=[f"plans --limit 5 {_ON}"]),
        _build_verb(
            "show",
            "One plan, or a file of kafka-reassign-partitions, partition by partition",
            _SHOW_FUNCTION,
            (_PLAN_SHOWN,),
            examples=["show 3f2a91c0", "show reassignment.json"],
            details=_SHOW,
        ),
        _build_verb(
            "audit",
            "The audit trail: actions, reasons and actors",
            "show.list_audit_rows",
            (plan, _TOPIC, action, person, since, limit),
            examples=[
                f"audit --plan 3f2a91c0 {_ON}",
                f"audit --action approve --person ann {_ON}",
                "audit --topic orders --since 2h --output csv",
            ],
            details=_AUDIT,
        ),
        _build_verb(
            "pending",
            "The pending replicas of under-replicated topics, by partition",
            "documents.list_pending_replicas",
            (_TOPIC,),
            examples=[f"pending {_ON}", "pending --topic orders --output json"],
            details=_PENDING,
        ),
    )


_APPLY = """\
FILE.json has the format of kafka-reassign-partitions: {"version": 1, "partitions": [{"topic": "orders",
"partition": 0, "replicas": [4, 2, 3]}, ...]}. It may be the whole output of --execute, which has the rollback. The
broker chooses the log directory of a replica that it does not hold, also if the file names one. The file is
validated against the cluster, then executed within the throttle and the connection's other settings, a few
partitions at a time. Ctrl-C or a kill stops it: moves in flight then continue in Kafka, and any process can resume
or cancel the plan.

A partition without a leader has nothing to copy from: it is left out, and a message says so and names the brokers to
bring back, before anything is submitted. The exit code is then 1, and the others are executed.

While reassignments are disabled, or another plan holds the plan slot, nothing is planned or published: exit code
1, and a message that says by whom, or which plan. With --wait it waits for that first, and says so; Ctrl-C then
ends it, with nothing changed."""

_RESUME = """\
Continues the plan where it stopped, also in the middle of a cancel. If another process already steps the
plan, the two take turns, and if one of them fails, the other continues."""

_CANCEL = """\
Partitions in flight return to their original replicas, in the original order, and their throttles are
released; completed moves stay. With --scope plan, completed moves are rolled back too, within the throttle,
by a plan of their own; this also works for a plan that has ended. Partitions that were changed externally
since are left unchanged and listed. It does not matter which process started the plan, a DAG or a terminal,
nor whether it still runs. If the command is interrupted, resume the plan or repeat the command.

While reassignments are disabled, nothing is rolled back without --even-if-disabled. A plan that has ended is
left as it is: exit code 1. Of another plan what is in flight is cancelled, and its rollback waits: exit code 3.

With --all, everything that is pending is cancelled: every plan that has not ended, and external reassignments
in flight, such as those of kafka-reassign-partitions or Cruise Control. Their partitions return to their
replicas without the ones being added.

At the end the result is verified in Kafka. Each partition that was moved back is listed with both
assignments, each that was not with the reason; then the exit code is 1."""

_VERIFY = """\
Prints the lines of kafka-reassign-partitions --verify, from the cluster's current state. Exit code 0: every
partition has its target replicas, or was rolled back; 3: some are in progress, or a throttle is still set; 1:
some have other replicas."""

_THROTTLED = """\
The next step of the plan sets the rate on all brokers that its moves copy to, within seconds while a run or a
terminal steps it. The rate applies to this plan until it ends, and overrides the connection and the run; a
stricter rate that was set externally on a broker stays. Only the journal is needed."""

_LEFTOVERS = """\
Lists the rates and the lists of throttled replicas in Kafka that no plan has set, each with the command of Kafka's
tools that removes it. Those that are not in use are left over: what an interrupted tool left, or somebody forgot. A
later reassignment is limited by them. Those in use limit a reassignment in flight now. A cluster-wide default rate
that is meant to stay is listed too.

With --remove, the settings that are left over are removed, after a question on the terminal, or with --yes without one.
Each is read again before, and is left if it was changed or is needed by now. The audit trail records who removed it,
and why. Exit code 1: some could not be removed, or the answer was no."""

_ABANDON = """\
Completed moves stay, moves in flight continue in Kafka, and the plan slot is released. Only the journal is
needed: it works while the cluster does not respond. `verify` releases the throttles once all moves have
completed."""


def _build_plan_verbs() -> tuple[ActionCommand, ...]:
    last = Arg(
        ("plan",),
        help="Its digest, or a prefix of it; default: the plan in progress, or the last one",
        nargs="?",
        metavar="PLAN",
    )
    rate = Arg(("rate",), help=_BYTES_PER_S, type=_parse_rate, metavar="RATE")
    remove = Arg(("--remove",), help="Remove those that are shown", action="store_true")
    yes = Arg(("-y", "--yes"), help="With --remove: do not ask", action="store_true")
    everything = Arg(
        ("--all",), help="Cancel everything that is pending, including external reassignments", action="store_true"
    )
    wait = Arg(
        ("--wait",),
        help="Wait while reassignments are disabled or another plan is in progress (default: end with exit code 1)",
        action="store_true",
    )
    order = Arg(
        ("--restore-order",), help="Restore the replica order that an external cancel lost", action="store_true"
    )
    return (
        _build_verb(
            "apply",
            "Execute a reassignment and wait until it ends",
            "execute.apply_file",
            (_FILE, wait, _THROTTLE),
            examples=[f"apply reassignment.json --throttle 20M {_ON}", f"apply reassignment.json --wait {_ON}"],
            details=_APPLY,
        ),
        _build_verb(
            "resume",
            "Resume a plan that no process steps, or that is stuck",
            "execute.resume",
            (_PLAN_UNDER_WAY, _THROTTLE),
            examples=[f"resume 3f2a91c0 {_ON}"],
            details=_RESUME,
        ),
        _build_verb(
            "cancel",
            "Cancel a plan, or roll all of it back",
            "cancel.cancel",
            (_PLAN_UNDER_WAY, everything, _SCOPE, _REASON, _ANYWAY, order, _THROTTLE),
            examples=[
                f"cancel {_ON} --reason 'traffic peak'",
                f"cancel 3f2a91c0 --scope plan {_ON} --reason 'wrong racks'",
                f"cancel --all {_ON} --reason 'a broker is on fire'",
            ],
            details=_CANCEL,
        ),
        _build_verb(
            "verify",
            "Report the state of each partition of a plan, and release throttles that ended plans left",
            "manage.verify",
            (last,),
            examples=[f"verify {_ON}", f"verify 3f2a91c0 {_ON} --output json"],
            details=_VERIFY,
        ),
        _build_verb(
            "throttle",
            "Change how fast a plan may copy, while it runs",
            "manage.set_plan_throttle",
            (_PLAN, rate, _REASON),
            examples=[f"throttle 3f2a91c0 200M {_ON} --reason 'the night is quiet'"],
            details=_THROTTLED,
        ),
        _build_verb(
            "throttles",
            "Show the throttles that others have set in Kafka, or remove what is left over",
            "throttles.list_leftover_throttles",
            (remove, yes, _REASON),
            examples=[f"throttles {_ON}", f"throttles --remove {_ON} --reason 'a reassignment of May left them'"],
            details=_LEFTOVERS,
        ),
        _build_verb(
            "abandon",
            "Abandon a plan in its current state: nothing is rolled back",
            "manage.abandon",
            (_PLAN, _REASON),
            examples=[f"abandon 3f2a91c0 {_ON} --reason 'broker 4 will not return'"],
            details=_ABANDON,
        ),
    )


_PLANNED = """\
It reads the cluster, plans, checks the plan, and prints its proof: the moves and the fewest that are possible,
bytes, leaders, each broker before and after, and how long it takes at least at the throttle. Nothing is submitted,
and nothing on the cluster is changed. With --file, it also writes the plan as `apply` and
kafka-reassign-partitions take it, and beside it, in FILE.rollback.json, the way back.

The planner is that of the DAGs; it runs in this process, and needs neither Spark nor Java.

Exit code 0: there is a plan, or nothing to do; 1: it cannot be planned, no topic takes part, or partitions that
need a change stay as they are. These are named, and the plan and its files are of the others."""


def _build_planning_group() -> GroupCommand:
    about = "Plan from this terminal, as the DAGs do: a proof and a file, and nothing is submitted"
    return GroupCommand("plan", about, [_build_planning_verb(verb) for verb in _PLANNING_VERBS])


class _PlanningVerb(NamedTuple):
    """A verb of `plan`: its function plans an operation. `brokers` is the help of the argument with the brokers."""

    operation: Operation
    about: str
    function: str
    examples: tuple[str, ...]
    brokers: str = ""


_PLANNING_VERBS = (
    _PlanningVerb(
        Operation.HEAL,
        "Replace all replicas on failed brokers",
        "plan.plan_heal",
        ("plan heal", "plan heal --brokers 3 --file heal.json --throttle 100M"),
        "Ids of the failed brokers (default: all that are down, without a grace period)",
    ),
    _PlanningVerb(
        Operation.REBALANCE,
        "Balance all brokers",
        "plan.plan_rebalance",
        ("plan rebalance --max-bytes 50G", "plan rebalance --balance bytes --exclude 'logs-.*' --output json"),
    ),
    _PlanningVerb(
        Operation.EXPAND,
        "Move replicas to brokers that are empty",
        "plan.plan_expand",
        ("plan expand --file expand.json",),
    ),
    _PlanningVerb(
        Operation.DRAIN,
        "Empty live brokers",
        "plan.plan_drain",
        ("plan drain --brokers 4 --file drain.json", "plan drain --brokers 4,5 --throttle 200M"),
        "Ids of the brokers to empty, such as 3,4",
    ),
    _PlanningVerb(Operation.FILL, "Add the pending replicas of topics (KIP-409)", "plan.plan_fill", ("plan fill",)),
    _PlanningVerb(
        Operation.RELIEVE,
        "Move off what disks hold above a threshold",
        "plan.plan_relieve",
        ("plan relieve --max-used 0.8 --max-bytes 500G",),
    ),
    _PlanningVerb(
        Operation.SET_REPLICATION_FACTOR,
        "Set the replication factor of topics",
        "plan.plan_replication_factor",
        (
            "plan set-replication-factor --topics orders --factor 3",
            "plan set-replication-factor --topics 'logs-.*' --factor 2",
        ),
    ),
    _PlanningVerb(
        Operation.LEADERS,
        "Make the leaders even, by the order of replicas alone",
        "plan.plan_leaders",
        ("plan leaders --file leaders.json", "plan leaders --topics orders"),
    ),
    _PlanningVerb(
        Operation.DEMOTE,
        "Let brokers lead nothing, and be last in line",
        "plan.plan_demote",
        ("plan demote --brokers 3",),
        "Ids of the brokers to demote, such as 3,4 (default: those that are demoted, for new topics)",
    ),
    _PlanningVerb(
        Operation.PROMOTE,
        "End the demotion of brokers, and restore the order before it",
        "plan.plan_promote",
        ("plan promote --brokers 3",),
        "Ids of the brokers to promote, such as 3,4",
    ),
)

_PLAN_OUTPUT = (
    _THROTTLE,
    Arg(("--file",), help="Write the plan for `apply` to this file, and the way back beside it", metavar="FILE.json"),
    Arg(
        ("--forecast",),
        help="Simulate the plan: how long it takes, which broker it waits for, how full the disks get",
        action="store_true",
    ),
    Arg(
        ("--folder",),
        help="Keep snapshot, plan and proof in this new folder: a path, or an address such as s3://bucket/plan",
        metavar="FOLDER",
    ),
)


def _build_planning_verb(verb: _PlanningVerb) -> ActionCommand:
    operation, args = verb.operation, []
    if verb.brokers:
        required = operation in (Operation.DRAIN, Operation.PROMOTE)
        args += [Arg(("--brokers",), help=verb.brokers, type=_parse_brokers, required=required, metavar="IDS")]
    for name, option in GIVEN_OPTIONS.items():
        if option.flag and (operation in option.of or option.in_every_verb):
            args += [_build_option_arg(name, option, operation)]
    examples = [f"{example} {_ON}" for example in verb.examples]
    return _build_verb(
        operation.value, verb.about, verb.function, (*args, *_PLAN_OUTPUT), examples=examples, details=_PLANNED
    )


def _build_option_arg(name: str, option: PlannerOption, operation: Operation) -> Arg:
    about, kind, required = option.description.removesuffix("."), option.kind, name in REQUIRED.get(operation, ())
    given: dict[str, Any] = {"dest": name, **({"required": True} if required else {})}
    if option.items is int:
        about, given = f"{about}, such as 3,4", {**given, "type": _parse_brokers, "metavar": "IDS"}
    elif option.items:
        about, given = f"{about}; may be repeated", {**given, "action": "append", "metavar": "REGEX"}
    elif option.in_bytes:
        about, given = f"{about}, such as 50G", {**given, "type": _parse_bytes, "metavar": "BYTES"}
    elif kind is bool:
        given |= {"action": "store_true", "default": None}
    elif option.choices:
        given |= {"choices": option.choices}
    elif kind is int:
        given |= {"type": _parse_count, "metavar": "N"}
    else:
        given |= {"type": kind, "metavar": "FRACTION"}
    usual = f" (default: {default})" if (default := option.default_of(operation)) else ""
    return Arg((str(option.flag),), help=f"{about}{usual}", **given)


_COPY = """Stop Airflow, or pause the DAGs, first: a process that has the old journal open continues to use
it. Afterwards the old journal is refused, with an error that names the copy. `journal pair`, for the
connection of the old one, returns to it, without the records that the copy has gained since."""

_PAIR = """The documents (in ZooKeeper, with the setting zookeeper) and the rows (in the database of the
setting journal) have the same id, and a journal whose halves differ is refused. Use this only if one half is
permanently lost: stop Airflow, set both settings to their final values, and run it once."""

_ARCHIVE = """Rows of plans that the journal still knows stay, regardless of their age: a rollback reads them.
Each line of the file is a row as `audit --output json` prints it, with its number. Rows are deleted only
after the file is complete; the audit trail names the file."""


def _build_journal_group() -> GroupCommand:
    to = Arg(
        ("--to",), help="Another connection of the same cluster, with the new journal", required=True, metavar="CONN_ID"
    )
    file = Arg(("file",), help="A new file of JSON lines; a name that ends in .gz is compressed", type=Path)
    before = Arg(
        ("--before",),
        help="Archive rows older than this: 90d, or 2026-01-01 (UTC)",
        type=_parse_time,
        required=True,
        metavar="TIME",
    )
    copy = _build_verb(
        "copy",
        "Copy plans, documents and the audit trail into another journal, which replaces this one",
        "documents.copy_to_connection",
        (to,),
        examples=[f"journal copy {_ON} --to kafka_production_new"],
        details=_COPY,
    )
    pair = _build_verb(
        "pair",
        "Pair the journal's rows and documents again, after one half was lost or replaced",
        "documents.pair_journal_halves",
        examples=[f"journal pair {_ON}"],
        details=_PAIR,
    )
    archive = _build_verb(
        "archive",
        "Write old rows of the audit trail to a file, and delete them from the journal",
        "documents.archive_rows",
        (file, before),
        examples=[f"journal archive audit-2025.jsonl.gz --before 2026-01-01 {_ON}"],
        details=_ARCHIVE,
    )
    about = "Move the journal to another database or out of ZooKeeper, pair its halves, or archive old rows"
    return GroupCommand("journal", about, (copy, pair, archive))


_MAKE_ARCHIVE = """\
The file holds the planner's code and its solver, for executors whose Python has neither. It fits executors of
this Python's minor version and this platform, and this version of Kafka Steward: make it again after an
upgrade. Each job checks that before it is submitted, and asks the executors before it plans."""


def _build_archive_verb() -> ActionCommand:
    file = Arg(("file",), help="A new file", metavar="FILE.tar.gz")
    return _build_verb(
        "make-archive",
        "Write what Spark's executors need into one file",
        "archive.make",
        (file,),
        examples=["make-archive /opt/airflow/kafka-steward.tar.gz"],
        details=_MAKE_ARCHIVE,
    )


_PREPARE_SPARK = """\
A plan on a worker starts a JVM, which loads and verifies Spark's classes for some seconds. This makes a small plan
once and records its classes in the cache (KAFKA_STEWARD_CACHE, else ~/.cache/kafka-steward), from where every
later plan of this user on this machine maps them. Run it as the worker's user, or while an image is built, and
again after an upgrade of Java or Spark. Without it plans are made as well, and take longer to start."""


def _build_prepare_verb() -> ActionCommand:
    return _build_verb(
        "prepare-spark",
        "Record Spark's classes, so that plans on this machine start sooner",
        "archive.prepare",
        (),
        examples=["prepare-spark"],
        details=_PREPARE_SPARK,
    )


_FAILED = """\
Kafka has to see the broker as down, or to report the log directory as failed: a live broker is refused, and is
to be drained instead. The DAG `heal` has to be unpaused; it starts at the next poll of its watch.

With --disk, the failed log directories of a live broker are healed, also while heal_failed_disks is off. The
report covers all failed directories of the broker.

--withdraw deletes the broker's entry: its heal is called off until the broker has been live again, or is
reported again. A heal that has a plan already is cancelled with `cancel`. Only the journal is needed."""


def _build_document_verbs() -> tuple[ActionCommand, ...]:
    # Required, because operators who are blocked by the disabled reassignments need the reason.
    reason = Arg(("--reason",), help="The reason, shown for held moves and requests", required=True)
    broker = Arg(("broker",), help="Its id", type=int, metavar="BROKER")
    away = Arg(
        ("--for",),
        help="How long it may be down, such as 2h; default: its grace period",
        type=_parse_duration_ms,
        dest="ms",
    )
    log_dirs = Arg(
        ("--disk",), help="Failed log directories of a live broker", nargs="+", default=(), metavar="DIR", dest="disks"
    )
    withdraw = Arg(("--withdraw",), help="Withdraw the report, and call the heal off", action="store_true")
    end = Arg(("--withdraw",), help="Withdraw the announcement", action="store_true")
    return (
        _build_verb(
            "disable",
            "Disable reassignments: none starts, those in flight complete",
            "documents.block_reassignments",
            (reason,),
            examples=[f"disable {_ON} --reason 'moving racks'"],
        ),
        _build_verb(
            "enable",
            "Enable reassignments again",
            "documents.unblock_reassignments",
            (_REASON,),
            examples=[f"enable {_ON}"],
        ),
        _build_verb(
            "bounce",
            "Announce a planned restart of a broker",
            "documents.announce_broker_restart",
            (broker, away, end),
            examples=[f"bounce 3 --for 2h {_ON}", f"bounce 3 --withdraw {_ON}"],
        ),
        _build_verb(
            "failed",
            "Report that a broker, or a disk of it, has failed: it is healed without the grace period",
            "documents.report_failure",
            (broker, log_dirs, _REASON, withdraw),
            examples=[
                f"failed 3 {_ON} --reason 'its host burnt down'",
                f"failed 3 --disk /data/2 {_ON}",
                f"failed 3 --withdraw {_ON}",
            ],
            details=_FAILED,
        ),
        _build_verb(
            "watch",
            "Detect failed, joined and empty brokers, and execute the requests of documents, until Ctrl-C; the "
            "triggerer does this while a DAG with a watch is unpaused",
            "documents.watch_documents",
            examples=[f"watch {_ON}"],
        ),
    )


_QUEUE_ADD = """\
FILE.json has the format of kafka-reassign-partitions, and is what `queue list --output json` and `queue generate
--output json` print. There is one queue at a time (KIP-236): while it exists, a second one is refused, with exit
code 1. Each partition leaves it when its reassignment starts, beside what is in flight; a partition in flight to
other replicas is cancelled first. A watch executes it: that of a DAG, or `airflow kafka-steward watch`."""

_QUEUE_LIST = """\
With --output json, the queue as the document that `queue add` takes."""

_QUEUE_VERIFY = """\
For each partition of FILE.json, or of the queue and of what has been started from it, one line in the words of
kafka-reassign-partitions --verify, from the cluster's current state and the journal. The state, in JSON and CSV:
complete, started, waiting, refused, superseded (a later document or plan requested other replicas), incomplete
(other replicas, and nothing moves it). It changes nothing; `verify` of a plan releases throttles.

Exit code 0: all are complete; 3: some are started or waiting; 1: the others are not complete, and will not be."""

_QUEUE_GENERATE = """\
What kafka-reassign-partitions --generate is for, with the fewest replica moves: the topics are made even over the
brokers and spread over their racks, and keep their replication factors; replicas on other brokers move to these.
The topics are named with --topic, or in the file that kafka-reassign-partitions takes: {"version": 1, "topics":
[{"topic": "orders"}, ...]}. Only partitions that change are printed: their current assignment, to go back with,
and the proposed one. With --output json the proposed one alone, which `queue add`, `requests add` and `apply` take.
Nothing is changed.

Exit code 0, also if nothing has to move; 1 for an unknown topic, a broker that is not live, too few brokers, or a
partition that is being reassigned."""

_REQUESTS_ADD = """\
FILE.json has the format of kafka-reassign-partitions. The request is executed by a watch, that of a DAG or
`airflow kafka-steward watch`, in the order of the requests' numbers; a later request for the same partition
supersedes an earlier one (KIP-236). `queue verify FILE.json` says what became of it."""

_REQUESTS_LIST = """\
The requests that no watch has executed or refused yet, in the order in which they are executed, and what each
waits for: reassignments that are disabled, a plan, or the next poll of a watch. After them, in their order, the
chunks that people wrote below /admin/reassign_chunks (KIP-46)."""

_REQUESTS_REMOVE = """\
Withdraws a request that waits: it is never executed. One that a watch has accepted is left, with exit code 1, even
if its plan is not published yet: cancel that plan."""

_SIGNAL = """\
Creates /admin/cancel_reassignment_in_progress (KIP-236): every plan that has not ended, and external
reassignments in flight, are cancelled by a watch or by the next step of a plan; or one plan with --plan. The
command does not wait, and does not need the cluster: `cancel` and `cancel --all` do the cancel themselves, and
wait for its end. Exit code 1 while an earlier signal has not been executed."""


def _build_request_groups() -> tuple[GroupCommand, ...]:
    """Return the verbs for the documents of KIP-236 that request reassignments or cancels."""
    return (
        GroupCommand("queue", "The queue of reassignments (KIP-236)", _build_queue_verbs()),
        GroupCommand("requests", "Requests for reassignments (KIP-236)", _build_requests_verbs()),
        GroupCommand("signal", "The cancel signal (KIP-236)", (_build_signal_verb(),)),
    )


def _build_queue_verbs() -> tuple[ActionCommand, ...]:
    file = Arg(
        ("file",), help="A file of kafka-reassign-partitions; default: the queue", nargs="?", metavar="FILE.json"
    )
    topics = Arg(("--topic",), help="A topic; may be repeated", action="append", metavar="TOPIC", dest="topics")
    topics_file = Arg(
        ("--topics-to-move-json-file",),
        help="A file of kafka-reassign-partitions with the topics, instead of --topic",
        metavar="FILE.json",
        dest="topics_file",
    )
    brokers = Arg(
        ("--brokers",),
        help="The brokers that are to have the replicas, such as 1,2,3",
        type=_parse_brokers,
        required=True,
        metavar="IDS",
    )
    return (
        _build_verb(
            "add",
            "Queue a reassignment",
            "requests.add_to_queue",
            (_FILE,),
            examples=[f"queue add reassignment.json {_ON}"],
            details=_QUEUE_ADD,
        ),
        _build_verb(
            "list",
            "The queued reassignments that have not started",
            "requests.list_queue",
            examples=[f"queue list {_ON}", f"queue list --output json {_ON} > queued.json"],
            details=_QUEUE_LIST,
        ),
        _build_verb(
            "remove",
            "Remove the queue; reassignments that have started continue",
            "requests.remove_queue",
            examples=[f"queue remove {_ON}"],
        ),
        _build_verb(
            "verify",
            "Report the state of each partition of a file, or of the queue",
            "requests.verify_queue",
            (file,),
            examples=[f"queue verify reassignment.json {_ON}", f"queue verify --output json {_ON}"],
            details=_QUEUE_VERIFY,
        ),
        _build_verb(
            "generate",
            "Propose an assignment of topics over brokers, for queue add",
            "requests.generate_reassignment",
            (topics, topics_file, brokers),
            examples=[
                f"queue generate --topic orders --topic events --brokers 1,2,3 {_ON}",
                f"queue generate --topic orders --brokers 1,2,3 --output json {_ON} > proposed.json",
                f"queue generate --topics-to-move-json-file topics.json --brokers 1,2,3 {_ON}",
            ],
            details=_QUEUE_GENERATE,
        ),
    )


def _build_requests_verbs() -> tuple[ActionCommand, ...]:
    request = Arg(("request",), help="Its name, as `requests list` prints it", metavar="REQUEST")
    return (
        _build_verb(
            "add",
            "Request a reassignment",
            "requests.add_request",
            (_FILE,),
            examples=[f"requests add reassignment.json {_ON}"],
            details=_REQUESTS_ADD,
        ),
        _build_verb(
            "list",
            "The requests that wait, and for what",
            "requests.list_requests",
            examples=[f"requests list {_ON}", f"requests list --output json {_ON}"],
            details=_REQUESTS_LIST,
        ),
        _build_verb(
            "remove",
            "Withdraw a request that has not been executed",
            "requests.remove_request",
            (request,),
            examples=[f"requests remove request_0000000007 {_ON}"],
            details=_REQUESTS_REMOVE,
        ),
    )


def _build_signal_verb() -> ActionCommand:
    plan = Arg(("--plan",), help="Only this plan: its digest, or a prefix of it (default: everything)")
    return _build_verb(
        "cancel",
        "Signal a cancel to the processes that watch or step",
        "requests.signal_cancel",
        (plan, _SCOPE, _REASON, _ANYWAY),
        examples=[
            f"signal cancel {_ON} --reason 'traffic peak'",
            f"signal cancel --plan 3f2a91c0 --scope plan {_ON} --reason 'wrong racks'",
        ],
        details=_SIGNAL,
    )
