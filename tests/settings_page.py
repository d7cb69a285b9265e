"""The text of docs/reference/settings.md: `python -m tests.settings_page > docs/reference/settings.md` writes it."""

from __future__ import annotations

from kafka_steward.settings import SETTINGS, Setting

_HEAD = """# Settings

A parameter of a run overrides the key of this name in the connection's extra, which overrides the section
`[kafka_steward]` of `airflow.cfg` (or `AIRFLOW__KAFKA_STEWARD__<NAME>`), which overrides the default. KIP-46's dotted
names are taken, too: `kafka.heal.chunk.size`. The forms of the DAGs have the settings that are marked *run*, and a
DAG file may give them as its `settings`. The others are those of the watch, which a cluster has once.

| setting | default | takes | of a run | |
|---|---|---|---|---|
"""
#: Ten years in seconds: a bound from here on is there to catch a wrong unit, and says nothing to a reader.
_UNBOUNDED = 315_360_000


def page() -> str:
    return _HEAD + "".join(f"{_row(name, setting)}\n" for name, setting in SETTINGS.items())


def _row(name: str, setting: Setting) -> str:
    text = str(setting.default).removesuffix(".0")
    default = f"`{text.lower() if isinstance(setting.default, bool) else text}`" if text else "empty"
    cells = (f"`{name}`", default, _values(setting), "run" if setting.per_run else "", setting.description)
    return f"| {' | '.join(cells)} |"


def _values(setting: Setting) -> str:
    if setting.choices:
        return ", ".join(f"`{choice}`" for choice in setting.choices)
    if setting.low is None or setting.high is None:
        return {"boolean": "true or false", "string": "a text"}[setting.json_type]
    kind = {"integer": "whole number", "number": "number"}[setting.json_type]
    most = f" to {setting.high:,}" if setting.high < _UNBOUNDED else ""
    return f"{kind} from {setting.low:g}{most}"


if __name__ == "__main__":
    print(page(), end="")
