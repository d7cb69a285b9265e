"""Judge whether a plan fits into the log directories of its brokers, and whether what it leaves out would not fit.

Written from the definition, without the planner's code: on a broker with one log directory, each replica must fit when
its move's turn comes, after what earlier moves brought there and took away. On a broker with several, all that it
receives must fit in whatever order Kafka fills them: the last replica still finds a directory with room for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from kafka_steward.planning.checker.relief import VolumesLeft


@dataclass(frozen=True)
class RoomLeft:
    """The bytes that are left on each broker with one log directory once the plan has been carried out.

    Brokers whose room is not known have no limit. Those with several directories are in `unjudged`: it depends on the
    order how much room is left there.
    """

    bytes_left: Mapping[int, int] = field(default_factory=dict)
    unjudged: frozenset[int] = frozenset()
    #: What the plan does to the volumes, if it is a relief.
    volumes: VolumesLeft | None = None

    def surely_takes(self, broker: int, size: int | None) -> bool:
        """Return True if the broker could take one more replica of `size` bytes."""
        return broker not in self.unjudged and (size or 0) <= self.bytes_left.get(broker, size or 0)


#: Every broker has room for everything.
NO_LIMIT = RoomLeft()


def room_left(brokers: pa.Table, rows: pa.Table, volumes: VolumesLeft | None = None) -> RoomLeft:
    """Return the room that a plan's `rows` leave; `volumes` is what a relief does to them."""
    rooms = _rooms(brokers)
    left = {broker: room[0] for broker, room in rooms.items() if len(room) == 1}
    for column, sign in (("adding", -1), ("removing", 1)):
        for broker, size in _ends(rows, column):
            if broker in left:
                left[broker] += sign * size
    return RoomLeft(left, frozenset(broker for broker, room in rooms.items() if len(room) != 1), volumes)


def room_problems(brokers: pa.Table, partitions: pa.Table, rows: pa.Table, proof: Mapping[str, Any]) -> Iterator[str]:
    """Yield a problem for each broker that a plan overfills, and one if it says in vain that room limits it."""
    rooms = _rooms(brokers)
    yield from _overfilled(rooms, rows)
    if proof.get("limited_by_room"):
        largest = pc.max(partitions["bytes"]).as_py() or 0
        left, receivers = room_left(brokers, rows), _receivers(brokers, proof)
        if receivers and all(left.surely_takes(broker, largest) for broker in receivers):
            yield "The proof says that room limits the plan, and each broker has room for one more of any partition."


def _rooms(brokers: pa.Table) -> dict[int, Sequence[int]]:
    return {
        row["broker"]: row["room"] for row in brokers.select(["broker", "room"]).to_pylist() if row["room"] is not None
    }


def _receivers(brokers: pa.Table, proof: Mapping[str, Any]) -> frozenset[int]:
    excluded = frozenset((proof.get("options") or {}).get("exclude_brokers") or ())
    rows = brokers.select(["broker", "state", "cordoned"]).to_pylist()
    able = frozenset(row["broker"] for row in rows if row["state"] in ("live", "new") and not row["cordoned"])
    return able - excluded


def _ends(rows: pa.Table, column: str) -> Iterator[tuple[int, int]]:
    """Yield broker and bytes of each replica in a column of a plan."""
    lists = rows[column].combine_chunks()
    sizes = rows["bytes"].fill_null(0).take(pc.list_parent_indices(lists))
    return zip(pc.list_flatten(lists).to_pylist(), sizes.to_pylist(), strict=True)


def _overfilled(rooms: Mapping[int, Sequence[int]], rows: pa.Table) -> Iterator[str]:
    coming = defaultdict[int, list[int]](list)
    for broker, size in _ends(rows, "adding"):
        coming[broker].append(size)
    tight = {}
    for broker, sizes in sorted(coming.items()):
        room = rooms.get(broker)
        # Brokers that have room for all that comes need no look at the order.
        if room is None or fit_in_every_order(room, sizes):
            continue
        if len(room) == 1:
            tight[broker] = room[0]
        else:
            yield (
                f"Broker {broker} would receive {sum(sizes)} bytes, and its log directories have room for "
                f"{list(room)}: they do not fit in every order."
            )
    yield from _overfilled_in_turn(tight, rows)


def fit_in_every_order(room: Sequence[int], sizes: Sequence[int]) -> bool:
    """Return True if replicas of these sizes fit into the `room` of log directories in whatever order they come."""
    largest = max(sizes)
    spare = [free - largest for free in room if free >= largest]
    return bool(spare) and sum(sizes) <= sum(spare) + largest


def _overfilled_in_turn(free: dict[int, int], rows: pa.Table) -> Iterator[str]:
    """Yield a problem for the first move of the plan's order that each broker has no room for."""
    faults = dict[int, str]()
    for row in rows.select(["topic", "partition", "adding", "removing", "bytes"]).to_pylist() if free else ():
        name, size = f"{row['topic']}-{row['partition']}", row["bytes"] or 0
        for broker in free.keys() & set(row["adding"]):
            if size > free[broker]:
                fault = f"Broker {broker} has room for {max(free[broker], 0)} bytes when {name} comes with {size}."
                faults.setdefault(broker, fault)
            free[broker] -= size
        for broker in free.keys() & set(row["removing"]):
            free[broker] += size
    yield from faults.values()
