"""The name by which a process holds the step lock."""

from __future__ import annotations

from kafka_steward.journal.process import process_name

__all__ = ["new_owner"]


def new_owner() -> str:
    """Return host and process id for people, and a random part, so that no two steps ever share a name."""
    return process_name()
