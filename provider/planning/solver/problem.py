"""The planning problem of one shard as arrays: brokers by index, partitions by row, replicas as one flat list.

`row[i]` is the partition and `broker[i]` the broker (an index into the brokers) of replica `i`. Replicas are in
assignment order within their partition, partitions in order of topic and number. No Python object is
made per partition: a shard has tens of thousands, and a cluster a million.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import IntEnum
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafka_steward.assignment import Operation
from kafka_steward.errors import PlanError
from kafka_steward.planning.options import Options

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from kafka_steward.planning.solver.room import RoomRules

Part = TypeVar("Part", bound="DataclassInstance")
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

STATES = ("live", "failed", "draining", "down", "new")

#: More bytes per second than any network carries.
_MOST_RATE = 1e13
#: Pairs of rows and brokers up to which a lookup table is used. The table takes one byte for each pair.
_MANY_PAIRS = 1 << 26


@dataclass(frozen=True)
class Brokers:
    """The brokers in order of their ids. `rack` is -1 for none; `receivers` marks those that may receive a replica.

    `known_rack` is the rack even where the plan is not rack aware. If `own_rack`, each broker without a rack is a rack
    of its own. Otherwise no rack constraint applies to it.
    """

    ids: Ints
    rack: Ints
    state: tuple[str, ...]
    receivers: Bools
    capacity: tuple[Fraction, ...]
    #: The bytes that each log directory may receive, None if they are not known.
    rooms: tuple[tuple[int, ...] | None, ...]
    #: The size of the volume of each log directory, and the bytes of it that are used; None if they are not known.
    disks: tuple[tuple[tuple[int, int], ...] | None, ...]
    own_rack: bool
    known_rack: Ints
    cordoned: Bools
    #: Those that are to lead nothing, and to be the last to take over.
    demoted: Bools
    promoted: Bools

    @classmethod
    def of(cls, table: pa.Table, options: Options) -> Brokers:
        """Return the brokers of a snapshot.

        Raises PlanError if there is no broker, if one appears twice or has an unknown state or an invalid capacity, if
        all have failed, or if an excluded broker is unknown.
        """
        excluded = options.exclude_brokers
        rows = sorted(table.to_pylist(), key=lambda row: row["broker"])
        _refuse_invalid_brokers(rows, excluded)
        racks = sorted({row["rack"] for row in rows if row["rack"] is not None})
        numbers = [racks.index(row["rack"]) if row["rack"] is not None else -1 for row in rows]
        receivers = [row["state"] in ("live", "new") and row["broker"] not in excluded for row in rows]
        rooms = [None if row["room"] is None else tuple(max(room, 0) for room in row["room"]) for row in rows]
        return cls(
            ids=np.array([row["broker"] for row in rows], np.int64),
            rack=np.array(numbers if options.rack_aware else [0] * len(rows), np.int64),
            state=tuple(row["state"] for row in rows),
            receivers=np.array(receivers, bool),
            capacity=_exact_capacities([row["capacity"] for row in rows]),
            rooms=tuple(rooms),
            disks=tuple(_volumes(row["disk_total"], row["disk_used"]) for row in rows),
            own_rack=options.rackless == "own-rack",
            known_rack=np.array(numbers, np.int64),
            cordoned=np.array([bool(row["cordoned"]) for row in rows], bool),
            demoted=np.array([_is_demoted(row, options) for row in rows], bool),
            promoted=np.array([row["broker"] in options.promote for row in rows], bool),
        )

    def __len__(self) -> int:
        return len(self.ids)

    def state_mask(self, *states: str) -> Bools:
        """Return a mask of the brokers in one of the states."""
        return np.array([state in states for state in self.state], bool)

    @property
    def has_equal_capacities(self) -> bool:
        """True if all brokers have the same capacity."""
        return len(set(self.capacity)) == 1

    @property
    def leading(self) -> Bools:
        """A mask of the brokers that share the leaders; those that are demoted only if all are."""
        able = self.receivers & ~self.demoted
        return able if able.any() else self.receivers

    @property
    def usable(self) -> Bools:
        """A mask of the brokers that may hold a replica, even if they receive no further one."""
        return self.state_mask("live", "new")


def _volumes(total: Sequence[int] | None, used: Sequence[int] | None) -> tuple[tuple[int, int], ...] | None:
    return None if total is None or used is None else tuple(zip(total, used, strict=True))


def _is_demoted(row: Mapping[str, object], options: Options) -> bool:
    return (bool(row["demoted"]) or row["broker"] in options.demote) and row["broker"] not in options.promote


def _refuse_invalid_brokers(rows: Sequence[dict[str, object]], excluded: Collection[int]) -> None:
    if not rows:
        raise PlanError("The cluster is empty: the snapshot names no broker.")
    ids = [row["broker"] for row in rows]
    twice = next((broker for broker, following in pairwise(ids) if broker == following), None)
    if twice is not None:
        raise PlanError(f"Broker {twice} is in the snapshot twice; take a new snapshot.")
    for row in rows:
        if row["state"] not in STATES:
            raise PlanError(
                f"Broker {row['broker']} has the unknown state {row['state']!r}; there are {', '.join(STATES)}."
            )
    if all(row["state"] == "failed" for row in rows):
        raise PlanError("Every broker of the snapshot has failed: there is none to place a replica on.")
    unknown = sorted(set(excluded) - set(ids))
    if unknown:
        raise PlanError(f"The option exclude_brokers names broker {unknown[0]}, which the snapshot does not have.")


def _exact_capacities(given: Sequence[float | None]) -> tuple[Fraction, ...]:
    known = [Fraction(value).limit_denominator(10**6) for value in given if value is not None]
    if any(value <= 0 for value in known):
        raise PlanError("A broker's capacity is zero or negative; leave it out, or drain the broker.")
    # A broker without a known capacity counts as an average one.
    usual = sum(known, Fraction(0)) / len(known) if known else Fraction(1)
    return tuple(usual if value is None else Fraction(value).limit_denominator(10**6) for value in given)


@dataclass(frozen=True)
class PartitionTable:
    """Partitions, in order of topic and number. `topic[r]` is an index into `topics`; sizes in bytes, unknown is 0."""

    topics: tuple[str, ...]
    topic: Ints
    number: Ints
    row: Ints
    broker: Ints
    #: Lost replicas on live brokers: their log directories have failed, and they must be replaced.
    lost: Bools
    in_sync: Bools
    in_sync_count: Ints
    leader: Ints
    target_rf: Ints
    #: min.insync.replicas of the topic, 0 if it is not known.
    min_isr: Ints
    size: Ints
    unsized: Bools
    #: The bytes per second that producers bring in, and whether that is assumed; None if not known of any partition.
    bytes_per_s: Ints | None
    rate_assumed: Bools
    moving: Bools
    #: Replicas that the reassignment in flight removes.
    leaving: Bools
    #: Rows that the snapshot knows to have no live replica.
    all_offline: Bools
    #: The number of the log directory that each replica is in, -1 if it is not known.
    directory: Ints
    #: The orders before demotions: rows in ascending order, and in each the brokers. Rows that have changed since.
    before_row: Ints
    before_broker: Ints
    changed_since: Bools

    @classmethod
    def of(cls, table: pa.Table, brokers: Brokers, mean_rate: float | None = None) -> PartitionTable:
        """Return the rows of a table sorted by topic and partition.

        `mean_rate` is that of all partitions of the cluster, None if no rate is known. Raises PlanError that names the
        first invalid partition.
        """
        encoded = table.column("topic").combine_chunks().dictionary_encode()
        encoded = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
        row, ids = _flatten_lists(table, "replicas")
        isr_row, isr = _flatten_lists(table, "isr")
        before_row, before = _flatten_lists(table, "order_before")
        topic = encoded.indices.to_numpy(False).astype(np.int64)
        bytes_per_s, rate_assumed = _rates(table, topic, mean_rate)
        partitions = cls(
            topics=tuple(encoded.dictionary.to_pylist()),
            topic=topic,
            number=_int_column(table, "partition"),
            row=row,
            # An id without a broker gets some index here, and is refused below.
            broker=np.minimum(np.searchsorted(brokers.ids, ids), len(brokers) - 1),
            lost=is_pair_in(row, ids, *_flatten_lists(table, "offline")),
            in_sync=is_pair_in(row, ids, isr_row, isr),
            in_sync_count=np.bincount(isr_row, minlength=len(table)),
            leader=_int_column(table, "leader"),
            target_rf=_int_column(table, "target_rf"),
            min_isr=_int_column(table, "min_isr", 0),
            size=np.maximum(_int_column(table, "bytes"), 0),
            unsized=_int_column(table, "bytes", -1) < 0,
            bytes_per_s=bytes_per_s,
            rate_assumed=rate_assumed,
            moving=(_list_lengths(table, "adding") > 0) | (_list_lengths(table, "removing") > 0),
            leaving=is_pair_in(row, ids, *_flatten_lists(table, "removing")),
            all_offline=np.asarray(pc.fill_null(table.column("all_offline"), False).to_numpy(), bool),
            directory=_directories(table, row),
            before_row=before_row,
            before_broker=np.minimum(np.searchsorted(brokers.ids, before), len(brokers) - 1),
            changed_since=np.asarray(pc.equal(pc.list_value_length(table.column("order_before")), 0).fill_null(False)),
        )
        partitions._refuse_invalid_rows(ids, brokers)
        return partitions

    def _refuse_invalid_rows(self, ids: Ints, brokers: Brokers) -> None:
        # Each loop runs at most once: it raises for the first fault.
        for at in np.flatnonzero((np.diff(self.topic) == 0) & (np.diff(self.number) == 0))[:1]:
            raise PlanError(f"The partition {self.partition_name(at)} is in the snapshot twice; take a new snapshot.")
        order = np.lexsort((ids, self.row))
        for at in order[:-1][(np.diff(self.row[order]) == 0) & (np.diff(ids[order]) == 0)][:1]:
            raise PlanError(
                f"The partition {self.partition_name(self.row[at])} lists broker {ids[at]} twice; correct its "
                "assignment."
            )
        for at in np.flatnonzero(self.replica_count == 0)[:1]:
            raise PlanError(f"The partition {self.partition_name(at)} has no replica at all; take a new snapshot.")
        for at in np.flatnonzero(brokers.ids[self.broker] != ids)[:1]:
            name = self.partition_name(self.row[at])
            raise PlanError(f"The partition {name} is on broker {ids[at]}, which the snapshot does not have.")
        for at in np.flatnonzero(self.target_rf < 1)[:1]:
            factor = self.target_rf[at]
            raise PlanError(
                f"The partition {self.partition_name(at)} has the replication factor {factor}; it must be at least 1."
            )

    def __len__(self) -> int:
        return len(self.topic)

    @cached_property
    def row_starts(self) -> Ints:
        """The start of each row's replicas, followed by the end of the last row's replicas."""
        return np.searchsorted(self.row, np.arange(len(self) + 1))

    @cached_property
    def replica_count(self) -> Ints:
        """The number of replicas of each row."""
        return np.diff(self.row_starts)

    @cached_property
    def replica_positions(self) -> Ints:
        """Each replica's position in its row; 0 is the preferred leader."""
        return positions_within(self.replica_count)

    @cached_property
    def behind(self) -> Bools:
        """A mask of the replicas that are out of sync; an ISR that is not known contains all."""
        return np.asarray(~self.in_sync & (self.in_sync_count > 0)[self.row], bool)

    def partition_name(self, row: int) -> str:
        """Return the row's display name, such as `orders-7`."""
        return f"{self.topics[self.topic[row]]}-{self.number[row]}"


@dataclass(frozen=True)
class Problem:
    """The planning problem of one shard."""

    rows: PartitionTable
    brokers: Brokers
    operation: Operation
    options: Options
    #: The rules by which replicas are placed within the room there is; None if room is not looked at.
    room_rules: RoomRules | None = None
    #: A mask of the rows of an even plan that stay as they are because there is no room for them.
    no_room: Bools | None = None


class Disposition(IntEnum):
    """The planned treatment of a partition. Values after PLANNED are reasons not to make a change that it needs."""

    UNTOUCHED = 0
    PLANNED = 1
    #: Moving it would lose its data permanently.
    ALL_REPLICAS_LOST = 2
    #: A replica is live, and none may lead: a move would wait for a leader to copy from.
    NO_LEADER = 3
    #: Fewer brokers are left than the partition is to have replicas. A move that keeps a dead broker would stall.
    TOO_FEW_BROKERS = 4
    #: It would get fewer replicas than min.insync.replicas, and fewer than it has.
    BELOW_MIN_ISR = 5
    #: A reassignment of it is in flight.
    IN_FLIGHT = 6
    PINNED = 7
    EXCLUDED = 8
    #: A live replica of it is out of sync. Kafka completes a move only once all its replicas are in sync.
    OUT_OF_SYNC = 9
    #: With the plan's other moves, no broker that may receive it has room for it.
    NO_ROOM = 10
    #: None of its replicas may lead it: those in sync are not on a usable broker.
    NO_CANDIDATE = 11

    @property
    def reason_word(self) -> str:
        """The reason, as `unplaced` and `pinned` of a proof contain it."""
        return self.name.lower()


def static_dispositions(problem: Problem) -> Ints:
    """Return EXCLUDED, PINNED or IN_FLIGHT where the options alone decide, and UNTOUCHED elsewhere."""
    rows, options = problem.rows, problem.options
    excluded = np.array([not options.takes(name, problem.operation) for name in rows.topics], bool)
    disposition = np.where(rows.moving, Disposition.IN_FLIGHT, Disposition.UNTOUCHED)
    disposition[excluded[rows.topic]] = Disposition.EXCLUDED
    disposition[_pinned_rows(rows, options.pin)] = Disposition.PINNED
    return disposition


def leaderless_dispositions(problem: Problem) -> Ints:
    """Return ALL_REPLICAS_LOST or NO_LEADER for rows without a replica to copy from, and UNTOUCHED elsewhere."""
    rows = problem.rows
    live = ~problem.brokers.state_mask("failed")[rows.broker] & ~rows.lost
    none_live = rows.all_offline | (np.bincount(rows.row[live], minlength=len(rows)) == 0)
    reasons = [Disposition.ALL_REPLICAS_LOST, Disposition.NO_LEADER]
    return np.select([none_live, rows.leader < 0], reasons, Disposition.UNTOUCHED)


def held_dispositions(problem: Problem) -> Ints:
    """Return the disposition of each row that no search for balance may touch, and UNTOUCHED elsewhere."""
    by_options = static_dispositions(problem)
    return np.where(by_options == Disposition.UNTOUCHED, leaderless_dispositions(problem), by_options)


def rows_that_lag(problem: Problem) -> Bools:
    """Return a mask of the rows with a replica out of sync on a broker that may keep it."""
    rows = problem.rows
    lags = rows.behind & ~rows.lost & problem.brokers.usable[rows.broker]
    return np.asarray(np.bincount(rows.row[lags], minlength=len(rows)) > 0, bool)


def free_brokers(problem: Problem, kept: Bools) -> Ints:
    """Return the number of brokers that may receive a replica of each row, which keeps its `kept` replicas."""
    rows, brokers = problem.rows, problem.brokers
    on_target = (kept | rows.lost) & brokers.receivers[rows.broker]
    return np.asarray(int(brokers.receivers.sum()) - np.bincount(rows.row[on_target], minlength=len(rows)), np.int64)


def dispositions(problem: Problem, missing: Ints, room: Ints, changes: Bools) -> Ints:
    """Return each row's disposition if `missing` replicas are to be added, and `room` brokers could receive one.

    `changes` marks rows that change even if nothing is missing.
    """
    decided, leaderless = static_dispositions(problem), leaderless_dispositions(problem)
    disposition = np.where(decided != Disposition.UNTOUCHED, decided, Disposition.PLANNED)
    # A partition that is being reassigned stands on more brokers than it is to have: they are not too few.
    disposition[(missing > room) & (decided == Disposition.UNTOUCHED)] = Disposition.TOO_FEW_BROKERS
    disposition = np.where(leaderless != Disposition.UNTOUCHED, leaderless, disposition)
    disposition[(missing == 0) & ~changes] = Disposition.UNTOUCHED
    return disposition


def _pinned_rows(rows: PartitionTable, names: Sequence[str]) -> Ints:
    wanted = set(names)
    topics = {name.rsplit("-", 1)[0] for name in wanted}
    # Names are built only for rows of the named topics: there may be a million rows.
    near = np.array([topic in topics for topic in rows.topics], bool)
    return np.array(
        [row for row in np.flatnonzero(near[rows.topic]) if rows.partition_name(int(row)) in wanted], np.int64
    )


def is_pair_in(row: Ints, value: Ints, other_row: Ints, other_value: Ints) -> Bools:
    """Return a mask of the pairs (row, value) that are among the pairs (other_row, other_value)."""
    values = 1 + max(int(value.max(initial=0)), int(other_value.max(initial=0)))
    size = values * (1 + max(int(row.max(initial=0)), int(other_row.max(initial=0))))
    pairs, other_pairs = row * values + value, other_row * values + other_value
    if size > _MANY_PAIRS:
        # `np.isin` hashes such numbers (numpy 2.3 and later), which takes ten times as long as this.
        known = np.append(np.sort(other_pairs), size)
        return np.asarray(known[np.searchsorted(known, pairs)] == pairs, bool)
    # A table of all pairs takes a fraction of the time that sorting takes.
    lookup = np.zeros(size, bool)
    lookup[other_pairs] = True
    return np.asarray(lookup[pairs], bool)


def equal_pairs(left: Ints, right: Ints) -> tuple[Ints, Ints]:
    """Return the indices of all pairs of equal values, in order of the left."""
    order = np.argsort(right, kind="stable")
    first = np.searchsorted(right[order], left, "left")
    count = np.searchsorted(right[order], left, "right") - first
    return np.repeat(np.arange(len(left)), count), order[np.repeat(first, count) + positions_within(count)]


def positions_within(counts: Ints) -> Ints:
    """Return 0 to n - 1 for each n in `counts`, in one array."""
    return np.arange(int(counts.sum()), dtype=np.int64) - np.repeat(np.cumsum(counts) - counts, counts)


def count_pairs(row: Ints, column: Ints, shape: tuple[int, int]) -> Ints:
    """Return a table of that shape with the number of times that each pair (row, column) occurs."""
    return np.bincount(row * shape[1] + column, minlength=shape[0] * shape[1]).reshape(shape)


def sum_by(values: Ints, index: Ints, count: int) -> Ints:
    """Return for each index below `count` the sum of its values, row by row if `values` is a table."""
    # Not bincount, whose weights are floats: byte counts exceed what those hold exactly.
    sums = np.zeros((count, *values.shape[1:]), np.int64)
    np.add.at(sums, index, values)
    return sums


def find_in_order(wanted: Ints, values: Ints) -> Ints:
    """Return where each of the `wanted` values stands in `values`, which are distinct and contain all of them."""
    order = np.argsort(values)
    return order[np.searchsorted(values[order], wanted)]


def combine_shards(
    parts: Sequence[Part], *, summed: Collection[str] | None = None, shifts: Mapping[str, Sequence[int]] | None = None
) -> Part:
    """Return the dataclasses of all shards as one, in the order of the shards.

    Lists are joined, and other values summed. If only some fields are `summed`, the arrays of all other fields are
    joined; `shifts` has, by field, how many numbers come before those of each shard, which count on.
    """
    columns = {field.name: [getattr(part, field.name) for part in parts] for field in fields(parts[0])}
    for name, before in (shifts or {}).items():
        columns[name] = [column + first for column, first in zip(columns[name], before, strict=False)]
    joined = set() if summed is None else columns.keys() - summed
    return replace(parts[0], **{name: _combine_values(values, join=name in joined) for name, values in columns.items()})


def _combine_values(values: list[Any], *, join: bool) -> Any:
    if isinstance(values[0], list):
        return [item for value in values for item in value]
    if isinstance(values[0], dict):
        keys = dict.fromkeys(key for value in values for key in value)
        return {key: sum(value.get(key, 0) for value in values) for key in keys}
    if join:
        return np.concatenate(values)
    return combine_shards(values) if is_dataclass(values[0]) else sum(values)


def positions_in(chosen: Ints, total: int) -> Ints:
    """Return for each of `total` indices its position in `chosen`, or -1 if it is not chosen."""
    number = np.full(total, -1)
    number[chosen] = np.arange(len(chosen))
    return number


def find_mean_rate(partitions: pa.Table) -> float | None:
    """Return the mean of the rates that are known of a snapshot's partitions, None if there is none."""
    column = partitions.column("bytes_per_s")
    if column.null_count == len(column):
        return None
    rates = column.drop_null().to_numpy()
    rates = rates[_is_rate(rates)]
    return float(rates.mean()) if len(rates) else None


def _rates(table: pa.Table, topic: Ints, mean: float | None) -> tuple[Ints | None, Bools]:
    """Return the rates of a table's rows, in whole bytes per second, and a mask of those that are assumed.

    A partition of unknown rate counts as the mean of its topic, or if that has none, as the `mean` of the cluster.
    """
    if mean is None:
        return None, np.ones(len(topic), bool)
    rates = pc.fill_null(table.column("bytes_per_s"), -1.0).to_numpy()
    known = _is_rate(rates)
    topics = int(topic.max(initial=-1)) + 1
    count = np.bincount(topic[known], minlength=topics)
    usual = np.where(count, np.bincount(topic[known], rates[known], topics) / np.maximum(count, 1), mean)
    return np.rint(np.where(known, rates, usual[topic])).astype(np.int64), ~known


def _is_rate(values: Floats) -> Bools:
    return np.asarray((values >= 0) & (values < _MOST_RATE), bool)


def _int_column(table: pa.Table, name: str, unknown: int = 0) -> Ints:
    column = pc.fill_null(table.column(name).cast(pa.int64()), unknown)
    return np.asarray(column.to_numpy(), dtype=np.int64)


def _list_lengths(table: pa.Table, name: str) -> Ints:
    return np.asarray(pc.fill_null(pc.list_value_length(table.column(name)), 0).to_numpy(), dtype=np.int64)


def _directories(table: pa.Table, row: Ints) -> Ints:
    """Return the number of the log directory of each replica."""
    found, known = np.zeros(len(row), np.int64), _list_lengths(table, "log_dirs")
    for at in np.flatnonzero((known > 0) & (known != _list_lengths(table, "replicas")))[:1].tolist():
        topic, number = (table.column(name)[at].as_py() for name in ("topic", "partition"))
        raise PlanError(f"The partition {topic}-{number} has more or fewer log directories than replicas.")
    found[(known > 0)[row]] = _flatten_lists(table, "log_dirs")[1]
    return found


def _flatten_lists(table: pa.Table, name: str) -> tuple[Ints, Ints]:
    owner = np.repeat(np.arange(table.num_rows, dtype=np.int64), _list_lengths(table, name))
    return owner, np.asarray(pc.list_flatten(table.column(name)).to_numpy(), dtype=np.int64)
