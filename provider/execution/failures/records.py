"""What the journal has of failures: KIP-46's document of a failed broker, and our own record beside it.

KIP-46's `/admin/failed_brokers/<id>` is deleted when the broker is back or its heal is persisted. An operator who
deletes it calls the heal off. Our own record stays as long as the broker is down, so that neither an incomplete heal
nor a restart of the watch restarts the grace period. It also distinguishes the two deletions: its field `entered` is
True while the entry exists, and is reset before one of our processes deletes the entry. Therefore the entry is created
before `entered` is set, and the records are read before the entries. A process that dies between two of these changes
leaves an entry without the field, which counts as an entry.

A live broker with offline replicas has a record as well, with the time since which it has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kafka_steward.execution.failures.rules import (
    EndedHeal,
    Failure,
    HealedBrokers,
    LivenessView,
    called_off_brokers,
    healed_brokers,
)
from kafka_steward.journal import paths
from kafka_steward.journal.kip_documents import FailedBroker
from kafka_steward.journal.mailbox import delete_one, put_one, read_one
from kafka_steward.journal.records import FAILED_BROKERS
from kafka_steward.journal.state import Noun, Row, Rows
from kafka_steward.journal.store import Journal
from kafka_steward.settings import Settings

#: The recorded failures of brokers, and of the log directories of live brokers, by broker.
FAILURES: Noun[int, Failure] = Noun("failures", Failure, int)
FAILED_LOG_DIRS: Noun[int, Failure] = Noun("failed_log_dirs", Failure, int)

#: The number of latest plans that are searched for the newest heal of a broker.
LATEST_PLANS = 200

#: Attempts to change a record that other processes change at the same time.
_ATTEMPTS = 5


@dataclass(frozen=True)
class RecordedFailures:
    """The records of broker failures and KIP-46's entries, by broker, as one poll reads them.

    `entered_ms` maps the brokers that have an entry to its time of failure, `written_ms` to the time at which it was
    written last. Log directories of live brokers have records only.
    """

    records: Mapping[int, Row[int, Failure]]
    entries: Mapping[int, FailedBroker] = field(default_factory=dict)
    entered_ms: Mapping[int, int] = field(default_factory=dict)
    written_ms: Mapping[int, int] = field(default_factory=dict)

    @property
    def failures(self) -> dict[int, Failure]:
        """Our own records, by broker."""
        return {broker: row.value for broker, row in self.records.items()}

    @property
    def first_seen_ms(self) -> dict[int, int]:
        """The times at which failures were first detected: those of the entries, or else of the records."""
        return {broker: failure.first_seen_ms for broker, failure in self.failures.items()} | dict(self.entered_ms)

    @property
    def called_off(self) -> frozenset[int]:
        """The brokers whose heal an operator called off."""
        return called_off_brokers(self.failures, self.entries.keys())

    @property
    def reported(self) -> frozenset[int]:
        """The brokers that an operator reported as failed, or whose log directories an operator reported."""
        by_entry = {broker for broker, entry in self.entries.items() if entry.reported}
        return frozenset(by_entry | {broker for broker, failure in self.failures.items() if failure.reported})

    @property
    def reported_ms(self) -> dict[int, int]:
        """The times of the reports, by broker, as far as they are known.

        Another tool reports a broker by its entry, which has no time: the time at which the entry was written counts.
        """
        known = {
            broker: failure.reported_ms for broker, failure in self.failures.items() if failure.reported_ms is not None
        }
        agreeing = self.noted & known.keys()
        entries = {broker for broker, entry in self.entries.items() if entry.reported}
        return known | {broker: self.written_ms[broker] for broker in entries - agreeing}

    @property
    def noted(self) -> frozenset[int]:
        """The brokers whose record agrees with their entry."""
        reported = self.reported
        return frozenset(
            broker
            for broker, failure in self.failures.items()
            if failure.entered and failure.reported == (broker in reported)
        )


def read_failures(journal: Journal) -> RecordedFailures:
    """Read the records of broker failures, then KIP-46's entries.

    An unreadable entry, or one with a time in the future, gets the time at which it was written.
    """
    records = {row.key: row for row in journal.rows(FAILURES).all()}
    listed, now_ms = FAILED_BROKERS.list_valid(journal.mailbox), journal.now_ms()
    entries = {entry.key[0]: entry.document for entry in listed}
    stated_ms = ((entry, entry.document.failure_timestamp_ms) for entry in listed)
    # A clock that runs ahead must not delay a failure.
    entered_ms = {
        entry.key[0]: at_ms if at_ms <= now_ms else min(entry.node.created_ms, now_ms) for entry, at_ms in stated_ms
    }
    written_ms = {entry.key[0]: min(entry.node.modified_ms, now_ms) for entry in listed}
    return RecordedFailures(records, entries, entered_ms, written_ms)


def read_log_dir_failures(journal: Journal) -> RecordedFailures:
    """Read the records of failed log directories of live brokers."""
    return RecordedFailures({row.key: row for row in journal.rows(FAILED_LOG_DIRS).all()})


def last_racks(journal: Journal) -> dict[int, str]:
    """Return the racks that the watch observed last, by broker. Raises JournalError."""
    return {} if journal.watch_reports is None else journal.watch_reports.racks()


def enter_failure(journal: Journal, broker: int, read: RecordedFailures, now_ms: int) -> bool:
    """Write what is missing of a failed broker; return True if that created its entry.

    What an earlier poll or another process has written keeps its time.
    """
    first_seen_ms, reported = read.first_seen_ms.get(broker, now_ms), broker in read.reported
    entry = FailedBroker(first_seen_ms, reported)
    # The entry before the field `entered`: after a crash in between, there is an entry, which counts.
    created = put_one(journal.mailbox, paths.failed_broker(broker), entry.to_json()) is not None
    known = read.records.get(broker)
    failure = Failure(first_seen_ms) if known is None else replace(known.value, called_off_ms=None)
    failure = replace(failure, entered=True, reported=reported, reported_ms=read.reported_ms.get(broker))
    journal.rows(FAILURES).put(broker, failure, known)
    return created


def keep_ended_heals(rows: Rows[int, Failure], read: RecordedFailures, ended: Mapping[int, EndedHeal]) -> None:
    """Write the last heals of brokers into the records of their failures: plans are kept for `plan_retention` only."""
    for broker, heal in ended.items():
        known = read.records[broker]
        rows.put(broker, replace(known.value, healed=heal), known)


def record_call_off(journal: Journal, known: Row[int, Failure], now_ms: int) -> bool:
    """Record that the heal of a broker was called off; return False if another process changed the record."""
    failure = replace(known.value, entered=False, called_off_ms=now_ms, reported=False, reported_ms=None)
    return journal.rows(FAILURES).put(known.key, failure, known) is not None


def delete_entry(journal: Journal, broker: int) -> bool:
    """Delete KIP-46's entry of a broker, because the broker is back or its heal is persisted.

    Returns False if there is none, or if it or the record was changed concurrently: the next poll decides.
    """
    # The field before the entry: a deletion of an entry that is still `entered` is an operator's.
    if not _reset_entered(journal.rows(FAILURES), broker):
        return False
    node = read_one(journal.mailbox, paths.failed_broker(broker))
    return node is not None and delete_one(journal.mailbox, node)


def _reset_entered(rows: Rows[int, Failure], broker: int) -> bool:
    for _ in range(_ATTEMPTS):
        row = rows.get(broker)
        if row is None or not row.value.entered or rows.put(broker, replace(row.value, entered=False), row) is not None:
            return True
    return False


def find_healed_brokers(
    journal: Journal,
    view: LivenessView,
    read: RecordedFailures,
    *,
    now_ms: int,
    settings: Settings,
    newly_reported_ms: Mapping[int, int] | None = None,
) -> HealedBrokers:
    """Return the brokers that need no further plan, and those that count towards no outage, by the newest plans.

    Of plans that are not in the journal any more, the records of failures have what counts. `newly_reported_ms` has the
    times of reports that `read` does not have yet.
    """
    if not (view.replica_counts or read.first_seen_ms):
        return HealedBrokers()
    # A plan is deleted after plan_retention, and the record of the failure stays.
    kept = [failure.healed.as_plan(broker) for broker, failure in read.failures.items() if failure.healed is not None]
    return healed_brokers(
        [*journal.plans.latest(LATEST_PLANS), *kept],
        view,
        now_ms,
        settings,
        first_seen_ms=read.first_seen_ms,
        reported_ms=read.reported_ms | dict(newly_reported_ms or {}),
    )


def find_new_ended_heals(healed: HealedBrokers, read: RecordedFailures) -> dict[int, EndedHeal]:
    """Return the last heals of brokers that the records of their failures do not have yet."""
    failures = read.failures
    return {
        broker: heal for broker, heal in healed.ended.items() if broker in failures and failures[broker].healed != heal
    }
