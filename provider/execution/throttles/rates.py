"""The throttles that the moves of a plan need at one moment, and the rate of each broker (KIP-73). Pure.

A throttle has two parts. Each topic lists the replicas that are throttled, `partition:broker`, or `*` for all; each
broker has a rate. Only the followers' list is needed: a replica in the *leaders'* list throttles every follower that
fetches it out of sync, and therefore also the ordinary catch-up of a broker that has just restarted (33 s instead of
2.6 s).

Entries that were already present are not ours and are never removed.

While plans move replicas, a broker gets the strictest of the plans' rates and of the external rate that was set before
them. An external rate that is set later stays unchanged for as long as it exists. When it is cleared, our rate is set
again, and the original external rate counts as withdrawn: a cleared rate is not restored. A rate that we set before and
that shows again counts as ours: a broker may report a change late, and another tool may restore the value it found.

A broker without an external rate of its own has the rate that is set for all brokers. A rate of ours would hide it. So
none is set while the rate for all brokers is at least as strict, whenever that was set, and ours is taken back. Where
it is looser, ours stays.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import chain
from typing import Any

from kafka_steward.assignment import Move, TopicPartition, begin_with_brokers, counted
from kafka_steward.cluster.configs import BrokerRate, ConfigChange, ConfigOp, parse_list
from kafka_steward.cluster.state import Snapshot
from kafka_steward.commands import connection_options
from kafka_steward.journal.records import ThrottleLease

#: Kafka's list entry for all replicas of a topic.
ALL = "*"


class ThrottleSide(StrEnum):
    """The throttled side of replication."""

    FOLLOWER = "follower"
    LEADER = "leader"

    @property
    def replicas_key(self) -> str:
        """The topic setting with the list of throttled replicas."""
        return f"{self.value}.replication.throttled.replicas"

    @property
    def rate_key(self) -> str:
        """The broker setting with the rate, in bytes per second."""
        return f"{self.value}.replication.throttled.rate"


@dataclass(frozen=True, slots=True, order=True)
class ExternalRate:
    """A rate of another client that applies at `broker`; with `for_all`, it is the one that is set for all brokers."""

    broker: int
    side: ThrottleSide
    bytes_per_s: int
    for_all: bool = False
    #: Where moves are not begun: the partitions that the broker leads and a leader's rate throttles, or of whose
    #: replicas out of sync a list names the one on this broker, which a follower's rate throttles.
    partitions: frozenset[TopicPartition] = field(default=frozenset(), compare=False, repr=False)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        named = {"broker": self.broker, "key": self.side.rate_key, "bytes_per_s": self.bytes_per_s}
        return named | {"for_all_brokers": self.for_all}


def rates_in_force(side: ThrottleSide, rates: Mapping[int, BrokerRate]) -> list[ExternalRate]:
    """Return the rates that apply at brokers where no plan has set its own. Pure."""
    return [
        ExternalRate(broker, side, int(applies), rate.own is None)
        for broker, rate in rates.items()
        if (applies := rate.own or rate.inherited) is not None
    ]


@dataclass(frozen=True, slots=True)
class Copy:
    """A replica that is copied to `follower` from `leader`, None while there is none."""

    partition: TopicPartition
    leader: int | None
    follower: int


def find_catching_up(move: Move, snapshot: Snapshot) -> frozenset[int]:
    """Return the live brokers of kept replicas that are out of sync: Kafka completes no move without them. Pure."""
    partition = snapshot.partitions.get(move.topic_partition)
    if partition is None:
        return frozenset()
    return (frozenset(move.after) & snapshot.live) - move.adding - partition.isr - partition.offline


def copies_of(moves: Iterable[Move], snapshot: Snapshot) -> list[Copy]:
    """Return what these moves copy in a cluster of this state, and what they wait for. Pure."""
    pairs = ((move, snapshot.partitions.get(move.topic_partition)) for move in moves)
    return [
        Copy(move.topic_partition, partition.leader if partition else None, follower)
        for move, partition in pairs
        for follower in sorted(move.adding | find_catching_up(move, snapshot))
    ]


def lists_leader(value: str | None, copy: Copy) -> bool:
    """Return True if the list of throttled replicas, of leaders, names the leader from which this is copied. Pure."""
    entries = parse_list(value)
    return copy.leader is not None and (ALL in entries or f"{copy.partition.partition}:{copy.leader}" in entries)


def limiting_rates(
    copies: Iterable[tuple[int | None, int]], rates: Iterable[ExternalRate], throttle: int
) -> list[ExternalRate]:
    """Return those of `rates` that limit a copy, sorted. Pure.

    Of a leader's and its follower's rate, the stricter one limits, if it is stricter than `throttle`; 0 for none. A
    copy is a leader, None where no list names it, and a follower.
    """
    known: dict[tuple[int | None, ThrottleSide], ExternalRate] = {(rate.broker, rate.side): rate for rate in rates}
    limiting = set[ExternalRate]()
    for leader, follower in set(copies):
        ends = (known.get((follower, ThrottleSide.FOLLOWER)), known.get((leader, ThrottleSide.LEADER)))
        here = [rate for rate in ends if rate is not None]
        least = min((rate.bytes_per_s for rate in here), default=0)
        limiting.update(rate for rate in here if rate.bytes_per_s == least and (not throttle or least < throttle))
    return sorted(limiting)


def stricter_rates(moves: Sequence[Move], rates: Sequence[ExternalRate], throttle: int) -> list[ExternalRate]:
    """Return the rates of others that limit the moves more than `throttle`: of followers and of leaders. Pure.

    A replica that stays and is out of sync has no throttle of ours: a rate of others limits it in any case.
    """
    senders = throttled_leaders(rates)
    copies = {(senders.get(move.topic_partition), broker) for move in moves for broker in move.adding}
    kept = {(senders.get(move.topic_partition), broker) for move in moves for broker in throttled_kept(move, rates)}
    return sorted({*(limiting_rates(copies, rates, throttle) if throttle else ()), *limiting_rates(kept, rates, 0)})


def throttled_kept(move: Move, rates: Sequence[ExternalRate]) -> list[int]:
    """Return the brokers of replicas that stay and are out of sync, and that a rate of others throttles."""
    return [
        rate.broker
        for rate in rates
        if rate.side is ThrottleSide.FOLLOWER
        and move.topic_partition in rate.partitions
        and rate.broker in frozenset(move.after) - move.adding
    ]


def throttled_leaders(rates: Sequence[ExternalRate]) -> dict[TopicPartition, int]:
    """Return the leaders of the partitions that a leader's rate throttles. Pure."""
    return {name: rate.broker for rate in rates if rate.side is ThrottleSide.LEADER for name in rate.partitions}


def is_slower_than(seconds: float, rates: Iterable[ExternalRate], copies: Mapping[Copy, int]) -> bool:
    """Return True if `rates` of others may not let what is left of `copies`, in bytes, through in `seconds`. Pure.

    What Kafka's fetches exceed anyhow does not slow a follower; it may stop the copies of a leader.
    """
    for rate in rates:
        leads = rate.side is ThrottleSide.LEADER
        left = [size for copy, size in copies.items() if (copy.leader if leads else copy.follower) == rate.broker]
        anyhow = len(left) * UNLIMITED_BYTES_PER_S
        if left and ((leads and rate.bytes_per_s < anyhow) or sum(left) > seconds * max(rate.bytes_per_s, anyhow)):
            return True
    return False


#: Rates that a message about a plan names; the others are only counted.
_NAMED = 2


#: The options by which Kafka's tools connect, where the servers are not known: whoever runs the command names them.
UNKNOWN_SERVERS = "--bootstrap-server HOST:PORT"


def live_connection(snapshot: Snapshot, *, secured: bool) -> str:
    """Return the options by which Kafka's tools connect to live brokers of a cluster, `secured` or not. Pure."""
    servers = [broker.address for broker in map(snapshot.brokers.get, sorted(snapshot.live)) if broker]
    return connection_options(servers, secured=secured) if servers else UNKNOWN_SERVERS


def external_rates_lines(
    rates: Sequence[ExternalRate], throttle: int, *, whose: str = "this plan's", connection: str = UNKNOWN_SERVERS
) -> list[str]:
    """Return which rates of other clients apply instead of `throttle`, in bytes per second, and how to end that.

    With a `throttle` of 0, they slow moves all the same. `whose` says whose throttle it is, and
    `connection` is as in `configs_command`. Empty without rates.
    """
    alike = _group_rates(rates)
    parts = []
    for (side, bytes_per_s, for_all), brokers in list(alike.items())[:_NAMED]:
        command = removal_command("" if for_all else str(brokers[0]), "brokers", side.rate_key, connection)
        also = "" if for_all or len(brokers) == 1 else ", and so for each"
        effect = f"it slows {whose} copies from there" if side is ThrottleSide.LEADER else _NOT_APPLIED
        effect = effect.format(whose=whose, throttle=throttle) if throttle else "it slows moves of this plan"
        named = _name_rate(side, bytes_per_s, brokers, for_all=for_all)
        parts.append(f"{named}: {effect}; to end that: {command}{also}.")
    more = len(alike) - _NAMED
    return [*parts, *([f"{counted(more, 'more such rate', 'applies', 'apply')}."] if more > 0 else [])]


def external_rates_message(
    rates: Sequence[ExternalRate], throttle: int, *, whose: str = "this plan's", connection: str = UNKNOWN_SERVERS
) -> str:
    """Return the same as one text."""
    return " ".join(external_rates_lines(rates, throttle, whose=whose, connection=connection))


def names_rates(text: str, rates: Sequence[ExternalRate]) -> bool:
    """Return True if a text has the message about these rates already, whatever throttle and servers it names."""
    alike = list(_group_rates(rates).items())[:_NAMED]
    return all(_name_rate(side, rate, brokers, for_all=for_all) in text for (side, rate, for_all), brokers in alike)


def _group_rates(rates: Sequence[ExternalRate]) -> dict[tuple[ThrottleSide, int, bool], list[int]]:
    """Return the brokers of each rate, the strictest first: messages name only a few."""
    alike: dict[tuple[ThrottleSide, int, bool], list[int]] = {}
    for rate in sorted(rates, key=lambda rate: (rate.bytes_per_s, rate)):
        alike.setdefault((rate.side, rate.bytes_per_s, rate.for_all), []).append(rate.broker)
    return alike


def _name_rate(side: ThrottleSide, bytes_per_s: int, brokers: Sequence[int], *, for_all: bool) -> str:
    where = "set for all brokers" if for_all else "set"
    begin = begin_with_brokers(brokers, "has", "have")
    return f"{begin} {side.rate_key} {rate_text(bytes_per_s)}, {where} by someone else"


_NOT_APPLIED = "{whose} {throttle:,} bytes/s do not apply there"


def rate_text(bytes_per_s: int) -> str:
    """Return a rate as messages name it: `20,000,000 bytes/s`."""
    return "1 byte/s" if bytes_per_s == 1 else f"{bytes_per_s:,} bytes/s"


def removal_command(name: str, kind: str, key: str, connection: str) -> str:
    """Return the command of Kafka's tools that removes a setting; `kind` is topics or brokers, no `name` is for all."""
    entity = f"--entity-name {shlex.quote(name)}" if name else "--entity-default"
    return configs_command(f"--entity-type {kind} {entity} --delete-config {key}", connection)


def configs_command(words: str, connection: str) -> str:
    """Return the command of Kafka's tools that changes settings; `connection` are the options by which it connects."""
    return f"kafka-configs.sh {connection} --alter {words}"


#: The bytes per second that pass a throttle for each partition: one fetch of replica.fetch.max.bytes, 1 MB by default,
#: in each of the quota's windows, 11 s together (KIP-73).
UNLIMITED_BYTES_PER_S = 90_000


#: When a throttle of ours on a broker that is down is removed: not before one of these runs.
RELEASED_LATER = "released on return, by the watch, the next run of heal, or the command verify"


def ineffective_message(throttle: int, at_once: int = 1) -> str:
    """Return that a throttle limits nothing while `at_once` partitions move into one broker; empty if it does."""
    least, at_once = UNLIMITED_BYTES_PER_S // 1000, max(1, at_once)
    if not 0 < throttle < at_once * UNLIMITED_BYTES_PER_S:
        return ""
    now = f" ({at_once} move into one now: {at_once * least} kB/s)" if at_once > 1 else ""
    return (
        f"{throttle:,} bytes/s limit nothing: for each partition that moves into a broker, Kafka lets about {least} "
        f"kB/s through, one fetch of up to replica.fetch.max.bytes per quota window of 11 s{now}."
    )


@dataclass(frozen=True)
class ThrottleDemand:
    """The throttles that moves need: list entries by (topic, side), and the (broker, side) pairs that need a rate."""

    entries: Mapping[tuple[str, ThrottleSide], frozenset[str]]
    brokers: frozenset[tuple[int, ThrottleSide]]


#: The throttles of a finished plan: none.
NO_DEMAND = ThrottleDemand({}, frozenset())


def throttle_demand(copying: Iterable[Move], ahead: Iterable[Move] = (), *, leaders: bool = False) -> ThrottleDemand:
    """Return the throttles that `copying` moves need.

    `ahead` are moves that are not submitted yet: they need no list entry, but the rate of their brokers is kept. With
    `leaders`, the sending side is throttled too, as other reassignment tools do; that slows ordinary replica catch-up.
    """
    copying, entries = list(copying), dict[tuple[str, ThrottleSide], set[str]]()
    for move in copying:
        for side, brokers in _throttled_brokers_by_side(move, leaders):
            entries.setdefault((move.topic, side), set()).update(f"{move.partition}:{broker}" for broker in brokers)
    rates = {
        (broker, side)
        for move in chain(copying, ahead)
        for side, brokers in _throttled_brokers_by_side(move, leaders)
        for broker in brokers
    }
    return ThrottleDemand({key: frozenset(listed) for key, listed in entries.items() if listed}, frozenset(rates))


def _throttled_brokers_by_side(move: Move, leaders: bool) -> list[tuple[ThrottleSide, Collection[int]]]:
    if not move.adding:
        return []
    receiving: list[tuple[ThrottleSide, Collection[int]]] = [(ThrottleSide.FOLLOWER, sorted(move.adding))]
    return [*receiving, (ThrottleSide.LEADER, move.before)] if leaders else receiving


#: The number of our own earlier rates that are stored for one broker.
_REMEMBERED = 20


def decide_rate(
    known: ThrottleLease | None, plan: str, rate: str | None, now: str | None, inherited: str | None = None
) -> tuple[ThrottleLease | None, str | None]:
    """Return the throttle lease to store for a broker, and the rate that is to be set on it; None for none.

    `known` is the stored lease. `rate` is the rate that `plan` requests, None for the rate that it requested before.
    `now` is the broker's current rate, None if none is set on the broker, and `inherited` the one that applies then,
    None if there is none. All rates are in bytes per second. The lease has a rate of ours if the broker is to have it.
    """
    lease = known or ThrottleLease(now, None)
    if rate is None and plan not in lease.entries:
        return known, now
    entries = dict(lease.entries) if rate is None else {**lease.entries, plan: (rate,)}
    lease = replace(lease, entries=entries)
    asked = min((int(rates[0]) for rates in entries.values() if rates), default=None)
    if asked is None:
        return lease, now
    if now is None or (lease.ours is None and now not in lease.earlier):
        lease = replace(lease, before=now)
    elif now not in {lease.ours, lease.before, *lease.earlier}:
        if int(now) <= asked or str(asked) == lease.ours:
            return lease, now
        lease = replace(lease, before=now)  # a stricter rate was requested after the external one was set
    without_us = inherited if lease.before is None else lease.before
    if without_us is not None and int(without_us) <= asked:
        return _with_own_rate(lease, None), lease.before  # what applies without us is at least as strict
    return _with_own_rate(lease, str(asked)), str(asked)


def note_external(lease: ThrottleLease, wanted: str | None, inherited: str | None) -> ThrottleLease:
    """Return the lease with the rate of others that applies without ours; arguments as in `decide_rate`'s results."""
    own = lease.before if wanted is None or wanted == lease.ours else wanted
    return replace(lease, external=own or inherited, external_for_all=own is None and inherited is not None)


def stricter_external_rates(
    plan: str, leases: Mapping[tuple[int, ThrottleSide], ThrottleLease], throttle: int | None = None
) -> list[ExternalRate]:
    """Return the rates of others that are stricter than the one that `plan` requests, sorted.

    `throttle` replaces the rates that the plan requested before, in bytes per second.
    """
    stricter = []
    for (broker, side), lease in leases.items():
        requested = [throttle] if throttle is not None else [int(rate) for rate in lease.entries.get(plan, ())]
        if lease.external is not None and requested and int(lease.external) < requested[0]:
            stricter.append(ExternalRate(broker, side, int(lease.external), lease.external_for_all))
    return sorted(stricter)


def lease_late_rate(known: ThrottleLease | None, plan: str, rate: str, before: str | None) -> ThrottleLease:
    """Return the lease to store if `rate` was set for a plan that had released its lease in the meantime."""
    if known is None:
        return ThrottleLease(before, rate, {plan: (rate,)})
    earlier = _unique_rates((*known.earlier, rate), known.ours)
    return replace(known, entries={**known.entries, plan: known.entries.get(plan, (rate,))}, earlier=earlier)


def _with_own_rate(lease: ThrottleLease, ours: str | None) -> ThrottleLease:
    earlier = _unique_rates((*lease.earlier, *filter(None, (lease.ours,))), ours)
    return replace(lease, ours=ours, earlier=earlier)


def _unique_rates(rates: tuple[str, ...], but: str | None) -> tuple[str, ...]:
    return tuple(dict.fromkeys(rate for rate in rates if rate != but))[-_REMEMBERED:]


def missing_entries(value: str | None, wanted: Collection[str]) -> tuple[str, ...]:
    """Return the elements of `wanted` that are missing in the list; empty if it is `*`: Kafka refuses both together."""
    present = parse_list(value)
    return () if ALL in present else tuple(entry for entry in wanted if entry not in present)


def rate_restoring_change(now: str | None, lease: ThrottleLease, key: str) -> ConfigChange | None:
    """Return the change that restores a leased rate.

    None if we have set none, or if another client has changed it since: it is not ours then. An earlier rate of ours
    that still shows is ours. A rate that shows the previous value while ours is set is restored all the same: a broker
    shows a change a moment after it was made. Our own change may still be on its way, and would then never be removed.
    """
    removable = {*lease.earlier, *((lease.ours, lease.before) if lease.ours is not None else ())}
    return rate_change(lease.before, key) if now in removable else None


def rate_change(rate: str | None, key: str) -> ConfigChange:
    """Return the change that sets a broker's own rate; None deletes it."""
    return ConfigChange(key, ConfigOp.DELETE) if rate is None else ConfigChange(key, ConfigOp.SET, rate)
