"""Undoing a plan to the end: its cancel, and where that was asked for the rollback of what it had completed (KIP-236).

What is asked for is in the journal before anything is done, in the record of the plan; from then on any process goes on
from where another one died. A rollback is a plan of its own. Between the cancel's end and the rollback's publication
nothing but that record says what is to come: `open_undos` finds such plans, and an `Undo` of one goes on with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from kafka_steward.errors import (
    AuthenticationFailed,
    ClusterError,
    LockLost,
    PlanError,
    SlotTaken,
    VersionConflict,
    WrongCluster,
)
from kafka_steward.execution.borrowing import give_back_of, rates_noted
from kafka_steward.execution.cancelling import Scope, request_cancel
from kafka_steward.execution.decisions.progress import Progress, progress_of
from kafka_steward.execution.intervening import resume_plan
from kafka_steward.execution.mending import mending
from kafka_steward.execution.owner import new_owner
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.execution.restoring import reordered_by_others, restore_orders
from kafka_steward.execution.rolling_back import mark_rolled_back, publish_rollback, what_goes_back
from kafka_steward.execution.runner import Runner
from kafka_steward.journal.audit import Action, Code, Who
from kafka_steward.journal.moves import MoveState
from kafka_steward.journal.open import Journal
from kafka_steward.journal.plans import PlanRecord, PlanStatus
from kafka_steward.settings import Settings

__all__ = ["LeftAlone", "Scope", "Undo", "is_open", "left_alone", "open_undos"]


@dataclass(frozen=True, order=True)
class LeftAlone:
    """A partition that undoing a plan did not take back, and why."""

    topic: str
    partition: int
    why: str


class Undo:
    """Steps a plan's cancel, and with scope "plan" its rollback too, to the end; the same face as `Runner`.

    The first step writes the request. With `even_if_disabled` a rollback goes on though reassignments are switched off;
    the cancel of what is pending always does. With `restore_order`, the replicas of moves that someone else cancelled
    get their order back, which Kafka's cancel loses; a rollback does that anyway. Keep one for a loop; not for several
    threads at once.
    """

    def __init__(
        self,
        cluster: ClusterPort,
        journal: Journal,
        digest: str,
        settings: Settings,
        who: Who,
        *,
        scope: Scope = "pending",
        reason: str,
        even_if_disabled: bool = False,
        restore_order: bool = False,
    ) -> None:
        self._restore_order = restore_order
        self._cluster = cluster
        self._journal = journal
        self._digest = digest
        self._settings = settings
        self._who = who
        self._scope = scope
        self._reason = reason
        self._even_if_disabled = even_if_disabled
        self._asked = False
        self._runners: dict[str, Runner] = {}
        self._rollback: str | None = None
        self._failures = 0

    def step(self) -> Progress:
        """Ask, cancel, publish the rollback, roll back: one step of whatever comes next; ends when that is done.

        Never sleeps, and may be killed anywhere. The progress is the plan's until that has ended, and the rollback's
        from then on; one that must wait, for the cluster or for another process, is told as running and says so.

        Raises PlanError for an unknown plan, or one that has ended when only what is pending is asked for; else as
        `Runner.step`, and ClusterError after `max_attempts` failures to publish the rollback.
        """
        return mending(self._journal, self._who, self._take_step)

    def _take_step(self) -> Progress:
        progress = self._next_step()
        if progress.ended:
            self._return_throttles()
            if self._restore_order and self._scope == "pending":
                restore_orders(self._cluster, self._journal, self._digest, self._who)
        return progress

    def _next_step(self) -> Progress:
        record = self._ask()
        if not record.status.finished:
            progress = self._step(self._digest)
            if not progress.ended or self._scope == "pending":
                return progress
            record = self._record()
        if self._scope == "pending":
            return self._step(self._digest)
        return self._roll_back(record)

    @property
    def rollback(self) -> str | None:
        """The digest of the rollback; None before it was published."""
        return self._rollback or self._record().rolled_back_by

    @property
    def left_alone(self) -> Sequence[LeftAlone]:
        """What is not taken back, and why; of a rollback, empty before it was published. Read from the journal.

        Where only what is pending is cancelled, that is what someone else cancelled and left in another order.
        """
        rollback = self.rollback
        if self._scope == "pending" and rollback is None:
            rows = reordered_by_others(self._cluster, self._journal, self._digest)
            return tuple(LeftAlone(row.move.topic, row.move.partition, row.detail) for row in rows)
        return left_alone(self._journal, rollback)

    @property
    def owing(self) -> Sequence[int]:
        """The dead brokers that still have a throttle of the plan or of its rollback; given back when they return."""
        return sorted({broker for broker, _ in rates_noted(self._journal, self._plans())})

    def _plans(self) -> list[str]:
        return [self._digest, *filter(None, [self.rollback])]

    def _return_throttles(self) -> None:
        """Give back what a broker that was dead could not be asked for. What still cannot be is left to the watch."""
        if not rates_noted(self._journal, self._plans()):
            return
        with suppress(ClusterError, LockLost, VersionConflict):
            live = frozenset(self._cluster.live_brokers())
            give_back_of(self._cluster, self._journal, self._plans(), live, self._who)

    def _ask(self) -> PlanRecord:
        if self._asked:
            return self._record()
        self._journal.must_be_of(self._cluster.cluster_id)
        record = self._journal.plans.get(self._digest)
        if record is None or record.status is not PlanStatus.ROLLED_BACK:
            record = request_cancel(
                self._journal,
                self._digest,
                who=self._who,
                reason=self._reason,
                scope=self._scope,
                even_if_disabled=self._even_if_disabled,
            )
        self._asked = True
        return record

    def _record(self) -> PlanRecord:
        record = self._journal.plans.get(self._digest)
        if record is None:
            raise PlanError(f"There is no plan {self._digest[:12]} in the journal of this cluster any more.")
        return record

    def _roll_back(self, record: PlanRecord) -> Progress:
        if self._rollback is None:
            try:
                self._rollback = self._published()
            except (SlotTaken, LockLost, VersionConflict) as error:
                return self._waiting(record, str(error))
            except (WrongCluster, AuthenticationFailed):
                raise
            except ClusterError as error:
                self._failures += 1
                if self._failures >= self._settings.max_attempts:
                    raise
                return self._waiting(record, str(error))
        progress = self._step(self._rollback)
        if progress.ended:
            mark_rolled_back(self._journal, self._known(self._rollback))
        return progress

    def _published(self) -> str:
        """The rollback's digest. Under the step lock, so that two processes never publish two."""
        with self._journal.step_lock(new_owner()):
            record = self._record()
            known = None if record.rolled_back_by is None else self._journal.plans.get(record.rolled_back_by)
            if known is not None and known.status is PlanStatus.COMPLETED and not self._more(record):
                return known.digest  # done, if perhaps by a process that died before it said so
            anyway = record.cancel is not None and record.cancel.even_if_disabled
            published, _ = publish_rollback(
                self._cluster,
                self._journal,
                self._digest,
                settings=self._settings,
                who=self._who,
                even_if_disabled=anyway,
            )
            if anyway and not published.even_if_disabled:
                published = self._journal.plans.update(published, even_if_disabled=True)
            resume_plan(self._journal, published.digest, self._who, f"its rollback was asked for: {self._reason}")
        return published.digest

    def _more(self, record: PlanRecord) -> bool:
        """Whether what a rollback had to leave alone can go back by now: its broker has returned."""
        undone = record.status is PlanStatus.ROLLED_BACK or record.not_taken_back is not None
        return undone and bool(what_goes_back(self._cluster, self._journal, self._digest, self._settings).moves)

    def _step(self, digest: str) -> Progress:
        if digest not in self._runners:
            self._runners[digest] = Runner(self._cluster, self._journal, digest, self._settings, self._who)
        progress = self._runners[digest].step()
        # A heal goes first and gives the cluster back: nobody has to act for that.
        paused = progress.status is PlanStatus.PAUSED
        return replace(progress, status=PlanStatus.RUNNING) if paused else progress

    def _waiting(self, record: PlanRecord, sentence: str) -> Progress:
        progress = progress_of(record, self._journal.plans.rows(self._digest), busy=True, sentence=sentence)
        return replace(progress, status=PlanStatus.RUNNING)

    def _known(self, digest: str) -> PlanRecord:
        return self._journal.plans.get(digest) or self._record()


def left_alone(journal: Journal, rollback: str | None) -> tuple[LeftAlone, ...]:
    """What a rollback does not take back: what it never planned to, and what came to be changed before its turn."""
    if rollback is None:
        return ()
    told = [row.entry for row in journal.audit.rows(plan=rollback, action=Action.SKIP)]
    found = {
        LeftAlone(entry.topic, entry.partition, entry.reason)
        for entry in told
        if entry.topic is not None and entry.partition is not None and entry.code is Code.LEFT_ALONE
    }
    lost = (row for row in journal.plans.rows(rollback) if row.state in {MoveState.DROPPED, MoveState.FAILED})
    return tuple(sorted(found | {LeftAlone(row.move.topic, row.move.partition, row.detail) for row in lost}))


def open_undos(journal: Journal) -> list[PlanRecord]:
    """Plans whose undoing was asked for and has not ended; whoever finds one may go on with an `Undo` of its scope."""
    return [record for record in journal.plans.recent()[::-1] if is_open(journal, record)]


def is_open(journal: Journal, record: PlanRecord) -> bool:
    """Whether a cancel or rollback of this plan was asked for and has not ended."""
    if record.cancel is None:
        return False
    if not record.status.finished:
        return True
    if record.cancel.scope != "plan":
        return False
    rollback = None if record.rolled_back_by is None else journal.plans.get(record.rolled_back_by)
    if record.status is PlanStatus.ROLLED_BACK or record.not_taken_back is not None:
        return rollback is not None and not rollback.status.finished
    return rollback is None or not rollback.status.finished or rollback.status is PlanStatus.COMPLETED
