"""What the journal is told about moves: their states, the audit rows of what was decided, KIP-236's documents.

Each method is one transaction where the journal is one database, and idempotent where it is not: the state of a move is
then the last to be written of what settles it, and the first of what submits it. Every write compares the fence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from kafka_steward.assignment import Move, MoveReason, TopicPartition
from kafka_steward.execution.decisions.holds import Held
from kafka_steward.execution.decisions.moves import Event, Phase, next_state, phase_of
from kafka_steward.execution.decisions.settle import MEANING, Finding, Standing
from kafka_steward.execution.decisions.strides import counted, words
from kafka_steward.execution.inflight import forget_in_flight, note_in_flight
from kafka_steward.journal.audit import Action, Entry, Outcome, Who
from kafka_steward.journal.locks import Fence
from kafka_steward.journal.moves import MoveRow, MoveState
from kafka_steward.journal.open import Journal

__all__ = ["Ledger"]

_ACTIONS = {
    Event.COMPLETE: Action.SETTLE,
    Event.DROP: Action.DROP,
    Event.LOSE: Action.DROP,
    Event.SATISFY: Action.SKIP,
    Event.HOLD: Action.HOLD,
}


class Ledger:
    """The rows of one plan, written by one step.

    `steps_ahead` counts moves that Kafka took, that settled, or that were handed back: without any, it was no progress.
    """

    def __init__(self, journal: Journal, plan: str, who: Who, fence: Fence) -> None:
        self._journal = journal
        self._plan = plan
        self._who = who
        self._fence = fence
        self._rows: list[MoveRow] | None = None
        self.steps_ahead = 0

    def rows(self) -> list[MoveRow]:
        """All moves of the plan, in plan order; read again after each change, which only this step can make."""
        if self._rows is None:
            self._rows = self._journal.plans.rows(self._plan)
        return self._rows

    def entry(self, action: Action, row: MoveRow, reason: str, *, attempt: int | None = None, **more: Any) -> Entry:
        """An audit row about one move."""
        return Entry(
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

    def submit_entry(self, row: MoveRow, stride: Move | None = None) -> Entry:
        """The audit row of a submission, or of one `stride`; for the step that writes it, and who completes it."""
        before, after = list((stride or row.move).before), list((stride or row.move).after)
        return self.entry(Action.SUBMIT, row, MoveReason.in_words(row.move.reason), before=before, after=after)

    def settle(self, findings: Sequence[Finding]) -> None:
        """Write down what a look told about submitted moves."""
        with self._journal.together():
            for standing, several in _grouped(findings):
                if standing in MEANING:
                    self._settle(standing, several)
                elif standing is Standing.FLYING:
                    self._seen_flying(several)

    def submit(self, rows: Sequence[MoveRow], strides: Mapping[TopicPartition, Move]) -> list[MoveRow]:
        """Write down what is about to be asked of Kafka; the rows as they are then, with their new attempt."""
        with self._journal.together():
            for (attempt, said), several in _by(rows, lambda row: (row.attempt, _said(row, strides))):
                self._mark(several, Event.SUBMIT, Phase.INTENDED.because(said), attempt=attempt + 1)
            note_in_flight(self._journal.tree, self._plan, [row.move for row in rows])
        wanted = {row.topic_partition for row in rows}
        return [row for row in self.rows() if row.topic_partition in wanted]

    def accepted(self, rows: Sequence[MoveRow]) -> None:
        """Kafka took these."""
        for said, several in _by(rows, lambda row: counted(row.detail)[1]):
            self._write(several, MoveState.SUBMITTED, Phase.ACCEPTED.because(said))
        self.steps_ahead += len(rows)

    def refused(self, rows: Sequence[MoveRow], held: Sequence[Held]) -> None:
        """Kafka refused these; they may go on later."""
        with self._journal.together():
            forget_in_flight(self._journal.tree, self._plan, [row.topic_partition for row in rows])
            for row, why in zip(rows, held, strict=True):
                self._mark([row], Event.REFUSE, why.sentence)

    def cancelling(self, rows: Sequence[MoveRow], sentences: Sequence[str]) -> None:
        """These are about to be cancelled, or to go back from halfway."""
        with self._journal.together():
            for row, sentence in zip(rows, sentences, strict=True):
                said = counted(row.detail)[1]
                told = f"{sentence} ({said})" if said and said not in sentence else sentence
                self._mark([row], Event.SUBMIT, Phase.CANCELLING.because(told))

    def decide(self, decisions: Sequence[tuple[MoveRow, Event, str]]) -> None:
        """Write down what preflight decided; what is as it was before is not written again."""
        news = [each for each in decisions if not _known(*each)]
        with self._journal.together():
            for (event, sentence), several in _by(news, lambda each: (each[1], each[2])):
                rows = [row for row, _, _ in several]
                self._note(rows, event, sentence)
                self._mark(rows, event, sentence)

    def _settle(self, standing: Standing, findings: Sequence[Finding]) -> None:
        event, meaning = MEANING[standing]
        rows = [finding.row for finding in findings]
        outcome = Outcome.UNKNOWN if event is Event.NEVER_BEGAN else Outcome.DONE
        self._journal.audit.complete([self.submit_entry(row) for row in rows], outcome, meaning)
        for finding in findings:
            self._note([finding.row], event, meaning, finding)
        if event is not Event.SUBMIT:
            forget_in_flight(self._journal.tree, self._plan, [row.topic_partition for row in rows])
        for said, several in _by(findings, _adopted):
            self._mark([each.row for each in several], event, f"{meaning}; {said}" if said else meaning)
        if event is Event.SUBMIT:
            note_in_flight(self._journal.tree, self._plan, [row.move for row in rows])

    def _seen_flying(self, findings: Iterable[Finding]) -> None:
        """What flies was accepted, whether or not the answer came; what was whole once need not be whole again."""
        for finding in findings:
            row, whole = finding.row, finding.isr_whole
            news = phase_of(row) is Phase.INTENDED or (whole and not row.isr_seen)
            if news:
                self._journal.audit.complete([self.submit_entry(row)], Outcome.DONE, "seen in flight")
                detail = Phase.ACCEPTED.because(counted(row.detail)[1])
                self._write([row], MoveState.SUBMITTED, detail, isr_seen=whole or row.isr_seen)

    def _note(self, rows: Sequence[MoveRow], event: Event, sentence: str, finding: Finding | None = None) -> None:
        if event not in _ACTIONS:
            return
        for row in rows:
            after = None if finding is None or finding.found is None else list(finding.found)
            entry = self.entry(_ACTIONS[event], row, sentence, before=list(row.move.before), after=after)
            self._journal.audit.note(entry)

    def _mark(self, rows: Sequence[MoveRow], event: Event, detail: str, *, attempt: int | None = None) -> None:
        for state, several in _by(rows, lambda row: next_state(row.state, event)):
            self._write(several, state, detail, attempt=attempt)
            self.steps_ahead += len(several) if state.settled or event in {Event.HAND_BACK, Event.GO_ON} else 0

    def _write(self, rows: Sequence[MoveRow], state: MoveState, detail: str, **more: Any) -> None:
        names = [row.topic_partition for row in rows]
        self._rows = None
        self._journal.plans.mark(self._plan, names, state, detail, fence=self._fence, **more)


def _known(row: MoveRow, event: Event, sentence: str) -> bool:
    state = next_state(row.state, event)
    return state is row.state and (state is MoveState.WAITING or sentence == row.detail)


def _said(row: MoveRow, strides: Mapping[TopicPartition, Move]) -> str:
    stride = strides[row.topic_partition]
    return words(row.move, stride.after, whole=stride == row.move)


def _adopted(finding: Finding) -> str:
    """What is said of a stride that flies although its answer was lost."""
    move, flies = finding.row.move, finding.flies or finding.row.move
    return words(move, flies.after, whole=flies == move) if finding.standing is Standing.ADOPTED else ""


def _grouped(findings: Iterable[Finding]) -> list[tuple[Standing, list[Finding]]]:
    return _by(findings, lambda finding: finding.standing)


def _by(things: Iterable[Any], key: Any) -> list[tuple[Any, list[Any]]]:
    ordered = sorted(things, key=lambda thing: str(key(thing)))
    return [(value, list(several)) for value, several in groupby(ordered, key=key)]
