"""Cancel a plan to the end and, if requested, roll back its completed moves (KIP-236).

The request is persisted in the plan's record before anything else is done. From then on any process can resume where
another one crashed. A rollback is a plan of its own. Between the end of the cancel and the publication of the rollback,
only that record says that a rollback is to follow: `unfinished_cancels` finds such plans, and a `CancelRunner`
resumes them.
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
from kafka_steward.execution.lifecycle import Scope, request_cancel, resume_plan
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.execution.progress import Progress, progress_of, what_became
from kafka_steward.execution.repair import with_repair
from kafka_steward.execution.restoration import reordered_by_others, restore_orders
from kafka_steward.execution.rolling_back import mark_rolled_back, publish_rollback, what_goes_back
from kafka_steward.execution.runner import PlanRunner
from kafka_steward.execution.throttles import leased_rates, release_leases_of
from kafka_steward.journal.audit import Action, Actor, Code
from kafka_steward.journal.moves import MoveState
from kafka_steward.journal.records import PlanRecord, PlanStatus
from kafka_steward.journal.store import Journal
from kafka_steward.settings import Settings


@dataclass(frozen=True, order=True)
class SkippedPartition:
    """A partition that the cancel or rollback of a plan skipped, and why."""

    topic: str
    partition: int
    why: str


class CancelRunner:
    """Steps a plan's cancel, and with scope "plan" also its rollback, to the end; same interface as `PlanRunner`.

    The first step writes the request. With `even_if_disabled` a rollback proceeds while reassignments are disabled; the
    cancel of pending moves always does. With `restore_order`, moves that an external client cancelled get their replica
    order back, which Kafka's cancel loses; a rollback does that anyway. `consume_signal` is as for `PlanRunner`. Keep
    one for a loop. Not thread-safe.
    """

    def __init__(
        self,
        cluster: ClusterPort,
        journal: Journal,
        digest: str,
        settings: Settings,
        who: Actor,
        *,
        scope: Scope = "pending",
        reason: str,
        even_if_disabled: bool = False,
        restore_order: bool = False,
        consume_signal: bool = True,
    ) -> None:
        self._consumes_signal = consume_signal
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
        self._runners: dict[str, PlanRunner] = {}
        self._rollback: str | None = None
        self._failures = 0

    def step(self) -> Progress:
        """Take the next step: write the request, cancel, publish the rollback, or step the rollback.

        Never sleeps, and may be killed at any point. The progress is the plan's until the plan has ended, and the
        rollback's from then on. A plan that must wait, for the plan slot, the cluster or another process, is reported
        as running, and its message gives the reason.

        Raises PlanError for an unknown plan, or for an ended plan with scope "pending"; else as `PlanRunner.step`, and
        ClusterError after `max_attempts` failures to publish the rollback.
        """
        return with_repair(self._journal, self._who, self._take_step)

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
        """Return the digest of the rollback; None before it is published."""
        return self._rollback or self._record().rolled_back_by

    @property
    def left_alone(self) -> Sequence[SkippedPartition]:
        """Return the skipped partitions, and why.

        For a rollback, they are read from the journal; empty before the rollback is published. With scope "pending" and
        no rollback, they are the moves that an external client cancelled and that have another replica order since,
        read from the journal and the cluster.
        """
        rollback = self.rollback
        if self._scope == "pending" and rollback is None:
            rows = reordered_by_others(self._cluster, self._journal, self._digest)
            return tuple(SkippedPartition(row.move.topic, row.move.partition, row.detail) for row in rows)
        return left_alone(self._journal, rollback)

    @property
    def leased_brokers(self) -> Sequence[int]:
        """Return the dead brokers with a throttle lease of the plan or its rollback; released when they return."""
        return sorted({broker for broker, _ in leased_rates(self._journal, self._plans())})

    def _plans(self) -> list[str]:
        return [self._digest, *filter(None, [self.rollback])]

    def _return_throttles(self) -> None:
        """Release throttle leases of brokers that were dead before. The watch releases those that still cannot be."""
        if not leased_rates(self._journal, self._plans()):
            return
        with suppress(ClusterError, LockLost, VersionConflict):
            live = frozenset(self._cluster.live_brokers())
            release_leases_of(self._cluster, self._journal, self._plans(), live, self._who)

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
        """Return the digest of the rollback; publish it if necessary.

        Runs under the step lock, so that two processes never publish two rollbacks.
        """
        with self._journal.step_lock():
            record = self._record()
            known = None if record.rolled_back_by is None else self._journal.plans.get(record.rolled_back_by)
            if known is not None and known.status is PlanStatus.COMPLETED and not self._more(record):
                return known.digest  # completed, perhaps by a process that crashed before it recorded that
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
        """Return whether moves that a rollback skipped can go back now, because their broker has returned."""
        undone = record.status is PlanStatus.ROLLED_BACK or record.not_taken_back is not None
        return undone and bool(what_goes_back(self._cluster, self._journal, self._digest, self._settings).moves)

    def _step(self, digest: str) -> Progress:
        if digest not in self._runners:
            self._runners[digest] = PlanRunner(
                self._cluster,
                self._journal,
                digest,
                self._settings,
                self._who,
                consume_signal=self._consumes_signal,
            )
        return self._runners[digest].step()

    def _waiting(self, record: PlanRecord, sentence: str) -> Progress:
        progress = progress_of(record, self._journal.plans.rows(self._digest), busy=True, sentence=sentence)
        return replace(progress, status=PlanStatus.RUNNING)

    def _known(self, digest: str) -> PlanRecord:
        return self._journal.plans.get(digest) or self._record()


def left_alone(journal: Journal, rollback: str | None) -> tuple[SkippedPartition, ...]:
    """Return the partitions that a rollback skips: never part of its plan, or changed before their turn."""
    if rollback is None:
        return ()
    told = [row.entry for row in journal.audit.rows(plan=rollback, action=Action.SKIP)]
    found = {
        SkippedPartition(entry.topic, entry.partition, entry.reason)
        for entry in told
        if entry.topic is not None and entry.partition is not None and entry.code is Code.LEFT_ALONE
    }
    lost = (row for row in journal.plans.rows(rollback) if row.state in {MoveState.DROPPED, MoveState.FAILED})
    return tuple(sorted(found | {SkippedPartition(row.move.topic, row.move.partition, row.detail) for row in lost}))


def unfinished_cancels(journal: Journal) -> list[PlanRecord]:
    """Return plans whose requested cancel or rollback has not ended; any process may resume one."""
    return [record for record in journal.plans.recent()[::-1] if is_open(journal, record)]


def is_open(journal: Journal, record: PlanRecord) -> bool:
    """Return whether a requested cancel or rollback of this plan has not ended."""
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


class PlanRun:
    """Steps a plan, then its requested rollback; same interface as `PlanRunner`. Keep one for a loop.

    The requester steps the rollback too, but may have crashed. The last progress is that of the plan itself, and its
    message reports the final outcome.
    """

    def __init__(self, cluster: ClusterPort, journal: Journal, digest: str, settings: Settings, who: Actor) -> None:
        self._cluster, self._journal, self._digest = cluster, journal, digest
        self._settings, self._who = settings, who
        self._runner = PlanRunner(cluster, journal, digest, settings, who)
        self._undo: CancelRunner | None = None

    def step(self) -> Progress:
        """Take the next step, of the plan or of its rollback. Raises as `PlanRunner.step` and `CancelRunner.step`."""
        progress = self._runner.step() if self._undo is None else self._undo.step()
        record = self._journal.plans.get(self._digest) if progress.ended else None
        if self._undo is None and record is not None and is_open(self._journal, record):
            self._undo = self._undo_of(record)
            progress = self._undo.step()
            record = self._journal.plans.get(self._digest) if progress.ended else None
        return progress if record is None else self._ended(record, progress)

    def _undo_of(self, record: PlanRecord) -> CancelRunner:
        reason = (record.cancel.reason if record.cancel else None) or "someone asked for it"
        return CancelRunner(
            self._cluster, self._journal, self._digest, self._settings, self._who, scope="plan", reason=reason
        )

    def _ended(self, record: PlanRecord, progress: Progress) -> Progress:
        became = what_became(record)
        if not became:
            return progress
        own = progress_of(record, self._journal.plans.rows(self._digest))
        return replace(own, sentence=became)
