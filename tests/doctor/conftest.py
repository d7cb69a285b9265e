from __future__ import annotations

from tests.secured import secured

__all__ = ["secured"]
