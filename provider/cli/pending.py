"""The verb owed: list the pending replicas of under-replicated topics (KIP-409). Read-only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.cli.cli_config import ActionCommand, Arg

from kafka_steward.cli.verb import CommandContext, print_error, verb

if TYPE_CHECKING:
    from kafka_steward.execution.pending_state import PendingReplica
    from kafka_steward.journal.render import Table


_OWED = """\
A topic that was created while brokers were away has fewer replicas than it shall have (KIP-409); what is missing
is owed to each of its partitions, and the DAG `fill` adds it when a broker joins that can take it. `placeholders`
are the brokers that a partition has, and -1, -2, ... for each replica that is owed. A debt that is over (paid, or
dropped because someone else changed or deleted the topic) is shown until a fill or its watch has struck it out.
Exit code 0, whether or not anything is owed."""
_COLUMNS = ("partition", "has", "owed", "standing", "why")


def verbs() -> tuple[ActionCommand, ...]:
    """Return the verbs of this module."""
    topic = Arg(("--topic",), help="Only this topic")
    examples = ["owed --cluster kafka_production", "owed --topic orders --output json"]
    about = "The replicas that are owed to under-replicated topics, by partition"
    return (verb("owed", about, _owed, (topic,), examples=examples, details=_OWED),)


def _owed(call: CommandContext) -> None:
    from kafka_steward.execution.pending_replicas import list_pending
    from kafka_steward.execution.pending_state import eligible_brokers

    with call.hook.open() as opened:
        snapshot = opened.cluster.snapshot()
        judged = list_pending(opened.journal, snapshot)
        able = sorted(eligible_brokers(judged, snapshot))
    chosen = [pending for pending in judged if call.arguments.topic in (None, pending.partition.topic)]
    call.out.rows([_facts(pending) for pending in chosen], _table(chosen))
    missing = sum(pending.missing for pending in chosen if not pending.over)
    if not missing:
        print_error("No replica is owed.")
    elif able:
        print_error(f"{missing} replicas are owed; broker {', '.join(map(str, able))} can take some: run the DAG fill.")
    else:
        print_error(f"{missing} replicas are owed, and no live broker can take one; they are added when brokers join.")


def _facts(pending: PendingReplica) -> dict[str, Any]:
    return {
        **pending.partition._asdict(),
        "placeholders": list(pending.document.replicas),
        "replication_factor": pending.document.target_rf,
        "owed": 0 if pending.over else pending.missing,
        "standing": pending.state.value,
        "sentence": pending.sentence,
    }


def _table(judged: Sequence[PendingReplica]) -> Table:
    from kafka_steward.journal.render import Table

    rows: list[tuple[str, ...]] = [
        (
            str(pending.partition),
            ", ".join(map(str, pending.document.brokers)),
            str(0 if pending.over else pending.missing),
            pending.state.value,
            pending.sentence,
        )
        for pending in judged
    ]
    return Table(_COLUMNS, rows)
