"""The journal's record of moves: their states, the audit rows of decisions, KIP-236's documents.

Each method writes some hundreds of moves in a transaction if the journal is one database, thousands if they change
alike, and is idempotent if it is not. In that case, the state of a move is the last write when the move settles, and
the first write when it is submitted. Every write compares the fence, which renews the step lock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any, NamedTuple

from kafka_steward.assignment import Move, MoveReason, TopicPartition
from kafka_steward.execution.moves.in_flight import delete_in_flight, record_in_flight
from kafka_steward.execution.moves.memory import KnownMoves, SettledMoves
from kafka_steward.execution.moves.observe import CAUSES, TRANSITION_OF, Observation, ObservedState
from kafka_steward.execution.moves.recovery import describe_actor, find_changing_plan
from kafka_steward.execution.moves.rows import MoveRows
from kafka_steward.execution.moves.staging import stage_number, stage_text
from kafka_steward.execution.moves.states import Event, Held, next_state, phase_of
from kafka_steward.journal.audit import Action, Actor, AuditRecord, Outcome
from kafka_steward.journal.locks import Fence
from kafka_steward.journal.records import Cause, MoveRow, MoveState, Phase, PlanRecord
from kafka_steward.journal.store import Journal

#: Moves that are written in one transaction, which takes some tenths of a second, and decisions about moves.
_AT_ONCE, _DECISIONS_AT_ONCE = 500, 5_000

_ACTIONS = {
    Event.COMPLETE: Action.SETTLE,
    Event.DROP: Action.DROP,
    Event.TAKE_OVER: Action.DROP,
    Event.SATISFY: Action.SKIP,
    Event.HOLD: Action.HOLD,
}


class Decision(NamedTuple):
    """The decision about one move: an event, the message for a person, and the cause if the move ends."""

    row: MoveRow
    event: Event
    sentence: str = ""
    cause: Cause | None = None


class MoveStore:
    """The rows of one plan, written by one step. `known` is what earlier steps of this process found out.

    `steps_ahead` counts moves that Kafka accepted, that settled, that completed a stage, or that returned to the queue
    after a cancel. If it is 0, the step made no progress.
    """

    def __init__(
        self,
        journal: Journal,
        plan: str,
        who: Actor,
        fence: Fence,
        *,
        record: PlanRecord | None = None,
        known: KnownMoves | None = None,
    ) -> None:
        self._known = known or KnownMoves()
        self._journal = journal
        self._plan = plan
        self._record = record
        self._who = who
        self._fence = fence
        self._rows: MoveRows | None = None
        #: The places of the partitions in `_rows`.
        self._places: dict[TopicPartition, int] = {}
        self.steps_ahead = 0

    def rows(self) -> MoveRows:
        """Return the moves of the plan that had not settled when they were read, in plan order.

        They are read once: only this step can change them, and its own changes are made to them, too.
        """
        if self._rows is None:
            self._rows = self._known.read_unsettled(self._journal.plans, self._plan, self._record, self._fence)
            self._places = self._rows.places
        return self._rows

    @property
    def settled(self) -> SettledMoves:
        """The totals of the moves that had settled when the rows were read."""
        self.rows()
        return self._known.settled

    def attempts(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return how often each partition was submitted; a partition that the plan does not move is left out."""
        unsettled = {name: self.rows()[self._places[name]].attempt for name in partitions if name in self._places}
        settled = [name for name in partitions if name not in unsettled]
        rows = self._journal.plans.rows_of(self._plan, settled)
        return unsettled | {row.topic_partition: row.attempt for row in rows}

    def build_audit_record(
        self, action: Action, row: MoveRow, reason: str, *, attempt: int | None = None, **more: Any
    ) -> AuditRecord:
        """Return an audit row about one move."""
        return AuditRecord(
            action,
            reason,
            plan=self._plan,
            chunk=row.move.chunk,
            topic=row.move.topic,
            partition=row.move.partition,
            attempt=row.attempt if attempt is None else attempt,
            who=self._who,
            **more,
        )

    def build_submit_record(self, row: MoveRow, stage: Move | None = None) -> AuditRecord:
        """Return the audit row of a submission, or of one stage (`stage`).

        It serves both to write the row and to complete it later.
        """
        before, after = list((stage or row.move).before), list((stage or row.move).after)
        return self.build_audit_record(
            Action.SUBMIT, row, MoveReason.in_words(row.move.purpose), before=before, after=after
        )

    def build_place_record(self, row: MoveRow, broker: int, path: str) -> AuditRecord:
        """Return the audit row of the log directory that is named for a replica, before its submission."""
        why = f"Kafka's own choice of a log directory has no room for it: {path} is asked for (KIP-113)"
        return self.build_audit_record(Action.PLACE, row, why, broker=broker, after=path)

    def record_observations(self, findings: Sequence[Observation]) -> None:
        """Record the state of submitted moves that a poll found."""
        for batch in _split_into_transactions(findings):
            with self._journal.transaction():
                for state, group in _group_by(batch, lambda finding: finding.state):
                    if state in TRANSITION_OF:
                        self._record_transition(state, group)
                    elif state is ObservedState.IN_FLIGHT:
                        self._record_seen_in_flight(group)

    def record_recovered(self, findings: Sequence[Observation]) -> None:
        """Record moves as submitted whose submission the restored journal did not know, each with an audit row."""
        event, meaning = TRANSITION_OF[ObservedState.RECOVERED]
        for batch in _split_into_transactions(findings):
            with self._journal.transaction():
                entries = [
                    replace(self.build_submit_record(finding.row, finding.in_flight), attempt=1, reason=meaning)
                    for finding in batch
                ]
                self._journal.audit.record_all(entries)
                for stage, group in _group_by(batch, _adopted_stage):
                    rows = [finding.row for finding in group]
                    detail = Phase.ACCEPTED.message(meaning)
                    self._apply_event(
                        rows, event, detail, attempt=1, phase=Phase.ACCEPTED, stage=stage, unacknowledged=False
                    )
                self._write_documents([finding.row for finding in batch])

    def record_submission(self, rows: Sequence[MoveRow], stages: Mapping[TopicPartition, Move]) -> list[MoveRow]:
        """Record the moves that are about to be submitted to Kafka; return their rows with the new attempt."""
        with self._journal.transaction():
            for (attempt, stage, text), group in _group_by(
                rows, lambda row: (row.attempt, *_stage_and_text(row, stages))
            ):
                self._apply_event(
                    group,
                    Event.SUBMIT,
                    Phase.INTENDED.message(text),
                    attempt=attempt + 1,
                    phase=Phase.INTENDED,
                    stage=stage,
                    unacknowledged=True,
                )
            # Before the request to Kafka: whoever takes a move back finds its originals in its document.
            self._write_documents(rows)
        current = self.rows()
        return [current[place] for place in sorted(self._places[row.topic_partition] for row in rows)]

    def record_accepted(self, rows: Sequence[MoveRow], notes: Mapping[TopicPartition, str]) -> None:
        """Record that Kafka accepted these moves, some with a note for users."""
        for note, group in _group_by(rows, lambda row: notes.get(row.topic_partition, "")):
            self._mark_accepted(group, note)
        self.steps_ahead += len(rows)

    def record_refused(
        self, rows: Sequence[MoveRow], held: Sequence[Held], *, unsent: Collection[TopicPartition]
    ) -> None:
        """Record that Kafka refused these moves, or the directory of those `unsent`; they may be submitted later."""
        with self._journal.transaction():
            sentences = {row.topic_partition: why.sentence for row, why in zip(rows, held, strict=True)}
            for is_unsent, group in _group_by(rows, lambda row: row.topic_partition in unsent):
                # Without an answer to a submission, an earlier one that was not answered may still take effect.
                acknowledged = {} if is_unsent else {"unacknowledged": False}
                self._apply_unmade(group, Event.REFUSE, sentences, **acknowledged)

    def record_unsent(self, rows: Sequence[MoveRow]) -> None:
        """Record that these moves were not submitted: what comes before has failed."""
        with self._journal.transaction():
            self._apply_unmade(rows, *TRANSITION_OF[ObservedState.NOT_STARTED])

    def record_cancelling(self, cancels: Sequence[tuple[MoveRow, str, Cause | None]]) -> None:
        """Record that these moves are about to be cancelled, or rolled back from their `stage`, and the reason.

        For a move that has not started as far as is known, the cancel has been answered, so no earlier submission of it
        can still take effect.
        """
        for batch in _split_into_transactions(cancels):
            with self._journal.transaction():
                for (state, stage, cause), group in _group_by(
                    batch, lambda cancel: (cancel[0].state, cancel[0].stage, cancel[2])
                ):
                    self._apply_event(
                        [row for row, _, _ in group],
                        Event.SUBMIT,
                        {row.topic_partition: _cancelling_detail(row, sentence) for row, sentence, _ in group},
                        phase=Phase.CANCELLING,
                        stage=stage,
                        cause=cause,
                        unacknowledged=None if state is MoveState.SUBMITTED else False,
                    )

    def record_decisions(self, decisions: Sequence[Decision]) -> None:
        """Record decisions about moves that have not started, or have ended; unchanged rows are not written again."""
        new = [decision for decision in decisions if not _is_already_recorded(decision)]
        for batch in _split_into_transactions(new, _DECISIONS_AT_ONCE):
            with self._journal.transaction():
                for (event, cause), group in _group_by(batch, lambda decision: (decision.event, decision.cause)):
                    rows = [decision.row for decision in group]
                    sentences = {decision.row.topic_partition: decision.sentence for decision in group}
                    # Only what is in flight has a document.
                    self._delete_documents([row for row in rows if row.state is MoveState.SUBMITTED])
                    self._apply_event(rows, event, sentences, cause=cause, audited=True)

    def _write_documents(self, rows: Sequence[MoveRow]) -> None:
        """Write the documents of moves that are in flight (KIP-236)."""
        moves = [row.move for row in rows]
        self._journal.project(lambda: record_in_flight(self._journal.mailbox, self._plan, moves))

    def _delete_documents(self, rows: Sequence[MoveRow]) -> None:
        """Delete the documents of moves that are not in flight any more (KIP-236)."""
        partitions = [row.topic_partition for row in rows]
        self._journal.project(lambda: delete_in_flight(self._journal.mailbox, self._plan, partitions))

    def _record_transition(self, state: ObservedState, findings: Sequence[Observation]) -> None:
        event, meaning = TRANSITION_OF[state]
        rows = [finding.row for finding in findings]
        # Without a trace of it in Kafka, nobody knows whether the request arrived.
        outcome = Outcome.UNKNOWN if event is Event.NOT_STARTED else Outcome.DONE
        self._journal.audit.record_outcome([self.build_submit_record(row) for row in rows], outcome, meaning)
        assignments = {finding.row.topic_partition: finding.found for finding in findings if finding.found is not None}
        self._audit_event(rows, event, meaning, assignments)
        # It is in flight, and no answer said so: it counts as accepted, and gets its document.
        if event is Event.SUBMIT:
            for stage, group in _group_by(findings, _adopted_stage):
                self._mark_accepted([replace(finding.row, stage=stage) for finding in group], meaning)
            self._write_documents(rows)
            return
        self._delete_documents(rows)
        taken = [row.topic_partition for row in rows] if state is ObservedState.TAKEN_OVER else []
        submissions = self._journal.plans.submissions_by_others(self._plan, taken)
        details = {
            finding.row.topic_partition: _observation_message(finding, meaning, submissions) for finding in findings
        }
        # Back at its original replicas, a move begins with its first stage again.
        stage = 0 if state is ObservedState.RESTORED else None
        self._apply_event(rows, event, details, cause=CAUSES.get(state), stage=stage)

    def _record_seen_in_flight(self, findings: Iterable[Observation]) -> None:
        """Mark moves that are seen in flight as accepted, whether or not Kafka's answer arrived.

        `isr_seen` stays set: an ISR that contained the whole target once need not contain it again.
        """
        news = [
            (finding.row, finding.isr_whole or finding.row.isr_seen)
            for finding in findings
            if phase_of(finding.row) is Phase.INTENDED or (finding.isr_whole and not finding.row.isr_seen)
        ]
        self._journal.audit.record_outcome(
            [self.build_submit_record(row) for row, _ in news], Outcome.DONE, "seen in flight"
        )
        for whole, group in _group_by(news, itemgetter(1)):
            self._mark_accepted([row for row, _ in group], isr_seen=whole)

    def _mark_accepted(self, rows: Sequence[MoveRow], meaning: str = "", **more: Any) -> None:
        for (stage, text), group in _group_by(rows, lambda row: (row.stage, stage_text(row.move, row.stage))):
            detail = Phase.ACCEPTED.message("; ".join(filter(None, (meaning, text))))
            self._write_state(
                group,
                MoveState.SUBMITTED,
                detail,
                phase=Phase.ACCEPTED,
                stage=stage,
                unacknowledged=False,
                refused=0,
                **more,
            )

    def _apply_unmade(
        self, rows: Sequence[MoveRow], event: Event, detail: str | Mapping[TopicPartition, str], **more: Any
    ) -> None:
        """Apply the event of moves whose last submission never reached Kafka, or was refused."""
        self._delete_documents(rows)
        for refused, group in _group_by(rows, lambda row: row.refused):
            self._apply_event(group, event, detail, refused=refused + 1, **more)

    def _audit_event(
        self,
        rows: Sequence[MoveRow],
        event: Event,
        meaning: str,
        assignments: Mapping[TopicPartition, Sequence[int]],
    ) -> None:
        if event not in _ACTIONS:
            return
        entries = []
        for row in rows:
            name = row.topic_partition
            after = list(assignments[name]) if name in assignments else None
            entries.append(
                self.build_audit_record(_ACTIONS[event], row, meaning, before=list(row.move.before), after=after)
            )
        self._journal.audit.record_all(entries)

    def _apply_event(
        self,
        rows: Sequence[MoveRow],
        event: Event,
        detail: str | Mapping[TopicPartition, str],
        *,
        audited: bool = False,
        **more: Any,
    ) -> None:
        action = _ACTIONS.get(event) if audited else None
        following = {state: next_state(state, event) for state in {row.state for row in rows}}
        for state, group in _group_by(rows, lambda row: following[row.state]):
            self._write_state(group, state, detail, action=action, **more)
            self.steps_ahead += (
                len(group) if state.settled or event in {Event.CANCEL_COMPLETED, Event.STAGE_COMPLETED} else 0
            )

    def _write_state(
        self,
        rows: Sequence[MoveRow],
        state: MoveState,
        detail: str | Mapping[TopicPartition, str],
        *,
        action: Action | None = None,
        **more: Any,
    ) -> None:
        names, current = [row.topic_partition for row in rows], list(self.rows())
        self._rows = None  # if the change fails, it is unknown whether it was made
        self._journal.plans.set_move_states(
            self._plan, names, state, detail, fence=self._fence, action=action, who=self._who, **more
        )
        now_ms = self._fence.now_ms
        for name in names:
            text = detail if isinstance(detail, str) else detail[name]
            place = self._places[name]
            current[place] = current[place].with_state(state, text, now_ms=now_ms, **more)
        self._rows = MoveRows(current)


def _split_into_transactions(entries: Sequence[Any], number: int = _AT_ONCE) -> Iterator[Sequence[Any]]:
    """Yield the items in batches of one transaction each, so that a cancel and other writers wait only briefly."""
    for start in range(0, len(entries), number):
        yield entries[start : start + number]


def _cancelling_detail(row: MoveRow, sentence: str) -> str:
    """Return the `detail` of a move that is cancelled, or rolled back from a stage."""
    stage = stage_text(row.move, row.stage)
    return Phase.CANCELLING.message(f"{sentence} ({stage})" if stage else sentence)


def _is_already_recorded(decision: Decision) -> bool:
    """Return True if the row contains the decision already.

    A move that stays WAITING counts as such, whatever its `detail`.
    """
    row, event, sentence, cause = decision
    if row.state is not next_state(row.state, event):
        return False
    return row.state is MoveState.WAITING or (row.detail == sentence and row.cause is cause)


def _stage_and_text(row: MoveRow, stages: Mapping[TopicPartition, Move]) -> tuple[int, str]:
    """Return the submitted stage of a move, 0 for all of it, and the words for it."""
    submitted = stages[row.topic_partition]
    stage = 0 if submitted == row.move else stage_number(row.move, submitted.after)
    return stage, stage_text(row.move, stage)


def _observation_message(
    finding: Observation, meaning: str, submissions: Mapping[TopicPartition, Sequence[tuple[str, MoveRow]]]
) -> str:
    """Return the message for a finding.

    It names the plan of ours that took the partition over, or the replica order that a cancel left.
    """
    replicas, before, name = finding.found, finding.row.move.before, finding.row.topic_partition
    by = find_changing_plan(replicas, submissions.get(name, ())) if replicas is not None else None
    if by is not None:
        return f"{describe_actor(by)} reassigned the partition"
    order = f"; its replicas are {list(replicas or ())}, originally {list(before)}"
    return meaning + order if replicas != before and finding.state is ObservedState.CANCELLED_EXTERNALLY else meaning


def _adopted_stage(finding: Observation) -> int:
    """Return the stage of a submission that is in flight although its answer was lost; 0 for the whole move."""
    move, in_flight = finding.row.move, finding.in_flight or finding.row.move
    return 0 if in_flight == move else stage_number(move, in_flight.after)


def _group_by(entries: Iterable[Any], key: Any) -> list[tuple[Any, list[Any]]]:
    groups: dict[Any, list[Any]] = {}
    for entry in entries:
        groups.setdefault(key(entry), []).append(entry)
    # By their text: keys hold enums and None, which have no order.
    return sorted(groups.items(), key=lambda group: str(group[0]))
