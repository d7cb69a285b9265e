"""Controller for the KIPs' documents: each poll accepts new documents and advances the work in progress by one step.

No state that matters is kept in memory: a poll starts from the mailbox and the cluster, in KIP-236's order for a new
controller. That order is reassignments in flight, then requests and the queue, then `/admin/reassign_partitions`. A
later source never takes a partition from an earlier source of the other route. So a poll after a crash, or concurrent
with another process that polls, needs no special handling.

`/admin/reassign_partitions` is read and never changed: Kafka executes it by itself, and if anyone else changes that
node, its controller loses the watch (KAFKA-9478). So these reassignments are only recorded as in flight, marked
`legacy`, where KIP-236 keeps such records. Reassignments that others began through the Admin API are recorded too. A
record is deleted when its reassignment has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from kafka_steward.assignment import TopicPartition
from kafka_steward.document_api.document_plans import (
    SOON_S,
    DocumentPlans,
    PlanScheduler,
    PollResult,
    blocked_reason,
    partitions_of_others,
)
from kafka_steward.document_api.external_guard import ExternalReassignmentGuard
from kafka_steward.document_api.in_flight_tracking import record_unrecorded, sweep_external_records
from kafka_steward.document_api.manual_chunks import ManualChunks
from kafka_steward.document_api.partition_rules import ActiveReassignment
from kafka_steward.document_api.request_documents import (
    RequestDocument,
    find_dequeued_partitions,
    read_queue,
    read_requests,
    remove_started_from_queue,
    split_waiting,
)
from kafka_steward.document_api.request_intake import PartialCancel, RequestIntake, active_reassignments
from kafka_steward.errors import DocumentError, KafkaRefused, LockLost, VersionConflict
from kafka_steward.execution.announcements import disabled_reason
from kafka_steward.execution.cluster_queries import HIDDEN
from kafka_steward.execution.moves.in_flight import delete_in_flight, list_in_flight, record_external_in_flight
from kafka_steward.execution.moves.states import OPEN
from kafka_steward.execution.plans.cancel import consume_cancel_signal
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Actor
from kafka_steward.journal.kip_documents import InFlight, Request
from kafka_steward.journal.listing import QuarantineSweep
from kafka_steward.journal.mailbox import Node, delete_one, read_one
from kafka_steward.journal.records import WRITTEN
from kafka_steward.journal.store import Journal
from kafka_steward.settings import Settings


def track_legacy_reassignments(
    cluster: ClusterPort, journal: Journal, under_way: Mapping[TopicPartition, ActiveReassignment]
) -> list[str]:
    """Record reassignments submitted by the legacy znode, and delete the records of ended ones; returns messages.

    `under_way` are reassignments in flight or waiting by the other route. Such a partition is not recorded a second
    time (KIP-236); a message reports it if the two targets differ.
    """
    recorded = [
        name for name, document in list_in_flight(journal.mailbox).items() if document.plan is None and document.legacy
    ]
    node = read_one(journal.mailbox, paths.REASSIGN_PARTITIONS)
    if node is None and not recorded:
        return []
    try:
        asked = () if node is None else Request.from_node(node).partitions
    except DocumentError as error:
        return [f"Left to Kafka: {error}"]
    try:
        snapshot = cluster.snapshot(sorted({entry.topic for entry in asked} | {name.topic for name in recorded}))
    except KafkaRefused as error:
        return [f"{paths.REASSIGN_PARTITIONS} is left to Kafka, which does not let us read its partitions: {error}"]
    new = {
        entry.topic_partition: InFlight(
            entry.original_replicas,
            entry.replicas,
            legacy=True,
            top=len(snapshot.partitions[entry.topic_partition].original) or None,
        )
        for entry in asked
        if entry.topic_partition not in under_way and entry.topic_partition in snapshot.partitions
    }
    record_external_in_flight(journal.mailbox, new)
    named = {entry.topic_partition: entry.replicas for entry in asked}
    ended = [name for name in recorded if name not in named and name not in snapshot.reassigning]
    delete_in_flight(journal.mailbox, None, [name for name in ended if name.topic not in snapshot.hidden])
    unseen = [name for name in sorted(named) if name.topic in snapshot.hidden][:1]
    return [f"{paths.REASSIGN_PARTITIONS} is left to Kafka with {name}, unrecorded: {HIDDEN}." for name in unseen] + [
        f"{name} is also requested by {paths.REASSIGN_PARTITIONS}, and a request is already reassigning it."
        for name, target in sorted(named.items())
        if name in under_way and not under_way[name].legacy and under_way[name].target != target
    ]


class DocumentController:
    """Executes the documents of one cluster; one thread at a time. Keep one: it caches the documents of ended plans.

    With `zookeeper`, the documents are in the brokers' own ZooKeeper, which has Kafka's `/admin/reassign_partitions`.
    """

    def __init__(
        self, cluster: ClusterPort, journal: Journal, settings: Settings, who: Actor, *, zookeeper: bool = False
    ) -> None:
        self._cluster = cluster
        self._journal = journal
        self._settings = settings
        self._who = who
        self._zookeeper = zookeeper
        self._plans = DocumentPlans(journal)
        self._intake = RequestIntake(cluster, journal, settings, who)
        self._external = ExternalReassignmentGuard(
            cluster, journal, who, cancel=settings.foreign_while_disabled == "cancel"
        )
        self._scheduler = PlanScheduler(cluster, journal, settings, who)
        self._chunks = ManualChunks(journal.mailbox)
        self._quarantine = QuarantineSweep(journal, WRITTEN, who)
        #: The requests that wait for another plan, as of this poll.
        self._waiting: list[RequestDocument] = []
        #: The partitions of plans of another kind, and why a request for each waits; None until this poll reads them.
        self._owned: Mapping[TopicPartition, str] | None = None

    def poll(self) -> PollResult:
        """Poll once, and execute what is possible now.

        Raises ClusterError, JournalError: the next poll resumes the work.
        """
        with self._journal.one_read():
            return self._poll()

    def _poll(self) -> PollResult:
        result = PollResult()
        self._owned = None
        self._plans.read_unfinished()
        # The cancel signal first: no plan that is to be cancelled goes on. The steps below leave it to the next poll.
        for part in (
            self._quarantine_unreadable,
            self._consume_cancel_signal,
            self._step_plans,
            self._sweep_records,
            self._process_requests,
            self._process_queue,
            self._process_chunks,
            self._poll_external_reassignments,
            self._record_reassignments,
        ):
            self._run_part(part, result)
        return result

    def _run_part(self, part: Callable[[PollResult], None], result: PollResult) -> None:
        try:
            part(result)
        except (LockLost, VersionConflict) as error:
            # Another process does the same work: the next poll detects what remains.
            result.sentences.append(str(error))
            result.schedule_within(SOON_S)

    def _quarantine_unreadable(self, result: PollResult) -> None:
        result.sentences += self._quarantine.run(self._journal.now_ms())

    def _step_plans(self, result: PollResult) -> None:
        for plan in self._plans.requested:
            self._scheduler.step(plan, result)
        # A cancel signal may arrive after it was checked in this poll and be consumed by a step, here or elsewhere.
        if self._plans.pop_rollback_requested():
            self._scheduler.invalidate_cancels()
        self._scheduler.step_cancels(result, stepped=[plan.digest for plan in self._plans.requested])

    def _sweep_records(self, _: PollResult) -> None:
        """Delete stale in-flight records before requests are read: none of them may keep a request from starting."""
        sweep_external_records(self._cluster, self._journal)

    def _record_reassignments(self, result: PollResult) -> None:
        plans = [*self._plans.requested, *self._plans.others]
        result.sentences += record_unrecorded(self._cluster, self._journal, plans, self._who)

    def _consume_cancel_signal(self, result: PollResult) -> None:
        if read_one(self._journal.mailbox, paths.CANCEL_IN_PROGRESS) is None:
            return
        self._scheduler.invalidate_cancels()
        outcome = consume_cancel_signal(self._cluster, self._journal, self._who)
        if outcome is None:
            result.schedule_within(SOON_S)
        else:
            result.sentences += outcome.sentences
            result.events.add("cancel")

    def _process_requests(self, result: PollResult) -> None:
        documents, more = read_requests(self._journal.mailbox)
        self._waiting = []
        if not documents:
            return
        if more:
            result.schedule_within(SOON_S)
        fresh = [document for document in documents if not self._plans.executes_document(document.document_id)]
        for document in documents:
            if document not in fresh:
                # Its plan is published: a poll crashed before this line.
                delete_one(self._journal.mailbox, document.node)
        if not fresh:
            return
        result.events.add("request")
        ready, self._waiting = self._withhold_documents(fresh, result)
        for node in self._accept_documents(ready, result) or ():
            delete_one(self._journal.mailbox, node)

    def _withhold_documents(
        self, documents: Sequence[RequestDocument], result: PollResult
    ) -> tuple[list[RequestDocument], list[RequestDocument]]:
        """Return the documents that may start, and those that wait; a message says for what."""
        ready, waiting = split_waiting(documents, self._partitions_of_others())
        result.sentences += [f"{document.document.node.path} waits: {document.why}." for document in waiting]
        return ready, [withheld.document for withheld in waiting]

    def _partitions_of_others(self) -> Mapping[TopicPartition, str]:
        """Return `partitions_of_others`, read once per poll: its plans may have a hundred thousand partitions."""
        if self._owned is None:
            self._owned = partitions_of_others(self._journal, self._plans)
        return self._owned

    def _process_queue(self, result: PollResult) -> None:
        document = read_queue(self._journal.mailbox)
        # First, because of a re-created queue: partitions that it names again would count as in progress, and would
        # then be removed with the old queue.
        self._cancel_dequeued_moves(document)
        if document is not None:
            fresh = self._filter_new_entries(document)
            withheld = self._withhold_owned(fresh, result) if fresh.requested else {}
            ready = replace(fresh, requested=[entry for entry in fresh.requested if entry.partition not in withheld])
            if ready.requested or document.parse_error:
                result.events.add("request")
                if self._accept_documents([ready], result) is None:
                    return
            if document.parse_error:
                delete_one(self._journal.mailbox, document.node)
                return
            self._remove_started_from_queue(document, withheld.keys())

    def _withhold_owned(self, queue: RequestDocument, result: PollResult) -> Mapping[TopicPartition, str]:
        """Return the entries that stay in the queue for now, and why; the message names one of them."""
        owned = dict(self._partitions_of_others())
        for document in self._waiting:
            owned |= {entry.partition: f"{document.node.path} waits with it" for entry in document.requested} | owned
        withheld = {entry.partition: owned[entry.partition] for entry in queue.requested if entry.partition in owned}
        for name in sorted(withheld)[:1]:
            what = f"{len(withheld)} of {len(queue.requested)} partitions wait"
            result.sentences.append(f"{queue.node.path}: {what}: {withheld[name]}.")
        return withheld

    def _process_chunks(self, result: PollResult) -> None:
        """Accept the next chunk that a person wrote, once the plan of the one before has ended (KIP-46)."""
        unfinished = (*self._plans.requested, *self._plans.others)
        document = self._chunks.read_next({name for plan in unfinished for name in plan.chunks})
        if document is None:
            return
        result.schedule_within(SOON_S)
        if self._plans.executes_document(document.document_id):
            delete_one(self._journal.mailbox, document.node)  # its plan is published: a poll crashed before this line
            return
        if self._plans.executing_from(paths.REASSIGN_CHUNKS) is not None:
            result.sentences.append(f"{document.node.path} waits: the chunk before it is in progress.")
            return
        result.events.add("request")
        ready, _ = self._withhold_documents([document], result)
        for node in self._accept_documents(ready, result) or ():
            delete_one(self._journal.mailbox, node)

    def _filter_new_entries(self, document: RequestDocument) -> RequestDocument:
        """Return the queue without entries that a plan has already: all entries, or those added or changed since."""
        # Also those that have ended: a poll may have crashed before it removed their partitions from the queue.
        plans = self._plans.executing(document.document_id)
        rows = [row for digest in plans for row in self._journal.plans.existing_rows(digest)]
        known = {(row.topic_partition, row.move.after) for row in rows}
        return replace(
            document,
            requested=[entry for entry in document.requested if (entry.partition, entry.replicas) not in known],
        )

    def _cancel_dequeued_moves(self, document: RequestDocument | None) -> None:
        """Drop waiting moves that were removed from the queue or changed there, or whose queue was deleted."""
        for plan in self._plans.requested:
            if not any(source.startswith(f"{paths.REASSIGN_QUEUE}@") for source in plan.sources):
                continue
            node = document.node if document is not None and document.document_id in plan.sources else None
            out = find_dequeued_partitions(self._journal.plans.rows(plan.digest), node)
            if out:
                why = f"removed from {paths.REASSIGN_QUEUE} before it started"
                with self._journal.step_lock() as fence:
                    cancel = PartialCancel(
                        self._cluster, self._journal, plan.digest, why=why, who=self._who, fence=fence
                    )
                    cancel.run(out)

    def _remove_started_from_queue(self, document: RequestDocument, withheld: Collection[TopicPartition]) -> None:
        """Remove partitions that no longer wait from the queue; those `withheld` have not started."""
        plans = [plan for plan in self._plans.requested if document.document_id in plan.sources]
        rows = (row for plan in plans for row in self._journal.plans.rows(plan.digest))
        waiting = {row.topic_partition for row in rows if row.state in OPEN}
        remove_started_from_queue(self._journal.mailbox, document.node, waiting.union(withheld))

    def _poll_external_reassignments(self, result: PollResult) -> None:
        if self._zookeeper:
            under_way = active_reassignments(self._journal, self._plans)
            result.sentences += track_legacy_reassignments(
                self._cluster,
                self._journal,
                {name: active for name, active in under_way.items() if active.plan is not None},
            )
        result.sentences += self._external.poll()
        if self._external.is_restoring:
            result.schedule_within(SOON_S)

    def _accept_documents(self, documents: Sequence[RequestDocument], result: PollResult) -> list[Node] | None:
        """Return the nodes of documents that were accepted or finally refused; None if they must wait.

        If they must wait for something, a message says for what.
        """
        if not documents:
            return []
        off = disabled_reason(self._journal.mailbox)
        why = f"reassignments are disabled {off}" if off else blocked_reason(self._journal, self._plans)
        if why:
            result.sentences.append(f"{documents[0].node.path} waits: {why}.")
            return None
        admitted = self._intake.accept(documents, self._plans)
        result.sentences += admitted.sentences
        result.refusals |= admitted.refusals
        if admitted.unfinished:
            result.schedule_within(SOON_S)
            return None
        if admitted.plans:
            self._plans.read_unfinished()
            for plan in self._plans.requested:
                if plan.digest in admitted.plans:
                    self._scheduler.step(plan, result)
        return [admitted.marked.get(document.node.path, document.node) for document in documents]
