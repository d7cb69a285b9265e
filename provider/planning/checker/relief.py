"""Judge whether a relief moves only what full volumes must give away, and leaves no more than it has to.

Written from the definition, without the planner's code. A volume is full if more than `max_used` of it is used. A
replica may leave only a full volume, and none may leave that the others suffice without. No broker receives more than
its volumes take below the threshold, in whatever order Kafka fills them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pyarrow as pa

from kafka_steward.assignment import Operation
from kafka_steward.planning.checker.room import fit_in_every_order

#: A broker, and the number of one of its log directories.
Volume = tuple[int, int]


@dataclass(frozen=True)
class VolumesLeft:
    """What a relief does to the volumes, by broker id and number of the log directory.

    `excess` has the bytes that each full volume must give away, and `given` the sizes of the replicas that leave it.
    `spare` has the bytes that the log directories of a broker may receive, unless that is not known, and `coming` the
    sizes of the replicas that come.
    """

    excess: Mapping[Volume, int]
    given: Mapping[Volume, Sequence[int]]
    spare: Mapping[int, Sequence[int]]
    coming: Mapping[int, Sequence[int]]

    @classmethod
    def of(
        cls, brokers: pa.Table, partitions: pa.Table, rows: pa.Table, proof: Mapping[str, Any]
    ) -> VolumesLeft | None:
        """Return what the `rows` of a plan do to the volumes; None unless the plan is a relief."""
        if proof.get("operation") != Operation.RELIEVE.value:
            return None
        limit = Fraction(str((proof.get("options") or {}).get("max_used")))
        excess, spare = dict[Volume, int](), dict[int, list[int]]()
        for row in brokers.to_pylist():
            disks = list(zip(row["disk_total"] or (), row["disk_used"] or (), strict=True))
            over = [used - int(total * limit) for total, used in disks]
            if row["state"] in ("live", "new"):
                # A volume of unknown size is not full.
                excess |= {(row["broker"], at): more for at, more in enumerate(over) if more > 0 and disks[at][0]}
            if row["room"] is not None and disks:
                spare[row["broker"]] = [min(room, max(-more, 0)) for room, more in zip(row["room"], over, strict=False)]
        given, coming = defaultdict[Volume, list[int]](list), defaultdict[int, list[int]](list)
        for row, partition in _moved_partitions(partitions, rows):
            directories = directories_of(partition["replicas"], partition["log_dirs"])
            for broker in row["removing"]:
                given[broker, directories.get(broker, -1)].append(row["bytes"] or 0)
            for broker in row["adding"]:
                coming[broker].append(row["bytes"] or 0)
        return cls(excess, given, spare, coming)

    def takes(self, broker: int, size: int) -> bool:
        """Return True if a broker could take one more replica of `size` bytes."""
        spare = self.spare.get(broker)
        return spare is None or fit_in_every_order(spare, [*self.coming.get(broker, ()), size])

    def stays_full(self, volume: Volume) -> bool:
        """Return True if a volume is still used above the threshold after the plan."""
        return self.excess.get(volume, 0) > sum(self.given.get(volume, ()))


def _moved_partitions(partitions: pa.Table, rows: pa.Table) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield each row of the plan with the partition of the snapshot that it moves."""
    keys = ["topic", "partition"]
    numbered = [
        table.select(keys).append_column(name, pa.array(range(len(table)), pa.int64()))
        for name, table in (("row", rows), ("at", partitions))
    ]
    # Arrow joins no lists.
    pairs = numbered[0].join(numbered[1], keys, join_type="inner")
    return zip(
        rows.select(["adding", "removing", "bytes"]).take(pairs["row"]).to_pylist(),
        partitions.select(["replicas", "log_dirs"]).take(pairs["at"]).to_pylist(),
        strict=True,
    )


def directories_of(replicas: Sequence[int], log_dirs: Sequence[int] | None) -> dict[int, int]:
    """Return the number of each replica's log directory by broker."""
    return dict(zip(replicas, log_dirs or [0] * len(replicas), strict=True))


def volume_problems(volumes: VolumesLeft | None) -> Iterator[str]:
    """Yield a problem for each volume that gives away more than it must, and each broker that receives too much."""
    if volumes is None:
        return
    for (broker, number), sizes in sorted(volumes.given.items()):
        excess = volumes.excess.get((broker, number), 0)
        if excess <= sum(sizes) - min(sizes):
            yield (
                f"Log directory {number} of broker {broker} gives away {sum(sizes)} bytes, and would do with less: it "
                f"holds {excess} bytes above max_used."
            )
    for broker, sizes in sorted(volumes.coming.items()):
        spare = volumes.spare.get(broker)
        if spare is not None and not fit_in_every_order(spare, sizes):
            yield f"Broker {broker} would receive {sum(sizes)} bytes, which brings its volumes above max_used."
