"""`airflow kafka-steward make-archive`: no cluster, no connection."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kafka_steward.planning.spark.archive import ArchiveFacts, read_archive_facts
from tests.cli.airflow_command import call

pytestmark = pytest.mark.process


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
