"""TOML on all versions of Python that the package supports: the standard library reads it from 3.11 on."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

__all__ = ["read_toml"]


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    return tomllib.loads(path.read_text())
