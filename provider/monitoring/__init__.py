"""Dashboards, alert rules and a mapping for statsd_exporter: files of the package, which its `__main__` prints."""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).parent
_KINDS = {".json", ".sql", ".yaml"}


def list_files() -> list[Path]:
    """Return the files, sorted by name."""
    return sorted(path for path in _FOLDER.iterdir() if path.suffix in _KINDS)
