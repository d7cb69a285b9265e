"""The search form of the audit trail, as it stands in the URL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from starlette.requests import Request

from kafka_steward.errors import RequestError
from kafka_steward.journal.audit import Action
from kafka_steward.page_data.audit import AuditFilter
from kafka_steward.value_parsing import shorten_value

#: The most characters of a field: no topic, digest or name is longer.
_LONGEST = 249

#: The fields of the form.
FIELDS = ("topic", "partition", "broker", "plan", "action", "person", "since", "until")
#: The actions, in the order of the form.
ACTIONS = tuple(action.value for action in Action)


def read_search(request: Request) -> AuditSearch:
    """Return the search in the parameters of a URL."""
    given = request.query_params
    return AuditSearch({name: given.get(name, "").strip()[:_LONGEST] for name in FIELDS})


@dataclass(frozen=True)
class AuditSearch:
    """The fields of the form, empty where nothing is asked for. Times are `2026-11-25T08:00`, in UTC."""

    fields: Mapping[str, str]
    actions: tuple[str, ...] = ACTIONS

    @property
    def is_empty(self) -> bool:
        """True if nothing is asked for: every row meets it."""
        return not any(self.fields.values())

    def chosen(self) -> AuditFilter:
        """Return the filter. Raises RequestError, naming the field that cannot be read."""
        given = self.fields
        return AuditFilter(
            topic=given["topic"] or None,
            partition=_number("partition", given["partition"], "the number of a partition, from 0"),
            broker=_number("broker", given["broker"], "the id of a broker, a number from 0"),
            plan=_plan(given["plan"]),
            action=_action(given["action"]),
            person=given["person"] or None,
            from_ms=_time_ms("since", given["since"]),
            until_ms=_time_ms("until", given["until"]),
        )


def _number(field: str, text: str, takes: str) -> int | None:
    if text and not (text.isascii() and text.isdecimal() and len(text) <= 10):
        raise RequestError(f"The {field} is {shorten_value(text)}; it takes {takes}.")
    return int(text) if text else None


def _plan(text: str) -> str | None:
    if set(text) - set("0123456789abcdef"):
        raise RequestError(f"The plan is {shorten_value(text)}; it takes a digest or its beginning, such as 3f2a91c0.")
    return text or None


def _action(text: str) -> Action | None:
    if text and text not in ACTIONS:
        raise RequestError(f"The action is {shorten_value(text)}; there are {', '.join(ACTIONS)}.")
    return Action(text) if text else None


def _time_ms(name: str, text: str) -> int | None:
    if not text:
        return None
    try:
        given = datetime.fromisoformat(text.replace("Z", "+00:00"))
        return int((given if given.tzinfo else given.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise RequestError(f"The time {name} is {shorten_value(text)}; write it like 2026-11-25T08:00.") from None
