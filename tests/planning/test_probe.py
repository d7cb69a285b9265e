"""What executors report before planning, and what is said about it."""

from __future__ import annotations

import json
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

import kafka_steward
from kafka_steward.errors import PlanError, PlanningFailed, SettingError
from kafka_steward.planning.spark.archive import (
    ArchiveFacts,
    check_archive,
    copy_archive,
    make_archive,
    read_archive_facts,
)
from kafka_steward.planning.spark.probe import Report, judge_reports

FACTS = ArchiveFacts("3.11", "linux-x86_64-glibc", "0.1", "c0de")
GOOD = Report("node-1", "3.11", "linux-x86_64-glibc", version=kafka_steward.__version__)


def test_executors_that_have_everything_pass() -> None:
    judge_reports([GOOD, replace(GOOD, host="node-2")], FACTS, "/mnt/w")
    judge_reports([replace(GOOD, python="3.12")], None, "s3://bucket/w")


@pytest.mark.parametrize(
    ("report", "sentence"),
    [
        (
            replace(GOOD, python="3.10"),
            "not fit Spark's executor on node-1: it is made for Python 3.11, not 3.10;",
        ),
        (
            replace(GOOD, python="3.10", platform="linux-aarch64-glibc"),
            "it is made for Python 3.11, not 3.10 and platform linux-x86_64-glibc, not linux-aarch64-glibc; make it",
        ),
    ],
)
def test_an_archive_for_another_python_or_platform_is_named(report: Report, sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        judge_reports([replace(GOOD, host="node-0"), report], FACTS, "s3://bucket/w")


def test_executors_that_lack_a_module_or_have_another_version_are_named() -> None:
    with pytest.raises(PlanningFailed, match="executor on node-1 has no pylmcf; make an archive with `airflow"):
        judge_reports([replace(GOOD, lacking=["pylmcf"])], FACTS, "s3://bucket/w")
    with pytest.raises(PlanningFailed, match=r"executor on node-1 has version 0.0.1 of kafka_steward, and the driver"):
        judge_reports([replace(GOOD, version="0.0.1")], None, "s3://bucket/w")


def test_one_executor_that_does_not_share_the_files_is_enough() -> None:
    other = replace(GOOD, host="node-2")
    for report in (replace(other, unread="reading: no"), replace(other, unwritten="writing: no")):
        with pytest.raises(SettingError, match=r"executor on node-2 does not share /mnt/w .*\((reading|writing): no"):
            judge_reports([GOOD, report], FACTS, "/mnt/w")
    with pytest.raises(SettingError, match=r"executor on node-2 does not share /mnt/w .*the driver does not see what"):
        judge_reports([GOOD, other], FACTS, "/mnt/w", unseen=[1])


def test_an_archive_says_what_it_is_made_for_and_is_read_from_any_store(tmp_path: Path) -> None:
    path = tmp_path / "a.tar.gz"
    facts = make_archive(str(path))
    assert facts == ArchiveFacts.of_this_machine() == read_archive_facts(str(path)) == read_archive_facts(path.as_uri())
    check_archive(str(path), facts)
    import fsspec

    fsspec.filesystem("memory").pipe_file("/archives/a.tar.gz", path.read_bytes())
    assert read_archive_facts("memory://archives/a.tar.gz") == facts
    (tmp_path / "copy").mkdir()
    assert copy_archive("memory://archives/a.tar.gz", tmp_path / "copy").read_bytes() == path.read_bytes()
    assert copy_archive(path.as_uri(), tmp_path / "copy") == copy_archive(str(path), tmp_path / "copy") == path


def test_an_archive_holds_what_the_solver_reads_of_itself_when_it_is_imported(tmp_path: Path) -> None:
    make_archive(str(tmp_path / "a.tar.gz"))
    with tarfile.open(tmp_path / "a.tar.gz") as archive:
        names = archive.getnames()
    assert [name for name in names if name.startswith("pylmcf-") and name.endswith(".dist-info/METADATA")]


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        (
            {"python": "2.7"},
            r"The archive /a is made for Python 2.7, and the driver runs Python 3.*; make it again",
        ),
        ({"code": "0", "version": "0.0.1"}, r"The archive /a holds other code \(of version 0.0.1\) than is installed"),
    ],
)
def test_an_archive_that_does_not_fit_is_refused_before_anything_is_submitted(
    changed: dict[str, str], sentence: str
) -> None:
    with pytest.raises(SettingError, match=sentence):
        check_archive("/a", replace(ArchiveFacts.of_this_machine(), **changed))


def test_an_archive_that_is_missing_or_not_ours_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"cannot be read here \(No such file or directory\); make it with"):
        read_archive_facts(str(tmp_path / "missing.tar.gz"))
    with pytest.raises(SettingError, match=r"The archive nowhere://a.tar.gz cannot be read here: .*nowhere"):
        read_archive_facts("nowhere://a.tar.gz")
    text = tmp_path / "text.tar.gz"
    text.write_text("not an archive")
    former = tmp_path / "former.tar.gz"
    with tarfile.open(former, "w:gz") as archive:
        archive.add(text, "kafka_steward/errors.py")
    half = tmp_path / "half.tar.gz"
    (tmp_path / "facts").write_text(json.dumps({"python": "3.11"}))
    with tarfile.open(half, "w:gz") as archive:
        archive.add(tmp_path / "facts", "kafka_steward_archive.json")
    for path in (text, former, half):
        with pytest.raises(SettingError, match="is no archive of this version of Kafka Steward, which begins with"):
            read_archive_facts(str(path))
    with pytest.raises(PlanError, match="cannot be written: No such file"):
        make_archive(str(tmp_path / "missing" / "a.tar.gz"))
