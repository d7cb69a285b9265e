"""Throttle leases: throttles that are acquired while replicas move and released afterwards.

No state is kept in memory. A lease is recorded in the journal before Kafka is changed: a list entry under the plan that
added it, a rate together with the value that was set before. The leases to release are at any moment the recorded ones
minus those still needed. The next step of the plan can therefore release them, and so can the watch if no process steps
the plan. Several plans can have a lease on the same rate; the strictest of their rates applies. The last of these plans
restores the previous rate, and only if the current rate is still one that we set. Each step of a plan sets throttles
again that an external change cleared, and sets its brokers to the rate that is requested now (rates.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from kafka_steward.assignment import Move, TopicPartition
from kafka_steward.cluster.configs import BrokerRate, ConfigChange, ConfigOp, parse_list
from kafka_steward.cluster.state import Snapshot
from kafka_steward.errors import (
    BrokerUnreachable,
    ClusterError,
    KafkaRefused,
    VersionConflict,
)
from kafka_steward.execution.cluster_queries import readable_topic_configs
from kafka_steward.execution.effects import AuditedCalls
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.execution.throttles.rates import (
    ALL,
    NO_DEMAND,
    Copy,
    ExternalRate,
    ThrottleDemand,
    ThrottleSide,
    copies_of,
    decide_rate,
    find_catching_up,
    lease_late_rate,
    limiting_rates,
    lists_leader,
    missing_entries,
    note_external,
    rate_change,
    rate_restoring_change,
    rates_in_force,
    stricter_external_rates,
)
from kafka_steward.journal.audit import Action, Actor, AuditRecord, Outcome, event_number
from kafka_steward.journal.records import (
    RELEASED_THROTTLES,
    THROTTLE_LEASES,
    LeaseKey,
    PlanRecord,
    ReleasedThrottles,
    ThrottleLease,
)
from kafka_steward.journal.state import Row
from kafka_steward.journal.store import Journal

_UNKNOWN_TOPIC = 3
#: Attempts to record a late change while other processes change the same row.
_TRIES = 10
_LEADING = ThrottleSide.LEADER.replicas_key
#: The sides of replication, by the setting of the rate.
_SIDES = {side.rate_key: side for side in ThrottleSide}


class ThrottleLeases:
    """The throttle leases of one plan.

    Keep one for one holding of the step lock: it reads the recorded leases once, and another process that changes them
    then makes its next write fail with VersionConflict. Every method may raise ClusterError; the recorded leases then
    remain to be released. `attempts` returns the number of submissions of the given partitions, which distinguishes
    their rows in the audit trail. `read` are the recorded leases of all plans, if they were read with the lock.
    `refusals` are Kafka's refusals of topics whose entries could not be released.
    """

    def __init__(
        self,
        cluster: ClusterPort,
        journal: Journal,
        calls: AuditedCalls,
        plan: str,
        *,
        attempts: Callable[[Collection[TopicPartition]], Mapping[TopicPartition, int]],
        who: Actor,
        read: Sequence[Row[LeaseKey, ThrottleLease]] | None = None,
    ) -> None:
        self._cluster = cluster
        self._journal = journal
        self._rows = journal.rows(THROTTLE_LEASES)
        self._calls = calls
        self._plan = plan
        self._attempts = attempts
        self._who = who
        self._read = None if read is None else {row.key: row for row in read}
        #: What moves copy, and at which of their leaders a rate of others may apply: as read with the followers' side.
        self._copies: dict[Copy, bool] = {}
        self._leader_rates: dict[int, BrokerRate] = {}
        self.refusals: list[ClusterError] = []

    def acquire(self, need: ThrottleDemand, rate: int, copies: Sequence[Copy] = ()) -> None:
        """Throttle the replicas and brokers in `need` to `rate` bytes per second into each broker.

        `copies` is what is copied with it: where a list names a leader of these, its rate is read as well.

        Throttles that are already set are left unchanged. An external rate that is at least as strict is left alone.
        The rates are set last: a broker of a ZooKeeper cluster that has received its rate has also received the lists.
        """
        self._copies |= dict.fromkeys(copies, False)
        for side in ThrottleSide:
            brokers = sorted(broker for broker, of in need.brokers if of is side)
            self._acquire_entries(side, {topic: entries for (topic, of), entries in need.entries.items() if of is side})
            self._acquire_rates(side, brokers, str(rate))

    def recover(self, need: ThrottleDemand) -> None:
        """Record the entries in `need` that the lists contain and no plan leases: ours, which the journal has lost.

        It is for moves whose submission an older copy of the journal does not know.
        """
        for side in ThrottleSide:
            wanted = {topic: entries for (topic, of), entries in need.entries.items() if of is side}
            now = self._read_lists(side, list(wanted)) if wanted else {}
            leases = {}
            for topic, value in now.items():
                key, shown = LeaseKey(topic, side.replicas_key), parse_list(value)
                known = self._recorded(key)
                leased = {entry for entries in known.entries.values() for entry in entries} if known else set()
                lost = sorted(wanted[topic].intersection(shown) - leased)
                if lost:
                    rest = ",".join(entry for entry in shown if entry not in lost)
                    leases[key] = self._with_entries(key, rest or None, lost)
            self._write_leases(leases)

    def ensure(self, need: ThrottleDemand, rate: int | None, live: frozenset[int], copies: Sequence[Copy] = ()) -> None:
        """Set the throttles in `need` again that were cleared externally, and change the leased rates to `rate`.

        If `rate` is None, the rate that this plan requested before is used. A broker that does not answer is left to
        the next step. `copies` are as for `acquire`.
        """
        self._copies |= dict.fromkeys((copy for copy in copies if copy.leader in live), False)
        asked = None if rate is None else str(rate)
        for side in ThrottleSide:
            self._acquire_entries(side, {topic: entries for (topic, of), entries in need.entries.items() if of is side})
            leased = set(map(int, self._read_own_leases(side.rate_key)))
            brokers = {broker for broker, of in need.brokers if of is side} | leased
            self._acquire_rates(side, sorted(live & brokers), asked, insist=False)

    def release(self, need: ThrottleDemand, live: frozenset[int], *, lists: bool = True) -> list[int]:
        """Release every lease of this plan that `need` does not name; return the brokers whose rate is still leased.

        A broker's configuration can be changed only while the broker is live, or through the controllers, if they are
        known (KIP-919). Else the lease of a dead broker stays recorded and is released later. So does that of a topic
        whose settings Kafka does not let us read or change: see `refusals`. Without `lists`, the entries in the topics'
        lists are left to a later call.
        """
        unreleased = []
        for side in ThrottleSide:
            if lists:
                self._release_entries(side, need)
            unreleased += self._release_rates(side, need, live)
        return sorted(unreleased)

    def external_rates(self) -> tuple[list[ExternalRate], list[int]]:
        """Return the rates of others that limit what is copied, or is to be, as this step has read them.

        With them, the followers whose stricter rate limits nothing, because the rates of their leaders are stricter.
        """
        leases = _rates_among(self._read_leases().values())
        stricter = stricter_external_rates(self._plan, leases)
        asked = max((int(rate) for lease in leases.values() for rate in lease.entries.get(self._plan, ())), default=0)
        unleased = {
            broker: rate for broker, rate in self._leader_rates.items() if (broker, ThrottleSide.LEADER) not in leases
        }
        mine = {broker for (broker, side), lease in leases.items() if side is ThrottleSide.LEADER and lease.entries}
        ends = [
            (copy.leader if listed or copy.leader in mine else None, copy.follower)
            for copy, listed in self._copies.items()
        ]
        limiting = limiting_rates(ends, [*stricter, *rates_in_force(ThrottleSide.LEADER, unleased)], asked)
        busy = {(follower, ThrottleSide.FOLLOWER) for _, follower in ends}
        ahead = [rate for rate in stricter if (rate.broker, rate.side) not in busy and not (ends and _leads(rate))]
        outdone = [rate.broker for rate in stricter if rate not in limiting and rate not in ahead and not _leads(rate)]
        return sorted({*limiting, *ahead}), outdone

    def _read_rates(self, side: ThrottleSide, brokers: Collection[int]) -> Mapping[int, BrokerRate]:
        """Return the rates of `brokers`; in the same request, those of leaders that a list names are read."""
        sending = {copy.leader for copy, listed in self._copies.items() if listed and copy.leader is not None}
        if side is ThrottleSide.LEADER or not sending:
            return self._cluster.broker_rates(brokers, [side.rate_key])[side.rate_key]
        leading = ThrottleSide.LEADER.rate_key
        rates = self._cluster.broker_rates(sorted(sending.union(brokers)), [side.rate_key, leading])
        self._leader_rates |= {broker: rate for broker, rate in rates[leading].items() if broker in sending}
        return {broker: rate for broker, rate in rates[side.rate_key].items() if broker in brokers}

    def _read_lists(self, side: ThrottleSide, topics: Collection[str]) -> dict[str, str | None]:
        """Return the lists of `topics`; with those of followers, note which leaders the other ones name."""
        leading = ThrottleSide.LEADER.replicas_key
        keys = [side.replicas_key] if side is ThrottleSide.LEADER else [side.replicas_key, leading]
        now = self._cluster.topic_configs(list(topics), keys, own_only=True)
        if side is ThrottleSide.FOLLOWER:
            self._copies |= {
                copy: lists_leader(now[copy.partition.topic].get(leading), copy)
                for copy in self._copies
                if copy.partition.topic in now
            }
        return {topic: values.get(side.replicas_key) for topic, values in now.items()}

    def _acquire_rates(
        self, side: ThrottleSide, brokers: Collection[int], rate: str | None, *, insist: bool = True
    ) -> None:
        if not brokers:
            return
        now = self._read_rates(side, brokers)
        silent = [broker for broker in brokers if broker not in now]
        # No copy starts to a broker whose throttle cannot be set.
        if insist and silent and side is ThrottleSide.FOLLOWER:
            raise BrokerUnreachable(silent[0], f"Broker {silent[0]} does not respond, so its throttle cannot be set.")
        changes, leases = dict[int, ConfigChange](), dict[int, ThrottleLease]()
        for broker, shown in sorted(now.items()):
            lease, wanted = self._record_rate(LeaseKey(str(broker), side.rate_key), rate, shown)
            if lease is not None and wanted != shown.own:
                changes[broker], leases[broker] = rate_change(wanted, side.rate_key), lease
        before = {broker: now[broker].own for broker in changes}
        ours = {broker: change for broker, change in changes.items() if leases[broker].ours is not None}
        returned = {broker: change for broker, change in changes.items() if broker not in ours}
        entries = self._build_rate_audit(Action.THROTTLE, ours, before)
        entries |= self._build_rate_audit(Action.UNTHROTTLE, returned, before, _APPLIES_WITHOUT_US)
        answers = self._calls.execute(
            entries,
            lambda batch: self._change_rates(changes, batch),
            # A rate that was taken back too late leaves nothing of ours.
            late=lambda batch: self._record_late_rates(
                side, {broker: leases[broker] for broker in batch if broker in ours}
            ),
        )
        tolerated = () if insist else (BrokerUnreachable,)
        self._raise_first_error([error for error in answers.values() if not isinstance(error, tolerated)])

    def _acquire_entries(self, side: ThrottleSide, wanted: Mapping[str, frozenset[str]]) -> None:
        now = self._read_lists(side, list(wanted)) if wanted else {}
        had = {topic: now[topic] for topic in sorted(wanted.keys() & now.keys())}
        missing = {topic: missing_entries(value, sorted(wanted[topic])) for topic, value in had.items()}
        added = {topic: names for topic, names in missing.items() if names}
        ours = {topic: ConfigChange(side.replicas_key, ConfigOp.APPEND, ",".join(add)) for topic, add in added.items()}
        keys = {topic: LeaseKey(topic, side.replicas_key) for topic in added}
        # Before Kafka has them: after a crash they are found, and released.
        self._write_leases({keys[topic]: self._with_entries(keys[topic], had[topic], added[topic]) for topic in added})
        entries = self._build_list_audit(Action.THROTTLE, added)
        answers = self._calls.execute(
            entries,
            lambda batch: self._change_lists(ours, batch),
            late=lambda batch: self._record_late_entries(
                side, {topic: parse_list(ours[topic].value) for topic in batch}
            ),
        )
        self._raise_first_error(answers.values())

    def _release_entries(self, side: ThrottleSide, need: ThrottleDemand) -> None:
        mine = self._read_own_leases(side.replicas_key)
        kept = {topic: need.entries.get((topic, side), frozenset()) for topic in mine}
        removable = {topic: set(mine[topic].entries[self._plan]) - kept[topic] for topic in mine}
        removable = {topic: names for topic, names in removable.items() if names}
        # One topic whose settings Kafka hides must not keep the throttles of the others.
        now, refused = readable_topic_configs(self._cluster, list(removable), [side.replicas_key], own_only=True)
        removable = {topic: names for topic, names in removable.items() if topic not in refused}
        changes, removed, gone = {}, {}, {}
        for topic, names in removable.items():
            value = now.get(topic, {}).get(side.replicas_key)
            # Entries that are gone, with their topic or by an external change, are not ours to remove.
            there = sorted(names & set(parse_list(value)))
            gone[topic] = sorted(names.difference(there))
            change = _removal_change(side.replicas_key, value, there, mine[topic])
            if change is not None:
                changes[topic], removed[topic] = change, there
        self._complete_intents(self._build_list_audit(Action.UNTHROTTLE, gone))
        entries = self._build_list_audit(Action.UNTHROTTLE, removed)
        answers = self._calls.execute(entries, lambda batch: self._change_lists(changes, batch))
        unchanged = {topic: error for topic, error in answers.items() if _is_relevant_error(error)}
        self.refusals += [error for error in (*refused.values(), *unchanged.values()) if error is not None]
        if not removable:
            return
        # Kafka may have taken longer than the lock lives, and only its holder may drop the leases.
        self._calls.check_fence()
        released = {topic: names for topic, names in removable.items() if topic not in unchanged}
        with self._journal.transaction():
            self._record_released(released)
            self._remove_lease_entries({LeaseKey(topic, side.replicas_key): names for topic, names in released.items()})

    def _release_rates(self, side: ThrottleSide, need: ThrottleDemand, live: frozenset[int]) -> list[int]:
        mine = {
            int(name): lease
            for name, lease in self._read_own_leases(side.rate_key).items()
            if (int(name), side) not in need.brokers
        }
        able = sorted(mine.keys() & live)
        reached = dict(self._cluster.broker_rates(able, [side.rate_key])[side.rate_key]) if able else {}
        if self._cluster.changes_dead_brokers:
            # Nobody can read the rate of a broker that is down: it is taken to be the one that we set last.
            reached |= {broker: BrokerRate(mine[broker].ours, None) for broker in mine.keys() - live}
        changes, before, gone = {}, {}, {}
        for broker, shown in reached.items():
            lease = mine[broker]
            change = rate_restoring_change(shown.own, lease, side.rate_key)
            # The last plan with a lease restores the rate that was set before; the others only end their own.
            if change is not None and lease.entries.keys() == {self._plan}:
                changes[broker], before[broker] = change, shown.own
            # Kafka shows that it is released: the process that did so was killed before it completed its row.
            elif change is None and (lease.ours is not None or lease.earlier):
                gone[broker] = rate_change(lease.before, side.rate_key)
        self._complete_intents(self._build_rate_audit(Action.UNTHROTTLE, gone, dict.fromkeys(gone)))
        entries = self._build_rate_audit(Action.UNTHROTTLE, changes, before)
        answers = self._calls.execute(entries, lambda batch: self._change_rates(changes, batch))
        self._remove_lease_entries(
            {
                LeaseKey(str(broker), side.rate_key): mine[broker].entries[self._plan]
                for broker in reached
                if answers.get(broker) is None
            }
        )
        return [broker for broker in mine if broker not in reached or answers.get(broker) is not None]

    def _change_rates(
        self, changes: Mapping[int, ConfigChange], batch: Collection[int]
    ) -> dict[int, ClusterError | None]:
        return self._cluster.change_broker_configs({broker: [changes[broker]] for broker in batch})

    def _change_lists(
        self, changes: Mapping[str, ConfigChange], batch: Collection[str]
    ) -> dict[str, KafkaRefused | None]:
        return self._cluster.change_topic_configs({topic: [changes[topic]] for topic in batch})

    def _raise_first_error(self, answers: Collection[ClusterError | None]) -> None:
        """Raise the first error.

        A refusal for an unknown topic is ignored: a deleted topic has no throttle to set or release.
        """
        for error in answers:
            if error is not None and _is_relevant_error(error):
                raise error

    def _read_own_leases(self, setting: str) -> dict[str, ThrottleLease]:
        """Return this plan's recorded leases of a setting, by the name of the broker or topic."""
        return {
            key.name: row.value
            for key, row in self._read_leases().items()
            if key.setting == setting and self._plan in row.value.entries
        }

    def _read_leases(self) -> dict[LeaseKey, Row[LeaseKey, ThrottleLease]]:
        """Return the recorded leases of all plans."""
        if self._read is None:
            self._read = {row.key: row for row in self._rows.all()}
        return self._read

    def _recorded(self, key: LeaseKey) -> ThrottleLease | None:
        row = self._read_leases().get(key)
        return None if row is None else row.value

    def _with_entries(self, key: LeaseKey, had: str | None, add: Collection[str]) -> ThrottleLease:
        """Return the lease with list entries that this plan is about to add.

        Entries of other plans and of earlier steps are kept. A list that no longer exists was cleared externally. In
        that case, releasing our entries deletes the list.
        """
        known = self._recorded(key)
        lease = known or ThrottleLease(had, None)
        mine = tuple(sorted({*lease.entries.get(self._plan, ()), *add}))
        before = None if had is None else lease.before
        return replace(lease, before=before, entries={**lease.entries, self._plan: mine})

    def _record_rate(
        self, key: LeaseKey, rate: str | None, shown: BrokerRate
    ) -> tuple[ThrottleLease | None, str | None]:
        """Record the rate that this plan requests; return the lease and the rate that is to be set on the broker."""
        known = self._recorded(key)
        lease, wanted = decide_rate(known, self._plan, rate, shown.own, shown.inherited)
        if lease is not None:
            lease = note_external(lease, wanted, shown.inherited)
            self._write_leases({key: lease})
        return lease, wanted

    def _record_late_rates(self, side: ThrottleSide, late: Mapping[int, ThrottleLease]) -> None:
        """Record again the rates of ours that were set after the step lock was lost, given their leases until then.

        The process that releases the leases of ended plans then finds them.
        """
        for broker, lease in late.items():
            key = LeaseKey(str(broker), side.rate_key)
            update = partial(lease_late_rate, plan=self._plan, rate=lease.ours or "0", before=lease.before)
            self._write_late_lease(key, update)

    def _record_late_entries(self, side: ThrottleSide, late: Mapping[str, Collection[str]]) -> None:
        for topic, added in late.items():

            def update(known: ThrottleLease | None, added: Collection[str] = added) -> ThrottleLease:
                there = known or ThrottleLease(None, None)
                mine = tuple(sorted({*there.entries.get(self._plan, ()), *added}))
                return replace(there, entries={**there.entries, self._plan: mine})

            self._write_late_lease(LeaseKey(topic, side.replicas_key), update)

    def _write_late_lease(self, key: LeaseKey, update: Callable[[ThrottleLease | None], ThrottleLease]) -> None:
        """Apply `update` to the current lease and write the result, with retries.

        Other processes write the lease at the same time, because the step lock is not held.
        """
        for _ in range(_TRIES):
            self._read = None
            with suppress(VersionConflict):
                self._write_leases({key: update(self._recorded(key))})
                return

    def _write_leases(self, leases: Mapping[LeaseKey, ThrottleLease]) -> None:
        """Record the leases that are not recorded so. Raises VersionConflict if one was changed since it was read."""
        changed = {key: lease for key, lease in leases.items() if lease != self._recorded(key)}
        self._read_leases().update(self._rows.put_all(changed, self._read_leases()))

    def _record_released(self, released: Mapping[str, Collection[str]]) -> None:
        """Record what is released in the lists of these topics. The verification of a rollback looks for it."""
        entries = {topic: tuple(sorted(names)) for topic, names in sorted(released.items())}
        if entries:
            # The same release, repeated after a crash, has the same key, and is recorded already.
            key = f"{self._plan}/{event_number(self._plan, entries)}"
            self._journal.rows(RELEASED_THROTTLES).put(key, ReleasedThrottles(entries), None)

    def _remove_lease_entries(self, removed: Mapping[LeaseKey, Collection[str]]) -> None:
        """Remove released entries from the leases, and delete those without any other.

        Raises VersionConflict if one was changed since it was read.
        """
        known = self._read_leases()
        left = {
            key: replace(known[key].value, entries=self._without_entries(known[key].value, gone))
            for key, gone in removed.items()
        }
        self._write_leases({key: lease for key, lease in left.items() if lease.entries})
        ended = [known[key] for key, lease in left.items() if not lease.entries]
        self._rows.delete_all(ended)
        for row in ended:
            del known[row.key]

    def _without_entries(self, lease: ThrottleLease, removed: Collection[str]) -> dict[str, tuple[str, ...]]:
        mine = tuple(entry for entry in lease.entries[self._plan] if entry not in removed)
        rest = {plan: entries for plan, entries in lease.entries.items() if plan != self._plan}
        return {**rest, self._plan: mine} if mine else rest

    def _complete_intents(self, entries: Mapping[Any, Sequence[AuditRecord]]) -> None:
        """Complete the rows of changes that Kafka shows, and that a process intended which was killed in between."""
        if entries:
            done = [entry for records in entries.values() for entry in records]
            self._journal.audit.record_outcome(done, Outcome.DONE)

    def _build_rate_audit(
        self, action: Action, changes: Mapping[int, ConfigChange], before: Mapping[int, str | None], reason: str = ""
    ) -> dict[int, list[AuditRecord]]:
        """Return one audit row for each broker. A rate that is leased again gets a row of its own.

        A change that a killed process intended and this one makes is one row, unless the rate was changed in between.
        """
        # It only numbers the rows of the audit trail: what Kafka gets is decided by the leases.
        written = self._journal.audit.rows(plan=self._plan, action=action) if changes else []
        newest = {row.entry.broker: row for row in written if row.entry.topic is None}
        attempts = {
            broker: row.entry.attempt + (row.outcome is not Outcome.INTENDED or row.entry.after != change.value)
            for broker, change in changes.items()
            if (row := newest.get(broker)) is not None
        }
        return {
            broker: [
                AuditRecord(
                    action,
                    reason or _REASONS[action],
                    plan=self._plan,
                    broker=broker,
                    attempt=attempts.get(broker, 0),
                    before=before[broker],
                    after=change.value,
                    who=self._who,
                )
            ]
            for broker, change in changes.items()
        }

    def _build_list_audit(self, action: Action, changed: Mapping[str, Collection[str]]) -> dict[str, list[AuditRecord]]:
        """Return the audit rows of these entries, `partition:broker`, by topic."""
        named = {
            topic: [
                (TopicPartition(topic, int(number)), int(broker))
                for number, broker in (entry.split(":") for entry in entries)
            ]
            for topic, entries in changed.items()
        }
        attempts = self._attempts([partition for replicas in named.values() for partition, _ in replicas])
        return {
            topic: [
                AuditRecord(
                    action,
                    _REASONS[action],
                    plan=self._plan,
                    topic=topic,
                    partition=partition.partition,
                    broker=broker,
                    attempt=attempts.get(partition, 0),
                    who=self._who,
                )
                for partition, broker in replicas
            ]
            for topic, replicas in named.items()
        }


_REASONS = {
    Action.THROTTLE: "a replica will be copied to this broker",
    Action.UNTHROTTLE: "the copy that needed it has ended",
}
_APPLIES_WITHOUT_US = "the rate that applies without it is at least as strict"


def release_leases_of_plans(
    cluster: ClusterPort, journal: Journal, plans: Collection[str], live: frozenset[int], who: Actor
) -> None:
    """Release the throttles that ended plans still lease, as far as possible.

    Raises ClusterError, and LockLost while a plan is being stepped; the leases then stay recorded. The refusal of a
    topic is raised last, after everything else is released.
    """
    refusals: list[ClusterError] = []
    for plan in plans:
        with journal.step_lock() as fence:
            calls = AuditedCalls(journal.audit, fence)
            attempts = partial(_read_attempts, journal, plan)
            leases = ThrottleLeases(cluster, journal, calls, plan, attempts=attempts, who=who)
            leases.release(NO_DEMAND, live)
            refusals += leases.refusals
    if refusals:
        raise refusals[0]


def _leads(rate: ExternalRate) -> bool:
    return rate.side is ThrottleSide.LEADER


def _read_attempts(journal: Journal, plan: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    return {row.topic_partition: row.attempt for row in journal.plans.rows_of(plan, partitions)}


def leased_rates(journal: Journal) -> dict[tuple[int, ThrottleSide], ThrottleLease]:
    """Return the recorded leases of rates, by broker and side. A released rate is no longer recorded."""
    return _rates_among(journal.rows(THROTTLE_LEASES).all())


def _rates_among(rows: Iterable[Row[LeaseKey, ThrottleLease]]) -> dict[tuple[int, ThrottleSide], ThrottleLease]:
    return {(int(row.key.name), _SIDES[row.key.setting]): row.value for row in rows if row.key.setting in _SIDES}


def list_leased_rates(journal: Journal, plans: Collection[str]) -> list[tuple[int, ThrottleSide]]:
    """Return the broker and side of each rate that is recorded as leased by one of these plans, sorted."""
    return [key for key, lease in leased_rates(journal).items() if set(plans) & lease.entries.keys()]


def list_external_rates(journal: Journal, record: PlanRecord) -> list[ExternalRate]:
    """Return the rates of others that apply instead of the plan's as its steps last saw them, sorted.

    A rate that was requested since counts.
    """
    if record.status.finished:
        return []
    leases = {key: lease for key, lease in leased_rates(journal).items() if record.digest in lease.entries}
    stricter = [
        rate
        for rate in stricter_external_rates(record.digest, leases, record.throttle)
        if _leads(rate) or rate.broker not in record.outdone_rates
    ]
    leading = [
        ExternalRate(rate.broker, ThrottleSide.LEADER, rate.bytes_per_s, rate.for_all)
        for rate in record.leader_rates
        if not record.throttle or rate.bytes_per_s < record.throttle
    ]
    return sorted({*stricter, *leading})


def find_stalling_rates(
    cluster: ClusterPort, journal: Journal, snapshot: Snapshot, moves: Sequence[Move], *, throttled: bool
) -> tuple[ExternalRate, ...]:
    """Return the rates of others that throttle these moves: at their leaders, and without a throttle of ours at all.

    A leader's rate may stop a copy entirely, which a follower's does not. Kept replicas that are out of sync have no
    throttle of ours. Raises ClusterError.
    """
    catching_up = {move.topic_partition: find_catching_up(move, snapshot) for move in moves}
    asked = {
        name: move
        for move in moves
        if (move.adding or catching_up[move.topic_partition])
        and (name := move.topic_partition).topic not in snapshot.hidden
    }
    if not asked:
        return ()
    names, external = sorted({name.topic for name in asked}), list[ExternalRate]()
    lists = cluster.topic_configs(names, [side.replicas_key for side in ThrottleSide])
    copies = copies_of(asked.values(), snapshot)
    leading = {copy for copy in copies if lists_leader(lists.get(copy.partition.topic, {}).get(_LEADING), copy)}
    leased = set(list_leased_rates(journal, [record.digest for record in journal.plans.unfinished()]))
    for side in ThrottleSide:
        brokers = set[int]()
        for name, move in asked.items():
            entries = parse_list(lists.get(name.topic, {}).get(side.replicas_key))
            followers = catching_up[name] | (frozenset() if throttled else move.adding)
            brokers |= {
                follower for follower in followers if ALL in entries or f"{name.partition}:{follower}" in entries
            }
        if side is ThrottleSide.LEADER:
            brokers = {copy.leader for copy in leading if copy.leader is not None}
        able = sorted(brokers & snapshot.live)
        rates = cluster.broker_rates(able, [side.rate_key])[side.rate_key] if able else {}
        external += rates_in_force(
            side, {broker: rate for broker, rate in rates.items() if (broker, side) not in leased}
        )
    return tuple(
        limiting_rates([(copy.leader if copy in leading else None, copy.follower) for copy in copies], external, 0)
    )


def _is_relevant_error(error: ClusterError | None) -> bool:
    """Return True for an error that leaves a setting as it is: a deleted topic has none to set or release."""
    return error is not None and not (isinstance(error, KafkaRefused) and error.code == _UNKNOWN_TOPIC)


def _removal_change(key: str, value: str | None, removed: Collection[str], lease: ThrottleLease) -> ConfigChange | None:
    """Return the change that removes our entries from a list; None if there is nothing to remove.

    A list that would be left empty is deleted, unless it was empty before: others have removed what was theirs. So is
    one that is empty already: a process that knew no better subtracted its last entry.
    """
    if value is not None and lease.before != "" and set(parse_list(value)) <= set(removed):
        return ConfigChange(key, ConfigOp.DELETE)
    return ConfigChange(key, ConfigOp.SUBTRACT, ",".join(removed)) if removed else None
