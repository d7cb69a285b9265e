"""Report of what a plan did, at the end of a workflow."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from kafka_steward.assignment import EVEN_OPERATIONS, TopicPartition, counted, name_brokers, name_some
from kafka_steward.commands import command_line
from kafka_steward.escaping import printable
from kafka_steward.operators.base import Notifiers, StewardOperator, notify, to_notifier_list
from kafka_steward.operators.links import LinkedToPlan
from kafka_steward.operators.topics import NOTHING_PENDING, reconcile_and_log
from kafka_steward.value_parsing import parse_broker_ids, require_choice

if TYPE_CHECKING:
    from airflow.sdk import Context

    from kafka_steward.cluster.state import Snapshot
    from kafka_steward.execution.moves.skips import SkippedPartition
    from kafka_steward.execution.plans.report import DrainStatus, PlanOutcome
    from kafka_steward.hooks.session import ClusterSession
    from kafka_steward.journal.observed import ProofSummary
    from kafka_steward.journal.records import MoveRow, PlanRecord

__all__ = ["ReportPlanOperator"]

#: The most partitions not moved that a report lists; the rest is only counted.
_LISTED = 50
#: Partitions that a sentence names; the others are only counted.
_NAMED = 3
#: Kafka deletes removed replicas asynchronously: seconds to wait for that, and seconds between two polls.
_DELETED_WITHIN_S, _POLL_S = 120.0, 2.0

_NO_ROWS = "The journal no longer has the moves of the plan, so what it moved is not known."


@dataclass(frozen=True)
class _EndedPlan:
    """The journal's facts about the plan: its record, what it did, the effect of a cancel, and audit rows by action.

    `record` and `outcome` are None if the plan was not published, or is no longer in the journal. `proof` is None if it
    is not stored. `rows` are the plan's moves.
    """

    record: PlanRecord | None
    outcome: PlanOutcome | None
    cancelled: str
    audit: Mapping[str, int]
    proof: ProofSummary | None = None
    rows: Sequence[MoveRow] = ()
    #: What a rollback left alone.
    left_alone: Sequence[SkippedPartition] = ()

    @property
    def is_reverted(self) -> bool:
        """Return whether a rollback was published, so that the plan's rows no longer say where its replicas are."""
        return self.record is not None and self.record.rolled_back_by is not None

    @property
    def audit_sentence(self) -> str:
        return ", ".join(f"{count} {action}" for action, count in sorted(self.audit.items()))


class ReportPlanOperator(LinkedToPlan, StewardOperator):
    """Verifies what a plan did, reports it, and notifies `on_done`.

    `plan` and `submitted` are the results of those tasks. All reports hold `sentence`, `digest`, `status`,
    `partitions`, `replicas_moved` and `lower_bound`; after a cancel, `sentence` states its effect on the plan.
    `partitions` and `replicas_moved` count what was moved, by the journal's rows: None if those are gone, and if a
    rollback was published; `lower_bound` is the plan's. `verify` selects the verification:

    `outcome` (event `done`) accounts for each planned partition. `review` and `answer` are the results of the tasks
    that review the plan and request approval; those of skipped tasks may be missing. `brokers` were drained: they must
    be empty, on disk too, unless the plan left replicas on them, which the report then states. Adds `not_done`,
    `not_done_count`, `empty`, `audit`.

    `heal` (event `healed`) verifies that the cluster is fully replicated, but for what no plan can repair, which
    `sentence` names; if it is not, or after a cancel, the event is `not_healable`, and `on_not_healable` is notified
    instead. `brokers` were healed. Adds `cluster_id`, `brokers`, `under_replicated`, `left`, `audit`, `cancelled`.

    `fill` (event `filled`, or `done` if no replica was added) reconciles the pending replicas (KIP-409). Adds `settled`
    and `dropped`, which count partitions, and `pending`, which counts the replicas that still are.

    After the notification, the task fails without a retry if the plan has failed: none of its moves was made. So does a
    heal that leaves partitions of its own undone, unless a user cancelled or abandoned it, or the setting
    `fail_incomplete_heal` is off.

    >>> ReportPlanOperator(task_id="report", verify="heal", brokers=[3], plan={"digest": "3f2a"}, submitted={"left": 0})
    <Task(ReportPlanOperator): report>
    """

    template_fields: Sequence[str] = (
        *StewardOperator.template_fields,
        "plan",
        "submitted",
        "review",
        "answer",
        "brokers",
    )

    def __init__(
        self,
        *,
        plan: Mapping[str, Any] | Any,
        submitted: Mapping[str, Any] | Any | None = None,
        verify: str = "outcome",
        review: Mapping[str, Any] | Any | None = None,
        answer: Mapping[str, Any] | Any | None = None,
        brokers: Collection[int] | Any | None = (),
        on_done: Notifiers = None,
        on_not_healable: Notifiers = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.plan = plan
        self.submitted: Any = submitted
        self.verify = require_choice("verify", verify, "outcome", "heal", "fill")
        self.review = review
        self.answer = answer
        self.brokers: Any = brokers
        self.on_done = to_notifier_list(on_done)
        self.on_not_healable = to_notifier_list(on_not_healable)

    def execute(self, context: Context) -> dict[str, Any]:
        """Verify, log the report, and notify."""
        known = {**self.plan, **(self.submitted or {})}
        with self.open(context) as opened:
            ended = _read_ended_plan(opened, str(known.get("digest")))
            if self.verify == "outcome":
                event, report = "done", self._report_plan(opened, ended)
            elif self.verify == "heal":
                event, report = self._report_heal(opened, ended)
            else:
                event, report = self._report_fill(opened, ended, context)
            may_leave = self.verify == "heal" and not opened.settings.fail_incomplete_heal
        numbers = {**self._count_moved(ended), "lower_bound": known.get("lower_bound", 0)}
        facts = {"digest": known.get("digest"), "status": self._final_status(ended), **numbers, **report}
        self.log.info("%s", printable(facts["sentence"]))
        for name, why in facts.get("not_done", ()):
            self.log.warning("%s was not moved: %s", printable(name), printable(why))
        for skip in ended.left_alone:
            self.log.warning("Left alone by the rollback: %s", printable(skip.sentence))
        if ended.audit:
            self.log.info("Audit trail of the plan: %s", printable(ended.audit_sentence))
        notify(self.on_not_healable if event == "not_healable" else self.on_done, context, event, facts)
        undone = facts["status"] == "failed" or (facts["status"] == "completed" and facts.get("left"))
        if undone and not ended.cancelled and not may_leave:
            context["ti"].xcom_push("return_value", facts)  # Airflow stores no result of a task that fails
            raise AirflowFailException(printable(facts["sentence"]))
        return facts

    def _final_status(self, ended: _EndedPlan) -> str:
        """Return the status of the plan in the journal, or, if it is gone, the one with which it was submitted."""
        return str((self.submitted or {}).get("status", "")) if ended.record is None else ended.record.status.value

    def _count_moved(self, ended: _EndedPlan) -> dict[str, int | None]:
        if not self.submitted:
            return {"partitions": 0, "replicas_moved": 0}
        outcome = None if ended.is_reverted else ended.outcome
        return {
            "partitions": None if outcome is None else outcome.moved,
            "replicas_moved": None if outcome is None else outcome.replicas_placed,
        }

    def _report_plan(self, opened: ClusterSession, ended: _EndedPlan) -> dict[str, Any]:
        left: list[tuple[str, str]] = []
        if not self.submitted:
            status, sentence = self._explain_not_submitted()
        else:
            digest, status = self.submitted["digest"], self._final_status(ended)
            left = list(ended.outcome.not_done) if ended.outcome else []
            sentence = ended.cancelled or f"Plan {digest[:12]}, {status}:"
            if not (ended.cancelled and ended.is_reverted):
                sentence += f" {ended.outcome.sentence if ended.outcome else _NO_ROWS}"
            sentence += self._unplaced_sentence(ended) + _racks_sentence(ended)
        drained = self._wait_for_drain(opened, complete=status == "completed" and not left)
        if drained is not None and (self.submitted or status == "nothing" or drained.is_empty):
            sentence += f" {drained.sentence}"  # of a plan that was not submitted, nothing is expected
        return {
            "sentence": sentence,
            "status": status,
            "not_done": [list(entry) for entry in left[:_LISTED]],
            "not_done_count": len(left),
            "empty": None if drained is None else drained.is_empty,
            "audit": sum(ended.audit.values()),
        }

    def _unplaced_sentence(self, ended: _EndedPlan) -> str:
        from kafka_steward.execution.plans.report import left_sentence

        number, proof = self.plan.get("unplaced"), ended.proof
        if proof is not None and proof.left:
            them = "it" if sum(proof.left_counts.values()) == 1 else "them"
            show = command_line(f"show {self.plan['digest'][:12]}", self.conn_id)
            listed = f"`{show}` lists {them} with what to do."
            return f" {left_sentence(proof, number)} {listed}"
        if not number:
            return ""
        left = counted(number, "partition")
        return f" {left} could not be placed; review.md at {self.plan['uri']} says why, and what to do."

    def _explain_not_submitted(self) -> tuple[str, str]:
        review, answer = self.review or {}, self.answer or {}
        if review.get("stop"):
            return str(review["stop"]), str(review["sentence"])
        by = f"by {answer['person']}" if answer.get("person") else "as nobody answered"
        why = f" ({answer['reason']})" if answer.get("person") and answer.get("reason") else ""
        return "rejected", f"The plan {self.plan['digest'][:12]} was rejected {by}{why}; nothing was submitted."

    def _wait_for_drain(self, opened: ClusterSession, *, complete: bool) -> DrainStatus | None:
        """Return the drain status of the drained brokers; wait while Kafka still has logs to delete.

        Raises AirflowException when logs remain after `_DELETED_WITHIN_S` seconds.
        """
        from kafka_steward.execution.plans.report import drain_status

        brokers = sorted(parse_broker_ids(self.brokers))
        if not brokers or self.plan.get("operation", "drain") != "drain":
            return None
        until_s = time.monotonic() + _DELETED_WITHIN_S
        while True:
            drained = drain_status(opened.cluster.snapshot(), opened.cluster.log_dirs(brokers), brokers)
            if drained.is_empty or drained.assigned or not complete:
                return drained
            if time.monotonic() > until_s:
                raise AirflowException(printable(drained.sentence))
            time.sleep(_POLL_S)

    def _report_heal(self, opened: ClusterSession, ended: _EndedPlan) -> tuple[str, dict[str, Any]]:
        from kafka_steward.execution.effects import describe_leader_shortfall
        from kafka_steward.execution.plans.readiness import readiness_of

        snapshot = opened.cluster.snapshot()
        behind = {name for name, partition in snapshot.partitions.items() if partition.under_replicated}
        # With ZooKeeper, the ISR of a partition without a live replica keeps the last one.
        broken = {
            name
            for name, partition in snapshot.partitions.items()
            if partition.under_replicated or partition.leader is None
        }
        gate = readiness_of(snapshot, opened.journal, opened.settings) if broken else None
        repairable = broken - (gate.left_out.keys() if gate else set())
        left = self.submitted["left"] if ended.record is None else ended.record.left
        done = self._final_status(ended) == "completed" and not (left or ended.cancelled)
        message, healed = self._heal_message(ended, snapshot, done=done), done and not repairable
        if healed:
            uneven = describe_leader_shortfall(snapshot, {broker for row in ended.rows for broker in row.move.adding})
            which = " that a plan can repair" if broken else ""
            message += f" Every partition of the cluster{which} is fully replicated.{uneven and f' {uneven}'}"
        else:
            dead = ", ".join(str(broker) for broker in sorted(snapshot.dead_hosting_brokers)) or "none"
            message += f" {_behind_clause(behind, broken, ended)} Dead brokers: {dead}."
        if gate:
            named = (not ended.cancelled and _left_by(ended)) or set()
            unnamed = {name: why for name, why in gate.left_out.items() if str(name) not in named}
            message += replace(gate, left_out=unnamed).left_out_sentence
        return "healed" if healed else "not_healable", {
            "sentence": message,
            "cluster_id": snapshot.cluster_id,
            "brokers": sorted(self.brokers),
            "under_replicated": len(behind),
            "left": left,
            "audit": ended.audit_sentence,
            "cancelled": bool(ended.cancelled),
        }

    def _heal_message(self, ended: _EndedPlan, snapshot: Snapshot, *, done: bool) -> str:
        """Return the message about the brokers, which begins with what is missing if not all is `done`."""
        from kafka_steward.execution.plans.lifecycle import is_fully_replicated, repeated_sentence
        from kafka_steward.execution.plans.report import NOTHING_TO_MOVE
        from kafka_steward.journal.records import MoveState

        brokers = name_brokers(sorted(self.brokers)) if self.brokers else "no broker"
        record, outcome = ended.record, ended.outcome
        missing = f"Not all of {brokers} {'were' if len(self.brokers) > 1 else 'was'} healed"
        back = _returned_sentence(set(self.brokers).difference(self.plan.get("log_dirs_failed") or ()), snapshot)
        if ended.cancelled and back and all(is_fully_replicated(row, snapshot) for row in ended.rows):
            return f"{back} {ended.cancelled}"
        if ended.cancelled:
            return f"{missing}. {ended.cancelled}{back and f' {back}'}"
        if record is None or outcome is None:
            return f"{f'Healed {brokers}' if done else missing}. {_NO_ROWS}"
        if done:
            moved = [f"{_placed(outcome)} moved"] if outcome.moved else []
            moved += (
                [f"{counted(outcome.satisfied, 'partition')} no longer needed to move"] if outcome.satisfied else []
            )
            return f"Healed {brokers}: {', '.join(moved) + '.' if moved else NOTHING_TO_MOVE}{back and f' {back}'}"
        abandoned = f" {record.reason.rstrip('.')}." if self._final_status(ended) == "abandoned" else ""
        again = sum(row.state is MoveState.COMPLETED and not is_fully_replicated(row, snapshot) for row in ended.rows)
        made = outcome.account("repaired", left=self._count_left(ended), again=again)
        later = repeated_sentence(record, self.conn_id) if outcome.not_done or record.lacks_room else ""
        unplaced = self._unplaced_sentence(ended)
        return f"{missing}: {made}{later and f' {later}'}{abandoned}{unplaced}{back and f' {back}'}"

    def _count_left(self, ended: _EndedPlan) -> int:
        """Return the number of partitions that the plan left, as far as it is known."""
        return int(self.plan.get("unplaced") or 0) if ended.proof is None else sum(ended.proof.left_counts.values())

    def _report_fill(self, opened: ClusterSession, ended: _EndedPlan, context: Context) -> tuple[str, dict[str, Any]]:
        _, pending, missing = reconcile_and_log(self, opened, context)
        states = Counter(replica.state.value for replica in pending)
        verb = "is" if missing == 1 else "are"
        still = f"{counted(missing, 'replica')} {verb} still pending, and {verb} added when brokers join."
        still = still if missing else NOTHING_PENDING
        outcome = ended.outcome
        if outcome is None:
            filled = _NO_ROWS
        elif outcome.not_done:
            filled = f"Not all was filled: {outcome.account('filled', left=self._count_left(ended))}"
        else:
            filled = f"Filled {_placed(outcome)}." if outcome.moved else "Nothing was filled."
        # A message must not say "filled" of a plan that added nothing.
        return "filled" if outcome is not None and outcome.replicas_placed else "done", {
            "sentence": f"{ended.cancelled or filled} {still}",
            "settled": states["settled"],
            "dropped": states["dropped"],
            "pending": missing,
        }


def _racks_sentence(ended: _EndedPlan) -> str:
    """Return which partitions an even plan leaves that break the rack rule, and why; empty without any."""
    from kafka_steward.rack_rule import rack_left_sentence

    if ended.proof is None or ended.record is None or ended.record.operation not in EVEN_OPERATIONS or ended.cancelled:
        return ""
    sentence = rack_left_sentence(ended.proof.rack_left, ended.proof.rack_left_counts)
    return f" {sentence}" if sentence else ""


def _returned_sentence(brokers: set[int], snapshot: Snapshot) -> str:
    """Return which of the brokers that were down are live again; empty without any."""
    from kafka_steward.assignment import begin_with_brokers

    back = sorted(brokers & snapshot.live)
    return f"{begin_with_brokers(back, 'is', 'are')} live again." if back else ""


def _left_by(ended: _EndedPlan) -> set[str] | None:
    """Return the partitions that the plan left, or did not move; None if not all that it left are stored."""
    proof, outcome = ended.proof, ended.outcome
    if proof is None or outcome is None or len(proof.left) < sum(proof.left_counts.values()):
        return None
    return {str(TopicPartition(*partition[:2])) for partition in proof.left} | {name for name, _ in outcome.not_done}


def _behind_clause(behind: Collection[TopicPartition], broken: Collection[TopicPartition], ended: _EndedPlan) -> str:
    """Return how many partitions are `broken`, how many of them were due in the plan, and the first of the others.

    Those among them that are not `behind`, under-replicated, have no leader.
    """
    what = "under-replicated" if len(broken) == len(behind) else "under-replicated or without a leader"
    if not broken:
        return "No partition of the cluster is under-replicated."
    sentence = f"{counted(len(broken), 'partition', 'is', 'are')} still {what}"
    if _left_by(ended) is None or ended.proof is None:
        return f"{sentence}."
    due = {str(TopicPartition(*partition[:2])) for partition in ended.proof.left}
    due.update(str(row.topic_partition) for row in ended.rows)
    undue = sorted(name for name in broken if str(name) not in due)
    mine = len(broken) - len(undue)
    if not undue:
        return f"{sentence}, {'which was' if mine == 1 else 'all of which were'} due."
    named, due_too = name_some(undue, _NAMED), f"{mine} of those due, and " if mine else ""
    return f"{sentence}: {due_too}{counted(len(undue), 'other')} ({named})."


def _placed(outcome: PlanOutcome) -> str:
    return f"{counted(outcome.replicas_placed, 'replica')} of {counted(outcome.moved, 'partition')}"


def _read_ended_plan(opened: ClusterSession, digest: str) -> _EndedPlan:
    from kafka_steward.execution.plans.report import summarize_outcome
    from kafka_steward.execution.plans.rollback import describe_cancel_outcome, find_left_alone

    plans, audited = opened.journal.plans, opened.journal.audit.rows(plan=digest)
    actions = Counter(row.entry.action.value for row in audited)
    record = plans.get(digest)
    if record is None:
        return _EndedPlan(None, None, "", actions)
    rows, reports = plans.rows(digest, record), opened.journal.plan_reports
    proof = None if reports is None else reports.proof(digest)
    cancelled = describe_cancel_outcome(opened.journal, record, rows)
    alone = find_left_alone(opened.journal, record.rolled_back_by)
    return _EndedPlan(record, summarize_outcome(rows), cancelled, actions, proof, rows, alone)
