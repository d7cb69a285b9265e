"""Folders in a store of the kind of S3: what is written there, and what is said about one that cannot be used."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kafka_steward.errors import PlanError, SettingError
from kafka_steward.planning.files.formats import read_plan, read_snapshot
from kafka_steward.planning.files.storage import Folder
from kafka_steward.planning.spark.archive import ArchiveFacts, copy_archive, make_archive, read_archive_facts
from tests.airflow_home import NOWHERE
from tests.builders import cluster, written
from tests.local_plan import plan_folder
from tests.object_store import bucket, objects, s3_environment, s3_server, verify_credentials

__all__ = ["bucket", "s3_environment", "s3_server"]

pytestmark = [pytest.mark.process, pytest.mark.slow]
SNAPSHOT = cluster("1a 2b 3c 4a!", "orders: 124 234 341")


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_a_snapshot_and_a_plan_are_the_same_in_a_store(bucket: str, tmp_path: Path, scheme: str) -> None:
    folder = bucket.replace("s3:", f"{scheme}:")
    there, here = (written(SNAPSHOT, f"{place}/snapshot") for place in (folder, tmp_path))
    assert read_snapshot(there).digest == read_snapshot(here).digest
    assert plan_folder(there, f"{folder}/plan") == plan_folder(here, f"{tmp_path}/plan")
    assert objects(bucket) == [
        *("plan/plan.parquet", "plan/proof.json"),
        *(f"snapshot/{name}" for name in ("brokers.parquet", "partitions.parquet", "snapshot.json")),
    ]


def test_a_bucket_with_a_wrong_name_is_named_and_not_created(bucket: str) -> None:
    import s3fs

    wrong = f"{bucket}-wrong"
    with pytest.raises(
        PlanError, match=rf"The workspace cannot be written: brokers.parquet of {wrong}/w failed: no such bucket\.$"
    ):
        written(SNAPSHOT, f"{wrong}/w")
    with pytest.raises(
        PlanError, match=rf"The snapshot at {wrong}/w cannot be read: snapshot.json: no such (file|buc)"
    ):
        read_snapshot(f"{wrong}/w")
    assert wrong.removeprefix("s3://") not in s3fs.S3FileSystem().ls("")


def test_a_folder_of_a_bucket_that_is_empty_is_named(bucket: str) -> None:
    with pytest.raises(PlanError, match=rf"The plan at {bucket}/w cannot be read: proof.json: no such file\.$"):
        read_plan(f"{bucket}/w")
    assert Folder(f"{bucket}/w", "plan").read_text("review.md") is None


@pytest.fixture
def verified(s3_server: str) -> Iterator[None]:
    verify_credentials(s3_server, after=0)
    yield
    verify_credentials(s3_server, after=10**9)


def test_wrong_credentials_are_one_sentence(bucket: str, verified: None) -> None:
    with pytest.raises(
        PlanError, match=r"The workspace cannot be written: brokers.parquet of .* failed: The AWS Access"
    ):
        written(SNAPSHOT, f"{bucket}/w")
    with pytest.raises(PlanError, match=r"The snapshot at .* cannot be read: snapshot.json: Forbidden\.$"):
        read_snapshot(f"{bucket}/w")


def test_missing_credentials_are_one_sentence(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import s3fs

    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    s3fs.S3FileSystem.clear_instance_cache()
    with pytest.raises(PlanError, match=r"cannot be written: .* failed: Unable to locate credentials\.$"):
        written(SNAPSHOT, f"{bucket}/w")
    with pytest.raises(PlanError, match=r"cannot be read: snapshot.json: Unable to locate credentials\.$"):
        read_snapshot(f"{bucket}/w")
    with pytest.raises(
        SettingError, match=r"The archive .*a.tar.gz cannot be read here \(Unable to locate credentials"
    ):
        read_archive_facts(f"{bucket}/a.tar.gz")


def test_an_endpoint_that_is_not_reached_is_one_sentence(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import s3fs

    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{NOWHERE}")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    s3fs.S3FileSystem.clear_instance_cache()
    with pytest.raises(PlanError, match=rf"cannot be read: snapshot.json: Could not connect to .*http://{NOWHERE}/"):
        read_snapshot(f"{bucket}/w")


def test_what_another_process_wrote_meanwhile_is_read(bucket: str, tmp_path: Path) -> None:
    """As a plan whose rows are replaced, in a process that has listed them before."""
    snapshot = written(SNAPSHOT, f"{bucket}/snapshot")
    plan = plan_folder(snapshot, f"{bucket}/plan")
    folder = Folder(f"{bucket}/plan", "plan")
    assert len(folder.read_table("plan.parquet")) == len(plan.rows)
    table = pa.table({"partition": list(range(1000))})
    pq.write_table(table, tmp_path / "other.parquet")
    program = "import sys, s3fs; s3fs.S3FileSystem().put(*sys.argv[1:])"
    there = f"{bucket.removeprefix('s3://')}/plan/plan.parquet"
    command = [sys.executable, "-c", program, str(tmp_path / "other.parquet"), there]
    subprocess.run(command, check=True, timeout=120, env=os.environ.copy())
    assert folder.read_table("plan.parquet") == table


def test_a_file_larger_than_one_request_is_written_and_read(bucket: str) -> None:
    text = random.Random(1).randbytes(30 * 2**20).hex()
    folder = Folder(f"{bucket}/w", "plan")
    folder.write_text("review.md", text)
    assert folder.read_text("review.md") == text


def test_an_archive_is_read_from_a_store(bucket: str, tmp_path: Path) -> None:
    import s3fs

    facts = make_archive(str(tmp_path / "a.tar.gz"))
    s3fs.S3FileSystem().put(str(tmp_path / "a.tar.gz"), f"{bucket}/a.tar.gz")
    assert read_archive_facts(f"{bucket}/a.tar.gz") == facts == ArchiveFacts.of_this_machine()
    (tmp_path / "copy").mkdir()
    copied = copy_archive(f"{bucket}/a.tar.gz", tmp_path / "copy")
    assert copied.read_bytes() == (tmp_path / "a.tar.gz").read_bytes()
