"""`plan`: the plan that a workflow would make now, with its proof, from a terminal. Nothing is submitted.

It is made in this process, by the code that the Spark job of the DAGs runs: of one snapshot, both make the same plan,
with the same digest.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console
from rich.progress import Progress as Bars
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

from kafka_steward.assignment import (
    EVEN_OPERATIONS,
    Operation,
    TopicPartition,
    begin_with_brokers,
    counted,
    name_brokers,
)
from kafka_steward.cli import Exit
from kafka_steward.cli.verb import NO_JOURNAL, CommandContext, print_error
from kafka_steward.cluster.health import failed_log_dirs, failed_paths_text
from kafka_steward.cluster.state import Snapshot
from kafka_steward.errors import PlanError, RequestError, SlotTaken
from kafka_steward.execution.announcements import restart_clause, restarting_brokers
from kafka_steward.execution.cluster_queries import cordoned_brokers as cordoned_now
from kafka_steward.execution.demotions import read_demotions
from kafka_steward.execution.failures.records import last_racks, read_failures, read_log_dir_failures
from kafka_steward.execution.load.look import known_rates
from kafka_steward.execution.plans.readiness import check_readiness
from kafka_steward.execution.plans.report import held_sentence, racks_in_need, racks_sentence
from kafka_steward.execution.plans.requests import no_op_reason, planner_options
from kafka_steward.execution.plans.slot import current_plans
from kafka_steward.execution.plans.snapshot import started_moves, take_snapshot, unknown_racks_message
from kafka_steward.execution.plans.summary import (
    constraint_regressions,
    partitions_in_need,
    plan_tables,
    staying_sentence,
)
from kafka_steward.execution.throttles.leftovers import read_external_rates
from kafka_steward.execution.throttles.rates import ExternalRate, external_rates_message, stricter_rates
from kafka_steward.execution.topics.pending import list_pending, target_replication_factors, unfillable_reason
from kafka_steward.execution.watch.failure_detector import decide_outage
from kafka_steward.forecast.forecast import Forecast, forecast_plan
from kafka_steward.given_targets import CurrentPartition, TargetCheck
from kafka_steward.hooks.session import ClusterSession
from kafka_steward.journal import paths
from kafka_steward.journal.records import PlanRecord
from kafka_steward.journal.render import Table
from kafka_steward.journal.store import Journal
from kafka_steward.planning.checker.check import check
from kafka_steward.planning.files.formats import (
    PlanFolder,
    SnapshotFolder,
    cordoned_brokers,
    min_isr_by_topic,
    read_plan,
    read_snapshot,
    write_plan,
)
from kafka_steward.planning.files.reassignment import reassignment_json
from kafka_steward.planning.local import plan_locally
from kafka_steward.planning.options import GIVEN_OPTIONS, select_options
from kafka_steward.rack_rule import RackRule
from kafka_steward.rebalance_request import RebalanceRequest
from kafka_steward.settings import parse_capacities

_ENGINE = (
    "Made in this process, which needs neither Spark nor Java; the Spark job of the DAG makes the same plan of this "
    "snapshot. Nothing was submitted."
)
#: Moves that the text shows; JSON, CSV and the files have all.
_SHOWN = 20


@dataclass(frozen=True)
class _Inputs:
    """The inputs of a snapshot beside the cluster; `nothing` says why there is nothing to plan, if so."""

    failed: tuple[int, ...] = ()
    failed_disks_of: tuple[int, ...] = ()
    draining: tuple[int, ...] = ()
    targets: Mapping[TopicPartition, int] | None = None
    nothing: str = ""


def _plan(call: CommandContext, operation: Operation) -> Exit:
    given = call.arguments
    with _output_folder(given.folder) as folder:
        with call.open() as opened:
            settings, cluster_id = opened.settings, opened.cluster.cluster_id
            zookeeper_mode, now_ms = opened.cluster.zookeeper_mode, opened.journal.now_ms()
            with _working("Reading the cluster"):
                inputs = _read_inputs(call, opened, operation)
                if not inputs.nothing:
                    _take_snapshot(opened, folder, inputs)
                    _print_readiness(call, opened, operation)
                    restarts = restarting_brokers(opened.journal.mailbox, opened.journal.now_ms())
                    holders = [
                        (record, opened.journal.plans.unsettled_partitions(record.digest))
                        for record in current_plans(opened.journal)
                    ]
                    rates = read_external_rates(opened.cluster, opened.journal, leaders=settings.throttle_leaders)
                    connection = call.connection(opened.cluster.live_brokers())
        if inputs.nothing:
            return _report_nothing(call, operation, inputs.nothing)
        snapshot = read_snapshot(f"{folder}/snapshot")
        options, nothing = _derive_options(operation, vars(given), snapshot, settings.service_topic_patterns)
        if nothing:
            return _report_nothing(call, operation, nothing)
        with _working(f"Planning {counted(len(snapshot.partitions), 'partition')}"):
            of_settings = settings.planner_options(evens_out=operation in EVEN_OPERATIONS)
            plan = _make_plan(folder, snapshot, operation, {**of_settings, **options})
    if not plan.moves and not plan.proof.get("unplaced"):
        left = (staying_sentence(plan, snapshot), held_sentence(plan.proof), racks_sentence(plan.proof))
        held = " ".join(filter(None, left))
        usual = "Nothing has to move: the cluster is as the plan would leave it."
        _report_nothing(call, operation, f"Nothing else has to move. {held}" if held else usual)
        return _judge_completeness(plan, snapshot)
    stricter = stricter_rates(plan.moves, rates, settings.throttle)
    print_error(*filter(None, [external_rates_message(stricter, settings.throttle, connection=connection)]))
    _print_held_moves(call, plan, restarts)
    files = _write_files(given.file, plan)
    foreseen = None
    if given.forecast:
        with _working("Simulating the plan"):
            foreseen = forecast_plan(plan, snapshot, settings, zookeeper_mode=zookeeper_mode, now_ms=now_ms)
    facts = {"cluster_id": cluster_id, "folder": given.folder, "files": files}
    facts |= {"forecast": foreseen.to_json()} if foreseen else {}
    facts |= {"external_rates": [rate.to_json() for rate in stricter]}
    _print_plan(call, plan, facts, _plan_lines(plan, snapshot, stricter, foreseen))
    if files:
        _print_files(call, plan, snapshot, files, holders)
    return _judge_completeness(plan, snapshot)


plan_heal = partial(_plan, operation=Operation.HEAL)
plan_fill = partial(_plan, operation=Operation.FILL)
plan_rebalance = partial(_plan, operation=Operation.REBALANCE)
plan_expand = partial(_plan, operation=Operation.EXPAND)
plan_drain = partial(_plan, operation=Operation.DRAIN)
plan_leaders = partial(_plan, operation=Operation.LEADERS)
plan_relieve = partial(_plan, operation=Operation.RELIEVE)
plan_demote = partial(_plan, operation=Operation.DEMOTE)
plan_promote = partial(_plan, operation=Operation.PROMOTE)
plan_replication_factor = partial(_plan, operation=Operation.SET_REPLICATION_FACTOR)


def _judge_completeness(plan: PlanFolder, snapshot: SnapshotFolder) -> Exit:
    """Return the exit code: a script has to notice that partitions are left, also if the plan of the others is good."""
    unplaced = plan.proof["unplaced"]
    left = [*partitions_in_need(unplaced, plan.proof, snapshot), *_kept_where_nothing_is_to_stay(plan, snapshot)]
    racks, named_racks = racks_in_need(plan.proof)
    number = len(left) + racks.total()
    if not number:
        return Exit.DONE
    named = (
        f"{[*left, *named_racks][0]} needs a change and stays"
        if number == 1
        else f"{number} partitions need a change and stay"
    )
    # The lines "left as it is" name these as well: the counts add up to the lines.
    listed = len(left) + racks[RackRule.OUT_OF_SYNC.word]
    kept = len(plan.proof.get("pinned") or ()) + len(unplaced) - listed
    also = f"; {kept} more {'is' if kept == 1 else 'are'} pinned, left out or left for now" if kept else ""
    print_error(f"{named} as before{also}. The plan has the reason of each, and is of the others.")
    return Exit.FAILED


def _kept_where_nothing_is_to_stay(plan: PlanFolder, snapshot: SnapshotFolder) -> list[TopicPartition]:
    """Return the partitions that wait for another reassignment, or a replica, and keep one on a broker to be emptied.

    Those that a person pinned or left out stay because that person said so.
    """
    emptied = {*plan.proof["brokers_draining"], *plan.proof["brokers_failed"]}
    waiting = {
        TopicPartition(pin["topic"], pin["partition"])
        for pin in plan.proof.get("pinned") or ()
        if pin["reason"] in {"in_flight", "out_of_sync"}
    }
    if not (emptied and waiting):
        return []
    rows = snapshot.partitions.select(["topic", "partition", "replicas", "removing"]).to_pylist()
    return [
        name
        for row in rows
        if (name := TopicPartition(row["topic"], row["partition"])) in waiting
        and emptied & set(row["replicas"]).difference(row["removing"] or ())
    ]


@contextmanager
def _output_folder(uri: str | None) -> Iterator[str]:
    if uri is not None:
        yield uri.rstrip("/") if ":" in uri else str(Path(uri).absolute())
        return
    with TemporaryDirectory(prefix="kafka-steward-plan-") as folder:
        yield folder


@contextmanager
def _working(what: str) -> Iterator[None]:
    """Show on standard error what is done, and on a terminal for how long."""
    if not sys.stderr.isatty():
        print_error(f"{what}.")
        yield
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        bars.add_task(what, total=None)
        yield


def _read_inputs(call: CommandContext, opened: ClusterSession, operation: Operation) -> _Inputs:
    brokers, snapshot = getattr(call.arguments, "brokers", None) or (), opened.cluster.snapshot()
    if operation is Operation.FILL:
        pending = [entry for entry in list_pending(opened.journal, snapshot) if not entry.is_obsolete]
        cordoned = cordoned_now(opened.cluster, snapshot.live if pending else ())
        whys = {entry.partition: unfillable_reason(entry, snapshot, cordoned) for entry in pending}
        print_error(*_first([f"left as it is: {name}: {why}" for name, why in sorted(whys.items()) if why]))
        targets = target_replication_factors(pending, snapshot, cordoned)
        nothing = "No pending replica can be added now." if pending else "No partition has a pending replica."
        return _Inputs(targets=targets, nothing="" if targets else nothing)
    if operation is Operation.HEAL:
        failed = disks = frozenset(snapshot.offline_on_live_brokers)
        if not opened.settings.heal_failed_disks:
            disks &= read_log_dir_failures(opened.journal).reported
        inputs = _find_failures(call, snapshot, brokers, disks_of=disks)
        if left := frozenset() if brokers else failed - disks:
            paths = failed_log_dirs(snapshot, opened.cluster.directories(sorted(left)))
            _print_disks_left_out(call, {broker: paths[broker] for broker in sorted(left)})
        print_error(*filter(None, [unknown_racks_message(snapshot, inputs.failed, last_racks(opened.journal))]))
        if call.direct is None:  # the settings of the DAG are not known otherwise
            _print_outage(opened, snapshot, frozenset(brokers))
        _print_healed_regardless(opened.journal, inputs.failed)
        return inputs
    paths = failed_log_dirs(snapshot, opened.cluster.directories(sorted(snapshot.offline_on_live_brokers)))
    for broker in snapshot.offline_on_live_brokers:
        print_error(
            f"Log directory {failed_paths_text(paths[broker])} of broker {broker} has failed: partitions with a "
            "replica in it are left as they are until it is healed:",
            f"  {call.command_line(f'plan heal --brokers {broker}')}",
        )
    return _Inputs(draining=brokers if operation is Operation.DRAIN else ())


def _print_outage(opened: ClusterSession, snapshot: Snapshot, named: frozenset[int]) -> None:
    """Print that so many brokers are down that the DAG would heal none of them, or only those that a person named."""
    journal, settings = opened.journal, opened.settings
    outage = decide_outage(journal, snapshot, read_failures(journal), settings)
    view = outage.view
    healed = (view.failed | view.lost.keys()) & {*named, *outage.brokers.due, *outage.disks.due}
    would = f"would heal only {name_brokers(sorted(healed))}" if healed else "would not start now"
    for failed, reason, what in (
        (view.failed, outage.brokers_why, ("is down", "are down")),
        (view.lost.keys(), outage.disks_why, ("has failed log directories", "have failed log directories")),
    ):
        if reason and failed - healed:
            begin = begin_with_brokers(sorted(failed), *what)
            print_error(f"The DAG {would}; this plan does not wait. {begin}: {reason}")


def _print_healed_regardless(journal: Journal, failed: Collection[int]) -> None:
    """Print which of these brokers the DAG would not heal now, because a person has decided so."""
    now_ms = journal.now_ms()
    called_off, restarts = read_failures(journal).called_off, restarting_brokers(journal.mailbox, now_ms)
    for broker in failed:
        if broker in called_off:
            off = f"The heal of broker {broker} was called off: {paths.failed_broker(broker)} was deleted."
            print_error(f"{off} The DAG does not heal it; this plan does.")
        elif broker in restarts:
            print_error(f"Broker {broker} {restart_clause(restarts[broker])}. The DAG waits; this plan does not.")


def _print_held_moves(call: CommandContext, plan: PlanFolder, restarts: Mapping[int, int | None]) -> None:
    """Print the announced restarts for which moves of the plan would be held."""
    for broker, until_ms in sorted(restarts.items()):
        moves = sum(broker in move.adding for move in plan.moves)
        if moves:
            print_error(
                f"Broker {broker} {restart_clause(until_ms)}: meanwhile, {counted(moves, 'move', 'is', 'are')} held "
                "that would add a replica there. To end that:",
                f"  {call.command_line(f'bounce {broker} --withdraw')}",
            )


def _print_disks_left_out(call: CommandContext, paths_of: Mapping[int, Sequence[str]]) -> None:
    """Print which failed log directories of live brokers a heal leaves, and how a person has them healed."""
    for broker, dirs in paths_of.items():
        how = f"failed {broker} --disk {shlex.join(dirs)}" if dirs else f"plan heal --brokers {broker}"
        print_error(
            f"Log directory {failed_paths_text(dirs)} of broker {broker} has failed, and is left out: "
            f"heal_failed_disks is off. To have it healed, set that, or {'report it' if dirs else 'name its broker'}:",
            f"  {call.command_line(how)}",
        )


def _find_failures(
    call: CommandContext, snapshot: Snapshot, brokers: tuple[int, ...], *, disks_of: Collection[int]
) -> _Inputs:
    """Return the brokers to heal: those that are named, or all that are down, without a grace period.

    A live broker is healed if it has failed log directories, when it is named, or is one of `disks_of`. Raises
    RequestError for a named broker without a failure.
    """
    down, disks = snapshot.dead_hosting_brokers, set(snapshot.offline_on_live_brokers)
    for broker in sorted(set(brokers) - down - disks):
        drain = call.command_line(f"plan drain --brokers {broker}")
        why = f"it is live; to empty it: {drain}" if broker in snapshot.live else "no partition has a replica on it"
        raise RequestError(f"Broker {broker} has nothing to heal: {why}.")
    chosen = set(brokers) or down.union(disks_of)
    if not chosen:
        more = "nothing else" if disks else "nothing"
        return _Inputs(nothing=f"No broker that hosts replicas is down: there is {more} to heal.")
    return _Inputs(failed=tuple(sorted(chosen)), failed_disks_of=tuple(sorted(chosen & disks)))


def _take_snapshot(opened: ClusterSession, folder: str, inputs: _Inputs) -> None:
    take_snapshot(
        opened.cluster,
        f"{folder}/snapshot",
        failed=inputs.failed,
        now_ms=opened.journal.now_ms(),
        draining=inputs.draining,
        targets=inputs.targets,
        begun=started_moves(opened.journal),
        rates=known_rates(opened.journal),
        demotions=read_demotions(opened.journal),
        failed_disks_of=inputs.failed_disks_of,
        capacities=parse_capacities(opened.settings.capacity),
        service_topics=opened.settings.service_topic_patterns,
        racks=last_racks(opened.journal),
        min_free=opened.settings.min_free,
    )


def _print_readiness(call: CommandContext, opened: ClusterSession, operation: Operation) -> None:
    """Print why the workflow would not start now, or what it leaves out; heal and fill start regardless."""
    if operation in (Operation.HEAL, Operation.FILL):
        return
    readiness = check_readiness(opened.cluster, opened.journal, opened.settings)
    if not readiness.is_ready:
        workflow = "The DAG" if call.direct is None else "The workflow rebalance"
        print_error(f"{workflow} would not start now. {readiness.sentence}")
    elif readiness.left_out:
        print_error(readiness.sentence)


def _derive_options(
    operation: Operation, given: Mapping[str, Any], snapshot: SnapshotFolder, service_topics: Sequence[str]
) -> tuple[dict[str, Any], str]:
    """Return the planner's options beside those of the settings, and why there is nothing to plan, if so."""
    if operation in (Operation.HEAL, Operation.FILL):
        return select_options(operation, given), ""
    options = {name: given[name] for name in GIVEN_OPTIONS if name in given}
    brokers = given.get("brokers") or ()
    request = RebalanceRequest.of({"operation": operation.value, "brokers": brokers, **options})
    chosen = planner_options(request, snapshot, scheduled=False, service_topics=service_topics)
    return chosen, no_op_reason(request, snapshot)


def _make_plan(folder: str, snapshot: SnapshotFolder, operation: Operation, options: Mapping[str, Any]) -> PlanFolder:
    write_plan(f"{folder}/plan", *plan_locally(snapshot, operation.value, options))
    plan = read_plan(f"{folder}/plan")
    verdict = check(snapshot, plan, proven=False)
    if not verdict.ok:
        raise PlanError(f"The plan {plan.digest[:12]} failed its check, and is not used: {verdict.problems[0]}")
    return plan


def _write_files(file: str | None, plan: PlanFolder) -> list[str]:
    """Write the plan for `apply`, and the way back beside it; return both paths, or nothing. Raises PlanError."""
    if file is None or not plan.moves:
        return []
    path = Path(file)
    back = path.with_suffix(f".rollback{path.suffix}")
    try:
        path.write_text(reassignment_json(plan.moves), encoding="utf-8")
        back.write_text(reassignment_json(plan.moves, rollback=True), encoding="utf-8")
    except OSError as error:
        raise PlanError(f"The file {path} cannot be written: {error.strerror}.") from error
    return [str(path), str(back)]


def _report_nothing(call: CommandContext, operation: Operation, sentence: str) -> Exit:
    call.out.print_document({"plan": None, "operation": operation.value, "sentence": sentence}, [], [sentence])
    return Exit.DONE


def _print_plan(
    call: CommandContext,
    plan: PlanFolder,
    facts: Mapping[str, Any],
    lines: Sequence[str],
) -> None:
    proof = plan.proof
    numbers = (
        *("operation", "replicas_moved", "lower_bound", "bytes_moved", "partitions", "leader_changes"),
        *("rack_violations", "rack_left", "predicted_seconds", "unplaced", "notes", "options"),
    )
    moves = [
        {
            "topic": move.topic,
            "partition": move.partition,
            "replicas": list(move.after),
            "before": list(move.before),
            "bytes": move.size_bytes,
            "reason": move.purpose,
        }
        for move in plan.moves
    ]
    document = {
        "plan": plan.digest,
        **{name: proof.get(name) for name in numbers},
        **{name: proof.get(name) for name in ("spread", "load")},
        "moves": moves,
        "reassignment": json.loads(reassignment_json(plan.moves)),
        **facts,
    }
    call.out.print_document(document, moves, lines)
    print_error(_ENGINE, *([] if call.direct is None else [NO_JOURNAL]))


def _print_files(
    call: CommandContext,
    plan: PlanFolder,
    snapshot: SnapshotFolder,
    files: Sequence[str],
    holders: Iterable[tuple[PlanRecord, Collection[TopicPartition]]],
) -> None:
    """Print what the files are for, and which of `holders`, with what each has yet to move, `apply` has to wait for."""
    file, back = files
    names, wait, how = {move.topic_partition for move in plan.moves}, "", f"apply {file}"
    for holder, unsettled in holders:
        shared = names.intersection(unsettled)
        if holder.auto_generated or shared:
            reason = SlotTaken.reason(holder.digest, holder.operation, shared=str(min(shared, default="")))
            wait, how = f" once it may start, because {reason}", f"{how} --wait"
            break
    print_error(f"{file} has the plan, {back} the way back. To execute it{wait}:", f"  {call.command_line(how)}")
    if fault := _fault_of_the_way_back(plan, snapshot):
        print_error(
            f"{back} would be refused. {fault} To go back as far as possible, cancel the plan that `apply` makes:",
            f"  {call.command_line('cancel PLAN --scope plan')}",
        )


def _fault_of_the_way_back(plan: PlanFolder, snapshot: SnapshotFolder) -> str:
    """Return why `apply` would refuse the replicas before the plan once it is executed; empty if it would not.

    Minimum ISR and the brokers count as they are now: a broker may be cordoned, or not live.
    """
    min_isr = min_isr_by_topic(snapshot.partitions)
    brokers = snapshot.brokers.select(["broker", "state"]).to_pylist()
    check = TargetCheck(
        {
            move.topic_partition: CurrentPartition(
                move.after, has_leader=True, reassigning=False, min_isr=min_isr[move.topic]
            )
            for move in plan.moves
        },
        live={row["broker"] for row in brokers if row["state"] not in {"failed", "down"}},
        known={row["broker"] for row in brokers},
        cordoned=cordoned_brokers(snapshot.brokers),
    )
    return next(check.find_faults({move.topic_partition: move.before for move in plan.moves}), "")


def _plan_lines(
    plan: PlanFolder, snapshot: SnapshotFolder, stricter: Sequence[ExternalRate], foreseen: Forecast | None
) -> list[str]:
    tables = plan_tables(plan, snapshot, shown=_SHOWN, stricter=stricter)
    named = [*tables.costs, *(foreseen.lines() if foreseen else ())]
    width = max(len(name) for name, _ in named)
    lines = [f"plan {plan.digest[:12]}: {plan.proof.get('operation')}"]
    lines += [f"  {name.ljust(width)}  {value}" for name, value in named]
    lines += ["", *Table(tuple(tables.broker_columns), list(tables.brokers)).lines()]
    lines += ["", *Table(tuple(tables.move_columns), list(tables.moves)).lines()] if tables.moves else []
    lines += [f"... and {counted(len(plan.moves) - _SHOWN, 'more move')}"] if len(plan.moves) > _SHOWN else []
    remarks = [
        *filter(None, [staying_sentence(plan, snapshot)]),
        *_first(constraint_regressions(plan.moves, snapshot)),
        *_first([f"left as it is: {partition}" for partition in tables.not_moved]),
        *filter(None, [racks_sentence(plan.proof)]),
        *_first([f"note: {note}" for note in plan.proof.get("notes") or ()]),
    ]
    return [*lines, "", *remarks] if remarks else lines


def _first(lines: Sequence[str]) -> list[str]:
    """Return the first lines, and how many more there are."""
    more = [f"... and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    return [*lines[:_SHOWN], *more]
