"""The log directories that a reassignment names (KIP-113).

A move names brokers: which of its directories takes a replica is the broker's choice. So a directory in which the
broker holds the replica already asks for nothing, and one of a replica that the broker does not hold is taken as "any".
Any other directory would be a move between the directories of one broker, which is refused.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping

from kafka_steward.assignment import name_some
from kafka_steward.cluster.state import Snapshot
from kafka_steward.errors import PlanError
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.planning.files.reassignment import Replica

#: Replicas that a note names; the others are only counted.
_NAMED = 3


def held_directories(cluster: ClusterPort, snapshot: Snapshot, replicas: Collection[Replica]) -> dict[Replica, str]:
    """Return the log directories in which the brokers hold `replicas`. Raises ClusterError.

    A replica that is not assigned to its broker, or is being added to it, is left out, and one that the broker does not
    report. Kafka is not called for those that are not assigned.
    """
    kept = [
        (name, broker)
        for name, broker in replicas
        if (partition := snapshot.partitions.get(name)) is not None
        and broker in set(partition.replicas) - set(partition.adding)
    ]
    asked = {broker for _, broker in kept} & snapshot.live
    answers = cluster.log_dirs(sorted(asked)) if asked else {}
    return {
        (name, broker): directory.path
        for name, broker in kept
        if broker in answers
        for directory in answers[broker].directories
        if name in directory.replica_bytes
    }


def other_directory_reason(named: Mapping[Replica, str], held: Mapping[Replica, str]) -> str:
    """Return why a reassignment that names these directories is refused, as a clause; empty if it is not. Pure."""
    for (name, broker), path in named.items():
        if held.get((name, broker), path) != path:
            return (
                f"it names the log directory {json.dumps(path)} (KIP-113) for {name} on broker {broker}, which has it "
                f"in {json.dumps(held[name, broker])}, and Kafka Steward moves nothing between the directories of one "
                'broker; write "any", or use kafka-reassign-partitions'
            )
    return ""


def chosen_by_broker_note(what: str, named: Mapping[Replica, str], held: Mapping[Replica, str]) -> str:
    """Return a note on the named directories that are taken as "any"; empty if there are none. Pure.

    `what` is the reassignment, as the subject of a sentence.
    """
    added = [f"{name} on broker {broker}" for name, broker in named if (name, broker) not in held]
    if not added:
        return ""
    return (
        f'{what} names a log directory (KIP-113) for {name_some(added, _NAMED)}; it is taken as "any": the '
        "broker chooses the directory of a replica that it does not hold."
    )


def check_directories(cluster: ClusterPort, snapshot: Snapshot, named: Mapping[Replica, str]) -> str:
    """Return the note of `chosen_by_broker_note` on a reassignment that a person submits.

    Raises PlanError if it names another directory than the one in which a broker holds a replica; ClusterError.
    """
    held = held_directories(cluster, snapshot, named)
    why = other_directory_reason(named, held)
    if why:
        raise PlanError(f"The reassignment is refused: {why}.")
    return chosen_by_broker_note("The reassignment", named, held)
