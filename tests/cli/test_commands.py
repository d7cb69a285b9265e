"""The commands as Airflow takes them in, each time that it starts, and the one that needs no cluster."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kafka_steward.planning.spark.archive import ArchiveFacts, read_archive_facts
from tests.cli.airflow_command import call

pytestmark = pytest.mark.process


def test_taking_them_in_imports_neither_kafka_nor_arrow_nor_what_carries_plans_out() -> None:
    script = (
        "import sys; from kafka_steward.cli import get_kafka_steward_commands as get; assert get()\n"
        "heavy, ours = {'kafka', 'kazoo', 'pyarrow', 'alembic'}, ('kafka_steward.cluster', 'kafka_steward.execution')\n"
        "print(sorted(m for m in sys.modules if m in heavy or m.startswith(ours)))"
    )
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=300)
    assert printed.stdout.splitlines()[-1] == "[]"


def test_it_writes_the_archive_and_says_what_it_is_made_for(tmp_path: Path) -> None:
    file = tmp_path / "kafka-steward.tar.gz"
    done = call("make-archive", str(file), "--output", "json")
    here = ArchiveFacts.of_this_machine()
    assert json.loads(done.stdout)["archive"] == str(file)
    assert json.loads(done.stdout)["python"] == here.python
    assert f'{{"archive": "{file}"}}' in done.stderr
    assert read_archive_facts(str(file)) == here


def test_a_file_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    done = call("make-archive", str(tmp_path / "missing" / "a.tar.gz"))
    assert done.returncode == 1
    assert done.stderr.strip().endswith("missing/a.tar.gz cannot be written: No such file or directory.")
