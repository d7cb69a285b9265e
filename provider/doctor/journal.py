"""The journal: what kind it is, where it is and who opened it; and whether a watch is alive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka_steward.assignment import name_some
from kafka_steward.doctor.findings import Commands, Finding, Level, set_for_airflow
from kafka_steward.escaping import utc_text
from kafka_steward.execution.announcements import restart_clause, restarting_brokers
from kafka_steward.journal.records import WATCH_LEASE
from kafka_steward.journal.schema.upgrade import KNOWN
from kafka_steward.journal.store import Journal

#: What helps where a journal is missing, or is a file that other hosts do not see.
SHARE_JOURNAL = set_for_airflow("journal", "postgresql://USER@HOST/steward")
#: Hosts that a sentence names; the rest is only counted.
_NAMED = 5
#: Seconds after the end of a watch's lease at which it counts as dead, as no other watch has taken over.
_LATE_MS = 5_000


@dataclass(frozen=True, slots=True)
class LeaseFacts:
    """The lease of the watch: for how long it holds after its renewal, and how long ago that was."""

    ttl_ms: int
    age_ms: int
    polled: bool

    @property
    def alive(self) -> bool:
        """Return True while the watch that has it polls."""
        return self.polled and self.age_ms <= self.ttl_ms + _LATE_MS


def inspect_journal(journal: Journal, commands: Commands, *, executor: str, shared_needed: bool) -> list[Finding]:
    """Return the findings about an open journal. Raises JournalError.

    `shared_needed` says that the `executor` runs tasks on other hosts.
    """
    openings = [] if journal.hosts is None else journal.hosts.openings()
    polls = [] if journal.hosts is None else journal.hosts.polls()
    leases = [
        LeaseFacts(row.value.ttl_ms, journal.now_ms() - row.at_ms, row.value.polled)
        for row in journal.rows(WATCH_LEASE).all()
    ]
    place = "" if journal.identity is None else journal.identity.place
    return [
        journal_finding(place, openings, executor=executor, shared_needed=shared_needed),
        watch_finding(polls, leases, commands),
        *restart_findings(restarting_brokers(journal.mailbox, journal.now_ms())),
    ]


def restart_findings(restarts: Mapping[int, int | None]) -> list[Finding]:
    """Return a note about the announced restarts, with the times until which they apply; empty without any."""
    named = [f"broker {broker} {restart_clause(until_ms)}" for broker, until_ms in sorted(restarts.items())]
    sentence = f"Brokers that receive no replicas for now: {'; '.join(named)}."
    return [Finding("restarts", Level.NOTE, sentence)] if named else []


def journal_finding(
    place: str, openings: Sequence[Mapping[str, Any]], *, executor: str, shared_needed: bool
) -> Finding:
    """Return where the journal is and which hosts opened it; a fault for a file that other hosts cannot see."""
    hosts = name_some([f"{row['host']} (last {utc_text(row['last_ms'])})" for row in openings], _NAMED)
    sentence = f"The journal is {place}, schema {KNOWN[-1]}; opened by {hosts}."
    if shared_needed and place.startswith("sqlite"):
        sentence += (
            f" It is a file of this host, and the executor {executor} runs tasks on other hosts; set journal to a "
            "postgresql:// URL that all of them share."
        )
        return Finding("journal", Level.FAULT, sentence, SHARE_JOURNAL)
    return Finding("journal", Level.OK, sentence)


def watch_finding(polls: Sequence[Mapping[str, Any]], leases: Sequence[LeaseFacts], commands: Commands) -> Finding:
    """Return whether a watch polls now. `polls` are the last ones by kind and host, the newest first."""
    alive = any(lease.alive for lease in leases)
    helps = f"airflow dags reserialize\n{commands.steward('watch')}"
    # Airflow starts the watch of a DAG when it reads the DAG's file for the first time after it was unpaused.
    advice = (
        "unpause the DAG heal, whose watch the triggerer starts when Airflow has read the DAG files again, which the "
        "first command makes it do at once, or watch from a terminal"
    )
    if not polls and not alive:
        sentence = f"No watch has ever polled this journal, so that no failure is detected; {advice}."
        return Finding("watch", Level.FAULT, sentence, helps)
    newest: dict[str, str] = {}
    for poll in polls:
        newest.setdefault(poll["kind"], f"{poll['kind']} {_age_text(poll['age_ms'])} ago on {poll['host']}")
    named = ", ".join(newest.values()) or "its lease is renewed"
    if not alive:
        return Finding("watch", Level.FAULT, f"No watch is alive: the last polls were {named}; {advice}.", helps)
    return Finding("watch", Level.OK, f"A watch is alive: {named}.")


def _age_text(age_ms: int) -> str:
    seconds = max(0, age_ms) / 1000
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
