"""The Markdown summary for the approver of a plan: its proof, its moves by broker, its regressions. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kafka_steward.assignment import Move, MoveReason
from kafka_steward.escaping import markdown, printable
from kafka_steward.execution.decisions.constraint_regressions import constraint_regressions
from kafka_steward.planning.files.formats import PlanFolder, SnapshotFolder, cordoned_in

__all__ = ["plan_summary", "in_bytes", "in_time"]

#: The number of moves and regressions that are listed; the others are only counted.
_SHOWN = 20
_CORDONED = "Broker {} is cordoned (cordoned.log.dirs): it keeps what it has and receives nothing."
_UNITS = ("B", "kB", "MB", "GB", "TB")


def plan_summary(plan: PlanFolder, snapshot: SnapshotFolder) -> str:
    """Return the plan as a Markdown page: tables and lists only, because Airflow's Markdown drops everything else."""
    proof = plan.proof
    cluster_id, operation = (printable(str(proof.get(name))) for name in ("cluster_id", "operation"))
    head = (
        f"Plan **{plan.digest[:12]}** for cluster `{cluster_id}`: **{operation}**. Approving "
        f"approves exactly this plan, `{plan.digest}`; whatever is planned anew needs another approval."
    )
    parts = [
        head,
        _table(("", ""), _costs(plan)),
        _section("What it breaks", constraint_regressions(plan.moves, snapshot)),
    ]
    parts += ["### Brokers", _table(_BROKER_COLUMNS, _brokers(plan.moves, proof))]
    parts += [_section("Cordoned", [_CORDONED.format(broker) for broker in cordoned_in(snapshot.brokers)])]
    parts += [_section("Left as they are", _left(proof)), _section("Notes", proof.get("notes") or ())]
    parts += ["### Moves", _table(("partition", "from", "to", "size", "why"), map(_move, plan.moves[:_SHOWN]))]
    parts += [f"… and {len(plan.moves) - _SHOWN} more."] if len(plan.moves) > _SHOWN else []
    return "\n\n".join(part for part in parts if part)


def in_bytes(count: float) -> str:
    """Return a number of bytes in readable form, in powers of 1000: `1.2 GB`."""
    for unit in _UNITS[:-1]:
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} {_UNITS[-1]}"


def in_time(seconds: float) -> str:
    """Return a duration in readable form: `40 s`, `12 min`, `3 h 5 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _costs(plan: PlanFolder) -> list[tuple[str, str]]:
    proof = plan.proof
    racks = proof.get("rack_violations") or {}
    return [
        ("replicas moved", f"{proof.get('replicas_moved')} (no plan can move fewer than {proof.get('lower_bound')})"),
        ("bytes copied", in_bytes(proof.get("bytes_moved") or 0)),
        ("partitions touched", f"{len(plan.moves)} of {proof.get('partitions')}"),
        ("preferred leaders that change", f"{proof.get('leader_changes')}"),
        ("predicted duration", _duration(proof)),
        ("partitions not spread over the racks", f"{racks.get('before', 0)} before, {racks.get('after', 0)} after"),
    ]


def _duration(proof: Mapping[str, Any]) -> str:
    throttle, seconds = (proof.get("options") or {}).get("throttle"), proof.get("predicted_seconds")
    if not throttle or seconds is None:
        return "unthrottled: as fast as disks and network allow"
    return f"at least {in_time(seconds)} at {in_bytes(throttle)}/s into each broker"


_BROKER_COLUMNS = ("broker", "replicas", "leaders", "bytes", "replicas in", "replicas out", "bytes in")


def _brokers(moves: Sequence[Move], proof: Mapping[str, Any]) -> list[tuple[str, ...]]:
    into, out_of, size = Counter[int](), Counter[int](), Counter[int]()
    for move in moves:
        into.update(move.adding)
        out_of.update(move.removing)
        size.update(dict.fromkeys(move.adding, move.size_bytes or 0))
    spread = proof.get("spread") or {}
    named = {int(broker) for broker in ((spread.get("replicas") or {}).get("before") or {}).get("by_broker", ())}
    return [
        (
            str(broker),
            *(_both(spread, what, broker) for what in ("replicas", "leaders", "bytes")),
            str(into[broker]),
            str(out_of[broker]),
            in_bytes(size[broker]),
        )
        for broker in sorted(named | into.keys() | out_of.keys())
    ]


def _both(spread: Mapping[str, Any], what: str, broker: int) -> str:
    both = [
        ((spread.get(what) or {}).get(when) or {}).get("by_broker", {}).get(str(broker)) for when in ("before", "after")
    ]
    return " → ".join("?" if one is None else in_bytes(one) if what == "bytes" else str(one) for one in both)


def _left(proof: Mapping[str, Any]) -> list[str]:
    left = [*(proof.get("unplaced") or ()), *(proof.get("pinned") or ())]
    return [f"{one['topic']}-{one['partition']}: {str(one['reason']).replace('_', ' ')}" for one in left]


def _move(move: Move) -> tuple[str, ...]:
    size = "?" if move.size_bytes is None else in_bytes(move.size_bytes)
    before, after = (", ".join(map(str, replicas)) for replicas in (move.before, move.after))
    return str(move.topic_partition), before, after, size, MoveReason.in_words(move.reason)


def _section(title: str, lines: Sequence[str]) -> str:
    if not lines:
        return ""
    more = [f"- … and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    return "\n".join([f"### {title}", "", *(f"- {markdown(line)}" for line in lines[:_SHOWN]), *more])


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *([markdown(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
