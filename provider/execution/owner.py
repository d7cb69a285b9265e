"""The name by which a process holds the step lock."""

from __future__ import annotations

import os
import platform
import uuid

__all__ = ["new_owner"]


def new_owner() -> str:
    """Host and process for people, and a random part, so that no two steps ever share a name."""
    return f"{platform.node()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
