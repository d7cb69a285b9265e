"""Leaves behind what a commit writes, for tests that need no history: `python -m tests.upgrade.record COMMIT NAME`.

The journal goes to `tests/journal/recorded/NAME/journal.sql`, as the commit's own `tests.journal.recorded.record` makes
it, and the serialized triggers to `tests/upgrade/recorded/NAME/triggers.json`. Neither is changed afterwards.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

from tests.upgrade.former import ROOT, extract, install

FOLDER = Path(__file__).parent / "recorded"

#: Runs with the commit's code: each kind of trigger that Airflow stores, with every argument that it had.
_TRIGGERS = """
import json
from kafka_steward.triggers.run_plan import RunPlanTrigger
from kafka_steward.triggers.wait import WaitTrigger
from kafka_steward.triggers.watch import EVENTS, WatchTrigger
who = {"dag_id": "apply", "run_id": "manual", "task_id": "submit", "try_number": 1, "person": "ann"}
overrides, journal = {"throttle": 20000}, {"id": "0123", "place": "sqlite:////journal.db on the host h"}
made = [
    RunPlanTrigger("kafka", "ab" * 32, overrides, who, when_killed="cancel", map_index=2, journal=journal),
    WaitTrigger("kafka", "caught_up", {"plan": "ab" * 32}, 5.0, overrides, journal=journal),
    *(WatchTrigger("kafka", overrides, event) for event in EVENTS),
]
print(json.dumps([each.serialize() for each in made], indent=2))
"""


def main(commit: str, name: str) -> None:
    """Write both files of a commit; neither may exist."""
    with tempfile.TemporaryDirectory() as place:
        source = Path(place) / "source"
        extract(source, commit)
        for release in (source / "tests" / "journal" / "recorded").glob("*/journal.sql"):
            release.unlink()
        former = install(Path(place), commit)
        done = former.run("-m", "tests.journal.recorded.record", cwd=source)
        assert done.returncode == 0, done.stdout
        (journal,) = (source / "tests" / "journal" / "recorded").glob("*/journal.sql")
        done = former.run("-c", _TRIGGERS, cwd=Path(place), AIRFLOW_HOME=place)
        assert done.returncode == 0, done.stdout
        for target in (ROOT / "tests" / "journal" / "recorded" / name, FOLDER / name):
            target.mkdir(parents=True)
        # A commit may have named the folder in which it recorded, which is another one with each run.
        text = re.sub(r"sqlite:////[^ ]*?/journal\.db", "sqlite:////var/lib/recorded/journal.db", journal.read_text())
        (ROOT / "tests" / "journal" / "recorded" / name / "journal.sql").write_text(text)
        (FOLDER / name / "triggers.json").write_text(done.stdout[done.stdout.index("[\n") :])


if __name__ == "__main__":
    main(*sys.argv[1:])
