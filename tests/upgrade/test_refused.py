"""A process of the version before, beside this one: it is refused in one sentence, and changes nothing."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from kafka_steward.journal.schema import upgrade
from kafka_steward.journal.store import open_journal
from tests.journal.recorded import record
from tests.upgrade.former import VERSION, Former

pytestmark = pytest.mark.process

OPEN = """
import sys
import kafka_steward
from kafka_steward.errors import JournalError
from kafka_steward.journal.store import open_journal
url, cluster, host = sys.argv[1:]
try:
    with open_journal(url, cluster, host=host) as journal, journal.step_lock("a worker"):
        print(kafka_steward.__version__, "stepped")
except JournalError as error:
    print(kafka_steward.__version__, error)
"""


def dump(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as database:
        return list(database.iterdump())


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """A journal of the version before, in the middle of a plan."""
    path = tmp_path / "journal.db"
    with closing(sqlite3.connect(path)) as database:
        database.executescript((record.FOLDER / f"{VERSION}-final" / "journal.sql").read_text())
    return path


def open_by(former: Former, path: Path) -> str:
    done = former.run("-c", OPEN, f"sqlite:///{path}", record.CLUSTER, record.HOST, cwd=path.parent)
    assert done.returncode == 0, done.stdout
    return done.stdout.strip()


def test_the_version_before_steps_its_journal_until_this_one_opens_it_and_is_refused_then(
    former: Former, journal: Path
) -> None:
    assert open_by(former, journal) == f"{VERSION} stepped"
    with open_journal(f"sqlite:///{journal}", record.CLUSTER, host=record.HOST) as opened:
        assert [plan.digest for plan in opened.plans.unfinished()] == ["aaaa", "bbbb"]
    before = dump(journal)
    refused = open_by(former, journal)
    assert refused.startswith(f"{VERSION} The journal at sqlite:///")
    assert f"(schema {upgrade.KNOWN[-1]};" in refused
    assert refused.count("\n") == 0
    assert dump(journal) == before


def test_this_version_is_not_what_the_former_environment_runs(former: Former, tmp_path: Path) -> None:
    asked = "import kafka_steward, sqlalchemy; print(kafka_steward.__version__, kafka_steward.__file__)"
    version, file = former.run("-c", asked, cwd=tmp_path).stdout.split()
    assert version == VERSION
    assert Path(file).is_relative_to(former.bin.parent)
    assert not Path(file).is_relative_to(sys.prefix)
