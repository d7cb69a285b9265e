"""Controller for the KIPs' documents: each poll accepts new documents and advances the work in progress by one step.

No state that matters is kept in memory: a poll starts from the tree and the cluster, in KIP-236's order for a new
controller. That order is reassignments in flight, then requests and the queue, then `/admin/reassign_partitions`. A
later source never takes a partition from an earlier source of the other route. So a poll after a crash, or concurrent
with another process that polls, needs no special handling.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from kafka_steward.assignment import TopicPartition
from kafka_steward.errors import LockLost, NodeExists, NodeMissing, VersionConflict
from kafka_steward.execution.cancel_signal import consume_cancel_signal
from kafka_steward.execution.mending import mending
from kafka_steward.execution.owner import new_owner
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.execution.switch import why_off
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Who
from kafka_steward.journal.changes import remove
from kafka_steward.journal.listing import SWEEP_MS, WRITTEN, sweep
from kafka_steward.journal.open import Journal
from kafka_steward.protocol.admitting import Admission, known_flights
from kafka_steward.protocol.asked_plans import AskedPlan, AskedPlans, why_not_now
from kafka_steward.protocol.driving import SOON_S, Driver, Looked
from kafka_steward.protocol.intruders import Intruders
from kafka_steward.protocol.legacy import follow_legacy
from kafka_steward.protocol.papers import Paper, read_queue, read_requests
from kafka_steward.protocol.queueing import shorten, started, taken_out
from kafka_steward.protocol.withdrawing import Withdrawal
from kafka_steward.settings import Settings

__all__ = ["Looked", "Protocol"]


class Protocol:
    """Executes the documents of one cluster; one thread at a time. Keep one: it caches the documents of ended plans.

    With `zookeeper`, the journal's tree is the brokers' own ZooKeeper, which has Kafka's `/admin/reassign_partitions`.
    """

    def __init__(
        self, cluster: ClusterPort, journal: Journal, settings: Settings, who: Who, *, zookeeper: bool = False
    ) -> None:
        self._cluster = cluster
        self._journal = journal
        self._settings = settings
        self._who = who
        self._zookeeper = zookeeper
        self._plans = AskedPlans(journal)
        self._admission = Admission(cluster, journal, settings, who)
        self._intruders = Intruders(cluster, journal, who, cancel=settings.foreign_while_disabled == "cancel")
        self._driver = Driver(cluster, journal, settings, who)
        self._swept_ms: int | None = None

    def look(self) -> Looked:
        """Poll once, and execute what is possible now.

        Raises ClusterError, JournalError: the next poll resumes the work.
        """
        return mending(self._journal, self._who, self._look)

    def _look(self) -> Looked:
        looked = Looked()
        self._plans.read()
        # The cancel signal first: a step of any plan would consume it.
        for part in (self._sweep, self._signal, self._in_flight, self._requests, self._queue, self._others):
            self._tried(part, looked)
        return looked

    def _tried(self, part: Callable[[Looked], None], looked: Looked) -> None:
        try:
            part(looked)
        except (LockLost, VersionConflict, NodeExists, NodeMissing) as error:
            # Another process does the same work: the next poll detects what remains.
            looked.sentences.append(str(error))
            looked.soon(SOON_S)

    def _sweep(self, looked: Looked) -> None:
        """Quarantine unreadable documents, once per `SWEEP_MS`; until then all readers skip them."""
        now_ms = self._journal.now_ms()
        if self._swept_ms is None or not 0 <= now_ms - self._swept_ms < SWEEP_MS:
            looked.sentences += sweep(self._journal, WRITTEN, self._who)
            self._swept_ms = now_ms

    def _in_flight(self, looked: Looked) -> None:
        for plan in self._plans.asked:
            self._driver.step(plan, looked)
        # A cancel signal may arrive after it was checked in this poll and be consumed by a step, here or elsewhere.
        if self._plans.rollback_asked():
            self._driver.look_for_undos()
        self._driver.undo(looked)

    def _signal(self, looked: Looked) -> None:
        if self._journal.tree.get(paths.CANCEL_IN_PROGRESS) is None:
            return
        self._driver.look_for_undos()
        outcome = consume_cancel_signal(self._cluster, self._journal, self._who)
        if outcome is None:
            looked.soon(SOON_S)
        else:
            looked.sentences += outcome.sentences
            looked.rings.add("cancel")

    def _requests(self, looked: Looked) -> None:
        papers, more = read_requests(self._journal.tree)
        if not papers:
            return
        if more:
            looked.soon(SOON_S)
        fresh = [paper for paper in papers if not self._plans.knows(paper.source)]
        for paper in papers:
            if paper not in fresh:
                remove(self._journal.tree, paper.node)  # its plan is published: a poll crashed before this line
        if fresh:
            looked.rings.add("request")
            if self._admitted(fresh, looked):
                for paper in fresh:
                    remove(self._journal.tree, paper.node)

    def _queue(self, looked: Looked) -> None:
        paper = read_queue(self._journal.tree)
        # First, because of a re-created queue: partitions that it names again would count as in progress, and would
        # then be removed with the old queue.
        self._take_out(paper)
        if paper is not None:
            fresh = self._fresh(paper)
            if fresh.asked or paper.fault:
                looked.rings.add("request")
                if not self._admitted([fresh], looked):
                    return
            if paper.fault:
                remove(self._journal.tree, paper.node)
                return
            self._shorten(paper)

    def _fresh(self, paper: Paper) -> Paper:
        """Return the queue without entries that a plan has already: all entries, or those added or changed since."""
        plans = [plan for plan in self._plans.asked if paper.source in plan.sources]
        if not plans and self._plans.knows(paper.source):
            return replace(paper, asked=())  # its plan has ended, and a poll crashed before it emptied the queue
        rows = [row for plan in plans for row in self._journal.plans.rows(plan.digest)]
        known = {(row.topic_partition, row.move.after) for row in rows}
        return replace(paper, asked=[each for each in paper.asked if (each.partition, each.replicas) not in known])

    def _take_out(self, paper: Paper | None) -> None:
        """Drop waiting moves that were removed from the queue or changed there, or whose queue was deleted."""
        for plan in self._plans.asked:
            if not any(each.startswith(f"{paths.REASSIGN_QUEUE}@") for each in plan.sources):
                continue
            node = paper.node if paper is not None and paper.source in plan.sources else None
            out = taken_out(self._journal.plans.rows(plan.digest), node)
            if out:
                self._withdraw(plan, out)

    def _shorten(self, paper: Paper) -> None:
        """Remove partitions that no longer wait from the queue."""
        waiting = set()
        for plan in self._plans.asked:
            if paper.source in plan.sources:
                rows = self._journal.plans.rows(plan.digest)
                waiting |= {row.topic_partition for row in rows} - started(rows)
        shorten(self._journal.tree, paper.node, waiting)

    def _others(self, looked: Looked) -> None:
        if self._zookeeper:
            under_way = known_flights(self._journal, self._plans)
            looked.sentences += follow_legacy(
                self._cluster, self._journal, {name: each for name, each in under_way.items() if each.plan is not None}
            )
        looked.sentences += self._intruders.look()
        if self._intruders.restoring:
            looked.soon(SOON_S)

    def _admitted(self, papers: Sequence[Paper], looked: Looked) -> bool:
        """Return whether the documents were accepted or finally refused; if they must wait, add a message with why."""
        off = why_off(self._journal.tree)
        why = f"reassignments are switched off {off}" if off else why_not_now(self._journal, self._plans)
        if why:
            looked.sentences.append(f"{papers[0].node.path} waits: {why}.")
            return False
        admitted = self._admission.admit(papers, self._plans)
        looked.sentences += admitted.sentences
        if admitted.unfinished:
            looked.soon(SOON_S)
            return False
        if admitted.plans:
            self._plans.read()
            for plan in self._plans.asked:
                if plan.digest in admitted.plans:
                    self._driver.step(plan, looked)
        return True

    def _withdraw(self, plan: AskedPlan, partitions: Collection[TopicPartition]) -> None:
        why = f"taken out of {paths.REASSIGN_QUEUE} before it began"
        with self._journal.step_lock(new_owner()) as fence:
            Withdrawal(self._cluster, self._journal, plan.digest, why=why, who=self._who, fence=fence).run(partitions)
