"""Addresses: one place where Spark's spelling and fsspec's are told apart."""

import threading

import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFile

from kafka_steward.planning.files.storage import Folder, fsspec_uri, is_local_uri, spark_uri


@pytest.mark.parametrize(
    ("given", "spark", "fsspec"),
    [
        ("s3://bucket/run", "s3a://bucket/run", "s3://bucket/run"),
        ("s3a://bucket/run", "s3a://bucket/run", "s3://bucket/run"),
        ("file:///w/run", "file:///w/run", "file:///w/run"),
        ("file:/w/run", "file:/w/run", "file:///w/run"),
        ("/w/my run", "file:///w/my run", "/w/my run"),
        ("hdfs://name/run", "hdfs://name/run", "hdfs://name/run"),
        ("gs://bucket/run", "gs://bucket/run", "gs://bucket/run"),
    ],
)
def test_an_address_in_both_spellings(given: str, spark: str, fsspec: str) -> None:
    assert spark_uri(given) == spark
    assert fsspec_uri(given) == fsspec
    assert is_local_uri(given) == spark.startswith("file:")


def test_a_table_takes_the_place_of_a_folder_that_an_attempt_left() -> None:
    folder = Folder("memory://steward/run/plan", "plan")
    folder.write_text("plan.parquet/part-00009-old.snappy.parquet", "half a file")
    folder.write_table("plan.parquet", pa.table({"partition": [1, 2]}))
    assert folder.read_table("plan.parquet").to_pydict() == {"partition": [1, 2]}
    folder.write_table("plan.parquet", pa.table({"partition": [3]}))
    assert folder.read_table("plan.parquet").to_pydict() == {"partition": [3]}


def test_no_thread_of_arrow_reads_from_an_object_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    # Such a thread may still hold the object when the process exits, which then aborts.
    readers: set[threading.Thread] = set()
    read = MemoryFile.read

    def recorded(self: MemoryFile, size: int = -1) -> bytes:
        readers.add(threading.current_thread())
        return bytes(read(self, size))

    monkeypatch.setattr(MemoryFile, "read", recorded)
    folder = Folder("memory://steward/threads/plan", "plan")
    folder.write_table("plan.parquet", pa.table({"partition": range(50_000)}))
    assert folder.read_table("plan.parquet").num_rows == 50_000
    assert readers <= {threading.current_thread()}
