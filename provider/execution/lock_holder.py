"""The name by which a process holds the step lock."""

from __future__ import annotations

from kafka_steward.journal.process import process_name

__all__ = ["lock_holder_id"]


def lock_holder_id() -> str:
    """Return host and process id for people, and a random part, so that no two steps ever share a name."""
    return process_name()
