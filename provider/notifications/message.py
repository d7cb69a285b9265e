"""The text of a notification: its title, severity, facts and keys, from the event and the task's context. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import Any

from kafka_steward.assignment import name_some
from kafka_steward.escaping import printable, utc_text
from kafka_steward.page_address import plan_url

#: Characters of a sentence and of a fact that are sent: every channel limits its messages.
_SENTENCE, _FACT = 2_000, 300
#: The most items of a list that are named.
_NAMED = 10
#: The password in a URL.
_USER_INFO = re.compile(r"(://)[^/\s@]+@")


class Severity(StrEnum):
    """The severity of an event, by PagerDuty's names."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"


@dataclass(frozen=True)
class EventKind:
    """The kind of an event: its name, severity and what it opens or closes.

    An event that `opens` a problem and one that `closes` it have the subject of the problem in common: the heal of the
    cluster, a plan, a run, or what the watch has found.
    """

    title: str
    severity: Severity = Severity.INFO
    opens: str = ""
    closes: tuple[str, ...] = ()


#: The events that notifiers are called with. `failed` is Airflow's own: a run of a DAG has failed.
EVENT_KINDS: Mapping[str, EventKind] = {
    "failure_detected": EventKind("Broker failure detected", Severity.WARNING, opens="heal"),
    "not_healable": EventKind("Not healed", Severity.CRITICAL, opens="heal"),
    "healed": EventKind("Healed", closes=("heal", "plan")),
    "approval_asked": EventKind("Approval asked"),
    "started": EventKind("Plan started"),
    "done": EventKind("Plan ended", closes=("plan",)),
    "filled": EventKind("Pending replicas filled", closes=("plan",)),
    "cancelled": EventKind("Plan cancelled", closes=("plan",)),
    "rolled_back": EventKind("Plan rolled back", closes=("plan",)),
    "unhealthy": EventKind("Cluster unhealthy", Severity.WARNING, opens="health"),
    "failed": EventKind("Run failed", Severity.ERROR, opens="run"),
    "stalled": EventKind("Plan stalled", Severity.ERROR, opens="plan"),
    "stuck": EventKind("Plan stuck", Severity.ERROR, opens="plan"),
    "paused": EventKind("Plan paused", Severity.WARNING, opens="alert"),
    "no_process": EventKind("Plan without a process", Severity.ERROR, opens="alert"),
    "outage": EventKind("Outage: nothing is healed", Severity.CRITICAL, opens="alert"),
    "heal_overdue": EventKind("Heal overdue", Severity.CRITICAL, opens="alert"),
    "watch_failing": EventKind("Watch failing", Severity.CRITICAL, opens="alert"),
    "recovered": EventKind("Works again"),
}
#: An event of a later release.
_UNKNOWN = EventKind("Kafka Steward")

#: The facts that a message shows, and their labels. Nothing else of a payload leaves Airflow.
_SHOWN: Mapping[str, str] = {
    "cluster_id": "Cluster id",
    "digest": "Plan",
    "plan": "Plan",
    "brokers": "Brokers",
    "status": "Status",
    "partitions": "Partitions",
    "replicas_moved": "Replicas",
    "left": "Partitions left",
    "under_replicated": "Under-replicated",
    "above": "Above the limit",
    "asked_by": "Asked by",
    "since_ms": "Since (UTC)",
}


@dataclass(frozen=True)
class Message:
    """A notification before it is rendered for a channel. All texts are of one line, and not escaped for any channel.

    `key` is the same for a repeated event. `opens` is the key of the problem that the event opens, empty for none;
    `closes` are the keys of those that it ends. `link` leads to the task or to its answer, `plan_link` to the plan on
    the page of Kafka Steward; each is empty if Airflow does not know its own address.
    """

    event: str
    severity: Severity
    title: str
    sentence: str
    facts: tuple[tuple[str, str], ...]
    source: str
    key: str
    opens: str = ""
    closes: tuple[str, ...] = ()
    link: str = ""
    link_label: str = ""
    plan_link: str = ""

    @property
    def links(self) -> tuple[tuple[str, str], ...]:
        """The addresses in the message, each with its label."""
        given = ((self.link, self.link_label), (self.plan_link, "Plan in Airflow"))
        return tuple((url, label) for url, label in given if url)


def build_message(context: Mapping[str, Any], base_url: str | None = None) -> Message:
    """Return the message for a context of Airflow; `kafka_steward` in it holds the event, except for a failed run.

    `base_url` is the address of Airflow's pages, for the links to the task and to the plan.
    """
    payload: Mapping[str, Any] = context.get("kafka_steward") or {"event": "failed"}
    event = str(payload.get("event"))
    kind = EVENT_KINDS.get(event, _UNKNOWN)
    run = _run_of(context)
    conn_id = payload.get("conn_id") or getattr(context.get("task"), "conn_id", None)
    source = str(conn_id or run[0])
    subjects = {
        "heal": "heal",
        "health": "health",
        "plan": f"plan:{_plan_of(payload)[:12]}",
        "run": f"run:{run[0]}",
        "alert": f"{payload.get('of') or event}:{payload.get('subject', '')}",
    }
    keys = {name: f"kafka-steward:{source}:{subject}" for name, subject in subjects.items()}
    ended = EVENT_KINDS.get(str(payload.get("of")))
    closed = kind.closes if ended is None else (ended.opens,)
    about = [event, source, *run, _plan_of(payload), *(str(payload.get(name)) for name in ("of", "subject", "at_ms"))]
    link, label = _link_of(context, payload, base_url)
    return Message(
        event,
        kind.severity,
        _line(f"{source}: {kind.title}{'' if ended is None else f' ({ended.title})'}", _FACT),
        _line(str(payload.get("sentence") or _failed_sentence(run, context)), _SENTENCE),
        _shown_facts(payload, run),
        _line(source, _FACT),
        sha256("\n".join(about).encode()).hexdigest()[:32],
        keys.get(kind.opens, ""),
        tuple(keys[name] for name in closed if name),
        link,
        label,
        plan_url(str(conn_id or ""), _plan_of(payload), base_url),
    )


def _plan_of(payload: Mapping[str, Any]) -> str:
    return str(payload.get("digest") or payload.get("plan") or "")


def _run_of(context: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return the ids of DAG, run and task; the callback of a DAG has no task."""
    task, run = context.get("ti"), context.get("dag_run")
    dag_id, run_id = (getattr(task, name, None) or getattr(run, name, None) for name in ("dag_id", "run_id"))
    return str(dag_id or "unknown"), str(run_id or ""), str(getattr(task, "task_id", None) or "")


def _failed_sentence(run: tuple[str, str, str], context: Mapping[str, Any]) -> str:
    # Not the exception, whose text may be of any library.
    where = f" in the task {run[2]}" if run[2] else ""
    why = f" ({context['reason']})" if context.get("reason") else ""
    return f"A run of the DAG {run[0]} failed{where}{why}; its log says why."


def _shown_facts(payload: Mapping[str, Any], run: tuple[str, str, str]) -> tuple[tuple[str, str], ...]:
    shown = {
        label: _line(_fact_text(name, payload[name]), _FACT)
        for name, label in _SHOWN.items()
        if payload.get(name) not in (None, "", [], ())
    }
    return tuple({**shown, "Run": _line(" ".join(filter(None, run[:2])), _FACT)}.items())


def _fact_text(name: str, value: Any) -> str:
    if name in {"digest", "plan"}:
        return str(value)[:12]
    if name == "since_ms":
        return utc_text(int(value))
    if isinstance(value, Collection) and not isinstance(value, str):
        return name_some(value, _NAMED)
    return str(value)


def _link_of(context: Mapping[str, Any], payload: Mapping[str, Any], base_url: str | None) -> tuple[str, str]:
    if payload.get("link"):
        return str(payload["link"]), "Answer in Airflow"
    url = getattr(context.get("ti"), "log_url", None)
    if not url and base_url:
        url = f"{base_url.rstrip('/')}/dags/{_run_of(context)[0]}"
    # Only an address of the web: a link is the one part of a message that is opened.
    return (str(url), "Open in Airflow") if str(url).startswith(("http://", "https://")) else ("", "")


def _line(text: str, most: int) -> str:
    clean = printable(_USER_INFO.sub(r"\1***@", text))
    return clean if len(clean) <= most else f"{clean[: most - 1]}…"
